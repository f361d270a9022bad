"""Families build on every preset, differ in what they test alone, and meet the base's active parameters."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hymo.ablations.families import FAMILIES, family
from hymo.ablations.variants import build, differences, matched
from hymo.core.accounting import count_parameters
from hymo.core.config import HyMoConfig
from hymo.core.errors import ConfigError, UsageError
from hymo.core.load import derive_config, load_config
from hymo.core.quantity import read_count
from hymo.models import build_hymo
from hymo.training.optimizers import build_optimizers
from hymo.training.partition import partition_parameters

PRESETS = ("hymo_tiny", "hymo_demo", "hymo_small", "hymo_750m")


def active(config: HyMoConfig) -> int:
    return count_parameters(config.model).active


@pytest.mark.parametrize("preset", PRESETS)
def test_every_family_builds_within_two_per_cent_of_the_base(preset: str) -> None:
    base = load_config(preset)
    for key, table in FAMILIES.items():
        comparison = build(base, table)
        assert comparison.base.config == base
        assert len(comparison.variants) + len(comparison.same) == len(table.specs) + 1
        for variant in comparison.variants[1:]:
            assert variant.overrides
            assert variant.config.training == base.training
            if key not in "CJ":  # heads are what C compares, and length what J does
                assert active(variant.config) == pytest.approx(active(base), rel=0.02)


@pytest.mark.parametrize("key", [key for key in FAMILIES if key not in ("J", "rates")])  # those vary no model
def test_every_variant_trains(key: str) -> None:
    """Two steps on the same window: every parameter has a gradient and moves with it, and the loss falls."""
    tokens = torch.randint(0, 256, (4, 33), generator=torch.Generator().manual_seed(0))
    for variant in build(load_config("hymo_tiny", ["optimizer.ns_dtype=float32"]), family(key)).variants:
        model = build_hymo(variant.config)
        optimizers = build_optimizers(model, variant.config.optimizer)
        losses = []
        for _ in range(2):
            before = {name: p.detach().clone() for name, p in model.named_parameters()}
            loss = model.loss(tokens)
            loss["loss"].backward()
            assert all(p.grad is not None for p in model.parameters()), variant.name
            moved = [name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()]
            for optimizer in optimizers:
                optimizer.step()
            assert not [n for n in moved if torch.equal(model.get_parameter(n), before[n])], variant.name
            losses.append(loss["main"].item())
            optimizers.zero_grad()
        assert losses[1] < losses[0], variant.name


def test_what_the_flagships_variants_are() -> None:
    base = load_config("hymo_750m")
    found = {v.name: v.overrides for key in "ABDEFI" for v in build(base, family(key)).variants}
    assert found["gated_delta"] == {"model.gdn_recurrence": "gated_delta"}
    assert found["NoPE in some GDN blocks"] == {"model.nope_hybrid_gdn_enabled": True}  # on the layers of the preset
    assert found["full RoPE"] == {"model.rope_ratio": 1.0, "model.qk_rope_head_dim": 128}
    assert found["half of the heads"] == {"model.n_kv_groups": 8}
    assert found["first at 3"] == {"model.mla_layers": [3, 7, 11, 15, 19, 23, 27, 31]}
    assert found["both ends"] == {"model.mla_layers": [0, 4, 9, 13, 18, 22, 27, 31]}
    assert found["7:1"]["model.mla_layers"] == [0, 8, 16, 24]
    # Experts of every block: three a token in 32 blocks instead of 8, a quarter as wide but for norms and routers.
    assert found["every block"]["model.moe_placement"] == "all"
    assert found["every block"]["model.moe_inter_dim"] == pytest.approx(2304 * (24 + 2) / (96 + 2), rel=0.02)
    assert found["dense"]["model.moe_inter_dim"] == pytest.approx(2304 * (24 + 2) / (8 + 2), rel=0.02)


def test_the_recipe_is_what_won_at_the_flagships_size() -> None:
    flagship, recipe = load_config("hymo_750m"), load_config("hymo_next")
    (winners,) = (v.config for v in build(flagship, family("next")).variants if v.name == "winners")
    assert differences(winners, recipe) == {}
    assert recipe.model.nope_gdn_layers == tuple(layer - 1 for layer in recipe.model.mla_layers)


@pytest.mark.parametrize(("ratio", "rows"), [(0.0, (32, 32)), (0.5, (16, 32)), (1.0, (32,))])
def test_no_block_of_keys_and_values_is_empty(ratio: float, rows: tuple[int, ...]) -> None:
    """However much of a head of 32 is rotated: what is not, and the values, stand below each other in wkv_b."""
    config = derive_config(load_config("hymo_tiny"), model={"rope_ratio": ratio})
    blocks = partition_parameters(build_hymo(config, device="meta")).blocks
    assert blocks["layers.0.attention.wkv_b.weight"] == rows * config.model.n_kv_groups
    latent = config.model.kv_lora_rank
    assert blocks["layers.0.attention.wkv_a.weight"] == ((latent, int(32 * ratio)) if ratio else (latent,))


@pytest.mark.parametrize("width", ["moe_inter_dim", "gdn_ffn_dim"])
def test_a_matched_width_is_the_nearest(width: str) -> None:
    config = load_config("hymo_small")
    for target in (25_000_000, 31_000_000, 40_000_000):
        if width == "gdn_ffn_dim" and target < active(config):
            continue
        found = getattr(matched(config, width, target).model, width)
        distance = {n: abs(active(derive_config(config, model={width: n})) - target) for n in range(8, 1600, 8)}
        assert distance[found] == min(distance.values())


def test_recurrence_alone_loses_heads_where_it_is_too_large() -> None:
    base = load_config("hymo_demo")
    (only,) = (v for v in build(base, family("baselines")).variants if v.name == "GDN only")
    assert only.overrides["model.gdn_d_inner"] == 256  # of 288: one head of 32 less
    assert only.config.model.mla_layers == ()


def test_what_equals_the_base_or_another_variant_runs_once() -> None:
    base = load_config("hymo_tiny")
    same = build(base, family("I")).same
    assert same == {"3:1": "base", "7:1": "base", "both ends": "first at 3"}


def test_variants_of_ones_own() -> None:
    base = load_config("hymo_tiny")
    made = build(base, family("custom"), ["fast: optimizer.muon_lr=0.04; model.gdn_gate=full"])
    assert [v.name for v in made.variants] == ["base", "fast"]
    assert made.variants[1].overrides == {"optimizer.muon_lr": 0.04, "model.gdn_gate": "full"}
    with pytest.raises(UsageError, match="no variant differs"):
        build(base, family("custom"))
    with pytest.raises(UsageError, match="taken"):
        build(base, family("C"), ["no heads:model.mtp_depth=1"])


@pytest.mark.parametrize(
    ("own", "message"),
    [
        ("x:model.n_kv_groups=3", r"variant 'x'.*n_kv_groups.*does not divide"),
        ("x:model.n_kv_group=3", r"variant 'x'.*did you mean 'n_kv_groups'"),
        ("x", "expected NAME:group.field=value"),
        ("x:", "expected NAME:group.field=value"),
    ],
)
def test_a_variant_that_the_configuration_refuses(own: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(load_config("hymo_tiny"), family("E"), [own])


def test_a_width_that_cannot_match() -> None:
    with pytest.raises(ConfigError, match="no width brings"):
        matched(load_config("hymo_tiny"), "moe_inter_dim", 1000)


def test_unknown_family() -> None:
    with pytest.raises(UsageError, match="did you mean 'baselines'"):
        family("baseline")
    assert family("e").key == "E"


@given(st.integers(1, 10**13))
def test_counts_written_out(number: int) -> None:
    assert read_count(str(number), "--tokens") == read_count(f"{number:,}", "--tokens") == number
    assert read_count(f"{number}M", "--tokens") == number * 10**6


@pytest.mark.parametrize(
    ("text", "number"),
    [("2M", 2_000_000), ("30e9", 30 * 10**9), ("1.5B", 1_500_000_000), ("100_000", 100_000), ("8k", 8000)],
)
def test_counts_in_short(text: str, number: int) -> None:
    assert read_count(text, "--tokens") == number


@pytest.mark.parametrize("text", ["", "M", "-1", "0", "1.5", "2MM", "1e-3", "nan", "two"])
def test_no_counts(text: str) -> None:
    with pytest.raises(UsageError, match="--tokens"):
        read_count(text, "--tokens")
