import { c as e, i as t, l as n, r, s as i, t as a } from "./base.js";
import { r as o, t as s } from "./d3.js";
import { _ as c, f as l, g as u } from "./accounting.js";
import { n as d } from "./router.js";
// src/maths/speculation.ts
function f(e, t) {
	let n = e.reduce((e, t) => e + t, 0), r = 0;
	for (let i = 0; i < e.length; i++) if (r += e[i] / n, r > t) return i;
	return e.length - 1;
}
function p(e, t, n) {
	let r = t.map(() => 0), i = t.map(() => 0), a = [];
	for (let o = 0;; o++) {
		let s = f(e[o], n());
		if (o === t.length || (r[o]++, s !== t[o])) return {
			kept: a,
			own: s,
			proposed: r,
			accepted: i
		};
		i[o]++, a.push(s);
	}
}
function m(e) {
	let [t, n] = [1, 1];
	for (let r of e) t += n *= r;
	return t;
}
function h(e, t) {
	if (t === 0) {
		let t = g(e);
		return e.map((e, n) => +(n === t));
	}
	let n = e.map((e) => e > 0 ? Math.exp(Math.log(e) / t) : 0), r = n.reduce((e, t) => e + t, 0);
	return n.map((e) => e / r);
}
var g = (e) => e.reduce((t, n, r) => n > e[t] ? r : t, 0), _ = 40, v = "␣", y = class extends a {
	constructor(...e) {
		super(...e), this.defaults = {
			passes: 12,
			temperature: .5,
			heads: "sighted",
			depth: 2,
			cost: .1,
			seed: 1
		}, this.rows = [], this.unigram = [], this.measured = [];
	}
	async prepare() {
		this.bigrams = await r("bigrams");
		let { counts: e } = this.bigrams;
		this.rows = e.map((e) => {
			let t = e.reduce((e, t) => e + t, 0);
			return e.map((e) => e / t);
		});
		let t = e[0].map((t, n) => e.reduce((e, t) => e + t[n], 0)), n = t.reduce((e, t) => e + t, 0);
		this.unigram = t.map((e) => e / n);
	}
	settle() {
		this.clamp("passes", 0, _), this.clamp("temperature", 0, 1.5), this.choose("heads", ["sighted", "blind"]), this.clamp("depth", 1, 4), this.clamp("cost", 0, 1), this.clamp("seed", 1, 99);
	}
	advance() {
		let e = this.get("passes") >= _ ? 0 : this.get("passes") + 1;
		return this.set("passes", e), e < _;
	}
	finish() {
		this.set("passes", _);
	}
	accept(e) {
		let t = [], n = (e) => {
			if (e && typeof e == "object") for (let [r, i] of Object.entries(e)) {
				let e = /^acceptance_(\d+)$/.exec(r);
				e && typeof i == "number" ? t[Number(e[1]) - 1] = i : n(i);
			}
		};
		if (n(Array.isArray(e) ? e.at(-1) : e), !t.length) throw Error("no acceptance_1 in it: load what `hymo eval RUN --json` prints, or a run's metrics.jsonl");
		return this.measured = t, `measured acceptance ${t.map((e) => e.toFixed(3)).join(", ")}: ${m(t).toFixed(2)} tokens per pass expected.`;
	}
	generate() {
		let e = d(this.get("seed")), t = (e) => h(this.rows[e], this.get("temperature")), n = this.bigrams.symbols.indexOf(" ");
		n = f(t(n), e());
		let r = [{
			id: n,
			drafted: !1
		}], i = [];
		for (let a = 0; a < this.get("passes"); a++) {
			let a = [];
			for (let e = 0; e < this.get("depth"); e++) a.push(this.state.heads === "sighted" ? g(this.rows[a.at(-1) ?? n]) : g(this.unigram));
			let o = [n, ...a].map(t), s = p(o, a, e);
			i.push({
				drafts: a,
				probabilities: a.map((e, t) => o[t][e]),
				...s
			}), r.push(...s.kept.map((e) => ({
				id: e,
				drafted: !0
			})), {
				id: s.own,
				drafted: !1
			}), n = s.own;
		}
		return {
			text: r,
			passes: i
		};
	}
	render() {
		if (!this.presets || !this.bigrams) return this.frame(i``, i``, "");
		let { text: e, passes: n } = this.generate(), r = this.get("depth"), a = Array.from({ length: r }, (e, t) => n.reduce((e, n) => e + n.proposed[t], 0)), o = Array.from({ length: r }, (e, t) => n.reduce((e, n) => e + n.accepted[t], 0)), s = a.map((e, t) => e ? o[t] / e : 0), d = n.reduce((e, t) => e + t.kept.length + 1, 0), f = n.length ? d / n.length : 1, p = 1 + r * this.get("cost"), m = this.presets.presets.hymo_750m.model, h = (m.vocab_size * m.dim + u(l(m))) / c(m, !1);
		this.dataset.perpass = f.toFixed(3), this.dataset.text = e.map((e) => this.bigrams.symbols[e.id]).join("");
		let g = (e) => this.bigrams.symbols[e] === " " ? v : this.bigrams.symbols[e], y = i`
      ${this.slider("passes", "Passes", 0, _, 1)}
      ${this.slider("temperature", "Temperature", 0, 1.5, .05, (e) => e.toFixed(2))}
      ${this.select("heads", "The heads see", [["sighted", "the letter before"], ["blind", "nothing"]])}
      ${this.slider("depth", "Drafts per pass", 1, 4, 1)}
      ${this.slider("cost", "Cost of a draft, in passes", 0, 1, .05, (e) => e.toFixed(2))}
      ${this.slider("seed", "Seed", 1, 99, 1)}
      <div class="buttons">${this.playButton("Play passes", 500)}${this.resetButton()}</div>
      ${this.file("Your eval JSON")}
    `, b = n.at(-1), x = i`
      <p class="text" aria-label="The text so far; accepted drafts are underlined">
        ${e.map((e) => i`<span class=${e.drafted ? "drafted" : "own"}>${g(e.id)}</span>`)}<span class="cursor" aria-hidden="true"></span>
      </p>
      ${b ? i`<div class="pass" role="group" aria-label="The last pass">
            ${b.drafts.map((e, t) => {
			let n = b.proposed[t] > 0, r = b.accepted[t] > 0;
			return i`<div class="draft ${n ? r ? "kept" : "rejected" : "skipped"}">
                <span class="big">${g(e)}</span>
                <span>draft ${t + 1}, p = ${b.probabilities[t].toFixed(2)}</span>
                <span>${n ? r ? "✓ accepted" : "✗ rejected" : "– not judged"}</span>
              </div>`;
		})}
            <div class="draft own-token"><span class="big">${g(b.own)}</span><span>the model's own</span><span>always one</span></div>
          </div>` : i`<p>No pass yet.</p>`}
      ${this.draw(s, f, p)}`, S = i`${t(n.length)} passes gave ${t(d)} letters: <b>${f.toFixed(2)} per pass</b>, acceptance
      ${s.map((e) => e.toFixed(2)).join(", ")} by depth. With drafts at ${this.get("cost").toFixed(2)} passes each that is
      <b>${(f / p).toFixed(2)} times</b> the speed of one letter per pass, if a pass over several tokens costs as much as one over a single token.
      In the flagship, one draft multiplies ${(100 * h).toFixed(0)} % of the parameters that a plain token does.`;
		return this.frame(y, x, S, this.table("Passes as numbers", [
			"pass",
			"drafts",
			"p of each",
			"kept",
			"own"
		], n.map((e, t) => [
			t + 1,
			e.drafts.map(g).join(" "),
			e.probabilities.map((e) => e.toFixed(3)).join(" "),
			e.kept.length,
			g(e.own)
		])));
	}
	draw(t, n, r) {
		let a = this.width - 34, [c, l] = [34, 150], u = this.get("depth"), d = o([0, 1], [c, a - 10]), f = o([0, u + 1], [l, 30]), p = Array.from({ length: 41 }, (e, t) => t / 40), h = (e) => s().x((e) => d(e)).y((t) => f(e(t)))(p) ?? "", g = (e) => m(Array.from({ length: u }, () => e)), _ = p.reduce((e, t) => Math.abs(g(t) - n) < Math.abs(g(e) - n) ? t : e, 0), v = this.measured.length ? m(this.measured.slice(0, u)) : 0;
		return i`<svg width=${a} height=${l + 38} role="img" aria-label=${`Expected tokens per pass by acceptance, with ${u} drafts; here ${n.toFixed(2)}`}>
      ${Array.from({ length: u + 2 }, (t, n) => e`<line class="axis" x1=${c} x2=${a - 10} y1=${f(n)} y2=${f(n)}></line><text class="soft" x=${c - 8} y=${f(n) + 4} text-anchor="end">${n}</text>`)}
      ${[
			0,
			.5,
			1
		].map((t) => e`<text class="soft" x=${d(t)} y=${l + 16} text-anchor=${t === 1 ? "end" : "middle"}>${t}</text>`)}
      <text class="soft" x=${(c + a) / 2} y=${l + 32} text-anchor="middle">acceptance of each draft</text>
      <path d=${h(g)} fill="none" stroke="var(--hymo-gdn)" stroke-width="2"></path>
      <path d=${h((e) => g(e) / r)} fill="none" stroke="var(--hymo-mla)" stroke-width="2" stroke-dasharray="6 3"></path>
      <circle cx=${d(_)} cy=${f(n)} r="5" fill="var(--hymo-gdn)"></circle>
      ${v ? e`<rect x=${d(this.measured[0]) - 5} y=${f(v) - 5} width="10" height="10" fill="var(--hymo-third)"></rect>` : ""}
      <text class="soft" x="0" y="12">tokens per pass (line) and speed-up (dashed)</text>
    </svg>
    <span hidden>${t.length}</span>`;
	}
	static {
		this.styles = [a.styles, n`
      .text { font-family: var(--md-code-font-family, monospace); font-size: 19px; line-height: 1.7; margin: 0 0 12px; min-height: 2em; overflow-wrap: anywhere; }
      .drafted { color: var(--hymo-gdn); text-decoration: underline; text-underline-offset: 4px; text-decoration-thickness: 2px; }
      .cursor { border-left: 2px solid var(--hymo-mla); margin-left: 2px; }
      .pass { display: grid; grid-template-columns: repeat(auto-fit, minmax(118px, 1fr)); gap: 8px; margin-bottom: 14px; }
      .draft { display: flex; flex-direction: column; border: 2px solid var(--hymo-line); border-radius: 6px; padding: 6px 10px; font-size: 13px; }
      .draft.kept { border-color: var(--hymo-gdn); }
      .draft.rejected { border-color: var(--hymo-bad); border-style: dashed; }
      .draft.skipped { border-style: dotted; color: var(--hymo-soft); }
      .draft.own-token { border-color: var(--hymo-ink); }
      .big { font-family: var(--md-code-font-family, monospace); font-size: 22px; line-height: 1.2; }
    `];
	}
};
customElements.define("hymo-mtp-lab", y);
