"""Exact counts: the figures of the design, derivations by hand, and the built model."""

from __future__ import annotations

from typing import Any

import pytest

from hymo.core.accounting import (
    cache_bytes,
    count_parameters,
    flops_per_token,
    model_tensors,
    state_bytes,
    used_per_token,
)
from hymo.core.config import ModelConfig
from hymo.core.load import derive_config, load_config


def variant(base: str = "hymo_750m", **changes: Any) -> ModelConfig:
    return derive_config(load_config(base), model=changes).model


def test_flagship_parts() -> None:
    count = count_parameters(load_config("hymo_750m").model)
    assert count.parts == {
        "embedding": 57_573_376,
        "gdn": 24 * (8_069_456 + 896),
        "mla": 8 * (2_755_040 + 896),
        "moe": 842_390_528,
        "norm": 896,
        "mtp": 12_389_888,
    }
    assert count.stored == 1_128_090_624
    assert count.active == 434_457_600


@pytest.mark.parametrize(
    ("preset", "active", "stored"),
    [
        ("hymo_700m", 415_302_128, 1_084_162_544),
        ("hymo_900m", 530_647_712, 1_323_371_168),
        ("hymo_next", 434_651_392, 1_181_270_272),
    ],
)
def test_sister_presets(preset: str, active: int, stored: int) -> None:
    count = count_parameters(load_config(preset).model)
    assert (count.active, count.stored) == (active, stored)


def test_used_per_token_and_flops() -> None:
    model = load_config("hymo_750m").model
    assert used_per_token(model, training=True) == 549_604_352
    assert used_per_token(model, training=False) == 422_067_712
    # Causal attention: 8 blocks, 16 heads, 128 + 128 wide, half of 4,096 keys, 2 FLOPs, three passes.
    attention = 8 * 16 * 256 * 2048 * 2 * 3
    assert flops_per_token(model, 4096) == 6 * 549_604_352 + attention
    assert round(flops_per_token(model, 4096) / 1e9, 2) == 3.70
    assert round(flops_per_token(model, 4096, mtp=False) / 1e9, 2) == 2.94


def test_untied_head_adds_a_matrix_but_no_work() -> None:
    tied, untied = variant(), variant(tie_embeddings=False)
    matrix = 64_256 * 896
    assert count_parameters(untied).stored == count_parameters(tied).stored + matrix
    assert count_parameters(untied).parts["head"] == matrix
    assert used_per_token(untied, training=True) == used_per_token(tied, training=True)


def test_cache_and_state_of_the_flagship() -> None:
    model = load_config("hymo_750m").model
    assert cache_bytes(model, 32_768) == 134_217_728
    assert cache_bytes(model, 1, bytes_per_element=1) == 8 * 256
    assert state_bytes(model) == 24 * (40 * 32 * 32 * 4 + 1280 * 3 * 2)


def test_cache_without_latent_holds_keys_and_values() -> None:
    # 4 groups of 128 keys and 128 values in 8 blocks, 2 bytes each.
    assert cache_bytes(variant(mla_latent=False), 10) == 10 * 8 * 4 * 256 * 2


# Differences per block against the flagship, derived by hand from the variants' definitions.
GDN = 24
MLA = 8
VARIANTS: list[tuple[dict[str, Any], int]] = [
    ({"gdn_recurrence": "gated_delta"}, GDN * (1280 * 40 + 32)),
    ({"gdn_recurrence": "gated_delta", "gdn_output_norm": True}, GDN * (1280 * 40 + 32)),
    ({"gdn_output_norm": True}, GDN * 32),
    ({"gdn_gate": "none"}, -GDN * 1280 * 1280),
    ({"gdn_gate": "full"}, 0),
    ({"gdn_decay_sharing": "head"}, 0),
    ({"gdn_ffn_dim": 512}, GDN * (896 + 3 * 896 * 512)),
    ({"moe_placement": "none"}, MLA * (6_193_152 - 17 * 6_193_152 - 14_336)),
    ({"moe_placement": "all"}, GDN * (17 * 6_193_152 + 14_336 + 896)),
    ({"n_shared_experts": 0}, -MLA * 6_193_152),
    ({"mtp_depth": 0}, -12_389_888),
    ({"qk_rope_head_dim": 0}, MLA * (-32 * 896 - 4 * 32 + 4 * 32 * 128)),
    ({"qk_rope_head_dim": 128}, MLA * (96 * 896 + 4 * 96 - 4 * 96 * 128)),
    # Without the latent: keys and values straight from the input, no latent projections and norm.
    ({"mla_latent": False}, MLA * (2 * 512 * 896 - 160 * 896 - 128 - 128 * 896)),
    ({"n_kv_groups": 1}, -MLA * 3 * (32 + 128 * (96 + 128))),
    ({"n_kv_groups": 16}, MLA * 12 * (32 + 128 * (96 + 128))),
]


@pytest.mark.parametrize(("changes", "difference"), VARIANTS, ids=lambda v: str(v) if isinstance(v, dict) else "")
def test_variants_by_hand(changes: dict[str, Any], difference: int) -> None:
    assert count_parameters(variant(**changes)).stored - 1_128_090_624 == difference


def test_active_counts_only_the_selected_experts() -> None:
    one_expert = 3 * 896 * 2304
    count, more = (count_parameters(variant(n_activated_experts=k)) for k in (2, 5))
    assert more.active - count.active == 8 * 3 * one_expert
    assert more.stored == count.stored


@pytest.mark.parametrize("changes", [v for v, _ in VARIANTS] + [{}, {"tie_embeddings": False}], ids=str)
def test_counts_and_roles_equal_the_built_model(changes: dict[str, Any]) -> None:
    from hymo.models import build_hymo
    from hymo.training.partition import partition_parameters

    small = {**changes}
    for name, value in (("gdn_ffn_dim", 48), ("qk_rope_head_dim", 16)):
        if small.get(name):
            small[name] = value
    if small.get("n_kv_groups"):
        small["n_kv_groups"] = min(small["n_kv_groups"], 4)
    config = derive_config(load_config("hymo_tiny"), model=small)
    model = build_hymo(config)
    assert count_parameters(config.model).stored == sum(p.numel() for p in model.parameters())

    by_role: dict[str, int] = {}
    for _, tensor in model_tensors(config.model):
        by_role[tensor.role] = by_role.get(tensor.role, 0) + tensor.numel
    partition = partition_parameters(model)
    built: dict[str, int] = {}
    for group in (partition.normuon, partition.adamw):
        for name, parameter in group.items():
            role = partition.roles[name]
            built[role] = built.get(role, 0) + parameter.numel()
    assert by_role == built
