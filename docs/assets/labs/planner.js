import { a as e, c as t, f as n, g as r, i, l as a, m as o, n as s, o as c, p as l, s as u, u as d } from "./accounting.js";
// src/maths/memory.ts
var f = 4;
function p(e, t) {
	let r = t.normuonRoles[e.optimizer.optimizer_partition], i = d(e.model).map(([, e]) => e), a = i.filter((e) => r.includes(e.role)), o = a.reduce((e, t) => e + l(t), 0);
	return {
		normuon: o,
		neurons: e.optimizer.muon_normalize ? a.reduce((e, t) => e + n(t), 0) : 0,
		adamw: i.reduce((e, t) => e + l(t), 0) - o
	};
}
var m = (e) => f * (e.normuon + e.neurons) + 8 * e.adamw;
function h(e, t, n = 1, r = e.training.micro_batch_size, i = e.training.activation_checkpointing) {
	let a = d(e.model).reduce((e, [, t]) => e + l(t), 0), o = Math.max(1, Math.floor(n / e.training.dp_replicate)), s = p(e, t), c = g(e), u = r * e.training.seq_len, m = {
		weights: c < f || n > 1 ? a * c : 0,
		masters: Math.ceil(f * a / o),
		gradients: Math.ceil(f * a / o),
		normuon: Math.ceil(f * (s.normuon + s.neurons) / o),
		adamw: Math.ceil(8 * s.adamw / o),
		activations: _(e, u, i),
		logits: w(e, t, u)
	};
	return {
		...m,
		total: Object.values(m).reduce((e, t) => e + t, 0)
	};
}
var g = (e) => e.training.param_dtype === "bfloat16" ? 2 : f;
function _(e, n, r) {
	let i = e.model, a = g(e), o = Array.from({ length: i.n_layers }, (e, t) => t), s = o.map((t) => v(e, t, a, r === "selective")), c = r === "full" ? i.n_layers * i.dim * a + Math.max(...s) : s.reduce((e, t) => e + t, 0);
	r === "selective" && (c += Math.max(...o.map((e) => t(i, e) ? b(i, a) : 0)));
	let l = i.mtp_depth * (3 * i.dim * a + y(i.dim, i.moe_inter_dim, a));
	return n * (c + 3 * i.dim * a + l);
}
function v(n, r, i, o) {
	let s = n.model, c = a(s, r) ? x(s, i) : S(n, i);
	t(s, r) && (c += 2 * s.dim * i + 12 * s.n_routed_experts + (o ? 0 : b(s, i)));
	let l = e(s, r);
	return l ? c + 2 * s.dim * i + y(s.dim, l, i) : c;
}
var y = (e, t, n) => n * (e + 4 * t), b = (e, t) => (e.n_activated_experts + e.n_shared_experts) * (y(e.dim, e.moe_inter_dim, t) + e.dim * t);
function x(e, t) {
	let n = e.n_heads * e.head_dim, r = e.n_kv_groups * (e.head_dim + e.v_head_dim), i = e.mla_latent ? 2 * (e.kv_lora_rank + e.qk_rope_head_dim) : 0;
	return t * (2 * e.dim + 2 * e.q_lora_rank + 3 * n + i + 2 * r + e.n_heads * e.v_head_dim) + f * e.n_heads;
}
function S(e, t) {
	let n = e.model, [r, i] = [n.gdn_d_inner, u(n)], a = 2 * n.dim + r * (n.gdn_d_conv + 2) + 2 * i * n.gdn_d_state + 3 * r;
	return n.gdn_gate !== "none" && (a += r), t * a + 16 * i + C(e);
}
function C(e) {
	let t = e.model, [n, r, i] = [
		t.gdn_chunk_size,
		t.gdn_d_state,
		t.gdn_headdim
	], a = Math.ceil(r * i / n), o;
	return o = e.training.gdn_kernel === "recurrent" ? 2 * r * i + 3 * r + i : e.training.gdn_kernel === "triton" ? 8 + (r * i <= 1024 ? Math.floor(r * i / 32) : 0) : t.gdn_recurrence === "gated_delta" ? 5 * n + 7 * r + 5 * i + 2 * a : (Math.log2(n) + 4) * r + n + i + a + 1, f * u(t) * o;
}
function w(e, t, n) {
	let r = e.model, i = 1 + r.mtp_depth, a = n * r.vocab_size;
	return a <= t.logitChunk ? i * 3 * f * a : i * f * r.dim * (r.vocab_size + n) + 16 * t.logitChunk;
}
// src/maths/planner.ts
var T = 4096, E = (e) => e.training.micro_batch_size * e.training.grad_accum_steps * e.training.dp_size, D = (e) => E(e) * e.training.seq_len, O = (e) => e.scheduler.total_steps ?? Math.floor((e.scheduler.total_tokens ?? 0) / D(e));
function k(e, t, n, a, l, u) {
	let d = e.training, f = n?.memory ? Math.trunc(n.memory * t.usable) : null, g = {};
	for (let n of t.levels) {
		let r = h(e, t, a, d.micro_batch_size, n);
		g[n] = {
			memory: r,
			fits: f === null ? null : r.total <= f,
			largest: f === null ? null : A(e, t, a, n, f)
		};
	}
	let _ = i(e.model), v = 4 * _.stored + m(p(e, t)), y = O(e), b = Number(d.keep_stable) + (d.keep_every === null ? 0 : Math.floor(y / d.keep_every)), x = Math.ceil(E(e) / (d.micro_batch_size * a)), S = (e) => e === "bfloat16" ? 2 : 4, C = (d.reshard_after_forward ? 2 * x : 1) * S(d.param_dtype) * _.stored, w = x * S(d.reduce_dtype) * _.stored, T = Math.min(d.dp_replicate, a), k = Math.floor(a / T), j = Math.floor(_.stored / k), M = Math.floor(2 * S(d.reduce_dtype) * j * (T - 1) / T), N = 4 * p(e, t).normuon, P = Math.floor(Math.floor(N / a) * (k - 1) / k) + Math.floor(Math.floor(N / k) * (a - 1) / a), F = y * D(e), I = c(e.model, d.seq_len), L = null;
	if (n?.peak && d.param_dtype === "bfloat16") {
		let e = a * n.peak * t.utilisation / I, r = F / e;
		L = {
			tokensPerSecond: e,
			days: r / 86400,
			cost: u === null ? null : r / 3600 * a * u
		};
	}
	return {
		stored: _.stored,
		active: _.active,
		used: r(e.model, !0),
		flopsPerToken: I,
		tokensPerStep: D(e),
		steps: y,
		tokens: F,
		passes: x,
		usable: f,
		levels: g,
		communication: Math.floor((C + w) * (k - 1) / k) + M + P,
		context: l ?? e.model.max_seq_len,
		cache: s(e.model, l ?? e.model.max_seq_len),
		state: o(e.model),
		checkpoint: v,
		disk: v * (d.keep_last + 2 + b),
		throughput: L,
		possible: f === null || Object.values(g).some((e) => e.largest !== 0)
	};
}
function A(e, t, n, r, i) {
	let [a, o] = [0, T];
	for (; a < o;) {
		let s = Math.floor((a + o + 1) / 2);
		h(e, t, n, s, r).total <= i ? a = s : o = s - 1;
	}
	return a;
}
export { h as i, D as n, O as r, k as t };
