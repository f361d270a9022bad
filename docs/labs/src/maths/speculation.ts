// Speculative decoding with a one-hot draft. Rule: hymo/inference/engine.py.

export interface Judged {
  kept: number[];
  own: number;
  proposed: number[];
  accepted: number[];
}

/** Inverse cumulative distribution: the id that a uniform number in [0, 1) draws. */
export function drawBy(probabilities: number[], uniform: number): number {
  const total = probabilities.reduce((a, b) => a + b, 0);
  let sum = 0;
  for (let i = 0; i < probabilities.length; i++) {
    sum += probabilities[i] / total;
    if (sum > uniform) return i;
  }
  return probabilities.length - 1;
}

/**
 * Accept a draft x with probability p(x); at the first one rejected draw from p without x; after the last one accepted
 * draw from the model's next distribution. A certain outcome uses no random number.
 */
export function judge(rows: number[][], drafts: number[], uniform: () => number): Judged {
  const proposed = drafts.map(() => 0);
  const accepted = drafts.map(() => 0);
  const kept: number[] = [];
  for (let place = 0; ; place++) {
    const row = [...rows[place]];
    if (place < drafts.length) {
      const p = row[drafts[place]];
      const accept = p === 1 || (p > 0 && uniform() < p);
      proposed[place]++;
      if (accept) {
        accepted[place]++;
        kept.push(drafts[place]);
        continue;
      }
      row[drafts[place]] = 0;
    }
    return { kept, own: drawBy(row, uniform()), proposed, accepted };
  }
}

/** Expected tokens of one pass when draft d is accepted with probability a_d, given that those before it were. */
export function expectedTokens(acceptance: number[]): number {
  let [sum, chain] = [1, 1];
  for (const a of acceptance) sum += chain *= a;
  return sum;
}

/** A distribution sharpened or flattened by a temperature; 0 takes the most likely. */
export function tempered(row: number[], temperature: number): number[] {
  if (temperature === 0) {
    const best = argmax(row);
    return row.map((_, i) => (i === best ? 1 : 0));
  }
  const powered = row.map((p) => (p > 0 ? Math.exp(Math.log(p) / temperature) : 0));
  const total = powered.reduce((a, b) => a + b, 0);
  return powered.map((p) => p / total);
}

export const argmax = (row: number[]): number => row.reduce((best, x, i) => (x > row[best] ? i : best), 0);
