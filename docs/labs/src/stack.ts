// Home: every block of a preset. A block shows its shapes and parameters, a GDN block one head's decay and update.
import { css, html, svg, type CSSResultGroup, type TemplateResult } from "lit";
import { blockTensors, countParameters, gdnHeads, isMla, numel, total } from "./maths/accounting";
import type { Config } from "./maths/config";
import { linearRecurrent } from "./maths/recurrence";
import { normal, random } from "./maths/router";
import { Lab, asConfig, number, short } from "./ui/base";

const TOKENS = 12;
const NAMES: Record<string, string> = { gdn: "Gated Delta Net", mla: "Multi-head latent attention", moe: "Mixture of experts", ffn: "Feed-forward" };

class Stack extends Lab {
  protected defaults = { preset: "hymo_750m", layer: 1, head: 0, t: 4 };
  private own?: Config;

  protected override settle(): void {
    if (!this.presets) return;
    this.choose("preset", [...Object.keys(this.presets.presets), "yours"]);
    if (this.state.preset === "yours" && !this.own) this.state.preset = this.defaults.preset;
    const model = this.config.model;
    this.clamp("layer", 0, model.n_layers - 1);
    this.clamp("head", 0, gdnHeads(model) - 1);
    this.clamp("t", 1, TOKENS);
  }

  private get config(): Config {
    return this.own && this.state.preset === "yours" ? this.own : this.presets!.presets[String(this.state.preset)];
  }

  protected override accept(file: unknown): string {
    this.own = asConfig(file);
    this.set("preset", "yours");
    return `${this.own.run.name}, ${this.own.model.n_layers} layers.`;
  }

  protected override advance(): boolean {
    this.set("t", (this.get("t") % TOKENS) + 1);
    return this.get("t") < TOKENS;
  }

  protected override finish(): void {
    this.set("t", TOKENS);
  }

  override render(): TemplateResult {
    if (!this.presets) return html`<section class="lab" aria-label="Layers of the model"><div class="controls"></div></section>`;
    const config = this.config;
    const model = config.model;
    const layer = this.get("layer");
    const mla = isMla(model, layer);
    const count = countParameters(model);
    const parts = blockTensors(model, layer);
    const stored = parts.reduce((sum, [, tensors]) => sum + total(tensors), 0);
    this.dataset.layer = String(layer);
    this.dataset.parameters = String(stored);
    const presets = Object.keys(this.presets.presets).map((name): [string, string] => [name, name]);
    const controls = html`
      ${this.select("preset", "Configuration", this.own ? [...presets, ["yours", this.own.run.name]] : presets)}
      ${this.slider("layer", "Block", 0, model.n_layers - 1, 1)}
      ${mla ? "" : this.slider("head", "Head", 0, gdnHeads(model) - 1, 1)}
      ${mla ? "" : this.slider("t", "Token", 1, TOKENS, 1, (x) => `${x} of ${TOKENS}`)}
      ${this.file("Your config (YAML, JSON)")}
    `;
    const said = html`<b>${config.run.name}</b>: ${number(model.n_layers)} blocks, ${model.mla_layers.length} of them attention;
      ${short(count.stored)} parameters stored, ${short(count.active)} used per token. Block ${layer} is
      ${mla ? html`an <b>MLA</b> block${parts.length > 1 ? " with experts" : ""}` : html`a <b>GDN</b> block`}: ${number(stored)} parameters.`;
    return this.frame(
      controls,
      html`<div class="both">${this.tower(model.n_layers)}<div class="detail">${mla ? this.attention() : this.head()}</div>
        <div class="shapes">
          ${parts.map(
            ([part, tensors]) => html`<table>
              <caption>${NAMES[part]}</caption>
              <tbody>${tensors.map((t) => html`<tr><th scope="row">${t.name}</th><td>${t.shape.join(" × ")}</td></tr>`)}</tbody>
            </table>`,
          )}
        </div></div>`,
      said,
      this.table(
        `Parameters of block ${layer}`,
        ["tensor", "shape", "parameters", "role"],
        parts.flatMap(([part, tensors]) =>
          tensors.map((t) => [`${NAMES[part]} · ${t.name}`, t.shape.join(" × "), number(numel(t)), t.role]),
        ),
      ),
    );
  }

  private tower(layers: number): TemplateResult {
    const model = this.config.model;
    const columns = Math.min(layers, 4);
    return html`<div class="tower" role="group" aria-label="Blocks, first to last" style="grid-template-columns:repeat(${columns},1fr)" @keydown=${this.move}>
      ${Array.from({ length: layers }, (_, i) => {
        const mla = isMla(model, i);
        const chosen = i === this.get("layer");
        return html`<button
          type="button"
          class="block ${mla ? "mla" : "gdn"} ${chosen ? "chosen" : ""}"
          data-layer=${i}
          tabindex=${chosen ? 0 : -1}
          aria-pressed=${chosen}
          aria-label=${`Block ${i}, ${mla ? "MLA" : "GDN"}`}
          style=${`--i:${i}`}
          @click=${() => this.set("layer", i)}
          @mouseenter=${() => !mla && this.set("layer", i)}
          @focus=${() => i !== this.get("layer") && this.set("layer", i)}
        >
          ${i}
        </button>`;
      })}
      <p class="legend" style="grid-column:1/-1"><span class="swatch gdn"></span> GDN, fixed state<br /><span class="swatch mla"></span> MLA, growing cache</p>
    </div>`;
  }

  private move = (event: KeyboardEvent): void => {
    const columns = Math.min(this.config.model.n_layers, 4);
    const by = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
    if (!by) return;
    event.preventDefault();
    const next = Math.min(this.config.model.n_layers - 1, Math.max(0, this.get("layer") + by));
    this.set("layer", next);
    void this.updateComplete.then(() => this.renderRoot.querySelector<HTMLElement>(`[data-layer="${next}"]`)?.focus());
  };

  /** One head of a GDN block: what its rate keeps, and the state that a dozen tokens leave. */
  private head(): TemplateResult {
    const model = this.config.model;
    const heads = gdnHeads(model);
    const head = this.get("head");
    const t = this.get("t");
    const rate = heads > 1 ? 1 + (39 * head) / (heads - 1) : 1;
    const uniform = random(1000 * this.get("layer") + head);
    const draw = (n: number) => Array.from({ length: TOKENS }, () => Array.from({ length: n }, () => normal(uniform)));
    const shown = 8;
    const g = Array.from({ length: TOKENS }, () => 1 / (1 + Math.exp(-(normal(uniform) - 2.2))));
    const { states } = linearRecurrent(draw(shown), draw(shown), draw(shown), g, new Array<number>(shown).fill(rate));
    const state = states[t - 1];
    const top = Math.max(...state.flat().map(Math.abs), 1e-9);
    const wide = Math.min(300, this.width > 620 ? this.width - 270 : this.width - 34);
    const cell = Math.floor((wide - 16) / shown);
    const keep = g.map((gate) => Math.exp(-rate * gate));
    const bar = (cell * shown) / TOKENS;
    const plot = 66;
    this.dataset.keep = keep[t - 1].toFixed(4);
    return html`<p class="title">Head ${head} of ${heads}: rate A = ${rate.toFixed(2)} at initialisation</p>
      <svg width=${wide} height=${cell * shown + plot + 54} role="img" aria-label=${`State of head ${head} after ${t} tokens, and the share kept at each token`}>
        <text class="soft" x="0" y="12">kept per token, exp(−A·g)</text>
        ${keep.map((k, i) => svg`<rect x=${i * bar + 1} y=${20 + plot * (1 - k)} width=${bar - 2} height=${Math.max(1, plot * k)} rx="2" fill=${i === t - 1 ? "var(--hymo-mla)" : "var(--hymo-gdn)"} fill-opacity=${i < t ? 1 : 0.35}></rect>`)}
        <line class="axis" x1="0" x2=${cell * shown} y1=${20 + plot} y2=${20 + plot}></line>
        <text class="soft" x="0" y=${plot + 40}>state after token ${t}, ${shown} × ${shown} of ${model.gdn_d_state} × ${model.gdn_headdim}</text>
        ${state.flatMap((row, s) => row.map((x, d) => svg`<rect x=${d * cell} y=${plot + 48 + s * cell} width=${cell - 1.5} height=${cell - 1.5} rx="2" fill=${x >= 0 ? "var(--hymo-gdn)" : "var(--hymo-mla)"} fill-opacity=${(Math.abs(x) / top).toFixed(3)}></rect>`))}
      </svg>
      <p class="formula" tabindex="0" role="group" aria-label="Update of the state">H ← ${keep[t - 1].toFixed(3)}·H + b vᵀ, o = Hᵀ c</p>
      <div class="buttons">${this.playButton("Play tokens", 500)}</div>`;
  }

  private attention(): TemplateResult {
    const m = this.config.model;
    const rope = m.qk_rope_head_dim;
    const wide = Math.min(330, this.width > 620 ? this.width - 270 : this.width - 34);
    const cached = m.mla_latent ? m.kv_lora_rank + m.n_kv_groups * rope : m.n_kv_groups * (m.head_dim + m.v_head_dim);
    const all = m.n_heads * (m.head_dim + m.v_head_dim);
    const row = (y: number, text: string, share: number, hue: string) => svg`
      <text x="0" y=${y}>${text}</text><rect x="0" y=${y + 6} width=${Math.max(3, wide * share)} height="16" rx="3" fill=${hue}></rect>`;
    return html`<p class="title">What one token leaves in this block's cache</p>
      <svg width=${wide} height="150" role="img" aria-label=${`${cached} numbers cached per token; keys and values of every head would be ${all}`}>
        ${row(14, `keys and values of ${m.n_heads} heads: ${number(all)} numbers`, 1, "var(--hymo-line)")}
        ${row(64, m.mla_latent ? `latent: ${m.kv_lora_rank}` : `keys of ${m.n_kv_groups} groups`, (m.mla_latent ? m.kv_lora_rank : m.n_kv_groups * m.head_dim) / all, "var(--hymo-mla)")}
        ${row(114, m.mla_latent ? `rotated keys of ${m.n_kv_groups} groups: ${m.n_kv_groups * rope}` : `values of ${m.n_kv_groups} groups`, (m.mla_latent ? m.n_kv_groups * rope : m.n_kv_groups * m.v_head_dim) / all, "var(--hymo-third)")}
      </svg>
      <p class="formula" tabindex="0" role="group" aria-label="Cached numbers per token">${cached} of ${number(all)} numbers: ${(all / cached).toFixed(0)} times less</p>
      <p class="more">Its experts: ${m.n_activated_experts} of ${m.n_routed_experts} per token${m.n_shared_experts ? `, and ${m.n_shared_experts} that every token passes` : ""}.</p>`;
  }

  static override styles: CSSResultGroup = [
    Lab.styles,
    css`
      .both { display: grid; grid-template-columns: 216px minmax(0, 340px) minmax(0, 1fr); gap: 18px 32px; align-items: start; }
      .tower { display: grid; gap: 8px; justify-items: center; }
      .shapes { min-width: 0; }
      .shapes caption { text-align: left; font-weight: 600; padding-bottom: 2px; }
      .shapes table { width: 100%; margin: 0 0 12px; }
      .shapes th { font-family: var(--md-code-font-family, monospace); font-size: 12px; }
      .shapes td { padding-right: 0; }
      .block { width: 46px; height: 46px; min-height: 0; padding: 0; border: 2px solid transparent; color: var(--hymo-panel); font-weight: 600; font-variant-numeric: tabular-nums; }
      .block.gdn { background: var(--hymo-gdn); border-radius: 999px; }
      .block.mla { background: var(--hymo-mla); border-radius: 4px; }
      .block.chosen { border-color: var(--hymo-panel); outline: 2px solid var(--hymo-ink); outline-offset: 0; }
      .block:focus-visible { outline: 3px solid var(--hymo-ink); outline-offset: 2px; }
      .legend { margin: 4px 0 0; font-size: 13px; color: var(--hymo-soft); }
      .swatch { display: inline-block; width: 11px; height: 11px; margin: 0 6px 0 0; }
      .swatch.gdn { background: var(--hymo-gdn); border-radius: 50%; }
      .swatch.mla { background: var(--hymo-mla); border-radius: 2px; }
      .title { margin: 0 0 8px; font-weight: 600; }
      .more { margin: 8px 0 0; }
      .detail .buttons { margin-top: 10px; }
      .detail { min-height: 430px; }
      @media (max-width: 1000px) { .both { grid-template-columns: 216px minmax(0, 1fr); } .shapes { grid-column: 1 / -1; } }
      @media (max-width: 640px) { .both { grid-template-columns: minmax(0, 1fr); } .detail { min-height: 0; } .tower { max-width: 250px; } }
      @media (prefers-reduced-motion: no-preference) {
        .block { animation: rise 0.4s both; animation-delay: calc(var(--i) * 14ms); }
        @keyframes rise { from { transform: translateY(8px); opacity: 0; } }
      }
    `,
  ];
}

customElements.define("hymo-stack", Stack);
