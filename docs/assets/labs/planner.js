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
	let c = r(e.model).reduce((e, [, t]) => e + o(t), 0), l = Math.max(1, Math.floor(n / e.training.dp_replicate)), u = m(e, t), d = _(e), f = i * e.training.seq_len, h = {
		weights: d < p || n > 1 ? c * d : 0,
		masters: Math.ceil(p * c / l),
		gradients: Math.ceil(p * c / l),
		normuon: Math.ceil(p * (u.normuon + u.neurons) / l),
		adamw: Math.ceil(8 * u.adamw / l),
		activations: v(f * y(e, a, s) * (s && (e.training.torch_compile_gdn ?? !0) ? t.measured.kept : 1)),
		logits: E(e, t, f, s)
	};
	return {
		...h,
		total: Object.values(h).reduce((e, t) => e + t, 0)
	};
}
var _ = (e) => e.training.param_dtype === "bfloat16" ? 2 : p, v = (e) => e % 1 == .5 ? 2 * Math.round(e / 2) : Math.round(e);
function y(e, t, n) {
	let r = e.model, i = _(e), o = n && e.training.gdn_kernel === "auto" ? "triton" : e.training.gdn_kernel, s = Array.from({ length: r.n_layers }, (e, t) => t), c = s.map((n) => b(e, n, i, o, t === "selective")), l = t === "full" ? r.n_layers * r.dim * i + Math.max(...c) : c.reduce((e, t) => e + t, 0);
	t === "selective" && (l += Math.max(...s.map((e) => a(r, e) ? S(r, i) : 0)));
	let u = r.mtp_depth * (3 * r.dim * i + x(r.dim, r.moe_inter_dim, i));
	return l + 3 * r.dim * i + u;
}
function b(e, t, n, r, i) {
	let o = e.model, c = f(o, t) ? C(o, n) : w(o, n, r);
	a(o, t) && (c += 2 * o.dim * n + 12 * o.n_routed_experts + (i ? 0 : S(o, n)));
	let l = s(o, t);
	return l ? c + 2 * o.dim * n + x(o.dim, l, n) : c;
}
var x = (e, t, n) => n * (e + 4 * t), S = (e, t) => (e.n_activated_experts + e.n_shared_experts) * (x(e.dim, e.moe_inter_dim, t) + e.dim * t);
function C(e, t) {
	let n = e.n_heads * e.head_dim, r = e.n_kv_groups * (e.head_dim + e.v_head_dim), i = e.mla_latent ? 2 * (e.kv_lora_rank + e.qk_rope_head_dim) : 0;
	return t * (2 * e.dim + 2 * e.q_lora_rank + 3 * n + i + 2 * r + e.n_heads * e.v_head_dim) + p * e.n_heads;
}
function w(e, t, r) {
	let [i, a] = [e.gdn_d_inner, n(e)], o = 2 * a * e.gdn_d_state;
	return o += r === "triton" ? 3 * e.dim + 4 * i : 2 * e.dim + i * (e.gdn_d_conv + 5), e.gdn_gate !== "none" && (o += i), t * o + 16 * a + T(e, r);
}
function T(e, t) {
	let [r, i, a] = [
		e.gdn_chunk_size,
		e.gdn_d_state,
		e.gdn_headdim
	], o = Math.ceil(i * a / r), s;
	return s = t === "recurrent" ? 2 * i * a + 3 * i + a : t === "triton" ? 8 + (i * a <= 1024 ? Math.floor(i * a / 32) : 0) : e.gdn_recurrence === "gated_delta" ? 5 * r + 7 * i + 5 * a + 2 * o : (Math.log2(r) + 4) * i + r + a + o + 1, p * n(e) * s;
}
function E(e, t, n, r) {
	let i = e.model, a = 1 + i.mtp_depth, o = n * i.vocab_size;
	if (o <= t.logitChunk) return a * 3 * p * o;
	let s = a * p * i.dim * (i.vocab_size + n), [c, l] = [t.logitChunk, _(e)];
	return s + (r ? l * Math.max(16 / l * c, Math.floor(o / 8)) : 16 * c);
}
// src/maths/planner.ts
var D = 4096, O = (e) => e.training.micro_batch_size * e.training.grad_accum_steps * e.training.dp_size, k = (e) => O(e) * e.training.seq_len, A = (e) => e.scheduler.total_steps ?? Math.floor((e.scheduler.total_tokens ?? 0) / k(e));
function j(n, r, a, o, s, c) {
	let d = n.training, f = a?.memory ? Math.trunc(a.memory * r.usable) : null, p = !!a?.peak, _ = {};
	for (let e of r.levels) {
		let t = g(n, r, o, d.micro_batch_size, e, p);
		_[e] = {
			memory: t,
			fits: f === null ? null : t.total <= f,
			largest: f === null ? null : N(n, r, o, e, f)
		};
	}
	let v = t(n.model), y = 4 * v.stored + h(m(n, r)), b = A(n), x = Number(d.keep_stable) + (d.keep_every === null ? 0 : Math.floor(b / d.keep_every)), S = Math.ceil(O(n) / (d.micro_batch_size * o)), C = (e) => e === "bfloat16" ? 2 : 4, w = (d.reshard_after_forward ? 2 * S : 1) * C(d.param_dtype) * v.stored, T = S * C(d.reduce_dtype) * v.stored, E = Math.min(d.dp_replicate, o), D = Math.floor(o / E), j = Math.floor(v.stored / D), P = Math.floor(2 * C(d.reduce_dtype) * j * (E - 1) / E), F = 4 * m(n, r).normuon, I = Math.floor(Math.floor(F / o) * (D - 1) / D) + Math.floor(Math.floor(F / D) * (o - 1) / o), L = Math.floor((w + T) * (D - 1) / D) + P + I, R = b * k(n), z = u(n.model, d.seq_len), B = null;
	if (a?.peak && d.param_dtype === "bfloat16") {
		let e = k(n) / M(n, r, a, o, S, L), t = R / e;
		B = {
			tokensPerSecond: e,
			utilisation: e * z / (o * a.peak),
			days: t / 86400,
			cost: c === null ? null : t / 3600 * o * c
		};
	}
	return {
		stored: v.stored,
		active: v.active,
		used: e(n.model, !0),
		flopsPerToken: z,
		tokensPerStep: k(n),
		steps: b,
		tokens: R,
		passes: S,
		usable: f,
		levels: _,
		communication: L,
		context: s ?? n.model.max_seq_len,
		cache: l(n.model, s ?? n.model.max_seq_len),
		state: i(n.model),
		checkpoint: y,
		disk: y * (d.keep_last + 1 + Number(d.keep_best ?? !0) + x),
		throughput: B,
		possible: f === null || Object.values(_).some((e) => e.largest !== 0)
	};
}
function M(t, n, r, i, o, s) {
	let [c, l, u] = [
		t.model,
		t.training,
		n.measured
	], f = l.activation_checkpointing, p = 6 * e(c, !0), m = f === "full" ? 4 / 3 : 1;
	if (f === "selective") {
		let e = Array.from({ length: c.n_layers }, (e, t) => t).filter((e) => a(c, e)).length;
		p += 2 * (c.n_activated_experts + c.n_shared_experts) * e * 3 * c.dim * c.moe_inter_dim;
	}
	let h = k(t) / i * m;
	return h * p / (u.matmul * r.peak) + h * 3 * d(c, l.seq_len) / (u.attention * r.peak) + h * y(t, "none", !0) / (u.memory * r.bandwidth) + o * c.n_layers * u.gap_seconds + s / r.link;
}
function N(e, t, n, r, i) {
	let [a, o] = [0, D];
	for (; a < o;) {
		let s = Math.floor((a + o + 1) / 2);
		g(e, t, n, s, r, !0).total <= i ? a = s : o = s - 1;
	}
	return a;
}
export { g as i, k as n, A as r, j as t };
