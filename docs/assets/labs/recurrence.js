// src/maths/recurrence.ts
var e = (e, t) => Array.from({ length: e }, () => Array(t).fill(0)), t = (e, t) => e.reduce((e, n, r) => e + n * t[r], 0), n = (e, t) => e[0].map((n, r) => e.reduce((e, n, i) => e + n[r] * t[i], 0));
function r(t, r, i, a, o, s) {
	let c = s ?? e(o.length, t[0].length), l = [], u = [];
	for (let e = 0; e < t.length; e++) c = c.map((n, i) => {
		let s = Math.exp(-o[i] * a[e]);
		return n.map((n, a) => s * n + r[e][i] * t[e][a]);
	}), u.push(c), l.push(n(c, i[e]));
	return {
		o: l,
		final: c,
		states: u
	};
}
function i(t, r, i, a, o, s, c) {
	let l = c ?? e(o.length, t[0].length), u = [];
	for (let e = 0; e < t.length; e += s) {
		let c = Math.min(e + s, t.length), d = [], f = 0;
		for (let t = e; t < c; t++) d.push(f += a[t]);
		for (let a = e; a < c; a++) {
			let s = o.map((t, n) => i[a][n] * Math.exp(-t * d[a - e])), c = n(l, s);
			for (let n = e; n <= a; n++) {
				let s = 0;
				for (let t = 0; t < o.length; t++) s += i[a][t] * r[n][t] * Math.exp(-o[t] * (d[a - e] - d[n - e]));
				for (let e = 0; e < c.length; e++) c[e] += s * t[n][e];
			}
			u.push(c);
		}
		l = l.map((n, i) => {
			let a = Math.exp(-o[i] * f);
			return n.map((n, s) => {
				let l = a * n;
				for (let n = e; n < c; n++) l += r[n][i] * Math.exp(-o[i] * (f - d[n - e])) * t[n][s];
				return l;
			});
		});
	}
	return {
		o: u,
		final: l,
		states: []
	};
}
function a(t, r, i, a, o, s) {
	let c = s ?? e(r[0].length, i[0].length), l = [], u = [];
	for (let e = 0; e < i.length; e++) {
		let s = Math.exp(o[e]), d = c.map((e) => e.map((e) => s * e)), f = n(d, r[e]);
		c = d.map((t, n) => t.map((t, o) => t + r[e][n] * a[e] * (i[e][o] - f[o]))), u.push(c), l.push(n(c, t[e]));
	}
	return {
		o: l,
		final: c,
		states: u
	};
}
function o(r, i, a, o, s, c, l) {
	let u = l ?? e(i[0].length, a[0].length), d = [];
	for (let e = 0; e < a.length; e += c) {
		let l = Math.min(e + c, a.length), f = [], p = 0;
		for (let t = e; t < l; t++) f.push(p += s[t]);
		let m = (e, t) => Math.exp(f[e] - f[t]), h = [];
		for (let r = 0; r < l - e; r++) {
			let s = e + r, c = n(u, i[s]), l = a[s].map((e, t) => o[s] * (e - Math.exp(f[r]) * c[t]));
			for (let n = 0; n < r; n++) {
				let a = o[s] * m(r, n) * t(i[s], i[e + n]);
				for (let e = 0; e < l.length; e++) l[e] -= a * h[n][e];
			}
			h.push(l);
		}
		for (let a = 0; a < l - e; a++) {
			let o = n(u, r[e + a]).map((e) => Math.exp(f[a]) * e);
			for (let n = 0; n <= a; n++) {
				let s = m(a, n) * t(r[e + a], i[e + n]);
				for (let e = 0; e < o.length; e++) o[e] += s * h[n][e];
			}
			d.push(o);
		}
		let g = l - e - 1;
		u = u.map((t, n) => t.map((t, r) => h.reduce((t, a, o) => t + m(g, o) * i[e + o][n] * a[r], Math.exp(p) * t)));
	}
	return {
		o: d,
		final: u,
		states: []
	};
}
function s(e, t) {
	return Math.max(0, ...e.flatMap((e, n) => e.map((e, r) => Math.abs(e - t[n][r]))));
}
export { r as a, i, a as n, s as r, o as t };
