"""Plain Python values as bytes and back. Stand-alone: it runs on both sides of a sandbox.

Only data crosses, never code: None, booleans, numbers, strings, bytes, lists, tuples, sets, dictionaries, ranges, and
iterators, which arrive as iterators over what they would have given. A subclass crosses as the type it extends.
"""

from __future__ import annotations

import json
import os
import struct
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

LARGEST = 8 << 20
"""Bytes of one message."""
_SAFE = 1 << 53
_SEQUENCES: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "list": (list, list),
    "tuple": (tuple, tuple),
    "set": (set, set),
    "frozenset": (frozenset, frozenset),
    "deque": (deque, deque),
    "iterator": (Iterator, iter),  # a range is none and has a case of its own
}


class NotPlainError(Exception):
    """A value that is no plain data."""


def encode(value: Any) -> Any:
    """Return `value` in terms of JSON.

    Raises:
        NotPlainError: it holds something that is no plain data.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        number = int(value)
        return number if abs(number) < _SAFE else {"int": hex(number)}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, bytes | bytearray):
        return {"bytes" if isinstance(value, bytes) else "bytearray": value.hex()}
    if isinstance(value, Fraction):
        return {"fraction": [encode(value.numerator), encode(value.denominator)]}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, range):
        return {"range": [encode(value.start), encode(value.stop), encode(value.step)]}
    if isinstance(value, dict):
        return {"dict": [[encode(key), encode(item)] for key, item in value.items()]}
    for name, (kind, _) in _SEQUENCES.items():
        if isinstance(value, kind):
            return {name: [encode(item) for item in value]}
    raise NotPlainError(f"{type(value).__name__} is no plain data")


def decode(value: Any) -> Any:
    """Return the value that `encode` gave.

    Raises:
        ValueError: nothing that `encode` gives. Other exceptions of the types' constructors may come from forged input.
    """
    if not isinstance(value, dict):
        if isinstance(value, list):
            raise ValueError("a bare list")
        return value
    if len(value) != 1:
        raise ValueError("not one tag")
    ((tag, content),) = value.items()
    if tag in _SEQUENCES:
        return _SEQUENCES[tag][1](decode(item) for item in content)
    simple: dict[str, Callable[[Any], Any]] = {
        "int": lambda digits: int(digits, 16),
        "complex": lambda parts: complex(*parts),
        "bytes": bytes.fromhex,
        "bytearray": bytearray.fromhex,
        "fraction": lambda parts: Fraction(*map(decode, parts)),
        "decimal": Decimal,
        "range": lambda parts: range(*map(decode, parts)),
        "dict": lambda pairs: {decode(key): decode(item) for key, item in pairs},
    }
    if tag not in simple:
        raise ValueError(f"tag {tag}")
    return simple[tag](content)


def send(descriptor: int, message: Any) -> None:
    """Write one message of JSON."""
    body = json.dumps(message).encode()
    data = struct.pack("!Q", len(body)) + body
    while data:
        data = data[os.write(descriptor, data) :]


def receive(descriptor: int) -> Any:
    """Read one message of JSON.

    Raises:
        EOFError: the other side is gone.
        ValueError: a message too long, or no JSON.
    """
    (size,) = struct.unpack("!Q", _exactly(descriptor, 8))
    if size > LARGEST:
        raise ValueError(f"a message of {size} bytes")
    return json.loads(_exactly(descriptor, size))


def _exactly(descriptor: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = os.read(descriptor, min(size - len(data), 1 << 20))
        if not piece:
            raise EOFError("the other side is gone")
        data += piece
    return bytes(data)
