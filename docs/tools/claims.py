"""The pages of the design's claims: rule, result by the result files, command and its cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import yaml

from docs.tools.paths import DOCS, results
from hymo.ablations.families import FAMILIES, GENERAL_LIMITS, family
from hymo.ablations.report import clock_note, cost_table, quality_table, setting
from hymo.ablations.summary import Summary, summarise
from hymo.ablations.variants import BASE, build
from hymo.core.load import load_config
from hymo.core.planner import plan
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
    """Rows of a family and its base, of the comparison that has most of them."""
    found = results(source["results"])
    if found is None:
        return []
    rows = [row for row in found["rows"] if row["preset"] == source["preset"] and row["family"] in (key, BASE)]
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    best = max(groups.values(), key=len, default=[])
    return best if any(row["family"] != BASE for row in best) else []


def _state(claim: dict[str, Any], source: dict[str, Any]) -> str:
    rows = _rows(claim, source)
    if not rows:
        return "not measured yet"
    seeds = len({row["seed"] for row in rows})
    verdict, _ = judged(claim, summarise(rows))
    return f"{verdict}, {seeds} seeds"


def judged(claim: dict[str, Any], summaries: list[Summary]) -> tuple[str, str]:
    """The claim's rule applied to its rows: the verdict, and the sentence that says from what it follows.

    A claim names the variant that would refute it and on which side of the base (`refuted: below` where fewer bits of
    the variant do). The paired interval decides; the pooled one is told.
    """
    rule = claim.get("judge")
    found = next((s for s in summaries if rule and s.name == rule["variant"]), None)
    if rule is None or found is None or found.difference is None:
        return "measured", ""
    if found.paired is None:
        return "undecided at this scale", f"'{found.name}' minus base is {found.difference:+.4f}, of one seed."
    lower, upper = found.paired if rule["refuted"] == "below" else (-found.paired[1], -found.paired[0])
    verdict = "refuted" if upper < 0 else "held" if lower > 0 else "undecided"
    told = (
        f"'{found.name}' minus base is {found.difference:+.4f}, paired {found.paired[0]:+.4f} to {found.paired[1]:+.4f}"
    )
    if found.pooled is not None:
        told += f", pooled {found.pooled[0]:+.4f} to {found.pooled[1]:+.4f}"
    return f"{verdict} at this scale", f"{told}."


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
    head = [f"**{verdict.capitalize()}.** {why}", ""] if why else []
    return [*head, *tables(summaries, tests), "", origin(rows, found["environment"])]


def tables(summaries: list[Summary], tests: dict[str, str]) -> list[str]:
    """Quality and cost of a comparison, and what its clocks tell."""
    return [*quality_table(summaries, tests), "", *cost_table(summaries), "", clock_note(summaries)]


def origin(rows: list[dict[str, Any]], machine: dict[str, Any]) -> str:
    """Where and when rows were measured."""
    dates = sorted({str(row["date"])[:10] for row in rows})
    days = dates[0] if len(set(dates)) == 1 else f"{dates[0]} to {dates[-1]}"
    device = f"{rows[0].get('device')}, torch {machine.get('torch')}, {days}"
    return f"{device}, {rows[0]['tokens']:,} tokens a run."


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
    lines += ["tested ([several ranks](../distributed.md)). Time on GPUs: not measured yet."]
    return lines


def _costs() -> list[int]:
    """Multiplications of Newton-Schulz for every matrix of the flagship."""
    config = load_config("hymo_750m")
    partition, costs = partition_parameters(build_hymo(config, device="meta")), []
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
    """Every family that has rows: the ones that no claim asks for too."""
    source = _source()
    found = results(source["results"])
    lines = ["# Ablations, measured", "", _NOTE, *source["comparisons"].splitlines(), ""]
    for key, each in FAMILIES.items():
        rows = family_rows(key, source)
        if not rows or found is None:
            continue
        tests = {spec.name: spec.tests for spec in each.specs}
        summaries = summarise(rows)
        lines += [
            f"## {key}: {each.title}",
            "",
            each.question,
            "",
            setting(summaries),
            "",
            *tables(summaries, tests),
            "",
        ]
        lines += [f"{origin(rows, found['environment'])} {each.limits}", ""]
    if found is None:
        return "\n".join([*lines, "Not measured yet."]) + "\n"
    return "\n".join([*lines, "## What none of this can show", "", GENERAL_LIMITS]) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "records/claims.md": index_page,
    "records/ablations.md": comparisons_page,
    **{f"claims/{claim['slug']}.md": partial(claim_page, i) for i, claim in enumerate(_source()["claims"])},
}
"""Every page below docs/ and what writes it."""
