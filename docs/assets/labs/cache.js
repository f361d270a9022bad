import { c as e, i as t, n, o as r, s as i, t as a } from "./base.js";
import { n as o, r as s, t as c } from "./d3.js";
import { a as l, h as u, i as d, r as f } from "./accounting.js";
// src/cache.ts
var p = class extends a {
	constructor(...e) {
		super(...e), this.defaults = {
			preset: "hymo_750m",
			context: 15,
			sequences: 1,
			device: "h200"
		};
	}
	settle() {
		this.presets && (this.choose("preset", [...Object.keys(this.presets.presets), "yours"]), this.state.preset === "yours" && !this.own && (this.state.preset = this.defaults.preset), this.choose("device", this.presets.devices.filter((e) => e.memory).map((e) => e.key)), this.clamp("context", 8, 20), this.clamp("sequences", 1, 256));
	}
	accept(e) {
		return this.own = n(e), this.set("preset", "yours"), `${this.own.run.name}: ${d(this.own.model)} cached numbers per token and attention layer.`;
	}
	designs(e) {
		let t = (t) => t * (e.head_dim + e.v_head_dim), n = d({
			...e,
			mla_latent: !0
		}), r = e.n_layers;
		return [
			{
				name: `MHA: ${e.n_heads} groups, every layer`,
				numbers: t(e.n_heads),
				layers: r,
				fixed: 0,
				dash: "",
				hue: "var(--hymo-soft)"
			},
			{
				name: `GQA: ${e.n_kv_groups} groups, every layer`,
				numbers: t(e.n_kv_groups),
				layers: r,
				fixed: 0,
				dash: "8 3",
				hue: "var(--hymo-soft)"
			},
			{
				name: "MQA: one group, every layer",
				numbers: t(1),
				layers: r,
				fixed: 0,
				dash: "2 3",
				hue: "var(--hymo-soft)"
			},
			{
				name: "MLA in every layer",
				numbers: n,
				layers: r,
				fixed: 0,
				dash: "6 3",
				hue: "var(--hymo-mla)"
			},
			{
				name: `HyMo: MLA in ${e.mla_layers.length} of ${r}`,
				numbers: d(e),
				layers: e.mla_layers.length,
				fixed: u(e),
				dash: "",
				hue: "var(--hymo-gdn)"
			}
		];
	}
	render() {
		if (!this.presets) return this.frame(i``, i``, "");
		let e = (this.own && this.state.preset === "yours" ? this.own : this.presets.presets[String(this.state.preset)]).model, n = 2 ** this.get("context"), a = this.get("sequences"), o = this.presets.devices.find((e) => e.key === this.state.device), s = 2 * l(e).stored, c = this.designs(e), u = (e, t = n) => a * (2 * e.numbers * e.layers * t + e.fixed), d = Math.max(0, o.memory - s), p = c.at(-1), m = u(c[0]) / u(p);
		this.dataset.bytes = String(f(e, n) * a), this.dataset.ratio = m.toFixed(1);
		let h = Object.keys(this.presets.presets).map((e) => [e, e]), g = i`
      ${this.select("preset", "Shape", this.own ? [...h, ["yours", this.own.run.name]] : h)}
      ${this.slider("context", "Context, tokens", 8, 20, 1, (e) => t(2 ** e))}
      ${this.slider("sequences", "Sequences at once", 1, 256, 1)}
      ${this.select("device", "Device", this.presets.devices.filter((e) => e.memory).map((e) => [e.key, e.name]))}
      ${this.file("Your config (YAML, JSON)")}
      <div class="buttons">${this.resetButton()}</div>
    `, _ = (e) => Math.floor(d / Math.max(1, u(e) / a)), v = i`${t(a)} ${a === 1 ? "sequence" : "sequences"} of ${t(n)} tokens:
      HyMo holds <b>${r(u(p))}</b>, of which ${r(a * p.fixed)} is recurrent state; full multi-head attention would hold
      ${r(u(c[0]))}, <b>${m.toFixed(0)} times</b> as much. Beside the weights, ${o.name} has room for
      ${t(_(p))} such sequences against ${t(_(c[0]))}.`;
		return this.frame(g, this.draw(c, u, n, d, o.name), v, this.table("Bytes as numbers", [
			"design",
			"numbers per token and layer",
			"layers",
			"per sequence",
			"all sequences"
		], c.map((e) => [
			e.name,
			t(e.numbers),
			e.layers,
			r(u(e) / a),
			r(u(e))
		])));
	}
	draw(n, a, l, u, d) {
		let f = this.width - 34, p = a(n[0]), m = s([0, p], [0, f - 92]), h = n.map((t, n) => e`<g transform="translate(0 ${n * 42})">
      <text x="0" y="12">${t.name}</text>
      <rect x="0" y="18" width=${Math.max(2, m(a(t)))} height="15" rx="3" fill=${t.hue} fill-opacity=${t.hue === "var(--hymo-soft)" ? .55 : 1}></rect>
      <text class="soft" x=${m(a(t)) + 8} y="30">${r(a(t))}</text>
    </g>`), g = n.length * 42, [_, v] = [62, 190], y = o([256, 2 ** 20], [_, f - 8]).base(2), b = Math.min(...n.map((e) => a(e, 256))), x = o([b / 2, a(n[0], 2 ** 20) * 2], [v, 8]).base(2), S = [
			20,
			25,
			30,
			35,
			40,
			45
		].map((e) => 2 ** e).filter((e) => e > b / 2 && e < a(n[0], 2 ** 20) * 2), C = Array.from({ length: 13 }, (e, t) => 2 ** (8 + t)), w = (e) => c().x((e) => y(e)).y((t) => x(a(e, t)))(C) ?? "", T = u > 0 && u > b / 2 && u < a(n[0], 2 ** 20) * 2;
		return i`<svg width=${f} height=${g} role="img" aria-label="Bytes of the cache by design at the chosen context">${h}</svg>
      <svg width=${f} height=${v + 36} role="img" aria-label="Bytes of the cache by context, both axes logarithmic">
        ${S.map((t) => e`<line class="axis" x1=${_} x2=${f} y1=${x(t)} y2=${x(t)}></line><text class="soft" x=${_ - 6} y=${x(t) + 4} text-anchor="end">${r(t).replace(/\.\d+/, "")}</text>`)}
        ${(f > 420 ? [
			8,
			12,
			16,
			20
		] : [
			8,
			14,
			20
		]).map((n) => e`<text class="soft" x=${y(2 ** n)} y=${v + 16} text-anchor=${n === 20 ? "end" : "middle"}>${t(2 ** n)}</text>`)}
        <text class="soft" x=${(_ + f) / 2} y=${v + 32} text-anchor="middle">tokens of context</text>
        ${n.map((t) => e`<path d=${w(t)} fill="none" stroke=${t.hue} stroke-width=${t.fixed ? 3 : 1.6} stroke-dasharray=${t.dash}></path>`)}
        ${T ? e`<line x1=${_} x2=${f} y1=${x(u)} y2=${x(u)} stroke="var(--hymo-bad)" stroke-dasharray="4 3"></line><text x=${_ + 4} y=${x(u) - 5}>free on ${d}</text>` : ""}
        <line x1=${y(l)} x2=${y(l)} y1="8" y2=${v} stroke="var(--hymo-third)"></line>
      </svg>`;
	}
};
customElements.define("hymo-cache-lab", p);
