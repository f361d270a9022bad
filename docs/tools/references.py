"""The generated references: configuration, commands, presets, benchmark tables, decisions, risks, sources."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml
from pydantic import TypeAdapter

from docs.tools.paths import DOCS, ROOT, number, results, short, size
from hymo.ablations.summary import has_clock
from hymo.cli.app import build_app
from hymo.core.accounting import cache_bytes, count_parameters, flops_per_token, state_bytes
from hymo.core.config import GROUPS
from hymo.core.load import load_config, preset_names

_NOTE = "<!-- Written by `make docs-generate` from {source}; a test compares. Change the source, not this page. -->\n"
_LARGEST = 2**63
_WIDE = "---\nhide:\n  - toc\n---"


def config_page() -> str:
    """Every field of the five groups with type, range, default and meaning."""
    flagship = load_config("hymo_750m")
    lines = [
        "# Configuration",
        "",
        _NOTE.format(source="src/hymo/core/config.py"),
        "A configuration has five groups. A YAML file may start from a preset with `base: NAME` and name only what",
        "it changes; `--set group.field=value` overrides a field on any command. `hymo config show CONFIG` prints all",
        "of it resolved.",
        "",
        "Fields without a default shape the model or the run: they stand in the presets. The flagship is",
        "`hymo_750m`.",
    ]
    for group, kind in GROUPS.items():
        schema = TypeAdapter(kind).json_schema()
        lines += ["", f"## {group}", "", _first_paragraph(kind.__doc__), ""]
        lines += ['<div class="fields" markdown>', ""]
        lines += ["| field | type, default, flagship | meaning |", "|---|---|---|"]
        values = getattr(flagship, group)
        for name, field in schema["properties"].items():
            own, cell = _value(getattr(values, name)), [_kind(field)]
            if name not in schema.get("required", ()):
                default = _value(field.get("default"))
                cell.append(f"default `{default}`" + (", flagship too" if own == default else ""))
            if len(cell) == 1 or own != _value(field.get("default")):
                cell.append(f"flagship `{own}`")
            lines.append(f"| `{name}` | {'<br>'.join(cell)} | {_cell(field['description'])} |")
        lines += ["", "</div>"]
    lines += [
        "",
        "Derived values, computed and never given: `model.qk_nope_head_dim`, `model.gdn_n_heads`, `model.gdn_layers`,",
    ]
    lines += ["`training.sequences_per_step`, `training.tokens_per_step` and `total_steps`."]
    return "\n".join(lines) + "\n"


def _first_paragraph(text: str | None) -> str:
    return " ".join((text or "").strip().split("\n\n")[0].split())


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _value(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _kind(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        return " or ".join(_kind(option) for option in field["anyOf"])
    if "enum" in field or "const" in field:
        choices = field.get("enum", [field.get("const")])
        return "one of " + ", ".join(f"`{choice}`" for choice in choices)
    kind = field["type"]
    if kind == "array":
        if "prefixItems" in field:
            return f"list of {len(field['prefixItems'])}: " + _kind(field["prefixItems"][0])
        return "list of " + _kind(field["items"])
    if kind == "null":
        return "null"
    name = {"integer": "integer", "number": "float", "string": "text", "boolean": "true or false"}[kind]
    bounds = [
        f"{sign} {_value(field[key])}"
        for key, sign in (("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("exclusiveMaximum", "<"))
        if key in field and field[key] != _LARGEST
    ]
    return " ".join([name, ", ".join(bounds)]).strip()


def cli_page() -> str:
    """Every command with its arguments, from the command-line application itself."""
    text = build_app().generate_docs(output_format="markdown", recursive=True, heading_level=1)
    body = text.split("**Commands**:", 1)[1]
    summary, rest = body.split("\n## ", 1)
    head = [
        "# Commands",
        "",
        _NOTE.format(source="src/hymo/cli"),
        "Results go to standard output, messages to standard error. Exit codes: 0 done, 1 the run failed, 2 wrong",
        "request, 130 and 143 interrupted after a saved checkpoint. `--debug` before or after any command shows an",
        "error's traceback.",
    ]
    # Under `python -m MODULE` the library takes the interpreter's arguments for a part of the command's name.
    rest = re.sub(r"^(hymo(?: [a-z]+)+) -m \S+", r"\1", rest, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(head) + "\n" + summary + "\n## " + rest).rstrip() + "\n"


def presets_page() -> str:
    """One table of sizes and one of runs over all presets."""
    lines = [
        _WIDE,
        "# Presets",
        "",
        _NOTE.format(source="src/hymo/presets"),
        "One shape family. A preset is a YAML file inside the package: `hymo config show NAME` prints it resolved.",
        "",
        "## Sizes",
        "",
        "| preset | stored | active per token | layers | MLA | width | context | vocabulary | cache, full | state |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    configs = {name: load_config(name) for name in preset_names()}
    configs = dict(sorted(configs.items(), key=lambda item: count_parameters(item[1].model).stored))
    for name, config in configs.items():
        model, count = config.model, count_parameters(config.model)
        cells = [f"`{name}`", number(count.stored), number(count.active), number(model.n_layers)]
        cells += [number(len(model.mla_layers)), number(model.dim), number(model.max_seq_len), number(model.vocab_size)]
        cells += [size(cache_bytes(model, model.max_seq_len)), size(state_bytes(model))]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Cache in bfloat16, state with fp32 recurrence, both for one sequence.", "", "## Runs", ""]
    lines += ["| preset | tokens per step | steps | tokens | FLOPs per token | NorMuon rate | AdamW rate | precision |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    for name, config in configs.items():
        training, tokens = config.training, config.total_steps * config.training.tokens_per_step
        cells = [f"`{name}`", number(training.tokens_per_step), number(config.total_steps), short(tokens)]
        cells += [short(flops_per_token(config.model, training.seq_len)), f"{config.optimizer.muon_lr:g}"]
        cells += [f"{config.optimizer.adamw_lr:g}", training.param_dtype]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "`hymo plan NAME --gpu h200` says what such a run occupies, how long it takes and what it costs;"]
    lines += ["the [planner lab](../labs/planner.md) computes the same in the page."]
    return "\n".join(lines) + "\n"


def benchmarks_page() -> str:
    """Every result file as a table with its machine and command."""
    lines = [
        "# Benchmarks",
        "",
        _NOTE.format(source="benchmarks/results"),
        "Every table comes from a result file in `benchmarks/results`.",
    ]
    lines += [
        "Machine, versions, commit and command stand below it. What was tried and lost is in the [log](../log.md)."
    ]
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        found = results(path.stem)
        assert found is not None
        shape = _TABLES.get(path.stem.partition("-")[0])
        lines += ["", f"## {path.stem}", ""]
        lines += shape(found["rows"]) if shape else _plain(found["rows"])
        machine = found["environment"]
        facts = [str(machine.get("device")), f"torch {machine.get('torch')}", f"Triton {machine.get('triton')}"]
        facts = [fact for fact in facts if "None" not in fact]
        lines += [
            "",
            f"{', '.join(facts)}, {machine.get('date')}, {_commits(machine.get('commit'))}. Command:",
            "",
        ]
        lines += ["```text", str(machine.get("command")), "```"]
        if machine.get("note"):
            lines += ["", str(machine["note"]).replace("docs/log.md", "[log](../log.md)").rstrip(".") + "."]
    return "\n".join(lines) + "\n"


def _commits(found: Any) -> str:
    """A file that grew has several."""
    commits = [commit[:9] for commit in str(found).split(", ")]
    return f"{'commit' if len(commits) == 1 else 'commits'} {', '.join(commits)}"


def _kernel_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| operation | implementation | B, T, H, K, V | direction | ms | byte floor, ms |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        shape = ", ".join(f"{row['shape'][key]:,}" for key in "BTHKV")
        time = "failed" if row["ms"] is None else f"{row['ms']:.3f}"
        lines.append(f"| {row['op']} | {row['impl']} | {shape} | {row['direction']} | {time} | {row['floor_ms']:.3f} |")
    return lines


def _train_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| variant | preset | micro-batch | tokens per step | tokens/s | share of peak | peak GB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        if "tokens_per_second" not in row:
            return _plain(rows)
        mfu = "" if row.get("mfu") is None else f"{row['mfu']:.1%}"
        cells = [row["name"], f"`{row['config']}`", row["micro_batch_size"], number(row["tokens_per_step"])]
        cells += [number(row["tokens_per_second"]), mfu, f"{row['peak_memory_gb']:.1f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _decode_table(rows: list[dict[str, Any]]) -> list[str]:
    if any("phase" not in row for row in rows):
        return _plain(rows)
    lines = [
        "| what | model | implementation | texts | prompt | drafts | tokens/s | tokens a pass | accepted |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in (row for row in rows if row.get("tok_per_s")):
        chunk = f", in pieces of {number(row['chunk'])}" if "chunk" in row else ""
        greedy = ", greedy" if row.get("temperature") == 0 else ""
        kept = " / ".join(f"{share:.0%}" for share in row.get("acceptance") or ())
        forced = ", acceptance forced" if "forced" in row else ""
        passes = f"{row['tokens_per_pass']:.2f}" if row.get("tokens_per_pass") else ""
        cells = [row["phase"] + greedy + chunk + forced, f"`{row['config']}`", row["impl"], number(row["batch"])]
        cells += [number(row["context"]), row["drafts"], number(round(row["tok_per_s"])), passes, kept]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    alone = [row for row in rows if row["phase"] == "pass"]
    if alone:
        lines += ["", "| one pass, the device alone | drafts | ms |", "|---|---|---|"]
    for row in alone:
        texts = f"{row['batch']} texts" if row["batch"] > 1 else "1 text"
        lines.append(f"| {texts} | {row['drafts']} | {row['ms_per_pass']:.3f} |")
    for row in (row for row in rows if row["phase"] == "memory"):
        held, planned = number(row["state_bytes"]), number(row["planned_bytes"])
        lines += ["", f"One text with room for {number(row['context'])} tokens holds {held} bytes; planned: {planned}."]
    parts = [row for row in rows if row["phase"] == "breakdown"]
    kinds = dict.fromkeys(kind for row in parts for kind in row["breakdown_ms"])
    if parts:
        heads = [f"{row['batch']} texts" if row["batch"] > 1 else "1 text" for row in parts]
        lines += ["", f"| milliseconds of a pass | {' | '.join(heads)} |", "|---|" + "---|" * len(parts)]
        for kind in kinds:
            lines.append(f"| {kind} | " + " | ".join(f"{row['breakdown_ms'].get(kind, 0):.3f}" for row in parts) + " |")
        lines.append("| no kernel runs | " + " | ".join(f"{row['no_kernel_ms']:.3f}" for row in parts) + " |")
        lines.append("| whole pass | " + " | ".join(f"{row['ms_per_pass']:.3f}" for row in parts) + " |")
        lines.append("| kernels | " + " | ".join(f"{row['kernels_per_pass']:.0f}" for row in parts) + " |")
    return lines


def _ablation_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = ["| preset | family | variant | seed | tokens | bits per byte | tokens/s | peak GiB |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for row in rows:
        started = f" of '{row['start']}'" if row.get("start") else ""
        cells = [f"`{row['preset']}`", row["family"], row["variant"] + started, row["seed"], number(row["tokens"])]
        if row.get("failed"):
            cells += ["failed", "", ""]
        else:
            speed = number(row["tok_per_s"]) if has_clock(row) else ""
            cells += [f"{row['bits_per_byte']:.4f}", speed, f"{row['peak_gib']:.1f}" if row.get("peak_gib") else ""]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def _plain(rows: list[dict[str, Any]]) -> list[str]:
    """Any other file: its scalar columns as they are."""
    keys = [key for key in rows[0] if all(isinstance(row.get(key), str | int | float | bool) for row in rows)]
    keys = [key for key in keys if key not in ("fingerprint",)]
    lines = [f"| {' | '.join(key.replace('_', ' ') for key in keys)} |", "|" + "---|" * len(keys)]
    return lines + [f"| {' | '.join(_scalar(row[key]) for key in keys)} |" for row in rows]


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value).replace("|", "\\|")


_TABLES: dict[str, Callable[[list[dict[str, Any]]], list[str]]] = {
    "kernels": _kernel_table,
    "train": _train_table,
    "decode": _decode_table,
    "ablations": _ablation_table,
    "clock": _ablation_table,
}


def _source(name: str) -> Any:
    return yaml.safe_load((DOCS / "data" / f"{name}.yaml").read_text(encoding="utf-8"))


def decisions_page() -> str:
    """The decision record: each with its reason and the field that switches it, whose value is read from the preset."""
    source = _source("decisions")
    lines = [
        _WIDE,
        "# Decisions",
        "",
        _NOTE.format(source="docs/data/decisions.yaml"),
        *source["intro"].splitlines(),
        "",
    ]
    flagship = load_config("hymo_750m")
    lines += ["| question | decided | why | field and its value in `hymo_750m` |", "|---|---|---|---|"]
    for row in source["decisions"]:
        fields = []
        for path in row.get("fields", []):
            group, name = path.split(".")
            fields.append(f"`{path}`: `{_value(getattr(getattr(flagship, group), name))}`")
        lines.append(
            f"| {_cell(row['question'])} | {_cell(row['decided'])} | {_cell(row['why'])} | {'<br>'.join(fields)} |"
        )
    return "\n".join(lines) + "\n"


def risks_page() -> str:
    """Risks with probability, effect, counter-measure and state."""
    source = _source("risks")
    lines = [_WIDE, "# Risks", "", _NOTE.format(source="docs/data/risks.yaml"), *source["intro"].splitlines(), ""]
    lines += ["| risk | probability | effect | counter-measure | state |", "|---|---|---|---|---|"]
    for row in source["risks"]:
        lines.append(
            "| " + " | ".join(_cell(row[key]) for key in ("risk", "probability", "effect", "measure", "state")) + " |"
        )
    return "\n".join(lines) + "\n"


def references_page() -> str:
    """Papers with what of each was taken and where it is checked."""
    source = _source("references")
    lines = [
        _WIDE,
        "# References",
        "",
        _NOTE.format(source="docs/data/references.yaml"),
        *source["intro"].splitlines(),
        "",
    ]
    lines += ["| work | what HyMo takes | what was checked, and where |", "|---|---|---|"]
    for row in source["references"]:
        for path in re.findall(r"\(\.\./\.\./([^)#]+)\)", row["checked"]):
            if not (ROOT / path).exists():
                raise SystemExit(
                    f"docs/data/references.yaml: {path} does not exist. Name the file that checks {row['work']}."
                )
        lines.append("| " + " | ".join(_cell(row[key]) for key in ("work", "takes", "checked")) + " |")
    return "\n".join(lines) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "reference/config.md": config_page,
    "reference/cli.md": cli_page,
    "reference/presets.md": presets_page,
    "records/benchmarks.md": benchmarks_page,
    "records/decisions.md": decisions_page,
    "records/risks.md": risks_page,
    "records/references.md": references_page,
}
"""Every generated page and what writes it."""
