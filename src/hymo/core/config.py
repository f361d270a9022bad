"""The configuration: five frozen groups, one field per decision.

Numbers that shape a model or a run have no default here: they live in the YAML presets (`hymo/presets`). Fields with a
default are switches whose default is the plain v1.0 design, so a preset names only what it changes. Reading files is in
`hymo.core.load`; this module holds the types and the checks of one group, `HyMoConfig` the checks across groups.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

RULES = ConfigDict(strict=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)
"""How values are taken: each in its own type, nothing converted, no field unknown."""

Count = Annotated[int, Field(ge=1, lt=2**63)]
Natural = Annotated[int, Field(ge=0, lt=2**63)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]


def _require(condition: bool, key: str, message: str) -> None:
    """Raise a ValueError that names the key it is about; `hymo.core.load` turns it into a ConfigError."""
    if not condition:
        raise ValueError(f"{key}: {message}")


@dataclass(frozen=True, kw_only=True, config=RULES)
class ModelConfig:
    """Shape and variants of the network. Symbols follow the block files in `hymo.models`."""

    vocab_size: Count
    """Entries of the token embedding and of the output head."""
    dim: Count
    """Width of the residual stream."""
    n_layers: Annotated[int, Field(ge=1, le=4096)]
    """Number of blocks, GDN and MLA together."""
    mla_layers: tuple[Natural, ...]
    """Indices of the MLA blocks, ascending, each below n_layers; every other block is a GDN block."""
    max_seq_len: Count
    """Context in tokens: the longest sequence that positions are defined for."""
    rope_theta: Positive
    """Base of the rotary frequencies, for MLA and GDN alike."""
    rope_ratio: Fraction
    """Share of head_dim that is rotated in MLA; always equal to qk_rope_head_dim / head_dim."""
    n_heads: Count
    """Query heads of an MLA block."""
    n_kv_groups: Count
    """Key/value groups of an MLA block; query head i reads group i // (n_heads // n_kv_groups)."""
    head_dim: Count
    """Query and key width of one MLA head, rotated and content part together."""
    qk_rope_head_dim: Natural
    """Rotated part of head_dim; even. 0 is NoPE, head_dim is full RoPE."""
    v_head_dim: Count
    """Value width of one MLA head."""
    q_lora_rank: Count
    """Rank of the query's low-rank projection."""
    kv_lora_rank: Count
    """Width of the cached key/value latent."""
    gdn_d_inner: Count
    """Inner width of a GDN block; a multiple of gdn_headdim."""
    gdn_d_state: Count
    """State (key) width S of one GDN head; even, because keys are rotated in pairs."""
    gdn_headdim: Count
    """Value width D of one GDN head."""
    gdn_d_conv: Annotated[int, Field(ge=2)]
    """Taps of the causal depthwise convolution."""
    gdn_chunk_size: Literal[16, 32, 64, 128]
    """Tokens per chunk of the chunk-parallel recurrence. Changes speed, not results."""
    n_routed_experts: Count
    """Routed experts of a mixture."""
    n_shared_experts: Natural
    """Experts that every token passes; 0 is the variant without."""
    n_activated_experts: Count
    """Routed experts per token (top-k)."""
    moe_inter_dim: Count
    """Hidden width of one expert and of each multi-token-prediction head."""
    mtp_depth: Annotated[int, Field(ge=0, le=64)]
    """Extra tokens predicted ahead; 0 switches multi-token prediction off."""
    mtp_loss_weights: tuple[NonNegative, ...]
    """Weight of each depth's cross-entropy; one per depth."""
    logit_softcap: NonNegative
    """Cap c of c·tanh(logit / c), in fp32; 0 switches it off."""
    tie_embeddings: bool
    """Whether the output head is the embedding matrix."""
    init_std: Positive
    """Standard deviation of the embedding at initialisation."""
    router_init_std: Positive
    """Standard deviation of the routing matrix at initialisation."""
    moe_ema_alpha: Annotated[float, Field(gt=0, le=1)]
    """Weight of the newest load in the moving average that moves the router bias."""
    moe_bias_speed: NonNegative
    """Step of the router bias per optimizer step."""
    moe_dead_band: Fraction
    """Relative deviation from the uniform load inside which the bias rests."""

    gdn_recurrence: Literal["gated_linear", "gated_delta"] = "gated_linear"
    """Update rule of the state: gated linear attention (v1.0) or the gated delta rule."""
    gdn_rope_target: Literal["bc", "v", "none"] = "bc"
    """What a GDN block rotates: read and write keys, the values, or nothing."""
    gdn_decay_init: Literal["linear", "log_uniform"] = "linear"
    """Decay of gated_linear at initialisation: A equally spaced in 1..40, or time constants log-uniform."""
    gdn_decay_sharing: Literal["pair", "head"] = "pair"
    """Where states share one decay: over each rotated pair, or over the whole head."""
    gdn_output_norm: bool = False
    """Per-head RMSNorm on the output of gated_linear (gated_delta always has it)."""
    gdn_gate: Literal["mean", "full", "none"] = "mean"
    """Output gate: sigmoid averaged per head (v1.0), one per channel, or none."""
    gdn_ffn_dim: Natural = 0
    """Hidden width of a dense SwiGLU after each GDN block; 0 is none."""
    nope_hybrid_gdn_enabled: bool = False
    """Whether the GDN blocks of nope_gdn_layers go without rotation."""
    nope_gdn_layers: tuple[Natural, ...] = ()
    """GDN blocks without rotation when nope_hybrid_gdn_enabled is on."""
    rope_pairing: Literal["half_split", "interleaved"] = "half_split"
    """Which dimensions rotate together: (i, i + d/2) or (2i, 2i + 1)."""
    yarn_factor: Annotated[float, Field(ge=1)] = 1.0
    """Context extension factor of YaRN on the rotated part of MLA; 1 is off."""
    mla_latent: bool = True
    """Whether keys and values come from the latent; off is plain grouped-query attention."""
    moe_placement: Literal["attention", "all", "none"] = "attention"
    """Blocks that carry a mixture of experts: the MLA blocks, every block, or none (dense SwiGLU on the MLA blocks)."""
    router_score: Literal["sigmoid", "softmax"] = "sigmoid"
    """Scores of the router, always in fp32."""
    route_scale: Positive = 1.0
    """Factor on the normalised weights of the selected experts."""
    capacity_factor: Positive | None = None
    """Training capacity per sequence and expert as a multiple of the uniform load; null is dropless."""
    moe_bias_update: Literal["ema", "sign"] = "ema"
    """Load that moves the router bias: the moving average with its dead band, or the sign of the last step's load."""
    balance_loss_alpha: NonNegative = 0.0
    """Weight of the sequence-wise balance loss; 0 is off."""
    mtp_anneal_frac: Fraction = 0.0
    """Share of the steps, at the end, over which the prediction weights fall linearly to 0; 0 keeps them."""

    @property
    def qk_nope_head_dim(self) -> int:
        """Content (unrotated) part of head_dim."""
        return self.head_dim - self.qk_rope_head_dim

    @property
    def gdn_n_heads(self) -> int:
        """Heads of a GDN block."""
        return self.gdn_d_inner // self.gdn_headdim

    @property
    def gdn_layers(self) -> tuple[int, ...]:
        """Indices of the GDN blocks."""
        return tuple(i for i in range(self.n_layers) if i not in self.mla_layers)

    def rotates_gdn(self, layer: int) -> bool:
        """Whether GDN block `layer` rotates anything."""
        nope = self.nope_hybrid_gdn_enabled and layer in self.nope_gdn_layers
        return self.gdn_rope_target != "none" and not nope

    def has_moe(self, layer: int) -> bool:
        """Whether block `layer` carries a mixture of experts."""
        return self.moe_placement == "all" or (self.moe_placement == "attention" and layer in self.mla_layers)

    @model_validator(mode="after")
    def _check(self) -> ModelConfig:
        for name in ("mla_layers", "nope_gdn_layers"):
            layers: tuple[int, ...] = getattr(self, name)
            _require(
                all(i < self.n_layers for i in layers), name, f"every index must be below n_layers ({self.n_layers})"
            )
            _require(list(layers) == sorted(set(layers)), name, "indices must be ascending without repeats")
        _require(
            not set(self.nope_gdn_layers) & set(self.mla_layers),
            "nope_gdn_layers",
            "lists an MLA block; name GDN blocks",
        )
        _require(
            bool(self.nope_gdn_layers) or not self.nope_hybrid_gdn_enabled,
            "nope_hybrid_gdn_enabled",
            "nope_gdn_layers is empty; name GDN blocks in it",
        )
        _require(
            self.n_heads % self.n_kv_groups == 0,
            "n_kv_groups",
            f"{self.n_kv_groups} does not divide n_heads ({self.n_heads})",
        )
        _require(self.qk_rope_head_dim <= self.head_dim, "qk_rope_head_dim", f"exceeds head_dim ({self.head_dim})")
        _require(self.qk_rope_head_dim % 2 == 0, "qk_rope_head_dim", "must be even: dimensions rotate in pairs")
        _require(
            math.isclose(self.rope_ratio * self.head_dim, self.qk_rope_head_dim, abs_tol=1e-6),
            "rope_ratio",
            f"{self.rope_ratio} x head_dim {self.head_dim} is not qk_rope_head_dim ({self.qk_rope_head_dim})",
        )
        _require(
            self.gdn_d_inner % self.gdn_headdim == 0,
            "gdn_d_inner",
            f"{self.gdn_d_inner} is not a multiple of gdn_headdim ({self.gdn_headdim})",
        )
        _require(self.gdn_d_state % 2 == 0, "gdn_d_state", "must be even: keys rotate in pairs")
        _require(
            self.gdn_rope_target != "v" or self.gdn_headdim % 2 == 0, "gdn_headdim", "must be even to rotate the values"
        )
        _require(
            self.n_activated_experts <= self.n_routed_experts,
            "n_activated_experts",
            f"exceeds n_routed_experts ({self.n_routed_experts})",
        )
        _require(
            len(self.mtp_loss_weights) == self.mtp_depth,
            "mtp_loss_weights",
            f"holds {len(self.mtp_loss_weights)} weights for mtp_depth {self.mtp_depth}",
        )
        _require(
            not (self.gdn_ffn_dim and self.moe_placement == "all"),
            "gdn_ffn_dim",
            "with moe_placement 'all' the GDN blocks carry experts already; set one of the two",
        )
        _require(self.mtp_depth < self.max_seq_len, "mtp_depth", "must be below max_seq_len")
        return self


@dataclass(frozen=True, kw_only=True, config=RULES)
class OptimizerConfig:
    """NorMuon for matrices, AdamW for the rest. Rates are peaks; the schedule multiplies both."""

    muon_lr: NonNegative
    """Peak learning rate of NorMuon."""
    muon_momentum: Beta
    """Momentum (exponential average) of NorMuon."""
    muon_beta2: Beta
    """Decay of NorMuon's second moment per output neuron."""
    muon_weight_decay: NonNegative
    """Weight decay of NorMuon."""
    ns_steps: Annotated[int, Field(ge=1, le=20)]
    """Newton-Schulz iterations."""
    adamw_lr: NonNegative
    """Peak learning rate of AdamW."""
    adamw_betas: tuple[Beta, Beta]
    """Decays of AdamW's two moments."""
    adamw_eps: Positive
    """Denominator guard of AdamW."""
    adamw_weight_decay: NonNegative
    """Weight decay of experts under AdamW (and of matrices in the adamw partition); the rest never decays."""
    decay_group_eps: Positive
    """Denominator guard for A_log and dt_bias, whose gradients lie far below the usual one."""
    cautious_weight_decay: bool = True
    """Whether NorMuon decays a weight only where it agrees in sign with its update; AdamW decays plainly."""
    optimizer_partition: Literal["hybrid", "adamw", "normuon_all"] = "hybrid"
    """Who updates matrices and experts: NorMuon and AdamW, AdamW alone, or NorMuon for both."""
    muon_normalize: bool = True
    """Row-wise normalisation of NorMuon; off is plain Muon."""
    muon_scale: Literal["frobenius", "rms"] = "frobenius"
    """Size of an update: Frobenius norm of the orthogonal matrix x sqrt(max(1, out/in)), or RMS 0.2."""
    ns_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Precision of Newton-Schulz; float32 makes runs comparable across reductions."""
    ns_coefficients: Literal["polar_express", "jordan"] = "polar_express"
    """Polynomial of Newton-Schulz."""


@dataclass(frozen=True, kw_only=True, config=RULES)
class SchedulerConfig:
    """Warm-up, stable, decay: one multiplier for both optimizers. Give total_steps or total_tokens."""

    warmup_frac: Fraction
    """Share of the steps spent warming up; rounded up to whole steps."""
    stable_frac: Fraction
    """Share of the steps at the peak rate: what the other two leave."""
    decay_frac: Fraction
    """Share of the steps spent decaying; rounded to whole steps."""
    min_lr_ratio: Fraction
    """Multiplier at the last step."""
    total_steps: Count | None = None
    """Optimizer steps of the run."""
    total_tokens: Count | None = None
    """Training tokens of the run, rounded down to whole steps."""
    decay_shape: Literal["linear", "sqrt"] = "linear"
    """Shape of the decay."""

    @model_validator(mode="after")
    def _check(self) -> SchedulerConfig:
        total = self.warmup_frac + self.stable_frac + self.decay_frac
        _require(math.isclose(total, 1.0, abs_tol=1e-6), "stable_frac", f"the three fractions sum to {total:g}, not 1")
        given = (self.total_steps is not None) + (self.total_tokens is not None)
        _require(given == 1, "total_steps", "give exactly one of total_steps and total_tokens")
        return self


@dataclass(frozen=True, kw_only=True, config=RULES)
class TrainingConfig:
    """The loop: batch, precision, cadence, limits."""

    micro_batch_size: Count
    """Sequences per rank and forward pass."""
    grad_accum_steps: Count
    """Forward passes per optimizer step, at dp_size ranks."""
    seq_len: Count
    """Tokens per training sequence."""
    grad_clip: NonNegative
    """Largest global gradient norm; 0 switches clipping off."""
    grad_norm_warn: Positive
    """Gradient norm above which an event is written."""
    max_skipped_steps: Natural
    """Steps in a row that may be skipped for a non-finite loss or gradient before the run stops."""
    eval_interval: Count
    """Steps between two validations."""
    eval_sequences: Count
    """Held-out sequences of seq_len tokens per validation."""
    checkpoint_interval: Count
    """Steps between two checkpoints."""
    log_interval: Count
    """Steps between two records in metrics.jsonl."""
    seed: Natural
    """Seed of initialisation and data order."""
    dp_size: Count = 1
    """Data-parallel ranks that grad_accum_steps is counted for; on other world sizes it is rescaled."""
    keep_last: Count = 2
    """Newest checkpoints that retention keeps, beside the best."""
    keep_best: bool = True
    """Whether to save after every validation that is better than all before, and to keep the newest such checkpoint."""
    keep_every: Count | None = None
    """Steps between checkpoints that are kept for good; null keeps none beyond keep_last and the best."""
    keep_stable: bool = False
    """Whether to save the end of the stable phase and keep it: a longer schedule can go on from there."""
    checkpoint_minutes: Positive | None = 60.0
    """Longest time between two checkpoints, in minutes; null leaves checkpoint_interval alone."""
    hang_minutes: Positive | None = 30.0
    """Time without a step after which the stacks of all threads go to stacks.txt, in minutes; null never writes any."""
    hang_abort: bool = False
    """Whether a run that made no step for hang_minutes ends with exit code 1, so that its launcher starts it again."""
    verdict_step: Count | None = 1000
    """Step after which the run judges itself by its records; null never does."""
    verdict_loss: Positive | None = None
    """Training loss planned for that step; null judges no loss."""
    verdict_gate: bool = False
    """Whether a run that fails its verdict saves and ends with exit code 1 (`hymo train --gate`)."""
    profile_steps: tuple[Count, Count] | None = None
    """First and last step to record in profiles/: a trace and, on CUDA, a history of memory; null records none."""
    async_checkpoint: bool = True
    """Whether checkpoints are written while training goes on, from a copy in CPU memory."""
    document_masking: bool = True
    """Whether state, convolution, attention and targets stop at document boundaries."""
    param_dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of the forward and backward pass; masters are always fp32."""
    reduce_dtype: Literal["float32", "bfloat16"] = "float32"
    """Precision of gradient reduction over ranks: once a step in float32, after every pass in bfloat16."""
    activation_checkpointing: Literal["none", "selective", "full"] = "none"
    """Recomputation in the backward pass: nothing, the experts, or whole blocks."""
    gdn_kernel: Literal["auto", "recurrent", "chunked", "triton"] = "auto"
    """Implementation of the recurrence."""
    torch_compile_gdn: bool = True
    """Compile blocks where kernels run them; CUDA only."""
    cuda_graphs_mla: bool = False
    """Capture the attention part of MLA blocks in CUDA graphs; CUDA only."""
    moe_mixed_precision: bool = True
    """Run expert matmuls in bf16 whatever the block's dtype; CUDA only."""
    dp_replicate: Count = 1
    """Replicas of the sharded group (HSDP); 1 shards over all ranks. On one process there is nothing to replicate."""
    reshard_after_forward: bool = False
    """Whether ranks drop whole weights and gradients after each use, or keep them until the step ends."""
    start_timeout_minutes: Positive = 30.0
    """Longest wait for another rank until the first step is done (start, compilation) and in a save, in minutes."""
    rank_timeout_minutes: Positive = 10.0
    """Longest wait for another rank afterwards, in minutes: one that hangs ends the run after this time."""
    num_workers: Natural = 0
    """Threads that prepare batches ahead of the loop; 0 prepares them in line."""
    max_epochs: Count = 1
    """Passes over the data set that a run may need."""
    spike_rewind: bool = False
    """Return to the last checkpoint and leave out the batch of a loss spike."""
    spike_window: Annotated[int, Field(ge=2)] = 128
    """Steps before this one whose losses tell what is usual."""
    spike_sigmas: Positive = 6.0
    """Standard deviations above the mean of these losses from which a loss is a spike."""

    @model_validator(mode="after")
    def _check(self) -> TrainingConfig:
        steps = self.profile_steps
        _require(steps is None or steps[0] <= steps[1], "profile_steps", "the first step comes after the last")
        return self

    @property
    def sequences_per_step(self) -> int:
        """Sequences of one optimizer step over all ranks."""
        return self.micro_batch_size * self.grad_accum_steps * self.dp_size

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one optimizer step over all ranks."""
        return self.sequences_per_step * self.seq_len


@dataclass(frozen=True, kw_only=True, config=RULES)
class RunConfig:
    """Where a run lives and what it reads."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Name of the run; its folder is output_dir/name."""
    output_dir: str = "runs"
    """Folder that holds run folders."""
    data: str | None = None
    """Folder written by `hymo data prepare`."""
    tokenizer: str = "byte"
    """`byte`, or the path of a tokenizer.json or its folder, from the current folder; a run keeps a copy."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Device to train on; auto takes the fastest present."""
    track: tuple[Literal["tensorboard", "trackio", "wandb"], ...] = ()
    """Where metrics go beside the run's own files (extra `track`)."""
    alert: str | None = None
    """Who is told when a run fails, hangs, spikes, skips a step or cannot save: an http(s) address that takes JSON, a
    shell command that reads it, or env:NAME for either from the environment, where a secret belongs."""
    health_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """TCP port of the endpoint with /health and /metrics; rank N of a machine takes the N-th after it."""
    health_host: str = "127.0.0.1"
    """Address that the endpoint listens on; 0.0.0.0 shows it to the network."""


@dataclass(frozen=True, kw_only=True, config=RULES)
class HyMoConfig:
    """A complete, checked configuration."""

    model: ModelConfig
    optimizer: OptimizerConfig
    scheduler: SchedulerConfig
    training: TrainingConfig
    run: RunConfig

    @property
    def total_steps(self) -> int:
        """Optimizer steps of the run: given, or whole steps in total_tokens."""
        if self.scheduler.total_steps is not None:
            return self.scheduler.total_steps
        assert self.scheduler.total_tokens is not None
        return self.scheduler.total_tokens // self.training.tokens_per_step

    @model_validator(mode="after")
    def _check(self) -> HyMoConfig:
        _require(
            self.training.seq_len <= self.model.max_seq_len,
            "training.seq_len",
            f"{self.training.seq_len} exceeds model.max_seq_len ({self.model.max_seq_len})",
        )
        _require(
            self.training.seq_len > self.model.mtp_depth,
            "training.seq_len",
            f"must exceed model.mtp_depth ({self.model.mtp_depth}), or a head has no target",
        )
        _require(
            self.total_steps >= 1,
            "scheduler.total_tokens",
            f"is less than one step of {self.training.tokens_per_step} tokens",
        )
        return self


GROUPS: dict[str, type] = {
    "model": ModelConfig,
    "optimizer": OptimizerConfig,
    "scheduler": SchedulerConfig,
    "training": TrainingConfig,
    "run": RunConfig,
}
"""Name and type of each group, in the order in which files list them."""
