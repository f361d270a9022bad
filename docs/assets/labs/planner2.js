import { a as e, c as t, i as n, l as r, n as i, o as a, s as o, t as s } from "./base.js";
import { r as c } from "./d3.js";
import { t as l } from "./planner.js";
// src/planner.ts
var u = [
	[
		"weights",
		"compute copy",
		"var(--hymo-soft)"
	],
	[
		"masters",
		"masters",
		"var(--hymo-gdn)"
	],
	[
		"gradients",
		"gradients",
		"var(--hymo-bad)"
	],
	[
		"normuon",
		"NorMuon",
		"var(--hymo-third)"
	],
	[
		"adamw",
		"AdamW",
		"var(--hymo-mla)"
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
], d = class extends s {
	constructor(...e) {
		super(...e), this.defaults = {
			preset: "hymo_750m",
			device: "h200",
			gpus: 1,
			batch: 0,
			tokens: 0,
			price: 2
		};
	}
	settle() {
		this.presets && (this.choose("preset", [...Object.keys(this.presets.presets), "yours"]), this.state.preset === "yours" && !this.own && (this.state.preset = this.defaults.preset), this.choose("device", this.presets.devices.map((e) => e.key)), this.clamp("gpus", 1, 64), this.clamp("batch", 0, 64), this.clamp("tokens", 0, 100), this.clamp("price", 0, 10));
	}
	accept(e) {
		return this.own = i(e), this.set("preset", "yours"), `${this.own.run.name} is planned below.`;
	}
	get config() {
		let e = this.own && this.state.preset === "yours" ? this.own : this.presets.presets[String(this.state.preset)], t = structuredClone(e);
		if (this.get("batch")) {
			let e = t.training.micro_batch_size * t.training.grad_accum_steps;
			t.training.micro_batch_size = this.get("batch"), t.training.grad_accum_steps = Math.max(1, Math.round(e / this.get("batch")));
		}
		return this.get("tokens") && (t.scheduler.total_steps = null, t.scheduler.total_tokens = this.get("tokens") * 1e9), t;
	}
	render() {
		if (!this.presets) return this.frame(o``, o``, "");
		let t = this.config, r = this.presets.devices.find((e) => e.key === this.state.device) ?? null, i = this.get("gpus"), s = l(t, this.presets.constants, r, i, null, this.get("price")), c = t.training.activation_checkpointing, d = s.levels[c];
		this.dataset.total = String(d.memory.total), this.dataset.tokens = String(s.tokens), this.dataset.days = s.throughput ? s.throughput.days.toFixed(3) : "";
		let f = Object.keys(this.presets.presets).map((e) => [e, e]), p = o`
      ${this.select("preset", "Configuration", this.own ? [...f, ["yours", this.own.run.name]] : f)}
      ${this.select("device", "Device", this.presets.devices.map((e) => [e.key, e.name]))}
      ${this.slider("gpus", "Devices", 1, 64, 1)}
      ${this.slider("batch", "Micro-batch", 0, 64, 1, (e) => e ? String(e) : `preset: ${this.presets.presets[String(this.state.preset)]?.training.micro_batch_size ?? t.training.micro_batch_size}`)}
      ${this.slider("tokens", "Tokens, billions", 0, 100, 1, (t) => t ? String(t) : `preset: ${e(s.tokens)}`)}
      ${this.slider("price", "Price per device-hour", 0, 10, .1, (e) => e.toFixed(2))}
      ${this.file("Your config (YAML, JSON)")}
      <div class="buttons">${this.resetButton()}</div>
    `, m = s.throughput, h = m ? o`at ${(100 * m.utilisation).toFixed(0)} % of the peak, by efficiencies of ${this.presets.constants.measured.presets.join(" and ")} on one ${this.presets.constants.measured.device}, it takes
          <b>${m.days < 2 ? `${(m.days * 24).toFixed(1)} hours` : `${m.days.toFixed(1)} days`}</b> and costs <b>${n(m.cost ?? 0)}</b>.` : o`there is no throughput for it: ${r?.peak ? "the peak is for bf16, this run computes in fp32" : "its bf16 peak depends on the machine"}.`, g = o`<b>${t.run.name}</b> on ${i} × ${r?.name}: ${e(s.tokens)} tokens in ${n(s.steps)} steps; ${h}
      ${s.possible ? d.fits === !1 ? o` Micro-batch ${t.training.micro_batch_size} does <b>not fit</b> without more recomputation: the largest that fit are ${Object.entries(s.levels).map(([e, t]) => `${e} ${t.largest}`).join(", ")}.` : d.fits ? o` It fits: ${a(d.memory.total)} of ${a(s.usable)} usable.` : "" : o` <b>It does not fit at any level.</b>`}`, _ = [
			["parameters stored", n(s.stored)],
			["parameters active per token", n(s.active)],
			["FLOPs per trained token", `${e(s.flopsPerToken)}`],
			["tokens per step", n(s.tokensPerStep)],
			["forward passes per step", `${s.passes} of ${t.training.micro_batch_size} sequences`],
			["expected tokens per second", m ? e(m.tokensPerSecond) : "–"],
			["received per device and step", a(s.communication)],
			["attention cache at the context", a(s.cache)],
			["recurrent state per sequence", a(s.state)],
			["one checkpoint", a(s.checkpoint)],
			["checkpoints on disk", a(s.disk)]
		];
		return this.frame(p, o`${this.draw(s, c)}
        <dl class="facts">${_.map(([e, t]) => o`<div><dt>${e}</dt><dd>${t}</dd></div>`)}</dl>`, g, this.table("Memory by item as numbers", ["item", ...Object.keys(s.levels)], [
			...u.map(([e, t]) => [t, ...Object.values(s.levels).map((t) => a(t.memory[e]))]),
			["total", ...Object.values(s.levels).map((e) => a(e.memory.total))],
			["largest micro-batch", ...Object.values(s.levels).map((e) => e.largest ?? "–")]
		]));
	}
	draw(e, n) {
		let r = this.width - 34, i = Object.keys(e.levels), s = Math.max(...i.map((t) => e.levels[t].memory.total), e.usable ?? 0), l = c([0, s], [76, r - 70]), d = 26 + i.length * 40;
		return o`<svg width=${r} height=${d + 6} role="img" aria-label="Memory per device by item at each level of activation checkpointing, against the usable memory">
        <text class="soft" x="0" y="12">memory per device, estimated, by recomputation</text>
        ${i.map((r, i) => {
			let o = e.levels[r].memory, s = 0;
			return t`<g transform="translate(0 ${24 + i * 40})">
            <text x="0" y="19" style=${r === n ? "font-weight:600" : ""}>${r}</text>
            ${u.map(([e, , i]) => {
				let a = l(s);
				return s += o[e], t`<rect x=${a} y="4" width=${Math.max(0, l(s) - a - 1)} height="22" fill=${i} fill-opacity=${(e === "activations" ? .55 : .9) * (r === n ? 1 : .6)}></rect>`;
			})}
            <text class="soft" x=${l(s) + 6} y="19">${a(o.total)}</text>
          </g>`;
		})}
        ${e.usable ? t`<line x1=${l(e.usable)} x2=${l(e.usable)} y1="20" y2=${d} stroke="var(--hymo-bad)" stroke-width="2" stroke-dasharray="5 3"></line><text x=${Math.min(l(e.usable), r - 4)} y="12" text-anchor="end" style="fill:var(--hymo-bad)">${this.width > 480 ? `usable ${a(e.usable)}` : ""}</text>` : ""}
      </svg>
      <p class="legend">${u.map(([e, t, n]) => o`<span><i style=${`background:${n};opacity:${e === "activations" ? .55 : .9}`}></i>${t}</span>`)}</p>`;
	}
	static {
		this.styles = [s.styles, r`
      .legend { display: flex; flex-wrap: wrap; gap: 4px 14px; margin: 6px 0 10px; font-size: 13px; color: var(--hymo-soft); }
      .legend i { display: inline-block; width: 11px; height: 11px; margin-right: 5px; border: 1px solid var(--hymo-line); }
      .facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(250px, 100%), 1fr)); gap: 0 28px; margin: 6px 0 8px; }
      .facts div { display: flex; justify-content: space-between; gap: 12px; border-bottom: 1px solid var(--hymo-line); padding: 4px 0; font-size: 13px; }
      dt { color: var(--hymo-soft); }
      dd { margin: 0; font-variant-numeric: tabular-nums; }
    `];
	}
};
customElements.define("hymo-planner-lab", d);
