"""HyMo for transformers, in one file. Needs nothing but torch and transformers: exports carry a copy of this file.

Blocks of two kinds alternate. Linear attention (`HymoLinearAttention`) keeps a matrix per head as its memory; full
attention (`HymoAttention`) keeps a small latent per token. A mixture of experts or a dense feed-forward may follow.

Shapes: B batch, T new tokens, P past tokens, H heads, S key width and D value width of the recurrence, C chunk size.
Padding may be anywhere; the mask (B, P + T) tells, and masked tokens change nothing for the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import GenerationMixin, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .configuration_hymo import HymoConfig

_FLOAT32 = ("A_log", "D_skip", "dt_bias", "mlp.gate.weight", "e_score_correction_bias", "load_ema")
"""Tensors that stay in fp32 when the model does not: bf16 resolves less than one step of what they learned."""
CACHE = "cache" if "cache" in BaseModelOutputWithPast.__dataclass_fields__ else "past_key_values"
"""Name of the cache in outputs, which changed among the versions 5.x of transformers."""


def wide(dtype: torch.dtype) -> torch.dtype:
    """The type to compute sums in: fp32, or fp64 for fp64."""
    return torch.promote_types(dtype, torch.float32)


class HymoCacheLayer:
    """The tensors of one block between two calls, by name, with the batch in front."""

    is_sliding = is_compileable = is_croppable = supports_early_init = False

    def __init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def append(self, **new: Tensor) -> list[Tensor]:
        """Add tokens behind those that are there; returns all of each."""
        for name, value in new.items():
            there = self.tensors.get(name)
            self.tensors[name] = value if there is None else torch.cat((there, value), 1)
        return [self.tensors[name] for name in new]

    def map(self, change: Callable[[Tensor], Tensor]) -> None:
        """Change every tensor."""
        self.tensors = {name: change(value) for name, value in self.tensors.items()}


class HymoCache(Cache):
    """State and convolution window of the linear blocks, latents and rotated keys of the attention blocks."""

    layers: list[HymoCacheLayer]

    def __init__(self, config: HymoConfig) -> None:
        super().__init__(layers=[HymoCacheLayer() for _ in range(config.num_hidden_layers)])
        self.seen = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens read so far, padding included."""
        return self.seen

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """No limit."""
        return -1

    def reset(self) -> None:
        """Forget everything."""
        self.seen = 0
        for layer in self.layers:
            layer.tensors = {}

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Pick rows, as beam search does."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the given rows, in that order."""
        for layer in self.layers:
            layer.map(lambda x: x.index_select(0, indices.to(x.device)))

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every row."""
        for layer in self.layers:
            layer.map(lambda x: x.repeat_interleave(repeats, 0))

    def crop(self, tokens_to_remove: int) -> None:
        """Refused: a recurrent state cannot go back."""
        raise NotImplementedError("HyMo's recurrent states cannot be cropped: generate without assisted decoding.")


class HymoRMSNorm(nn.Module):
    """x / rms(x) * weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., size) -> (..., size)."""
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.eps)


class HymoMLP(nn.Module):
    """down(silu(gate x) * up x)."""

    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(size, hidden, bias=False)
        self.up_proj = nn.Linear(size, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(..., size) -> (..., size)."""
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class HymoTopkRouter(nn.Module):
    """Scores in fp32; a bias moves the choice of experts and nothing else."""

    e_score_correction_bias: Tensor

    def __init__(self, config: HymoConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.empty(config.n_routed_experts, config.hidden_size))
        self.register_buffer("e_score_correction_bias", torch.zeros(config.n_routed_experts))
        self.register_buffer("load_ema", torch.zeros(config.n_routed_experts))  # of training; kept for the way back

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(N, size) -> chosen experts and their weights, both (N, k)."""
        dtype = wide(x.dtype)
        with torch.autocast(x.device.type, enabled=False):
            logits = F.linear(x.to(dtype), self.weight.to(dtype))
        scores = logits.softmax(-1) if self.config.scoring_func == "softmax" else logits.sigmoid()
        biased = scores.detach() + self.e_score_correction_bias
        chosen = biased.topk(self.config.num_experts_per_tok, -1).indices
        selected = scores.gather(-1, chosen)
        return chosen, selected / (selected.sum(-1, keepdim=True) + 1e-20) * self.config.routed_scaling_factor


class HymoExperts(nn.Module):
    """All routed experts as two stacked tensors."""

    def __init__(self, config: HymoConfig) -> None:
        super().__init__()
        experts, size, hidden = config.n_routed_experts, config.hidden_size, config.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * hidden, size))
        self.down_proj = nn.Parameter(torch.empty(experts, size, hidden))

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """(N, size) and the router's choice (N, k) -> (N, size)."""
        gate_up, down = self.gate_up_proj.to(x.dtype), self.down_proj.to(x.dtype)
        out = torch.zeros_like(x)
        for expert in chosen.unique().tolist():
            row, place = (chosen == expert).nonzero(as_tuple=True)
            gate, up = F.linear(x[row], gate_up[expert]).chunk(2, -1)
            y = F.linear(F.silu(gate) * up, down[expert])
            out = out.index_add(0, row, y * weights[row, place, None].to(y.dtype))
        return out


class HymoMoE(nn.Module):
    """Routed experts, and those that every token passes."""

    def __init__(self, config: HymoConfig) -> None:
        super().__init__()
        self.gate = HymoTopkRouter(config)
        self.experts = HymoExperts(config)
        shared = config.n_shared_experts * config.moe_intermediate_size
        self.shared_experts = HymoMLP(config.hidden_size, shared) if shared else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, size) -> (B, T, size)."""
        tokens = x.flatten(0, 1)
        chosen, weights = self.gate(tokens)
        y: Tensor = self.experts(tokens, chosen, weights).view_as(x)
        return y if self.shared_experts is None else y + self.shared_experts(x)


def rotation(positions: Tensor, size: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cos and sin (B, T, 1, size / 2) of positions (B, T), formed in fp64 so that late ones are as exact."""
    device = positions.device
    where = torch.device("cpu") if device.type == "mps" else device
    pairs = torch.arange(0, size, 2, dtype=torch.float64, device=where)
    angles = positions.to(where, torch.float64)[..., None, None] * theta ** (-pairs / max(size, 1))
    return angles.cos().to(device, wide(dtype)), angles.sin().to(device, wide(dtype))


def rotate(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Turn the pairs (i, i + d/2) of x (B, T, heads, d), in fp32."""
    cos, sin = turn
    first, second = x.to(wide(x.dtype)).chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


class Packing(NamedTuple):
    """How a recurrence walks over rows with padding: the real tokens of each row first, in their order."""

    order: Tensor
    """(B, T) places of the tokens, real ones first."""
    back: Tensor
    """(B, T) its inverse."""
    real: Tensor
    """(B, T, 1) which of the ordered tokens are real."""
    lengths: Tensor
    """(B, 1) number of real ones."""

    @classmethod
    def of(cls, real: Tensor) -> Packing:
        """From the mask (B, T) of the real tokens."""
        order = (~real).to(torch.uint8).argsort(dim=-1, stable=True)
        return cls(order, order.argsort(-1), real.gather(1, order)[..., None], real.sum(-1, keepdim=True))


def pick(x: Tensor, places: Tensor) -> Tensor:
    """Rows of x (B, T, width) at places (B, n): (B, n, width)."""
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))


def l2norm(x: Tensor) -> Tensor:
    """x / |x|, finite for zero rows."""
    y = x.to(wide(x.dtype))
    return (y * torch.rsqrt(y.square().sum(-1, keepdim=True) + 1e-6)).to(x.dtype)


def to_chunks(x: Tensor, size: int) -> Tensor:
    """(B, T, H, ...) -> (B, H, chunks, C, ...) in fp32; zeros fill the last chunk, and a zero token changes nothing."""
    missing = -x.shape[1] % size
    x = F.pad(x, (0, 0) * (x.ndim - 2) + (0, missing))
    chunks: Tensor = x.to(wide(x.dtype)).unflatten(1, (-1, size)).movedim(3, 1)
    return chunks


def from_chunks(o: Tensor, like: Tensor) -> Tensor:
    """(B, H, chunks, C, D) -> (B, T, H, D), as `like`."""
    return o.movedim(1, 3).flatten(1, 2)[:, : like.shape[1]].to(like.dtype)


def gated_linear(
    v: Tensor, b: Tensor, c: Tensor, g: Tensor, log_rates: Tensor, state: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """H_t = diag(exp(-exp(log_rates) g_t)) H_{t-1} + b_t v_t^T;  o_t = H_t^T c_t.

    v (B,T,H,D), b and c (B,T,H,S), g (B,T,H), log_rates (H,S), state (B,H,S,D) -> o (B,T,H,D) and the last state.
    Inside a chunk, the pair i > j is formed at the level where both lie in sibling blocks: measured from the border
    between the two, both of its decays are below 1, so that nothing overflows.
    """
    values = v
    v, b, c, g = (to_chunks(x, size) for x in (v, b, c, g))
    rate = -log_rates.to(v.dtype).exp()[:, None, None]  # (H, 1, 1, S)
    G = (g if g.device.type == "mps" else g.double()).cumsum(-1)  # differences of a long sum are what counts
    scores = torch.diag_embed((c * b).sum(-1))
    row = torch.arange(size, device=v.device)
    half = size // 2
    while half:
        block = row // (2 * half)
        right = row % (2 * half) >= half
        pairs = (block[:, None] == block) & right[:, None] & ~right
        distance = (G - G[..., block * 2 * half + half - 1]).abs().to(v.dtype)
        decay = (rate * distance[..., None]).exp()
        scores = scores + (c * decay) @ (b * decay).mT * pairs
        half //= 2
    total = G[..., -1:]
    into = (rate * G.to(v.dtype)[..., None]).exp()
    out_of = (rate * (total - G).to(v.dtype)[..., None]).exp()
    write = (b * out_of).mT @ v
    forget = (rate * total.to(v.dtype)[..., None]).exp().mT
    entering = []
    for chunk in range(v.shape[2]):
        entering.append(state)
        state = forget[:, :, chunk] * state + write[:, :, chunk]
    return from_chunks(scores @ v + (c * into) @ torch.stack(entering, 2), values), state


def gated_delta(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, log_alpha: Tensor, state: Tensor, size: int
) -> tuple[Tensor, Tensor]:
    """S_t = alpha_t (I - beta_t k_t k_t^T) S_{t-1} + beta_t k_t v_t^T;  o_t = S_t^T q_t.

    q and k (B,T,H,S), v (B,T,H,D), beta and log_alpha (B,T,H), state (B,H,S,D) -> o (B,T,H,D) and the last state.
    Inside a chunk, what each token writes follows from the tokens before it by one triangular system.
    """
    given = v
    q, k, v, beta, log_alpha = (to_chunks(x, size) for x in (q, k, v, beta, log_alpha))
    G = log_alpha.cumsum(-1)
    after = F.pad(log_alpha[..., 1:], (0, 1)).flip(-1).cumsum(-1).flip(-1)
    below = torch.ones(size, size, dtype=torch.bool, device=v.device).tril(-1)
    decay = (G[..., :, None] - G[..., None, :]).masked_fill(~below, -torch.inf).exp()
    right = torch.cat((beta[..., None] * v, (beta * G.exp())[..., None] * k), -1)
    solved = torch.linalg.solve_triangular(beta[..., None] * decay * (k @ k.mT), right, upper=False, unitriangular=True)
    values, keys = solved.split((v.shape[-1], k.shape[-1]), -1)
    read = decay * (q @ k.mT) + torch.diag_embed((q * k).sum(-1))
    write = (k * after.exp()[..., None]).mT
    put, erase, keep = write @ values, write @ keys, log_alpha.sum(-1)[..., None, None].exp()
    entering = []
    for chunk in range(v.shape[2]):
        entering.append(state)
        state = keep[:, :, chunk] * state + put[:, :, chunk] - erase[:, :, chunk] @ state
    o = read @ values + (q * G.exp()[..., None] - read @ keys) @ torch.stack(entering, 2)
    return from_chunks(o, given), state


class HymoLinearAttention(nn.Module):
    """A short convolution, a recurrence over a matrix per head, a gate, and a path around both."""

    def __init__(self, config: HymoConfig, layer_idx: int) -> None:
        super().__init__()
        self.config, self.layer_idx = config, layer_idx
        heads, size = config.linear_num_heads, config.hidden_size
        inner, keys = heads * config.linear_value_head_dim, heads * config.linear_key_head_dim
        taps = config.linear_conv_kernel_dim
        self.delta = config.linear_recurrence == "gated_delta"
        self.rotates = layer_idx not in config.linear_no_rope_layers
        self.in_proj = nn.Linear(size, inner, bias=False)
        self.conv1d = nn.Conv1d(inner, inner, taps, groups=inner, bias=False)
        self.k_proj = nn.Linear(inner, keys, bias=False)
        self.q_proj = nn.Linear(inner, keys, bias=False)
        self.dt_proj = nn.Linear(inner, heads, bias=False)
        self.beta_proj = nn.Linear(inner, heads, bias=False) if self.delta else None
        self.g_proj = nn.Linear(inner, inner, bias=False) if config.linear_gate != "none" else None
        self.out_proj = nn.Linear(inner, size, bias=False)
        self.skip_proj = nn.Linear(size, size, bias=False)
        self.A_log = nn.Parameter(torch.zeros(heads, config.linear_key_head_dim))
        self.D_skip = nn.Parameter(torch.ones(heads))
        self.dt_bias = nn.Parameter(torch.zeros(heads))
        normed = self.delta or config.linear_output_norm
        self.norm = HymoRMSNorm(config.linear_value_head_dim, config.rms_norm_eps) if normed else None

    def forward(
        self, h: Tensor, turn: tuple[Tensor, Tensor], packing: Packing | None, cache: HymoCacheLayer | None
    ) -> Tensor:
        """(B, T, size) -> (B, T, size); with padding, `turn` is in the order of `packing`."""
        cfg = self.config
        u = self.in_proj(h)
        if packing is not None:
            u = pick(u, packing.order)
        past = {} if cache is None else cache.tensors
        taps = cfg.linear_conv_kernel_dim - 1
        window = past["window"] if past else u.new_zeros(u.shape[0], taps, u.shape[2])
        u = torch.cat((window, u), 1)
        v = F.silu(self.conv1d(u.mT).mT)
        heads = v.unflatten(-1, (-1, cfg.linear_value_head_dim))
        state = past["state"] if past else self._empty_state(heads)
        o, state = self._recur(heads, v, turn, None if packing is None else packing.real, state)
        if cache is not None:
            last = torch.arange(taps, device=u.device)
            window = u[:, -taps:] if packing is None else pick(u, packing.lengths + last)
            cache.tensors = {"state": state, "window": window}
        o = o if self.norm is None else self.norm(o)
        o = o + self.D_skip.to(o.dtype)[:, None] * heads
        if self.g_proj is not None:
            gate = torch.sigmoid(self.g_proj(v)).unflatten(-1, (-1, cfg.linear_value_head_dim))
            o = o * (gate.mean(-1, keepdim=True) if cfg.linear_gate == "mean" else gate)
        out: Tensor = self.out_proj(o.flatten(-2))
        if packing is not None:
            out = pick(out, packing.back)
        skipped: Tensor = self.skip_proj(h)
        return out + skipped

    def _empty_state(self, heads: Tensor) -> Tensor:
        shape = (heads.shape[0], heads.shape[2], self.config.linear_key_head_dim, heads.shape[3])
        return heads.new_zeros(shape, dtype=wide(heads.dtype))

    def _recur(
        self, heads: Tensor, v: Tensor, turn: tuple[Tensor, Tensor], real: Tensor | None, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Outputs (B, T, H, D) and the last state. Padding neither writes nor forgets."""
        cfg = self.config
        keep = 1.0 if real is None else real.to(state.dtype)
        k = self.k_proj(v).unflatten(-1, (-1, cfg.linear_key_head_dim))
        q = self.q_proj(v).unflatten(-1, (-1, cfg.linear_key_head_dim))
        if self.rotates:
            k, q = rotate(k, turn), rotate(q, turn)
        dt = self.dt_proj(v).to(state.dtype) + self.dt_bias
        size = min(cfg.linear_chunk_size, 1 << (v.shape[1] - 1).bit_length())
        with torch.autocast(v.device.type, enabled=False):
            if self.beta_proj is None:
                k = k if real is None else k.masked_fill(~real[..., None], 0)
                return gated_linear(heads, k, q, torch.sigmoid(dt) * keep, self._log_rates(), state, size)
            log_alpha = -self._log_rates().mean(-1).exp() * F.softplus(dt) * keep
            beta = torch.sigmoid(self.beta_proj(v).to(state.dtype)) * keep
            q, k = l2norm(q) * cfg.linear_key_head_dim**-0.5, l2norm(k)
            return gated_delta(q, k, heads, beta, log_alpha, state, size)

    def _log_rates(self) -> Tensor:
        """(H, S), averaged over the states that must share a decay."""
        if self.config.linear_decay_sharing == "head":
            return self.A_log.mean(-1, keepdim=True).expand_as(self.A_log)
        return self.A_log.unflatten(-1, (2, -1)).mean(-2).repeat(1, 2) if self.rotates else self.A_log


class HymoAttention(nn.Module):
    """Attention over keys and values that are made from one small latent per token; the cache holds the latents."""

    def __init__(self, config: HymoConfig) -> None:
        super().__init__()
        self.config = config
        size, heads, groups = config.hidden_size, config.num_attention_heads, config.num_key_value_heads
        rope, content = config.qk_rope_head_dim, config.qk_nope_head_dim
        self.scale = (rope + content) ** -0.5
        self.q_a_proj = nn.Linear(size, config.q_lora_rank, bias=False)
        self.q_a_layernorm = HymoRMSNorm(config.q_lora_rank, config.rms_norm_eps)
        self.q_b_proj = nn.Linear(config.q_lora_rank, heads * (rope + content), bias=False)
        self.q_scale = nn.Parameter(torch.ones(heads * (rope + content)))
        self.kv_a_proj_with_mqa = nn.Linear(size, config.kv_lora_rank + rope, bias=False)
        self.kv_a_layernorm = HymoRMSNorm(config.kv_lora_rank, config.rms_norm_eps)
        self.kv_b_proj = nn.Linear(config.kv_lora_rank, groups * (content + config.v_head_dim), bias=False)
        self.k_scale = nn.Parameter(torch.ones(groups * rope)) if rope else None
        self.o_proj = nn.Linear(heads * config.v_head_dim, size, bias=False)

    def forward(
        self, h: Tensor, turn: tuple[Tensor, Tensor], visible: Tensor | None, cache: HymoCacheLayer | None
    ) -> Tensor:
        """(B, T, size) -> (B, T, size); `visible` (B, 1, T, P + T), or None for plain causality without a past."""
        cfg = self.config
        rope, content, groups = cfg.qk_rope_head_dim, cfg.qk_nope_head_dim, cfg.num_key_value_heads
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(h))) * self.q_scale.to(h.dtype)
        q_rope, q_content = q.unflatten(-1, (-1, rope + content)).split((rope, content), -1)
        q = torch.cat((rotate(q_rope, turn), q_content), -1)
        latent, k_rope = self.kv_a_proj_with_mqa(h).split((cfg.kv_lora_rank, rope), -1)
        latent = self.kv_a_layernorm(latent)
        k_rope = k_rope.unsqueeze(-2).expand(-1, -1, groups, -1)
        if self.k_scale is not None:
            k_rope = k_rope * self.k_scale.to(h.dtype).view(groups, rope)
        k_rope = rotate(k_rope, turn)
        if cache is not None:
            latent, k_rope = cache.append(latent=latent, rope_keys=k_rope)
        k_content, v = self.kv_b_proj(latent).unflatten(-1, (groups, -1)).split((content, cfg.v_head_dim), -1)
        k = torch.cat((k_rope, k_content), -1)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        o = F.scaled_dot_product_attention(
            q, k, v, visible, is_causal=visible is None, scale=self.scale, enable_gqa=q.shape[1] != k.shape[1]
        )
        out: Tensor = self.o_proj(o.transpose(1, 2).flatten(-2))
        return out


class HymoDecoderLayer(nn.Module):
    """x <- x + mixer(norm(x)), then x <- x + mlp(norm(x)) where the block has one."""

    def __init__(self, config: HymoConfig, layer_idx: int) -> None:
        super().__init__()
        self.linear = config.layer_types[layer_idx] == "linear_attention"
        self.input_layernorm = HymoRMSNorm(config.hidden_size, config.rms_norm_eps)
        if self.linear:
            self.linear_attn = HymoLinearAttention(config, layer_idx)
        else:
            self.self_attn = HymoAttention(config)
        hidden = config.linear_intermediate_size if self.linear else config.moe_intermediate_size
        self.mlp: HymoMoE | HymoMLP | None = None
        if layer_idx in config.moe_layers:
            self.mlp = HymoMoE(config)
        elif hidden:
            self.mlp = HymoMLP(config.hidden_size, hidden)
        if self.mlp is not None:
            self.post_attention_layernorm = HymoRMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, shared: dict[str, Any], cache: HymoCacheLayer | None) -> Tensor:
        """(B, T, size) -> (B, T, size); `shared` is what all blocks know of positions and padding."""
        h = self.input_layernorm(x)
        if self.linear:
            x = x + self.linear_attn(h, shared["turn_linear"], shared["packing"], cache)
        else:
            x = x + self.self_attn(h, shared["turn"], shared["visible"], cache)
        return x if self.mlp is None else x + self.mlp(self.post_attention_layernorm(x))


class HymoPreTrainedModel(PreTrainedModel):
    """What both models share."""

    config_class = HymoConfig
    base_model_prefix = "model"
    _no_split_modules: ClassVar[list[str]] = ["HymoDecoderLayer"]
    _supports_sdpa = True
    _is_stateful = True
    _keep_in_fp32_modules_strict: ClassVar[list[str]] = list(_FLOAT32)  # a list: transformers 5.0 takes nothing else

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False  # generate() leaves it to the model to make a `HymoCache`

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Start values for a model that is not loaded; training from nothing is what the package `hymo` is for."""
        super()._init_weights(module)
        std = self.config.initializer_range
        if isinstance(module, HymoTopkRouter):
            init.normal_(module.weight, std=std)
            init.zeros_(module.e_score_correction_bias)
            init.constant_(module.load_ema, 1 / self.config.n_routed_experts)
        elif isinstance(module, HymoExperts):
            init.normal_(module.gate_up_proj, std=std)
            init.normal_(module.down_proj, std=std)
        elif isinstance(module, HymoLinearAttention):
            init.zeros_(module.A_log)
            init.zeros_(module.dt_bias)
            init.ones_(module.D_skip)
        elif isinstance(module, HymoAttention):
            init.ones_(module.q_scale)
            if module.k_scale is not None:
                init.ones_(module.k_scale)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move or cast the model; `.to(bfloat16)` leaves in fp32 what `_FLOAT32` names."""
        named = [*self.named_parameters(), *self.named_buffers()]
        kept = {id(tensor) for name, tensor in named if name.endswith(_FLOAT32)}

        def guarded(tensor: Tensor) -> Tensor:
            out = fn(tensor)
            narrow = id(tensor) in kept and out.dtype in (torch.bfloat16, torch.float16)
            return tensor.detach().to(out.device) if narrow else out

        return super()._apply(guarded, recurse)


class HymoModel(HymoPreTrainedModel):
    """Embedding, blocks and final norm."""

    def __init__(self, config: HymoConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(HymoDecoderLayer(config, i) for i in range(config.num_hidden_layers))
        self.norm = HymoRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: HymoCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        past_key_values: HymoCache | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPast:
        """Hidden states (B, T, size) after the final norm.

        Args:
            input_ids: (B, T) new tokens.
            attention_mask: (B, P + T), 0 at padding; all real if None.
            position_ids: (B, T); counted over the real tokens if None.
            cache: of the P tokens before; made if `use_cache` asks for one.
            inputs_embeds: (B, T, size) in place of input_ids, before scaling.
            use_cache: whether to return a cache.
            output_hidden_states: whether to return the states between blocks.
            past_key_values: the former name of `cache`.
            **kwargs: ignored; `generate` passes what other models need.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("give either input_ids or inputs_embeds")
        embedded = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        x = embedded * math.sqrt(self.config.hidden_size)
        cache = past_key_values if cache is None else cache
        if cache is None and (self.config.use_cache if use_cache is None else use_cache) and not self.training:
            cache = HymoCache(self.config)
        if cache is not None and not isinstance(cache, HymoCache):
            raise TypeError(f"HyMo needs its own HymoCache, not {type(cache).__name__}: leave `cache` out")
        shared = self._shared(x, attention_mask, position_ids, 0 if cache is None else cache.seen)
        states = []
        for i, layer in enumerate(self.layers):
            states.append(x)
            x = layer(x, shared, None if cache is None else cache.layers[i])
        if cache is not None:
            cache.seen += x.shape[1]
        x = self.norm(x)
        between = (*states, x) if output_hidden_states else None
        return BaseModelOutputWithPast(last_hidden_state=x, hidden_states=between, **{CACHE: cache})

    def _shared(
        self, x: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None, past: int
    ) -> dict[str, Any]:
        """Rotations, padding of the new tokens, and which tokens each new one may attend to."""
        cfg, (rows, new) = self.config, x.shape[:2]
        real = None if attention_mask is None else attention_mask.bool()
        if real is not None and real.shape != (rows, past + new):
            raise ValueError(f"attention_mask: expected {(rows, past + new)} (batch, past + new), got {real.shape}")
        if real is not None and bool(real.all()):
            real = None
        if position_ids is None:
            if real is None:
                position_ids = torch.arange(past, past + new, device=x.device)[None]
            else:
                position_ids = (real.long().cumsum(-1) - 1).clamp_min(0)[:, past:]
        limit = cfg.max_position_embeddings
        if past + new > limit and int(position_ids.max()) >= limit:
            raise ValueError(f"{int(position_ids.max()) + 1} tokens exceed the context of {limit}: shorten the input")
        visible = None
        if past or real is not None:
            places = torch.arange(past + new, device=x.device)
            visible = (places <= places[past:, None])[None, None]
            if real is not None:  # a padding token sees itself: a row without any key would be undefined
                visible = visible & (real[:, None, None] | (places == places[past:, None]))
        theta = cfg.rope_parameters["rope_theta"]
        turn = rotation(position_ids, cfg.qk_rope_head_dim, theta, x.dtype)
        packing = None
        if real is not None and not bool(real[:, past:].all()):
            packing = Packing.of(real[:, past:])
            position_ids = position_ids.expand(rows, new).gather(1, packing.order)
        turn_linear = rotation(position_ids, cfg.linear_key_head_dim, theta, x.dtype)
        return {"turn": turn, "turn_linear": turn_linear, "packing": packing, "visible": visible}


class HymoForCausalLM(HymoPreTrainedModel, GenerationMixin):
    """The language model: logits are softcapped, in fp32."""

    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: HymoConfig) -> None:
        super().__init__(config)
        self.model = HymoModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        cache: HymoCache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        past_key_values: HymoCache | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """Logits (B, T, vocabulary), and the mean loss if `labels` (B, T) are given (-100 where there is none).

        Arguments as in `HymoModel`; `logits_to_keep` asks for the logits of the last so many tokens only.
        """
        outputs = self.model(
            input_ids,
            attention_mask,
            position_ids,
            past_key_values if cache is None else cache,
            inputs_embeds,
            use_cache,
            output_hidden_states,
        )
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        hidden = outputs.last_hidden_state[:, kept]
        logits = self.lm_head(hidden).to(wide(hidden.dtype))
        if cap := self.config.final_logit_softcapping:
            logits = cap * torch.tanh(logits / cap)
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab_size, **kwargs)
        out = CausalLMOutputWithPast(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, **{CACHE: getattr(outputs, CACHE)}
        )
        return out.to_tuple() if return_dict is False else out
