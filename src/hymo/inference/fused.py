"""A decoding pass of few kernels: what `HyMo.decode_hidden` computes, for rows of a state that stays where it is.

Shapes are fixed: `rows` rows of `width` tokens each, of which `read` says how many count. Nothing waits for the host:
a CUDA graph can hold a pass. The kernels are in `hymo.kernels.triton_step` and beside it.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from hymo.inference.fixed import FixedState
from hymo.kernels import triton_step as step
from hymo.kernels import triton_step_attention as attention
from hymo.kernels import triton_step_experts as experts
from hymo.kernels.dispatch import machine_obstacle
from hymo.kernels.triton_common import padded
from hymo.models import HyMo
from hymo.models.gdn import GatedDeltaNetBlock
from hymo.models.layers import RMSNorm
from hymo.models.mla import MLABlock
from hymo.models.moe import DeepSeekMoE

FEW_COPIES = 4
"""Most tokens each of whose copies has programs of its own in the mixture."""
_SPLITS = 32
"""Most spans of keys that one row's attention is cut into."""
_PROGRAMS = 256
"""Programs of an attention kernel that keep a GPU busy."""

ONE_TOKEN = {"BM": 1, "BN": 4, "BK": 128, "num_warps": 1, "num_stages": 1}
"""Blocks of products with one token: no matrix units, all weights of a program on their way at once."""
FEW_TOKENS = {"BM": 16, "BN": 16, "BK": 128, "num_warps": 2, "num_stages": 5}
"""Blocks of products over up to 16 tokens."""
MORE_TOKENS = {"BN": 32, "BK": 64, "num_warps": 4, "num_stages": 5}
"""Blocks of products over more."""


def obstacle(model: HyMo) -> str:
    """Why these kernels cannot run a model, or an empty string."""
    cfg = model.config
    weight = model.embed.weight
    if why := machine_obstacle(weight.device):
        return why
    if weight.dtype not in (torch.float32, torch.bfloat16):
        return f"the kernels take float32 and bfloat16, not {weight.dtype}"
    plain = {
        "gdn_recurrence gated_linear": cfg.gdn_recurrence == "gated_linear",
        "gdn_gate mean": cfg.gdn_gate == "mean",
        "gdn_rope_target bc or none": cfg.gdn_rope_target != "v",
        "gdn_output_norm off": not cfg.gdn_output_norm,
        "gdn_ffn_dim 0": cfg.gdn_ffn_dim == 0,
        "mla_latent on": cfg.mla_latent,
        "moe_placement attention or none": cfg.moe_placement != "all",
        "at most one shared expert": cfg.n_shared_experts <= 1,
        "states and latents up to 256": max(cfg.gdn_d_state, cfg.gdn_headdim, cfg.kv_lora_rank, cfg.head_dim) <= 256,
    }
    missing = [name for name, fits in plain.items() if not fits]
    return f"the kernels are made for {missing[0]}" if missing else ""


class FusedPass:
    """Buffers and launches of one shape of pass.

    Args:
        model: in evaluation mode; its weights must stay as they are.
        state: the rows; the first `rows` of them take part.
        rows: rows of the pass.
        width: new tokens of a row.
    """

    def __init__(self, model: HyMo, state: FixedState, rows: int, width: int) -> None:
        cfg, weight = model.config, model.embed.weight
        self.model, self.state, self.rows, self.width = model, state, rows, width
        tokens = rows * width
        self._operand = tl.bfloat16 if weight.dtype is torch.bfloat16 else tl.float32
        inner, heads = cfg.gdn_d_inner, cfg.gdn_n_heads

        def buffer(*shape: int, dtype: torch.dtype = weight.dtype) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=weight.device)

        wide, layers = torch.float32, len(cfg.gdn_layers)
        kept = layers if width > 1 else 1
        self.tokens = buffer(rows, width, dtype=torch.int64)
        self.read = buffer(rows, dtype=torch.int32)
        self.keep = buffer(rows, dtype=torch.int32)
        self.hidden = buffer(rows, width, cfg.dim)
        self._x, self._skip = buffer(tokens, cfg.dim), buffer(tokens, cfg.dim)
        self._u, self._v, self._o = buffer(kept, tokens, inner), buffer(kept, tokens, inner), buffer(tokens, inner)
        self._y = buffer(tokens, 2 * heads * cfg.gdn_d_state + inner + heads, dtype=wide)
        self._keys = buffer(kept, tokens, heads * cfg.gdn_d_state, dtype=wide)
        self._gates = buffer(kept, tokens, heads, dtype=wide)
        self._rates = torch.stack([block.shared_log_rates().detach().float().exp() for block in _gdn(model)])
        self._low = buffer(tokens, cfg.q_lora_rank + cfg.kv_lora_rank + cfg.qk_rope_head_dim, dtype=wide)
        self._q = buffer(tokens, cfg.n_heads * cfg.head_dim, dtype=wide)
        self._splits = min(_SPLITS, max(1, _PROGRAMS // (rows * cfg.n_kv_groups)))
        slots = (rows, cfg.n_kv_groups, self._splits, width * (cfg.n_heads // cfg.n_kv_groups))
        self._sums = buffer(*slots, cfg.kv_lora_rank, dtype=wide)
        self._tops, self._shares = buffer(*slots, dtype=wide), buffer(*slots, dtype=wide)
        self._mixed = buffer(tokens, cfg.n_heads * cfg.v_head_dim)
        top = cfg.n_activated_experts
        self._normed = buffer(tokens, cfg.dim)
        self._chosen, self._weights = buffer(tokens, top, dtype=torch.int32), buffer(tokens, top, dtype=wide)
        self._inner = buffer(tokens * (top + 1), cfg.moe_inter_dim)
        self._outer = buffer(tokens * (top + 1), cfg.dim, dtype=wide)

    def run(self) -> None:
        """Read `tokens` and fill `hidden`. With one token a row the state moves on; else `commit` does that."""
        cfg = self.model.config
        self._x.copy_(self.model.embed_tokens(self.tokens).flatten(0, 1))
        gdn = 0
        for index, layer in enumerate(self.model.layers):
            if isinstance(layer, GatedDeltaNetBlock):
                self._recurrence(layer, gdn)
                gdn += 1
            else:
                assert isinstance(layer, MLABlock)
                self._attention(layer, index)
                if layer.feed_forward.moe is not None:
                    self._mixture(layer.feed_forward.moe, layer.feed_forward.norm.weight)
                else:
                    assert layer.feed_forward.dense is not None
                    self._x += layer.feed_forward.dense(layer.feed_forward.norm(self._x))
        self.hidden.copy_(self.model.norm(self._x).view(self.rows, self.width, cfg.dim))
        if self.width == 1:
            self.state.lengths[: self.rows] += self.read

    def commit(self) -> None:
        """Let each row have read the first `keep` of its tokens."""
        cfg, state = self.model.config, self.state
        if self._rates.shape[0]:
            sizes = {"S": cfg.gdn_d_state, "D": cfg.gdn_headdim}
            step.commit[(cfg.gdn_n_heads, self.rows, self._rates.shape[0])](
                self._keys, self._gates, self._u, self._v, self._rates, self.keep, state.states, state.windows,
                self.rows, state.batch_size, cfg.gdn_n_heads, **sizes, BS=_block(cfg.gdn_d_state),
                BD=_block(cfg.gdn_headdim), W=self.width, TAPS=cfg.gdn_d_conv, num_warps=1,
            )  # fmt: skip
        state.lengths[: self.rows] += self.keep

    def _tiles(self, tokens: int, length: int) -> dict[str, int]:
        """Block sizes of a product over `length` numbers for some tokens."""
        if tokens == 1:
            tiles = dict(ONE_TOKEN)
        elif tokens <= 16:
            tiles = dict(FEW_TOKENS)
        else:
            tiles = {**MORE_TOKENS, "BM": min(64, _block(tokens))}
        fits = length & -length  # the largest power of two that divides it: without a rest no load needs a mask
        return {**tiles, "BK": min(tiles["BK"], fits if fits >= 32 else max(16, _block(length)))}

    def _outside(self, x: Tensor, norm: RMSNorm) -> tuple[Tensor, bool]:
        """x normed, where there are so many tokens that products had better not do it themselves; and whether it is.

        Normed within a product, the operand passes through registers on its way to the matrix units.
        """
        return (norm(x), True) if x.shape[0] > 16 else (x, False)

    def _project(
        self,
        x: Tensor,
        norm: Tensor | None,
        weights: list[Tensor],
        out: Tensor,
        before: Tensor | None,
        add: bool = False,
    ) -> None:
        """out = norm(x) [weights]^T; `add`: plus what `out` holds, and plus `before` if there is one."""
        tiles = self._tiles(x.shape[0], weights[0].shape[1])
        counts = [w.shape[0] for w in weights] + [0] * (4 - len(weights))
        blocks = sum(triton.cdiv(n, tiles["BN"]) for n in counts)
        given = [*weights, *[weights[0]] * (4 - len(weights))]
        step.project[(blocks, triton.cdiv(x.shape[0], tiles["BM"]))](
            x, x if norm is None else norm, *given, out, out if before is None else before,
            x.shape[0], x.stride(0), out.stride(0), *counts, K=weights[0].shape[1], EPS=1e-6, NORM=norm is not None,
            ADD=add, BEFORE=before is not None, OPERAND=self._operand, **tiles,
        )  # fmt: skip

    def _recurrence(self, block: GatedDeltaNetBlock, place: int) -> None:
        cfg, state = self.model.config, self.state
        slot = place if self.width > 1 else 0
        u, v = self._u[slot], self._v[slot]
        wide = _block(self.width)
        tiles = self._tiles(self.rows * wide, cfg.dim)
        x, normed = self._outside(self._x, block.norm)
        n = triton.cdiv(cfg.gdn_d_inner, tiles["BN"]) + triton.cdiv(cfg.dim, tiles["BN"])
        step.enter[(n, triton.cdiv(self.rows * wide, tiles["BM"]))](
            x, block.norm.weight, block.in_proj.weight, block.skip_proj.weight, block.conv_weight,
            state.windows[place], u, v, self._skip, self.read, self.rows, DIM=cfg.dim, INNER=cfg.gdn_d_inner,
            TAPS=cfg.gdn_d_conv, TP=_block(cfg.gdn_d_conv - 1), W=self.width, WP=wide,
            EPS=block.norm.eps, NORM=not normed, OPERAND=self._operand, **tiles,
        )  # fmt: skip
        assert block.g_proj is not None
        weights = [block.b_proj.weight, block.c_proj.weight, block.g_proj.weight, block.dt_proj.weight]
        self._project(v, None, weights, self._y, None)
        rope = self.model.rope_gdn
        step.recur[(self.rows * cfg.gdn_n_heads,)](
            self._y, v, self._rates[place], block.dt_bias, block.D_skip, rope.cos, rope.sin, state.lengths, self.read,
            state.states[place], self._o, self._keys[slot], self._gates[slot], rope.positions - 1, cfg.gdn_n_heads,
            S=cfg.gdn_d_state, D=cfg.gdn_headdim, BS=_block(cfg.gdn_d_state), BD=_block(cfg.gdn_headdim),
            W=self.width, ROTATE=block.rotates, SPLIT=cfg.rope_pairing == "half_split", num_warps=1,
        )  # fmt: skip
        self._project(self._o, None, [block.out_proj.weight], self._x, self._skip, add=True)

    def _attention(self, block: MLABlock, index: int) -> None:
        cfg, state, mla = self.model.config, self.state, block.attention
        cache = state.attention[index]
        x, normed = self._outside(self._x, block.norm)
        norm = None if normed else block.norm.weight
        self._project(x, norm, [mla.wq_a.weight, mla.wkv_a.weight], self._low, None)
        self._project(self._low, mla.q_norm.weight, [mla.wq_b.weight], self._q, None)
        rope, tokens = self.model.rope_mla, self.rows * self.width
        groups, rank, width = cfg.n_kv_groups, cfg.kv_lora_rank, cfg.qk_rope_head_dim
        each, room = cfg.n_heads // groups, cache.latent.shape[1]
        split = cfg.rope_pairing == "half_split"
        k_norm = mla.q_norm_qk if mla.k_norm_qk is None else mla.k_norm_qk
        attention.store[(tokens,)](
            self._low, mla.kv_norm.weight, k_norm, rope.cos, rope.sin, state.lengths, self.read, cache.latent,
            cache.rope_keys, rope.positions - 1, room, self._low.stride(0), cfg.q_lora_rank, G=groups, R=rank, P=width,
            BR=padded(rank), BP=padded(width), W=self.width, EPS=mla.kv_norm.eps, SPLIT=split, num_warps=1,
        )  # fmt: skip
        sizes = {"G": groups, "J": each, "C": cfg.qk_nope_head_dim, "V": cfg.v_head_dim, "R": rank, "BR": padded(rank)}
        attention.attend[(self._splits, groups, self.rows)](
            self._q, mla.q_norm_qk, mla.wkv_b.weight, rope.cos, rope.sin, state.lengths, self.read, cache.latent,
            cache.rope_keys, self._sums, self._tops, self._shares, rope.positions - 1, room, mla.scale, **sizes,
            P=width, BP=padded(width), BC=padded(cfg.qk_nope_head_dim), BQ=padded(self.width * each), BT=64,
            W=self.width, SPLITS=self._splits, SPLIT=split, OPERAND=self._operand, num_warps=4, num_stages=2,
        )  # fmt: skip
        values = min(32, padded(cfg.v_head_dim))
        attention.gather[(triton.cdiv(cfg.v_head_dim, values), cfg.n_heads, tokens)](
            self._sums, self._tops, self._shares, mla.wkv_b.weight, self._mixed, **sizes, BV=values,
            BX=triton.next_power_of_2(self._splits), W=self.width, SPLITS=self._splits, num_warps=4,
        )  # fmt: skip
        self._project(self._mixed, None, [mla.wo.weight], self._x, None, add=True)

    def _mixture(self, moe: DeepSeekMoE, norm: Tensor) -> None:
        cfg = self.model.config
        tokens, top, shared = self._x.shape[0], cfg.n_activated_experts, moe.shared
        experts.route[(tokens,)](
            self._x, norm, moe.router, moe.bias, self._normed, self._chosen, self._weights, cfg.route_scale,
            DIM=cfg.dim, E=cfg.n_routed_experts, TOP=top, BE=triton.next_power_of_2(cfg.n_routed_experts),
            BX=_block(cfg.dim), BK=_block(cfg.dim), EPS=1e-6, SOFTMAX=cfg.router_score == "softmax", num_warps=8,
        )  # fmt: skip
        w1, w3, w2 = moe.w1, moe.w3, moe.w2
        s1, s3, s2 = (w1, w3, w2) if shared is None else (shared.w1.weight, shared.w3.weight, shared.w2.weight)
        few = tokens <= FEW_COPIES
        taken = 1 if few else tokens
        second = tokens * (top + 1) if few else cfg.n_routed_experts + (shared is not None)
        sizes = {"DIM": cfg.dim, "HIDDEN": cfg.moe_inter_dim, "E": cfg.n_routed_experts, "TOP": top, "BY_COPY": few}
        sizes["OPERAND"] = self._operand
        tiles = self._tiles(taken, cfg.dim)
        grid = (second, triton.cdiv(taken, tiles["BM"]))
        experts.up[(triton.cdiv(cfg.moe_inter_dim, tiles["BN"]), *grid)](
            self._normed, w1, w3, s1, s3, self._chosen, self._inner, tokens, **sizes, **tiles
        )
        tiles = self._tiles(taken, cfg.moe_inter_dim)
        experts.down[(triton.cdiv(cfg.dim, tiles["BN"]), *grid)](
            self._inner, w2, s2, self._chosen, self._outer, tokens, **sizes, **tiles
        )
        experts.join[(triton.cdiv(tokens * cfg.dim, 256),)](
            self._x, self._outer, self._weights, tokens * cfg.dim, DIM=cfg.dim, TOP=top, SHARED=shared is not None,
            BLOCK=256, num_warps=2,
        )  # fmt: skip


def _gdn(model: HyMo) -> list[GatedDeltaNetBlock]:
    return [layer for layer in model.layers if isinstance(layer, GatedDeltaNetBlock)]


def _block(width: int) -> int:
    return int(triton.next_power_of_2(width))
