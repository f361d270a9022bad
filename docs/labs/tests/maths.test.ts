// Every formula of the labs against vectors that the Python package computed (docs/tools/golden.py).
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import * as accounting from "../src/maths/accounting";
import type { Config, Presets } from "../src/maths/config";
import { makePlan } from "../src/maths/planner";
import { deltaChunked, deltaRecurrent, linearChunked, linearRecurrent } from "../src/maths/recurrence";
import { route, updateBias } from "../src/maths/router";
import { drawBy, expectedTokens, judge, tempered } from "../src/maths/speculation";
import { factor, newtonSchulz, schedule } from "../src/maths/step";

const read = (path: string) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8"));
const presets: Presets = read("../../assets/data/presets.json");

function close(found: unknown, expected: unknown, relative = 1e-7, where = ""): void {
  if (typeof expected === "number") {
    const bound = relative * Math.max(1, Math.abs(expected));
    expect(Math.abs((found as number) - expected), `${where}: ${found} is not ${expected}`).toBeLessThanOrEqual(bound);
  } else if (Array.isArray(expected)) {
    expect((found as unknown[]).length, where).toBe(expected.length);
    expected.forEach((x, i) => close((found as unknown[])[i], x, relative, `${where}[${i}]`));
  } else {
    expect(found, where).toEqual(expected);
  }
}

describe("recurrences", () => {
  const cases = read("../golden/recurrence.json");
  test.each(cases.map((c: never, i: number) => [i, c]))("case %i: token by token and in chunks", (_, c: any) => {
    const linear = linearRecurrent(c.v, c.b, c.c, c.g, c.A, c.start);
    close(linear.o, c.linear.o);
    close(linear.final, c.linear.final);
    const delta = deltaRecurrent(c.c, c.k, c.v, c.beta, c.logAlpha, c.start);
    close(delta.o, c.delta.o);
    close(delta.final, c.delta.final);
    for (const size of [1, 2, 3, 8, 64]) {
      const inChunks = linearChunked(c.v, c.b, c.c, c.g, c.A, size, c.start);
      close(inChunks.o, c.linear.o);
      close(inChunks.final, c.linear.final);
      const deltas = deltaChunked(c.c, c.k, c.v, c.beta, c.logAlpha, size, c.start);
      close(deltas.o, c.delta.o);
      close(deltas.final, c.delta.final);
    }
  });
});

describe("router", () => {
  const { routes, balances } = read("../golden/router.json");
  test.each(routes.map((r: any) => [r.score, r]))("choices and weights, %s", (_, r: any) => {
    r.logits.forEach((logits: number[], i: number) => {
      const found = route(logits, r.bias, r.k, r.score, r.scale);
      expect(found.chosen).toEqual(r.chosen[i]);
      close(found.weights, r.weights[i], 1e-5);
      close(found.scores, r.scores[i], 1e-5);
    });
  });
  test.each(balances.map((b: any) => [b.update, b]))("biases over steps, %s", (_, b: any) => {
    let state = { bias: b.steps[0].counts.map(() => 0), ema: b.steps[0].counts.map(() => 1 / b.steps[0].counts.length) };
    for (const step of b.steps) {
      state = updateBias(state, step.counts, b);
      close(state.bias, step.bias, 1e-6);
      close(state.ema, step.ema, 1e-6);
    }
  });
});

describe("accounting, memory and planner", () => {
  const cases = read("../golden/planner.json");
  test.each(cases.map((c: any) => [c.name, c]))("%s", (_, c: any) => {
    const config = c.config as Config;
    const m = config.model;
    const listed = (tensors: accounting.Spec[]) => tensors.map((t) => [t.name, t.shape, t.role]);
    expect(listed(accounting.gdnTensors(m))).toEqual(c.tensors.gdn);
    expect(listed(accounting.mlaTensors(m))).toEqual(c.tensors.mla);
    expect(listed(accounting.moeTensors(m))).toEqual(c.tensors.moe);
    expect(listed(accounting.mtpTensors(m))).toEqual(c.tensors.mtp);
    const count = accounting.countParameters(m);
    expect(count).toEqual({ stored: c.stored, active: c.active, parts: c.parts });
    expect(accounting.usedPerToken(m, true)).toBe(c.used);
    expect(accounting.usedPerToken(m, false)).toBe(c.served);
    expect(accounting.attentionFlops(m, config.training.seq_len)).toBe(c.attention);
    expect(accounting.flopsPerToken(m, config.training.seq_len)).toBe(c.flops);
    expect(accounting.cacheNumbers(m)).toBe(c.cacheNumbers);
    expect(accounting.cacheBytes(m, 4096)).toBe(c.cache);
    expect(accounting.stateBytes(m)).toBe(c.state);
    for (const { request, plan } of c.plans) {
      const device = presets.devices.find((d) => d.key === request.gpu) ?? null;
      const found = makePlan(config, presets.constants, device, request.gpus, request.context, request.price);
      expect(found.possible).toBe(plan !== null);
      if (!plan) continue;
      expect(found.tokensPerStep).toBe(plan.tokens_per_step);
      expect(found.steps).toBe(plan.steps);
      expect(found.tokens).toBe(plan.tokens);
      expect(found.passes).toBe(plan.grad_accum_steps);
      expect(found.usable).toBe(plan.usable_memory_bytes);
      expect(found.communication).toBe(plan.communication_bytes);
      expect(found.cache).toBe(plan.cache_bytes);
      expect(found.state).toBe(plan.state_bytes);
      expect(found.checkpoint).toBe(plan.checkpoint_bytes);
      expect(found.disk).toBe(plan.checkpoint_disk_bytes);
      for (const [level, expected] of Object.entries<any>(plan.levels)) {
        expect(found.levels[level].memory).toEqual(expected.memory);
        expect(found.levels[level].fits).toBe(expected.fits);
        expect(found.levels[level].largest).toBe(expected.largest_micro_batch);
      }
      if (plan.throughput === null) expect(found.throughput).toBeNull();
      else {
        close(found.throughput!.tokensPerSecond, plan.throughput.tokens_per_second);
        close(found.throughput!.days, plan.throughput.days);
        if (plan.throughput.cost !== null) close(found.throughput!.cost, plan.throughput.cost);
      }
    }
  });
});

describe("speculation", () => {
  test("the engine's own judge keeps the same tokens", () => {
    const cases = read("../golden/speculation.json");
    for (const c of cases) {
      const uniforms = c.uniforms[Symbol.iterator]();
      const found = judge(c.rows, c.drafts, () => uniforms.next().value);
      expect(found).toEqual({ kept: c.kept, own: c.own, proposed: c.proposed, accepted: c.accepted });
    }
  });
  test("the first token has the model's own distribution, whatever the draft", () => {
    const row = [0.5, 0.3, 0.15, 0.05];
    for (let draft = 0; draft < row.length; draft++) {
      const found = row.map(() => 0);
      const grid = 400;
      for (let i = 0; i < grid; i++) {
        for (let j = 0; j < grid; j++) {
          const uniforms = [(i + 0.5) / grid, (j + 0.5) / grid, 0.5][Symbol.iterator]();
          const { kept, own } = judge([row, row], [draft], () => uniforms.next().value as number);
          found[kept[0] ?? own] += 1 / grid ** 2;
        }
      }
      close(found, row, 4e-3);
    }
  });
  test("expected tokens, draws and temperature by hand", () => {
    expect(expectedTokens([])).toBe(1);
    close(expectedTokens([0.5, 0.5]), 1.75);
    expect(drawBy([0.2, 0, 0.8], 0.1999)).toBe(0);
    expect(drawBy([0.2, 0, 0.8], 0.2)).toBe(2);
    close(tempered([0.25, 0.75], 0.5), [0.1, 0.9]);
    expect(tempered([0.25, 0.75], 0)).toEqual([0, 1]);
  });
});

describe("training step", () => {
  const { schedules, newtonSchulz: runs } = read("../golden/step.json");
  test.each(schedules.map((s: any) => [s.shape, s]))("factor at every step, %s", (_, s: any) => {
    const made = schedule(s.total, s.warmup, s.decay, s.least, s.shape);
    close(Array.from({ length: s.total }, (_, i) => factor(made, i)), s.factors);
  });
  test.each(runs.map((r: any) => [r.coefficients, r]))("singular values, %s", (_, r: any) => {
    const found = newtonSchulz(r.input, r.sorted.length, presets.constants.newtonSchulz[r.coefficients]);
    r.sorted.forEach((expected: number[], i: number) => {
      close([...found[i + 1]].map(Math.abs).sort((a, b) => b - a), expected, 1e-6);
    });
  });
});
