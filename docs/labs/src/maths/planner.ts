// What `hymo plan` says, from the same configuration. Formulas: hymo/core/planner.py and throughput.py.
import { attentionFlops, cacheBytes, countParameters, denseWidth, flopsPerToken, hasMoe, stateBytes, usedPerToken } from "./accounting";
import type { Config, Constants, Device } from "./config";
import {
  type Memory,
  activationBytes,
  keepsWholeGradients,
  optimizerBytes,
  optimizerSizes,
  trainingMemory,
} from "./memory";

const LARGEST_MICRO_BATCH = 4096;

export interface LevelPlan {
  memory: Memory;
  fits: boolean | null;
  largest: number | null;
}

export interface Plan {
  stored: number;
  active: number;
  used: number;
  flopsPerToken: number;
  tokensPerStep: number;
  steps: number;
  tokens: number;
  passes: number;
  usable: number | null;
  levels: Record<string, LevelPlan>;
  communication: number;
  context: number;
  cache: number;
  state: number;
  checkpoint: number;
  disk: number;
  throughput: { tokensPerSecond: number; utilisation: number; days: number; cost: number | null } | null;
  /** Whether one sequence fits at any level; the command refuses the plan if not. */
  possible: boolean;
}

export const sequencesPerStep = (c: Config): number =>
  c.training.micro_batch_size * c.training.grad_accum_steps * c.training.dp_size;
export const tokensPerStep = (c: Config): number => sequencesPerStep(c) * c.training.seq_len;
export const totalSteps = (c: Config): number =>
  c.scheduler.total_steps ?? Math.floor((c.scheduler.total_tokens ?? 0) / tokensPerStep(c));

export function makePlan(
  config: Config,
  constants: Constants,
  device: Device | null,
  gpus: number,
  context: number | null,
  price: number | null,
): Plan {
  const t = config.training;
  const usable = device?.memory ? Math.trunc(device.memory * constants.usable) : null;
  const onGpu = Boolean(device?.peak);
  const levels: Record<string, LevelPlan> = {};
  for (const level of constants.levels) {
    const memory = trainingMemory(config, constants, gpus, t.micro_batch_size, level, onGpu);
    levels[level] = {
      memory,
      fits: usable === null ? null : memory.total <= usable,
      largest: usable === null ? null : largest(config, constants, gpus, level, usable),
    };
  }
  const count = countParameters(config.model);
  const one = 4 * count.stored + optimizerBytes(optimizerSizes(config, constants));
  const steps = totalSteps(config);
  const forGood = Number(t.keep_stable) + (t.keep_every === null ? 0 : Math.floor(steps / t.keep_every));
  const passes = Math.ceil(sequencesPerStep(config) / (t.micro_batch_size * gpus));
  const width = (dtype: string): number => (dtype === "bfloat16" ? 2 : 4);
  const gathered = (t.reshard_after_forward ? 2 * passes : 1) * width(t.param_dtype) * count.stored;
  const reduced = (keepsWholeGradients(t) ? 1 : passes) * width(t.reduce_dtype) * count.stored;
  const replicas = Math.min(t.dp_replicate, gpus);
  const shards = Math.floor(gpus / replicas);
  const slice = Math.floor(count.stored / shards);
  const between = Math.floor((2 * width(t.reduce_dtype) * slice * (replicas - 1)) / replicas);
  const matrices = 4 * optimizerSizes(config, constants).normuon;
  const owned =
    Math.floor((Math.floor(matrices / gpus) * (shards - 1)) / shards) +
    Math.floor((Math.floor(matrices / shards) * (gpus - 1)) / gpus);
  const communication = Math.floor(((gathered + reduced) * (shards - 1)) / shards) + between + owned;
  const tokens = steps * tokensPerStep(config);
  const flops = flopsPerToken(config.model, t.seq_len);
  let throughput: Plan["throughput"] = null;
  if (device?.peak && t.param_dtype === "bfloat16") {
    const tokensPerSecond =
      tokensPerStep(config) / stepSeconds(config, constants, device, gpus, passes, communication);
    const seconds = tokens / tokensPerSecond;
    throughput = {
      tokensPerSecond,
      utilisation: (tokensPerSecond * flops) / (gpus * device.peak),
      days: seconds / 86400,
      cost: price === null ? null : (seconds / 3600) * gpus * price,
    };
  }
  return {
    stored: count.stored,
    active: count.active,
    used: usedPerToken(config.model, true),
    flopsPerToken: flops,
    tokensPerStep: tokensPerStep(config),
    steps,
    tokens,
    passes,
    usable,
    levels,
    communication,
    context: context ?? config.model.max_seq_len,
    cache: cacheBytes(config.model, context ?? config.model.max_seq_len),
    state: stateBytes(config.model),
    checkpoint: one,
    disk: one * (t.keep_last + 1 + Number(t.keep_best ?? true) + forGood),
    throughput,
    possible: usable === null || Object.values(levels).some((level) => level.largest !== 0),
  };
}

function stepSeconds(
  config: Config,
  constants: Constants,
  device: Device,
  gpus: number,
  passes: number,
  received: number,
): number {
  const [m, t, e] = [config.model, config.training, constants.measured];
  const level = t.activation_checkpointing;
  let products = 6 * usedPerToken(m, true);
  const again = level === "full" ? 4 / 3 : 1;
  if (level === "selective") {
    const passes = (m.n_activated_experts + m.n_shared_experts) * m.mla_layers.filter((i) => hasMoe(m, i)).length;
    const widths = passes * m.moe_inter_dim + m.mla_layers.reduce((sum, i) => sum + denseWidth(m, i), 0);
    products += 2 * 3 * m.dim * widths;
  }
  const tokens = (tokensPerStep(config) / gpus) * again;
  return (
    (tokens * products) / (e.matmul * device.peak!) +
    (tokens * 3 * attentionFlops(m, t.seq_len)) / (e.attention * device.peak!) +
    (tokens * activationBytes(config, "none", true, 1)) / (e.memory * device.bandwidth!) +
    passes * m.n_layers * e.gap_seconds +
    received / device.link!
  );
}

function largest(config: Config, constants: Constants, gpus: number, level: string, usable: number): number {
  const fits = (size: number): boolean => trainingMemory(config, constants, gpus, size, level, true).total <= usable;
  const step = Math.ceil(sequencesPerStep(config) / gpus);
  let [low, high] = fits(step) ? [step, Math.max(step, LARGEST_MICRO_BATCH)] : [0, step - 1];
  while (low < high) {
    const middle = Math.floor((low + high + 1) / 2);
    if (fits(middle)) low = middle;
    else high = middle - 1;
  }
  return low;
}
