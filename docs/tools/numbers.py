"""Every number on a page has a source; this finds those that have none.

1. A value between markers, written from code, presets and result files (values.py, sources.py).
2. A generated page or table. Tables between `<!-- results -->` marks are written by the benchmark that measured them.
3. The log. Each of its entries has a date and names its command, test or result file.
4. docs/data/numbers.yaml, reviewed by hand: phrases with numbers that are no results, and sections that are definitions
   or records of experiments, each with the reason. An entry that is not needed is an error too.

Code is not prose: blocks run in tests, and what stands in backticks is a name, a command or a setting.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from docs.tools.paths import DOCS, ROOT

LOG = "log.md"
MARK = re.compile(r"<!--=([^>\n]+?)-->(.*?)<!--/-->")
TABLE = re.compile(r"<!--table ([\w\- ]+)-->\n(.*?)\n<!--/table-->", re.DOTALL)
_MEASURED = {"kernels.md": "benchmarks/kernel_table.py", "recall.md": "benchmarks/recall_table.py"}
_IGNORED = (
    re.compile(r"\A---\n.*?\n---\n", re.DOTALL),  # front matter
    re.compile(r"```.*?```", re.DOTALL),  # blocks are run by a test
    re.compile(r"\$\$.*?\$\$", re.DOTALL),
    re.compile(r"(?<![\\$])\$[^$\n]+\$"),
    re.compile(r"`[^`\n]*`"),
    TABLE,
    MARK,
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"\]\([^)]*\)"),
    re.compile(r"<[^>]+>"),
    re.compile(r"arXiv \d{4}\.\d{4,5}"),
    re.compile(r"(?<=[A-Za-z])[\w.\-]*\d+|\d+(?=[A-Za-z])"),  # names: fp32, H200, bf16
    re.compile(r"^\d+\. ", re.MULTILINE),  # numbered lists
    re.compile(r"\bsections? \d+(\.\d+)*"),
    re.compile(r"\bexit codes? (is )?\d+((,| and| or)? \d+)*|\b(exits?|ends?) with \d+( (or|and) \d+)?\b"),
)
_COMMAND = re.compile(
    r"`(hymo|python|pytest|torchrun|make)\s[^`]+`|benchmarks/results/[\w\-]+\.json|tests/[\w/]+\.py|^```sh",
    re.MULTILINE,
)


def typed_numbers(text: str) -> list[str]:
    """Numbers in prose that no marker covers, each with the words around it."""
    for pattern in _IGNORED:
        text = pattern.sub(
            lambda m: " " * (1 + m[0].count("\n")) if "\n" not in m[0] else "\n" * m[0].count("\n"), text
        )
    return [text[max(0, m.start() - 30) : m.end() + 20].replace("\n", " ").strip() for m in re.finditer(r"\d+", text)]


def exceptions() -> dict[str, Any]:
    """docs/data/numbers.yaml."""
    found: dict[str, Any] = yaml.safe_load((DOCS / "data" / "numbers.yaml").read_text(encoding="utf-8"))
    return found


def problems(page: str, text: str, allowed: dict[str, Any] | None = None) -> list[str]:
    """What is wrong with the numbers of a page below docs/ that is not generated as a whole, one line each."""
    if page == LOG:
        return log_problems(text)
    found = []
    if page in _MEASURED and (ROOT / _MEASURED[page]).exists():
        text = re.sub(r"<!-- results -->.*?<!-- end of results -->", "", text, flags=re.DOTALL)
    allowed = exceptions() if allowed is None else allowed
    for entry in allowed["sections"]:
        if entry["page"] == page:
            section = re.compile(rf"^## {re.escape(entry['section'])}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)
            text, count = section.subn("", text)
            found += [] if count else [f"numbers.yaml: {page} has no section {entry['section']!r}"]
    for entry in allowed["phrases"]:
        if entry["page"] != page:
            continue
        for phrase in entry["text"]:
            words = r"\s+".join(re.escape(word) for word in phrase.split())
            text, count = re.subn(rf"(?<!\d)(?<!\d[.,]){words}(?!\d)", "", text)
            found += [] if count else [f"numbers.yaml: {page} does not say {phrase!r}"]
    return found + [f"{page}: a number typed by hand: … {where} …" for where in typed_numbers(text)]


def log_problems(text: str) -> list[str]:
    """Entries of the log without a date, or without a command, a test or a result file."""
    found = []
    for entry in re.split(r"^(?=## )", text, flags=re.MULTILINE)[1:]:
        title = entry.splitlines()[0]
        if not re.match(r"## \d{4}-\d\d-\d\d: ", title):
            found.append(f"{LOG}: {title}: begins without a date")
        if not _COMMAND.search(entry):
            found.append(f"{LOG}: {title}: names no command, test or result file")
    return found


def source_problems(name: str, rows: Any, allowed: dict[str, Any] | None = None) -> list[str]:
    """The same for the prose of a file in docs/data that a page is generated from."""
    texts: list[str] = []

    def walk(value: Any, key: str = "") -> None:
        if isinstance(value, dict):
            for inner, item in value.items():
                walk(item, inner)
        elif isinstance(value, list):
            for item in value:
                walk(item, key)
        elif isinstance(value, str) and key not in ("command", "result"):
            texts.append(value)

    walk(rows)
    return problems(f"data/{name}", "\n\n".join(texts), allowed)
