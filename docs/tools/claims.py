"""The pages of the design's claims: rule, result by the result files, command and its cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean
from typing import Any

import yaml

from docs.tools.clock import clock_section
from docs.tools.paths import DOCS, results
from docs.tools.sweep import sweep_section
from hymo.ablations.families import FAMILIES, GENERAL_LIMITS, family
from hymo.ablations.report import cost_note, cost_table, quality_table, rival_table, setting
from hymo.ablations.summary import CONFIDENCE, Summary, summarise, target_of, tokens_to
from hymo.ablations.variants import BASE, build
from hymo.core.load import load_config
from hymo.core.planner import plan
from hymo.evaluation.statistics import seed_interval
from hymo.models import build_hymo
from hymo.training.partition import partition_parameters
from hymo.training.sharded_normuon import assign_owners, newton_schulz_cost

_NOTE = "<!-- Written by `make docs-generate` from docs/data/claims.yaml and result files; a test compares. -->\n"
RANKS = (2, 4, 8)
_GPU = "h200"


def _source() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DOCS / "data" / "claims.yaml").read_text(encoding="utf-8"))
    return found


def index_page() -> str:
    """The list of claims with their state."""
    source = _source()
    lines = ["# Claims", "", _NOTE, *source["intro"].splitlines(), "", "| | claim | state |", "|---|---|---|"]
    for i, claim in enumerate(source["claims"], 1):
        state = "computed, time not measured" if "command" in claim else _state(claim, source)
        lines.append(f"| {i} | [{claim['title']}](../claims/{claim['slug']}.md) | {state} |")
    return "\n".join(lines) + "\n"


def _rows(claim: dict[str, Any], source: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of the claim's family and its base, of the comparison that has most of them."""
    return family_rows(claim["family"], source) if "family" in claim else []


def family_rows(key: str, source: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of a family, of the comparison that has most of them, and of its base with the seeds that the family has."""
    found = results(source["results"])
    if found is None:
        return []
    of_preset = [row for row in found["rows"] if row["preset"] == source["preset"] and not row.get("start")]
    rows = [row for row in of_preset if row["family"] in (key, BASE)]
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    best = max(groups.values(), key=len, default=[])
    seeds = {row["seed"] for row in best if row["family"] != BASE and not row.get("failed")}
    return [row for row in best if row["seed"] in seeds]


def _state(claim: dict[str, Any], source: dict[str, Any]) -> str:
    rows = _rows(claim, source)
    return judged(claim, summarise(rows))[0] if rows else "not measured yet"


def judged(claim: dict[str, Any], summaries: Sequence[Summary]) -> tuple[str, list[str]]:
    """A claim's rule applied to its rows: the verdict, and a sentence for each figure that it rests on.

    `judge` of a claim names the variants that can refute it, what is compared (`bits` per byte or `tokens` to the
    target), and whether the paired `interval` of variant minus base has to lie below zero or its `mean` alone.
    `least_gradient` is what the heads' share of the gradient must not fall below.
    """
    rule = claim.get("judge")
    if rule is None:
        return "measured", []
    base, told, refuted, seeds = summaries[0], [], False, set(summaries[0].seeds)
    target = target_of(summaries)
    for each in (s for s in summaries if s.name in rule["variants"]):
        measure = _tokens_to(target) if rule["measure"] == "tokens" else _bits
        differences = [measure(a) - measure(b) for a, b in _pairs(each, base)]
        missing = [d for d in differences if not math.isfinite(d)]
        if not differences or missing:
            told.append(f"'{each.name}': {len(differences) - len(missing)} of {len(differences)} pairs have a figure.")
            continue
        seeds &= set(each.seeds)
        mean = fmean(differences)
        interval = seed_interval(differences, CONFIDENCE) if len(differences) > 1 else None
        unit = " M tokens to the target" if rule["measure"] == "tokens" else " bits per byte"
        digits = 2 if rule["measure"] == "tokens" else 4
        shown = "" if interval is None else f", paired {interval[0]:+.{digits}f} to {interval[1]:+.{digits}f}"
        told.append(f"'{each.name}' minus base: {mean:+.{digits}f}{unit}{shown}.")
        refuted |= mean < 0 if rule["by"] == "mean" else interval is not None and interval[1] < 0
    if "least_gradient" in rule:
        shares = [row["heads_gradient"] for row in base.rows if row.get("heads_gradient") is not None]
        refuted |= any(share < rule["least_gradient"] for share in shares)
        told.append(f"Heads' share of the gradient: {', '.join(f'{share:.2f}' for share in shares)}.")
    if "open" in rule:
        told.append(rule["open"])
    if len(told) == 0:
        return "measured", []
    few = f"{len(seeds)} of {claim['seeds']} seeds" if len(seeds) < claim["seeds"] else f"{len(seeds)} seeds"
    return f"{'refuted' if refuted else 'not refuted'} at this scale, {few}", told


def _pairs(one: Summary, other: Summary) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    theirs = dict(zip(other.seeds, other.rows, strict=True))
    return [(row, theirs[seed]) for seed, row in zip(one.seeds, one.rows, strict=True) if seed in theirs]


def _bits(row: dict[str, Any]) -> float:
    return float(row["bits_per_byte"])


def _tokens_to(target: float) -> Callable[[dict[str, Any]], float]:
    """Millions of tokens until a run was there; no number where it never was."""

    def measure(row: dict[str, Any]) -> float:
        tokens = tokens_to(row, target)
        return math.nan if tokens is None else tokens / 1e6

    return measure


def claim_page(index: int) -> str:
    """One claim."""
    source = _source()
    claim = source["claims"][index]
    lines = [f"# {index + 1}. {claim['title']}", "", _NOTE, f"**Hypothesis.** {claim['hypothesis'].strip()}", ""]
    lines += [f"**Refuted if.** {claim['refuted'].strip()}", "", "## Measured", ""]
    lines += _owners() if claim["slug"] == "owners" else _measured(claim, source)
    lines += ["", f"**What this scale shows.** {claim['shows']}", "", f"**What it cannot.** {claim['hides']}", ""]
    lines += ["## Repeat", "", f"Cost: {_cost(claim, source)}.", "", "```text", _command(claim, source), "```", ""]
    lines += ["All claims: [the list](../records/claims.md)."]
    return "\n".join(lines) + "\n"


def _measured(claim: dict[str, Any], source: dict[str, Any]) -> list[str]:
    rows = _rows(claim, source)
    if not rows:
        return ["Not measured yet."]
    found = results(source["results"])
    assert found is not None
    summaries = summarise(rows)
    tests = {spec.name: spec.tests for spec in family(claim["family"]).specs}
    verdict, why = judged(claim, summaries)
    head = [f"**{verdict.capitalize()}.** {' '.join(why)}", ""] if why else []
    return [*head, *tables(summaries, tests), "", origin(rows, found["environment"])]


def tables(summaries: Sequence[Summary], tests: dict[str, str]) -> list[str]:
    """Quality and cost of a comparison, and what its clocks tell."""
    return [*quality_table(summaries, tests), "", *cost_table(summaries), "", cost_note(summaries)]


def origin(rows: list[dict[str, Any]], machine: dict[str, Any]) -> str:
    """Where and when rows were measured."""
    dates = sorted({str(row["date"])[:10] for row in rows})
    days = dates[0] if len(set(dates)) == 1 else f"{dates[0]} to {dates[-1]}"
    lengths = sorted({row["tokens"] for row in rows})
    tokens = " to ".join(f"{length:,}" for length in dict.fromkeys((lengths[0], lengths[-1])))
    return f"{rows[0].get('device')}, torch {machine.get('torch')}, {days}, {tokens} tokens a run."


def _owners() -> list[str]:
    """Work of the ranks by the count of multiplications, with the package's own assignment and with a plain one."""
    costs = _costs()
    lines = [
        "Computed for `hymo_750m`: multiplications of Newton-Schulz on the busiest rank, as a multiple of the mean.",
        "",
    ]
    lines += ["| ranks | largest first | in the order of the layers |", "|---|---|---|"]
    for ranks in RANKS:
        plain = [i % ranks for i in range(len(costs))]
        shares = [_busiest(costs, owners, ranks) for owners in (assign_owners(costs, ranks), plain)]
        lines.append(f"| {ranks} | {shares[0]:.4f} | {shares[1]:.4f} |")
    lines += [
        "",
        "The assignment changes who computes a matrix, not what: that several ranks give one process's weights is",
    ]
    lines += ["tested ([several ranks](../distributed.md)).", ""]
    measured = results("ranks-h200x2")
    if measured is None:
        return [*lines, "Time on GPUs: not measured yet."]
    lines += ["| both optimizers' update, measured | GPUs | ms | ms of the whole step |", "|---|---|---|---|"]
    for row in measured["rows"]:
        lines.append(f"| {row['name']} | {row['gpus']} | {row['optimizer_ms']:.1f} | {row['ms_per_step']:,.0f} |")
    return lines


def _costs() -> list[int]:
    """Multiplications of Newton-Schulz for every matrix of the flagship."""
    config = load_config("hymo_750m")
    partition = partition_parameters(build_hymo(config, device="meta"), config.optimizer.optimizer_partition)
    costs = []
    for name, p in partition.normuon.items():
        rows, columns = partition.blocks.get(name, (p.shape[-2],)), partition.columns.get(name, (p.shape[-1],))
        costs.append(newton_schulz_cost(p.shape, rows, columns, config.optimizer.ns_steps))
    return costs


def imbalance() -> float:
    """How far the busiest rank lies above the mean, as a share of it, at most over RANKS."""
    costs = _costs()
    return max(_busiest(costs, assign_owners(costs, ranks), ranks) for ranks in RANKS) - 1


def _busiest(costs: list[int], owners: list[int], ranks: int) -> float:
    loads = [0] * ranks
    for cost, owner in zip(costs, owners, strict=True):
        loads[owner] += cost
    return max(loads) * ranks / sum(loads)


def _command(claim: dict[str, Any], source: dict[str, Any]) -> str:
    if "command" in claim:
        return str(claim["command"])
    words = f"hymo ablate {claim['family']} --preset {source['preset']} --data DATA --set run.tokenizer=TOKENIZER"
    return f"{words} --seeds {claim['seeds']}"


def _cost(claim: dict[str, Any], source: dict[str, Any]) -> str:
    """Device-hours of all runs, by the planner."""
    if "price" in claim:
        return str(claim["price"])
    variants = build(load_config(source["preset"]), family(claim["family"])).variants
    plans = [plan(variant.config, _GPU) for variant in variants]
    hours = sum(made.throughput.days * 24 for made in plans if made.throughput is not None) * claim["seeds"]
    work = sum(made.flops_per_token * made.tokens for made in plans) * claim["seeds"]
    runs = len(variants) * claim["seeds"]
    return f"{runs} runs, {work:.1e} FLOP, {hours:.1f} hours of training steps on one {_GPU} by the planner"


def comparisons_page() -> str:
    """Every family that has rows: the ones that no claim asks for too. What was chosen and what confirmed it, apart."""
    source = _source()
    found = results(source["results"])
    lines = ["# Ablations, measured", "", _NOTE, *source["comparisons"].splitlines(), ""]
    for key, each in FAMILIES.items():
        rows = family_rows(key, source)
        first = source["confirmed_from"].get(key, math.inf)
        chosen, confirmed = ([r for r in rows if (r["seed"] < first) is early] for early in (True, False))
        for part, title in ((chosen, each.title), (confirmed, f"{each.title}, confirmed on other seeds")):
            summaries = summarise(part)
            if not summaries or found is None:
                continue
            tests = {spec.name: spec.tests for spec in each.specs}
            lines += [f"## {key}: {title}", "", each.question, "", setting(summaries), ""]
            lines += [*rival_table(each, part), *tables(summaries, tests), ""]
            lines += [f"{origin(part, found['environment'])} {each.limits}", ""]
    if found is None:
        return "\n".join([*lines, "Not measured yet."]) + "\n"
    speeds, timed = (results(source["clock"][part]) for part in ("speeds", "runs"))
    if speeds is not None and timed is not None:
        lines += ["## next: At equal wall clock", ""]
        lines += clock_section(speeds["rows"], timed["rows"], family_rows("next", source))
        files = " and ".join(f"[{name}](benchmarks.md#{name})" for name in source["clock"].values())
        lines += [f"{timed['environment']['device']}, torch {timed['environment']['torch']}; commands: {files}.", ""]
    if (swept := results(source["rates"])) is not None:
        lines += ["## rates: Learning rates, at several widths", "", *sweep_section(swept["rows"])]
        lines += [f"{origin(swept['rows'], swept['environment'])} {family('rates').limits}", ""]
        lines += [f"Command: [benchmarks](benchmarks.md#{source['rates']}).", ""]
    return "\n".join([*lines, "## What none of this can show", "", GENERAL_LIMITS]) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "records/claims.md": index_page,
    "records/ablations.md": comparisons_page,
    **{f"claims/{claim['slug']}.md": partial(claim_page, i) for i, claim in enumerate(_source()["claims"])},
}
"""Every page below docs/ and what writes it."""
