"""How a HyMo model is called in the Hugging Face format: names of tensors, and fields of the configuration.

The names are those of DeepSeek-V3 for attention and experts and of Qwen3-Next for the recurrence where they have one.
A tensor keeps its values; some gain or lose a dimension of one, and the first two expert matrices are stored as one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from hymo.core.config import ModelConfig
from hymo.core.errors import CheckpointError, UsageError
from hymo.data.tokenizer import Tokenizer

ADMITTED: dict[str, Any] = {"rope_pairing": "half_split", "gdn_rope_target": ("bc", "none"), "yarn_factor": 1.0}
"""Values of the model's fields that the exported form has; the rest of the variants it has in full."""
_LATENT = "mla_latent"
MTP_PREFIX = "mtp."
"""Names of the prediction heads, which the exported form stores but does not run."""

_TOP = {
    "embed.weight": "model.embed_tokens.weight",
    "norm.weight": "model.norm.weight",
    "head.weight": "lm_head.weight",
}
_MLP = {"w1.weight": "gate_proj.weight", "w3.weight": "up_proj.weight", "w2.weight": "down_proj.weight"}
_FEED_FORWARD = {
    "feed_forward.norm.weight": "post_attention_layernorm.weight",
    "feed_forward.moe.router": "mlp.gate.weight",
    "feed_forward.moe.bias": "mlp.gate.e_score_correction_bias",
    "feed_forward.moe.load_ema": "mlp.gate.load_ema",
    "feed_forward.moe.w2": "mlp.experts.down_proj",
    **{f"feed_forward.moe.shared.{ours}": f"mlp.shared_experts.{theirs}" for ours, theirs in _MLP.items()},
    **{f"feed_forward.dense.{ours}": f"mlp.{theirs}" for ours, theirs in _MLP.items()},
}
_ATTENTION = {
    "norm.weight": "input_layernorm.weight",
    "attention.wq_a.weight": "self_attn.q_a_proj.weight",
    "attention.q_norm.weight": "self_attn.q_a_layernorm.weight",
    "attention.wq_b.weight": "self_attn.q_b_proj.weight",
    "attention.q_norm_qk": "self_attn.q_scale",
    "attention.wkv_a.weight": "self_attn.kv_a_proj_with_mqa.weight",
    "attention.kv_norm.weight": "self_attn.kv_a_layernorm.weight",
    "attention.wkv_b.weight": "self_attn.kv_b_proj.weight",
    "attention.k_norm_qk": "self_attn.k_scale",
    "attention.wo.weight": "self_attn.o_proj.weight",
    **_FEED_FORWARD,
}
_RECURRENCE = {
    "norm.weight": "input_layernorm.weight",
    "in_proj.weight": "linear_attn.in_proj.weight",
    "conv_weight": "linear_attn.conv1d.weight",
    "b_proj.weight": "linear_attn.k_proj.weight",
    "c_proj.weight": "linear_attn.q_proj.weight",
    "g_proj.weight": "linear_attn.g_proj.weight",
    "dt_proj.weight": "linear_attn.dt_proj.weight",
    "beta_proj.weight": "linear_attn.beta_proj.weight",
    "out_proj.weight": "linear_attn.out_proj.weight",
    "skip_proj.weight": "linear_attn.skip_proj.weight",
    "A_log": "linear_attn.A_log",
    "D_skip": "linear_attn.D_skip",
    "dt_bias": "linear_attn.dt_bias",
    "o_norm.weight": "linear_attn.norm.weight",
    **_FEED_FORWARD,
}
_MTP = {
    "norm.weight": "norm.weight",
    "out_norm.weight": "out_norm.weight",
    **{f"ffn.{ours}": f"mlp.{theirs}" for ours, theirs in _MLP.items()},
}
_CONV, _W1, _W3 = "conv_weight", "feed_forward.moe.w1", "feed_forward.moe.w3"
_GATE_UP = "mlp.experts.gate_up_proj"


def check_exportable(config: ModelConfig) -> None:
    """Refuse a variant that the exported form does not have.

    Raises:
        UsageError: naming the field and what is admitted.
    """
    for name, admitted in {**ADMITTED, _LATENT: True}.items():
        value = getattr(config, name)
        choices = admitted if isinstance(admitted, tuple) else (admitted,)
        if value not in choices:
            known = " or ".join(str(choice) for choice in choices)
            raise UsageError(f"model.{name}: the exported form has {known}, not {value}. Use the model with `hymo`.")


def hf_name(name: str, config: ModelConfig) -> str:
    """The exported name of a tensor; both halves of the stacked gate and up matrices have one name."""
    if name in _TOP:
        return _TOP[name]
    kind, index, rest = _split(name)
    if kind == "mtp.blocks":
        return f"{MTP_PREFIX}{index}.{_MTP[rest]}"
    if rest in (_W1, _W3):
        return f"model.layers.{index}.{_GATE_UP}"
    return f"model.layers.{index}.{(_ATTENTION if index in config.mla_layers else _RECURRENCE)[rest]}"


def to_hf(state: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """The tensors of a model under their exported names. A tied output head is stored once, as the embedding."""
    out: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if name.endswith(_W3):
            continue
        if name.endswith(_W1):
            tensor = torch.cat((tensor, state[name.removesuffix(_W1) + _W3]), 1)
        elif name.endswith(_CONV):
            tensor = tensor[:, None]
        out[hf_name(name, config)] = tensor.detach().contiguous()
    return out


def from_hf(tensors: Mapping[str, Tensor], into: Mapping[str, Tensor], config: ModelConfig, source: str) -> None:
    """Fill the state of a model, in place, from tensors under their exported names.

    Args:
        tensors: what was exported; a tied output head may be among them, and is left aside.
        into: the `state_dict` of a model.
        config: of that model.
        source: what errors name.

    Raises:
        CheckpointError: a tensor is missing, of another shape, or unknown.
    """
    left = set(tensors) - ({_TOP["head.weight"]} if config.tie_embeddings else set())
    for name, target in into.items():
        theirs = hf_name(name, config)
        if theirs not in tensors:
            advice = " Copy the hymo_* files of the export beside it." if theirs.startswith(MTP_PREFIX) else ""
            raise CheckpointError(f"{source}: the tensor {theirs} is missing.{advice}")
        found = tensors[theirs]
        if name.endswith((_W1, _W3)) and found.ndim == 3:
            half = found.shape[1] // 2
            found = found[:, :half] if name.endswith(_W1) else found[:, half:]
        elif name.endswith(_CONV) and found.ndim == 3:
            found = found.squeeze(1)
        if found.shape != target.shape:
            raise CheckpointError(
                f"{source}: the tensor {theirs} is of shape {tuple(found.shape)}, the model's is {tuple(target.shape)}."
            )
        target.copy_(found)
        left.discard(theirs)
    if left:
        raise CheckpointError(
            f"{source}: the tensor {min(left)} is none of this model's. Import only what was exported."
        )


def _split(name: str) -> tuple[str, int, str]:
    match = re.fullmatch(r"(layers|mtp\.blocks)\.(\d+)\.(.+)", name)
    assert match is not None, name
    return match[1], int(match[2]), match[3]


def hf_fields(config: ModelConfig, tokenizer: Tokenizer | None = None) -> dict[str, Any]:
    """The fields of `HymoConfig` for a model, and its special ids if the tokenizer is given."""
    layers = range(config.n_layers)
    still = [i for i in config.gdn_layers if not config.rotates_gdn(i)]
    fields = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.dim,
        "num_hidden_layers": config.n_layers,
        "layer_types": ["full_attention" if i in config.mla_layers else "linear_attention" for i in layers],
        "max_position_embeddings": config.max_seq_len,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
        "num_attention_heads": config.n_heads,
        "num_key_value_heads": config.n_kv_groups,
        "q_lora_rank": config.q_lora_rank,
        "kv_lora_rank": config.kv_lora_rank,
        "qk_rope_head_dim": config.qk_rope_head_dim,
        "qk_nope_head_dim": config.qk_nope_head_dim,
        "v_head_dim": config.v_head_dim,
        "linear_recurrence": config.gdn_recurrence,
        "linear_num_heads": config.gdn_n_heads,
        "linear_key_head_dim": config.gdn_d_state,
        "linear_value_head_dim": config.gdn_headdim,
        "linear_conv_kernel_dim": config.gdn_d_conv,
        "linear_chunk_size": config.gdn_chunk_size,
        "linear_decay_sharing": config.gdn_decay_sharing,
        "linear_output_norm": config.gdn_output_norm,
        "linear_gate": config.gdn_gate,
        "linear_intermediate_size": config.gdn_ffn_dim,
        "linear_no_rope_layers": still,
        "moe_layers": [i for i in layers if config.has_moe(i)],
        "n_routed_experts": config.n_routed_experts,
        "n_shared_experts": config.n_shared_experts,
        "num_experts_per_tok": config.n_activated_experts,
        "moe_intermediate_size": config.moe_inter_dim,
        "scoring_func": config.router_score,
        "routed_scaling_factor": config.route_scale,
        "final_logit_softcapping": config.logit_softcap,
        "rms_norm_eps": 1e-6,
        "initializer_range": config.init_std,
        "mtp_depth": config.mtp_depth,
        "tie_word_embeddings": config.tie_embeddings,
    }
    if tokenizer is not None:
        fields |= {
            "bos_token_id": tokenizer.bos_id,
            "eos_token_id": tokenizer.eos_id,
            "pad_token_id": tokenizer.pad_id,
        }
    return fields
