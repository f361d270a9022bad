"""Counts as people write them: `2M`, `30e9`, `100_000`."""

from __future__ import annotations

import re
from decimal import Decimal

from hymo.core.errors import UsageError

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "g": 10**9, "t": 10**12}
_FORM = re.compile(r"(\d[\d_,]*(?:\.\d+)?(?:e\+?\d{1,2})?)\s*([kmbgt]?)", re.IGNORECASE)


def read_count(text: str, option: str) -> int:
    """Return the whole number that `text` names: digits, `_` or `,` between them, an exponent, one of k, M, B, T.

    Args:
        text: for example 2M, 1.5B, 30e9 or 100_000.
        option: what it was given for, for the message.

    Raises:
        UsageError: not such a number, not whole, or below 1.
    """
    found = _FORM.fullmatch(text.strip())
    value = None if found is None else Decimal(re.sub("[_,]", "", found[1])) * _FACTORS[found[2].lower()]
    if value is None or value < 1 or value != int(value):
        raise UsageError(
            f"{option} {text}: must be a whole number of at least 1, for example 2M, 1.5B, 30e9 or 100000."
        )
    return int(value)
