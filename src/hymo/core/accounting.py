"""Exact counts: parameters, FLOPs per token, cache and state of decoding. The only home of these formulas.

The `*_tensors` functions list every parameter of a model once, with shape and role; all counts are sums over these
lists. What a run occupies on a device is an estimate and lives in `hymo.core.memory`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from hymo.core.config import ModelConfig
from hymo.core.roles import Role

Part = Literal["embedding", "head", "gdn", "mla", "moe", "ffn", "norm", "mtp"]


@dataclass(frozen=True)
class TensorSpec:
    """One parameter: its name inside its module, its shape in PyTorch's (out, in) order, and its role."""

    name: str
    shape: tuple[int, ...]
    role: Role

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def neurons(self) -> int:
        """Output neurons (rows), over all stacked matrices."""
        return math.prod(self.shape[:-1])


@dataclass(frozen=True)
class ParameterCount:
    """Parameters of a model.

    `stored` counts every parameter once, `active` those that one token uses (the selected ones of the routed experts),
    `parts` splits `stored`: embedding, head (untied only), gdn, mla, moe, ffn (dense variants only), norm and mtp. Each
    part includes the norm in front of it.
    """

    stored: int
    active: int
    parts: dict[str, int]


def gdn_tensors(model: ModelConfig) -> list[TensorSpec]:
    """Parameters of one GDN block with its norm."""
    inner, heads, state = model.gdn_d_inner, model.gdn_n_heads, model.gdn_d_state
    delta = model.gdn_recurrence == "gated_delta"
    tensors = [
        TensorSpec("norm", (model.dim,), Role.SCALAR),
        TensorSpec("in_proj", (inner, model.dim), Role.MATRIX),
        TensorSpec("conv", (inner, model.gdn_d_conv), Role.SCALAR),
        TensorSpec("b_proj", (heads * state, inner), Role.MATRIX),
        TensorSpec("c_proj", (heads * state, inner), Role.MATRIX),
        TensorSpec("dt_proj", (heads, inner), Role.SCALAR),
        TensorSpec("A_log", (heads, state), Role.DECAY),
        TensorSpec("dt_bias", (heads,), Role.DECAY),
        TensorSpec("D_skip", (heads,), Role.SCALAR),
        TensorSpec("out_proj", (model.dim, inner), Role.MATRIX),
        TensorSpec("skip_proj", (model.dim, model.dim), Role.MATRIX),
    ]
    if model.gdn_gate != "none":
        tensors.append(TensorSpec("g_proj", (inner, inner), Role.MATRIX))
    if delta:
        tensors.append(TensorSpec("beta_proj", (heads, inner), Role.SCALAR))
    if delta or model.gdn_output_norm:
        tensors.append(TensorSpec("o_norm", (model.gdn_headdim,), Role.SCALAR))
    return tensors


def mla_tensors(model: ModelConfig) -> list[TensorSpec]:
    """Parameters of one MLA block's attention with its norm; of plain grouped-query attention without the latent."""
    queries = model.n_heads * model.head_dim
    groups, rope = model.n_kv_groups, model.qk_rope_head_dim
    tensors = [
        TensorSpec("norm", (model.dim,), Role.SCALAR),
        TensorSpec("wq_a", (model.q_lora_rank, model.dim), Role.MATRIX),
        TensorSpec("q_norm", (model.q_lora_rank,), Role.SCALAR),
        TensorSpec("wq_b", (queries, model.q_lora_rank), Role.MATRIX),
        TensorSpec("q_norm_qk", (queries,), Role.SCALAR),
        TensorSpec("wo", (model.dim, model.n_heads * model.v_head_dim), Role.MATRIX),
    ]
    if rope:
        tensors.append(TensorSpec("k_norm_qk", (groups * rope,), Role.SCALAR))
    if model.mla_latent:
        content = groups * (model.qk_nope_head_dim + model.v_head_dim)
        tensors += [
            TensorSpec("wkv_a", (model.kv_lora_rank + rope, model.dim), Role.MATRIX),
            TensorSpec("kv_norm", (model.kv_lora_rank,), Role.SCALAR),
            TensorSpec("wkv_b", (content, model.kv_lora_rank), Role.MATRIX),
        ]
    else:
        tensors += [
            TensorSpec("wk", (groups * model.head_dim, model.dim), Role.MATRIX),
            TensorSpec("wv", (groups * model.v_head_dim, model.dim), Role.MATRIX),
        ]
    return tensors


def swiglu_tensors(dim: int, hidden: int, role: Role, stack: tuple[int, ...] = ()) -> list[TensorSpec]:
    """The three matrices of a SwiGLU, w2(silu(w1 x) * w3 x), or of a stack of them."""
    return [
        TensorSpec("w1", (*stack, hidden, dim), role),
        TensorSpec("w3", (*stack, hidden, dim), role),
        TensorSpec("w2", (*stack, dim, hidden), role),
    ]


def ffn_tensors(model: ModelConfig, hidden: int) -> list[TensorSpec]:
    """Parameters of a dense SwiGLU with its norm: the variants in place of, or beside, a mixture."""
    return [TensorSpec("norm", (model.dim,), Role.SCALAR), *swiglu_tensors(model.dim, hidden, Role.MATRIX)]


def moe_tensors(model: ModelConfig, routed: int | None = None) -> list[TensorSpec]:
    """Parameters of one mixture of experts with its norm; `routed` counts fewer experts than stored (those in use)."""
    routed = model.n_routed_experts if routed is None else routed
    tensors = [
        TensorSpec("norm", (model.dim,), Role.SCALAR),
        TensorSpec("router", (model.n_routed_experts, model.dim), Role.ROUTER),
        *swiglu_tensors(model.dim, model.moe_inter_dim, Role.EXPERT, (routed,)),
    ]
    if model.n_shared_experts:
        tensors += swiglu_tensors(model.dim, model.moe_inter_dim, Role.EXPERT, (model.n_shared_experts,))
    return tensors


def mtp_tensors(model: ModelConfig) -> list[TensorSpec]:
    """Parameters of one multi-token-prediction head: a SwiGLU, the norm before it, the norm before the output head."""
    norms = [TensorSpec(name, (model.dim,), Role.SCALAR) for name in ("norm", "out_norm")]
    return [*norms, *swiglu_tensors(model.dim, model.moe_inter_dim, Role.MATRIX)]


def model_tensors(model: ModelConfig, *, active: bool = False) -> Iterator[tuple[Part, TensorSpec]]:
    """Yield every parameter of the model with its part; with `active`, only the routed experts that a token uses."""
    vocabulary = (model.vocab_size, model.dim)
    routed = model.n_activated_experts if active else model.n_routed_experts
    yield "embedding", TensorSpec("weight", vocabulary, Role.EMBEDDING)
    if not model.tie_embeddings:
        yield "head", TensorSpec("weight", vocabulary, Role.EMBEDDING)
    for layer in range(model.n_layers):
        is_mla = layer in model.mla_layers
        mixer: Part = "mla" if is_mla else "gdn"
        for tensor in mla_tensors(model) if is_mla else gdn_tensors(model):
            yield mixer, tensor
        dense = dense_ffn_width(model, layer)
        if model.has_moe(layer):
            for tensor in moe_tensors(model, routed):
                yield "moe", tensor
        if dense:
            for tensor in ffn_tensors(model, dense):
                yield "ffn", tensor
    yield "norm", TensorSpec("weight", (model.dim,), Role.SCALAR)
    for _ in range(model.mtp_depth):
        for tensor in mtp_tensors(model):
            yield "mtp", tensor


def dense_ffn_width(model: ModelConfig, layer: int) -> int:
    """Hidden width of block `layer`'s dense SwiGLU; 0 where it has none."""
    if layer in model.mla_layers:
        return model.moe_inter_dim if model.moe_placement == "none" else 0
    return model.gdn_ffn_dim


def count_parameters(model: ModelConfig) -> ParameterCount:
    """Count the parameters of a model: stored, active per token, and by part."""
    parts: dict[str, int] = {}
    for part, tensor in model_tensors(model):
        parts[part] = parts.get(part, 0) + tensor.numel
    active = sum(tensor.numel for _, tensor in model_tensors(model, active=True))
    return ParameterCount(stored=sum(parts.values()), active=active, parts=parts)


def used_per_token(model: ModelConfig, training: bool) -> int:
    """Parameters that a token is multiplied with, N_used, each as often as the token passes it.

    The output head serves the main prediction and, in training, each depth of multi-token prediction; a look-up in the
    embedding multiplies nothing. Without `training` the prediction heads are left out.
    """
    count = count_parameters(model)
    head = model.vocab_size * model.dim
    used = count.active if model.tie_embeddings else count.active - head
    return used + model.mtp_depth * head if training else used - count.parts.get("mtp", 0)


def attention_flops(model: ModelConfig, seq_len: int) -> int:
    """FLOPs per token of QKᵀ and of the weighted sum of values in all MLA blocks, forward, causal mean over seq_len."""
    per_key = 2 * model.n_heads * (model.head_dim + model.v_head_dim)
    return len(model.mla_layers) * per_key * seq_len // 2


def flops_per_token(model: ModelConfig, seq_len: int, mtp: bool = True) -> int:
    """FLOPs per trained token, forward and backward: 6·N_used plus three times the causal attention term.

    The recurrence of the GDN blocks is left out (below 1 % of the flagship, more of a narrow model), recomputation and
    the optimizer too: the figure is the one that model FLOPs utilisation (MFU) is defined with.
    """
    return 6 * used_per_token(model, training=mtp) + 3 * attention_flops(model, seq_len)


def cache_numbers(model: ModelConfig) -> int:
    """Cached numbers per token and MLA block: latent and rotated keys; without the latent, keys and values."""
    if model.mla_latent:
        return model.kv_lora_rank + model.n_kv_groups * model.qk_rope_head_dim
    return model.n_kv_groups * (model.head_dim + model.v_head_dim)


def cache_bytes(model: ModelConfig, context: int, bytes_per_element: int = 2) -> int:
    """Bytes of the attention cache of one sequence of `context` tokens (bf16 unless told otherwise)."""
    return len(model.mla_layers) * cache_numbers(model) * context * bytes_per_element


def state_bytes(model: ModelConfig, bytes_per_element: int = 2) -> int:
    """Bytes of one sequence's GDN state, whatever its length: S x D per head in fp32, and the convolution's window."""
    recurrent = 4 * model.gdn_n_heads * model.gdn_d_state * model.gdn_headdim
    window = bytes_per_element * model.gdn_d_inner * (model.gdn_d_conv - 1)
    return len(model.gdn_layers) * (recurrent + window)
