"""Small models and recorders for the tests of `hymo.models`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from hymo.core.config import HyMoConfig
from hymo.core.load import derive_config, load_config
from hymo.models import HyMo, build_hymo
from hymo.models.gdn import GatedDeltaNetBlock
from hymo.models.rope import RotaryEmbedding

RECURRENCES = ("gated_linear", "gated_delta")

MICRO: dict[str, Any] = {
    "vocab_size": 64,
    "dim": 32,
    "n_layers": 4,
    "mla_layers": [0, 2],
    "max_seq_len": 160,
    "n_heads": 4,
    "n_kv_groups": 2,
    "head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "q_lora_rank": 8,
    "kv_lora_rank": 16,
    "gdn_d_inner": 48,
    "gdn_d_state": 8,
    "gdn_headdim": 12,
    "gdn_chunk_size": 16,
    "n_routed_experts": 6,
    "moe_inter_dim": 24,
}


def micro(**changes: Any) -> HyMoConfig:
    """Four blocks, two of each kind; every dimension differs from every other that it could be mistaken for."""
    model = {**MICRO, **changes}
    return derive_config(load_config("hymo_tiny"), model=model, training={"seq_len": 64})


def build(double: bool = False, seed: int = 0, lively: bool = True, **changes: Any) -> HyMo:
    """A micro model; `lively` weights are big enough that every part moves the output by far more than rounding."""
    model = build_hymo(micro(**changes), seed=seed)
    if lively:
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name)))
                if name.endswith(("A_log", "dt_bias")):
                    parameter.add_(0.3 * noise)
                elif parameter.ndim == 1:
                    parameter.add_(0.2 * noise)
                elif name == "embed.weight":
                    parameter.mul_(8)
                elif name.endswith("router"):
                    parameter.mul_(60)
                else:
                    parameter.mul_(1.5)
    if double:
        model.double()
        for module in model.modules():
            if isinstance(module, RotaryEmbedding):
                module.reset_buffers()
    return model.eval()


def slow_decay(model: HyMo) -> HyMo:
    """Make every state remember for thousands of tokens, so that any leak between documents shows."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, GatedDeltaNetBlock):
                if module.delta:
                    module.dt_bias.fill_(-12.0)
                    module.dt_proj.weight.mul_(0.01)
                else:
                    module.A_log.fill_(-12.0)
    return model


def draw_tokens(rows: int, time: int, seed: int = 0, vocab: int = 64) -> Tensor:
    return torch.randint(0, vocab, (rows, time), generator=torch.Generator().manual_seed(seed))


def close(actual: Tensor | None, expected: Any, tolerance: float = 1e-10) -> None:
    assert actual is not None
    torch.testing.assert_close(
        actual.double(), torch.as_tensor(expected).double(), rtol=tolerance, atol=tolerance, check_device=False
    )


@contextmanager
def routing_of(model: HyMo) -> Iterator[list[tuple[int, Tensor]]]:
    """Record (layer, sorted chosen experts (N, k)) of every call of a router."""
    calls: list[tuple[int, Tensor]] = []
    mixtures = model.mixtures()

    def wrap(mixture: Any) -> None:
        original = mixture.route

        def route(tokens: Tensor) -> Any:
            result = original(tokens)
            calls.append((mixture.layer, result[0].detach().sort(-1).values))
            return result

        mixture.route = route

    for mixture in mixtures:
        wrap(mixture)
    try:
        yield calls
    finally:
        for mixture in mixtures:
            del mixture.route


def expected_initial_loss(model: HyMo) -> float:
    """ln V + dim init_std^2 / 2: logits of unit-rms hidden states against rows of N(0, init_std^2) are Gaussian."""
    config = model.config
    return math.log(config.vocab_size) + config.dim * config.init_std**2 / 2
