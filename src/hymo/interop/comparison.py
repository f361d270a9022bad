"""How far an export's logits are from those of the model that it was made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers.utils import logging

from hymo.core.errors import ExportError
from hymo.data.sample import sample_paths
from hymo.data.tokenizer import Tokenizer
from hymo.interop.modeling_hymo import CACHE, HymoForCausalLM
from hymo.models import HyMo, RotaryEmbedding

LENGTH = 256
"""Tokens per row that are compared, or what the context holds."""
_SAMPLE_BYTES = 8192


@dataclass(frozen=True)
class Difference:
    """Largest absolute difference of a logit, three ways to compute it."""

    whole: float
    """All tokens in one pass."""
    cached: float
    """In two passes with a cache, then token by token."""
    padded: float
    """In a batch, behind padding."""

    @property
    def largest(self) -> float:
        """The largest of the three; NaN if one is."""
        return max((self.whole, self.cached, self.padded), key=lambda x: (x != x, x))

    def to_dict(self) -> dict[str, float]:
        """As plain values."""
        return asdict(self)


@contextmanager
def quietly() -> Iterator[None]:
    """Keep transformers' progress bars and advice away from a command's output."""
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def load_export(folder: Path) -> HymoForCausalLM:
    """Load an export's model in fp32, by the packaged code.

    Raises:
        ExportError: tensors are missing or left over.
    """
    with quietly():
        model, report = HymoForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
    wrong = {kind: names for kind, names in report.items() if names}
    if wrong:
        raise ExportError(f"{folder}: transformers does not find the tensors that it needs: {wrong}.")
    loaded: HymoForCausalLM = model.eval()
    return loaded


@torch.no_grad()
def compare(model: HyMo, tokenizer: Tokenizer, folder: Path, double: bool = False) -> Difference:
    """Compare on a row of text and one of random tokens.

    Args:
        model: what was exported, in fp32 on the CPU.
        tokenizer: its tokenizer.
        folder: the export.
        double: compute both in fp64, so that hardly anything is rounding; `model` is turned into fp64 for good.
    """
    exported = load_export(folder)
    if double:
        exported.double()
        model.double()
        for module in model.modules():
            if isinstance(module, RotaryEmbedding):
                module.reset_buffers()  # else the tables would be those of fp32
    tokens = _rows(model, tokenizer)
    length = tokens.shape[1]
    expected = model(tokens)
    whole = exported(tokens, use_cache=False).logits

    parts, cache = [], None
    half = length // 2
    for start, end in (
        (0, half),
        (half, max(length - 2, half)),
        *((i, i + 1) for i in range(max(length - 2, half), length)),
    ):
        if start < end:
            out = exported(tokens[:, start:end], cache=cache, use_cache=True)
            parts.append(out.logits)
            cache = getattr(out, CACHE)

    pads = max(length // 3, 1)
    padded = tokens.clone()
    padded[1] = torch.cat((tokens.new_full((pads,), tokenizer.pad_id), tokens[1, : length - pads]))
    mask = torch.ones_like(padded)
    mask[1, :pads] = 0
    behind = exported(padded, attention_mask=mask, use_cache=False).logits
    return Difference(
        _distance(whole, expected),
        _distance(torch.cat(parts, 1), expected),
        max(_distance(behind[0], expected[0]), _distance(behind[1, pads:], expected[1, : length - pads])),
    )


def _rows(model: HyMo, tokenizer: Tokenizer) -> Tensor:
    """(2, T): the packaged text, repeated if it is short, and random tokens."""
    length = min(LENGTH, model.config.max_seq_len)
    with sample_paths()["validation"].open("rb") as stream:
        text = stream.read(_SAMPLE_BYTES)
    ids = torch.from_numpy(tokenizer.encode(text)).repeat(1 + length // 16)[:length]
    drawn = torch.randint(0, model.config.vocab_size, (length,), generator=torch.Generator().manual_seed(0))
    return torch.stack((ids, drawn))


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max()) if one.numel() else 0.0
