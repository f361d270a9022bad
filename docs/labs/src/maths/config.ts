// A configuration as `hymo config show` and a run's config.yaml have it.

export interface Model {
  vocab_size: number;
  dim: number;
  n_layers: number;
  mla_layers: number[];
  max_seq_len: number;
  n_heads: number;
  n_kv_groups: number;
  head_dim: number;
  qk_rope_head_dim: number;
  v_head_dim: number;
  q_lora_rank: number;
  kv_lora_rank: number;
  gdn_d_inner: number;
  gdn_d_state: number;
  gdn_headdim: number;
  gdn_d_conv: number;
  gdn_chunk_size: number;
  n_routed_experts: number;
  n_shared_experts: number;
  n_activated_experts: number;
  moe_inter_dim: number;
  mtp_depth: number;
  tie_embeddings: boolean;
  moe_ema_alpha: number;
  moe_bias_speed: number;
  moe_dead_band: number;
  gdn_recurrence: string;
  gdn_output_norm: boolean;
  gdn_gate: string;
  gdn_ffn_dim: number;
  mla_latent: boolean;
  moe_placement: string;
  moe_bias_update: string;
  router_score: string;
  route_scale: number;
  [other: string]: unknown;
}

export interface Config {
  model: Model;
  optimizer: { muon_lr: number; adamw_lr: number; optimizer_partition: string; muon_normalize: boolean; [k: string]: unknown };
  scheduler: {
    warmup_frac: number;
    stable_frac: number;
    decay_frac: number;
    min_lr_ratio: number;
    total_steps: number | null;
    total_tokens: number | null;
    decay_shape: string;
  };
  training: {
    micro_batch_size: number;
    grad_accum_steps: number;
    seq_len: number;
    dp_size: number;
    keep_last: number;
    keep_every: number | null;
    keep_stable: boolean;
    keep_best?: boolean;
    torch_compile_gdn?: boolean;
    param_dtype: string;
    reduce_dtype: string;
    activation_checkpointing: string;
    gdn_kernel: string;
    dp_replicate: number;
    reshard_after_forward: boolean;
    [k: string]: unknown;
  };
  run: { name: string; [k: string]: unknown };
}

export interface Device {
  key: string;
  name: string;
  memory: number | null;
  bandwidth: number | null;
  peak: number | null;
  link: number | null;
}

export interface Constants {
  measured: { matmul: number; attention: number; memory: number; gap_seconds: number; kept: number; device: string; presets: string[] };
  usable: number;
  levels: string[];
  logitChunk: number;
  normuonRoles: Record<string, string[]>;
  newtonSchulz: Record<string, { triples: number[][]; margin: number; eps: number }>;
}

export interface Presets {
  presets: Record<string, Config>;
  devices: Device[];
  constants: Constants;
}
