"""The ablations on the GPUs in sight, day after day: the families in their order, as far as the time goes.

    python benchmarks/ablations.py --data DATA --tokenizer TOKENIZER --minutes 9 --parallel 4 --out /tmp/runs \\
        --results OUT/ablations-h200.json --go-on-from benchmarks/results/ablations-h200.json
    python benchmarks/ablations.py --data DATA --tokenizer TOKENIZER --plan        # what is left, and how long it takes

The results file is all that needs to survive: a run that has a row there is not repeated. Nothing is begun that would
probably not end within --minutes, judged by the rows of the same device and as many runs at once, unless --begin-all
says that --out survives too; whatever still runs then is stopped. DATA is prepared with the tokenizer, which for the
preset `hymo_ablation` has at most 16,384 entries: `hymo tokenizer train FILES --out TOKENIZER --vocab-size 16384`,
`hymo data prepare FILES --out DATA --tokenizer TOKENIZER`. --tokens 1M --seeds 1 --families C is a smoke test.

A variant can be a base in its turn, here for its learning rates at another width, which heads and inner widths follow;
each width has a results file and a folder of its own:

    python benchmarks/ablations.py ... --from winners --families rates --set model.dim=256 --set model.n_heads=4 \\
        --set model.gdn_d_inner=352 --set model.moe_inter_dim=512 --out /tmp/runs-256 --results OUT/rates-256.json
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
import time
from pathlib import Path

from hymo.ablations.families import FAMILIES, family
from hymo.ablations.report import write_report
from hymo.ablations.results import Results
from hymo.ablations.runner import Run, Runner, lay_out
from hymo.ablations.variants import BASE, Comparison, build, cadence, derived
from hymo.core.config import HyMoConfig
from hymo.core.errors import HymoError, UsageError, nearest
from hymo.core.load import derive_config, load_config
from hymo.core.quantity import read_count

ORDER = ("E", "baselines", "I", "C", "B", "A", "next", "D", "F", "G", "H")
"""What decides most first. J asks for more text than one corpus of this size has."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tokenizer", help="tokenizer.json or its folder; the preset's unless given")
    parser.add_argument("--preset", default="hymo_ablation")
    parser.add_argument("--families", nargs="+", default=ORDER)
    parser.add_argument(
        "--variants", nargs="+", metavar="NAME", help="of the families, beside the base; all unless given"
    )
    parser.add_argument("--from", metavar="NAME", dest="start", help="variant of any family that is the base")
    parser.add_argument("--tokens", help="of a run; the preset's unless given")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--begin-all", action="store_true", help="begin what the same command will go on with later")
    parser.add_argument("--out", type=Path, default=Path("ablations"), help="run folders and reports")
    parser.add_argument("--results", type=Path, help="file that takes the rows; OUT/results.json unless given")
    parser.add_argument("--go-on-from", type=Path, help="rows of earlier days, where --results does not exist yet")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--plan", action="store_true", help="run nothing; say what is left and how long it takes")
    arguments = parser.parse_args()
    if arguments.seeds < 1 or arguments.first_seed < 0:
        raise UsageError(f"--seeds {arguments.seeds} --first-seed {arguments.first_seed}: at least one, none below 0.")
    arguments.results = arguments.results or arguments.out / "results.json"
    if arguments.go_on_from and not arguments.go_on_from.exists():
        raise UsageError(f"--go-on-from {arguments.go_on_from}: no such file.")
    overrides = [*arguments.overrides, *([f"run.tokenizer={arguments.tokenizer}"] if arguments.tokenizer else [])]
    base = load_config(arguments.preset, overrides)
    if arguments.tokens:
        base = derive_config(base, scheduler={"total_tokens": read_count(arguments.tokens, "--tokens")})
    if arguments.start:
        base = named(base, arguments.start)
    base = derive_config(base, training=cadence(base))
    if arguments.plan:
        return plan(arguments, base)
    laid, data = laid_out(arguments, base)
    if arguments.go_on_from and not arguments.results.exists():
        arguments.results.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(arguments.go_on_from, arguments.results)
    kept = Results(arguments.results)
    runner = Runner(
        base,
        together(laid),
        data,
        kept,
        parallel=arguments.parallel,
        minutes=arguments.minutes,
        begin_all=arguments.begin_all,
        discard_checkpoints=True,
        progress=lambda said: print(f"{time.strftime('%T')} {said}", flush=True),
        preset=arguments.preset,
        start=arguments.start,
        command=shlex.join(["python", *sys.argv]),
    )
    outcome = runner.run()
    for comparison, runs in laid:
        rows = [row for run in runs if (row := runner.finished(run)) is not None]
        if not rows:
            continue
        try:
            write_report(comparison.family, rows, kept.environment, arguments.out, comparison.tests, comparison.same)
        except ImportError as error:
            print(f"no report here ({error}); `hymo ablate` with this results file writes it elsewhere")
            break
    return outcome.exit_code


Laid = list[tuple[Comparison, list[Run]]]


def named(base: HyMoConfig, name: str) -> HyMoConfig:
    """The configuration of the first variant of that name among all families; it may equal another, or the base."""
    specs = {spec.name: spec for each in reversed(FAMILIES.values()) for spec in each.specs}
    if name not in specs:
        raise UsageError(f"--from {name}: no family has this variant{nearest(name, specs)}.")
    return derived(base, specs[name])


def laid_out(arguments: argparse.Namespace, base: HyMoConfig) -> tuple[Laid, str]:
    """Each comparison with its runs, and the data's fingerprint."""
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    laid: Laid = []
    known: set[str] = set()
    data = ""
    for comparison in (build(base, family(key)) for key in arguments.families):
        runs, data = lay_out(comparison, seeds, arguments.data, arguments.out)
        names = {comparison.same.get(name, name) for name in arguments.variants or ()} | {BASE}
        laid.append((comparison, [run for run in runs if not arguments.variants or run.variant.name in names]))
        known |= {variant.name for variant in comparison.variants} | comparison.same.keys()
    if unknown := sorted({*(arguments.variants or ())} - known):
        names_known = ", ".join(sorted(known))
        raise UsageError(f"--variants: none of the families has {', '.join(unknown)}. They have: {names_known}.")
    return laid, data


def together(laid: Laid) -> list[Run]:
    """All runs in one line, so that no device waits for a family; what several families share, once."""
    runs: dict[str, Run] = {}
    for run in (run for _, each in laid for run in each):
        runs.setdefault(run.key, run)
    return list(runs.values())


def plan(arguments: argparse.Namespace, base: HyMoConfig) -> int:
    """Print every family's runs that are left, with the time that they take one after the other where that is known."""
    laid, data = laid_out(arguments, base)
    earlier = arguments.go_on_from if arguments.go_on_from and not arguments.results.exists() else arguments.results
    kept = Results(earlier)
    runs = together(laid)
    runner = Runner(base, runs, data, kept, parallel=arguments.parallel)
    total = 0.0
    for key in dict.fromkeys(run.family for run in sorted(runs, key=lambda run: run.family != BASE)):
        all_of_it = [run for run in runs if run.family == key]
        left = [run for run in all_of_it if kept.finished(run.key) is None]
        times = [runner.expected_seconds(run.config) for run in left]
        known = None if None in times else sum(t or 0 for t in times) / arguments.parallel / 60
        total += known or 0
        shown = "time not known yet" if known is None else f"{known:.1f} minutes"
        print(f"{key}: {len(all_of_it) - len(left)} of {len(all_of_it)} runs done, {len(left)} left, {shown}")
        for run in left:
            print(f"    {run.label}")
    print(f"{total:.1f} minutes where the time is known, {arguments.parallel} runs at once")
    return 0


if __name__ == "__main__":
    try:
        code = main()
    except HymoError as error:
        print(f"error: {error}", file=sys.stderr)
        code = 2 if isinstance(error, UsageError) else 1
    raise SystemExit(code)
