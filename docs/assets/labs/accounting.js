// src/maths/accounting.ts
var e = (e, t, n) => ({
	name: e,
	shape: t,
	role: n
}), t = (e) => e.shape.reduce((e, t) => e * t, 1), n = (e) => e.shape.slice(0, -1).reduce((e, t) => e * t, 1), r = (e) => e.reduce((e, n) => e + t(n), 0), i = (e) => Math.floor(e.gdn_d_inner / e.gdn_headdim), a = (e) => e.head_dim - e.qk_rope_head_dim, o = (e, t) => e.mla_layers.includes(t), s = (e, t) => e.moe_placement === "all" || e.moe_placement === "attention" && o(e, t);
function c(t) {
	let [n, r, a] = [
		t.gdn_d_inner,
		i(t),
		t.gdn_d_state
	], o = t.gdn_recurrence === "gated_delta", s = [
		e("norm", [t.dim], "scalar"),
		e("in_proj", [n, t.dim], "matrix"),
		e("conv", [n, t.gdn_d_conv], "scalar"),
		e("b_proj", [r * a, n], "matrix"),
		e("c_proj", [r * a, n], "matrix"),
		e("dt_proj", [r, n], "scalar"),
		e("A_log", [r, a], "decay"),
		e("dt_bias", [r], "decay"),
		e("D_skip", [r], "scalar"),
		e("out_proj", [t.dim, n], "matrix"),
		e("skip_proj", [t.dim, t.dim], "matrix")
	];
	return t.gdn_gate !== "none" && s.push(e("g_proj", [n, n], "matrix")), o && s.push(e("beta_proj", [r, n], "scalar")), (o || t.gdn_output_norm) && s.push(e("o_norm", [t.gdn_headdim], "scalar")), s;
}
function l(t) {
	let n = t.n_heads * t.head_dim, [r, i] = [t.n_kv_groups, t.qk_rope_head_dim], o = [
		e("norm", [t.dim], "scalar"),
		e("wq_a", [t.q_lora_rank, t.dim], "matrix"),
		e("q_norm", [t.q_lora_rank], "scalar"),
		e("wq_b", [n, t.q_lora_rank], "matrix"),
		e("q_norm_qk", [n], "scalar"),
		e("wo", [t.dim, t.n_heads * t.v_head_dim], "matrix")
	];
	return i && o.push(e("k_norm_qk", [r * i], "scalar")), t.mla_latent ? o.push(e("wkv_a", [t.kv_lora_rank + i, t.dim], "matrix"), e("kv_norm", [t.kv_lora_rank], "scalar"), e("wkv_b", [r * (a(t) + t.v_head_dim), t.kv_lora_rank], "matrix")) : o.push(e("wk", [r * t.head_dim, t.dim], "matrix"), e("wv", [r * t.v_head_dim, t.dim], "matrix")), o;
}
function u(t, n, r, i = []) {
	return [
		e("w1", [
			...i,
			n,
			t
		], r),
		e("w3", [
			...i,
			n,
			t
		], r),
		e("w2", [
			...i,
			t,
			n
		], r)
	];
}
function d(t, n = t.n_routed_experts) {
	let r = [
		e("norm", [t.dim], "scalar"),
		e("router", [t.n_routed_experts, t.dim], "router"),
		...u(t.dim, t.moe_inter_dim, "expert", [n])
	];
	return t.n_shared_experts && r.push(...u(t.dim, t.moe_inter_dim, "expert", [t.n_shared_experts])), r;
}
function f(t) {
	return [
		e("norm", [t.dim], "scalar"),
		e("out_norm", [t.dim], "scalar"),
		...u(t.dim, t.moe_inter_dim, "matrix")
	];
}
function p(e, t) {
	return o(e, t) ? e.moe_placement === "none" ? e.moe_inter_dim : 0 : e.gdn_ffn_dim;
}
function m(t, n, r) {
	let i = o(t, n), a = [[i ? "mla" : "gdn", i ? l(t) : c(t)]];
	s(t, n) && a.push(["moe", d(t, r)]);
	let f = p(t, n);
	return f && a.push(["ffn", [e("norm", [t.dim], "scalar"), ...u(t.dim, f, "matrix")]]), a;
}
function h(t, n = !1) {
	let r = [t.vocab_size, t.dim], i = [["embedding", e("weight", r, "embedding")]];
	t.tie_embeddings || i.push(["head", e("weight", r, "embedding")]);
	for (let e = 0; e < t.n_layers; e++) for (let [r, a] of m(t, e, n ? t.n_activated_experts : t.n_routed_experts)) for (let e of a) i.push([r, e]);
	i.push(["norm", e("weight", [t.dim], "scalar")]);
	for (let e = 0; e < t.mtp_depth; e++) for (let e of f(t)) i.push(["mtp", e]);
	return i;
}
function g(e) {
	let n = {};
	for (let [r, i] of h(e)) n[r] = (n[r] ?? 0) + t(i);
	let r = h(e, !0).reduce((e, [, n]) => e + t(n), 0);
	return {
		stored: Object.values(n).reduce((e, t) => e + t, 0),
		active: r,
		parts: n
	};
}
function _(e, t) {
	let n = g(e), r = e.vocab_size * e.dim, i = e.tie_embeddings ? n.active : n.active - r;
	return t ? i + e.mtp_depth * r : i - (n.parts.mtp ?? 0);
}
function v(e, t) {
	return Math.floor(e.mla_layers.length * 2 * e.n_heads * (e.head_dim + e.v_head_dim) * t / 2);
}
var y = (e, t, n = !0) => 6 * _(e, n) + 3 * v(e, t), b = (e) => e.mla_latent ? e.kv_lora_rank + e.n_kv_groups * e.qk_rope_head_dim : e.n_kv_groups * (e.head_dim + e.v_head_dim), x = (e, t, n = 2) => e.mla_layers.length * b(e) * t * n;
function S(e, t = 2) {
	let n = 4 * i(e) * e.gdn_d_state * e.gdn_headdim;
	return (e.n_layers - e.mla_layers.length) * (n + t * e.gdn_d_inner * (e.gdn_d_conv - 1));
}
export { _, g as a, i as c, h as d, f, r as g, S as h, b as i, s as l, t as m, m as n, p as o, n as p, x as r, y as s, v as t, o as u };
