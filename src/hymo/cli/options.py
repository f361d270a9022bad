"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

Overrides = Annotated[
    tuple[str, ...],
    Parameter(
        name="--set", negative="", help="Override a field: section.field=value. May be repeated.", show_default=False
    ),
]
"""Configuration overrides."""
Json = Annotated[bool, Parameter(name="--json", negative="", help="Write JSON to stdout.", show_default=False)]
"""Machine-readable output."""
