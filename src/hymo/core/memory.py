"""Estimate of what training occupies on one rank, item by item.

Parameters, gradients and optimizer states follow exactly from `hymo.core.accounting`. Activations are an estimate: the
tensors that autograd keeps of each kind of block, counted from the operations in their order, without the allocator's
rounding, temporaries of the backward pass, and the states that recurrences keep for each document (up to a gigabyte).
Compiled GDN mixers are counted as the compiler leaves them; all else keeps a measured share where blocks are compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from hymo.core.accounting import dense_ffn_width, model_tensors
from hymo.core.config import HyMoConfig, ModelConfig, TrainingConfig
from hymo.core.measured import MEASURED
from hymo.core.roles import NORMUON_ROLES

Level = Literal["none", "selective", "full"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""Activation checkpointing, from none to whole blocks."""

LOGIT_CHUNK_ELEMENTS = 1 << 25
"""Logits that the chunked cross-entropy holds at once, in elements (128 MiB in fp32)."""

_FP32 = 4


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes on one rank while training, by item, for one level of activation checkpointing."""

    weights: int
    """Copy in the compute dtype, counted whole when sharded too; 0 when that is fp32, the masters' own."""
    masters: int
    """fp32 parameters that the optimizers update."""
    gradients: int
    """fp32 gradients: a slice, or whole while several passes are added up."""
    normuon: int
    """NorMuon: momentum, and the second moment per output neuron."""
    adamw: int
    """AdamW: two moments."""
    activations: int
    """What autograd keeps for the backward pass, the loss excluded."""
    logits: int
    """Working set of the output heads and their cross-entropy."""

    @property
    def total(self) -> int:
        """Sum of all items."""
        return sum(vars(self).values())


@dataclass(frozen=True)
class OptimizerSizes:
    """Elements that the optimizers keep states for."""

    normuon: int
    """Elements of NorMuon's matrices, each with one momentum."""
    neurons: int
    """Output neurons of these matrices, each with one second moment."""
    adamw: int
    """Elements of AdamW's parameters, each with two moments."""

    @property
    def bytes(self) -> int:
        """fp32 bytes of all states."""
        return self.normuon_bytes + self.adamw_bytes

    @property
    def normuon_bytes(self) -> int:
        """fp32 bytes of NorMuon's states."""
        return _FP32 * (self.normuon + self.neurons)

    @property
    def adamw_bytes(self) -> int:
        """fp32 bytes of AdamW's states."""
        return 2 * _FP32 * self.adamw


def optimizer_sizes(config: HyMoConfig) -> OptimizerSizes:
    """Count what each optimizer updates under the configuration's partition."""
    roles = NORMUON_ROLES[config.optimizer.optimizer_partition]
    tensors = [tensor for _, tensor in model_tensors(config.model)]
    muon = [tensor for tensor in tensors if tensor.role in roles]
    matrices = sum(tensor.numel for tensor in muon)
    neurons = sum(tensor.neurons for tensor in muon) if config.optimizer.muon_normalize else 0
    return OptimizerSizes(matrices, neurons, sum(tensor.numel for tensor in tensors) - matrices)


def training_memory(
    config: HyMoConfig,
    world_size: int = 1,
    micro_batch: int | None = None,
    level: Level | None = None,
    *,
    on_gpu: bool,
    kept: float = MEASURED.kept,
) -> TrainingMemory:
    """Estimate the bytes that one rank occupies.

    Args:
        config: the run.
        world_size: data-parallel ranks; masters, gradients and states are sharded over world_size / dp_replicate. The
            weights of a pass are gathered whole, also from a replica's only slice, and kept until the step ends; the
            gradients of several passes are added up whole, see `keeps_whole_gradients`.
        micro_batch: sequences per forward pass; the configuration's if None.
        level: activation checkpointing; the configuration's if None.
        on_gpu: on a CUDA device, where the recurrence runs as a Triton kernel and blocks may be compiled.
        kept: share that compiled blocks keep, GDN mixers apart, in bf16 with the kernels of a GPU.
    """
    micro_batch = config.training.micro_batch_size if micro_batch is None else micro_batch
    level = config.training.activation_checkpointing if level is None else level
    stored = sum(tensor.numel for _, tensor in model_tensors(config.model))
    shards = max(1, world_size // config.training.dp_replicate)
    sizes = optimizer_sizes(config)
    width = _compute_bytes(config)
    once = config.training.sequences_per_step <= micro_batch * world_size
    whole = keeps_whole_gradients(config.training) and not once
    kernels = config.training.gdn_kernel in ("auto", "triton") and width < _FP32
    compiled = on_gpu and config.training.torch_compile_gdn and kernels
    per_token = activation_bytes(config, level, on_gpu=on_gpu, kept=kept if compiled else None)
    return TrainingMemory(
        weights=stored * width if width < _FP32 or world_size > 1 else 0,
        masters=_shard(_FP32 * stored, shards),
        gradients=_shard(_FP32 * stored, 1 if whole else shards),
        normuon=_shard(sizes.normuon_bytes, shards),
        adamw=_shard(sizes.adamw_bytes, shards),
        activations=round(micro_batch * config.training.seq_len * per_token),
        logits=_logits(config, micro_batch * config.training.seq_len, on_gpu),
    )


def keeps_whole_gradients(config: TrainingConfig) -> bool:
    """Whether ranks add up the gradients of a step's passes before they sum them over ranks, once.

    Not where gathered weights are dropped to save memory, nor where the sum is rounded to less than the masters.
    """
    return not config.reshard_after_forward and config.reduce_dtype == "float32"


def _shard(size: int, shards: int) -> int:
    return -(-size // shards)


def _compute_bytes(config: HyMoConfig) -> int:
    return 2 if config.training.param_dtype == "bfloat16" else _FP32


def activation_bytes(config: HyMoConfig, level: Level, *, on_gpu: bool, kept: float | None = None) -> float:
    """Bytes per token kept for the backward pass: every block's, or block inputs and the largest while recomputed.

    Args:
        config: the run.
        level: activation checkpointing.
        on_gpu: whether `auto` stands for the Triton kernels.
        kept: share that compiled code keeps of all but GDN mixers; None where nothing is compiled. MLA blocks whose
            feed-forward part is recomputed (`selective`) run as written and keep its input.
    """
    model, width, share = config.model, _compute_bytes(config), 1.0 if kept is None else kept
    kernel = "triton" if on_gpu and config.training.gdn_kernel == "auto" else config.training.gdn_kernel
    written = model.mla_layers if level == "selective" else ()
    blocks = []
    for layer in range(model.n_layers):
        own = 1.0 if layer in written else share
        second = model.dim * width if layer in written else share * _second(model, layer, width)
        mla = layer in model.mla_layers
        blocks.append(second + (own * _mla(model, width) if mla else _gdn(model, width, kernel, kept is not None)))
    per_token = model.n_layers * model.dim * width + max(blocks) if level == "full" else sum(blocks)
    per_token += max((_second(model, layer, width) for layer in written), default=0)
    heads = model.mtp_depth * (3 * model.dim * width + _swiglu(model.dim, model.moe_inter_dim, width))
    return per_token + share * (3 * model.dim * width + heads)


def _second(model: ModelConfig, layer: int, width: int) -> int:
    """Bytes per token of a block's feed-forward part: experts, a dense one, or none."""
    size = 0
    if model.has_moe(layer):
        size += 2 * model.dim * width + 3 * _FP32 * model.n_routed_experts + _experts(model, width)
    dense = dense_ffn_width(model, layer)
    if dense:
        size += 2 * model.dim * width + _swiglu(model.dim, dense, width)
    return size


def _swiglu(dim: int, hidden: int, width: int) -> int:
    """Input, gate, its SiLU, up and their product."""
    return width * (dim + 4 * hidden)


def _experts(model: ModelConfig, width: int) -> int:
    """Gathered inputs, the SwiGLU of every expert that a token passes, and its output before the routing weight."""
    passes = model.n_activated_experts + model.n_shared_experts
    return passes * (_swiglu(model.dim, model.moe_inter_dim, width) + model.dim * width)


def _mla(model: ModelConfig, width: int) -> int:
    """Norm, low-rank queries before and after their scales, latent, keys and values of the groups, attention output."""
    queries = model.n_heads * model.head_dim
    keys = model.n_kv_groups * (model.head_dim + model.v_head_dim)
    latent = 2 * (model.kv_lora_rank + model.qk_rope_head_dim) if model.mla_latent else 0
    numbers = 2 * model.dim + 2 * model.q_lora_rank + 3 * queries + latent + 2 * keys + model.n_heads * model.v_head_dim
    return width * numbers + _FP32 * model.n_heads


def _gdn(model: ModelConfig, width: int, kernel: str, compiled: bool) -> int:
    """Norm, taps of the convolution, projections, gates and gated output, and what the recurrence keeps.

    With the Triton kernels: what goes into norm, convolution, projections, recurrence, its norm, output gate and output
    projection, each once. Keys and queries of the delta rule go into their own norm besides, in fp32 unless the
    compiler forms that again.
    """
    inner, heads, keys = model.gdn_d_inner, model.gdn_n_heads, model.gdn_n_heads * model.gdn_d_state
    delta = model.gdn_recurrence == "gated_delta"
    if kernel == "triton":
        norm = delta or model.gdn_output_norm
        numbers = 2 * model.dim + (4 + norm + (model.gdn_rope_target == "v")) * inner + (4 if delta else 2) * keys
        gates = (5 if delta else 1) + norm + (model.gdn_gate == "mean")
        unfused = 0 if compiled or not delta else 2 * keys * (_FP32 - width)
    else:
        numbers = 2 * model.dim + inner * (model.gdn_d_conv + 5) + 2 * keys
        gates, unfused = 4, 0
    if model.gdn_gate != "none":
        numbers += inner
    return width * numbers + gates * _FP32 * heads + unfused + _recurrence(model, kernel)


def _recurrence(model: ModelConfig, kernel: str) -> int:
    """Bytes per token that the recurrence keeps beside its inputs, counted in fp32.

    The Triton kernels keep, in half of that, scores of tiles of 16 tokens (for the delta rule inverses too), and the
    states that enter tiles where these are small. The chunked form is what `auto` runs without a GPU: per token and
    head it keeps copies of its inputs, the chunk's scores and, for gated_linear, a key-sized factor at each of the
    log2(chunk) levels. The time loop keeps every token's state.
    """
    chunk, keys, values = model.gdn_chunk_size, model.gdn_d_state, model.gdn_headdim
    delta = model.gdn_recurrence == "gated_delta"
    if kernel == "recurrent":
        per_head = 2 * keys * values + 3 * keys + values
    elif kernel == "triton":
        per_head = (16 if delta else 8) + (keys * values // 32 if keys * values <= 32 * 32 else 0)
    else:
        states = -(-keys * values // chunk)
        if delta:
            per_head = 5 * chunk + 7 * keys + 5 * values + 2 * states
        else:
            levels = chunk.bit_length() - 1
            per_head = (levels + 4) * keys + chunk + values + states + 1
    return _FP32 * model.gdn_n_heads * per_head


def logit_chunk_elements(elements: int, width: int) -> int:
    """Most logits that the fused cross-entropy holds at once, of `elements` logits of `width` bytes each.

    The memory of the form that is not fused, which holds four copies in fp32, or an eighth of all: every chunk reads
    and writes the gradient of the whole weight.
    """
    return max(4 * _FP32 // width * LOGIT_CHUNK_ELEMENTS, elements // 8)


def _logits(config: HyMoConfig, tokens: int, on_gpu: bool) -> int:
    """Gradients that every head hands to the backward pass, and the logits of the chunk in work."""
    model, width = config.model, _compute_bytes(config)
    heads, elements = 1 + model.mtp_depth, tokens * model.vocab_size
    if elements <= LOGIT_CHUNK_ELEMENTS:
        return heads * 3 * _FP32 * elements
    kept = heads * _FP32 * model.dim * (model.vocab_size + tokens)
    return kept + (width * logit_chunk_elements(elements, width) if on_gpu else 4 * _FP32 * LOGIT_CHUNK_ELEMENTS)
