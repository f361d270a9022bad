// Lab: the planner, in the page.
import { css, html, svg, type CSSResultGroup, type TemplateResult } from "lit";
import { scaleLinear } from "d3-scale";
import type { Config } from "./maths/config";
import { makePlan, type Plan } from "./maths/planner";
import { Lab, asConfig, number, short, size } from "./ui/base";

const ITEMS: [string, string, string][] = [
  ["weights", "compute copy", "var(--hymo-soft)"],
  ["masters", "masters", "var(--hymo-gdn)"],
  ["gradients", "gradients", "var(--hymo-bad)"],
  ["normuon", "NorMuon", "var(--hymo-third)"],
  ["adamw", "AdamW", "var(--hymo-mla)"],
  ["activations", "activations", "var(--hymo-ink)"],
  ["logits", "heads and loss", "var(--hymo-line)"],
];

class PlannerLab extends Lab {
  protected defaults = { preset: "hymo_750m", device: "h200", gpus: 1, batch: 0, tokens: 0, price: 2 };
  private own?: Config;

  protected override settle(): void {
    if (!this.presets) return;
    this.choose("preset", [...Object.keys(this.presets.presets), "yours"]);
    if (this.state.preset === "yours" && !this.own) this.state.preset = this.defaults.preset;
    this.choose("device", this.presets.devices.map((d) => d.key));
    this.clamp("gpus", 1, 64);
    this.clamp("batch", 0, 64);
    this.clamp("tokens", 0, 100);
    this.clamp("price", 0, 10);
  }

  protected override accept(file: unknown): string {
    this.own = asConfig(file);
    this.set("preset", "yours");
    return `${this.own.run.name} is planned below.`;
  }

  private get config(): Config {
    const base = this.own && this.state.preset === "yours" ? this.own : this.presets!.presets[String(this.state.preset)];
    const made = structuredClone(base);
    if (this.get("batch")) {
      const sequences = made.training.micro_batch_size * made.training.grad_accum_steps;
      made.training.micro_batch_size = this.get("batch");
      made.training.grad_accum_steps = Math.max(1, Math.round(sequences / this.get("batch")));
    }
    if (this.get("tokens")) {
      made.scheduler.total_steps = null;
      made.scheduler.total_tokens = this.get("tokens") * 1e9;
    }
    return made;
  }

  override render(): TemplateResult {
    if (!this.presets) return this.frame(html``, html``, "");
    const config = this.config;
    const device = this.presets.devices.find((d) => d.key === this.state.device) ?? null;
    const gpus = this.get("gpus");
    const plan = makePlan(config, this.presets.constants, device, gpus, null, this.get("price"));
    const level = config.training.activation_checkpointing;
    const chosen = plan.levels[level];
    this.dataset.total = String(chosen.memory.total);
    this.dataset.tokens = String(plan.tokens);
    this.dataset.days = plan.throughput ? plan.throughput.days.toFixed(3) : "";
    const presets = Object.keys(this.presets.presets).map((name): [string, string] => [name, name]);
    const controls = html`
      ${this.select("preset", "Configuration", this.own ? [...presets, ["yours", this.own.run.name]] : presets)}
      ${this.select("device", "Device", this.presets.devices.map((d) => [d.key, d.name]))}
      ${this.slider("gpus", "Devices", 1, 64, 1)}
      ${this.slider("batch", "Micro-batch", 0, 64, 1, (x) => (x ? String(x) : `preset: ${this.presets!.presets[String(this.state.preset)]?.training.micro_batch_size ?? config.training.micro_batch_size}`))}
      ${this.slider("tokens", "Tokens, billions", 0, 100, 1, (x) => (x ? String(x) : `preset: ${short(plan.tokens)}`))}
      ${this.slider("price", "Price per device-hour", 0, 10, 0.1, (x) => x.toFixed(2))}
      ${this.file("Your config (YAML, JSON)")}
      <div class="buttons">${this.resetButton()}</div>
    `;
    const speed = plan.throughput;
    const time = speed
      ? html`at ${(100 * speed.utilisation).toFixed(0)} % of the peak, by efficiencies of ${this.presets.constants.measured.presets.join(" and ")} on one ${this.presets.constants.measured.device}, it takes
          <b>${speed.days < 2 ? `${(speed.days * 24).toFixed(1)} hours` : `${speed.days.toFixed(1)} days`}</b> and costs <b>${number(speed.cost ?? 0)}</b>.`
      : html`there is no throughput for it: ${device?.peak ? "the peak is for bf16, this run computes in fp32" : "its bf16 peak depends on the machine"}.`;
    const said = html`<b>${config.run.name}</b> on ${gpus} × ${device?.name}: ${short(plan.tokens)} tokens in ${number(plan.steps)} steps; ${time}
      ${plan.possible
        ? chosen.fits === false
          ? html` Micro-batch ${config.training.micro_batch_size} does <b>not fit</b> without more recomputation: the largest that fit are ${Object.entries(plan.levels).map(([name, l]) => `${name} ${l.largest}`).join(", ")}.`
          : chosen.fits
            ? html` It fits: ${size(chosen.memory.total)} of ${size(plan.usable!)} usable.`
            : ""
        : html` <b>It does not fit at any level.</b>`}`;
    const facts: [string, string][] = [
      ["parameters stored", number(plan.stored)],
      ["parameters active per token", number(plan.active)],
      ["FLOPs per trained token", `${short(plan.flopsPerToken)}`],
      ["tokens per step", number(plan.tokensPerStep)],
      ["forward passes per step", `${plan.passes} of ${config.training.micro_batch_size} sequences`],
      ["expected tokens per second", speed ? short(speed.tokensPerSecond) : "–"],
      ["received per device and step", size(plan.communication)],
      ["attention cache at the context", size(plan.cache)],
      ["recurrent state per sequence", size(plan.state)],
      ["one checkpoint", size(plan.checkpoint)],
      ["checkpoints on disk", size(plan.disk)],
    ];
    return this.frame(
      controls,
      html`${this.draw(plan, level)}
        <dl class="facts">${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`,
      said,
      this.table(
        "Memory by item as numbers",
        ["item", ...Object.keys(plan.levels)],
        [...ITEMS.map(([key, name]) => [name, ...Object.values(plan.levels).map((l) => size(l.memory[key as "total"]))]), ["total", ...Object.values(plan.levels).map((l) => size(l.memory.total))], ["largest micro-batch", ...Object.values(plan.levels).map((l) => l.largest ?? "–")]],
      ),
    );
  }

  private draw(plan: Plan, level: string): TemplateResult {
    const wide = this.width - 34;
    const names = Object.keys(plan.levels);
    const top = Math.max(...names.map((name) => plan.levels[name].memory.total), plan.usable ?? 0);
    const left = 76;
    const x = scaleLinear([0, top], [left, wide - 70]);
    const high = 26 + names.length * 40;
    return html`<svg width=${wide} height=${high + 6} role="img" aria-label="Memory per device by item at each level of activation checkpointing, against the usable memory">
        <text class="soft" x="0" y="12">memory per device, estimated, by recomputation</text>
        ${names.map((name, i) => {
          const memory = plan.levels[name].memory;
          let at = 0;
          return svg`<g transform="translate(0 ${24 + i * 40})">
            <text x="0" y="19" style=${name === level ? "font-weight:600" : ""}>${name}</text>
            ${ITEMS.map(([key, , hue]) => {
              const from = x(at);
              at += memory[key as "total"];
              return svg`<rect x=${from} y="4" width=${Math.max(0, x(at) - from - 1)} height="22" fill=${hue} fill-opacity=${(key === "activations" ? 0.55 : 0.9) * (name === level ? 1 : 0.6)}></rect>`;
            })}
            <text class="soft" x=${x(at) + 6} y="19">${size(memory.total)}</text>
          </g>`;
        })}
        ${plan.usable ? svg`<line x1=${x(plan.usable)} x2=${x(plan.usable)} y1="20" y2=${high} stroke="var(--hymo-bad)" stroke-width="2" stroke-dasharray="5 3"></line><text x=${Math.min(x(plan.usable), wide - 4)} y="12" text-anchor="end" style="fill:var(--hymo-bad)">${this.width > 480 ? `usable ${size(plan.usable)}` : ""}</text>` : ""}
      </svg>
      <p class="legend">${ITEMS.map(([key, name, hue]) => html`<span><i style=${`background:${hue};opacity:${key === "activations" ? 0.55 : 0.9}`}></i>${name}</span>`)}</p>`;
  }

  static override styles: CSSResultGroup = [
    Lab.styles,
    css`
      .legend { display: flex; flex-wrap: wrap; gap: 4px 14px; margin: 6px 0 10px; font-size: 13px; color: var(--hymo-soft); }
      .legend i { display: inline-block; width: 11px; height: 11px; margin-right: 5px; border: 1px solid var(--hymo-line); }
      .facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(250px, 100%), 1fr)); gap: 0 28px; margin: 6px 0 8px; }
      .facts div { display: flex; justify-content: space-between; gap: 12px; border-bottom: 1px solid var(--hymo-line); padding: 4px 0; font-size: 13px; }
      dt { color: var(--hymo-soft); }
      dd { margin: 0; font-variant-numeric: tabular-nums; }
    `,
  ];
}

customElements.define("hymo-planner-lab", PlannerLab);
