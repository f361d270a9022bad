import { a as e, c as t, i as n, l as r, n as i, s as a, t as o } from "./base.js";
import { a as s, c, g as l, m as u, n as d, u as f } from "./accounting.js";
import { a as p } from "./recurrence.js";
import { n as m, t as h } from "./router.js";
// src/stack.ts
var g = 12, _ = {
	gdn: "Gated Delta Net",
	mla: "Multi-head latent attention",
	moe: "Mixture of experts",
	ffn: "Feed-forward"
}, v = class extends o {
	constructor(...e) {
		super(...e), this.defaults = {
			preset: "hymo_750m",
			layer: 1,
			head: 0,
			t: 4
		}, this.move = (e) => {
			let t = Math.min(this.config.model.n_layers, 4), n = {
				ArrowRight: 1,
				ArrowLeft: -1,
				ArrowDown: t,
				ArrowUp: -t
			}[e.key];
			if (!n) return;
			e.preventDefault();
			let r = Math.min(this.config.model.n_layers - 1, Math.max(0, this.get("layer") + n));
			this.set("layer", r), this.updateComplete.then(() => this.renderRoot.querySelector(`[data-layer="${r}"]`)?.focus());
		};
	}
	settle() {
		if (!this.presets) return;
		this.choose("preset", [...Object.keys(this.presets.presets), "yours"]), this.state.preset === "yours" && !this.own && (this.state.preset = this.defaults.preset);
		let e = this.config.model;
		this.clamp("layer", 0, e.n_layers - 1), this.clamp("head", 0, c(e) - 1), this.clamp("t", 1, g);
	}
	get config() {
		return this.own && this.state.preset === "yours" ? this.own : this.presets.presets[String(this.state.preset)];
	}
	accept(e) {
		return this.own = i(e), this.set("preset", "yours"), `${this.own.run.name}, ${this.own.model.n_layers} layers.`;
	}
	advance() {
		return this.set("t", this.get("t") % g + 1), this.get("t") < g;
	}
	finish() {
		this.set("t", g);
	}
	render() {
		if (!this.presets) return a`<section class="lab" aria-label="Layers of the model"><div class="controls"></div></section>`;
		let t = this.config, r = t.model, i = this.get("layer"), o = f(r, i), p = s(r), m = d(r, i), h = m.reduce((e, [, t]) => e + l(t), 0);
		this.dataset.layer = String(i), this.dataset.parameters = String(h);
		let v = Object.keys(this.presets.presets).map((e) => [e, e]), y = a`
      ${this.select("preset", "Configuration", this.own ? [...v, ["yours", this.own.run.name]] : v)}
      ${this.slider("layer", "Block", 0, r.n_layers - 1, 1)}
      ${o ? "" : this.slider("head", "Head", 0, c(r) - 1, 1)}
      ${o ? "" : this.slider("t", "Token", 1, g, 1, (e) => `${e} of ${g}`)}
      ${this.file("Your config (YAML, JSON)")}
    `, b = a`<b>${t.run.name}</b>: ${n(r.n_layers)} blocks, ${r.mla_layers.length} of them attention;
      ${e(p.stored)} parameters stored, ${e(p.active)} used per token. Block ${i} is
      ${o ? a`an <b>MLA</b> block${m.length > 1 ? " with experts" : ""}` : a`a <b>GDN</b> block`}: ${n(h)} parameters.`;
		return this.frame(y, a`<div class="both">${this.tower(r.n_layers)}<div class="detail">${o ? this.attention() : this.head()}</div>
        <div class="shapes">
          ${m.map(([e, t]) => a`<table>
              <caption>${_[e]}</caption>
              <tbody>${t.map((e) => a`<tr><th scope="row">${e.name}</th><td>${e.shape.join(" × ")}</td></tr>`)}</tbody>
            </table>`)}
        </div></div>`, b, this.table(`Parameters of block ${i}`, [
			"tensor",
			"shape",
			"parameters",
			"role"
		], m.flatMap(([e, t]) => t.map((t) => [
			`${_[e]} · ${t.name}`,
			t.shape.join(" × "),
			n(u(t)),
			t.role
		]))));
	}
	tower(e) {
		let t = this.config.model;
		return a`<div class="tower" role="group" aria-label="Blocks, first to last" style="grid-template-columns:repeat(${Math.min(e, 4)},1fr)" @keydown=${this.move}>
      ${Array.from({ length: e }, (e, n) => {
			let r = f(t, n), i = n === this.get("layer");
			return a`<button
          type="button"
          class="block ${r ? "mla" : "gdn"} ${i ? "chosen" : ""}"
          data-layer=${n}
          tabindex=${i ? 0 : -1}
          aria-pressed=${i}
          aria-label=${`Block ${n}, ${r ? "MLA" : "GDN"}`}
          style=${`--i:${n}`}
          @click=${() => this.set("layer", n)}
          @mouseenter=${() => !r && this.set("layer", n)}
          @focus=${() => n !== this.get("layer") && this.set("layer", n)}
        >
          ${n}
        </button>`;
		})}
      <p class="legend" style="grid-column:1/-1"><span class="swatch gdn"></span> GDN, fixed state<br /><span class="swatch mla"></span> MLA, growing cache</p>
    </div>`;
	}
	head() {
		let e = this.config.model, n = c(e), r = this.get("head"), i = this.get("t"), o = n > 1 ? 1 + 39 * r / (n - 1) : 1, s = m(1e3 * this.get("layer") + r), l = (e) => Array.from({ length: g }, () => Array.from({ length: e }, () => h(s))), u = Array.from({ length: g }, () => 1 / (1 + Math.exp(-(h(s) - 2.2)))), { states: d } = p(l(8), l(8), l(8), u, Array(8).fill(o)), f = d[i - 1], _ = Math.max(...f.flat().map(Math.abs), 1e-9), v = Math.min(300, this.width > 620 ? this.width - 270 : this.width - 34), y = Math.floor((v - 16) / 8), b = u.map((e) => Math.exp(-o * e)), x = y * 8 / g;
		return this.dataset.keep = b[i - 1].toFixed(4), a`<p class="title">Head ${r} of ${n}: rate A = ${o.toFixed(2)} at initialisation</p>
      <svg width=${v} height=${y * 8 + 66 + 54} role="img" aria-label=${`State of head ${r} after ${i} tokens, and the share kept at each token`}>
        <text class="soft" x="0" y="12">kept per token, exp(−A·g)</text>
        ${b.map((e, n) => t`<rect x=${n * x + 1} y=${20 + 66 * (1 - e)} width=${x - 2} height=${Math.max(1, 66 * e)} rx="2" fill=${n === i - 1 ? "var(--hymo-mla)" : "var(--hymo-gdn)"} fill-opacity=${n < i ? 1 : .35}></rect>`)}
        <line class="axis" x1="0" x2=${y * 8} y1=${86} y2=${86}></line>
        <text class="soft" x="0" y=${106}>state after token ${i}, ${8} × ${8} of ${e.gdn_d_state} × ${e.gdn_headdim}</text>
        ${f.flatMap((e, n) => e.map((e, r) => t`<rect x=${r * y} y=${114 + n * y} width=${y - 1.5} height=${y - 1.5} rx="2" fill=${e >= 0 ? "var(--hymo-gdn)" : "var(--hymo-mla)"} fill-opacity=${(Math.abs(e) / _).toFixed(3)}></rect>`))}
      </svg>
      <p class="formula" tabindex="0" role="group" aria-label="Update of the state">H ← ${b[i - 1].toFixed(3)}·H + b vᵀ, o = Hᵀ c</p>
      <div class="buttons">${this.playButton("Play tokens", 500)}</div>`;
	}
	attention() {
		let e = this.config.model, r = e.qk_rope_head_dim, i = Math.min(330, this.width > 620 ? this.width - 270 : this.width - 34), o = e.mla_latent ? e.kv_lora_rank + e.n_kv_groups * r : e.n_kv_groups * (e.head_dim + e.v_head_dim), s = e.n_heads * (e.head_dim + e.v_head_dim), c = (e, n, r, a) => t`
      <text x="0" y=${e}>${n}</text><rect x="0" y=${e + 6} width=${Math.max(3, i * r)} height="16" rx="3" fill=${a}></rect>`;
		return a`<p class="title">What one token leaves in this block's cache</p>
      <svg width=${i} height="150" role="img" aria-label=${`${o} numbers cached per token; keys and values of every head would be ${s}`}>
        ${c(14, `keys and values of ${e.n_heads} heads: ${n(s)} numbers`, 1, "var(--hymo-line)")}
        ${c(64, e.mla_latent ? `latent: ${e.kv_lora_rank}` : `keys of ${e.n_kv_groups} groups`, (e.mla_latent ? e.kv_lora_rank : e.n_kv_groups * e.head_dim) / s, "var(--hymo-mla)")}
        ${c(114, e.mla_latent ? `rotated keys of ${e.n_kv_groups} groups: ${e.n_kv_groups * r}` : `values of ${e.n_kv_groups} groups`, (e.mla_latent ? e.n_kv_groups * r : e.n_kv_groups * e.v_head_dim) / s, "var(--hymo-third)")}
      </svg>
      <p class="formula" tabindex="0" role="group" aria-label="Cached numbers per token">${o} of ${n(s)} numbers: ${(s / o).toFixed(0)} times less</p>
      <p class="more">Its experts: ${e.n_activated_experts} of ${e.n_routed_experts} per token${e.n_shared_experts ? `, and ${e.n_shared_experts} that every token passes` : ""}.</p>`;
	}
	static {
		this.styles = [o.styles, r`
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
    `];
	}
};
customElements.define("hymo-stack", v);
