// Routing and balancing of a mixture of experts. Equations: hymo/models/moe.py.

export interface Route {
  chosen: number[];
  weights: number[];
  scores: number[];
}

/** Top-k of score + bias; the weights come from the scores alone. */
export function route(logits: number[], bias: number[], k: number, score = "sigmoid", scale = 1): Route {
  const scores = score === "softmax" ? softmax(logits) : logits.map((x) => 1 / (1 + Math.exp(-x)));
  const chosen = scores
    .map((s, i) => [s + bias[i], i] as const)
    .sort((a, b) => b[0] - a[0] || a[1] - b[1])
    .slice(0, k)
    .map(([, i]) => i);
  const total = chosen.reduce((sum, i) => sum + scores[i], 0) + 1e-20;
  return { chosen, weights: chosen.map((i) => (scores[i] / total) * scale), scores };
}

export interface Balance {
  bias: number[];
  ema: number[];
}

export interface Rule {
  update: string;
  alpha: number;
  speed: number;
  band: number;
}

/** One optimizer step: move the biases by the load of this step's counts. */
export function updateBias(state: Balance, counts: number[], rule: Rule): Balance {
  const experts = counts.length;
  const total = counts.reduce((a, b) => a + b, 0);
  if (!total) return state;
  const load = counts.map((n) => n / total);
  const ema = state.ema.map((x, i) => x + rule.alpha * (load[i] - x));
  const direction =
    rule.update === "sign"
      ? load.map((x) => Math.sign(1 / experts - x))
      : ema.map((x) => {
          const excess = x * experts - 1;
          return Math.abs(excess) > rule.band ? -Math.sign(excess) : 0;
        });
  const moved = state.bias.map((x, i) => x + rule.speed * direction[i]);
  const mean = moved.reduce((a, b) => a + b, 0) / experts;
  return { bias: moved.map((x) => x - mean), ema };
}

/** Coefficient of variation of the load: 0 is uniform. */
export function variation(counts: number[]): number {
  const mean = counts.reduce((a, b) => a + b, 0) / counts.length;
  if (!mean) return 0;
  return Math.sqrt(counts.reduce((sum, n) => sum + (n / mean - 1) ** 2, 0) / counts.length);
}

export function softmax(logits: number[]): number[] {
  const top = Math.max(...logits);
  const e = logits.map((x) => Math.exp(x - top));
  const total = e.reduce((a, b) => a + b, 0);
  return e.map((x) => x / total);
}

/** A small seeded generator of uniform numbers in [0, 1): the same lab for everyone with the same link. */
export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** A standard normal number (Box-Muller). */
export function normal(uniform: () => number): number {
  return Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform());
}
