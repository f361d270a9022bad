r"""Multi-head latent attention in grouped form, and the block around it.

Symbols: h block input after the norm; n query heads in G groups; d = r + c, rotated and content part of a head::

    q = rope_r(wq_b(q_norm(wq_a(h))) * q_norm_qk)                (B, T, n, d), first r dimensions rotated
    [latent | k_pe] = wkv_a(h)                                   (B, T, kv_lora_rank), (B, T, r)
    [k_nope | v] = wkv_b(kv_norm(latent))                        (B, T, G, c), (B, T, G, v_head_dim)
    k = [rope(k_pe broadcast to G groups * k_norm_qk) | k_nope]  (B, T, G, d)
    o = causal attention(q, k, v), scores * d^-1/2               head i reads group i // (n / G)
    x <- x + wo(o);   x <- x + ffn(norm(x))

A cached token is its normed latent and its G rotated rope keys: 128 + 4 * 32 = 256 numbers in the flagship. Decoding
either expands keys and values from the latents or folds wkv_b into query and output ("absorbed"): equal up to rounding.
Sources: DeepSeek-V2, arXiv 2405.04434, section 2.1; grouped form, arXiv 2605.15250.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hymo.core.config import ModelConfig
from hymo.core.roles import Role
from hymo.kernels import document_attention
from hymo.kernels.attention import aligned_attention, one_call
from hymo.models.context import SequenceContext
from hymo.models.feed_forward import Block, FeedForward
from hymo.models.layers import RMSNorm, linear
from hymo.models.rope import apply_rope
from hymo.models.state import MLACache

_RECORDED_QUERIES = 64
"""Last query rows whose scores the telemetry looks at: enough to see growth, too few to cost time."""

_ABSORBED = 32
"""Most new tokens that the absorbed form reads: it holds the scores of every pair, and for more it is slower too."""


class MultiHeadLatentAttention(nn.Module):
    """Causal attention whose keys and values come from a small latent (or directly, with mla_latent off)."""

    def __init__(self, config: ModelConfig, layer: int, score_scale: float = 1.0) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        self.scale = config.head_dim**-0.5 * score_scale
        groups, rope, content = config.n_kv_groups, config.qk_rope_head_dim, config.qk_nope_head_dim
        self.wq_a = linear(config.dim, config.q_lora_rank)
        self.q_norm = RMSNorm(config.q_lora_rank)
        self.wq_b = linear(config.q_lora_rank, config.n_heads * config.head_dim)
        self.q_norm_qk = nn.Parameter(torch.ones(config.n_heads * config.head_dim))
        self.k_norm_qk = nn.Parameter(torch.ones(groups * rope)) if rope else None
        if config.mla_latent:
            self.wkv_a = linear(config.dim, config.kv_lora_rank + rope)
            self.kv_norm = RMSNorm(config.kv_lora_rank)
            self.wkv_b = linear(config.kv_lora_rank, groups * (content + config.v_head_dim))
        else:
            self.wk = linear(config.dim, groups * config.head_dim)
            self.wv = linear(config.dim, groups * config.v_head_dim)
        self.wo = linear(config.n_heads * config.v_head_dim, config.dim)

    def forward(
        self, h: Tensor, context: SequenceContext, cache: MLACache | None = None, past: Tensor | None = None
    ) -> Tensor:
        """(B, T, dim) -> (B, T, dim); with a cache, `past` (B,) is the number of tokens that it holds per row."""
        q = self._queries(h, context)
        stored, rope_keys = self._stored(h, context)
        if cache is not None:
            assert past is not None
            return self._decode(q, stored, rope_keys, cache, past, context)
        k, v = self._expand(stored, rope_keys)
        self._record_scores(q, k, context)
        if context.cu_seqlens is not None:
            q, k, v = (x.flatten(0, 1)[None] for x in (q, k, v))
        o = document_attention(q, k, v, self.scale, context.attention_seqlens, context.bounds, h.shape[1])
        return self._output(o.reshape(*h.shape[:2], -1))

    def _queries(self, h: Tensor, context: SequenceContext) -> Tensor:
        q = self.wq_b(self.q_norm(self.wq_a(h))) * self.q_norm_qk.to(h.dtype)
        q = q.unflatten(-1, (self.config.n_heads, self.config.head_dim))
        rope, content = q.split((self.config.qk_rope_head_dim, self.config.qk_nope_head_dim), -1)
        return torch.cat((apply_rope(rope, context.rope_mla, self.config.rope_pairing), content), -1)

    def _stored(self, h: Tensor, context: SequenceContext) -> tuple[Tensor, Tensor]:
        """What a cache keeps: the latent (or content keys and values) and the rotated rope keys (B,T,G,r)."""
        cfg = self.config
        rope = cfg.qk_rope_head_dim
        if cfg.mla_latent:
            latent, k_pe = self.wkv_a(h).split((cfg.kv_lora_rank, rope), -1)
            stored = self.kv_norm(latent)
            k_pe = k_pe.unsqueeze(-2).expand(-1, -1, cfg.n_kv_groups, -1)
        else:
            k = self.wk(h).unflatten(-1, (cfg.n_kv_groups, cfg.head_dim))
            k_pe, content = k.split((rope, cfg.qk_nope_head_dim), -1)
            values = self.wv(h).unflatten(-1, (cfg.n_kv_groups, cfg.v_head_dim))
            stored = torch.cat((content, values), -1).flatten(-2)
        if self.k_norm_qk is not None:
            k_pe = k_pe * self.k_norm_qk.to(h.dtype).view(cfg.n_kv_groups, rope)
        return stored, apply_rope(k_pe, context.rope_mla, cfg.rope_pairing)

    def _expand(self, stored: Tensor, rope_keys: Tensor) -> tuple[Tensor, Tensor]:
        """Keys (B,T,G,d) and values (B,T,G,dv) from what is stored."""
        cfg = self.config
        wide = self.wkv_b(stored) if cfg.mla_latent else stored
        content, v = wide.unflatten(-1, (cfg.n_kv_groups, -1)).split((cfg.qk_nope_head_dim, cfg.v_head_dim), -1)
        return torch.cat((rope_keys, content), -1), v

    def _decode(
        self, q: Tensor, stored: Tensor, rope_keys: Tensor, cache: MLACache, past: Tensor, context: SequenceContext
    ) -> Tensor:
        rows, new = q.shape[:2]
        used = context.used
        places = past[:, None] + torch.arange(new, device=q.device)  # (B, new)
        row = torch.arange(rows, device=q.device)[:, None]
        cache.latent[row, places] = stored.to(cache.latent.dtype)
        cache.rope_keys[row, places] = rope_keys.to(cache.rope_keys.dtype)
        latent, keys = cache.latent[:, :used], cache.rope_keys[:, :used]
        if context.aligned and new > _ABSORBED and q.is_cuda:
            k, v = self._expand(latent, keys)
            return self._output(aligned_attention(q, k, v, self.scale).flatten(-2))
        visible = torch.arange(used, device=q.device) <= places[..., None]  # (B, new, used)
        absorb = self.config.mla_latent and new <= min(_ABSORBED, used // 4)
        attend = self._attend_absorbed if absorb else self._attend_expanded
        return self._output(attend(q, latent, keys, visible))

    def _attend_expanded(self, q: Tensor, latent: Tensor, rope_keys: Tensor, visible: Tensor) -> Tensor:
        """Keys and values written out: less arithmetic per query, so it serves prefill."""
        k, v = self._expand(latent, rope_keys)
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        o = F.scaled_dot_product_attention(q, k, v, visible[:, None], scale=self.scale, enable_gqa=True)
        return o.transpose(1, 2).flatten(-2)

    def _attend_absorbed(self, q: Tensor, latent: Tensor, rope_keys: Tensor, visible: Tensor) -> Tensor:
        """Attention over the latents themselves: reads 256 numbers per past token whatever the number of heads."""
        cfg = self.config
        weight = self.wkv_b.weight.to(q.dtype).view(cfg.n_kv_groups, -1, cfg.kv_lora_rank)
        to_content, to_values = weight.split((cfg.qk_nope_head_dim, cfg.v_head_dim), 1)  # (G, ·, rank)
        grouped = q.unflatten(2, (cfg.n_kv_groups, -1))  # (B, new, G, n/G, d)
        rope, content = grouped.split((cfg.qk_rope_head_dim, cfg.qk_nope_head_dim), -1)
        reach = torch.einsum("btghc,gcr->btghr", content, to_content)
        scores = torch.einsum("btghr,bsr->bghts", reach, latent) + torch.einsum("btghd,bsgd->bghts", rope, rope_keys)
        wide = torch.promote_types(q.dtype, torch.float32)
        scores = (scores.to(wide) * self.scale).masked_fill(~visible[:, None, None], -torch.inf)
        weights = torch.softmax(scores, -1).to(q.dtype)
        mixed = torch.einsum("bghts,bsr->btghr", weights, latent)
        return torch.einsum("btghr,gvr->btghv", mixed, to_values).flatten(2)

    def _output(self, o: Tensor) -> Tensor:
        out: Tensor = self.wo(o)
        return out

    def _record_scores(self, q: Tensor, k: Tensor, context: SequenceContext) -> None:
        if context.telemetry is None:
            return
        with torch.no_grad():
            last = q[:1, -_RECORDED_QUERIES:].unflatten(2, (self.config.n_kv_groups, -1))
            scores = torch.einsum("btghd,bsgd->bghts", last.float(), k[:1].float())
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(
                scores.shape[-1] - scores.shape[-2]
            )
            context.record(f"mla/logit_absmax/{self.layer}", (scores.abs() * seen).amax() * self.scale)

    def parameter_blocks(self) -> dict[str, tuple[int, ...]]:
        """Rows of the matrices that are several projections in one: each is orthogonalised on its own.

        A head that is rotated wholly, or not at all, leaves one of them without rows.
        """
        cfg = self.config
        if not cfg.mla_latent:
            return {}
        parts = {
            "wkv_a.weight": (cfg.kv_lora_rank, cfg.qk_rope_head_dim),
            "wkv_b.weight": (cfg.qk_nope_head_dim, cfg.v_head_dim) * cfg.n_kv_groups,
        }
        return {name: tuple(rows for rows in part if rows) for name, part in parts.items()}

    def parameter_roles(self) -> dict[str, Role]:
        """Projections are matrices, the learned scales are scalars."""
        names = ["wq_a", "wq_b", "wo", *(["wkv_a", "wkv_b"] if self.config.mla_latent else ["wk", "wv"])]
        roles = {f"{name}.weight": Role.MATRIX for name in names} | {"q_norm_qk": Role.SCALAR}
        return roles | ({"k_norm_qk": Role.SCALAR} if self.k_norm_qk is not None else {})


class MLABlock(Block):
    """Attention, then the mixture of experts (or a dense SwiGLU, where the placement says so)."""

    feed_forward: FeedForward

    def __init__(self, config: ModelConfig, layer: int, score_scale: float = 1.0) -> None:
        super().__init__()
        self.norm = RMSNorm(config.dim)
        self.attention = MultiHeadLatentAttention(config, layer, score_scale)
        self.feed_forward = FeedForward(config, layer, config.moe_inter_dim)

    def forward(
        self, x: Tensor, context: SequenceContext, cache: MLACache | None = None, past: Tensor | None = None
    ) -> Tensor:
        """(B, T, dim) -> (B, T, dim)."""
        out: Tensor = self.feed_forward(self.attend(x, context, cache, past), context)
        return out

    def attend(
        self, x: Tensor, context: SequenceContext, cache: MLACache | None = None, past: Tensor | None = None
    ) -> Tensor:
        """The block's first half, whose work does not depend on the routing."""
        mixed: Tensor = self.attention(self.norm(x), context, cache, past)
        return x + mixed

    def can_compile(self, x: Tensor, context: SequenceContext) -> bool:
        """Whether `attend` reads no document boundaries on the host, which compiled code must not."""
        cfg, kind = self.attention.config, x.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
        return context.cu_seqlens is None or one_call(x.device, dtype, max(cfg.head_dim, cfg.v_head_dim))

    def forward_recomputing(self, x: Tensor, context: SequenceContext) -> Tensor:
        """As `forward` without a cache, but the feed-forward part is computed again in the backward pass."""
        out: Tensor = checkpoint(self.feed_forward, self.attend(x, context), context, use_reentrant=False)
        return out
