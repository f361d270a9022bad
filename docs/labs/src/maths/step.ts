// The schedule and Newton-Schulz. Formulas: hymo/training/scheduler.py, hymo/training/normuon.py.

export interface Schedule {
  warmup: number;
  stable: number;
  decay: number;
  least: number;
  shape: string;
}

/** Round half to even, on a product of short decimals: what Python's round does with the exact fraction. */
function roundEven(x: number): number {
  const exact = Math.round(x * 1e6) / 1e6;
  const floor = Math.floor(exact);
  if (exact - floor !== 0.5) return Math.round(exact);
  return floor % 2 ? floor + 1 : floor;
}

export function schedule(total: number, warmupFrac: number, decayFrac: number, least: number, shape: string): Schedule {
  const leastDecay = decayFrac > 0 ? 1 : 0;
  const warmup = Math.min(Math.ceil(Math.round(warmupFrac * total * 1e6) / 1e6), total - leastDecay);
  const decay = Math.min(Math.max(roundEven(decayFrac * total), leastDecay), total - warmup);
  return { warmup, stable: total - warmup - decay, decay, least, shape };
}

export function factor(s: Schedule, step: number): number {
  if (step < s.warmup) return (step + 1) / s.warmup;
  if (step < s.warmup + s.stable) return 1;
  const done = (step - s.warmup - s.stable + 1) / s.decay;
  return s.least + (1 - s.least) * (1 - (s.shape === "sqrt" ? Math.sqrt(done) : done));
}

export interface Polynomial {
  triples: number[][];
  margin: number;
  eps: number;
}

/** Singular values after 0..steps iterations: each iteration maps s to a s + b s³ + c s⁵. */
export function newtonSchulz(singular: number[], steps: number, p: Polynomial): number[][] {
  const norm = Math.hypot(...singular);
  let values = singular.map((s) => s / (p.margin * norm + p.eps));
  const found = [values];
  for (let i = 0; i < steps; i++) {
    const [a, b, c] = p.triples[Math.min(i, p.triples.length - 1)];
    values = values.map((s) => a * s + b * s ** 3 + c * s ** 5);
    found.push(values);
  }
  return found;
}
