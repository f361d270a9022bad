import { c as e, i as t, n, o as r, s as i, t as a } from "./base.js";
import { a as o, i as s, n as c, o as l, r as u, s as d, t as f } from "./linear.js";
import { t as p } from "./line.js";
import { i as m, m as h, n as g, r as _ } from "./accounting.js";
// node_modules/d3-scale/src/nice.js
function v(e, t) {
	e = e.slice();
	var n = 0, r = e.length - 1, i = e[n], a = e[r], o;
	return a < i && (o = n, n = r, r = o, o = i, i = a, a = o), e[n] = t.floor(i), e[r] = t.ceil(a), e;
}
// node_modules/d3-scale/src/log.js
function y(e) {
	return Math.log(e);
}
function b(e) {
	return Math.exp(e);
}
function x(e) {
	return -Math.log(-e);
}
function S(e) {
	return -Math.exp(-e);
}
function C(e) {
	return isFinite(e) ? +("1e" + e) : e < 0 ? 0 : e;
}
function w(e) {
	return e === 10 ? C : e === Math.E ? Math.exp : (t) => e ** +t;
}
function T(e) {
	return e === Math.E ? Math.log : e === 10 && Math.log10 || e === 2 && Math.log2 || (e = Math.log(e), (t) => Math.log(t) / e);
}
function E(e) {
	return (t, n) => -e(-t, n);
}
function D(e) {
	let t = e(y, b), n = t.domain, r = 10, i, a;
	function o() {
		return i = T(r), a = w(r), n()[0] < 0 ? (i = E(i), a = E(a), e(x, S)) : e(y, b), t;
	}
	return t.base = function(e) {
		return arguments.length ? (r = +e, o()) : r;
	}, t.domain = function(e) {
		return arguments.length ? (n(e), o()) : n();
	}, t.ticks = (e) => {
		let t = n(), o = t[0], s = t[t.length - 1], c = s < o;
		c && ([o, s] = [s, o]);
		let l = i(o), u = i(s), f, p, m = e == null ? 10 : +e, h = [];
		if (!(r % 1) && u - l < m) {
			if (l = Math.floor(l), u = Math.ceil(u), o > 0) {
				for (; l <= u; ++l) for (f = 1; f < r; ++f) if (p = l < 0 ? f / a(-l) : f * a(l), !(p < o)) {
					if (p > s) break;
					h.push(p);
				}
			} else for (; l <= u; ++l) for (f = r - 1; f >= 1; --f) if (p = l > 0 ? f / a(-l) : f * a(l), !(p < o)) {
				if (p > s) break;
				h.push(p);
			}
			h.length * 2 < m && (h = d(o, s, m));
		} else h = d(l, u, Math.min(u - l, m)).map(a);
		return c ? h.reverse() : h;
	}, t.tickFormat = (e, n) => {
		if (e ??= 10, n ??= r === 10 ? "s" : ",", typeof n != "function" && (!(r % 1) && (n = u(n)).precision == null && (n.trim = !0), n = c(n)), e === Infinity) return n;
		let o = Math.max(1, r * e / t.ticks().length);
		return (e) => {
			let t = e / a(Math.round(i(e)));
			return t * r < r - .5 && (t *= r), t <= o ? n(e) : "";
		};
	}, t.nice = () => n(v(n(), {
		floor: (e) => a(Math.floor(i(e))),
		ceil: (e) => a(Math.ceil(i(e)))
	})), t;
}
function O() {
	let e = D(o()).domain([1, 10]);
	return e.copy = () => s(e, O()).base(e.base()), l.apply(e, arguments), e;
}
// src/cache.ts
var k = class extends a {
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
		return this.own = n(e), this.set("preset", "yours"), `${this.own.run.name}: ${_(this.own.model)} cached numbers per token and attention layer.`;
	}
	designs(e) {
		let t = (t) => t * (e.head_dim + e.v_head_dim), n = _({
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
				numbers: _(e),
				layers: e.mla_layers.length,
				fixed: h(e),
				dash: "",
				hue: "var(--hymo-gdn)"
			}
		];
	}
	render() {
		if (!this.presets) return this.frame(i``, i``, "");
		let e = (this.own && this.state.preset === "yours" ? this.own : this.presets.presets[String(this.state.preset)]).model, n = 2 ** this.get("context"), a = this.get("sequences"), o = this.presets.devices.find((e) => e.key === this.state.device), s = 2 * m(e).stored, c = this.designs(e), l = (e, t = n) => a * (2 * e.numbers * e.layers * t + e.fixed), u = Math.max(0, o.memory - s), d = c.at(-1), f = l(c[0]) / l(d);
		this.dataset.bytes = String(g(e, n) * a), this.dataset.ratio = f.toFixed(1);
		let p = Object.keys(this.presets.presets).map((e) => [e, e]), h = i`
      ${this.select("preset", "Shape", this.own ? [...p, ["yours", this.own.run.name]] : p)}
      ${this.slider("context", "Context, tokens", 8, 20, 1, (e) => t(2 ** e))}
      ${this.slider("sequences", "Sequences at once", 1, 256, 1)}
      ${this.select("device", "Device", this.presets.devices.filter((e) => e.memory).map((e) => [e.key, e.name]))}
      ${this.file("Your config (YAML, JSON)")}
      <div class="buttons">${this.resetButton()}</div>
    `, _ = (e) => Math.floor(u / Math.max(1, l(e) / a)), v = i`${t(a)} ${a === 1 ? "sequence" : "sequences"} of ${t(n)} tokens:
      HyMo holds <b>${r(l(d))}</b>, of which ${r(a * d.fixed)} is recurrent state; full multi-head attention would hold
      ${r(l(c[0]))}, <b>${f.toFixed(0)} times</b> as much. Beside the weights, ${o.name} has room for
      ${t(_(d))} such sequences against ${t(_(c[0]))}.`;
		return this.frame(h, this.draw(c, l, n, u, o.name), v, this.table("Bytes as numbers", [
			"design",
			"numbers per token and layer",
			"layers",
			"per sequence",
			"all sequences"
		], c.map((e) => [
			e.name,
			t(e.numbers),
			e.layers,
			r(l(e) / a),
			r(l(e))
		])));
	}
	draw(n, a, o, s, c) {
		let l = this.width - 34, u = a(n[0]), d = f([0, u], [0, l - 92]), m = n.map((t, n) => e`<g transform="translate(0 ${n * 42})">
      <text x="0" y="12">${t.name}</text>
      <rect x="0" y="18" width=${Math.max(2, d(a(t)))} height="15" rx="3" fill=${t.hue} fill-opacity=${t.hue === "var(--hymo-soft)" ? .55 : 1}></rect>
      <text class="soft" x=${d(a(t)) + 8} y="30">${r(a(t))}</text>
    </g>`), h = n.length * 42, [g, _] = [62, 190], v = O([256, 2 ** 20], [g, l - 8]).base(2), y = Math.min(...n.map((e) => a(e, 256))), b = O([y / 2, a(n[0], 2 ** 20) * 2], [_, 8]).base(2), x = [
			20,
			25,
			30,
			35,
			40,
			45
		].map((e) => 2 ** e).filter((e) => e > y / 2 && e < a(n[0], 2 ** 20) * 2), S = Array.from({ length: 13 }, (e, t) => 2 ** (8 + t)), C = (e) => p().x((e) => v(e)).y((t) => b(a(e, t)))(S) ?? "", w = s > 0 && s > y / 2 && s < a(n[0], 2 ** 20) * 2;
		return i`<svg width=${l} height=${h} role="img" aria-label="Bytes of the cache by design at the chosen context">${m}</svg>
      <svg width=${l} height=${_ + 36} role="img" aria-label="Bytes of the cache by context, both axes logarithmic">
        ${x.map((t) => e`<line class="axis" x1=${g} x2=${l} y1=${b(t)} y2=${b(t)}></line><text class="soft" x=${g - 6} y=${b(t) + 4} text-anchor="end">${r(t).replace(/\.\d+/, "")}</text>`)}
        ${[
			8,
			12,
			16,
			20
		].map((n) => e`<text class="soft" x=${v(2 ** n)} y=${_ + 16} text-anchor=${n === 20 ? "end" : "middle"}>${t(2 ** n)}</text>`)}
        <text class="soft" x=${(g + l) / 2} y=${_ + 32} text-anchor="middle">tokens of context</text>
        ${n.map((t) => e`<path d=${C(t)} fill="none" stroke=${t.hue} stroke-width=${t.fixed ? 3 : 1.6} stroke-dasharray=${t.dash}></path>`)}
        ${w ? e`<line x1=${g} x2=${l} y1=${b(s)} y2=${b(s)} stroke="var(--hymo-bad)" stroke-dasharray="4 3"></line><text x=${g + 4} y=${b(s) - 5}>free on ${c}</text>` : ""}
        <line x1=${v(o)} x2=${v(o)} y1="8" y2=${_} stroke="var(--hymo-third)"></line>
      </svg>`;
	}
};
customElements.define("hymo-cache-lab", k);
