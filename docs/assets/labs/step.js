import { c as e, i as t, l as n, n as r, o as i, s as a, t as o } from "./base.js";
import { r as s, t as c } from "./d3.js";
import { i as l, n as u, r as d } from "./planner.js";
// src/maths/step.ts
function f(e) {
	let t = Math.round(e * 1e6) / 1e6, n = Math.floor(t);
	return t - n === .5 ? n % 2 ? n + 1 : n : Math.round(t);
}
function p(e, t, n, r, i) {
	let a = +(n > 0), o = Math.min(Math.ceil(Math.round(t * e * 1e6) / 1e6), e - a), s = Math.min(Math.max(f(n * e), a), e - o);
	return {
		warmup: o,
		stable: e - o - s,
		decay: s,
		least: r,
		shape: i
	};
}
function m(e, t) {
	if (t < e.warmup) return (t + 1) / e.warmup;
	if (t < e.warmup + e.stable) return 1;
	let n = (t - e.warmup - e.stable + 1) / e.decay;
	return e.least + (1 - e.least) * (1 - (e.shape === "sqrt" ? Math.sqrt(n) : n));
}
function h(e, t, n) {
	let r = Math.hypot(...e), i = e.map((e) => e / (n.margin * r + n.eps)), a = [i];
	for (let e = 0; e < t; e++) {
		let [t, r, o] = n.triples[Math.min(e, n.triples.length - 1)];
		i = i.map((e) => t * e + r * e ** 3 + o * e ** 5), a.push(i);
	}
	return a;
}
// src/step.ts
var g = [
	[
		"rest",
		"Between steps",
		"Masters and optimizer states are all that stays."
	],
	[
		"forward",
		"Forward",
		"Every block leaves what its backward pass will need: activations grow block by block."
	],
	[
		"loss",
		"Loss",
		"The output heads and their cross-entropy work in chunks; no logit of the whole batch is ever stored."
	],
	[
		"backward",
		"Backward",
		"Activations are used up, gradients fill in fp32."
	],
	[
		"clip",
		"Clip",
		"One norm over all gradients; a norm above the limit scales all of them."
	],
	[
		"update",
		"Update",
		"NorMuon orthogonalises each matrix's momentum, AdamW updates the rest; then router biases move."
	]
], _ = [
	[
		"masters",
		"fp32 masters",
		"var(--hymo-gdn)"
	],
	[
		"normuon",
		"NorMuon states",
		"var(--hymo-third)"
	],
	[
		"adamw",
		"AdamW states",
		"var(--hymo-mla)"
	],
	[
		"weights",
		"compute copy",
		"var(--hymo-soft)"
	],
	[
		"gradients",
		"gradients",
		"var(--hymo-bad)"
	],
	[
		"activations",
		"activations",
		"var(--hymo-ink)"
	],
	[
		"logits",
		"heads and loss",
		"var(--hymo-line)"
	]
], v = [
	1,
	.5,
	.2,
	.1,
	.05,
	.02
], y = class extends o {
	constructor(...e) {
		super(...e), this.defaults = {
			preset: "hymo_750m",
			phase: 1,
			level: "none",
			batch: 4,
			iterations: 5,
			at: .5
		};
	}
	settle() {
		this.presets && (this.choose("preset", [...Object.keys(this.presets.presets), "yours"]), this.state.preset === "yours" && !this.own && (this.state.preset = this.defaults.preset), this.choose("level", this.presets.constants.levels), this.clamp("phase", 0, g.length - 1), this.clamp("batch", 1, 32), this.clamp("iterations", 0, 8), this.clamp("at", 0, 1));
	}
	advance() {
		let e = (this.get("phase") + 1) % g.length;
		return this.set("phase", e), e < g.length - 1;
	}
	finish() {
		this.set("phase", g.length - 1);
	}
	accept(e) {
		return this.own = r(e), this.set("preset", "yours"), this.set("batch", this.own.training.micro_batch_size), `${this.own.run.name}, micro-batch ${this.own.training.micro_batch_size}.`;
	}
	held(e, t) {
		let n = {
			masters: e.masters,
			normuon: e.normuon,
			adamw: e.adamw
		}, r = {
			weights: 0,
			gradients: 0,
			activations: 0,
			logits: 0
		}, i = {
			rest: {},
			forward: {
				weights: e.weights,
				activations: e.activations
			},
			loss: {
				weights: e.weights,
				activations: e.activations,
				logits: e.logits
			},
			backward: {
				weights: e.weights,
				activations: e.activations,
				gradients: e.gradients,
				logits: e.logits
			},
			clip: {
				gradients: e.gradients,
				weights: e.weights
			},
			update: {
				gradients: e.gradients,
				weights: e.weights
			}
		};
		return {
			...n,
			...r,
			...i[t]
		};
	}
	render() {
		if (!this.presets) return this.frame(a``, a``, "");
		let e = this.own && this.state.preset === "yours" ? this.own : this.presets.presets[String(this.state.preset)], n = this.presets.constants, r = l(e, n, 1, this.get("batch"), String(this.state.level), !0), o = g.map(([e]) => this.held(r, e)), s = o.map((e) => Object.values(e).reduce((e, t) => e + t, 0)), [, c, f] = g[this.get("phase")], y = s.indexOf(Math.max(...s)), b = e.scheduler, x = d(e), S = p(x, b.warmup_frac, b.decay_frac, b.min_lr_ratio, b.decay_shape), C = Math.min(x - 1, Math.floor(this.get("at") * x)), w = m(S, C), T = h(v, this.get("iterations"), n.newtonSchulz.polar_express);
		this.dataset.peak = String(r.total), this.dataset.phase = g[this.get("phase")][0], this.dataset.factor = w.toFixed(4);
		let E = Object.keys(this.presets.presets).map((e) => [e, e]), D = a`
      ${this.select("preset", "Configuration", this.own ? [...E, ["yours", this.own.run.name]] : E)}
      ${this.slider("phase", "Phase", 0, g.length - 1, 1, (e) => g[e]?.[1] ?? "")}
      ${this.slider("batch", "Sequences per pass", 1, 32, 1)}
      ${this.select("level", "Recompute", n.levels.map((e) => [e, e === "selective" ? "experts" : e === "full" ? "whole blocks" : "nothing"]))}
      ${this.slider("iterations", "Newton-Schulz iterations", 0, 8, 1)}
      ${this.slider("at", "Place in the run", 0, 1, .005, (e) => `step ${t(Math.min(x - 1, Math.floor(e * x)))}`)}
      <div class="buttons">${this.playButton("Play a step", 1100)}${this.resetButton()}</div>
      ${this.file("Your config (YAML, JSON)")}
    `, O = T.at(-1).map(Math.abs), k = a`<b>${c}.</b> ${f} Held now: <b>${i(s[this.get("phase")])}</b>; the peak is
      ${i(s[y])} in “${g[y][1]}”. After ${this.get("iterations")} iterations the singular values lie between
      ${Math.min(...O).toFixed(2)} and ${Math.max(...O).toFixed(2)}. At step ${t(C)} of ${t(x)} (${t(u(e))} tokens each)
      both rates stand at ${(100 * w).toFixed(0)} % of their peaks: NorMuon ${(e.optimizer.muon_lr * w).toPrecision(2)}, AdamW ${(e.optimizer.adamw_lr * w).toPrecision(2)}.`;
		return this.frame(D, a`${this.bars(o, s)}
        <div class="pair">${this.orthogonal(T)}${this.curve(S, x, C)}</div>`, k, this.table("Memory by phase as numbers", ["item", ...g.map(([, e]) => e)], [..._.map(([e, t]) => [t, ...o.map((t) => i(t[e]))]), ["total", ...s.map(i)]]));
	}
	bars(t, n) {
		let r = this.width - 34, o = s([0, Math.max(...n)], [0, r - 98 - 74]), c = t.map((t, r) => {
			let a = 98, s = r === this.get("phase");
			return e`<g transform="translate(0 ${22 + r * 34})">
        <text x="0" y="17" style=${s ? "font-weight:600" : ""}>${g[r][1]}</text>
        ${_.map(([n, , r]) => {
				let i = o(t[n]), c = e`<rect x=${a} y="2" width=${Math.max(0, i - 1)} height="22" fill=${r} fill-opacity=${(n === "activations" ? .55 : .9) * (s ? 1 : .45)}></rect>`;
				return a += i, i > .5 ? c : "";
			})}
        <text class="soft" x=${a + 6} y="17">${i(n[r])}</text>
      </g>`;
		});
		return a`<svg width=${r} height=${22 + t.length * 34} role="img" aria-label="Memory held in each phase of a step, by item">
        <text class="soft" x="0" y="12">held on one device, estimated</text>${c}</svg>
      <p class="legend">${_.map(([e, t, n]) => a`<span><i style=${`background:${n};opacity:${e === "activations" ? .55 : .9}`}></i>${t}</span>`)}</p>`;
	}
	orthogonal(t) {
		let n = this.width > 560 ? Math.floor((this.width - 60) / 2) : this.width - 34, [r, i] = [30, 150], o = t.length - 1, l = s([0, Math.max(1, o)], [r, n - 12]), u = Math.max(1.4, ...t.flat().map(Math.abs)), d = s([0, u], [i, 24]), f = v.map((n, r) => e`<path fill="none" stroke="var(--hymo-gdn)" stroke-width="1.8" stroke-opacity=${1 - r * .12} d=${c().x((e, t) => l(t)).y((e) => d(Math.abs(e[r])))(t) ?? ""}></path>
      <circle cx=${l(o)} cy=${d(Math.abs(t[o][r]))} r="3" fill="var(--hymo-gdn)"></circle>`);
		return a`<svg width=${n} height=${i + 22} role="img" aria-label=${`Singular values over ${o} Newton-Schulz iterations`}>
      <text class="soft" x="0" y="12">singular values of an update</text>
      ${[0, 1].map((t) => e`<line class="axis" x1=${r} x2=${n - 12} y1=${d(t)} y2=${d(t)}></line><text class="soft" x=${r - 8} y=${d(t) + 4} text-anchor="end">${t}</text>`)}
      ${f}
      <text class="soft" x=${n - 12} y=${i + 17} text-anchor="end">iteration ${o}</text>
    </svg>`;
	}
	curve(n, r, i) {
		let o = this.width > 560 ? Math.floor((this.width - 60) / 2) : this.width - 34, [l, u] = [30, 150], d = s([0, r - 1], [l, o - 12]), f = s([0, 1.1], [u, 24]), p = [.../* @__PURE__ */ new Set([
			...Array.from({ length: 60 }, (e, t) => Math.floor(t / 59 * (r - 1))),
			n.warmup,
			n.warmup + n.stable - 1
		])].filter((e) => e >= 0 && e < r).sort((e, t) => e - t);
		return a`<svg width=${o} height=${u + 22} role="img" aria-label=${`Factor of both learning rates over ${t(r)} steps`}>
      <text class="soft" x="0" y="12">factor of both learning rates</text>
      ${[0, 1].map((t) => e`<line class="axis" x1=${l} x2=${o - 12} y1=${f(t)} y2=${f(t)}></line><text class="soft" x=${l - 8} y=${f(t) + 4} text-anchor="end">${t}</text>`)}
      <path d=${c().x((e) => d(e)).y((e) => f(m(n, e)))(p) ?? ""} fill="none" stroke="var(--hymo-mla)" stroke-width="2"></path>
      <circle cx=${d(i)} cy=${f(m(n, i))} r="5" fill="var(--hymo-third)"></circle>
      <text class="soft" x=${o - 12} y=${u + 17} text-anchor="end">${t(r)} steps</text>
    </svg>`;
	}
	static {
		this.styles = [o.styles, n`
      .legend { display: flex; flex-wrap: wrap; gap: 4px 14px; margin: 6px 0 16px; font-size: 13px; color: var(--hymo-soft); }
      .legend i { display: inline-block; width: 11px; height: 11px; margin-right: 5px; border: 1px solid var(--hymo-line); }
      .pair { display: flex; flex-wrap: wrap; gap: 14px 26px; }
    `];
	}
};
customElements.define("hymo-step-lab", y);
