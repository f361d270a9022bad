"""`hymo ablate`: variants of a configuration, trained side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from hymo.cli.options import Json, Overrides
from hymo.cli.output import log, print_json, print_table

if TYPE_CHECKING:
    from hymo.ablations.summary import Summary


def ablate(
    family: str,
    /,
    *,
    preset: str = "hymo_small",
    tokens: str | None = None,
    seeds: int = 3,
    first_seed: int = 0,
    data: Path | None = None,
    variant: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    parallel: int = 1,
    minutes: float | None = None,
    out: Path | None = None,
    results: Path | None = None,
    discard_checkpoints: Annotated[bool, Parameter(negative="")] = False,
    price: float | None = None,
    overrides: Overrides = (),
    json: Json = False,
) -> int:
    """Train every variant of a family with every seed, and report differences with their intervals.

    Families: A experts, B optimizers, C prediction heads, D key/value groups, E recurrence, F positions, G number of
    experts, H routing, I stack, J length of training, `rates`, `baselines`, `next` for winners together, and `custom`
    for what --variant names.
    Runs are run folders. The same command goes on where an earlier one stopped; finished runs are not repeated.

    Args:
        family: A to J, rates, baselines, next or custom.
        preset: Preset or YAML file that is the base.
        tokens: Training tokens of a run, for example 2M; the base's own length unless given.
        seeds: Seeds of each variant.
        first_seed: The first of them.
        data: Folder written by `hymo data prepare`; the packaged text, for presets that read bytes, unless given.
        variant: A further variant, NAME:group.field=value;group.field=value. May be repeated.
        parallel: Runs at once.
        minutes: Begin no run that would probably not end within so many minutes, and stop what still runs then.
        out: Folder for runs, results and report; ablations/PRESET unless given.
        results: Results file to go on with; OUT/results.json unless given.
        discard_checkpoints: Delete the checkpoints of a run that has ended.
        price: Price of one device-hour, for the cost.
        overrides: Fields of the base to override.
        json: Write the summary as JSON.
    """
    import shlex
    from importlib.util import find_spec

    from hymo.ablations.families import family as named
    from hymo.ablations.variants import build, cadence
    from hymo.core.errors import UsageError
    from hymo.core.files import writing
    from hymo.core.load import derive_config, load_config
    from hymo.core.quantity import read_count

    if find_spec("scipy") is None:
        raise UsageError("ablate needs the package scipy: pip install 'hymo[ablate]'")
    if seeds < 1 or first_seed < 0:
        raise UsageError(f"--seeds {seeds} --first-seed {first_seed}: give at least one seed, none below 0.")
    if price is not None and price < 0:
        raise UsageError(f"--price {price:g}: must not be below 0.")
    table = named(family)
    base = load_config(preset, overrides)
    if tokens is not None:
        base = derive_config(base, scheduler={"total_tokens": read_count(tokens, "--tokens")})
    given = {override.partition("=")[0].strip() for override in overrides}
    base = derive_config(base, training={k: v for k, v in cadence(base).items() if f"training.{k}" not in given})
    comparison = build(base, table, variant)
    folder = Path("ablations") / Path(preset).stem if out is None else out

    from hymo.ablations.report import against_rival, write_report
    from hymo.ablations.results import Results
    from hymo.ablations.runner import Runner, lay_out
    from hymo.ablations.summary import summarise
    from hymo.training.lock import claimed

    if data is None and base.run.data is None:
        if base.run.tokenizer != "byte":
            raise UsageError(f"{preset} reads tokens: give text prepared with its tokenizer, --data DIR.")
        data = _packaged(folder / "data")
    source = str(data) if data is not None else str(base.run.data)
    with writing(folder, "Choose another folder with --out, or change its permissions."):
        folder.mkdir(parents=True, exist_ok=True)
    with claimed(folder, "Wait for it, or give another folder with --out."):
        kept = Results(folder / "results.json" if results is None else results)
        runs, fingerprint = lay_out(comparison, range(first_seed, first_seed + seeds), source, folder)
        log(f"{table.key}: {len(comparison.variants)} variants x {seeds} seeds = {len(runs)} runs")
        runner = Runner(
            base,
            runs,
            fingerprint,
            kept,
            parallel=parallel,
            minutes=minutes,
            discard_checkpoints=discard_checkpoints,
            progress=log,
            preset=Path(preset).stem,
            command=shlex.join(["hymo", *sys.argv[1:]]),
        )
        outcome = runner.run()
        rows = outcome.rows + [kept.rows[run.key] for run in runs if kept.rows.get(run.key, {}).get("failed")]
        if outcome.left:
            log(f"{len(outcome.left)} of {len(runs)} runs are left; the same command goes on with them")
        summaries = summarise(rows)
        page = picture = None
        if summaries:
            page, picture = write_report(
                table, rows, kept.environment, folder, comparison.tests, comparison.same, price
            )
    beside = against_rival(table, rows)
    if json:
        shown = [
            {"variant": s.name, "seeds": s.seeds, "bits_per_byte": s.bits_per_byte, "mean": s.mean}
            | {"interval": s.interval, **_difference(s)}
            for s in summaries
        ]
        rival = {"name": table.rival, "variants": [{"variant": s.name, **_difference(s)} for s in beside]}
        print_json(
            {
                "family": table.key,
                "results": str(kept.path),
                "report": page and str(page),
                "plot": picture and str(picture),
            }
            | {"done": outcome.done, "left": outcome.left, "failed": outcome.failed, "variants": shown}
            | ({"rival": rival} if beside else {})
        )
    elif summaries:
        intervals = ("paired 95 %", "pooled 95 %")
        cells = [(s.name, str(len(s.seeds)), f"{s.mean:.4f}", *_shown(s)) for s in summaries]
        print_table(
            f"{table.key}: {table.title}", ("variant", "seeds", "bits per byte", "minus base", *intervals), cells
        )
        if beside:
            columns = ("variant", "minus the rival", *intervals)
            print_table(f"against '{table.rival}'", columns, [(s.name, *_shown(s)) for s in beside])
        log(f"report {page}, plot {picture}, results {kept.path}")
    return outcome.exit_code


def _difference(summary: Summary) -> dict[str, Any]:
    return {"difference": summary.difference, "paired": summary.paired, "pooled": summary.pooled}


def _shown(summary: Summary) -> tuple[str, str, str]:
    difference = "" if summary.difference is None else f"{summary.difference:+.4f}"
    paired, pooled = ("" if i is None else f"{i[0]:+.4f} to {i[1]:+.4f}" for i in (summary.paired, summary.pooled))
    return difference, paired, pooled


def _packaged(folder: Path) -> Path:
    """The packaged text as shards, prepared once."""
    from hymo.data import load_tokenizer, prepare, sample_paths

    if not (folder / "dataset.json").is_file():
        paths = sample_paths()
        prepare([paths["train"]], folder, load_tokenizer("byte"), validation_inputs=[paths["validation"]])
    return folder
