"""Results on stdout, messages on stderr; colour and boxes on a terminal only."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Any

_DECIMAL = (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3))
_BINARY = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def log(message: str) -> None:
    """Write one line to stderr."""
    print(message, file=sys.stderr, flush=True)


def print_json(value: Any) -> None:
    """Write `value` to stdout as indented JSON; NaN and infinity, which are no JSON, become null."""
    print(json.dumps(finite(value), indent=2, allow_nan=False))


def finite(value: Any) -> Any:
    """The value with null for each NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list | tuple) else value


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> None:
    """Write a table to stdout, framed on a terminal and plain elsewhere; columns align right, those in `left` left."""
    if sys.stdout.isatty():
        _print_rich(title, columns, rows, left)
        return
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    print(title)
    for row in (columns, *rows):
        first, *rest = (
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  " + "  ".join((first, *rest)).rstrip())


def _print_rich(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[int]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    for i, column in enumerate(columns):
        table.add_column(column, justify="left" if i in left else "right")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console().print(table)


class Progress:
    """One line on a terminal that is rewritten at every whole per cent of some bytes."""

    def __init__(self) -> None:
        self._shown = ("", -1)

    def __call__(self, phase: str, done: int, total: int) -> None:
        """Show that `done` of `total` bytes of `phase` are done."""
        percent = 100 * done // total if total else 100
        if (phase, percent) != self._shown:
            self._shown = (phase, percent)
            end = "\n" if percent == 100 else ""
            print(f"\r{phase} {percent:3d} % of {size(total)}", end=end, file=sys.stderr, flush=True)


def count(number: float) -> str:
    """Format a count with a decimal prefix: 1.13 B, 434.5 M, 80.2 k."""
    return _scaled(number, _DECIMAL, "")


def size(number: float) -> str:
    """Format bytes with a binary prefix: 128.0 MiB."""
    return _scaled(number, _BINARY, "B")


def _scaled(number: float, units: Sequence[tuple[str, float]], smallest: str) -> str:
    for unit, factor in units:
        if number >= factor:
            digits = 2 if number < 10 * factor and unit in ("B", "T") else 1
            return f"{number / factor:.{digits}f} {unit}"
    return f"{number:g} {smallest}".rstrip()
