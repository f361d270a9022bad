// Lab: routing to two of the experts, and the bias that balances them.
import { html, svg, type TemplateResult } from "lit";
import { scaleLinear } from "d3-scale";
import { line } from "d3-shape";
import { normal, random, route, updateBias, variation, type Balance } from "./maths/router";
import type { Config } from "./maths/config";
import { Lab, asConfig } from "./ui/base";

const TOKENS = 256;
const STEPS = 300;
/** Steps whose counts the picture averages: a single step's are noisy. */
const WINDOW = 8;

interface Trace {
  counts: number[][];
  states: Balance[];
  variation: number[];
}

class MoeLab extends Lab {
  protected defaults = { update: "ema", step: 200, skew: 1, speed: 5, token: 0, experts: 16 };
  private config?: Config;
  private recorded: [number, number][] = [];
  private cached?: { key: string; trace: Trace };

  protected override settle(): void {
    this.choose("update", ["ema", "sign", "off"]);
    this.clamp("step", 0, STEPS);
    this.clamp("skew", 0, 2);
    this.clamp("speed", 1, 20);
    this.clamp("token", 0, TOKENS - 1);
    this.clamp("experts", 4, 64);
  }

  protected override advance(): boolean {
    const step = Math.min(STEPS, this.get("step") + 4);
    this.set("step", this.get("step") >= STEPS ? 0 : step);
    return step < STEPS;
  }

  protected override finish(): void {
    this.set("step", STEPS);
  }

  protected override accept(file: unknown): string {
    if (Array.isArray(file)) {
      const rows = file as Record<string, unknown>[];
      const key = rows.flatMap((row) => Object.keys(row)).find((name) => name.startsWith("moe/load_cv"));
      if (!key) throw new Error("no field moe/load_cv/… in these lines: load the metrics.jsonl of a run with experts");
      this.recorded = rows.filter((row) => key in row).map((row, i) => [Number(row.step ?? i), Number(row[key])]);
      return `${this.recorded.length} records of ${key}, drawn as a third line over the run's own steps.`;
    }
    this.config = asConfig(file);
    const m = this.config.model;
    this.set("experts", m.n_routed_experts);
    this.set("update", m.moe_bias_update);
    return `${m.n_routed_experts} experts, ${m.n_activated_experts} per token, bias speed ${m.moe_bias_speed}.`;
  }

  private get model() {
    return (this.config ?? this.presets!.presets.hymo_750m).model;
  }

  private logits(step: number, token: number): number[] {
    const experts = this.get("experts");
    const uniform = random(7919 * step + token + 1);
    const skew = this.get("skew");
    return Array.from({ length: experts }, (_, i) => normal(uniform) + skew * (1 - (2 * i) / (experts - 1)));
  }

  private trace(): Trace {
    const key = JSON.stringify([this.state.update, this.state.skew, this.state.speed, this.state.experts, this.model.moe_bias_speed]);
    if (this.cached?.key === key) return this.cached.trace;
    const m = this.model;
    const experts = this.get("experts");
    const k = Math.min(m.n_activated_experts, experts);
    const rule = { update: String(this.state.update), alpha: m.moe_ema_alpha, speed: m.moe_bias_speed * this.get("speed"), band: m.moe_dead_band };
    let state: Balance = { bias: new Array<number>(experts).fill(0), ema: new Array<number>(experts).fill(1 / experts) };
    const trace: Trace = { counts: [], states: [], variation: [] };
    const recent: number[][] = [];
    for (let step = 0; step <= STEPS; step++) {
      const counts = new Array<number>(experts).fill(0);
      for (let token = 0; token < 64; token++) {
        for (const i of route(this.logits(step, token), state.bias, k, m.router_score, m.route_scale).chosen) counts[i]++;
      }
      trace.counts.push(counts);
      trace.states.push(state);
      recent.push(counts);
      if (recent.length > WINDOW) recent.shift();
      trace.variation.push(variation(counts.map((_, i) => recent.reduce((sum, row) => sum + row[i], 0))));
      if (rule.update !== "off") state = updateBias(state, counts, rule);
    }
    this.cached = { key, trace };
    return trace;
  }

  override render(): TemplateResult {
    if (!this.presets) return this.frame(html``, html``, "");
    const m = this.model;
    const trace = this.trace();
    const step = this.get("step");
    const token = this.get("token");
    const k = Math.min(m.n_activated_experts, this.get("experts"));
    const bias = trace.states[step].bias;
    const found = route(this.logits(step, token), bias, k, m.router_score, m.route_scale);
    const span = trace.counts.slice(Math.max(0, step - WINDOW + 1), step + 1);
    const load = trace.counts[step].map((_, i) => span.reduce((sum, counts) => sum + counts[i], 0) / span.length);
    const cv = variation(load);
    const unbiased = route(this.logits(step, token), bias.map(() => 0), k, m.router_score, m.route_scale).chosen;
    const moved = found.chosen.filter((i) => !unbiased.includes(i));
    this.dataset.variation = cv.toFixed(3);
    this.dataset.chosen = found.chosen.join(",");
    const controls = html`
      ${this.select("update", "Bias update", [["ema", "smoothed, dead band"], ["sign", "sign of each step"], ["off", "off"]])}
      ${this.slider("step", "Step", 0, STEPS, 1)}
      ${this.slider("skew", "Router's preference", 0, 2, 0.1, (x) => x.toFixed(1))}
      ${this.slider("speed", "Speed, × the preset's", 1, 20, 1)}
      ${this.slider("token", "Token", 0, TOKENS - 1, 1)}
      <div class="buttons">${this.playButton("Play steps", 60)}${this.resetButton()}</div>
      ${this.file("Your config or metrics.jsonl")}
    `;
    const weights = found.chosen.map((i, j) => `${found.weights[j].toFixed(3)}·expert ${i}`).join(" + ");
    const busiest = load.indexOf(Math.max(...load));
    const said = html`At step ${step} the busiest expert is ${busiest} with ${(load[busiest] / (load.reduce((a, b) => a + b, 0) / load.length)).toFixed(1)}
      times the uniform load; the variation is <b>${cv.toFixed(2)}</b>, at the start it was ${trace.variation[0].toFixed(2)}.
      Token ${token} goes to experts <b>${found.chosen.join(" and ")}</b>${moved.length ? html`; without the bias it would have been ${unbiased.join(" and ")}` : ""}.`;
    return this.frame(
      controls,
      html`${this.draw(trace, load, bias, found.scores, found.chosen, step)}
        <p class="formula" tabindex="0" role="group" aria-label="Output of the mixture for this token">y = ${m.n_shared_experts ? "shared(x) + " : ""}${weights}</p>`,
      said,
      this.table(
        "Scores, bias and load as numbers",
        ["expert", "score", "bias", "score + bias", "load"],
        load.map((n, i) => [i, found.scores[i].toFixed(4), bias[i].toFixed(4), (found.scores[i] + bias[i]).toFixed(4), n.toFixed(1)]),
      ),
    );
  }

  private draw(trace: Trace, load: number[], bias: number[], scores: number[], chosen: number[], step: number): TemplateResult {
    const wide = this.width - 34;
    const experts = load.length;
    const slot = wide / experts;
    const high = 120;
    const y = scaleLinear([0, Math.max(...load, ...trace.counts[0])], [0, high]);
    const uniform = load.reduce((a, b) => a + b, 0) / experts;
    const first = trace.counts[0];
    const bars = load.map((n, i) => svg`
      <rect x=${i * slot + 1.5} y=${20 + high - y(n)} width=${slot - 3} height=${Math.max(1, y(n))} rx="2" fill=${n > 1.25 * uniform ? "var(--hymo-mla)" : "var(--hymo-gdn)"}></rect>
      <rect x=${i * slot + 1.5} y=${20 + high - y(first[i])} width=${slot - 3} height=${Math.max(1, y(first[i]))} rx="2" fill="none" stroke="var(--hymo-soft)" stroke-dasharray="2 3"></rect>
      ${chosen.includes(i) ? svg`<path d=${`M${i * slot + slot / 2 - 5},${high + 38} l5,-8 l5,8 z`} fill="var(--hymo-third)"></path>` : ""}
      ${slot > 15 ? svg`<text class="soft" x=${i * slot + slot / 2} y=${high + 52} text-anchor="middle">${i}</text>` : ""}`);
    const top2 = high + 84;
    const scoreHigh = 64;
    const topScore = Math.max(1, ...scores.map((s, i) => s + bias[i]));
    const scored = scores.map((s, i) => {
      const zero = top2 + scoreHigh;
      const a = (scoreHigh * s) / topScore;
      const b = (scoreHigh * bias[i]) / topScore;
      return svg`<rect x=${i * slot + 1.5} y=${zero - a} width=${slot - 3} height=${a} rx="2" fill="var(--hymo-third)" fill-opacity=${chosen.includes(i) ? 0.95 : 0.3}></rect>
        <line x1=${i * slot + 1.5} x2=${(i + 1) * slot - 1.5} y1=${zero - a - b} y2=${zero - a - b} stroke="var(--hymo-ink)" stroke-width="2"></line>`;
    });
    const top3 = top2 + scoreHigh + 34;
    const lineHigh = 96;
    const steps = Math.max(STEPS, ...this.recorded.map(([s]) => s));
    const px = scaleLinear([0, STEPS], [30, wide - 4]);
    const rx = scaleLinear([0, steps], [30, wide - 4]);
    const most = Math.max(...trace.variation, ...this.recorded.map(([, v]) => v));
    const py = scaleLinear([0, most], [top3 + lineHigh, top3 + 8]);
    const path = line<number>().x((_, i) => px(i)).y((v) => py(v))(trace.variation) ?? "";
    const own = line<[number, number]>().x(([s]) => rx(s)).y(([, v]) => py(v))(this.recorded) ?? "";
    const total = top3 + lineHigh + 8;
    return html`<svg width=${wide} height=${total} role="img" aria-label=${`Load of ${experts} experts at step ${step}, the chosen token's scores and bias, and the load's variation over steps`}>
      <text class="soft" x="0" y="12">load of each expert; dotted: at the start; line: uniform</text>
      ${bars}
      <line x1="0" x2=${wide} y1=${20 + high - y(uniform)} y2=${20 + high - y(uniform)} stroke="var(--hymo-ink)" stroke-dasharray="4 3"></line>
      <text class="soft" x="0" y=${top2 - 12}>this token's scores; mark: score + bias</text>
      ${scored}
      <text class="soft" x="0" y=${top3 - 4}>variation of the load over steps</text>
      <line class="axis" x1="30" x2=${wide} y1=${py(0)} y2=${py(0)}></line>
      <text class="soft" x="24" y=${py(most) + 10} text-anchor="end">${most.toFixed(1)}</text>
      <path d=${path} fill="none" stroke="var(--hymo-gdn)" stroke-width="1.6"></path>
      ${own ? svg`<path d=${own} fill="none" stroke="var(--hymo-third)" stroke-width="1.6" stroke-dasharray="5 3"></path>` : ""}
      <line x1=${px(step)} x2=${px(step)} y1=${top3} y2=${top3 + lineHigh} stroke="var(--hymo-mla)" stroke-width="2"></line>
    </svg>`;
  }
}

customElements.define("hymo-moe-lab", MoeLab);
