// Speculative decoding with a one-hot draft. Rule: hymo/inference/picking.py.

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
 * Each place draws from the model's own distribution with its own uniform number. A draft is kept if it is what was drawn,
 * which has the probability p(draft); the first draw that is not the draft, or the one after the last draft, ends the pass.
 */
export function judge(rows: number[][], drafts: number[], uniform: () => number): Judged {
  const proposed = drafts.map(() => 0);
  const accepted = drafts.map(() => 0);
  const kept: number[] = [];
  for (let place = 0; ; place++) {
    const own = drawBy(rows[place], uniform());
    if (place === drafts.length) return { kept, own, proposed, accepted };
    proposed[place]++;
    if (own !== drafts[place]) return { kept, own, proposed, accepted };
    accepted[place]++;
    kept.push(own);
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
