// src/maths/router.ts
function e(e, t, n, i = "sigmoid", a = 1) {
	let o = i === "softmax" ? r(e) : e.map((e) => 1 / (1 + Math.exp(-e))), s = o.map((e, n) => [e + t[n], n]).sort((e, t) => t[0] - e[0] || e[1] - t[1]).slice(0, n).map(([, e]) => e), c = s.reduce((e, t) => e + o[t], 0) + 1e-20;
	return {
		chosen: s,
		weights: s.map((e) => o[e] / c * a),
		scores: o
	};
}
function t(e, t, n) {
	let r = t.length, i = t.reduce((e, t) => e + t, 0);
	if (!i) return e;
	let a = t.map((e) => e / i), o = e.ema.map((e, t) => e + n.alpha * (a[t] - e)), s = n.update === "sign" ? a.map((e) => Math.sign(1 / r - e)) : o.map((e) => {
		let t = e * r - 1;
		return Math.abs(t) > n.band ? -Math.sign(t) : 0;
	}), c = e.bias.map((e, t) => e + n.speed * s[t]), l = c.reduce((e, t) => e + t, 0) / r;
	return {
		bias: c.map((e) => e - l),
		ema: o
	};
}
function n(e) {
	let t = e.reduce((e, t) => e + t, 0) / e.length;
	return t ? Math.sqrt(e.reduce((e, n) => e + (n / t - 1) ** 2, 0) / e.length) : 0;
}
function r(e) {
	let t = Math.max(...e), n = e.map((e) => Math.exp(e - t)), r = n.reduce((e, t) => e + t, 0);
	return n.map((e) => e / r);
}
function i(e) {
	let t = e >>> 0;
	return () => {
		t = t + 1831565813 >>> 0;
		let e = Math.imul(t ^ t >>> 15, 1 | t);
		return e = e + Math.imul(e ^ e >>> 7, 61 | e) ^ e, ((e ^ e >>> 14) >>> 0) / 4294967296;
	};
}
function a(e) {
	return Math.sqrt(-2 * Math.log(1 - e())) * Math.cos(2 * Math.PI * e());
}
export { n as a, t as i, i as n, e as r, a as t };
