// Both recurrences on one head, token by token and in chunks. Equations: hymo/kernels/gated_linear.py, gated_delta.py.

export type Matrix = number[][];

export interface Result {
  /** Outputs, one row of D values per token. */
  o: Matrix;
  /** State S x D after the last token. */
  final: Matrix;
  /** State after every token; empty for the chunked forms, which never form them. */
  states: Matrix[];
}

export const zeros = (rows: number, columns: number): Matrix =>
  Array.from({ length: rows }, () => new Array<number>(columns).fill(0));

const dot = (a: number[], b: number[]): number => a.reduce((sum, x, i) => sum + x * b[i], 0);

const read = (state: Matrix, key: number[]): number[] =>
  state[0].map((_, d) => state.reduce((sum, row, s) => sum + row[d] * key[s], 0));

/** H_t = diag(exp(-A g_t)) H_{t-1} + b_t v_tᵀ, o_t = H_tᵀ c_t. */
export function linearRecurrent(v: Matrix, b: Matrix, c: Matrix, g: number[], A: number[], start?: Matrix): Result {
  let state = start ?? zeros(A.length, v[0].length);
  const o: Matrix = [];
  const states: Matrix[] = [];
  for (let t = 0; t < v.length; t++) {
    state = state.map((row, s) => {
      const keep = Math.exp(-A[s] * g[t]);
      return row.map((x, d) => keep * x + b[t][s] * v[t][d]);
    });
    states.push(state);
    o.push(read(state, c[t]));
  }
  return { o, final: state, states };
}

/**
 * The same in chunks: inside a chunk by pairs of tokens, between chunks by one state. Every exponent is at most zero,
 * because a pair (i, j) with j <= i takes the decay between its two tokens.
 */
export function linearChunked(
  v: Matrix,
  b: Matrix,
  c: Matrix,
  g: number[],
  A: number[],
  chunk: number,
  start?: Matrix,
): Result {
  let state = start ?? zeros(A.length, v[0].length);
  const o: Matrix = [];
  for (let from = 0; from < v.length; from += chunk) {
    const to = Math.min(from + chunk, v.length);
    const G: number[] = [];
    let sum = 0;
    for (let t = from; t < to; t++) G.push((sum += g[t]));
    for (let i = from; i < to; i++) {
      const into = A.map((a, s) => c[i][s] * Math.exp(-a * G[i - from]));
      const out = read(state, into);
      for (let j = from; j <= i; j++) {
        let score = 0;
        for (let s = 0; s < A.length; s++) score += c[i][s] * b[j][s] * Math.exp(-A[s] * (G[i - from] - G[j - from]));
        for (let d = 0; d < out.length; d++) out[d] += score * v[j][d];
      }
      o.push(out);
    }
    state = state.map((row, s) => {
      const keep = Math.exp(-A[s] * sum);
      return row.map((x, d) => {
        let value = keep * x;
        for (let j = from; j < to; j++) value += b[j][s] * Math.exp(-A[s] * (sum - G[j - from])) * v[j][d];
        return value;
      });
    });
  }
  return { o, final: state, states: [] };
}

/** S_t = alpha_t (I - beta_t k_t k_tᵀ) S_{t-1} + beta_t k_t v_tᵀ, o_t = S_tᵀ q_t. */
export function deltaRecurrent(
  q: Matrix,
  k: Matrix,
  v: Matrix,
  beta: number[],
  logAlpha: number[],
  start?: Matrix,
): Result {
  let state = start ?? zeros(k[0].length, v[0].length);
  const o: Matrix = [];
  const states: Matrix[] = [];
  for (let t = 0; t < v.length; t++) {
    const alpha = Math.exp(logAlpha[t]);
    const decayed = state.map((row) => row.map((x) => alpha * x));
    const held = read(decayed, k[t]);
    state = decayed.map((row, s) => row.map((x, d) => x + k[t][s] * beta[t] * (v[t][d] - held[d])));
    states.push(state);
    o.push(read(state, q[t]));
  }
  return { o, final: state, states };
}

/** The same in chunks: a unit triangular system gives what each token really writes, solved by substitution. */
export function deltaChunked(
  q: Matrix,
  k: Matrix,
  v: Matrix,
  beta: number[],
  logAlpha: number[],
  chunk: number,
  start?: Matrix,
): Result {
  let state = start ?? zeros(k[0].length, v[0].length);
  const o: Matrix = [];
  for (let from = 0; from < v.length; from += chunk) {
    const to = Math.min(from + chunk, v.length);
    const G: number[] = [];
    let sum = 0;
    for (let t = from; t < to; t++) G.push((sum += logAlpha[t]));
    const between = (i: number, j: number): number => Math.exp(G[i] - G[j]);
    const U: Matrix = [];
    for (let i = 0; i < to - from; i++) {
      const t = from + i;
      const held = read(state, k[t]);
      const row = v[t].map((x, d) => beta[t] * (x - Math.exp(G[i]) * held[d]));
      for (let j = 0; j < i; j++) {
        const weight = beta[t] * between(i, j) * dot(k[t], k[from + j]);
        for (let d = 0; d < row.length; d++) row[d] -= weight * U[j][d];
      }
      U.push(row);
    }
    for (let i = 0; i < to - from; i++) {
      const out = read(state, q[from + i]).map((x) => Math.exp(G[i]) * x);
      for (let j = 0; j <= i; j++) {
        const weight = between(i, j) * dot(q[from + i], k[from + j]);
        for (let d = 0; d < out.length; d++) out[d] += weight * U[j][d];
      }
      o.push(out);
    }
    const last = to - from - 1;
    state = state.map((row, s) =>
      row.map((x, d) => U.reduce((acc, u, j) => acc + between(last, j) * k[from + j][s] * u[d], Math.exp(sum) * x)),
    );
  }
  return { o, final: state, states: [] };
}

/** Largest absolute difference of two matrices. */
export function distance(a: Matrix, b: Matrix): number {
  return Math.max(0, ...a.flatMap((row, i) => row.map((x, j) => Math.abs(x - b[i][j]))));
}
