r"""Sparse mixture of experts with loss-free balancing.

Symbols: x tokens, E experts, k active, b router bias::

    s = sigmoid(router(x))                      fp32, whatever the model's dtype
    chosen = top-k of s + b                     the bias moves the choice and nothing else
    w_i = route_scale * s_i / sum over chosen s
    y = shared(x) + sum over chosen w_i expert_i(x)

After each optimizer step: ema <- (1 - alpha) ema + alpha load (as shares of the tokens, starting uniform); every expert
outside the dead band moves its bias by the speed towards the uniform load; then the biases are centred on 0.
Sources: DeepSeek-V3, arXiv 2412.19437, section 2.1.2; loss-free balancing, arXiv 2408.15664. The smoothing is HyMo's.
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hymo.core.config import ModelConfig
from hymo.core.roles import Role
from hymo.kernels import grouped_linear
from hymo.kernels.permutation import return_rows, spread_rows
from hymo.kernels.router import router_logits
from hymo.models.context import SequenceContext
from hymo.models.layers import Float32Islands, SwiGLUExpert

Number = TypeVar("Number", float, Tensor)


class DeepSeekMoE(Float32Islands):
    """Routed experts as stacked tensors, plus shared ones that every token passes."""

    fp32_names = frozenset({"router", "bias", "load_ema", "tokens_per_expert"})
    bias: Tensor
    load_ema: Tensor
    tokens_per_expert: Tensor

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.config, self.layer = config, layer
        experts, dim, hidden = config.n_routed_experts, config.dim, config.moe_inter_dim
        self.router = nn.Parameter(torch.empty(experts, dim))
        self.w1 = nn.Parameter(torch.empty(experts, hidden, dim))
        self.w3 = nn.Parameter(torch.empty(experts, hidden, dim))
        self.w2 = nn.Parameter(torch.empty(experts, dim, hidden))
        shared = config.n_shared_experts
        self.shared = SwiGLUExpert(dim, hidden * shared, Role.EXPERT) if shared else None
        self.register_buffer("bias", torch.empty(experts))
        self.register_buffer("load_ema", torch.empty(experts))
        self.register_buffer("tokens_per_expert", torch.empty(experts), persistent=False)
        self._last_counts: Tensor | None = None
        self.balance_loss: Tensor | None = None
        self.expert_dtype: torch.dtype | None = None
        """What routed experts compute in; None is the dtype of what they are given. Routing is fp32 either way."""
        if not self.bias.is_meta:
            self.reset_buffers()

    @torch.no_grad()
    def reset_buffers(self) -> None:
        """Unbiased routing, uniform load, nothing counted."""
        self.bias.zero_()
        self.load_ema.fill_(1 / self.config.n_routed_experts)
        self.tokens_per_expert.zero_()

    def forward(self, x: Tensor, context: SequenceContext) -> Tensor:
        """(B, T, dim) -> (B, T, dim)."""
        tokens = x.flatten(0, 1)
        chosen, weights, scores = self.route(tokens)
        # A recomputed block counts again in the backward pass: what is left of that must not reach a later evaluation.
        self._last_counts, self.balance_loss = None, None
        counts = _count(chosen.flatten(), self.config.n_routed_experts)
        if self.training:
            self._last_counts = counts
            if self.config.balance_loss_alpha:
                self.balance_loss = self._balance_loss(scores, chosen, x.shape[:2])
        if context.capacity and self.config.capacity_factor is not None:
            weights = weights * self._within_capacity(chosen, x.shape[0], context)
        y = self._experts(tokens, chosen, weights, counts, alone=context.alone).view_as(x)
        return y if self.shared is None else y + self.shared(x)

    def route(self, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(N, dim) -> chosen experts (N, k) int64, their weights (N, k), and all scores (N, E); scores in fp32."""
        with torch.autocast(tokens.device.type, enabled=False):
            logits = router_logits(tokens, self.router)
        scores = logits.softmax(-1) if self.config.router_score == "softmax" else torch.sigmoid(logits)
        chosen = _largest(scores.detach() + self.bias, self.config.n_activated_experts)
        selected = scores.gather(-1, chosen)
        weights = selected / (selected.sum(-1, keepdim=True) + 1e-20) * self.config.route_scale
        return chosen, weights, scores

    def _experts(self, tokens: Tensor, chosen: Tensor, weights: Tensor, counts: Tensor, alone: bool) -> Tensor:
        """Sort token copies by expert, run one matrix product per expert, and gather the results back.

        With `alone`, every copy is a group of its own: a product's rounding then cannot depend on which other tokens
        chose the same expert, so a rejected draft leaves no trace in the tokens before it.
        """
        k = chosen.shape[-1]
        flat = chosen.flatten()
        narrow = self.config.n_routed_experts <= 256 and flat.device.type != "mps"  # fewer digits to sort by
        order = torch.argsort(flat.to(torch.uint8) if narrow else flat, stable=True)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        x = spread_rows(tokens, order, back, k)
        if self.expert_dtype is not None:
            x = x.to(self.expert_dtype)
        w1, w3, w2 = (w.to(x.dtype) for w in (self.w1, self.w3, self.w2))
        if alone:
            w1, w3, w2 = (w[flat[order]] for w in (w1, w3, w2))
            counts = torch.ones_like(flat)
        h = F.silu(grouped_linear(x, w1, counts)) * grouped_linear(x, w3, counts)
        y = grouped_linear(h, w2, counts)
        y = return_rows(y, order, back).to(tokens.dtype).view(-1, k, y.shape[-1])
        return (y * weights[..., None].to(tokens.dtype)).sum(1)

    def _within_capacity(self, chosen: Tensor, rows: int, context: SequenceContext) -> Tensor:
        """(N, k) one where the expert still has room: earlier positions first, each sequence on its own, so causal."""
        cfg = self.config
        assert cfg.capacity_factor is not None
        hits = F.one_hot(chosen, cfg.n_routed_experts).sum(1)  # (N, E)
        bounds = context.cu_seqlens
        if bounds is None:
            places = hits.view(rows, -1, cfg.n_routed_experts).cumsum(1).flatten(0, 1)
            limit = torch.full((len(chosen), 1), math.ceil(_room(cfg, len(chosen) // rows)), device=chosen.device)
        else:
            lengths = bounds.to(chosen.device, torch.int64).diff()
            running = hits.cumsum(0)
            before = F.pad(running, (0, 0, 1, 0))[bounds[:-1].to(chosen.device, torch.int64)]
            places = running - before.repeat_interleave(lengths, 0, output_size=len(chosen))
            # On the boundaries' device, in fp64 like Python's floats: not every device has it.
            room = _room(cfg, bounds.to(torch.int64).diff().double()).ceil().to(chosen.device, torch.int64)
            limit = room.repeat_interleave(lengths, output_size=len(chosen))[:, None]
        kept = (places.gather(-1, chosen) <= limit).float()
        context.record(f"moe/dropped/{self.layer}", 1 - kept.mean())
        return kept

    def _balance_loss(self, scores: Tensor, chosen: Tensor, shape: torch.Size) -> Tensor:
        """DeepSeek-V3's sequence-wise loss, summed over tokens so that it normalises like the cross-entropy."""
        cfg = self.config
        share = (scores / scores.sum(-1, keepdim=True)).view(*shape, -1).mean(1)
        hits = F.one_hot(chosen, cfg.n_routed_experts).sum(1).view(*shape, -1).to(share.dtype).mean(1)
        load = hits * (cfg.n_routed_experts / cfg.n_activated_experts)
        return cfg.balance_loss_alpha * (load * share).sum(-1).mean() * shape.numel()

    def collect(self) -> None:
        """Add the counts of the last forward pass. The model calls this outside activation recomputation."""
        if self._last_counts is not None:
            self.tokens_per_expert += self._last_counts
            self._last_counts = None

    @torch.no_grad()
    def update_gate_bias(self) -> None:
        """Move the router bias by the load counted since the last call, once per optimizer step."""
        cfg = self.config
        # Without a branch on the counts: reading them would make the host wait for the device in every step.
        counted = self.tokens_per_expert.sum()
        any_counted = (counted > 0).to(self.bias.dtype)
        load = self.tokens_per_expert / counted.clamp_min(1)
        self.load_ema.lerp_(load, cfg.moe_ema_alpha * any_counted)
        self.tokens_per_expert.zero_()
        if cfg.moe_bias_update == "sign":
            direction = torch.sign(1 / cfg.n_routed_experts - load)
        else:
            excess = self.load_ema * cfg.n_routed_experts - 1
            direction = torch.where(excess.abs() > cfg.moe_dead_band, -torch.sign(excess), 0.0)
        self.bias += cfg.moe_bias_speed * any_counted * direction
        self.bias -= any_counted * self.bias.mean()

    def counted_over_ranks(self) -> list[Tensor]:
        """What each rank counted for itself: the trainer sums it over ranks before anything looks at it."""
        return [self.tokens_per_expert]

    def after_step(self) -> None:
        """What the trainer calls once per optimizer step."""
        self.update_gate_bias()

    def discard_step(self) -> None:
        """What the trainer calls instead when a step was skipped: its load must not count."""
        self.tokens_per_expert.zero_()

    @torch.no_grad()
    def telemetry(self) -> dict[str, Tensor]:
        """Balance of the load since the last update: variation, worst excess, entropy (1 is uniform), bias range."""
        experts = self.config.n_routed_experts
        counted = self.tokens_per_expert
        load = counted / counted.sum() if counted.sum() > 0 else self.load_ema
        relative = load * experts
        entropy = -(load * load.clamp_min(1e-12).log()).sum() / math.log(max(experts, 2))
        values = {
            "load_cv": relative.std(correction=0),
            "max_violation": relative.max() - 1,
            "entropy": entropy,
            "bias_absmax": self.bias.abs().max(),
        }
        return {f"moe/{name}/{self.layer}": value for name, value in values.items()}

    def parameter_roles(self) -> dict[str, Role]:
        """The router on its own, everything else an expert."""
        return {"router": Role.ROUTER, "w1": Role.EXPERT, "w2": Role.EXPERT, "w3": Role.EXPERT}

    def parameter_blocks(self) -> dict[str, tuple[int, ...]]:
        """Shared experts are matrices of their own: one below the other on the way in."""
        experts = (self.config.moe_inter_dim,) * self.config.n_shared_experts
        return {f"shared.{name}.weight": experts for name in ("w1", "w3")} if len(experts) > 1 else {}

    def parameter_columns(self) -> dict[str, tuple[int, ...]]:
        """And side by side on the way out."""
        experts = (self.config.moe_inter_dim,) * self.config.n_shared_experts
        return {"shared.w2.weight": experts} if len(experts) > 1 else {}


_FEW = 4
"""Most experts per token that are searched one after the other."""


def _largest(scores: Tensor, count: int) -> Tensor:
    """Places (N, count) of the largest scores (N, E) of each row, int64, largest first.

    On a GPU a few are searched one after the other, which a compiler makes one kernel with what comes before and after.
    """
    if scores.is_cuda and count <= _FEW:
        return searched(scores, count)
    return torch.topk(scores, count, dim=-1).indices


def searched(scores: Tensor, count: int) -> Tensor:
    """As `torch.topk(scores, count).indices`, as `count` searches; the first of equal scores wins."""
    places, found = torch.arange(scores.shape[-1], device=scores.device), []
    for _ in range(count):
        found.append(scores.argmax(-1, keepdim=True))
        scores = scores.masked_fill(places == found[-1], -torch.inf)
    return torch.cat(found, -1)


def _count(chosen: Tensor, experts: int) -> Tensor:
    """How often each expert occurs in `chosen` (N,): int64 (E,).

    Unlike bincount, the host need not wait for it, and unlike a scattered sum, the device need not do it one by one.
    """
    return (chosen[:, None] == torch.arange(experts, device=chosen.device)).sum(0)


def _room(config: ModelConfig, tokens: Number) -> Number:
    """Tokens that an expert takes of so many, not rounded up yet."""
    assert config.capacity_factor is not None
    return config.capacity_factor * tokens * config.n_activated_experts / config.n_routed_experts
