"""The training loop. It knows no layer by name: modules state roles, `after_step()` and `telemetry()`."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hymo.core.config import HyMoConfig
from hymo.core.errors import CheckpointError, TrainingError, UsageError
from hymo.core.launch import check_ranks
from hymo.core.load import CONFIG, load_config, same_but_for_length
from hymo.data.heldout import EvaluationWindows
from hymo.data.loader import PackedLoader, batch_digest
from hymo.evaluation.perplexity import Perplexity, evaluate
from hymo.models import HyMo, Window, build_hymo
from hymo.models.checkpoint import Manifest, find_checkpoint, load_tensors
from hymo.training.batches import Batch, LoaderSteps, StepBatches, to_windows
from hymo.training.checkpointer import Checkpointer, SaveResult
from hymo.training.device import resolve_device, spare_the_host, without_effect
from hymo.training.gradients import Gradients
from hymo.training.metrics import Callback
from hymo.training.optimizers import build_optimizers
from hymo.training.out_of_memory import memory_explained
from hymo.training.passes import Passes
from hymo.training.profiling import StepProfiler
from hymo.training.ranks import ALONE, Ranks
from hymo.training.retention import pinned_steps
from hymo.training.scheduler import JointWSDScheduler
from hymo.training.sharding import as_shards
from hymo.training.spikes import Spikes
from hymo.training.state import new_manifest, restore_rng, rng_names, training_state
from hymo.training.stopping import AgreedStop, Interrupted, StopRequest
from hymo.training.throughput import Meter
from hymo.training.verdict import FIRST_BLOCK, Verdict


@dataclass(frozen=True)
class TrainResult:
    """How a run ended."""

    step: int
    """Optimizer steps done."""
    tokens: int
    """Training tokens seen."""
    seconds: float
    """Wall clock of this process's steps, validation and checkpoints left out."""
    validation: Perplexity | None
    """The last validation."""
    exit_code: int
    """0, or 130 / 143 after a saved interrupt."""


class Trainer:
    """Trains one model, in one process or as one of several ranks.

    Args:
        config: the run.
        data_iter: batches as dictionaries with `tokens` (B, T+1) and optional `cu_seqlens` over the flattened tokens;
            one batch is one micro-batch. A `PackedLoader` can also be resumed and checked against the number of steps.
        validation: held-out windows, or None.
        checkpointer: where to save, or None.
        callbacks: sinks for metrics and events.
        model: a model to train, with equal values on every rank; built from the configuration if None.
        config_hash: hash that a checkpoint must carry to be resumed.
        tokenizer: fingerprint of the tokenizer, kept in checkpoints.
        profiles: folder for what `training.profile_steps` asks for; None records nothing.
        ranks: the processes that train this model together. Each is given the same arguments, an iterator of the same
            batches included, and takes its own micro-batches of every step.
    """

    def __init__(
        self,
        config: HyMoConfig,
        data_iter: PackedLoader | Iterable[Batch],
        *,
        validation: EvaluationWindows | None = None,
        checkpointer: Checkpointer | None = None,
        callbacks: Sequence[Callback] = (),
        model: HyMo | None = None,
        config_hash: str = "",
        tokenizer: str = "",
        profiles: Path | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        check_ranks(config, ranks.size)
        self.config, self.ranks = config, ranks
        self.device = resolve_device(config.run.device)
        spare_the_host(self.device)
        torch.manual_seed(config.training.seed + ranks.rank)
        self.master = build_hymo(config, device=self.device) if model is None else model.to(self.device)
        self.master.train()
        self.passes = Passes(self.master, config, self.device, ranks)
        self.copy, shards = self.passes.copy, self.passes.shards
        self.parameters = dict(self.master.named_parameters()) if shards is None else shards.local
        self.optimizers = build_optimizers(self.master, config.optimizer, shards, ranks)
        self.gradients = Gradients(self.parameters, shards, ranks)
        self.rows = {} if shards is None else shards.rows
        self.scheduler = JointWSDScheduler.from_config(self.optimizers, config.scheduler, config.total_steps)
        self.loader = data_iter if isinstance(data_iter, PackedLoader) else None
        self._stream = None if isinstance(data_iter, PackedLoader) else iter(data_iter)
        self._source: LoaderSteps | None = None
        if self.loader is not None:
            self.loader.require_steps(config.total_steps)
            share = ranks.rank, ranks.size, self._micro_batches
            self._source = LoaderSteps(self.loader, *share, config.model.vocab_size, self.passes.count_targets)
        elif config.training.spike_rewind:
            raise UsageError("training.spike_rewind: batches of an iterator cannot be left out. Set it to false.")
        self.validation, self.checkpointer = validation, checkpointer
        self.callbacks = list(callbacks)
        self._config_hash, self._tokenizer, self._profiles = config_hash, tokenizer, profiles
        self.step, self.tokens, self.skipped_in_a_row = 0, 0, 0
        self.spikes = Spikes(config.training.spike_window, config.training.spike_sigmas)
        self._rewinds = 0
        self.judge: Callable[[], Verdict] | None = None
        """What judges the run at training.verdict_step, called on the first rank."""
        self._first_step = 0
        self.best_loss: float | None = None
        self.best_step: int | None = None
        self.last_validation: Perplexity | None = None
        self._batches: StepBatches | None = None  # of the last next_windows
        self._waited = 0.0  # seconds of the last step, as _build_ahead gives them
        self._saved_step = self._validated_step = 0
        self._saved_at = time.monotonic()

    def train(self) -> TrainResult:
        """Run to the last step, or until a signal; validate and save on the way.

        Raises:
            TrainingError: too many non-finite steps in a row, or the data ended early.
            DataError: a batch that the model cannot take.
        """
        cfg = self.config.training
        meter = Meter(self.config, self.device, self.ranks.size)
        self._event(
            "start" if self.step == 0 else "continue", step=self.step, device=self.device.type, ranks=self.ranks.size
        )
        for name, reason in without_effect(self.config, self.device, self.ranks.size).items():
            self._event("without_effect", field=name, reason=reason)
        profiler = StepProfiler(self._profiles, cfg.profile_steps, self.device, self._event)
        with (
            StopRequest() as heard,
            self._saves_end(),
            self.ranks.telling(),
            memory_explained(self.config, self.device),
            profiler,
        ):
            stop = heard if self.ranks.size == 1 else AgreedStop(heard, self.ranks)
            self._validate_if_due(stop)  # an interrupt may have come just before it
            while self.step < self.config.total_steps and not stop():
                began = time.perf_counter()
                windows: Sequence[Window] = ()
                try:  # somebody else's iterator may wait for ever
                    with heard.waiting() if self.loader is None else nullcontext():
                        windows = self.next_windows()
                except Interrupted:
                    if self.ranks.size == 1:
                        break
                if self.ranks.size > 1 and stop.agree():
                    break
                waited = time.perf_counter() - began
                logs = (self.step + 1) % cfg.log_interval == 0 or self.step + 1 == self.config.total_steps
                with profiler.step(self.step + 1):
                    record, tokens = self.take_step(windows, telemetry=logs or self.step == 0)
                meter.add(tokens, time.perf_counter() - began, waited + self._waited)
                if cfg.spike_rewind and self._rewound(record["train/loss"]):
                    continue
                if logs or self.step == 1:
                    rates = {f"lr/{g['name']}": g["lr"] for g in self.optimizers.groups}
                    self._metrics("train", {**record, **meter.read(), **rates, **self._data_hash()})
                self._between_steps(stop)
            if stop.agree():
                self._event("interrupted", step=self.step, signal=stop.signal)
            self._finish()
        self._event("stop", step=self.step, tokens=self.tokens)
        return TrainResult(self.step, self.tokens, meter.total_seconds, self.last_validation, stop.exit_code)

    def take_step(self, windows: Sequence[Window], telemetry: bool = False) -> tuple[dict[str, float], int]:
        """One optimizer step on the micro-batches of `next_windows`: what is worth recording, and tokens trained on."""
        factor = self.scheduler.set(self.step)
        record, tokens = self._optimizer_step(windows, telemetry)
        self.step += 1
        self.tokens += tokens
        if self.step == self._first_step + 1:  # whatever takes long (start, compilation) is over
            self.ranks.limit_waits(self.config.training.rank_timeout_minutes)
        return {**record, "train/lr_factor": factor}, tokens

    def _between_steps(self, stop: StopRequest | AgreedStop) -> None:
        cfg = self.config.training
        self._saves()
        self._validate_if_due(stop)
        overdue = False
        if cfg.checkpoint_minutes is not None:
            minutes = (time.monotonic() - self._saved_at) / 60
            overdue = self.ranks.exchange([minutes >= cfg.checkpoint_minutes])[0][0] > 0  # by the first rank's clock
        failed = self._judged()
        stable = cfg.keep_stable and self.step == self.scheduler.decay_start
        best = cfg.keep_best and self.best_step == self.step
        if failed or overdue or stable or best or self.step % cfg.checkpoint_interval == 0:
            self._save()
        if failed:
            self._saves(wait=True)
            raise TrainingError(
                f"step {self.step}: the verdict is bad (training.verdict_gate): {failed} Change that in a new run, or "
                "go on with --resume."
            )

    def _judged(self) -> str:
        """Tell the verdict when its step has come; what must stop the run, or an empty string."""
        cfg = self.config.training
        if self.step != cfg.verdict_step or self.judge is None:
            return ""
        found = self.ranks.on_first(self.judge)
        self._event("verdict", step=self.step, **found.event())
        return " ".join(f"{each.name}: {each.text}." for each in found.failed) if cfg.verdict_gate else ""

    def _validate_if_due(self, stop: StopRequest | AgreedStop) -> None:
        due = self.step % self.config.training.eval_interval == 0 or self.step == self.config.total_steps
        if self.validation is not None and due and self._validated_step < self.step and not stop():
            self._validate(stop)

    @contextmanager
    def _saves_end(self) -> Iterator[None]:
        """Let a save in flight end and be reported, whatever ends the block."""
        try:
            yield
        finally:
            self._saves(wait=True)

    @property
    def _micro_batches(self) -> int:
        """Forward passes of one optimizer step on this rank."""
        return self.config.training.grad_accum_steps * self.config.training.dp_size // self.ranks.size

    def next_windows(self) -> list[Window]:
        """The micro-batches of one optimizer step, on the CPU."""
        if self._source is not None:
            self._batches = self._source.take(self.spikes.batch_of(self.step), self.step)
            return self._batches.windows
        assert self._stream is not None
        accumulate, rank, world = self._micro_batches, self.ranks.rank, self.ranks.size
        batches = list(islice(self._stream, accumulate * world))
        if len(batches) < accumulate * world:
            raise TrainingError(
                f"step {self.step}: the data ended after {len(batches)} of {accumulate * world} micro-batches. "
                "Give more data, or lower scheduler.total_steps."
            )
        own = batches[rank * accumulate : (rank + 1) * accumulate]
        return to_windows(own, self.config.model.vocab_size, self.step)

    def _data_hash(self) -> dict[str, str]:
        """What identifies the last batch, for `hymo replay` to compare with; only a loader's can be rebuilt."""
        if self.loader is None or not self.ranks.first:
            return {}
        assert self._batches is not None
        loaded = self._batches.loaded
        if self.ranks.size > 1:  # this rank has built a part of it
            loaded = self.loader.pieces_of(self.spikes.batch_of(self.step - 1), self._micro_batches * self.ranks.size)
        return {"data/hash": batch_digest(loaded)}

    def _optimizer_step(self, windows: Sequence[Window], telemetry: bool) -> tuple[dict[str, float], int]:
        """Forward, backward and update over one global batch: what is worth recording, and tokens trained on."""
        record: dict[str, Tensor] | None = {} if telemetry else None
        batches = self._batches
        counts = None if batches is None or batches.windows is not windows else batches.counts
        losses, tokens = self.passes.run(windows, self._mtp_scale(), record, counts)
        norm = self._clip()
        self._waited = self._build_ahead()
        # The one place of a step where the host waits for the device: what it reads decides whether the step counts.
        *values, read = torch.stack([*losses.values(), norm.to(next(iter(losses.values())).dtype)]).tolist()
        result = {f"train/{'loss' if n == 'main' else n}": v for n, v in zip(losses, values, strict=True)}
        result["train/grad_norm"] = read
        if not math.isfinite(result["train/grad_norm"]) or not all(map(math.isfinite, result.values())):
            self._skip(self._not_finite(result))
            return result, 0
        self.skipped_in_a_row = 0
        if result["train/grad_norm"] > self.config.training.grad_norm_warn:
            self._event("grad_norm", step=self.step + 1, value=result["train/grad_norm"])
        if record is not None:
            result |= self._telemetry(record)
            result["train/first_block_share"] = float(self.gradients.share(FIRST_BLOCK))
            result |= {f"update_ratio/{n}": v for n, v in self.optimizers.step_measured().items()}
        else:
            self.optimizers.step()
        self._after_step()
        return result, tokens

    def _build_ahead(self) -> float:
        """Build the next step's batches while the device computes; seconds that this took, if it was done before them.

        That is all it can have waited for them. Without a CUDA device all of it counts: a CPU does nothing meanwhile.
        """
        if self._source is None or self.step + 1 >= self.config.total_steps:
            return 0.0
        done = torch.cuda.current_stream(self.device).record_event() if self.device.type == "cuda" else None
        began = time.perf_counter()
        self._source.build_ahead(self.spikes.batch_of(self.step + 1), self.step + 1)
        return time.perf_counter() - began if done is None or done.query() else 0.0

    def _after_step(self) -> None:
        self._zero_grad()
        self.copy.refresh()
        self._call_hooks("after_step")

    def _zero_grad(self) -> None:
        self.optimizers.zero_grad()
        self.copy.drop_gradients()

    def _call_hooks(self, name: str) -> None:
        """Call a hook of every module that has it."""
        for module in self.master.modules():
            hook = getattr(module, name, None)
            if callable(hook):
                hook()

    def _clip(self) -> Tensor:
        """Scale the gradients to the limit, if their norm is finite; returns the norm (fp32) before."""
        return self.gradients.clip(self.config.training.grad_clip)

    def _not_finite(self, record: Mapping[str, float]) -> str:
        """The first that is not finite, in the order of computation: a loss, a gradient, the norm of all gradients."""
        for name, value in record.items():
            if name != "train/grad_norm" and not math.isfinite(value):
                return name.removeprefix("train/")
        bad = self.gradients.first_not_finite()
        return bad or f"gradient norm, largest in {self.gradients.largest()}"

    def _skip(self, bad: str) -> None:
        """Leave weights, optimizer states and router biases as they are; tell what was not finite."""
        self._zero_grad()
        self._call_hooks("discard_step")
        self.skipped_in_a_row += 1
        self._event("skip", step=self.step + 1, tensor=bad, in_a_row=self.skipped_in_a_row)
        if self.skipped_in_a_row > self.config.training.max_skipped_steps:
            raise TrainingError(
                f"step {self.step + 1}: loss or gradient was not finite {self.skipped_in_a_row} times in a row, "
                f"first in '{bad}'. Lower the learning rates or look at the data of these steps."
            )

    def _rewound(self, loss: float) -> bool:
        """Whether the step just taken was a spike for which the run went back to its newest checkpoint."""
        limit, at = self.spikes.limit, self.step
        if not self.ranks.exchange([self.spikes.is_spike(at, loss)])[0][0]:  # the first rank decides for all
            return False
        batch = self.spikes.batch_of(at - 1)
        self._saves(wait=True)
        most = self.config.training.max_skipped_steps
        why = "nothing was saved yet" if self._saved_step == 0 else self._too_little_data_without(batch)
        if self._rewinds >= most and not why:
            why = f"{most} rewinds to step {self._saved_step} did not help (training.max_skipped_steps)"
        self._event("spike", step=at, loss=loss, limit=limit, **({"kept": why} if why else {}))
        if why or self.checkpointer is None or self.loader is None:
            return False
        self.resume(self.checkpointer.folder)
        self.spikes.leave_out(batch)
        self._rewinds += 1
        self._event("rewind", step=self.step, tokens=self.tokens, spike=at, batch=batch, ranks=self.ranks.size)
        return True

    def _too_little_data_without(self, batch: int) -> str:
        """Why the data do not last to the end without one more batch, or an empty string."""
        if self.loader is not None:
            try:
                self.loader.require_steps(self.config.total_steps + len({*self.spikes.left_out, batch}))
            except UsageError as error:
                return str(error)
        return ""

    def _mtp_scale(self) -> float:
        """Factor on the prediction weights: 1, then linearly to 0 over the last mtp_anneal_frac of the steps."""
        length = self.config.model.mtp_anneal_frac * self.config.total_steps
        left = self.config.total_steps - self.step
        return min(1.0, (left - 1) / length) if length >= 1 else 1.0

    def _telemetry(self, record: Mapping[str, Tensor]) -> dict[str, float]:
        values = dict(record)
        for module in self.master.modules():
            report = getattr(module, "telemetry", None)
            if callable(report):
                values |= report()
        together = torch.stack([value.detach().to(self.device, torch.float32).reshape(()) for value in values.values()])
        return dict(zip(values, together.tolist(), strict=True))

    def _validate(self, stop: StopRequest | AgreedStop) -> None:
        assert self.validation is not None
        try:
            batch_size = self.config.training.micro_batch_size
            result = evaluate(
                self.copy.model, self.validation, batch_size, stop.agree, acceptance=True, share=self.ranks
            )
        except KeyboardInterrupt:
            return
        finally:
            self.copy.release()
        self.last_validation, self._validated_step = result, self.step
        if math.isfinite(result.loss) and (self.best_loss is None or result.loss < self.best_loss):
            self.best_loss, self.best_step = result.loss, self.step
        self._metrics("val", {f"val/{name}": value for name, value in result.to_dict().items()})

    def _save(self) -> None:
        """Begin a checkpoint of this moment; it is written while training goes on."""
        if self.checkpointer is None:
            return
        progress = {
            "best_step": self.best_step,
            "validated_step": self._validated_step,
            "skipped_in_a_row": self.skipped_in_a_row,
            "rng": rng_names(self.device, self.ranks.size),
            "scheduler": self.scheduler.state_dict(),
            "loader": None if self.loader is None else self.loader.state_dict(self.spikes.batch_of(self.step)),
            "spikes": self.spikes.state_dict(),
        }
        manifest = new_manifest(
            config_hash=self._config_hash,
            tokenizer=self._tokenizer,
            data="" if self.loader is None else self.loader.split.fingerprint,
            step=self.step,
            tokens=self.tokens,
            best_loss=self.best_loss,
            world_size=self.ranks.size,
            trainer=progress,
        )
        pinned = pinned_steps(progress, self.config.training)
        self._saves(wait=True)
        self.checkpointer.start(self.state(), manifest, pinned)
        self._saved_at = time.monotonic()
        if not self.config.training.async_checkpoint:
            self._saves(wait=True)

    def save_now(self) -> SaveResult | None:
        """Save this moment and wait until it is written and read back; None without a checkpointer."""
        if self.checkpointer is None:
            return None
        self._save()
        return next(iter(self.checkpointer.finished(wait=True)), None)

    def _saves(self, wait: bool = False) -> None:
        """Report the saves that ended. A failed one costs nothing but itself: training goes on."""
        for result in self.checkpointer.finished(wait) if self.checkpointer is not None else ():
            for text in result.warnings:
                self._event("checkpoint_warning", step=result.step, error=text)
            if result.path is None:
                self._event("checkpoint_failed", step=result.step, error=result.error)
            else:
                self._saved_step, self._rewinds = result.step, 0
                self._event("checkpoint", step=result.step, path=result.path.name, seconds=result.seconds)

    def _finish(self) -> None:
        """Save what is not saved yet and wait for it.

        Raises:
            CheckpointError: the last state could not be saved.
        """
        if self.checkpointer is None:
            return
        self._saves(wait=True)
        if self.step > self._saved_step:
            self._save()
            self._saves(wait=True)
        if self.step > self._saved_step:
            then = f"resume from step {self._saved_step}" if self._saved_step else "start again: nothing was saved"
            raise CheckpointError(
                f"step {self.step}: the last checkpoint could not be saved (see events.jsonl). Make room or fix the "
                f"folder, then {then}."
            )

    def state(self) -> dict[str, Any]:
        """Every tensor of the run that this process holds, by name: what a checkpoint saves."""
        return training_state(self.master, self.parameters, self.optimizers, self.ranks.rank)

    def resume(self, path: Path) -> None:
        """Take up a run where a checkpoint left it. More steps than it was saved under lengthen its schedule.

        Raises:
            CheckpointError: nothing whole there, or saved by another configuration.
            ConfigError: fewer steps, or more but from a checkpoint outside the stable phase.
            DataError: the training data changed.
        """
        folder, manifest = self.ranks.on_first(lambda: self._choose(path))
        self.ranks.everywhere(lambda: self._load(folder, manifest))
        self._event("resume", step=self.step, tokens=self.tokens, path=folder.name)

    def _choose(self, path: Path) -> tuple[Path, Manifest]:
        """The newest whole checkpoint, if this configuration may go on from it."""
        folder, manifest = find_checkpoint(path, lambda text: self._event("damaged_checkpoint", error=text))
        same = self._config_hash == manifest.config_hash
        if not same and not same_but_for_length(load_config(folder / CONFIG), self.config):
            raise CheckpointError(
                f"{folder}: was saved with another configuration. Resume with the config.yaml of its run, or start a "
                "new run with --set run.name=NAME."
            )
        return folder, manifest

    def _load(self, folder: Path, manifest: Manifest) -> None:
        state = self.state()
        missing = set(state["rng"]) - set(manifest.trainer["rng"])
        for name in missing:  # saved on another kind of device, or by fewer ranks: all else goes on exactly
            del state["rng"][name]
        load_tensors(folder, as_shards(state, self.rows, self.ranks) if self.rows else state)
        restore_rng(state, self.ranks.rank)
        self.copy.refresh()
        self.step = self._first_step = manifest.step
        self.tokens = manifest.tokens
        self.best_loss, self.best_step = manifest.best_loss, manifest.trainer["best_step"]
        self.skipped_in_a_row = manifest.trainer["skipped_in_a_row"]
        self._validated_step = manifest.trainer["validated_step"]
        self.spikes.load_state_dict(manifest.trainer.get("spikes"))
        self.scheduler.load_state_dict(manifest.trainer["scheduler"])
        if self.scheduler.total_steps != self.config.total_steps:
            self.scheduler.extend(self.config.total_steps, self.step)
            self._event("extend", step=self.step, total_steps=self.config.total_steps)
        if self.loader is not None and manifest.trainer["loader"] is not None:
            self.loader.load_state_dict(manifest.trainer["loader"])
        if self._stream is not None:  # batches that the run has read already
            deque(islice(self._stream, self.step * self._micro_batches * self.ranks.size), maxlen=0)
        self._saved_step = self.step

    def _metrics(self, split: str, values: Mapping[str, Any]) -> None:
        record = {"step": self.step, "tokens": self.tokens, "split": split, **values}
        for callback in self.callbacks:
            callback.on_metrics(record)

    def _event(self, kind: str, **fields: Any) -> None:
        for callback in self.callbacks:
            callback.on_event(kind, fields)
