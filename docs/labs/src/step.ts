// Lab: one training step. Phases and what each holds in memory; Newton-Schulz on singular values; the schedule.
import { css, html, svg, type CSSResultGroup, type TemplateResult } from "lit";
import { scaleLinear } from "d3-scale";
import { line } from "d3-shape";
import type { Config } from "./maths/config";
import { trainingMemory, type Memory } from "./maths/memory";
import { totalSteps, tokensPerStep } from "./maths/planner";
import { factor, newtonSchulz, schedule } from "./maths/step";
import { Lab, asConfig, number, size } from "./ui/base";

const PHASES: [string, string, string][] = [
  ["rest", "Between steps", "Masters and optimizer states are all that stays."],
  ["forward", "Forward", "Every block leaves what its backward pass will need: activations grow block by block."],
  ["loss", "Loss", "The output heads and their cross-entropy work in chunks; no logit of the whole batch is ever stored."],
  ["backward", "Backward", "Activations are used up, gradients fill in fp32."],
  ["clip", "Clip", "One norm over all gradients; a norm above the limit scales all of them."],
  ["update", "Update", "NorMuon orthogonalises each matrix's momentum, AdamW updates the rest; then router biases move."],
];
const ITEMS: [keyof Memory, string, string][] = [
  ["masters", "fp32 masters", "var(--hymo-gdn)"],
  ["normuon", "NorMuon states", "var(--hymo-third)"],
  ["adamw", "AdamW states", "var(--hymo-mla)"],
  ["weights", "compute copy", "var(--hymo-soft)"],
  ["gradients", "gradients", "var(--hymo-bad)"],
  ["activations", "activations", "var(--hymo-ink)"],
  ["logits", "heads and loss", "var(--hymo-line)"],
];
const SINGULAR = [1, 0.5, 0.2, 0.1, 0.05, 0.02];

class StepLab extends Lab {
  protected defaults = { preset: "hymo_750m", phase: 1, level: "none", batch: 4, iterations: 5, at: 0.5 };
  private own?: Config;

  protected override settle(): void {
    if (!this.presets) return;
    this.choose("preset", [...Object.keys(this.presets.presets), "yours"]);
    if (this.state.preset === "yours" && !this.own) this.state.preset = this.defaults.preset;
    this.choose("level", this.presets.constants.levels);
    this.clamp("phase", 0, PHASES.length - 1);
    this.clamp("batch", 1, 32);
    this.clamp("iterations", 0, 8);
    this.clamp("at", 0, 1);
  }

  protected override advance(): boolean {
    const next = (this.get("phase") + 1) % PHASES.length;
    this.set("phase", next);
    return next < PHASES.length - 1;
  }

  protected override finish(): void {
    this.set("phase", PHASES.length - 1);
  }

  protected override accept(file: unknown): string {
    this.own = asConfig(file);
    this.set("preset", "yours");
    this.set("batch", this.own.training.micro_batch_size);
    return `${this.own.run.name}, micro-batch ${this.own.training.micro_batch_size}.`;
  }

  /** Bytes of each item in a phase. Activations at their peak: what the forward pass has left and the loss starts from. */
  private held(memory: Memory, phase: string): Record<string, number> {
    const always = { masters: memory.masters, normuon: memory.normuon, adamw: memory.adamw };
    const none = { weights: 0, gradients: 0, activations: 0, logits: 0 };
    const by: Record<string, Partial<Record<keyof Memory, number>>> = {
      rest: {},
      forward: { weights: memory.weights, activations: memory.activations },
      loss: { weights: memory.weights, activations: memory.activations, logits: memory.logits },
      backward: { weights: memory.weights, activations: memory.activations, gradients: memory.gradients, logits: memory.logits },
      clip: { gradients: memory.gradients, weights: memory.weights },
      update: { gradients: memory.gradients, weights: memory.weights },
    };
    return { ...always, ...none, ...by[phase] };
  }

  override render(): TemplateResult {
    if (!this.presets) return this.frame(html``, html``, "");
    const config = this.own && this.state.preset === "yours" ? this.own : this.presets.presets[String(this.state.preset)];
    const constants = this.presets.constants;
    const memory = trainingMemory(config, constants, 1, this.get("batch"), String(this.state.level), true);
    const phases = PHASES.map(([key]) => this.held(memory, key));
    const totals = phases.map((held) => Object.values(held).reduce((a, b) => a + b, 0));
    const [, title, text] = PHASES[this.get("phase")];
    const peak = totals.indexOf(Math.max(...totals));
    const s = config.scheduler;
    const steps = totalSteps(config);
    const plan = schedule(steps, s.warmup_frac, s.decay_frac, s.min_lr_ratio, s.decay_shape);
    const step = Math.min(steps - 1, Math.floor(this.get("at") * steps));
    const f = factor(plan, step);
    const values = newtonSchulz(SINGULAR, this.get("iterations"), constants.newtonSchulz.polar_express);
    this.dataset.peak = String(memory.total);
    this.dataset.phase = PHASES[this.get("phase")][0];
    this.dataset.factor = f.toFixed(4);
    const presets = Object.keys(this.presets.presets).map((name): [string, string] => [name, name]);
    const controls = html`
      ${this.select("preset", "Configuration", this.own ? [...presets, ["yours", this.own.run.name]] : presets)}
      ${this.slider("phase", "Phase", 0, PHASES.length - 1, 1, (x) => PHASES[x]?.[1] ?? "")}
      ${this.slider("batch", "Sequences per pass", 1, 32, 1)}
      ${this.select("level", "Recompute", constants.levels.map((level) => [level, level === "selective" ? "experts" : level === "full" ? "whole blocks" : "nothing"]))}
      ${this.slider("iterations", "Newton-Schulz iterations", 0, 8, 1)}
      ${this.slider("at", "Place in the run", 0, 1, 0.005, (x) => `step ${number(Math.min(steps - 1, Math.floor(x * steps)))}`)}
      <div class="buttons">${this.playButton("Play a step", 1100)}${this.resetButton()}</div>
      ${this.file("Your config (YAML, JSON)")}
    `;
    const last = values.at(-1)!.map(Math.abs);
    const said = html`<b>${title}.</b> ${text} Held now: <b>${size(totals[this.get("phase")])}</b>; the peak is
      ${size(totals[peak])} in “${PHASES[peak][1]}”. After ${this.get("iterations")} iterations the singular values lie between
      ${Math.min(...last).toFixed(2)} and ${Math.max(...last).toFixed(2)}. At step ${number(step)} of ${number(steps)} (${number(tokensPerStep(config))} tokens each)
      both rates stand at ${(100 * f).toFixed(0)} % of their peaks: NorMuon ${(config.optimizer.muon_lr * f).toPrecision(2)}, AdamW ${(config.optimizer.adamw_lr * f).toPrecision(2)}.`;
    return this.frame(
      controls,
      html`${this.bars(phases, totals)}
        <div class="pair">${this.orthogonal(values)}${this.curve(plan, steps, step)}</div>`,
      said,
      this.table(
        "Memory by phase as numbers",
        ["item", ...PHASES.map(([, name]) => name)],
        [...ITEMS.map(([key, name]) => [name, ...phases.map((held) => size(held[key]))]), ["total", ...totals.map(size)]],
      ),
    );
  }

  private bars(phases: Record<string, number>[], totals: number[]): TemplateResult {
    const wide = this.width - 34;
    const left = 98;
    const x = scaleLinear([0, Math.max(...totals)], [0, wide - left - 74]);
    const rows = phases.map((held, i) => {
      let at = left;
      const now = i === this.get("phase");
      return svg`<g transform="translate(0 ${22 + i * 34})">
        <text x="0" y="17" style=${now ? "font-weight:600" : ""}>${PHASES[i][1]}</text>
        ${ITEMS.map(([key, , hue]) => {
          const w = x(held[key]);
          const piece = svg`<rect x=${at} y="2" width=${Math.max(0, w - 1)} height="22" fill=${hue} fill-opacity=${(key === "activations" ? 0.55 : 0.9) * (now ? 1 : 0.45)}></rect>`;
          at += w;
          return w > 0.5 ? piece : "";
        })}
        <text class="soft" x=${at + 6} y="17">${size(totals[i])}</text>
      </g>`;
    });
    return html`<svg width=${wide} height=${22 + phases.length * 34} role="img" aria-label="Memory held in each phase of a step, by item">
        <text class="soft" x="0" y="12">held on one device, estimated</text>${rows}</svg>
      <p class="legend">${ITEMS.map(([key, name, hue]) => html`<span><i style=${`background:${hue};opacity:${key === "activations" ? 0.55 : 0.9}`}></i>${name}</span>`)}</p>`;
  }

  private orthogonal(values: number[][]): TemplateResult {
    const wide = this.width > 560 ? Math.floor((this.width - 60) / 2) : this.width - 34;
    const [left, high] = [30, 150];
    const n = values.length - 1;
    const x = scaleLinear([0, Math.max(1, n)], [left, wide - 12]);
    const top = Math.max(1.4, ...values.flat().map(Math.abs));
    const y = scaleLinear([0, top], [high, 24]);
    const lines = SINGULAR.map((_, s) => svg`<path fill="none" stroke="var(--hymo-gdn)" stroke-width="1.8" stroke-opacity=${1 - s * 0.12} d=${line<number[]>().x((_, i) => x(i)).y((row) => y(Math.abs(row[s])))(values) ?? ""}></path>
      <circle cx=${x(n)} cy=${y(Math.abs(values[n][s]))} r="3" fill="var(--hymo-gdn)"></circle>`);
    return html`<svg width=${wide} height=${high + 22} role="img" aria-label=${`Singular values over ${n} Newton-Schulz iterations`}>
      <text class="soft" x="0" y="12">singular values of an update</text>
      ${[0, 1].map((v) => svg`<line class="axis" x1=${left} x2=${wide - 12} y1=${y(v)} y2=${y(v)}></line><text class="soft" x=${left - 8} y=${y(v) + 4} text-anchor="end">${v}</text>`)}
      ${lines}
      <text class="soft" x=${wide - 12} y=${high + 17} text-anchor="end">iteration ${n}</text>
    </svg>`;
  }

  private curve(plan: ReturnType<typeof schedule>, steps: number, step: number): TemplateResult {
    const wide = this.width > 560 ? Math.floor((this.width - 60) / 2) : this.width - 34;
    const [left, high] = [30, 150];
    const x = scaleLinear([0, steps - 1], [left, wide - 12]);
    const y = scaleLinear([0, 1.1], [high, 24]);
    const places = [...new Set([...Array.from({ length: 60 }, (_, i) => Math.floor((i / 59) * (steps - 1))), plan.warmup, plan.warmup + plan.stable - 1])]
      .filter((i) => i >= 0 && i < steps)
      .sort((a, b) => a - b);
    return html`<svg width=${wide} height=${high + 22} role="img" aria-label=${`Factor of both learning rates over ${number(steps)} steps`}>
      <text class="soft" x="0" y="12">factor of both learning rates</text>
      ${[0, 1].map((v) => svg`<line class="axis" x1=${left} x2=${wide - 12} y1=${y(v)} y2=${y(v)}></line><text class="soft" x=${left - 8} y=${y(v) + 4} text-anchor="end">${v}</text>`)}
      <path d=${line<number>().x((i) => x(i)).y((i) => y(factor(plan, i)))(places) ?? ""} fill="none" stroke="var(--hymo-mla)" stroke-width="2"></path>
      <circle cx=${x(step)} cy=${y(factor(plan, step))} r="5" fill="var(--hymo-third)"></circle>
      <text class="soft" x=${wide - 12} y=${high + 17} text-anchor="end">${number(steps)} steps</text>
    </svg>`;
  }

  static override styles: CSSResultGroup = [
    Lab.styles,
    css`
      .legend { display: flex; flex-wrap: wrap; gap: 4px 14px; margin: 6px 0 16px; font-size: 13px; color: var(--hymo-soft); }
      .legend i { display: inline-block; width: 11px; height: 11px; margin-right: 5px; border: 1px solid var(--hymo-line); }
      .pair { display: flex; flex-wrap: wrap; gap: 14px 26px; }
    `,
  ];
}

customElements.define("hymo-step-lab", StepLab);
