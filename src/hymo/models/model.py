"""HyMo in one page: embedding, GDN and MLA blocks, final norm, tied head, prediction heads.

Shapes: B batch, T time, V vocabulary. x = embed(tokens) sqrt(dim); x = block_i(x); hidden = norm(x);
logits = c tanh(head(hidden) / c) in fp32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from hymo.core.config import HyMoConfig, ModelConfig
from hymo.core.errors import UsageError
from hymo.core.roles import Role
from hymo.kernels import linear_cross_entropy
from hymo.kernels.arguments import boundaries_on, check_cu_seqlens, on_device, with_empty_documents
from hymo.kernels.cross_entropy import IGNORE_INDEX, softcapped_logits
from hymo.models.compiled import compile_unit, compiled_block
from hymo.models.context import SequenceContext
from hymo.models.gdn import GatedDeltaNetBlock
from hymo.models.init import initialise
from hymo.models.layers import Float32Islands, RMSNorm
from hymo.models.mla import MLABlock
from hymo.models.moe import DeepSeekMoE
from hymo.models.mtp import MultiTokenPrediction
from hymo.models.rope import RotaryEmbedding
from hymo.models.state import DecodeState, GDNCache, MLACache, cache_shapes
from hymo.models.windows import Window, ahead, split_window


class OutputHead(nn.Module):
    """The output matrix: its own parameter, or none if the embedding serves."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = None if config.tie_embeddings else nn.Parameter(torch.empty(config.vocab_size, config.dim))

    def parameter_roles(self) -> dict[str, Role]:
        """An untied head is treated as an embedding."""
        return {} if self.weight is None else {"weight": Role.EMBEDDING}


class HyMo(nn.Module):
    """The language model. Build it with `build_hymo`, which also initialises it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.dim)
        theta, context = config.rope_theta, config.max_seq_len
        self.rope_mla = RotaryEmbedding(config.qk_rope_head_dim, context, theta, config.yarn_factor)
        rotated = config.gdn_headdim if config.gdn_rope_target == "v" else config.gdn_d_state
        self.rope_gdn = RotaryEmbedding(rotated, int(context * config.yarn_factor), theta)
        self.layers = nn.ModuleList(
            MLABlock(config, i, self.rope_mla.score_scale) if i in config.mla_layers else GatedDeltaNetBlock(config, i)
            for i in range(config.n_layers)
        )
        self.norm = RMSNorm(config.dim)
        self.head = OutputHead(config)
        self.mtp = MultiTokenPrediction(config)
        self.kernel = "auto"
        self.checkpointing = "none"
        self._compiled: list[Callable[..., Tensor]] = []

    def compile_blocks(self, capture: bool = False, **options: Any) -> None:
        """Let torch.compile make kernels of every block; options as there.

        One block is one graph, and blocks of a kind share it; `hymo.models.compiled` says which part of it runs as
        written instead. Passes without gradients, and those that record telemetry, run as written. With `capture` the
        attention part of a block is also recorded as a CUDA graph, one per shape; call
        `torch.compiler.cudagraph_mark_step_begin()` before each pass then.
        """
        self._compiled = [compiled_block(layer, capture, options) for layer in self.layers]
        self.mtp.compile_blocks(**options)

    def compile_units(self, **options: Any) -> None:
        """As `compile_blocks`, for weights that ranks share: compiled code lies between the places that gather them."""
        for unit in self.shard_units():
            compile_unit(unit, options)
        self.mtp.compile_blocks(**options)

    @property
    def output_weight(self) -> Tensor:
        """(V, dim) matrix of the output head."""
        return self.embed.weight if self.head.weight is None else self.head.weight

    def forward(self, tokens: Tensor, cu_seqlens: Tensor | None = None) -> Tensor:
        """Logits (B, T, V) in fp32 for tokens (B, T); with cu_seqlens, one row of packed documents."""
        return self.logits(self._hidden(tokens, cu_seqlens))

    def forward_with_hidden(self, tokens: Tensor, start_pos: int = 0) -> tuple[Tensor, Tensor]:
        """Logits (B, T, V) and the hidden states (B, T, dim) after the final norm; positions count from start_pos."""
        hidden = self._hidden(tokens, start_pos=start_pos)
        return self.logits(hidden), hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """Softcapped logits (..., V) of hidden states (..., dim), in fp32."""
        return softcapped_logits(hidden, self.output_weight, self.config.logit_softcap)

    def embed_tokens(self, tokens: Tensor) -> Tensor:
        """Scaled embeddings (..., dim)."""
        scaled: Tensor = self.embed(tokens) * math.sqrt(self.config.dim)
        return scaled

    def loss(
        self, tokens: Tensor, targets: Tensor | None = None, cu_seqlens: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Mean losses in nats: `loss` (weighted total), `main`, `mtp_1`, ...

        Args:
            tokens: windows (B, T+1) whose last token is only a target, or inputs (B, T) if targets are given.
            targets: (B, T) next tokens, -100 where there is none.
            cu_seqlens: int32 document boundaries over the flattened `tokens`; targets never cross one.
        """
        window = split_window(tokens, cu_seqlens) if targets is None else Window(tokens, targets, cu_seqlens)
        counts = self.target_counts(window)
        means = {name: value / max(counts[name], 1) for name, value in self.loss_sums(window).items()}
        return {"loss": self.weighted_total(means), **means}

    def weighted_total(self, means: dict[str, Tensor], mtp_scale: float = 1.0) -> Tensor:
        """Main loss plus the weighted prediction (and balance) losses."""
        total = means["main"] + means.get("balance", 0.0)
        for depth, weight in enumerate(self.config.mtp_loss_weights, 1):
            total = total + mtp_scale * weight * means[f"mtp_{depth}"]
        return total

    def loss_sums(
        self, window: Window, telemetry: dict[str, Tensor] | None = None, mtp: bool = True
    ) -> dict[str, Tensor]:
        """Losses in nats, summed over targets: main, mtp_1, ..., and balance while training with its weight above 0.

        Sums, so that any split of a batch over micro-batches and ranks adds up exactly once divided by the
        `target_counts` of the whole. `telemetry` is filled with the blocks' metrics by name; `mtp` off skips the
        prediction heads.
        """
        sums = {}
        inputs = self.head_inputs(window, telemetry, mtp)
        weight, cap = self.output_weight, self.config.logit_softcap  # gathered by now, where ranks share it
        for depth, (name, hidden) in enumerate(inputs.items()):
            targets = ahead(window, depth).flatten()
            sums[name] = linear_cross_entropy(hidden.flatten(0, 1), weight, targets, cap)
        balance = [m.balance_loss for m in self.mixtures() if m.balance_loss is not None]
        if balance and self.training:
            sums["balance"] = torch.stack(balance).sum()
        return sums

    def head_inputs(
        self, window: Window, telemetry: dict[str, Tensor] | None = None, mtp: bool = True
    ) -> dict[str, Tensor]:
        """Inputs of the output head: main (B, T, dim); mtp_d (B, T - d, dim), whose row t is for token t + d + 1."""
        hidden, embedded = self._hidden_and_embedded(window.inputs, window.cu_seqlens, telemetry=telemetry)
        chain = self.mtp(hidden, embedded) if mtp else []
        return {"main": hidden, **{f"mtp_{depth}": out for depth, out in enumerate(chain, 1)}}

    def target_counts(self, window: Window) -> dict[str, int]:
        """Targets of each head in a window (tokens, for the balance loss). Cheap on CPU tensors: no device is asked."""
        counts = {"main": int((window.targets != IGNORE_INDEX).sum()), "balance": window.inputs.numel()}
        for depth in range(1, self.config.mtp_depth + 1):
            counts[f"mtp_{depth}"] = int((ahead(window, depth) != IGNORE_INDEX).sum())
        return counts

    def mixtures(self) -> list[DeepSeekMoE]:
        """Every mixture of experts."""
        return [m for m in self.modules() if isinstance(m, DeepSeekMoE)]

    def shard_units(self) -> list[nn.Module]:
        """Modules whose weights ranks gather together, inner before outer; what none of them holds is the model's."""
        return [*self.mixtures(), *self.layers]

    def entry_points(self) -> list[tuple[nn.Module, str]]:
        """Methods beside `forward` through which a pass enters a module and needs its weights."""
        blocks = [(layer, "forward_recomputing") for layer in self.layers if isinstance(layer, MLABlock)]
        return [(self, "head_inputs"), *blocks]

    def fp32_parameters(self) -> set[nn.Parameter]:
        """Parameters that stay in fp32 whatever dtype the model computes in: few and small."""
        islands = (m for m in self.modules() if isinstance(m, Float32Islands))
        return {p for m in islands for name, p in m.named_parameters(recurse=False) if name in m.fp32_names}

    def _hidden(self, tokens: Tensor, cu_seqlens: Tensor | None = None, start_pos: int = 0) -> Tensor:
        return self._hidden_and_embedded(tokens, cu_seqlens, start_pos)[0]

    def _hidden_and_embedded(
        self,
        tokens: Tensor,
        cu_seqlens: Tensor | None = None,
        start_pos: int = 0,
        telemetry: dict[str, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Hidden states after the final norm and scaled embeddings, both (B, T, dim)."""
        if tokens.ndim != 2:
            raise UsageError(f"tokens: expected (batch, time), got {tuple(tokens.shape)}")
        context = self._context(tokens, cu_seqlens, start_pos, telemetry)
        embedded = self.embed_tokens(tokens)
        x = embedded
        trains = torch.is_grad_enabled() and telemetry is None
        for index, layer in enumerate(self.layers):
            x = self._run(self._compiled[index] if self._compiled and trains else layer, layer, x, context)
        for mixture in self.mixtures():
            mixture.collect()
        return self.norm(x), embedded

    def _run(self, call: Callable[..., Tensor], layer: nn.Module, x: Tensor, context: SequenceContext) -> Tensor:
        """One block, called by `call`, with what the checkpointing mode recomputes in the backward pass."""
        if self.checkpointing == "none" or not torch.is_grad_enabled():
            out = call(x, context)
        elif self.checkpointing == "full":
            out = checkpoint(call, x, context, use_reentrant=False)
        elif isinstance(layer, MLABlock):
            out = layer.forward_recomputing(x, context)
        else:
            out = call(x, context)
        return out

    def _context(
        self, tokens: Tensor, cu_seqlens: Tensor | None, start_pos: int, telemetry: dict[str, Tensor] | None
    ) -> SequenceContext:
        rows, length = tokens.shape
        if start_pos < 0:
            raise UsageError(f"start_pos: must be 0 or more, got {start_pos}.")
        known: tuple[int, ...] | None = None
        padded = None
        if cu_seqlens is None:
            positions, largest = torch.arange(length, device=tokens.device) + start_pos, start_pos + length - 1
        else:
            check_cu_seqlens(cu_seqlens, 1, tokens.numel())
            bounds = cu_seqlens.to("cpu", torch.int64)
            known = tuple(bounds.tolist())
            if not set(range(0, tokens.numel(), max(length, 1))) <= set(known):
                raise UsageError(f"cu_seqlens: every row start (each {length} tokens) must be a document boundary.")
            lengths = bounds.diff()
            positions = torch.arange(tokens.numel()) - torch.repeat_interleave(bounds[:-1], lengths)
            positions, largest = on_device(positions.view(rows, length), tokens.device), int(lengths.max()) - 1
            padded = cu_seqlens = boundaries_on(cu_seqlens, tokens.device)
            if cu_seqlens.is_cuda:
                torch._dynamo.maybe_mark_dynamic(cu_seqlens, 0)  # a block is compiled once for any number of documents
                padded = boundaries_on(with_empty_documents(bounds), tokens.device)
        return SequenceContext(
            self.rope_mla(positions, largest),
            self.rope_gdn(positions, largest),
            cu_seqlens,
            known,
            padded,
            self.kernel,
            capacity=self.training,
            telemetry=telemetry,
        )

    def init_state(self, batch_size: int, reserve: int = 0) -> DecodeState:
        """An empty decode state for `batch_size` rows, with room for `reserve` tokens before the caches grow."""
        weight = self.embed.weight
        wide = torch.promote_types(weight.dtype, torch.float32)

        def cache(layer: int) -> GDNCache | MLACache:
            shapes = cache_shapes(self.config, layer, batch_size, reserve)
            zeros = {n: weight.new_zeros(shape, dtype=wide if n == "state" else None) for n, shape in shapes.items()}
            return MLACache(**zeros) if layer in self.config.mla_layers else GDNCache(zeros["state"], zeros["window"])

        lengths = torch.zeros(batch_size, dtype=torch.int64, device=weight.device)
        return DecodeState(lengths, [cache(i) for i in range(self.config.n_layers)])

    def _check_state(self, state: DecodeState) -> None:
        """Refuse a state whose shapes are not this model's, before a wrong one is broadcast into wrong logits."""
        if len(state.layers) != self.config.n_layers:
            raise UsageError(f"decode: the state has {len(state.layers)} layers, the model {self.config.n_layers}.")
        for layer, cache in enumerate(state.layers):
            room = cache.latent.shape[1] if isinstance(cache, MLACache) else 0
            for name, shape in cache_shapes(self.config, layer, state.batch_size, room).items():
                tensor = getattr(cache, name, None)
                if tensor is None or tensor.shape != shape:
                    there = "missing" if tensor is None else f"of shape {tuple(tensor.shape)}"
                    raise UsageError(
                        f"decode: {name} of layer {layer} is {there}, this model's is {shape}. Use its init_state()."
                    )

    def decode(self, tokens: Tensor, state: DecodeState, new_lengths: Tensor | None = None) -> Tensor:
        """Read tokens (B, k), prompt or continuation, and advance the state in place; logits (B, k, V).

        `new_lengths` (B,) counts the valid tokens of ragged rows, padded on the right; logits of padding mean nothing.
        """
        return self.logits(self.decode_hidden(tokens, state, new_lengths))

    @torch.no_grad()
    def decode_hidden(
        self, tokens: Tensor, state: DecodeState, new_lengths: Tensor | None = None, keep_history: bool = False
    ) -> Tensor:
        """Hidden states (B, k, dim) of new tokens; with keep_history the state can roll back to any of them.

        One row that keeps its history is computed so that a token's result depends on no later one, bit for bit. In a
        batch rounding depends on the other rows anyway.
        """
        rows, new = tokens.shape
        if rows != state.batch_size:
            raise UsageError(f"decode: the state holds {state.batch_size} rows, the tokens {rows}.")
        self._check_state(state)
        shortest, longest = torch.stack(state.lengths.aminmax()).tolist()
        used = longest + new
        largest = used - 1
        positions = state.lengths[:, None] + torch.arange(new, device=tokens.device)
        if new_lengths is not None:
            if new_lengths.shape != (rows,) or bool(((new_lengths < 0) | (new_lengths > new)).any()):
                raise UsageError(
                    f"decode: new_lengths must hold {rows} counts in 0..{new}, got {new_lengths.tolist()}."
                )
            largest = int((state.lengths + new_lengths).max()) - 1
            positions = positions.clamp_max(max(largest, 0))
        context = SequenceContext(
            self.rope_mla(positions, largest),
            self.rope_gdn(positions, largest),
            kernel=self.kernel,
            new_lengths=new_lengths,
            keep_history=keep_history,
            alone=keep_history and rows == 1,
            used=used,
            aligned=shortest == longest,
        )
        x = self.embed_tokens(tokens)
        state.reserve(used)
        for layer, cache in zip(self.layers, state.layers, strict=True):
            x = layer(x, context, cache, state.lengths) if isinstance(cache, MLACache) else layer(x, context, cache)
        read = torch.full_like(state.lengths, new) if new_lengths is None else new_lengths.to(state.lengths)
        state.lengths = state.lengths + read
        state.last_call = read if keep_history else None
        hidden: Tensor = self.norm(x)
        return hidden

    def parameter_roles(self) -> dict[str, Role]:
        """The embedding is the only parameter of its own."""
        return {"embed.weight": Role.EMBEDDING}


def build_hymo(config: HyMoConfig | ModelConfig, seed: int | None = None, device: str | torch.device = "cpu") -> HyMo:
    """Build and initialise a model in fp32.

    Args:
        config: a whole configuration, or its model group.
        seed: seed of the weights; the configuration's if None (0 for a model group).
        device: where the parameters live; "meta" builds shapes without memory or values.
    """
    model_config = config.model if isinstance(config, HyMoConfig) else config
    if seed is None:
        seed = config.training.seed if isinstance(config, HyMoConfig) else 0
    with torch.device("meta"):
        model = HyMo(model_config)
    if str(device) != "meta":
        model.to_empty(device=device)
        initialise(model, model_config, seed)
    if isinstance(config, HyMoConfig):
        model.kernel = config.training.gdn_kernel
        model.checkpointing = config.training.activation_checkpointing
    return model
