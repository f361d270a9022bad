import { _ as e, a as t, c as n, d as r, h as i, l as a, m as o, o as s, p as c, r as l, s as u, t as d, u as f } from "./accounting.js";
// src/maths/memory.ts
var p = 4;
function m(e, t) {
	let n = t.normuonRoles[e.optimizer.optimizer_partition], i = r(e.model).map(([, e]) => e), a = i.filter((e) => n.includes(e.role)), s = a.reduce((e, t) => e + o(t), 0);
	return {
		normuon: s,
		neurons: e.optimizer.muon_normalize ? a.reduce((e, t) => e + c(t), 0) : 0,
		adamw: i.reduce((e, t) => e + o(t), 0) - s
	};
}
var h = (e) => p * (e.normuon + e.neurons) + 8 * e.adamw;
function g(e, t, n = 1, i = e.training.micro_batch_size, a = e.training.activation_checkpointing, s = !1) {
	let c = r(e.model).reduce((e, [, t]) => e + o(t), 0), l = Math.max(1, Math.floor(n / e.training.dp_replicate)), u = m(e, t), d = v(e), f = i * e.training.seq_len, h = e.training, g = h.micro_batch_size * h.grad_accum_steps * h.dp_size <= i * n, x = _(h) && !g, S = ["auto", "triton"].includes(h.gdn_kernel) && d < p, C = b(e, a, s, s && (h.torch_compile_gdn ?? !0) && S ? t.measured.kept : void 0), w = {
		weights: d < p || n > 1 ? c * d : 0,
		masters: Math.ceil(p * c / l),
		gradients: Math.ceil(p * c / (x ? 1 : l)),
		normuon: Math.ceil(p * (u.normuon + u.neurons) / l),
		adamw: Math.ceil(8 * u.adamw / l),
		activations: y(f * C),
		logits: D(e, t, f, s)
	};
	return {
		...w,
		total: Object.values(w).reduce((e, t) => e + t, 0)
	};
}
var _ = (e) => !e.reshard_after_forward && e.reduce_dtype === "float32", v = (e) => e.training.param_dtype === "bfloat16" ? 2 : p, y = (e) => e % 1 == .5 ? 2 * Math.round(e / 2) : Math.round(e);
function b(e, t, n, r) {
	let i = e.model, a = v(e), o = r ?? 1, s = n && e.training.gdn_kernel === "auto" ? "triton" : e.training.gdn_kernel, c = Array.from({ length: i.n_layers }, (e, t) => t), l = (e) => t === "selective" && f(i, e), u = c.map((e) => {
		let t = l(e) ? 1 : o, n = f(i, e) ? t * w(i, a) : T(i, a, s, r !== void 0);
		return (l(e) ? i.dim * a : o * x(i, e, a)) + n;
	}), d = t === "full" ? i.n_layers * i.dim * a + Math.max(...u) : u.reduce((e, t) => e + t, 0);
	d += Math.max(0, ...c.filter(l).map((e) => x(i, e, a)));
	let p = i.mtp_depth * (3 * i.dim * a + S(i.dim, i.moe_inter_dim, a));
	return d + o * (3 * i.dim * a + p);
}
function x(e, t, n) {
	let r = 0;
	a(e, t) && (r += 2 * e.dim * n + 12 * e.n_routed_experts + C(e, n));
	let i = s(e, t);
	return i ? r + 2 * e.dim * n + S(e.dim, i, n) : r;
}
var S = (e, t, n) => n * (e + 4 * t), C = (e, t) => (e.n_activated_experts + e.n_shared_experts) * (S(e.dim, e.moe_inter_dim, t) + e.dim * t);
function w(e, t) {
	let n = e.n_heads * e.head_dim, r = e.n_kv_groups * (e.head_dim + e.v_head_dim), i = e.mla_latent ? 2 * (e.kv_lora_rank + e.qk_rope_head_dim) : 0;
	return t * (2 * e.dim + 2 * e.q_lora_rank + 3 * n + i + 2 * r + e.n_heads * e.v_head_dim) + p * e.n_heads;
}
function T(e, t, r, i) {
	let [a, o] = [e.gdn_d_inner, n(e)], s = o * e.gdn_d_state, c = e.gdn_recurrence === "gated_delta", [l, u, d] = [
		2 * e.dim + a * (e.gdn_d_conv + 5) + 2 * s,
		4,
		0
	];
	if (r === "triton") {
		let n = Number(c || e.gdn_output_norm);
		l = 2 * e.dim + (4 + n + Number(e.gdn_rope_target === "v")) * a + (c ? 4 : 2) * s, u = (c ? 5 : 1) + n + Number(e.gdn_gate === "mean"), d = c && !i ? 2 * s * (p - t) : 0;
	}
	return e.gdn_gate !== "none" && (l += a), t * l + u * p * o + d + E(e, r);
}
function E(e, t) {
	let [r, i, a] = [
		e.gdn_chunk_size,
		e.gdn_d_state,
		e.gdn_headdim
	], o = e.gdn_recurrence === "gated_delta", s = Math.ceil(i * a / r), c;
	return c = t === "recurrent" ? 2 * i * a + 3 * i + a : t === "triton" ? (o ? 16 : 8) + (i * a <= 1024 ? Math.floor(i * a / 32) : 0) : o ? 5 * r + 7 * i + 5 * a + 2 * s : (Math.log2(r) + 4) * i + r + a + s + 1, p * n(e) * c;
}
function D(e, t, n, r) {
	let i = e.model, a = 1 + i.mtp_depth, o = n * i.vocab_size;
	if (o <= t.logitChunk) return a * 3 * p * o;
	let s = a * p * i.dim * (i.vocab_size + n), [c, l] = [t.logitChunk, v(e)];
	return s + (r ? l * Math.max(16 / l * c, Math.floor(o / 8)) : 16 * c);
}
// src/maths/planner.ts
var O = 4096, k = (e) => e.training.micro_batch_size * e.training.grad_accum_steps * e.training.dp_size, A = (e) => k(e) * e.training.seq_len, j = (e) => e.scheduler.total_steps ?? Math.floor((e.scheduler.total_tokens ?? 0) / A(e));
function M(n, r, a, o, s, c) {
	let d = n.training, f = a?.memory ? Math.trunc(a.memory * r.usable) : null, p = !!a?.peak, v = {};
	for (let e of r.levels) {
		let t = g(n, r, o, d.micro_batch_size, e, p);
		v[e] = {
			memory: t,
			fits: f === null ? null : t.total <= f,
			largest: f === null ? null : P(n, r, o, e, f)
		};
	}
	let y = t(n.model), b = 4 * y.stored + h(m(n, r)), x = j(n), S = Number(d.keep_stable) + (d.keep_every === null ? 0 : Math.floor(x / d.keep_every)), C = Math.ceil(k(n) / (d.micro_batch_size * o)), w = (e) => e === "bfloat16" ? 2 : 4, T = (d.reshard_after_forward ? 2 * C : 1) * w(d.param_dtype) * y.stored, E = (_(d) ? 1 : C) * w(d.reduce_dtype) * y.stored, D = Math.min(d.dp_replicate, o), O = Math.floor(o / D), M = Math.floor(y.stored / O), F = Math.floor(2 * w(d.reduce_dtype) * M * (D - 1) / D), I = 4 * m(n, r).normuon, L = Math.floor(Math.floor(I / o) * (O - 1) / O) + Math.floor(Math.floor(I / O) * (o - 1) / o), R = Math.floor((T + E) * (O - 1) / O) + F + L, z = x * A(n), B = u(n.model, d.seq_len), V = null;
	if (a?.peak && d.param_dtype === "bfloat16") {
		let e = A(n) / N(n, r, a, o, C, R), t = z / e;
		V = {
			tokensPerSecond: e,
			utilisation: e * B / (o * a.peak),
			days: t / 86400,
			cost: c === null ? null : t / 3600 * o * c
		};
	}
	return {
		stored: y.stored,
		active: y.active,
		used: e(n.model, !0),
		flopsPerToken: B,
		tokensPerStep: A(n),
		steps: x,
		tokens: z,
		passes: C,
		usable: f,
		levels: v,
		communication: R,
		context: s ?? n.model.max_seq_len,
		cache: l(n.model, s ?? n.model.max_seq_len),
		state: i(n.model),
		checkpoint: b,
		disk: b * (d.keep_last + 1 + Number(d.keep_best ?? !0) + S),
		throughput: V,
		possible: f === null || Object.values(v).some((e) => e.largest !== 0)
	};
}
function N(t, n, r, i, o, c) {
	let [l, u, f] = [
		t.model,
		t.training,
		n.measured
	], p = u.activation_checkpointing, m = 6 * e(l, !0), h = p === "full" ? 4 / 3 : 1;
	if (p === "selective") {
		let e = (l.n_activated_experts + l.n_shared_experts) * l.mla_layers.filter((e) => a(l, e)).length * l.moe_inter_dim + l.mla_layers.reduce((e, t) => e + s(l, t), 0);
		m += 6 * l.dim * e;
	}
	let g = A(t) / i * h;
	return g * m / (f.matmul * r.peak) + g * 3 * d(l, u.seq_len) / (f.attention * r.peak) + g * b(t, "none", !0, 1) / (f.memory * r.bandwidth) + o * l.n_layers * f.gap_seconds + c / r.link;
}
function P(e, t, n, r, i) {
	let a = (a) => g(e, t, n, a, r, !0).total <= i, o = Math.ceil(k(e) / n), [s, c] = a(o) ? [o, Math.max(o, O)] : [0, o - 1];
	for (; s < c;) {
		let e = Math.floor((s + c + 1) / 2);
		a(e) ? s = e : c = e - 1;
	}
	return s;
}
export { g as i, A as n, j as r, M as t };
