// Estimate of what training occupies on one rank. Formulas: hymo/core/memory.py.
import { denseWidth, gdnHeads, hasMoe, isMla, modelTensors, neurons, numel } from "./accounting";
import type { Config, Constants, Model } from "./config";

const FP32 = 4;

export interface Memory {
  weights: number;
  masters: number;
  gradients: number;
  normuon: number;
  adamw: number;
  activations: number;
  logits: number;
  total: number;
}

export interface OptimizerSizes {
  normuon: number;
  neurons: number;
  adamw: number;
}

export function optimizerSizes(config: Config, constants: Constants): OptimizerSizes {
  const roles = constants.normuonRoles[config.optimizer.optimizer_partition];
  const tensors = modelTensors(config.model).map(([, t]) => t);
  const muon = tensors.filter((t) => roles.includes(t.role));
  const matrices = muon.reduce((sum, t) => sum + numel(t), 0);
  const rows = config.optimizer.muon_normalize ? muon.reduce((sum, t) => sum + neurons(t), 0) : 0;
  return { normuon: matrices, neurons: rows, adamw: tensors.reduce((sum, t) => sum + numel(t), 0) - matrices };
}

export const optimizerBytes = (s: OptimizerSizes): number => FP32 * (s.normuon + s.neurons) + 2 * FP32 * s.adamw;

export function trainingMemory(
  config: Config,
  constants: Constants,
  world = 1,
  microBatch = config.training.micro_batch_size,
  level = config.training.activation_checkpointing,
  onGpu = false,
): Memory {
  const stored = modelTensors(config.model).reduce((sum, [, t]) => sum + numel(t), 0);
  const shards = Math.max(1, Math.floor(world / config.training.dp_replicate));
  const sizes = optimizerSizes(config, constants);
  const width = computeBytes(config);
  const tokens = microBatch * config.training.seq_len;
  const t = config.training;
  const once = t.micro_batch_size * t.grad_accum_steps * t.dp_size <= microBatch * world;
  const whole = keepsWholeGradients(t) && !once;
  const kernels = ["auto", "triton"].includes(t.gdn_kernel) && width < FP32;
  const compiled = onGpu && (t.torch_compile_gdn ?? true) && kernels;
  const perToken = activationBytes(config, level, onGpu, compiled ? constants.measured.kept : undefined);
  const items = {
    weights: width < FP32 || world > 1 ? stored * width : 0,
    masters: Math.ceil((FP32 * stored) / shards),
    gradients: Math.ceil((FP32 * stored) / (whole ? 1 : shards)),
    normuon: Math.ceil((FP32 * (sizes.normuon + sizes.neurons)) / shards),
    adamw: Math.ceil((2 * FP32 * sizes.adamw) / shards),
    activations: halfEven(tokens * perToken),
    logits: logits(config, constants, tokens, onGpu),
  };
  return { ...items, total: Object.values(items).reduce((a, b) => a + b, 0) };
}

// Whether ranks add up the gradients of a step's passes before they sum them over ranks, once.
export const keepsWholeGradients = (t: Config["training"]): boolean =>
  !t.reshard_after_forward && t.reduce_dtype === "float32";

const computeBytes = (config: Config): number => (config.training.param_dtype === "bfloat16" ? 2 : FP32);

// Python's round: halves go to the even neighbour.
const halfEven = (x: number): number => (x % 1 === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));

// `kept` is the share that compiled code keeps of all but GDN mixers; undefined where nothing is compiled.
// MLA blocks whose feed-forward part is recomputed (selective) run as written and keep its input.
export function activationBytes(config: Config, level: string, onGpu: boolean, kept?: number): number {
  const m = config.model;
  const width = computeBytes(config);
  const share = kept ?? 1;
  const kernel = onGpu && config.training.gdn_kernel === "auto" ? "triton" : config.training.gdn_kernel;
  const layers = Array.from({ length: m.n_layers }, (_, i) => i);
  const written = (i: number): boolean => level === "selective" && isMla(m, i);
  const blocks = layers.map((i) => {
    const own = written(i) ? 1 : share;
    const mixer = isMla(m, i) ? own * mla(m, width) : gdn(m, width, kernel, kept !== undefined);
    return (written(i) ? m.dim * width : share * second(m, i, width)) + mixer;
  });
  let perToken =
    level === "full" ? m.n_layers * m.dim * width + Math.max(...blocks) : blocks.reduce((a, b) => a + b, 0);
  perToken += Math.max(0, ...layers.filter(written).map((i) => second(m, i, width)));
  const heads = m.mtp_depth * (3 * m.dim * width + swiglu(m.dim, m.moe_inter_dim, width));
  return perToken + share * (3 * m.dim * width + heads);
}

function second(m: Model, layer: number, width: number): number {
  let size = 0;
  if (hasMoe(m, layer)) size += 2 * m.dim * width + 3 * FP32 * m.n_routed_experts + experts(m, width);
  const dense = denseWidth(m, layer);
  return dense ? size + 2 * m.dim * width + swiglu(m.dim, dense, width) : size;
}

const swiglu = (dim: number, hidden: number, width: number): number => width * (dim + 4 * hidden);

const experts = (m: Model, width: number): number =>
  (m.n_activated_experts + m.n_shared_experts) * (swiglu(m.dim, m.moe_inter_dim, width) + m.dim * width);

function mla(m: Model, width: number): number {
  const queries = m.n_heads * m.head_dim;
  const keys = m.n_kv_groups * (m.head_dim + m.v_head_dim);
  const latent = m.mla_latent ? 2 * (m.kv_lora_rank + m.qk_rope_head_dim) : 0;
  const numbers = 2 * m.dim + 2 * m.q_lora_rank + 3 * queries + latent + 2 * keys + m.n_heads * m.v_head_dim;
  return width * numbers + FP32 * m.n_heads;
}

function gdn(m: Model, width: number, kernel: string, compiled: boolean): number {
  const [inner, heads] = [m.gdn_d_inner, gdnHeads(m)];
  const keys = heads * m.gdn_d_state;
  const delta = m.gdn_recurrence === "gated_delta";
  let [numbers, gates, unfused] = [2 * m.dim + inner * (m.gdn_d_conv + 5) + 2 * keys, 4, 0];
  if (kernel === "triton") {
    const norm = Number(delta || m.gdn_output_norm);
    numbers = 2 * m.dim + (4 + norm + Number(m.gdn_rope_target === "v")) * inner + (delta ? 4 : 2) * keys;
    gates = (delta ? 5 : 1) + norm + Number(m.gdn_gate === "mean");
    unfused = delta && !compiled ? 2 * keys * (FP32 - width) : 0;
  }
  if (m.gdn_gate !== "none") numbers += inner;
  return width * numbers + gates * FP32 * heads + unfused + recurrence(m, kernel);
}

function recurrence(m: Model, kernel: string): number {
  const [chunk, keys, values] = [m.gdn_chunk_size, m.gdn_d_state, m.gdn_headdim];
  const delta = m.gdn_recurrence === "gated_delta";
  const states = Math.ceil((keys * values) / chunk);
  let perHead: number;
  if (kernel === "recurrent") perHead = 2 * keys * values + 3 * keys + values;
  else if (kernel === "triton") perHead = (delta ? 16 : 8) + (keys * values <= 1024 ? Math.floor((keys * values) / 32) : 0);
  else if (delta) perHead = 5 * chunk + 7 * keys + 5 * values + 2 * states;
  else perHead = (Math.log2(chunk) + 4) * keys + chunk + values + states + 1;
  return FP32 * gdnHeads(m) * perHead;
}

function logits(config: Config, constants: Constants, tokens: number, onGpu: boolean): number {
  const m = config.model;
  const heads = 1 + m.mtp_depth;
  const elements = tokens * m.vocab_size;
  if (elements <= constants.logitChunk) return heads * 3 * FP32 * elements;
  const kept = heads * FP32 * m.dim * (m.vocab_size + tokens);
  const [chunk, width] = [constants.logitChunk, computeBytes(config)];
  return kept + (onGpu ? width * Math.max(((4 * FP32) / width) * chunk, Math.floor(elements / 8)) : 4 * FP32 * chunk);
}
