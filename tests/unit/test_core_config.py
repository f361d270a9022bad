"""Fields, presets and cross-field checks."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from hymo.core.config import GROUPS, HyMoConfig
from hymo.core.errors import ConfigError
from hymo.core.load import config_hash, derive_config, dump_config, load_config, preset_names

TINY = load_config("hymo_tiny")
CONFIGS = Path(__file__).parents[2] / "configs"
PRESETS = [
    *("hymo_tiny", "hymo_demo", "hymo_small", "hymo_ablation"),
    *("hymo_125m", "hymo_700m", "hymo_750m", "hymo_next", "hymo_900m"),
]


def test_the_presets() -> None:
    assert preset_names() == sorted(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_load_and_round_trip(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    path = tmp_path / "resolved.yaml"
    path.write_text(dump_config(config), encoding="utf-8")
    assert load_config(path) == config
    assert config_hash(load_config(path)) == config_hash(config)


def test_configs_folder_equals_the_packaged_preset() -> None:
    packaged = CONFIGS.parent / "src" / "hymo" / "presets" / "hymo_750m.yaml"
    assert (CONFIGS / "hymo_750m.yaml").read_bytes() == packaged.read_bytes()


def test_a_missing_path_falls_back_to_the_preset_of_its_stem() -> None:
    assert load_config("nowhere/hymo_tiny.yaml") == TINY


# Every variant of the decision table and of the list of variants' fields, with each value that it must accept.
DECISIONS: dict[str, tuple[str, list[Any]]] = {
    "gdn_ffn_dim": ("model", [0, 64]),
    "gdn_recurrence": ("model", ["gated_linear", "gated_delta"]),
    "gdn_rope_target": ("model", ["bc", "v", "none"]),
    "nope_hybrid_gdn_enabled": ("model", [False, True]),
    "nope_gdn_layers": ("model", [[], [3]]),
    "rope_pairing": ("model", ["half_split", "interleaved"]),
    "router_score": ("model", ["sigmoid", "softmax"]),
    "route_scale": ("model", [1.0, 1.41]),
    "moe_bias_update": ("model", ["ema", "sign"]),
    "moe_dead_band": ("model", [0.0, 0.05]),
    "capacity_factor": ("model", [None, 1.5]),
    "balance_loss_alpha": ("model", [0.0, 0.001]),
    "moe_placement": ("model", ["attention", "all", "none"]),
    "mtp_depth": ("model", [0, 1, 2]),
    "mtp_anneal_frac": ("model", [0.0, 0.2]),
    "gdn_decay_init": ("model", ["linear", "log_uniform"]),
    "gdn_decay_sharing": ("model", ["pair", "head"]),
    "gdn_output_norm": ("model", [False, True]),
    "gdn_gate": ("model", ["mean", "full", "none"]),
    "mla_latent": ("model", [True, False]),
    "n_kv_groups": ("model", [1, 2, 4]),
    "yarn_factor": ("model", [1.0, 4.0]),
    "optimizer_partition": ("optimizer", ["hybrid", "adamw", "normuon_all"]),
    "muon_normalize": ("optimizer", [True, False]),
    "muon_scale": ("optimizer", ["frobenius", "rms"]),
    "ns_dtype": ("optimizer", ["bfloat16", "float32"]),
    "ns_coefficients": ("optimizer", ["polar_express", "jordan"]),
    "decay_group_eps": ("optimizer", [1e-12, 1e-8]),
    "adamw_weight_decay": ("optimizer", [0.0, 0.1]),
    "cautious_weight_decay": ("optimizer", [True, False]),
    "decay_shape": ("scheduler", ["linear", "sqrt"]),
    "reduce_dtype": ("training", ["float32", "bfloat16"]),
    "param_dtype": ("training", ["float32", "bfloat16"]),
    "activation_checkpointing": ("training", ["none", "selective", "full"]),
    "gdn_kernel": ("training", ["auto", "recurrent", "chunked", "triton"]),
    "torch_compile_gdn": ("training", [True, False]),
    "cuda_graphs_mla": ("training", [True, False]),
    "moe_mixed_precision": ("training", [True, False]),
    "dp_replicate": ("training", [1, 2]),
    "num_workers": ("training", [0, 2]),
    "max_epochs": ("training", [1, 3]),
    "checkpoint_minutes": ("training", [60.0, None]),
    "spike_rewind": ("training", [False, True]),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_every_decided_variant_is_a_field(name: str) -> None:
    group, values = DECISIONS[name]
    for value in values:
        changed = derive_config(TINY, **{group: {name: value}})
        got = getattr(getattr(changed, group), name)
        assert got == (tuple(value) if isinstance(value, list) else value)


PUBLIC_FIELDS = {
    "model": "vocab_size dim n_layers mla_layers max_seq_len rope_theta rope_ratio n_heads n_kv_groups head_dim "
    "qk_rope_head_dim qk_nope_head_dim v_head_dim q_lora_rank kv_lora_rank gdn_d_inner gdn_d_state gdn_headdim "
    "gdn_d_conv gdn_chunk_size n_routed_experts n_shared_experts n_activated_experts moe_inter_dim moe_ema_alpha "
    "moe_bias_speed mtp_loss_weights logit_softcap tie_embeddings init_std gdn_n_heads",
    "optimizer": "muon_lr muon_momentum muon_weight_decay ns_steps adamw_lr adamw_betas",
    "scheduler": "total_steps total_tokens warmup_frac stable_frac decay_frac min_lr_ratio",
    "training": "micro_batch_size grad_accum_steps seq_len grad_clip grad_norm_warn max_skipped_steps eval_interval "
    "checkpoint_interval keep_last seed",
    "run": "name output_dir",
}


@pytest.mark.parametrize("group", PUBLIC_FIELDS)
def test_public_field_names(group: str) -> None:
    for name in PUBLIC_FIELDS[group].split():
        assert hasattr(getattr(TINY, group), name), name


@pytest.mark.parametrize("group", GROUPS)
def test_every_field_is_documented(group: str) -> None:
    fields = getattr(GROUPS[group], "__pydantic_fields__")  # noqa: B009
    undocumented = [name for name, info in fields.items() if not info.description]
    assert not undocumented


def test_flagship_cadence_and_schedule() -> None:
    config = load_config("hymo_750m")
    training = config.training
    assert (training.eval_interval, training.eval_sequences, training.checkpoint_interval) == (2000, 32, 4000)
    assert (training.grad_clip, training.grad_norm_warn) == (1.0, 10.0)
    assert config.total_steps == 57_220
    assert training.tokens_per_step == 524_288
    assert config.optimizer.muon_lr / config.optimizer.adamw_lr == pytest.approx(66.7, abs=0.05)


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        TINY.model.dim = 1  # type: ignore[misc]


def test_hash_ignores_where_a_run_lives_and_nothing_else() -> None:
    moved = derive_config(TINY, run={"name": "elsewhere", "output_dir": "x"})
    assert config_hash(moved) == config_hash(TINY)
    assert config_hash(derive_config(TINY, training={"seed": 1})) != config_hash(TINY)
    assert config_hash(derive_config(TINY, run={"tokenizer": "t.json"})) != config_hash(TINY)


@pytest.mark.parametrize(
    ("changes", "key", "says"),
    [
        ({"model": {"n_kv_groups": 3}}, "model.n_kv_groups", "3 does not divide n_heads (4)"),
        ({"model": {"gdn_d_inner": 100}}, "model.gdn_d_inner", "not a multiple of gdn_headdim (32)"),
        ({"model": {"gdn_d_state": 31}}, "model.gdn_d_state", "even"),
        ({"model": {"qk_rope_head_dim": 64}}, "model.qk_rope_head_dim", "exceeds head_dim (32)"),
        ({"model": {"qk_rope_head_dim": 7}}, "model.qk_rope_head_dim", "even"),
        ({"model": {"rope_ratio": 0.5, "qk_rope_head_dim": 8}}, "model.rope_ratio", "is not qk_rope_head_dim"),
        ({"model": {"mla_layers": [4]}}, "model.mla_layers", "below n_layers (4)"),
        ({"model": {"mla_layers": [2, 1]}}, "model.mla_layers", "ascending"),
        ({"model": {"nope_gdn_layers": [0]}}, "model.nope_gdn_layers", "MLA block"),
        (
            {"model": {"nope_hybrid_gdn_enabled": True, "nope_gdn_layers": []}},
            "model.nope_hybrid_gdn_enabled",
            "nope_gdn_layers is empty",
        ),
        ({"model": {"n_activated_experts": 9}}, "model.n_activated_experts", "exceeds n_routed_experts (8)"),
        ({"model": {"mtp_loss_weights": [0.3]}}, "model.mtp_loss_weights", "1 weights for mtp_depth 2"),
        ({"model": {"gdn_ffn_dim": 64, "moe_placement": "all"}}, "model.gdn_ffn_dim", "moe_placement"),
        ({"model": {"dim": 98}}, "model.dim", "98 is not divisible by 4"),
        ({"model": {"dim": 0}}, "model.dim", "greater than or equal to 1"),
        ({"model": {"init_std": float("nan")}}, "model.init_std", "finite"),
        ({"scheduler": {"warmup_frac": 0.5}}, "scheduler.stable_frac", "not 1"),
        ({"scheduler": {"total_steps": 5, "total_tokens": 5}}, "scheduler.total_steps", "exactly one"),
        ({"scheduler": {"total_tokens": 5}}, "scheduler.total_tokens", "less than one step of 1024 tokens"),
        ({"training": {"seq_len": 512}}, "training.seq_len", "exceeds model.max_seq_len (256)"),
        ({"training": {"seq_len": 2}}, "training.seq_len", "must exceed model.mtp_depth"),
        ({"run": {"name": "../x"}}, "run.name", "pattern"),
        ({"model": {"dmi": 3}}, "model.dmi", "did you mean 'dim'"),
        ({"model": {"seed": 3}}, "model.seed", "belongs to 'training.seed'"),
        ({"modle": {}}, "modle", "did you mean 'model'"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, dict[str, Any]], key: str, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(key)) as caught:
        derive_config(TINY, **changes)
    assert says in str(caught.value)


def test_derive_recomputes_dependents() -> None:
    flagship = load_config("hymo_750m")
    narrow = derive_config(flagship, model={"dim": 864}).model
    assert (narrow.q_lora_rank, narrow.gdn_d_inner, narrow.kv_lora_rank) == (216, 1248, 128)
    assert derive_config(flagship, model={"dim": 1024}).model.gdn_d_inner == 1472
    assert derive_config(flagship, model={"n_layers": 8}).model.mla_layers == (0, 4)
    assert derive_config(flagship, model={"n_layers": 40}).model.mla_layers == tuple(range(0, 40, 4))
    assert derive_config(flagship, model={"rope_ratio": 0.5}).model.qk_rope_head_dim == 64
    assert derive_config(flagship, model={"qk_rope_head_dim": 128}).model.rope_ratio == 1.0
    assert derive_config(flagship, model={"head_dim": 64}).model.qk_rope_head_dim == 16
    assert derive_config(flagship, model={"mtp_depth": 1}).model.mtp_loss_weights == (0.3,)
    assert derive_config(flagship, model={"mtp_depth": 3}).model.mtp_loss_weights == (0.3, 0.1, 0.1)
    steps = derive_config(flagship, scheduler={"total_steps": 10})
    assert (steps.total_steps, steps.scheduler.total_tokens) == (10, None)


def test_derive_keeps_what_is_named() -> None:
    named = derive_config(load_config("hymo_750m"), model={"dim": 512, "q_lora_rank": 100, "gdn_d_inner": 320}).model
    assert (named.q_lora_rank, named.gdn_d_inner) == (100, 320)


def test_derive_from_itself_changes_nothing() -> None:
    assert derive_config(TINY) == TINY
    assert isinstance(derive_config(TINY, model={"n_layers": TINY.model.n_layers}), HyMoConfig)
