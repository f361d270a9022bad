// Lab: bytes that a context costs under five designs of attention, from the preset's own numbers.
import { html, svg, type TemplateResult } from "lit";
import { scaleLinear, scaleLog } from "d3-scale";
import { line } from "d3-shape";
import { cacheBytes, cacheNumbers, countParameters, stateBytes } from "./maths/accounting";
import type { Config, Model } from "./maths/config";
import { Lab, asConfig, number, size } from "./ui/base";

interface Design {
  name: string;
  numbers: number;
  layers: number;
  fixed: number;
  dash: string;
  hue: string;
}

class CacheLab extends Lab {
  protected defaults = { preset: "hymo_750m", context: 15, sequences: 1, device: "h200" };
  private own?: Config;

  protected override settle(): void {
    if (!this.presets) return;
    this.choose("preset", [...Object.keys(this.presets.presets), "yours"]);
    if (this.state.preset === "yours" && !this.own) this.state.preset = this.defaults.preset;
    this.choose("device", this.presets.devices.filter((d) => d.memory).map((d) => d.key));
    this.clamp("context", 8, 20);
    this.clamp("sequences", 1, 256);
  }

  protected override accept(file: unknown): string {
    this.own = asConfig(file);
    this.set("preset", "yours");
    return `${this.own.run.name}: ${cacheNumbers(this.own.model)} cached numbers per token and attention layer.`;
  }

  private designs(m: Model): Design[] {
    const plain = (groups: number) => groups * (m.head_dim + m.v_head_dim);
    const latent = cacheNumbers({ ...m, mla_latent: true });
    const all = m.n_layers;
    return [
      { name: `MHA: ${m.n_heads} groups, every layer`, numbers: plain(m.n_heads), layers: all, fixed: 0, dash: "", hue: "var(--hymo-soft)" },
      { name: `GQA: ${m.n_kv_groups} groups, every layer`, numbers: plain(m.n_kv_groups), layers: all, fixed: 0, dash: "8 3", hue: "var(--hymo-soft)" },
      { name: "MQA: one group, every layer", numbers: plain(1), layers: all, fixed: 0, dash: "2 3", hue: "var(--hymo-soft)" },
      { name: "MLA in every layer", numbers: latent, layers: all, fixed: 0, dash: "6 3", hue: "var(--hymo-mla)" },
      { name: `HyMo: MLA in ${m.mla_layers.length} of ${all}`, numbers: cacheNumbers(m), layers: m.mla_layers.length, fixed: stateBytes(m), dash: "", hue: "var(--hymo-gdn)" },
    ];
  }

  override render(): TemplateResult {
    if (!this.presets) return this.frame(html``, html``, "");
    const config = this.own && this.state.preset === "yours" ? this.own : this.presets.presets[String(this.state.preset)];
    const m = config.model;
    const context = 2 ** this.get("context");
    const sequences = this.get("sequences");
    const device = this.presets.devices.find((d) => d.key === this.state.device)!;
    const weights = 2 * countParameters(m).stored;
    const designs = this.designs(m);
    const bytes = (d: Design, at = context): number => sequences * (2 * d.numbers * d.layers * at + d.fixed);
    const free = Math.max(0, device.memory! - weights);
    const mine = designs.at(-1)!;
    const against = bytes(designs[0]) / bytes(mine);
    this.dataset.bytes = String(cacheBytes(m, context) * sequences);
    this.dataset.ratio = against.toFixed(1);
    const presets = Object.keys(this.presets.presets).map((name): [string, string] => [name, name]);
    const controls = html`
      ${this.select("preset", "Shape", this.own ? [...presets, ["yours", this.own.run.name]] : presets)}
      ${this.slider("context", "Context, tokens", 8, 20, 1, (x) => number(2 ** x))}
      ${this.slider("sequences", "Sequences at once", 1, 256, 1)}
      ${this.select("device", "Device", this.presets.devices.filter((d) => d.memory).map((d) => [d.key, d.name]))}
      ${this.file("Your config (YAML, JSON)")}
      <div class="buttons">${this.resetButton()}</div>
    `;
    const fits = (d: Design): number => Math.floor(free / Math.max(1, bytes(d) / sequences));
    const said = html`${number(sequences)} ${sequences === 1 ? "sequence" : "sequences"} of ${number(context)} tokens:
      HyMo holds <b>${size(bytes(mine))}</b>, of which ${size(sequences * mine.fixed)} is recurrent state; full multi-head attention would hold
      ${size(bytes(designs[0]))}, <b>${against.toFixed(0)} times</b> as much. Beside the weights, ${device.name} has room for
      ${number(fits(mine))} such sequences against ${number(fits(designs[0]))}.`;
    return this.frame(
      controls,
      this.draw(designs, bytes, context, free, device.name),
      said,
      this.table(
        "Bytes as numbers",
        ["design", "numbers per token and layer", "layers", "per sequence", "all sequences"],
        designs.map((d) => [d.name, number(d.numbers), d.layers, size(bytes(d) / sequences), size(bytes(d))]),
      ),
    );
  }

  private draw(designs: Design[], bytes: (d: Design, at?: number) => number, context: number, free: number, device: string): TemplateResult {
    const wide = this.width - 34;
    const top = bytes(designs[0]);
    const x = scaleLinear([0, top], [0, wide - 92]);
    const rows = designs.map((d, i) => svg`<g transform="translate(0 ${i * 42})">
      <text x="0" y="12">${d.name}</text>
      <rect x="0" y="18" width=${Math.max(2, x(bytes(d)))} height="15" rx="3" fill=${d.hue} fill-opacity=${d.hue === "var(--hymo-soft)" ? 0.55 : 1}></rect>
      <text class="soft" x=${x(bytes(d)) + 8} y="30">${size(bytes(d))}</text>
    </g>`);
    const barsHigh = designs.length * 42;
    const [left, high] = [62, 190];
    const px = scaleLog([2 ** 8, 2 ** 20], [left, wide - 8]).base(2);
    const low = Math.min(...designs.map((d) => bytes(d, 2 ** 8)));
    const py = scaleLog([low / 2, bytes(designs[0], 2 ** 20) * 2], [high, 8]).base(2);
    const ticks = [20, 25, 30, 35, 40, 45].map((p) => 2 ** p).filter((v) => v > low / 2 && v < bytes(designs[0], 2 ** 20) * 2);
    const grid = Array.from({ length: 13 }, (_, i) => 2 ** (8 + i));
    const path = (d: Design) => line<number>().x((at) => px(at)).y((at) => py(bytes(d, at)))(grid) ?? "";
    const limit = free > 0 && free > low / 2 && free < bytes(designs[0], 2 ** 20) * 2;
    return html`<svg width=${wide} height=${barsHigh} role="img" aria-label="Bytes of the cache by design at the chosen context">${rows}</svg>
      <svg width=${wide} height=${high + 36} role="img" aria-label="Bytes of the cache by context, both axes logarithmic">
        ${ticks.map((v) => svg`<line class="axis" x1=${left} x2=${wide} y1=${py(v)} y2=${py(v)}></line><text class="soft" x=${left - 6} y=${py(v) + 4} text-anchor="end">${size(v).replace(/\.\d+/, "")}</text>`)}
        ${(wide > 420 ? [8, 12, 16, 20] : [8, 14, 20]).map((p) => svg`<text class="soft" x=${px(2 ** p)} y=${high + 16} text-anchor=${p === 20 ? "end" : "middle"}>${number(2 ** p)}</text>`)}
        <text class="soft" x=${(left + wide) / 2} y=${high + 32} text-anchor="middle">tokens of context</text>
        ${designs.map((d) => svg`<path d=${path(d)} fill="none" stroke=${d.hue} stroke-width=${d.fixed ? 3 : 1.6} stroke-dasharray=${d.dash}></path>`)}
        ${limit ? svg`<line x1=${left} x2=${wide} y1=${py(free)} y2=${py(free)} stroke="var(--hymo-bad)" stroke-dasharray="4 3"></line><text x=${left + 4} y=${py(free) - 5}>free on ${device}</text>` : ""}
        <line x1=${px(context)} x2=${px(context)} y1="8" y2=${high} stroke="var(--hymo-third)"></line>
      </svg>`;
  }
}

customElements.define("hymo-cache-lab", CacheLab);
