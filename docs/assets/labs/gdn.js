import { c as e, n as t, s as n, t as r } from "./base.js";
import { a as i, i as a, n as o, r as s, t as c } from "./recurrence.js";
// src/gdn.ts
var l = [
	"cat",
	"dog",
	"owl",
	"fox"
], u = [
	"red",
	"blue",
	"gold",
	"grey"
], d = [
	["cat", "red"],
	["dog", "blue"],
	["owl", "gold"],
	["cat", "grey"],
	["fox", "red"],
	["dog", "gold"],
	["owl", "red"],
	["cat", "blue"]
], f = class extends r {
	constructor(...e) {
		super(...e), this.defaults = {
			rule: "delta",
			t: 4,
			keep: .95,
			beta: 1,
			overlap: 0,
			chunk: 4
		}, this.heading = "";
	}
	get waits() {
		return !1;
	}
	settle() {
		this.choose("rule", ["delta", "linear"]), this.clamp("t", 1, d.length), this.clamp("keep", .5, 1), this.clamp("beta", 0, 1), this.clamp("overlap", 0, .9), this.clamp("chunk", 1, d.length);
	}
	advance() {
		let e = this.get("t") % d.length;
		return this.set("t", e + 1), e + 1 < d.length;
	}
	finish() {
		this.set("t", d.length);
	}
	accept(e) {
		let n = t(e).model;
		this.set("rule", n.gdn_recurrence === "gated_delta" ? "delta" : "linear");
		let r = Math.floor(n.gdn_d_inner / n.gdn_headdim);
		return this.heading = `your model keeps ${r} such states of ${n.gdn_d_state} × ${n.gdn_headdim} per GDN layer and uses the rule ${n.gdn_recurrence}.`, this.heading;
	}
	keys() {
		let e = this.get("overlap"), t = l.length, [n, r] = [Math.sqrt(e / t), Math.sqrt(1 - e)];
		return l.map((e, t) => l.map((e, i) => (t === i ? r : 0) + n)).map((e) => {
			let t = Math.hypot(...e);
			return e.map((e) => e / t);
		});
	}
	run(e) {
		let t = this.keys(), n = d.map(([e]) => t[l.indexOf(e)]), r = d.map(([, e]) => u.map((t) => Number(t === e))), s = Math.max(this.get("keep"), 1e-9), f = d.map(() => 1);
		if (this.state.rule === "linear") {
			let t = l.map(() => -Math.log(s));
			return e === null ? i(r, n, n, f, t) : a(r, n, n, f, t, e);
		}
		let p = d.map(() => this.get("beta")), m = d.map(() => Math.log(s));
		return e === null ? o(n, n, r, p, m) : c(n, n, r, p, m, e);
	}
	render() {
		let e = this.get("t"), t = this.state.rule === "delta", r = this.run(null), i = this.run(this.get("chunk")), a = s(r.o, i.o), o = this.keys(), c = r.states[e - 1], [f, p] = d[e - 1], m = l.map((e, t) => u.map((e, n) => c.reduce((e, r, i) => e + r[n] * o[t][i], 0))), h = m[l.indexOf(f)], g = u[h.indexOf(Math.max(...h))], _ = d.slice(0, e - 1).filter(([e]) => e === f);
		this.dataset.difference = a.toExponential(1), this.dataset.answer = g, this.dataset.t = String(e);
		let v = n`
      ${this.select("rule", "Update rule", [["delta", "gated delta: overwrite"], ["linear", "gated linear: add"]])}
      ${this.slider("t", "Token", 1, d.length, 1, (e) => `${e} of ${d.length}`)}
      ${this.slider("keep", "Kept per token", .5, 1, .01, (e) => e.toFixed(2))}
      ${t ? this.slider("beta", "Write strength β", 0, 1, .05, (e) => e.toFixed(2)) : ""}
      ${this.slider("overlap", "Overlap of keys", 0, .9, .05, (e) => e.toFixed(2))}
      ${this.slider("chunk", "Chunk size", 1, d.length, 1)}
      <div class="buttons">${this.playButton("Play the story", 700)}${this.resetButton()}</div>
      ${this.file("Your config (YAML, JSON)")}
    `, y = this.get("keep").toFixed(2), b = t ? `S ← ${y}·S;  S ← S + ${this.get("beta").toFixed(2)}·k("${f}")·(v("${p}") − Sᵀk("${f}"))ᵀ` : `H ← ${y}·H + k("${f}")·v("${p}")ᵀ`, x = n`After token ${e} (“the ${f} is ${p}”), asking for <b>${f}</b> answers
      <b>${g}</b> with ${Math.max(...h).toFixed(2)}${_.length ? t ? n`: the delta rule first takes out what ${f} held (${_.at(-1)[1]}), then writes.` : n`: adding keeps the earlier ${_.at(-1)[1]} beside it (${h[u.indexOf(_.at(-1)[1])].toFixed(2)}).` : "."}
      In chunks of ${this.get("chunk")} the outputs are the same: largest difference
      <span class="key">${a < 1e-15 ? "0" : a.toExponential(1)}</span>.`;
		return this.frame(v, n`${this.draw(m, r, e)}
        <p class="formula" tabindex="0" role="group" aria-label="Update with the present values">${b}</p>`, x, this.table("The state as numbers", ["asked for", ...u], l.map((e, t) => [e, ...m[t].map((e) => e.toFixed(4))])));
	}
	draw(t, r, i) {
		let a = this.width - 34, o = this.get("chunk"), s = a / d.length, c = d.map(([t, n], r) => {
			let a = r === i - 1, c = Math.floor(r / o) % 2 ? "var(--hymo-gdn-soft)" : "transparent";
			return e`<g>
        <rect x=${r * s} y="18" width=${s} height="44" fill=${c}></rect>
        <rect x=${r * s + 2} y="20" width=${s - 4} height="40" rx="4" fill="none" stroke=${a ? "var(--hymo-mla)" : "var(--hymo-line)"} stroke-width=${a ? 3 : 1}></rect>
        <text x=${r * s + s / 2} y="37" text-anchor="middle" opacity=${r < i ? 1 : .75}>${t}</text>
        <text class="soft" x=${r * s + s / 2} y="53" text-anchor="middle">${n}</text>
      </g>`;
		}), f = a < 480, p = f ? a - 46 : Math.min(300, a * .48), m = p / u.length, h = t.flatMap((t, n) => t.map((t, r) => e`<g>
        <rect x=${46 + r * m + 1} y=${106 + n * 38 + 1} width=${m - 2} height=${36} rx="3" fill=${t >= 0 ? "var(--hymo-gdn)" : "var(--hymo-mla)"} fill-opacity=${Math.min(1, Math.abs(t)) * .9} stroke="var(--hymo-line)"></rect>
        <text x=${46 + r * m + m / 2} y=${106 + n * 38 + 19 + 4} text-anchor="middle" style=${Math.abs(t) > .55 ? "fill:var(--hymo-panel)" : ""}>${t.toFixed(2)}</text>
      </g>`)), g = f ? 46 : 46 + p + 50, _ = f ? 106 + l.length * 38 + 46 : 106, v = f ? a - 46 : a - g - 4, y = l.length * 38, b = d[i - 1][0], x = this.keys(), S = (e) => g + v * e / (d.length - 1), C = (e) => _ + y - (y * Math.max(-.2, Math.min(1.2, e)) + .2 * y) / 1.4, w = [
			"",
			"6 3",
			"2 3",
			"8 3 2 3"
		], T = [
			"var(--hymo-mla)",
			"var(--hymo-third)",
			"var(--hymo-gdn)",
			"var(--hymo-soft)"
		], E = u.map((t, n) => {
			let i = r.states.map((e) => e.reduce((e, t, r) => e + t[n] * x[l.indexOf(b)][r], 0));
			return e`<polyline fill="none" stroke=${T[n]} stroke-width="2" stroke-dasharray=${w[n]} points=${i.map((e, t) => `${S(t)},${C(e)}`).join(" ")}></polyline>
        <line x1=${g + n % 2 * 70} x2=${g + n % 2 * 70 + 20} y1=${_ + y + 16 + 16 * Math.floor(n / 2)} y2=${_ + y + 16 + 16 * Math.floor(n / 2)} stroke=${T[n]} stroke-width="2" stroke-dasharray=${w[n]}></line>
        <text x=${g + n % 2 * 70 + 24} y=${_ + y + 20 + 16 * Math.floor(n / 2)}>${t}</text>`;
		}), D = _ + y + 44;
		return n`<svg width=${a} height=${D} viewBox="0 0 ${a} ${D}" role="img" aria-label=${`The story of ${d.length} writes in chunks of ${o}; what the state answers for each key after token ${i}; the answers for ${b} over time`}>
      <text class="soft" x="0" y="12">writes, token by token; shading: chunks</text>
      ${c}
      <text class="soft" x=${46} y="86">answer to each key after token ${i}</text>
      ${u.map((t, n) => e`<text class="soft" x=${46 + n * m + m / 2} y="102" text-anchor="middle">${t}</text>`)}
      ${l.map((t, n) => e`<text x="0" y=${106 + n * 38 + 19 + 4}>${t}?</text>`)}
      ${h}
      <text class="soft" x=${g} y=${_ - 8}>answers to “${b}?” over time</text>
      <line class="axis" x1=${g} x2=${g + v} y1=${C(0)} y2=${C(0)}></line>
      <line class="axis" x1=${g} x2=${g + v} y1=${C(1)} y2=${C(1)} stroke-dasharray="2 4"></line>
      <text class="soft" x=${g + v} y=${C(1) - 4} text-anchor="end">1</text>
      <line x1=${S(i - 1)} x2=${S(i - 1)} y1=${_} y2=${_ + y} stroke="var(--hymo-mla)" stroke-width="1"></line>
      ${E}
    </svg>`;
	}
};
customElements.define("hymo-gdn-lab", f);
