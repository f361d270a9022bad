import { c as e, n as t, s as n, t as r } from "./base.js";
import { r as i, t as a } from "./d3.js";
import { a as o, i as s, n as c, r as l, t as u } from "./router.js";
// src/moe.ts
var d = 300, f = 8, p = class extends r {
	constructor(...e) {
		super(...e), this.defaults = {
			update: "ema",
			step: 200,
			skew: 1,
			speed: 5,
			token: 0,
			experts: 16
		}, this.recorded = [];
	}
	settle() {
		this.choose("update", [
			"ema",
			"sign",
			"off"
		]), this.clamp("step", 0, d), this.clamp("skew", 0, 2), this.clamp("speed", 1, 20), this.clamp("token", 0, 255), this.clamp("experts", 4, 64);
	}
	advance() {
		let e = Math.min(d, this.get("step") + 4);
		return this.set("step", this.get("step") >= d ? 0 : e), e < d;
	}
	finish() {
		this.set("step", d);
	}
	accept(e) {
		if (Array.isArray(e)) {
			let t = e, n = t.flatMap((e) => Object.keys(e)).find((e) => e.startsWith("moe/load_cv"));
			if (!n) throw Error("no field moe/load_cv/… in these lines: load the metrics.jsonl of a run with experts");
			return this.recorded = t.filter((e) => n in e).map((e, t) => [Number(e.step ?? t), Number(e[n])]), `${this.recorded.length} records of ${n}, drawn as a third line over the run's own steps.`;
		}
		this.config = t(e);
		let n = this.config.model;
		return this.set("experts", n.n_routed_experts), this.set("update", n.moe_bias_update), `${n.n_routed_experts} experts, ${n.n_activated_experts} per token, bias speed ${n.moe_bias_speed}.`;
	}
	get model() {
		return (this.config ?? this.presets.presets.hymo_750m).model;
	}
	logits(e, t) {
		let n = this.get("experts"), r = c(7919 * e + t + 1), i = this.get("skew");
		return Array.from({ length: n }, (e, t) => u(r) + i * (1 - 2 * t / (n - 1)));
	}
	trace() {
		let e = JSON.stringify([
			this.state.update,
			this.state.skew,
			this.state.speed,
			this.state.experts,
			this.model.moe_bias_speed
		]);
		if (this.cached?.key === e) return this.cached.trace;
		let t = this.model, n = this.get("experts"), r = Math.min(t.n_activated_experts, n), i = {
			update: String(this.state.update),
			alpha: t.moe_ema_alpha,
			speed: t.moe_bias_speed * this.get("speed"),
			band: t.moe_dead_band
		}, a = {
			bias: Array(n).fill(0),
			ema: Array(n).fill(1 / n)
		}, c = {
			counts: [],
			states: [],
			variation: []
		}, u = [];
		for (let e = 0; e <= d; e++) {
			let d = Array(n).fill(0);
			for (let n = 0; n < 64; n++) for (let i of l(this.logits(e, n), a.bias, r, t.router_score, t.route_scale).chosen) d[i]++;
			c.counts.push(d), c.states.push(a), u.push(d), u.length > f && u.shift(), c.variation.push(o(d.map((e, t) => u.reduce((e, n) => e + n[t], 0)))), i.update !== "off" && (a = s(a, d, i));
		}
		return this.cached = {
			key: e,
			trace: c
		}, c;
	}
	render() {
		if (!this.presets) return this.frame(n``, n``, "");
		let e = this.model, t = this.trace(), r = this.get("step"), i = this.get("token"), a = Math.min(e.n_activated_experts, this.get("experts")), s = t.states[r].bias, c = l(this.logits(r, i), s, a, e.router_score, e.route_scale), u = t.counts.slice(Math.max(0, r - f + 1), r + 1), p = t.counts[r].map((e, t) => u.reduce((e, n) => e + n[t], 0) / u.length), m = o(p), h = l(this.logits(r, i), s.map(() => 0), a, e.router_score, e.route_scale).chosen, g = c.chosen.filter((e) => !h.includes(e));
		this.dataset.variation = m.toFixed(3), this.dataset.chosen = c.chosen.join(",");
		let _ = n`
      ${this.select("update", "Bias update", [
			["ema", "smoothed, dead band"],
			["sign", "sign of each step"],
			["off", "off"]
		])}
      ${this.slider("step", "Step", 0, d, 1)}
      ${this.slider("skew", "Router's preference", 0, 2, .1, (e) => e.toFixed(1))}
      ${this.slider("speed", "Speed, × the preset's", 1, 20, 1)}
      ${this.slider("token", "Token", 0, 255, 1)}
      <div class="buttons">${this.playButton("Play steps", 60)}${this.resetButton()}</div>
      ${this.file("Your config or metrics.jsonl")}
    `, v = c.chosen.map((e, t) => `${c.weights[t].toFixed(3)}·expert ${e}`).join(" + "), y = p.indexOf(Math.max(...p)), b = n`At step ${r} the busiest expert is ${y} with ${(p[y] / (p.reduce((e, t) => e + t, 0) / p.length)).toFixed(1)}
      times the uniform load; the variation is <b>${m.toFixed(2)}</b>, at the start it was ${t.variation[0].toFixed(2)}.
      Token ${i} goes to experts <b>${c.chosen.join(" and ")}</b>${g.length ? n`; without the bias it would have been ${h.join(" and ")}` : ""}.`;
		return this.frame(_, n`${this.draw(t, p, s, c.scores, c.chosen, r)}
        <p class="formula" tabindex="0" role="group" aria-label="Output of the mixture for this token">y = ${e.n_shared_experts ? "shared(x) + " : ""}${v}</p>`, b, this.table("Scores, bias and load as numbers", [
			"expert",
			"score",
			"bias",
			"score + bias",
			"load"
		], p.map((e, t) => [
			t,
			c.scores[t].toFixed(4),
			s[t].toFixed(4),
			(c.scores[t] + s[t]).toFixed(4),
			e.toFixed(1)
		])));
	}
	draw(t, r, o, s, c, l) {
		let u = this.width - 34, f = r.length, p = u / f, m = i([0, Math.max(...r, ...t.counts[0])], [0, 120]), h = r.reduce((e, t) => e + t, 0) / f, g = t.counts[0], _ = r.map((t, n) => e`
      <rect x=${n * p + 1.5} y=${140 - m(t)} width=${p - 3} height=${Math.max(1, m(t))} rx="2" fill=${t > 1.25 * h ? "var(--hymo-mla)" : "var(--hymo-gdn)"}></rect>
      <rect x=${n * p + 1.5} y=${140 - m(g[n])} width=${p - 3} height=${Math.max(1, m(g[n]))} rx="2" fill="none" stroke="var(--hymo-soft)" stroke-dasharray="2 3"></rect>
      ${c.includes(n) ? e`<path d=${`M${n * p + p / 2 - 5},158 l5,-8 l5,8 z`} fill="var(--hymo-third)"></path>` : ""}
      ${p > 15 ? e`<text class="soft" x=${n * p + p / 2} y=${172} text-anchor="middle">${n}</text>` : ""}`), v = Math.max(1, ...s.map((e, t) => e + o[t])), y = s.map((t, n) => {
			let r = 64 * t / v, i = 64 * o[n] / v;
			return e`<rect x=${n * p + 1.5} y=${268 - r} width=${p - 3} height=${r} rx="2" fill="var(--hymo-third)" fill-opacity=${c.includes(n) ? .95 : .3}></rect>
        <line x1=${n * p + 1.5} x2=${(n + 1) * p - 1.5} y1=${268 - r - i} y2=${268 - r - i} stroke="var(--hymo-ink)" stroke-width="2"></line>`;
		}), b = Math.max(d, ...this.recorded.map(([e]) => e)), x = i([0, d], [30, u - 4]), S = i([0, b], [30, u - 4]), C = Math.max(...t.variation, ...this.recorded.map(([, e]) => e)), w = i([0, C], [398, 310]), T = a().x((e, t) => x(t)).y((e) => w(e))(t.variation) ?? "", E = a().x(([e]) => S(e)).y(([, e]) => w(e))(this.recorded) ?? "";
		return n`<svg width=${u} height=${406} role="img" aria-label=${`Load of ${f} experts at step ${l}, the chosen token's scores and bias, and the load's variation over steps`}>
      <text class="soft" x="0" y="12">load of each expert; dotted: at the start; line: uniform</text>
      ${_}
      <line x1="0" x2=${u} y1=${140 - m(h)} y2=${140 - m(h)} stroke="var(--hymo-ink)" stroke-dasharray="4 3"></line>
      <text class="soft" x="0" y=${192}>this token's scores; mark: score + bias</text>
      ${y}
      <text class="soft" x="0" y=${298}>variation of the load over steps</text>
      <line class="axis" x1="30" x2=${u} y1=${w(0)} y2=${w(0)}></line>
      <text class="soft" x="24" y=${w(C) + 10} text-anchor="end">${C.toFixed(1)}</text>
      <path d=${T} fill="none" stroke="var(--hymo-gdn)" stroke-width="1.6"></path>
      ${E ? e`<path d=${E} fill="none" stroke="var(--hymo-third)" stroke-width="1.6" stroke-dasharray="5 3"></path>` : ""}
      <line x1=${x(l)} x2=${x(l)} y1=${302} y2=${398} stroke="var(--hymo-mla)" stroke-width="2"></line>
    </svg>`;
	}
};
customElements.define("hymo-moe-lab", p);
