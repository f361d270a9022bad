"""The pages of the design's claims: rule, result by the result files, command and its cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import yaml

from docs.tools.paths import DOCS, results
from hymo.ablations.families import family
from hymo.ablations.report import cost_table, quality_table
from hymo.ablations.summary import summarise
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
    found = results(source["results"])
    if found is None or "family" not in claim:
        return []
    rows = [
        row for row in found["rows"] if row["preset"] == source["preset"] and row["family"] in (claim["family"], BASE)
    ]
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    best = max(groups.values(), key=len, default=[])
    return best if any(row["family"] != BASE for row in best) else []


def _state(claim: dict[str, Any], source: dict[str, Any]) -> str:
    rows = _rows(claim, source)
    seeds = {row["seed"] for row in rows}
    return f"measured, {len(seeds)} seeds" if rows else "not measured yet"


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
    dates = sorted({str(row["date"])[:10] for row in rows})
    machine = found["environment"]
    origin = f"{rows[0].get('device')}, torch {machine.get('torch')}, {dates[0]} to {dates[-1]}, "
    origin += f"{rows[0]['tokens']:,} tokens a run."
    return [*quality_table(summaries, tests), "", *cost_table(summaries), "", origin]


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


PAGES: dict[str, Callable[[], str]] = {
    "records/claims.md": index_page,
    **{f"claims/{claim['slug']}.md": partial(claim_page, i) for i, claim in enumerate(_source()["claims"])},
}
"""Every page below docs/ and what writes it."""
