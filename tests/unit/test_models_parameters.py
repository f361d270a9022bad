"""Counts, initial values, sharing, saving, recomputation: what a model owns and how it starts."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from hymo import build_hymo, derive_config, load_config
from hymo.core.accounting import count_parameters
from hymo.core.roles import Role
from hymo.models import HyMo
from hymo.models.gdn import GatedDeltaNetBlock
from hymo.models.moe import DeepSeekMoE
from model_helpers import MICRO, RECURRENCES, build, draw_tokens, micro


def parts_of(model: HyMo) -> dict[str, int]:
    parts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        path = name.split(".")
        if path[0] == "layers":
            if path[2] == "feed_forward":
                layer: Any = model.layers[int(path[1])]
                part = "ffn" if layer.feed_forward.moe is None else "moe"
            else:
                part = "mla" if int(path[1]) in model.config.mla_layers else "gdn"
        else:
            part = {"embed": "embedding", "head": "head", "norm": "norm", "mtp": "mtp"}[path[0]]
        parts[part] = parts.get(part, 0) + parameter.numel()
    return parts


def meta(preset: str, **changes: Any) -> HyMo:
    return build_hymo(derive_config(load_config(preset), model=changes), device="meta")


def active(model: HyMo) -> int:
    """Stored parameters less the routed experts that a token does not pass."""
    unused = 0
    for moe in model.mixtures():
        share = 1 - model.config.n_activated_experts / model.config.n_routed_experts
        unused += round(share * (moe.w1.numel() + moe.w2.numel() + moe.w3.numel()))
    return sum(p.numel() for p in model.parameters()) - unused


def test_the_flagship_part_by_part() -> None:
    model = meta("hymo_750m")
    assert parts_of(model) == {
        "embedding": 57_573_376,
        "gdn": 193_688_448,
        "mla": 22_047_488,
        "moe": 842_390_528,
        "norm": 896,
        "mtp": 12_389_888,
    }
    assert sum(p.numel() for p in model.parameters()) == 1_128_090_624
    assert active(model) == 434_457_600
    block: Any = model.layers[1]
    assert sum(p.numel() for p in block.parameters()) == 8_069_456 + 896
    assert sum(p.numel() for p in model.layers[0].attention.parameters()) == 2_755_040  # type: ignore[union-attr]
    assert sum(p.numel() for p in model.mixtures()[0].parameters()) == 17 * 6_193_152 + 14_336
    assert all(p.is_meta for p in model.parameters())


@pytest.mark.parametrize(
    ("preset", "used", "stored"),
    [
        ("hymo_700m", 415_302_128, 1_084_162_544),
        ("hymo_900m", 530_647_712, 1_323_371_168),
        ("hymo_next", 434_651_392, 1_181_270_272),
    ],
)
def test_its_neighbours(preset: str, used: int, stored: int) -> None:
    model = meta(preset)
    assert (active(model), sum(p.numel() for p in model.parameters())) == (used, stored)


VARIANTS: list[dict[str, Any]] = [
    {},
    {"gdn_recurrence": "gated_delta"},
    {"gdn_rope_target": "v"},
    {"gdn_rope_target": "none"},
    {"gdn_decay_init": "log_uniform"},
    {"gdn_decay_sharing": "head"},
    {"gdn_output_norm": True},
    {"gdn_output_norm": True, "gdn_recurrence": "gated_delta"},
    {"gdn_gate": "full"},
    {"gdn_gate": "none"},
    {"gdn_ffn_dim": 2304},
    {"nope_hybrid_gdn_enabled": True, "nope_gdn_layers": [3, 7, 11, 15, 19, 23, 27]},
    {"rope_pairing": "interleaved"},
    {"yarn_factor": 4.0},
    {"mla_latent": False},
    {"mla_latent": False, "qk_rope_head_dim": 0},
    {"qk_rope_head_dim": 0},
    {"qk_rope_head_dim": 128},
    {"n_kv_groups": 1},
    {"n_kv_groups": 2},
    {"n_kv_groups": 8},
    {"n_kv_groups": 16},
    {"moe_placement": "all"},
    {"moe_placement": "none"},
    {"moe_placement": "none", "gdn_ffn_dim": 1024},
    {"n_routed_experts": 64, "n_activated_experts": 8, "moe_inter_dim": 576},
    {"n_shared_experts": 0},
    {"n_shared_experts": 2},
    {"router_score": "softmax"},
    {"tie_embeddings": False},
    {"mtp_depth": 0},
    {"mtp_depth": 1},
    {"gdn_d_conv": 2},
    {"mla_layers": list(range(32))},
    {"mla_layers": []},
]


@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_every_variant_counts_as_planned(changes: dict[str, Any]) -> None:
    config = derive_config(load_config("hymo_750m"), model=changes)
    model = build_hymo(config, device="meta")
    planned = count_parameters(config.model)
    assert parts_of(model) == planned.parts
    assert active(model) == planned.active


@pytest.mark.parametrize("preset", ["hymo_tiny", "hymo_demo", "hymo_small", "hymo_125m"])
def test_every_preset_counts_as_planned(preset: str) -> None:
    planned = count_parameters(load_config(preset).model)
    model = meta(preset)
    assert parts_of(model) == planned.parts
    assert active(model) == planned.active


def test_the_tied_head_is_one_parameter() -> None:
    model = build()
    shapes = [tuple(p.shape) for p in model.parameters()]
    assert shapes.count((64, 32)) == 1
    assert [k for k, v in model.state_dict().items() if tuple(v.shape) == (64, 32)] == ["embed.weight"]
    assert model.output_weight is model.embed.weight
    untied = build(tie_embeddings=False)
    assert untied.output_weight is untied.head.weight
    assert "head.weight" in untied.state_dict()
    assert not any("embed" in n or "head" in n for n, _ in model.mtp.named_parameters())
    assert len({id(p) for p in model.parameters()}) == len(list(model.named_parameters(remove_duplicate=False)))


def test_every_parameter_has_one_role() -> None:
    for changes in VARIANTS[1:]:
        model = build_hymo(derive_config(load_config("hymo_750m"), model=changes), device="meta")
        named: dict[str, Role] = {}
        for prefix, module in model.named_modules():
            roles = getattr(module, "parameter_roles", dict)()
            for name, role in roles.items():
                full = f"{prefix}.{name}" if prefix else name
                assert full not in named
                named[full] = role
        assert named.keys() == dict(model.named_parameters()).keys()


# Initialisation


def initial(seed: int = 0, **changes: Any) -> HyMo:
    return build(lively=False, seed=seed, **changes)


def test_a_seed_is_a_model() -> None:
    torch.manual_seed(1)
    one = initial().state_dict()
    torch.manual_seed(2)
    torch.randn(7)
    other, third = initial().state_dict(), initial(seed=1).state_dict()
    assert all(torch.equal(one[n], other[n]) for n in one)
    assert not torch.equal(one["embed.weight"], third["embed.weight"])
    before = torch.random.get_rng_state()
    initial()
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("changes", VARIANTS[1:33], ids=str)
def test_variants_share_what_has_one_name_and_shape(changes: dict[str, Any]) -> None:
    small = dict(changes)
    for name, value in {"qk_rope_head_dim": 16, "gdn_ffn_dim": 20, "n_kv_groups": 4, "n_routed_experts": 12}.items():
        if small.get(name):
            small[name] = value
    if "nope_gdn_layers" in small:
        small["nope_gdn_layers"] = [3]
    small.pop("moe_inter_dim", None)
    base, variant = initial().state_dict(), initial(**small).state_dict()
    shared = [n for n in base if n in variant and base[n].shape == variant[n].shape]
    assert len(shared) > 40
    for name in shared:
        decay = name.endswith(("A_log", "dt_bias")) and ("gdn_recurrence" in small or "gdn_decay_init" in small)
        assert decay or torch.equal(base[name], variant[name]), name


def test_a_model_built_in_inference_mode_is_the_same() -> None:
    want = build()
    with torch.inference_mode():
        got = build()
    assert all(p.is_inference() for p in got.parameters())
    assert all(map(torch.equal, got.parameters(), want.parameters()))
    assert all(p.requires_grad and p.grad_fn is None for p in want.parameters())


def test_the_distributions() -> None:
    config = load_config("hymo_demo")
    model = build_hymo(config)
    depth = 1 / math.sqrt(2 * config.model.n_layers)
    for name, p in model.named_parameters():
        x = p.detach()
        if name.endswith(("A_log", "dt_bias")):
            continue
        if x.ndim == 1:
            assert torch.equal(x, torch.ones_like(x)), name
            continue
        if name == "embed.weight":
            expected = 0.01
        elif name.endswith("router"):
            expected = 0.006
        else:
            fan_in = x.shape[-1]
            scaled = name.endswith(("out_proj.weight", "wo.weight", "w2", "w2.weight"))
            bound = (depth if scaled else 1.0) / math.sqrt(fan_in)
            assert float(x.abs().max()) <= bound * (1 + 1e-6), name
            assert float(x.abs().max()) > 0.95 * bound, name
            expected = bound / math.sqrt(3)
        assert abs(float(x.std()) / expected - 1) < 5 / math.sqrt(x.numel()) + 0.01, name
        assert abs(float(x.mean())) < 5 * expected / math.sqrt(x.numel()), name


@pytest.mark.parametrize("heads", [1, 4, 7])
def test_decays_at_initialisation(heads: int) -> None:
    inner = {"gdn_d_inner": 12 * heads}
    expected = [1 + 39 * i / (heads - 1) for i in range(heads)] if heads > 1 else [1.0]
    for block in (m for m in initial(**inner).modules() if isinstance(m, GatedDeltaNetBlock)):
        torch.testing.assert_close(block.A_log.exp(), torch.tensor(expected)[:, None].expand(heads, 8))
        assert not block.dt_bias.any()
    constants = [160.0 ** (i / (heads - 1)) for i in range(heads)] if heads > 1 else [1.0]
    for changes in ({"gdn_decay_init": "log_uniform"}, {"gdn_recurrence": "gated_delta"}):
        for block in (m for m in initial(**inner, **changes).modules() if isinstance(m, GatedDeltaNetBlock)):
            rates = block.A_log.detach().exp().mean(-1)
            if block.delta:
                rate = rates * torch.nn.functional.softplus(block.dt_bias.detach())
            else:
                rate = rates * torch.sigmoid(block.dt_bias.detach())
            torch.testing.assert_close(1 / rate, torch.tensor(constants), rtol=1e-4, atol=1e-4)


def test_buffers_start_neutral() -> None:
    for moe in (m for m in initial().modules() if isinstance(m, DeepSeekMoE)):
        assert not moe.bias.any()
        assert not moe.tokens_per_expert.any()
        torch.testing.assert_close(moe.load_ema, torch.full((6,), 1 / 6))


# Saving and recomputation


@pytest.mark.parametrize("changes", [{}, {"gdn_recurrence": "gated_delta", "tie_embeddings": False}], ids=str)
def test_state_dict_round_trip(changes: dict[str, Any], tmp_path: Any) -> None:
    model = build(**changes)
    for moe in model.mixtures():
        moe.bias.normal_(0, 0.3)
        moe.load_ema.uniform_()
    torch.save(model.state_dict(), tmp_path / "model.pt")
    other = initial(seed=3, **changes)
    missing = other.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    assert not missing.missing_keys
    assert not missing.unexpected_keys
    tokens = draw_tokens(2, 30)
    assert torch.equal(model(tokens), other(tokens))
    saved = model.state_dict()
    assert any(k.endswith("moe.bias") for k in saved)
    assert any(k.endswith("load_ema") for k in saved)
    assert not any("cos" in k or "tokens_per_expert" in k for k in saved)
    half = build(**changes).to(torch.bfloat16)
    half.load_state_dict(saved)
    for a, b in zip(half.mixtures(), model.mixtures(), strict=True):
        assert torch.equal(a.bias, b.bias)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("recurrence", RECURRENCES)
@pytest.mark.parametrize("mode", ["selective", "full"])
def test_recomputation_changes_no_gradient(mode: str, recurrence: str, packed: bool) -> None:
    tokens = draw_tokens(1, 41)
    cu = torch.tensor([0, 11, 12, 41], dtype=torch.int32) if packed else None
    grads = []
    for checkpointing in ("none", mode):
        model = build(gdn_recurrence=recurrence, capacity_factor=1.0, balance_loss_alpha=0.01).train()
        model.checkpointing = checkpointing
        losses = model.loss(tokens, cu_seqlens=cu)
        losses["loss"].backward()
        grads.append([losses["loss"].detach(), *(p.grad for p in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_every_parameter_learns(recurrence: str) -> None:
    model = build(gdn_recurrence=recurrence, router_score="sigmoid").train()
    model.loss(draw_tokens(4, 65))["loss"].backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert torch.isfinite(p.grad).all(), name
        assert p.grad.any(), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("recurrence", RECURRENCES)
def test_other_precisions_run_and_agree(recurrence: str, dtype: torch.dtype) -> None:
    tokens = draw_tokens(2, 50)
    reference = build(double=True, gdn_recurrence=recurrence)
    model = build(double=dtype is torch.float64, gdn_recurrence=recurrence).to(dtype)
    logits = model(tokens)
    assert logits.dtype is torch.promote_types(dtype, torch.float32)
    expected = reference(tokens)
    assert float((logits - expected).norm() / expected.norm()) < (0.1 if dtype is torch.bfloat16 else 1e-12)
    losses = model.loss(tokens)
    losses["loss"].backward()
    assert losses["loss"].dtype is logits.dtype
    state = model.init_state(2)
    assert model.decode(tokens, state).dtype is logits.dtype
    recurrent = [c for c in state.layers if hasattr(c, "state")]
    assert all(c.state.dtype is logits.dtype for c in recurrent)


def test_the_usage_of_the_readme() -> None:
    config = load_config("configs/hymo_tiny.yaml")  # a path, or a preset's name
    model = build_hymo(config)
    tokens = draw_tokens(2, 128, vocab=259)
    logits = model(tokens)
    assert logits.shape == (2, 128, 259)
    assert logits.dtype is torch.float32
    assert float(logits.detach().abs().max()) <= 15
    logits, hidden = model.forward_with_hidden(tokens, start_pos=0)
    assert hidden.shape == (2, 128, 96)
    torch.testing.assert_close(hidden.square().mean(-1), torch.ones(2, 128), rtol=1e-3, atol=1e-3)
    assert {"embed", "layers", "norm", "head", "mtp"} <= dict(model.named_children()).keys()
    block: Any = model.layers[1]
    assert (block.A_log.shape, block.D_skip.shape, block.dt_bias.shape) == ((4, 32), (4,), (4,))
    assert load_config("hymo_tiny").model == config.model


def test_settings_of_the_configuration_reach_the_model() -> None:
    config = derive_config(
        load_config("hymo_tiny"),
        training={"seed": 5, "gdn_kernel": "recurrent", "activation_checkpointing": "selective"},
    )
    model = build_hymo(config)
    assert (model.kernel, model.checkpointing) == ("recurrent", "selective")
    assert torch.equal(model.embed.weight, build_hymo(config.model, seed=5).embed.weight)
    assert not torch.equal(model.embed.weight, build_hymo(config.model).embed.weight)


def test_micro_dimensions_are_all_distinguishable() -> None:
    """The oracle tests rely on it: a transposed or swapped dimension must not fit by accident."""
    cfg = micro().model
    assert cfg.gdn_n_heads == 4
    assert len({cfg.dim, cfg.gdn_d_inner, cfg.gdn_headdim, cfg.gdn_d_state, cfg.moe_inter_dim}) == 5
    assert MICRO["v_head_dim"] != MICRO["head_dim"]
