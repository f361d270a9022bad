"""The whole model, every variant, against numpy loops written from the equations."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from model_helpers import build, close, draw_tokens
from model_reference import head, hidden_states, losses, weights_of

VARIANTS: list[dict[str, Any]] = [
    {},
    {"gdn_recurrence": "gated_delta"},
    {"gdn_recurrence": "gated_delta", "rope_pairing": "interleaved", "router_score": "softmax"},
    {"rope_pairing": "interleaved"},
    {"gdn_rope_target": "v"},
    {"gdn_rope_target": "v", "rope_pairing": "interleaved"},
    {"gdn_rope_target": "none"},
    {"nope_hybrid_gdn_enabled": True, "nope_gdn_layers": [3]},
    {"gdn_decay_sharing": "head"},
    {"gdn_output_norm": True},
    {"gdn_gate": "full"},
    {"gdn_gate": "none"},
    {"gdn_ffn_dim": 20},
    {"gdn_decay_init": "log_uniform"},
    {"qk_rope_head_dim": 0},
    {"qk_rope_head_dim": 16},
    {"mla_latent": False},
    {"n_kv_groups": 1},
    {"n_kv_groups": 4},
    {"moe_placement": "all"},
    {"moe_placement": "none"},
    {"router_score": "softmax", "route_scale": 2.5},
    {"n_shared_experts": 0},
    {"n_shared_experts": 2},
    {"n_activated_experts": 3},
    {"tie_embeddings": False},
    {"logit_softcap": 0.0},
    {"mtp_depth": 0},
    {"mtp_depth": 3},
    {"gdn_d_conv": 2},
]


def ids(changes: Any) -> str:
    return "-".join(f"{k}={v}" for k, v in changes.items()) or "v1"


@pytest.mark.parametrize("changes", VARIANTS, ids=ids)
def test_logits_and_losses(changes: dict[str, Any]) -> None:
    model = build(double=True, **changes)
    for mixture in model.mixtures():
        mixture.bias.copy_(torch.linspace(-0.2, 0.2, 6))
    weights = weights_of(model)
    tokens = draw_tokens(2, 22)
    logits, hidden = model.forward_with_hidden(tokens)
    for row in range(2):
        expected = hidden_states(tokens[row].numpy(), weights, model.config)
        close(hidden[row], expected)
        close(logits[row], head(expected, weights, model.config))
    close(model(tokens), logits)

    documents = np.repeat([0, 1, 2, 3], [9, 1, 2, 10]).tolist()
    cu = torch.tensor([0, 9, 10, 12, 22], dtype=torch.int32)
    got = model.loss(tokens[:1], cu_seqlens=cu)
    wanted = losses(tokens[0].numpy(), documents, weights, model.config)
    total = 0.0
    for depth, (name, values) in enumerate(wanted.items()):
        close(got[name], np.mean(values))
        total += np.mean(values) * ([1.0, *model.config.mtp_loss_weights][depth])
    close(got["loss"], total)
    assert set(got) == {"loss", *wanted}


@pytest.mark.parametrize("recurrence", ["gated_linear", "gated_delta"])
@pytest.mark.parametrize("kernel", ["recurrent", "chunked"])
def test_packed_rows_restart_positions_and_states(recurrence: str, kernel: str) -> None:
    model = build(double=True, gdn_recurrence=recurrence)
    model.kernel = kernel
    weights = weights_of(model)
    tokens = draw_tokens(1, 40)
    bounds = [0, 3, 20, 20, 21, 40]
    logits = model(tokens, torch.tensor(bounds, dtype=torch.int32))
    for start, end in itertools.pairwise(bounds):
        if end > start:
            close(
                logits[0, start:end],
                head(hidden_states(tokens[0, start:end].numpy(), weights, model.config), weights, model.config),
            )


def test_start_pos_counts_positions_from_there() -> None:
    """Values are rotated: this variant depends on absolute positions, so an offset that is ignored shows."""
    model = build(double=True, gdn_rope_target="v")
    tokens = draw_tokens(1, 9)
    weights = weights_of(model)
    expected = hidden_states(tokens[0].numpy(), weights, model.config, start=50)
    close(model.forward_with_hidden(tokens, start_pos=50)[1][0], expected)
    assert np.abs(expected - hidden_states(tokens[0].numpy(), weights, model.config)).max() > 1e-3


def test_losses_of_rows_add_up() -> None:
    """Rows of T+1 tokens: T, T-1 and T-2 targets; means run over all rows."""
    model = build(double=True)
    weights = weights_of(model)
    window = draw_tokens(3, 12)
    found = [losses(row.numpy(), [0] * 12, weights, model.config) for row in window]
    got = model.loss(window)
    for name, count in (("main", 11), ("mtp_1", 10), ("mtp_2", 9)):
        assert [len(f[name]) for f in found] == [count] * 3
        close(got[name], np.mean([f[name] for f in found]))
