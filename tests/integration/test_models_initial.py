"""A fresh model on real text: it starts from the loss that the design predicts and does not echo its input.

Text is the sample that ships with the package. Byte vocabularies read it as bytes. Larger ones have no trained
tokenizer here: their ids are the text's own pieces (words and signs with the space before them, as byte-pair
tokenizers cut text first), ranked by frequency, which gives about the repetition of real tokens; ranks beyond the
vocabulary wrap around.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hymo.core.accounting import count_parameters
from hymo.core.load import derive_config, load_config, preset_names
from hymo.data import ByteTokenizer, sample_paths
from hymo.models import HyMo, build_hymo
from model_helpers import expected_initial_loss

TOKENS = 8192
SMALL = {
    load_config(n).model: n for n in preset_names() if count_parameters(load_config(n).model).stored < 100_000_000
}.values()  # presets of one model count once


def real_tokens(vocab: int, rows: int, width: int) -> Tensor:
    with sample_paths()["train"].open(encoding="utf-8") as lines:
        text = "".join(json.loads(line)["text"] for line in lines)
    if vocab == ByteTokenizer.vocab_size:
        ids = ByteTokenizer().encode(text[: 2 * rows * width])
    else:
        pieces = re.findall(r" ?\w+| ?[^\w\s]+|\s+", text)
        rank = {piece: i for i, (piece, _) in enumerate(Counter(pieces).most_common())}
        ids = np.array([rank[piece] % vocab for piece in pieces[: rows * width]])
    assert len(ids) >= rows * width
    return torch.from_numpy(ids[: rows * width].astype(np.int64)).view(rows, width)


@torch.no_grad()
def measure(model: HyMo, tokens: Tensor) -> dict[str, float]:
    """Mean losses by head, own-token logits, and the growth of the residual stream from the first block to the last."""
    sizes: dict[int, float] = {}
    hooks = [
        layer.register_forward_hook(lambda _m, _a, out, i=i: sizes.__setitem__(i, float(out.square().mean().sqrt())))
        for i, layer in enumerate(model.layers)
        if i in (0, len(model.layers) - 1)
    ]
    sums: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for row in tokens.split(1):
        inputs, length = row[:, :-1], row.shape[1] - 1
        hidden, embedded = model._hidden_and_embedded(inputs)
        heads = [hidden, *model.mtp(hidden, embedded)]
        for depth, out in enumerate(heads):
            name = "main" if depth == 0 else f"mtp_{depth}"
            logits = model.logits(out[0])
            goals = row[0, depth + 1 : length + 1]
            sums[name] += float(torch.nn.functional.cross_entropy(logits, goals, reduction="sum"))
            # The token that this head was given last: its own for the main head, token t + d for head d.
            own = logits.gather(-1, row[0, depth:length, None])
            sums[f"own_{name}"] += float(own.sum())
            counts[name] += len(goals)
            counts[f"own_{name}"] += len(own)
        sums["growth"] += sizes[len(model.layers) - 1] / sizes[0]
        counts["growth"] += 1
    for hook in hooks:
        hook.remove()
    return {name: sums[name] / counts[name] for name in sums}


def check(model: HyMo, tokens: Tensor) -> dict[str, float]:
    found = measure(model.eval(), tokens)
    expected = expected_initial_loss(model)
    print({k: round(v, 4) for k, v in found.items()}, "expected", round(expected, 4))
    depths = [f"mtp_{d}" for d in range(1, model.config.mtp_depth + 1)]
    for name in ("main", *depths):
        assert abs(found[name] - expected) < 0.1, name
    assert found["own_main"] < 2
    assert all(found[f"own_{name}"] < 3.5 for name in depths)
    assert found["growth"] < 10
    return found


@pytest.mark.parametrize("changes", [{}, {"gdn_recurrence": "gated_delta"}], ids=["linear", "delta"])
@pytest.mark.parametrize("preset", [n for n in SMALL if n != "hymo_small"])
def test_initial_loss(preset: str, changes: dict[str, Any]) -> None:
    model = build_hymo(derive_config(load_config(preset), model=changes))
    width = min(512, model.config.max_seq_len) + 1
    rows = -(-TOKENS // (width - 3))
    tokens = real_tokens(model.config.vocab_size, rows, width)
    check(model, tokens)


def test_initial_loss_of_hymo_small() -> None:
    assert "hymo_small" in SMALL
    check(build_hymo(load_config("hymo_small")), real_tokens(16_384, 8, 1024 + 3))


@pytest.mark.heavy
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("changes", [{}, {"gdn_recurrence": "gated_delta"}], ids=["linear", "delta"])
def test_initial_loss_of_a_full_width_twin(changes: dict[str, Any]) -> None:
    """The flagship with two experts instead of sixteen: full width, depth and vocabulary, 434 M parameters."""
    config = derive_config(load_config("hymo_750m"), model={"n_routed_experts": 2, **changes})
    model = build_hymo(config.model)
    check(model, real_tokens(64_256, 8, 1024 + 3))
