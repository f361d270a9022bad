"""`hymo eval --tasks`, `--suite` and `hf:NAME`: what needs the lm-evaluation-harness."""

from __future__ import annotations

import hashlib
import importlib.util
import json as jsonlib
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hymo.cli.eval_output import keep
from hymo.cli.output import log, print_json, print_table
from hymo.core.errors import UsageError, nearest

if TYPE_CHECKING:
    from hymo.evaluation.subject import Subject
    from hymo.evaluation.task_data import TaskData

_HF = "hf:"
_LONGEST_NAME = 80


@dataclass(frozen=True)
class Request:
    """What the command was given, see `hymo.cli.eval.evaluate`."""

    checkpoint: str
    data: Path | None
    split: str
    stride: int | None
    max_bytes: int | None
    include_path: Path | None
    mirror: Path | None
    download: bool
    limit: int | None
    out: Path | None
    trust_remote_code: bool
    batch_size: int
    device: str
    json: bool

    @property
    def run(self) -> Path | None:
        """The checkpoint's or run's folder; None for a model in the Hugging Face format."""
        return None if self.checkpoint.startswith(_HF) else Path(self.checkpoint)

    def check(self) -> None:
        """Refuse what can be refused before any work."""
        _require_packages()
        if self.batch_size < 1:
            raise UsageError(f"--batch-size: must be at least 1, not {self.batch_size}.")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"--limit: must be at least 1, not {self.limit}.")
        if self.mirror is not None and not self.mirror.is_dir():
            raise UsageError(f"{self.mirror}: no such folder. --mirror takes a folder with copies of data sets.")
        if self.run is not None:
            from hymo.models.checkpoint import checkpoints_at

            checkpoints_at(self.run)

    def task_data(self) -> TaskData:
        """Where tasks find their data."""
        from hymo.evaluation.task_data import TaskData

        folders = [] if self.include_path is None else [self.include_path]
        return TaskData(self.mirror, folders, self.download)

    def subject(self) -> Subject:
        """Load the model."""
        from hymo.evaluation.subject import checkpoint_subject
        from hymo.training.device import resolve_device

        device = resolve_device(self.device)
        if self.run is not None:
            return checkpoint_subject(
                self.run, device, batch_size=self.batch_size, stride=self.stride, progress=sys.stderr.isatty()
            )
        from hymo.evaluation.hf_model import hf_subject

        return hf_subject(
            self.checkpoint.removeprefix(_HF),
            device,
            batch_size=self.batch_size,
            trust_remote_code=self.trust_remote_code,
            download=self.download,
        )

    def documents(self) -> tuple[list[bytes], dict[str, Any]]:
        """The held-out documents as bytes, and what identifies them."""
        from hymo.core.load import CONFIG, load_config
        from hymo.data import EvaluationWindows, load_manifest, load_tokenizer, open_split
        from hymo.data.of_run import data_of_run
        from hymo.data.tokenizer import tokenizer_of_run
        from hymo.models.checkpoint import checkpoints_at

        if self.run is None:
            if self.data is None:
                raise UsageError("Pass --data DIR, a data set written by `hymo data prepare`.")
            source, tokenizer = str(self.data), load_tokenizer(load_manifest(self.data).tokenizer)
        else:
            config = load_config(checkpoints_at(self.run)[0] / CONFIG)
            source = str(self.data) if self.data is not None else data_of_run(config.run.data, self.run)
            tokenizer = tokenizer_of_run(config.run.tokenizer, self.run)
        text = open_split(source, self.split, tokenizer)
        windows = EvaluationWindows(text, 1, max_bytes=self.max_bytes, tokenizer=tokenizer)
        facts = {
            "data": source,
            "data_fingerprint": text.fingerprint,
            "split": self.split,
            "max_bytes": self.max_bytes,
            "bytes": windows.n_bytes,
        }
        return windows.documents(tokenizer), facts

    def keep(
        self, subject: Subject, name: str, options: dict[str, object], facts: Any, text: str | None = None
    ) -> None:
        """Write the result files, if there is a place for them."""
        step = f"step-{subject.facts['step']:08d}-" if "step" in subject.facts else ""
        keep(self.run, self.out, step + name, {**options, "limit": self.limit}, facts, text)


def evaluate_tasks(request: Request, names: list[str], shots: int | None, seed: int | None) -> None:
    """Run tasks of the harness on one model."""
    request.check()
    if not names:
        raise UsageError("--tasks: names none. Give tasks separated by commas, such as hellaswag,arc_easy.")
    from hymo.evaluation.harness import SEED
    from hymo.evaluation.tasks import HARNESS_VERSION, OpenTasks

    opened = OpenTasks(names, request.task_data(), request.include_path, shots)
    subject = request.subject()
    used = SEED if seed is None else seed
    results = opened.run(subject.lm, limit=request.limit, seed=used)
    facts = {
        "subject": subject.facts,
        "harness_version": HARNESS_VERSION,
        "seed": used,
        "limit": request.limit,
        "tasks": {name: result.to_dict() for name, result in results.items()},
    }
    label = "+".join(Path(name).stem for name in names)
    if len(label) > _LONGEST_NAME:
        label = hashlib.sha256(label.encode()).hexdigest()[:12]
    request.keep(subject, f"tasks-{label}", {"shots": shots, "seed": seed}, facts)
    if request.json:
        print_json(facts)
        return
    rows = [
        (
            name,
            metric.removesuffix(",none"),
            str(result.shots),
            f"{figure.value:.4f}",
            "-" if figure.stderr is None else f"{figure.stderr:.4f}",
            f"{result.n_items:,}",
            f"{result.truncated:,}",
        )
        for name, result in results.items()
        for metric, figure in result.metrics.items()
    ]
    columns = ("task", "metric", "shots", "value", "stderr", "items", "truncated")
    print_table(f"{subject.name}, lm-evaluation-harness {HARNESS_VERSION}", columns, rows, left=(0, 1))


def evaluate_suite(request: Request, name: str, skip: list[str], compare: tuple[Path, ...]) -> None:
    """Run a suite on one model."""
    request.check()
    from hymo.evaluation.report import markdown, summary_rows, verdict
    from hymo.evaluation.suite import load_suite, run_suite
    from hymo.evaluation.suite_runners import Place, make_runner
    from hymo.evaluation.tasks import HARNESS_VERSION, MissingDataError

    suite = load_suite(name)
    for skipped in skip:
        if skipped not in suite.tasks:
            raise UsageError(f"--skip: suite {suite.name} has no task '{skipped}'{nearest(skipped, suite.tasks)}.")
    others = _by_model([_read_result(path, suite.name) for path in _result_files(compare, suite.name)])
    place = Place(request.task_data(), request.documents, request.include_path, request.limit)
    runners = {task: make_runner(task, item, place) for task, item in suite.tasks.items() if task not in skip}
    if not runners:
        raise UsageError(f"--skip: leaves nothing of suite {suite.name}.")
    missing = [item for runner in runners.values() for item in runner.missing()]
    if missing:
        raise MissingDataError(missing)
    subject = request.subject()
    result = {**run_suite(suite, runners, subject, log), "harness_version": HARNESS_VERSION, "limit": request.limit}
    result["references"] = {title: reference.model_dump() for title, reference in suite.references.items()}
    left_out = "+".join(task for task in suite.tasks if task in skip) or None
    request.keep(subject, f"suite-{suite.name}", {"skip": left_out}, result, markdown(suite, result, others))
    if request.json:
        print_json(result)
        return
    columns, rows = summary_rows(suite, result, others)
    print_table(f"{subject.name}, suite {suite.name}", columns, rows)
    print(verdict(result))
    for note in suite.notes:
        print(f"- {note}")


def evaluate_held_out(request: Request) -> None:
    """Bits per byte of a model in the Hugging Face format."""
    request.check()
    documents, source = request.documents()
    subject = request.subject()
    nats = -math.fsum(subject.lm.score_documents(documents))
    size = sum(map(len, documents))
    figures = {
        "bits_per_byte": nats / math.log(2) / size,
        "byte_perplexity": math.exp(min(nats / size, 700.0)),
        "bytes": size,
        "documents": len(documents),
    }
    facts = {"subject": subject.facts, **source, **figures}
    request.keep(subject, request.split, {"max_bytes": request.max_bytes}, facts)
    if request.json:
        print_json(facts)
        return
    rows = [
        ("bits per byte", f"{figures['bits_per_byte']:.4f}"),
        ("byte perplexity", f"{figures['byte_perplexity']:.4f}"),
        ("text", f"{size:,} bytes, {len(documents):,} documents"),
    ]
    print_table(f"{subject.name}, {request.split} of {source['data']}", ("measure", "value"), rows)


def _result_files(places: tuple[Path, ...], suite: str) -> list[Path]:
    """The files, and those of the suite in folders."""
    files: list[Path] = []
    for place in places:
        found = sorted(place.glob(f"*suite-{suite}*.json")) if place.is_dir() else [place]
        if not found:
            raise UsageError(f"--compare {place}: no result of suite {suite} there. Give a folder written by --out.")
        files += found
    return files


def _by_model(results: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Results by the last part of the model's name, or all of it where that is taken: checkpoints of two runs."""
    named: dict[str, dict[str, Any]] = {}
    for result in results:
        model = result["subject"]["model"]
        short = Path(model.removeprefix(_HF)).name
        named[model if short in named else short] = result
    return named


def _read_result(path: Path, suite: str) -> dict[str, Any]:
    """A result file of the same suite."""
    try:
        value = jsonlib.loads(path.read_text(encoding="utf-8"))
        if value["suite"] == suite and value["subject"]["model"] and isinstance(value["tasks"], dict):
            return dict(value)
        reason = f"it is of suite {value['suite']}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
    raise UsageError(f"--compare {path}: no result of suite {suite} ({reason}). Give a file written by --suite.")


def _require_packages() -> None:
    for name in ("lm_eval", "scipy", "accelerate", "transformers"):
        if importlib.util.find_spec(name) is None:
            raise UsageError(f"tasks, suites and hf: models need the package {name}: pip install 'hymo[eval]'")
