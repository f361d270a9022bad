r"""The Gated Delta Net block: a short convolution, a matrix-valued recurrence, an output gate and a skip path.

Symbols: h block input after the norm; H heads of d_state S and headdim D; * elementwise::

    u = in_proj(h)                       v = silu(causal depthwise conv(u))
    b = rope(b_proj(v))                  c = rope(c_proj(v))                     (B, T, H, S)
    g = sigmoid(dt_proj(v) + dt_bias)    z = mean over D of sigmoid(g_proj(v))   (B, T, H)
    H_t = diag(exp(-exp(A_log) g_t)) H_{t-1} + b_t v_t^T                         fp32, S x D per head
    o_t = H_t^T c_t
    x <- x + out_proj((o + D_skip v) z) + skip_proj(h)                           and no feed-forward, but in variants

Variant `gated_delta`: k = l2norm(b), q = l2norm(c) S^-1/2, beta = sigmoid(beta_proj(v)),
alpha = exp(-exp(A_log_h) softplus(dt_proj(v) + dt_bias)), the recurrence of `hymo.kernels.gated_delta`, then a per-head
RMSNorm before the gate. Decay and rotation commute only if a rotated pair of states shares its decay;
`shared_log_rates` sees to that.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hymo.core.config import ModelConfig
from hymo.core.roles import Role
from hymo.kernels import gated_delta, gated_linear, output_gate, short_conv
from hymo.kernels.dispatch import choose
from hymo.models.context import SequenceContext
from hymo.models.feed_forward import Block, FeedForward
from hymo.models.layers import Float32Islands, RMSNorm, linear
from hymo.models.projections import project
from hymo.models.rope import Rotation, apply_rope
from hymo.models.state import GDNCache

Rule = Callable[..., tuple[Tensor, Tensor | None]]
"""A recurrence of `hymo.kernels`."""


class GatedDeltaNetBlock(Block, Float32Islands):
    """One residual block whose memory is a matrix per head."""

    fp32_names = frozenset({"A_log", "D_skip", "dt_bias"})

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        dim, inner, heads = config.dim, config.gdn_d_inner, config.gdn_n_heads
        keys = heads * config.gdn_d_state
        self.delta = config.gdn_recurrence == "gated_delta"
        self.rotates = config.rotates_gdn(layer)
        self.norm = RMSNorm(dim)
        self.in_proj = linear(dim, inner)
        self.conv_weight = nn.Parameter(torch.empty(inner, config.gdn_d_conv))
        self.b_proj = linear(inner, keys)
        self.c_proj = linear(inner, keys)
        self.g_proj = linear(inner, inner) if config.gdn_gate != "none" else None
        self.dt_proj = linear(inner, heads)
        self.beta_proj = linear(inner, heads) if self.delta else None
        self.out_proj = linear(inner, dim)
        self.skip_proj = linear(dim, dim)
        self.A_log = nn.Parameter(torch.empty(heads, config.gdn_d_state))
        self.D_skip = nn.Parameter(torch.ones(heads))
        self.dt_bias = nn.Parameter(torch.zeros(heads))
        self.o_norm = RMSNorm(config.gdn_headdim) if self.delta or config.gdn_output_norm else None
        second = config.has_moe(layer) or config.gdn_ffn_dim > 0
        self.feed_forward = FeedForward(config, layer, config.gdn_ffn_dim) if second else None

    @torch.no_grad()
    def reset_decay(self) -> None:
        """Set A_log and dt_bias: time constants of the heads at initialisation, equal over the states of a head.

        gated_linear, linear: A equally spaced in 1..40. gated_linear, log_uniform: time constants (in tokens, at the
        initial gate of 1/2) log-uniform from 1 to the context. gated_delta: the same time constants through dt_bias,
        with A = 1.
        """
        heads = self.config.gdn_n_heads
        constants = torch.logspace(0, math.log10(self.config.max_seq_len), heads, dtype=torch.float64)
        self.dt_bias.zero_()
        if self.delta:
            self.A_log.zero_()
            self.dt_bias.copy_(torch.log(torch.expm1(1 / constants)))
        elif self.config.gdn_decay_init == "log_uniform":
            self.A_log.copy_((2 / constants).log()[:, None].expand_as(self.A_log))
        else:
            self.A_log.copy_(torch.linspace(1, 40, heads, dtype=torch.float64).log()[:, None].expand_as(self.A_log))

    def forward(self, x: Tensor, context: SequenceContext, cache: GDNCache | None = None) -> Tensor:
        """(B, T, dim) -> (B, T, dim); with a cache, continue from it and advance it."""
        x = self.attend(x, context, cache)
        return x if self.feed_forward is None else self.feed_forward(x, context)

    def attend(self, x: Tensor, context: SequenceContext, cache: GDNCache | None = None) -> Tensor:
        """The block without its feed-forward part."""
        h = self.norm(x)
        o = self._mix(self.in_proj(h), context, cache)
        out: Tensor = x + self.out_proj(o) + self.skip_proj(h)
        return out

    def can_compile(self, x: Tensor, context: SequenceContext) -> bool:
        """Whether `attend` runs a kernel: the other forms loop on the host, over tokens or chunks."""
        rows, length = x.shape[:2] if context.cu_seqlens is None else (1, x.shape[0] * x.shape[1])
        like = x.new_empty(()).expand(rows, length, self.config.gdn_n_heads, self.config.gdn_headdim)
        return choose(context.kernel, like, self.config.gdn_d_state) == "triton"

    def _mix(self, u: Tensor, context: SequenceContext, cache: GDNCache | None) -> Tensor:
        """From conv inputs to gated outputs, both (B, T, d_inner)."""
        shape = u.shape
        if context.cu_seqlens is not None:
            u = u.reshape(1, -1, shape[-1])
        weight = self.conv_weight.to(u.dtype)
        v = short_conv(u, weight, None if cache is None else cache.window, context.cu_seqlens)
        heads = v.unflatten(-1, (-1, self.config.gdn_headdim))
        if cache is not None and self._steps(heads, context):
            o, states = self._step(heads, v, context, cache)
            self._advance(cache, u, states, context)
            return o.reshape(shape)
        values, b, c, gate, dt = self._project(v, heads, context)
        o, states = self._recur(values, b, c, dt, v, context, cache)
        if context.telemetry is not None:
            context.record(f"gdn/o_absmax/{self.layer}", o.abs().amax())
        if cache is not None:
            self._advance(cache, u, states, context)
        elif states:
            context.record(f"gdn/state_absmax/{self.layer}", states[-1].abs().amax())
        if self.o_norm is not None:
            o = self.o_norm(o)
        return output_gate(o, heads, self.D_skip, gate).flatten(-2).reshape(shape)

    def _project(
        self, v: Tensor, heads: Tensor, context: SequenceContext
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor]:
        """Values and keys, those rotated that should be, output gate and decay input."""
        pairing = self.config.rope_pairing
        keys_turn: Rotation | None = None
        if self.rotates:
            cos, sin = context.rope_gdn
            if context.cu_seqlens is not None:
                cos, sin = cos.reshape(1, -1, 1, cos.shape[-1]), sin.reshape(1, -1, 1, sin.shape[-1])
            if self.config.gdn_rope_target == "v":
                heads = apply_rope(heads, (cos, sin), pairing)
            else:
                keys_turn = cos, sin
        gate_weight = None if self.g_proj is None else self.g_proj.weight
        weights = self.b_proj.weight, self.c_proj.weight, gate_weight, self.dt_proj.weight
        return heads, *project(v, weights, heads.shape[2], keys_turn, pairing, self.config.gdn_gate == "mean")

    def _steps(self, heads: Tensor, context: SequenceContext) -> bool:
        """Whether one kernel does everything between the projections: few tokens, on a GPU, for a decoding state."""
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or context.telemetry is not None:
            return False
        return choose(context.kernel, heads, self.config.gdn_d_state, stepwise=True) == "step"

    def _step(self, heads: Tensor, v: Tensor, context: SequenceContext, cache: GDNCache) -> tuple[Tensor, list[Tensor]]:
        """Rotation, `_recur`, norm, skip path and output gate, with no rounding in between."""
        from hymo.kernels.triton_recurrence_step_op import BlockParts, block_step  # only here: Triton is optional

        config = self.config
        turns_keys = self.rotates and config.gdn_rope_target == "bc"
        parts = BlockParts(
            self.dt_bias,
            self.D_skip,
            None if self.g_proj is None else self.g_proj(v),
            config.gdn_gate == "mean",
            None if self.o_norm is None else self.o_norm.weight,
            0.0 if self.o_norm is None else self.o_norm.eps,
            context.rope_gdn if self.rotates else None,
            config.gdn_rope_target == "v",
            config.rope_pairing == "interleaved",
            "head" if config.gdn_decay_sharing == "head" else "pair" if turns_keys else "none",
        )
        beta = None if self.beta_proj is None else self.beta_proj(v)
        o, after = block_step(
            heads,
            self.b_proj(v).unflatten(-1, (-1, config.gdn_d_state)),
            self.c_proj(v).unflatten(-1, (-1, config.gdn_d_state)),
            self.dt_proj(v),
            beta,
            self.A_log,
            cache.state,
            parts,
            context.new_lengths,
            context.keep_history,
        )
        return o, list(after.unbind(1)) if context.keep_history else [after]

    def _recur(
        self,
        values: Tensor,
        b: Tensor,
        c: Tensor,
        dt: Tensor,
        v: Tensor,
        context: SequenceContext,
        cache: GDNCache | None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Run the recurrence: outputs, and the states asked for: after every new token, after the last, or none.

        Gates are zero at padding, which makes it an exact no-op there.
        """
        wide = torch.promote_types(v.dtype, torch.float32)
        dt = dt.to(wide) + self.dt_bias
        valid = _valid(v, context)
        rule: Rule = gated_linear
        rates: dict[str, Tensor] = {}
        if self.beta_proj is not None:
            log_alpha = -self.shared_log_rates().mean(-1).exp() * F.softplus(dt)
            beta = torch.sigmoid(self.beta_proj(v).to(wide))
            if valid is not None:
                log_alpha, beta = log_alpha * valid, beta * valid
            q, k = l2norm(c) * self.config.gdn_d_state**-0.5, l2norm(b)
            rule = gated_delta
            inputs: tuple[Tensor, ...] = (q, k, values, beta, log_alpha)
        else:
            g = torch.sigmoid(dt)
            if valid is not None:
                g, b = g * valid, b * valid[..., None].to(b.dtype)
            inputs, rates = (values, b, c, g), {"A_log": self.shared_log_rates()}
        if cache is not None and context.keep_history:
            return _token_by_token(rule, inputs, rates, cache.state)
        o, final = rule(
            *inputs,
            **rates,
            initial_state=None if cache is None else cache.state,
            cu_seqlens=context.cu_seqlens,
            output_final_state=cache is not None or context.telemetry is not None,
            implementation=context.kernel,
            chunk_size=self.config.gdn_chunk_size,
        )
        return o, [] if final is None else [final]

    def shared_log_rates(self) -> Tensor:
        """(H, S) log decay rates as the recurrence uses them: averaged where states must share a decay."""
        if self.config.gdn_decay_sharing == "head":
            return self.A_log.mean(-1, keepdim=True).expand_as(self.A_log)
        if not self.rotates or self.config.gdn_rope_target != "bc":
            return self.A_log
        pairs: Tensor
        if self.config.rope_pairing == "interleaved":
            pairs = self.A_log.unflatten(-1, (-1, 2)).mean(-1).repeat_interleave(2, -1)
        else:
            pairs = self.A_log.unflatten(-1, (2, -1)).mean(-2).repeat(1, 2)
        return pairs

    def _advance(self, cache: GDNCache, u: Tensor, states: list[Tensor], context: SequenceContext) -> None:
        """Move the cache past the tokens just read: past the valid ones of each row, if rows are ragged."""
        taps = self.config.gdn_d_conv - 1
        seen = torch.cat((cache.window, u), 1)
        if context.new_lengths is None:
            window = seen[:, -taps:]
        else:
            places = context.new_lengths[:, None] + torch.arange(taps, device=u.device)
            window = seen.gather(1, places[..., None].expand(-1, -1, u.shape[-1]))
        cache.history = []
        if context.keep_history:
            windows = seen.unfold(1, taps, 1).movedim(-1, 2).unbind(1)
            cache.history = list(zip([cache.state, *states], windows, strict=True))
        cache.state, cache.window = states[-1], window

    def parameter_roles(self) -> dict[str, Role]:
        """Six matrices, the decay pair, and scalars; dt_proj and beta_proj are gates too small to orthogonalise."""
        roles = {f"{n}_proj.weight": Role.MATRIX for n in ("in", "b", "c", "out", "skip")}
        roles |= {"dt_proj.weight": Role.SCALAR, "conv_weight": Role.SCALAR, "D_skip": Role.SCALAR}
        roles |= {"A_log": Role.DECAY, "dt_bias": Role.DECAY}
        if self.g_proj is not None:
            roles["g_proj.weight"] = Role.MATRIX
        if self.beta_proj is not None:
            roles["beta_proj.weight"] = Role.SCALAR
        return roles

    @torch.no_grad()
    def telemetry(self) -> dict[str, Tensor]:
        """10, 50 and 90 % quantiles of the time constants in tokens, at the gate that dt_bias alone would give."""
        rates = self.shared_log_rates().float().exp()
        if self.delta:
            rate = rates.mean(-1) * F.softplus(self.dt_bias.float())
        else:
            rate = rates * torch.sigmoid(self.dt_bias.float())[:, None]
        constants = (1 / rate).flatten()
        quantiles = torch.quantile(constants, constants.new_tensor([0.1, 0.5, 0.9]))
        return {f"gdn/tau_{q}/{self.layer}": t for q, t in zip((10, 50, 90), quantiles, strict=True)}


def l2norm(x: Tensor, eps: float = 1e-6) -> Tensor:
    """x / |x| over the last dimension; finite with a finite gradient for zero rows."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * torch.rsqrt(wide.square().sum(-1, keepdim=True) + eps)).to(x.dtype)


def _token_by_token(
    rule: Rule, inputs: tuple[Tensor, ...], rates: dict[str, Tensor], state: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Outputs of a few tokens and the state after each of them."""
    outputs, states = [], []
    for t in range(inputs[0].shape[1]):
        o, after = rule(*(x[:, t : t + 1] for x in inputs), **rates, initial_state=state, output_final_state=True)
        assert after is not None
        outputs.append(o)
        states.append(state := after)
    return torch.cat(outputs, 1), states


def _valid(v: Tensor, context: SequenceContext) -> Tensor | None:
    """(B, T, 1) one where a token is real, or None if all are."""
    if context.new_lengths is None:
        return None
    real = torch.arange(v.shape[1], device=v.device) < context.new_lengths[:, None]
    return real[..., None].to(torch.promote_types(v.dtype, torch.float32))
