"""Log-likelihoods of given tokens, the same whatever they are computed with.

Rows are padded on the right, which a causal model cannot see; equal inputs are read once; batches are formed from rows
sorted by length and content. So the order of the request cannot change a bit of a result, and the batch size changes
only the order in which a matrix product adds up: about 1e-6 of the value in fp32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from hymo.core.errors import UsageError
from hymo.core.memory import LOGIT_CHUNK_ELEMENTS
from hymo.models import HyMo, Window

Score = tuple[float, bool]
"""Summed log-probability of the targets in nats, and whether each is the most likely token at its place."""


@dataclass(frozen=True)
class Row:
    """One text for the model and what is scored of it."""

    inputs: tuple[int, ...]
    """Token ids that the model reads."""
    targets: tuple[int, ...]
    """The next tokens of the last len(targets) inputs."""


def score_rows(
    model: HyMo,
    rows: Sequence[Row],
    batch_size: int,
    pad_id: int,
    progress: Callable[[int], None] = lambda done: None,
) -> list[Score]:
    """Score each row; results in the order of `rows`.

    Args:
        model: used in evaluation mode and handed back in the mode it came in.
        rows: any lengths up to the model's context.
        batch_size: different inputs per forward pass.
        pad_id: fills the rows of a batch; any id gives the same results.
        progress: called after each batch with the number of rows done.

    Raises:
        UsageError: batch_size below 1.
    """
    if batch_size < 1:
        raise UsageError(f"batch_size: must be at least 1, not {batch_size}.")
    scores: dict[Row, Score] = {row: (0.0, True) for row in rows if not row.targets}
    wanted: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for row in rows:
        if row.targets:
            wanted.setdefault(row.inputs, set()).add(row.targets)
    order = sorted(wanted, key=lambda inputs: (-len(inputs), inputs))
    was_training = model.training
    model.eval()
    try:
        for first in range(0, len(order), batch_size):
            batch = [Row(inputs, t) for inputs in order[first : first + batch_size] for t in sorted(wanted[inputs])]
            scores.update(zip(batch, _score_batch(model, batch, pad_id), strict=True))
            progress(len(batch))
    finally:
        model.train(was_training)
    return [scores[row] for row in rows]


@torch.inference_mode()
def _score_batch(model: HyMo, batch: Sequence[Row], pad_id: int) -> list[Score]:
    """Scores of rows whose different inputs are one forward pass."""
    device = model.embed.weight.device
    place = {inputs: index for index, inputs in enumerate(dict.fromkeys(row.inputs for row in batch))}
    tokens = torch.full((len(place), max(map(len, place))), pad_id, dtype=torch.int64)
    for inputs, index in place.items():
        tokens[index, : len(inputs)] = torch.tensor(inputs)
    tokens = tokens.to(device)
    hidden = model.head_inputs(Window(tokens, tokens, None), mtp=False)["main"]
    at = [
        (place[row.inputs], len(row.inputs) - len(row.targets) + offset, target)
        for row in batch
        for offset, target in enumerate(row.targets)
    ]
    row_of, time, target = torch.tensor(at, device=device).unbind(1)
    logprobs, greedy = [], []
    for part in _chunks(len(at), model.output_weight.shape[0]):
        logits = model.logits(hidden[row_of[part], time[part]])
        logprobs.append(torch.log_softmax(logits, -1).gather(-1, target[part, None])[:, 0].cpu())
        greedy.append((logits.argmax(-1) == target[part]).cpu())
    lengths = [len(row.targets) for row in batch]
    sums = torch.cat(logprobs).double().split(lengths)
    hits = torch.cat(greedy).split(lengths)
    return [(float(values.sum()), bool(hit.all())) for values, hit in zip(sums, hits, strict=True)]


def _chunks(count: int, vocabulary: int) -> Iterator[slice]:
    """Places whose logits fit into memory together."""
    size = max(1, LOGIT_CHUNK_ELEMENTS // vocabulary)
    return (slice(first, first + size) for first in range(0, count, size))
