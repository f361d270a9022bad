"""Which implementation of a recurrence runs, and why."""

from __future__ import annotations

from hymo.core.errors import UsageError, nearest

IMPLEMENTATIONS = ("auto", "recurrent", "chunked")
SHORT = 16
"""Longest sequence for which `auto` takes the plain loop: below it, chunking costs more than it saves."""


def choose(implementation: str, length: int) -> str:
    """Resolve `auto` for a sequence of `length` tokens; refuse an unknown name."""
    if implementation == "triton":
        raise UsageError("implementation='triton': this version has no Triton kernels. Use auto, recurrent or chunked.")
    if implementation not in IMPLEMENTATIONS:
        hint = nearest(implementation, IMPLEMENTATIONS)
        raise UsageError(f"implementation='{implementation}': unknown{hint}. Known: {', '.join(IMPLEMENTATIONS)}.")
    if implementation == "auto":
        return "recurrent" if length <= SHORT else "chunked"
    return implementation
