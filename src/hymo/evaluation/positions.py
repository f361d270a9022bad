"""Bits per byte by how much context a token has: whether a model uses what lies far back, and where it breaks.

The windows are those of `hymo.data.heldout` without overlap, so the sums over all buckets are those of
`hymo.evaluation.perplexity.evaluate` at the same length. A token's context is the number of tokens before it in its
window, the document's bos included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hymo.core.config import HyMoConfig
from hymo.core.errors import UsageError
from hymo.core.load import derive_config
from hymo.core.memory import LOGIT_CHUNK_ELEMENTS
from hymo.data.dataset import Split
from hymo.data.heldout import EvaluationWindows
from hymo.data.tokenizer import Tokenizer
from hymo.kernels.cross_entropy import IGNORE_INDEX
from hymo.models import HyMo, build_hymo
from hymo.models.windows import as_window

LONGEST = 32_768
"""Context that the suite asks for, in tokens."""
_FIRST_EDGE = 64


@dataclass(frozen=True)
class Bucket:
    """The scored tokens whose context lies in (above, up_to]."""

    above: int
    """Tokens of context, exclusive."""
    up_to: int
    """Tokens of context, inclusive."""
    nats: float
    """Summed loss."""
    tokens: int
    """Tokens scored."""
    bytes: int
    """Bytes that they stand for."""

    @property
    def bits_per_byte(self) -> float | None:
        """Bits per byte; None where nothing was scored."""
        return self.nats / math.log(2) / self.bytes if self.bytes else None


def edges(length: int) -> list[int]:
    """Upper ends of the buckets: 64, 128, ... and `length` itself."""
    ends = [_FIRST_EDGE << i for i in range(length.bit_length()) if _FIRST_EDGE << i < length]
    return [*ends, length]


@torch.inference_mode()
def bits_per_byte_by_position(
    model: HyMo,
    split: Split,
    tokenizer: Tokenizer,
    length: int,
    *,
    joined: bool = False,
    max_bytes: int | None = None,
    batch_size: int = 1,
) -> list[Bucket]:
    """Score held-out documents in windows of `length` tokens.

    Args:
        model: in evaluation mode.
        split: held-out documents.
        tokenizer: of the model.
        length: longest context; at most the model's.
        joined: read the documents as one text, bos and eos between them, for sets whose documents are short. The marks
            themselves are not scored.
        max_bytes: score only the first so many bytes.
        batch_size: windows per forward pass; changes speed, not results.

    Raises:
        UsageError: a length beyond the model's context.
    """
    context = model.rope_gdn.positions
    if not 1 <= length <= context:
        raise UsageError(f"length: {length} is not in 1..{context}, the context of this model (model.max_seq_len).")
    text = cast(Split, _Joined(split, max_bytes)) if joined else split
    windows = EvaluationWindows(text, length, max_bytes=None if joined else max_bytes, tokenizer=tokenizer)
    sizes = torch.tensor([len(tokenizer.decode_bytes([i])) for i in range(tokenizer.vocab_size)])
    device = model.embed.weight.device
    ends = torch.tensor(edges(length))
    nats, tokens, size = (torch.zeros(len(ends), dtype=torch.float64) for _ in range(3))
    for batch in windows.batches(batch_size):
        window = as_window(batch)
        targets = window.targets.masked_fill(~torch.from_numpy(batch["mask"]), IGNORE_INDEX).flatten()
        hidden = model.head_inputs(replace(window, inputs=window.inputs.to(device)), mtp=False)["main"]
        scored = (targets != IGNORE_INDEX) & (targets != tokenizer.bos_id) & (targets != tokenizer.eos_id)
        found = torch.bucketize(_contexts(window.inputs, window.cu_seqlens)[scored], ends)
        nats.index_add_(0, found, _losses(model, hidden.flatten(0, 1)[scored.to(device)], targets[scored]))
        tokens.index_add_(0, found, torch.ones(len(found), dtype=torch.float64))
        size.index_add_(0, found, sizes[targets[scored]].double())
    starts = [0, *ends.tolist()]
    return [Bucket(starts[i], starts[i + 1], float(nats[i]), int(tokens[i]), int(size[i])) for i in range(len(ends))]


def beyond_context(model: HyMo, config: HyMoConfig, length: int) -> HyMo:
    """The same weights with rotations for `length` positions, those past the context never trained on."""
    longer = build_hymo(derive_config(config, model={"max_seq_len": length}), device=model.embed.weight.device)
    longer.load_state_dict(model.state_dict())
    return longer.eval()


class _Joined:
    """The documents of a split as one, in the form that `EvaluationWindows` reads."""

    def __init__(self, split: Split, max_bytes: int | None) -> None:
        self.name, self.fingerprint = split.name, split.fingerprint
        kept = split.n_documents
        if max_bytes is not None:  # whole documents until there is enough
            kept = min(kept, int(np.searchsorted(split.text_bytes.cumsum(), max_bytes)) + 1)
        self._tokens: NDArray[Any] = np.concatenate([split.document(i) for i in range(kept)])
        self.lengths = np.array([len(self._tokens)])
        self.text_bytes = np.array([int(split.text_bytes[:kept].sum())])

    def document(self, index: int) -> NDArray[Any]:
        return self._tokens


def _contexts(inputs: Tensor, bounds: Tensor | None) -> Tensor:
    """(B * T,) tokens read, each row's or document's first included, when the target of a position is predicted."""
    places = torch.arange(inputs.numel())
    if bounds is None:
        return places % inputs.shape[1] + 1
    starts = bounds[:-1].long()
    return places - torch.repeat_interleave(starts, bounds.long().diff()) + 1


def _losses(model: HyMo, hidden: Tensor, targets: Tensor) -> Tensor:
    """(n,) nats in fp64 on the CPU of hidden states (n, dim), without all logits at once."""
    rows = max(1, LOGIT_CHUNK_ELEMENTS // model.output_weight.shape[0])
    losses = [
        torch.nn.functional.cross_entropy(model.logits(h), t.to(hidden.device), reduction="none").double().cpu()
        for h, t in zip(hidden.split(rows), targets.split(rows), strict=True)
    ]
    return torch.cat(losses)
