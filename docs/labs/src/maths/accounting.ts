// Exact counts of parameters, FLOPs, cache and state. Formulas: hymo/core/accounting.py.
import type { Model } from "./config";

export interface Spec {
  name: string;
  shape: number[];
  role: string;
}

const spec = (name: string, shape: number[], role: string): Spec => ({ name, shape, role });
export const numel = (t: Spec): number => t.shape.reduce((a, b) => a * b, 1);
export const neurons = (t: Spec): number => t.shape.slice(0, -1).reduce((a, b) => a * b, 1);
export const total = (tensors: Spec[]): number => tensors.reduce((sum, t) => sum + numel(t), 0);

export const gdnHeads = (m: Model): number => Math.floor(m.gdn_d_inner / m.gdn_headdim);
export const nope = (m: Model): number => m.head_dim - m.qk_rope_head_dim;
export const isMla = (m: Model, layer: number): boolean => m.mla_layers.includes(layer);
export const hasMoe = (m: Model, layer: number): boolean =>
  m.moe_placement === "all" || (m.moe_placement === "attention" && isMla(m, layer));

export function gdnTensors(m: Model): Spec[] {
  const [inner, heads, state] = [m.gdn_d_inner, gdnHeads(m), m.gdn_d_state];
  const delta = m.gdn_recurrence === "gated_delta";
  const tensors = [
    spec("norm", [m.dim], "scalar"),
    spec("in_proj", [inner, m.dim], "matrix"),
    spec("conv", [inner, m.gdn_d_conv], "scalar"),
    spec("b_proj", [heads * state, inner], "matrix"),
    spec("c_proj", [heads * state, inner], "matrix"),
    spec("dt_proj", [heads, inner], "scalar"),
    spec("A_log", [heads, state], "decay"),
    spec("dt_bias", [heads], "decay"),
    spec("D_skip", [heads], "scalar"),
    spec("out_proj", [m.dim, inner], "matrix"),
    spec("skip_proj", [m.dim, m.dim], "matrix"),
  ];
  if (m.gdn_gate !== "none") tensors.push(spec("g_proj", [inner, inner], "matrix"));
  if (delta) tensors.push(spec("beta_proj", [heads, inner], "scalar"));
  if (delta || m.gdn_output_norm) tensors.push(spec("o_norm", [m.gdn_headdim], "scalar"));
  return tensors;
}

export function mlaTensors(m: Model): Spec[] {
  const queries = m.n_heads * m.head_dim;
  const [groups, rope] = [m.n_kv_groups, m.qk_rope_head_dim];
  const tensors = [
    spec("norm", [m.dim], "scalar"),
    spec("wq_a", [m.q_lora_rank, m.dim], "matrix"),
    spec("q_norm", [m.q_lora_rank], "scalar"),
    spec("wq_b", [queries, m.q_lora_rank], "matrix"),
    spec("q_norm_qk", [queries], "scalar"),
    spec("wo", [m.dim, m.n_heads * m.v_head_dim], "matrix"),
  ];
  if (rope) tensors.push(spec("k_norm_qk", [groups * rope], "scalar"));
  if (m.mla_latent) {
    tensors.push(
      spec("wkv_a", [m.kv_lora_rank + rope, m.dim], "matrix"),
      spec("kv_norm", [m.kv_lora_rank], "scalar"),
      spec("wkv_b", [groups * (nope(m) + m.v_head_dim), m.kv_lora_rank], "matrix"),
    );
  } else {
    tensors.push(spec("wk", [groups * m.head_dim, m.dim], "matrix"), spec("wv", [groups * m.v_head_dim, m.dim], "matrix"));
  }
  return tensors;
}

function swiglu(dim: number, hidden: number, role: string, stack: number[] = []): Spec[] {
  return [
    spec("w1", [...stack, hidden, dim], role),
    spec("w3", [...stack, hidden, dim], role),
    spec("w2", [...stack, dim, hidden], role),
  ];
}

export function moeTensors(m: Model, routed = m.n_routed_experts): Spec[] {
  const tensors = [
    spec("norm", [m.dim], "scalar"),
    spec("router", [m.n_routed_experts, m.dim], "router"),
    ...swiglu(m.dim, m.moe_inter_dim, "expert", [routed]),
  ];
  if (m.n_shared_experts) tensors.push(...swiglu(m.dim, m.moe_inter_dim, "expert", [m.n_shared_experts]));
  return tensors;
}

export function mtpTensors(m: Model): Spec[] {
  return [
    spec("norm", [m.dim], "scalar"),
    spec("out_norm", [m.dim], "scalar"),
    ...swiglu(m.dim, m.moe_inter_dim, "matrix"),
  ];
}

export function denseWidth(m: Model, layer: number): number {
  if (isMla(m, layer)) return m.moe_placement === "none" ? m.moe_inter_dim : 0;
  return m.gdn_ffn_dim;
}

/** Tensors of one block by part: the mixer, then the mixture or the dense feed-forward. */
export function blockTensors(m: Model, layer: number, routed?: number): [string, Spec[]][] {
  const mla = isMla(m, layer);
  const parts: [string, Spec[]][] = [[mla ? "mla" : "gdn", mla ? mlaTensors(m) : gdnTensors(m)]];
  if (hasMoe(m, layer)) parts.push(["moe", moeTensors(m, routed)]);
  const dense = denseWidth(m, layer);
  if (dense) parts.push(["ffn", [spec("norm", [m.dim], "scalar"), ...swiglu(m.dim, dense, "matrix")]]);
  return parts;
}

export function modelTensors(m: Model, active = false): [string, Spec][] {
  const vocabulary = [m.vocab_size, m.dim];
  const found: [string, Spec][] = [["embedding", spec("weight", vocabulary, "embedding")]];
  if (!m.tie_embeddings) found.push(["head", spec("weight", vocabulary, "embedding")]);
  for (let layer = 0; layer < m.n_layers; layer++) {
    for (const [part, tensors] of blockTensors(m, layer, active ? m.n_activated_experts : m.n_routed_experts)) {
      for (const tensor of tensors) found.push([part, tensor]);
    }
  }
  found.push(["norm", spec("weight", [m.dim], "scalar")]);
  for (let i = 0; i < m.mtp_depth; i++) for (const tensor of mtpTensors(m)) found.push(["mtp", tensor]);
  return found;
}

export interface Count {
  stored: number;
  active: number;
  parts: Record<string, number>;
}

export function countParameters(m: Model): Count {
  const parts: Record<string, number> = {};
  for (const [part, tensor] of modelTensors(m)) parts[part] = (parts[part] ?? 0) + numel(tensor);
  const active = modelTensors(m, true).reduce((sum, [, t]) => sum + numel(t), 0);
  return { stored: Object.values(parts).reduce((a, b) => a + b, 0), active, parts };
}

export function usedPerToken(m: Model, training: boolean): number {
  const count = countParameters(m);
  const head = m.vocab_size * m.dim;
  const used = m.tie_embeddings ? count.active : count.active - head;
  return training ? used + m.mtp_depth * head : used - (count.parts.mtp ?? 0);
}

export function attentionFlops(m: Model, length: number): number {
  return Math.floor((m.mla_layers.length * 2 * m.n_heads * (m.head_dim + m.v_head_dim) * length) / 2);
}

export const flopsPerToken = (m: Model, length: number, mtp = true): number =>
  6 * usedPerToken(m, mtp) + 3 * attentionFlops(m, length);

export const cacheNumbers = (m: Model): number =>
  m.mla_latent ? m.kv_lora_rank + m.n_kv_groups * m.qk_rope_head_dim : m.n_kv_groups * (m.head_dim + m.v_head_dim);

export const cacheBytes = (m: Model, context: number, width = 2): number =>
  m.mla_layers.length * cacheNumbers(m) * context * width;

export function stateBytes(m: Model, width = 2): number {
  const recurrent = 4 * gdnHeads(m) * m.gdn_d_state * m.gdn_headdim;
  return (m.n_layers - m.mla_layers.length) * (recurrent + width * m.gdn_d_inner * (m.gdn_d_conv - 1));
}
