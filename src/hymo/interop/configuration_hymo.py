"""Configuration of a HyMo model in transformers. Needs nothing but transformers: exports carry a copy of this file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedConfig


class HymoConfig(PreTrainedConfig):
    """Shape and switches of the network; names follow DeepSeek-V3 (attention, experts) and Qwen3-Next (recurrence).

    Args:
        vocab_size: entries of the embedding.
        hidden_size: width of the residual stream.
        num_hidden_layers: blocks of both kinds.
        layer_types: `linear_attention` or `full_attention`, one per block.
        max_position_embeddings: tokens that the model was built for.
        rope_parameters: `rope_theta`, the base of all rotary frequencies; pairs are (i, i + d/2).
        num_attention_heads: query heads.
        num_key_value_heads: key/value groups.
        q_lora_rank: rank of the query projection.
        kv_lora_rank: width of the cached latent.
        qk_rope_head_dim: rotated part of a query or key head.
        qk_nope_head_dim: its other part.
        v_head_dim: width of a value head.
        linear_recurrence: `gated_linear` or `gated_delta`.
        linear_num_heads: heads of the recurrence.
        linear_key_head_dim: rows of a head's state.
        linear_value_head_dim: columns of a head's state.
        linear_conv_kernel_dim: taps of the short convolution.
        linear_chunk_size: tokens per chunk, a power of two; changes speed, not results.
        linear_decay_sharing: states with one decay: those of a rotated `pair`, or of a `head`.
        linear_output_norm: whether the outputs of a head are normed.
        linear_gate: `mean` over a head, `full`, or `none`.
        linear_intermediate_size: hidden width of a dense feed-forward after the recurrence; 0 is none.
        linear_no_rope_layers: recurrent blocks whose keys are not rotated.
        moe_layers: blocks with a mixture of experts.
        n_routed_experts: experts that the router chooses from.
        n_shared_experts: experts that every token passes.
        num_experts_per_tok: routed experts per token.
        moe_intermediate_size: hidden width of one expert.
        scoring_func: `sigmoid` or `softmax`.
        routed_scaling_factor: factor on the normalised weights of the chosen experts.
        final_logit_softcapping: cap c of c tanh(logit / c); 0 is none.
        rms_norm_eps: guard of the norms.
        initializer_range: standard deviation of the embedding before training.
        use_cache: whether to return a cache outside of training unless the caller says.
        mtp_depth: prediction heads stored beside the model, which transformers does not use.
        **kwargs: what every configuration has: special ids, tie_word_embeddings, dtype.
    """

    model_type = "hymo"
    keys_to_ignore_at_inference = ("cache", "past_key_values")

    def __init__(
        self,
        vocab_size: int = 259,
        hidden_size: int = 96,
        num_hidden_layers: int = 4,
        layer_types: Sequence[str] = ("full_attention", *3 * ("linear_attention",)),
        max_position_embeddings: int = 256,
        rope_parameters: dict[str, Any] | None = None,
        num_attention_heads: int = 4,
        num_key_value_heads: int = 2,
        q_lora_rank: int = 24,
        kv_lora_rank: int = 32,
        qk_rope_head_dim: int = 8,
        qk_nope_head_dim: int = 24,
        v_head_dim: int = 32,
        linear_recurrence: str = "gated_linear",
        linear_num_heads: int = 4,
        linear_key_head_dim: int = 32,
        linear_value_head_dim: int = 32,
        linear_conv_kernel_dim: int = 4,
        linear_chunk_size: int = 64,
        linear_decay_sharing: str = "pair",
        linear_output_norm: bool = False,
        linear_gate: str = "mean",
        linear_intermediate_size: int = 0,
        linear_no_rope_layers: Sequence[int] = (),
        moe_layers: Sequence[int] = (0,),
        n_routed_experts: int = 8,
        n_shared_experts: int = 1,
        num_experts_per_tok: int = 2,
        moe_intermediate_size: int = 144,
        scoring_func: str = "sigmoid",
        routed_scaling_factor: float = 1.0,
        final_logit_softcapping: float = 15.0,
        rms_norm_eps: float = 1e-6,
        initializer_range: float = 0.01,
        use_cache: bool = True,
        mtp_depth: int = 0,
        **kwargs: Any,
    ) -> None:
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.layer_types = list(layer_types)
        self.max_position_embeddings = max_position_embeddings
        self.rope_parameters = rope_parameters or {"rope_type": "default", "rope_theta": 10000.0}
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.q_lora_rank = q_lora_rank
        self.kv_lora_rank = kv_lora_rank
        self.qk_rope_head_dim = qk_rope_head_dim
        self.qk_nope_head_dim = qk_nope_head_dim
        self.v_head_dim = v_head_dim
        self.linear_recurrence = linear_recurrence
        self.linear_num_heads = linear_num_heads
        self.linear_key_head_dim = linear_key_head_dim
        self.linear_value_head_dim = linear_value_head_dim
        self.linear_conv_kernel_dim = linear_conv_kernel_dim
        self.linear_chunk_size = linear_chunk_size
        self.linear_decay_sharing = linear_decay_sharing
        self.linear_output_norm = linear_output_norm
        self.linear_gate = linear_gate
        self.linear_intermediate_size = linear_intermediate_size
        self.linear_no_rope_layers = list(linear_no_rope_layers)
        self.moe_layers = list(moe_layers)
        self.n_routed_experts = n_routed_experts
        self.n_shared_experts = n_shared_experts
        self.num_experts_per_tok = num_experts_per_tok
        self.moe_intermediate_size = moe_intermediate_size
        self.scoring_func = scoring_func
        self.routed_scaling_factor = routed_scaling_factor
        self.final_logit_softcapping = final_logit_softcapping
        self.rms_norm_eps = rms_norm_eps
        self.initializer_range = initializer_range
        self.use_cache = use_cache
        self.mtp_depth = mtp_depth
        super().__init__(**kwargs)
