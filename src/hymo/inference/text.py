"""Tokens to text as they come: whole characters, and nothing that may still turn out to be a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from hymo.data.tokenizer import Tokenizer


class TokenBytes:
    """The bytes of single tokens, looked up once: with many texts in a batch looking up takes longer than drawing."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: dict[int, bytes] = {}

    def __call__(self, token: int) -> bytes:
        """As `tokenizer.decode_bytes([token])`."""
        data = self._known.get(token)
        if data is None:
            data = self._known[token] = self._tokenizer.decode_bytes([token])
        return data


class TextStream:
    """The bytes of a growing continuation, as far as they may be shown.

    A stop string ends the text before its first byte. Of several, the one that is complete first counts, and of those
    complete at the same byte the longest: so how the bytes are cut into tokens makes no difference.

    Args:
        stop: stop strings, none of them empty.
    """

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self._stop = [text.encode("utf-8") for text in stop]
        self._longest = max(map(len, self._stop), default=1)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._recent = b""
        """What was pushed but is not visible yet."""
        self.visible = 0
        """Bytes that are sure to be part of the text."""
        self.stopped = False
        """Whether a stop string came."""

    def push(self, data: bytes) -> str:
        """Take more bytes; return the text that has become visible."""
        if self.stopped:
            return ""
        self._recent += data
        cut = self._first_stop()
        if cut is not None:
            self.stopped = True
            return self._show(cut) + self._decoder.decode(b"", final=True)
        return self._show(len(self._recent) - self._held())

    def finish(self) -> str:
        """The text ends here: return what was held back."""
        if self.stopped:
            return ""
        return self._show(len(self._recent)) + self._decoder.decode(b"", final=True)

    def _show(self, count: int) -> str:
        shown, self._recent = self._recent[:count], self._recent[count:]
        self.visible += count
        return self._decoder.decode(shown)

    def _first_stop(self) -> int | None:
        """Where the text ends if a stop string lies in what is held back."""
        found = [(place + len(text), place) for text in self._stop if (place := self._recent.find(text)) >= 0]
        return min(found)[1] if found else None

    def _held(self) -> int:
        """Length of the longest end that is a beginning of a stop string."""
        for length in range(min(self._longest - 1, len(self._recent)), 0, -1):
            if any(text.startswith(self._recent[-length:]) for text in self._stop):
                return length
        return 0
