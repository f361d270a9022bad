// node_modules/d3-array/dist/d3-array.mjs
function e(e, t) {
	return e == null || t == null ? NaN : e < t ? -1 : e > t ? 1 : e >= t ? 0 : NaN;
}
function t(e, t) {
	return e == null || t == null ? NaN : t < e ? -1 : t > e ? 1 : t >= e ? 0 : NaN;
}
function n(n) {
	let i, a, o;
	n.length === 2 ? (i = n === e || n === t ? n : r, a = n, o = n) : (i = e, a = (t, r) => e(n(t), r), o = (e, t) => n(e) - t);
	function s(e, t, n = 0, r = e.length) {
		if (n < r) {
			if (i(t, t) !== 0) return r;
			do {
				let i = n + r >>> 1;
				a(e[i], t) < 0 ? n = i + 1 : r = i;
			} while (n < r);
		}
		return n;
	}
	function c(e, t, n = 0, r = e.length) {
		if (n < r) {
			if (i(t, t) !== 0) return r;
			do {
				let i = n + r >>> 1;
				a(e[i], t) <= 0 ? n = i + 1 : r = i;
			} while (n < r);
		}
		return n;
	}
	function l(e, t, n = 0, r = e.length) {
		let i = s(e, t, n, r - 1);
		return i > n && o(e[i - 1], t) > -o(e[i], t) ? i - 1 : i;
	}
	return {
		left: s,
		center: l,
		right: c
	};
}
function r() {
	return 0;
}
function i(e) {
	return e === null ? NaN : +e;
}
var a = n(e), o = a.right;
a.left, n(i).center, Array.prototype.slice;
var s = Math.sqrt(50), c = Math.sqrt(10), l = Math.sqrt(2);
function u(e, t, n) {
	let r = (t - e) / Math.max(0, n), i = Math.floor(Math.log10(r)), a = r / 10 ** i, o = a >= s ? 10 : a >= c ? 5 : a >= l ? 2 : 1, d, f, p;
	return i < 0 ? (p = 10 ** -i / o, d = Math.round(e * p), f = Math.round(t * p), d / p < e && ++d, f / p > t && --f, p = -p) : (p = 10 ** i * o, d = Math.round(e / p), f = Math.round(t / p), d * p < e && ++d, f * p > t && --f), f < d && .5 <= n && n < 2 ? u(e, t, n * 2) : [
		d,
		f,
		p
	];
}
function d(e, t, n) {
	if (t = +t, e = +e, n = +n, !(n > 0)) return [];
	if (e === t) return [e];
	let r = t < e, [i, a, o] = r ? u(t, e, n) : u(e, t, n);
	if (!(a >= i)) return [];
	let s = a - i + 1, c = Array(s);
	if (r) {
		if (o < 0) for (let e = 0; e < s; ++e) c[e] = (a - e) / -o;
		else for (let e = 0; e < s; ++e) c[e] = (a - e) * o;
	} else if (o < 0) for (let e = 0; e < s; ++e) c[e] = (i + e) / -o;
	else for (let e = 0; e < s; ++e) c[e] = (i + e) * o;
	return c;
}
function f(e, t, n) {
	return t = +t, e = +e, n = +n, u(e, t, n)[2];
}
function p(e, t, n) {
	t = +t, e = +e, n = +n;
	let r = t < e, i = r ? f(t, e, n) : f(e, t, n);
	return (r ? -1 : 1) * (i < 0 ? 1 / -i : i);
}
// node_modules/d3-scale/src/init.js
function m(e, t) {
	switch (arguments.length) {
		case 0: break;
		case 1:
			this.range(e);
			break;
		default: this.range(t).domain(e);
	}
	return this;
}
// node_modules/d3-color/dist/d3-color.mjs
function h(e, t, n) {
	e.prototype = t.prototype = n, n.constructor = e;
}
function g(e, t) {
	var n = Object.create(e.prototype);
	for (var r in t) n[r] = t[r];
	return n;
}
function _() {}
var v = .7, y = 1 / v, b = "\\s*([+-]?\\d+)\\s*", x = "\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)\\s*", S = "\\s*([+-]?(?:\\d*\\.)?\\d+(?:[eE][+-]?\\d+)?)%\\s*", ee = /^#([0-9a-f]{3,8})$/, C = RegExp(`^rgb\\(${b},${b},${b}\\)$`), w = RegExp(`^rgb\\(${S},${S},${S}\\)$`), T = RegExp(`^rgba\\(${b},${b},${b},${x}\\)$`), te = RegExp(`^rgba\\(${S},${S},${S},${x}\\)$`), ne = RegExp(`^hsl\\(${x},${S},${S}\\)$`), re = RegExp(`^hsla\\(${x},${S},${S},${x}\\)$`), ie = {
	aliceblue: 15792383,
	antiquewhite: 16444375,
	aqua: 65535,
	aquamarine: 8388564,
	azure: 15794175,
	beige: 16119260,
	bisque: 16770244,
	black: 0,
	blanchedalmond: 16772045,
	blue: 255,
	blueviolet: 9055202,
	brown: 10824234,
	burlywood: 14596231,
	cadetblue: 6266528,
	chartreuse: 8388352,
	chocolate: 13789470,
	coral: 16744272,
	cornflowerblue: 6591981,
	cornsilk: 16775388,
	crimson: 14423100,
	cyan: 65535,
	darkblue: 139,
	darkcyan: 35723,
	darkgoldenrod: 12092939,
	darkgray: 11119017,
	darkgreen: 25600,
	darkgrey: 11119017,
	darkkhaki: 12433259,
	darkmagenta: 9109643,
	darkolivegreen: 5597999,
	darkorange: 16747520,
	darkorchid: 10040012,
	darkred: 9109504,
	darksalmon: 15308410,
	darkseagreen: 9419919,
	darkslateblue: 4734347,
	darkslategray: 3100495,
	darkslategrey: 3100495,
	darkturquoise: 52945,
	darkviolet: 9699539,
	deeppink: 16716947,
	deepskyblue: 49151,
	dimgray: 6908265,
	dimgrey: 6908265,
	dodgerblue: 2003199,
	firebrick: 11674146,
	floralwhite: 16775920,
	forestgreen: 2263842,
	fuchsia: 16711935,
	gainsboro: 14474460,
	ghostwhite: 16316671,
	gold: 16766720,
	goldenrod: 14329120,
	gray: 8421504,
	green: 32768,
	greenyellow: 11403055,
	grey: 8421504,
	honeydew: 15794160,
	hotpink: 16738740,
	indianred: 13458524,
	indigo: 4915330,
	ivory: 16777200,
	khaki: 15787660,
	lavender: 15132410,
	lavenderblush: 16773365,
	lawngreen: 8190976,
	lemonchiffon: 16775885,
	lightblue: 11393254,
	lightcoral: 15761536,
	lightcyan: 14745599,
	lightgoldenrodyellow: 16448210,
	lightgray: 13882323,
	lightgreen: 9498256,
	lightgrey: 13882323,
	lightpink: 16758465,
	lightsalmon: 16752762,
	lightseagreen: 2142890,
	lightskyblue: 8900346,
	lightslategray: 7833753,
	lightslategrey: 7833753,
	lightsteelblue: 11584734,
	lightyellow: 16777184,
	lime: 65280,
	limegreen: 3329330,
	linen: 16445670,
	magenta: 16711935,
	maroon: 8388608,
	mediumaquamarine: 6737322,
	mediumblue: 205,
	mediumorchid: 12211667,
	mediumpurple: 9662683,
	mediumseagreen: 3978097,
	mediumslateblue: 8087790,
	mediumspringgreen: 64154,
	mediumturquoise: 4772300,
	mediumvioletred: 13047173,
	midnightblue: 1644912,
	mintcream: 16121850,
	mistyrose: 16770273,
	moccasin: 16770229,
	navajowhite: 16768685,
	navy: 128,
	oldlace: 16643558,
	olive: 8421376,
	olivedrab: 7048739,
	orange: 16753920,
	orangered: 16729344,
	orchid: 14315734,
	palegoldenrod: 15657130,
	palegreen: 10025880,
	paleturquoise: 11529966,
	palevioletred: 14381203,
	papayawhip: 16773077,
	peachpuff: 16767673,
	peru: 13468991,
	pink: 16761035,
	plum: 14524637,
	powderblue: 11591910,
	purple: 8388736,
	rebeccapurple: 6697881,
	red: 16711680,
	rosybrown: 12357519,
	royalblue: 4286945,
	saddlebrown: 9127187,
	salmon: 16416882,
	sandybrown: 16032864,
	seagreen: 3050327,
	seashell: 16774638,
	sienna: 10506797,
	silver: 12632256,
	skyblue: 8900331,
	slateblue: 6970061,
	slategray: 7372944,
	slategrey: 7372944,
	snow: 16775930,
	springgreen: 65407,
	steelblue: 4620980,
	tan: 13808780,
	teal: 32896,
	thistle: 14204888,
	tomato: 16737095,
	turquoise: 4251856,
	violet: 15631086,
	wheat: 16113331,
	white: 16777215,
	whitesmoke: 16119285,
	yellow: 16776960,
	yellowgreen: 10145074
};
h(_, E, {
	copy(e) {
		return Object.assign(new this.constructor(), this, e);
	},
	displayable() {
		return this.rgb().displayable();
	},
	hex: ae,
	formatHex: ae,
	formatHex8: oe,
	formatHsl: se,
	formatRgb: ce,
	toString: ce
});
function ae() {
	return this.rgb().formatHex();
}
function oe() {
	return this.rgb().formatHex8();
}
function se() {
	return he(this).formatHsl();
}
function ce() {
	return this.rgb().formatRgb();
}
function E(e) {
	var t, n;
	return e = (e + "").trim().toLowerCase(), (t = ee.exec(e)) ? (n = t[1].length, t = parseInt(t[1], 16), n === 6 ? le(t) : n === 3 ? new k(t >> 8 & 15 | t >> 4 & 240, t >> 4 & 15 | t & 240, (t & 15) << 4 | t & 15, 1) : n === 8 ? D(t >> 24 & 255, t >> 16 & 255, t >> 8 & 255, (t & 255) / 255) : n === 4 ? D(t >> 12 & 15 | t >> 8 & 240, t >> 8 & 15 | t >> 4 & 240, t >> 4 & 15 | t & 240, ((t & 15) << 4 | t & 15) / 255) : null) : (t = C.exec(e)) ? new k(t[1], t[2], t[3], 1) : (t = w.exec(e)) ? new k(t[1] * 255 / 100, t[2] * 255 / 100, t[3] * 255 / 100, 1) : (t = T.exec(e)) ? D(t[1], t[2], t[3], t[4]) : (t = te.exec(e)) ? D(t[1] * 255 / 100, t[2] * 255 / 100, t[3] * 255 / 100, t[4]) : (t = ne.exec(e)) ? me(t[1], t[2] / 100, t[3] / 100, 1) : (t = re.exec(e)) ? me(t[1], t[2] / 100, t[3] / 100, t[4]) : ie.hasOwnProperty(e) ? le(ie[e]) : e === "transparent" ? new k(NaN, NaN, NaN, 0) : null;
}
function le(e) {
	return new k(e >> 16 & 255, e >> 8 & 255, e & 255, 1);
}
function D(e, t, n, r) {
	return r <= 0 && (e = t = n = NaN), new k(e, t, n, r);
}
function O(e) {
	return e instanceof _ || (e = E(e)), e ? (e = e.rgb(), new k(e.r, e.g, e.b, e.opacity)) : new k();
}
function ue(e, t, n, r) {
	return arguments.length === 1 ? O(e) : new k(e, t, n, r ?? 1);
}
function k(e, t, n, r) {
	this.r = +e, this.g = +t, this.b = +n, this.opacity = +r;
}
h(k, ue, g(_, {
	brighter(e) {
		return e = e == null ? y : y ** +e, new k(this.r * e, this.g * e, this.b * e, this.opacity);
	},
	darker(e) {
		return e = e == null ? v : v ** +e, new k(this.r * e, this.g * e, this.b * e, this.opacity);
	},
	rgb() {
		return this;
	},
	clamp() {
		return new k(j(this.r), j(this.g), j(this.b), A(this.opacity));
	},
	displayable() {
		return -.5 <= this.r && this.r < 255.5 && -.5 <= this.g && this.g < 255.5 && -.5 <= this.b && this.b < 255.5 && 0 <= this.opacity && this.opacity <= 1;
	},
	hex: de,
	formatHex: de,
	formatHex8: fe,
	formatRgb: pe,
	toString: pe
}));
function de() {
	return `#${M(this.r)}${M(this.g)}${M(this.b)}`;
}
function fe() {
	return `#${M(this.r)}${M(this.g)}${M(this.b)}${M((isNaN(this.opacity) ? 1 : this.opacity) * 255)}`;
}
function pe() {
	let e = A(this.opacity);
	return `${e === 1 ? "rgb(" : "rgba("}${j(this.r)}, ${j(this.g)}, ${j(this.b)}${e === 1 ? ")" : `, ${e})`}`;
}
function A(e) {
	return isNaN(e) ? 1 : Math.max(0, Math.min(1, e));
}
function j(e) {
	return Math.max(0, Math.min(255, Math.round(e) || 0));
}
function M(e) {
	return e = j(e), (e < 16 ? "0" : "") + e.toString(16);
}
function me(e, t, n, r) {
	return r <= 0 ? e = t = n = NaN : n <= 0 || n >= 1 ? e = t = NaN : t <= 0 && (e = NaN), new N(e, t, n, r);
}
function he(e) {
	if (e instanceof N) return new N(e.h, e.s, e.l, e.opacity);
	if (e instanceof _ || (e = E(e)), !e) return new N();
	if (e instanceof N) return e;
	e = e.rgb();
	var t = e.r / 255, n = e.g / 255, r = e.b / 255, i = Math.min(t, n, r), a = Math.max(t, n, r), o = NaN, s = a - i, c = (a + i) / 2;
	return s ? (o = t === a ? (n - r) / s + (n < r) * 6 : n === a ? (r - t) / s + 2 : (t - n) / s + 4, s /= c < .5 ? a + i : 2 - a - i, o *= 60) : s = c > 0 && c < 1 ? 0 : o, new N(o, s, c, e.opacity);
}
function ge(e, t, n, r) {
	return arguments.length === 1 ? he(e) : new N(e, t, n, r ?? 1);
}
function N(e, t, n, r) {
	this.h = +e, this.s = +t, this.l = +n, this.opacity = +r;
}
h(N, ge, g(_, {
	brighter(e) {
		return e = e == null ? y : y ** +e, new N(this.h, this.s, this.l * e, this.opacity);
	},
	darker(e) {
		return e = e == null ? v : v ** +e, new N(this.h, this.s, this.l * e, this.opacity);
	},
	rgb() {
		var e = this.h % 360 + (this.h < 0) * 360, t = isNaN(e) || isNaN(this.s) ? 0 : this.s, n = this.l, r = n + (n < .5 ? n : 1 - n) * t, i = 2 * n - r;
		return new k(ve(e >= 240 ? e - 240 : e + 120, i, r), ve(e, i, r), ve(e < 120 ? e + 240 : e - 120, i, r), this.opacity);
	},
	clamp() {
		return new N(_e(this.h), P(this.s), P(this.l), A(this.opacity));
	},
	displayable() {
		return (0 <= this.s && this.s <= 1 || isNaN(this.s)) && 0 <= this.l && this.l <= 1 && 0 <= this.opacity && this.opacity <= 1;
	},
	formatHsl() {
		let e = A(this.opacity);
		return `${e === 1 ? "hsl(" : "hsla("}${_e(this.h)}, ${P(this.s) * 100}%, ${P(this.l) * 100}%${e === 1 ? ")" : `, ${e})`}`;
	}
}));
function _e(e) {
	return e = (e || 0) % 360, e < 0 ? e + 360 : e;
}
function P(e) {
	return Math.max(0, Math.min(1, e || 0));
}
function ve(e, t, n) {
	return (e < 60 ? t + (n - t) * e / 60 : e < 180 ? n : e < 240 ? t + (n - t) * (240 - e) / 60 : t) * 255;
}
var ye = Math.PI / 180, be = 180 / Math.PI, F = 18, xe = .96422, Se = 1, Ce = .82521, we = 4 / 29, I = 6 / 29, Te = 3 * I * I, Ee = I * I * I;
function De(e) {
	if (e instanceof L) return new L(e.l, e.a, e.b, e.opacity);
	if (e instanceof V) return Me(e);
	e instanceof k || (e = O(e));
	var t = ke(e.r), n = ke(e.g), r = ke(e.b), i = R((.2225045 * t + .7168786 * n + .0606169 * r) / Se), a, o;
	return t === n && n === r ? a = o = i : (a = R((.4360747 * t + .3850649 * n + .1430804 * r) / xe), o = R((.0139322 * t + .0971045 * n + .7141733 * r) / Ce)), new L(116 * i - 16, 500 * (a - i), 200 * (i - o), e.opacity);
}
function Oe(e, t, n, r) {
	return arguments.length === 1 ? De(e) : new L(e, t, n, r ?? 1);
}
function L(e, t, n, r) {
	this.l = +e, this.a = +t, this.b = +n, this.opacity = +r;
}
h(L, Oe, g(_, {
	brighter(e) {
		return new L(this.l + F * (e ?? 1), this.a, this.b, this.opacity);
	},
	darker(e) {
		return new L(this.l - F * (e ?? 1), this.a, this.b, this.opacity);
	},
	rgb() {
		var e = (this.l + 16) / 116, t = isNaN(this.a) ? e : e + this.a / 500, n = isNaN(this.b) ? e : e - this.b / 200;
		return t = xe * z(t), e = Se * z(e), n = Ce * z(n), new k(B(3.1338561 * t - 1.6168667 * e - .4906146 * n), B(-.9787684 * t + 1.9161415 * e + .033454 * n), B(.0719453 * t - .2289914 * e + 1.4052427 * n), this.opacity);
	}
}));
function R(e) {
	return e > Ee ? e ** (1 / 3) : e / Te + we;
}
function z(e) {
	return e > I ? e * e * e : Te * (e - we);
}
function B(e) {
	return 255 * (e <= .0031308 ? 12.92 * e : 1.055 * e ** (1 / 2.4) - .055);
}
function ke(e) {
	return (e /= 255) <= .04045 ? e / 12.92 : ((e + .055) / 1.055) ** 2.4;
}
function Ae(e) {
	if (e instanceof V) return new V(e.h, e.c, e.l, e.opacity);
	if (e instanceof L || (e = De(e)), e.a === 0 && e.b === 0) return new V(NaN, 0 < e.l && e.l < 100 ? 0 : NaN, e.l, e.opacity);
	var t = Math.atan2(e.b, e.a) * be;
	return new V(t < 0 ? t + 360 : t, Math.sqrt(e.a * e.a + e.b * e.b), e.l, e.opacity);
}
function je(e, t, n, r) {
	return arguments.length === 1 ? Ae(e) : new V(e, t, n, r ?? 1);
}
function V(e, t, n, r) {
	this.h = +e, this.c = +t, this.l = +n, this.opacity = +r;
}
function Me(e) {
	if (isNaN(e.h)) return new L(e.l, 0, 0, e.opacity);
	var t = e.h * ye;
	return new L(e.l, Math.cos(t) * e.c, Math.sin(t) * e.c, e.opacity);
}
h(V, je, g(_, {
	brighter(e) {
		return new V(this.h, this.c, this.l + F * (e ?? 1), this.opacity);
	},
	darker(e) {
		return new V(this.h, this.c, this.l - F * (e ?? 1), this.opacity);
	},
	rgb() {
		return Me(this).rgb();
	}
}));
var Ne = -.14861, Pe = 1.78277, Fe = -.29227, H = -.90649, U = 1.97294, Ie = U * H, Le = U * Pe, Re = Pe * Fe - H * Ne;
function ze(e) {
	if (e instanceof W) return new W(e.h, e.s, e.l, e.opacity);
	e instanceof k || (e = O(e));
	var t = e.r / 255, n = e.g / 255, r = e.b / 255, i = (Re * r + Ie * t - Le * n) / (Re + Ie - Le), a = r - i, o = (U * (n - i) - Fe * a) / H, s = Math.sqrt(o * o + a * a) / (U * i * (1 - i)), c = s ? Math.atan2(o, a) * be - 120 : NaN;
	return new W(c < 0 ? c + 360 : c, s, i, e.opacity);
}
function Be(e, t, n, r) {
	return arguments.length === 1 ? ze(e) : new W(e, t, n, r ?? 1);
}
function W(e, t, n, r) {
	this.h = +e, this.s = +t, this.l = +n, this.opacity = +r;
}
h(W, Be, g(_, {
	brighter(e) {
		return e = e == null ? y : y ** +e, new W(this.h, this.s, this.l * e, this.opacity);
	},
	darker(e) {
		return e = e == null ? v : v ** +e, new W(this.h, this.s, this.l * e, this.opacity);
	},
	rgb() {
		var e = isNaN(this.h) ? 0 : (this.h + 120) * ye, t = +this.l, n = isNaN(this.s) ? 0 : this.s * t * (1 - t), r = Math.cos(e), i = Math.sin(e);
		return new k(255 * (t + n * (Ne * r + Pe * i)), 255 * (t + n * (Fe * r + H * i)), 255 * (t + U * r * n), this.opacity);
	}
}));
var G = (e) => () => e;
function Ve(e, t) {
	return function(n) {
		return e + n * t;
	};
}
function He(e, t, n) {
	return e **= +n, t = t ** +n - e, n = 1 / n, function(r) {
		return (e + r * t) ** +n;
	};
}
function Ue(e, t) {
	var n = t - e;
	return n ? Ve(e, n > 180 || n < -180 ? n - 360 * Math.round(n / 360) : n) : G(isNaN(e) ? t : e);
}
function We(e) {
	return (e = +e) == 1 ? K : function(t, n) {
		return n - t ? He(t, n, e) : G(isNaN(t) ? n : t);
	};
}
function K(e, t) {
	var n = t - e;
	return n ? Ve(e, n) : G(isNaN(e) ? t : e);
}
var Ge = (function e(t) {
	var n = We(t);
	function r(e, t) {
		var r = n((e = ue(e)).r, (t = ue(t)).r), i = n(e.g, t.g), a = n(e.b, t.b), o = K(e.opacity, t.opacity);
		return function(t) {
			return e.r = r(t), e.g = i(t), e.b = a(t), e.opacity = o(t), e + "";
		};
	}
	return r.gamma = e, r;
})(1);
function Ke(e, t) {
	t ||= [];
	var n = e ? Math.min(t.length, e.length) : 0, r = t.slice(), i;
	return function(a) {
		for (i = 0; i < n; ++i) r[i] = e[i] * (1 - a) + t[i] * a;
		return r;
	};
}
function qe(e) {
	return ArrayBuffer.isView(e) && !(e instanceof DataView);
}
function Je(e, t) {
	for (var n = t ? t.length : 0, r = e ? Math.min(n, e.length) : 0, i = Array(r), a = Array(n), o = 0; o < r; ++o) i[o] = nt(e[o], t[o]);
	for (; o < n; ++o) a[o] = t[o];
	return function(e) {
		for (o = 0; o < r; ++o) a[o] = i[o](e);
		return a;
	};
}
function Ye(e, t) {
	var n = /* @__PURE__ */ new Date();
	return e = +e, t = +t, function(r) {
		return n.setTime(e * (1 - r) + t * r), n;
	};
}
function q(e, t) {
	return e = +e, t = +t, function(n) {
		return e * (1 - n) + t * n;
	};
}
function Xe(e, t) {
	var n = {}, r = {}, i;
	for (i in typeof e == "object" && e || (e = {}), typeof t == "object" && t || (t = {}), t) i in e ? n[i] = nt(e[i], t[i]) : r[i] = t[i];
	return function(e) {
		for (i in n) r[i] = n[i](e);
		return r;
	};
}
var Ze = /[-+]?(?:\d+\.?\d*|\.?\d+)(?:[eE][-+]?\d+)?/g, Qe = new RegExp(Ze.source, "g");
function $e(e) {
	return function() {
		return e;
	};
}
function et(e) {
	return function(t) {
		return e(t) + "";
	};
}
function tt(e, t) {
	var n = Ze.lastIndex = Qe.lastIndex = 0, r, i, a, o = -1, s = [], c = [];
	for (e += "", t += ""; (r = Ze.exec(e)) && (i = Qe.exec(t));) (a = i.index) > n && (a = t.slice(n, a), s[o] ? s[o] += a : s[++o] = a), (r = r[0]) === (i = i[0]) ? s[o] ? s[o] += i : s[++o] = i : (s[++o] = null, c.push({
		i: o,
		x: q(r, i)
	})), n = Qe.lastIndex;
	return n < t.length && (a = t.slice(n), s[o] ? s[o] += a : s[++o] = a), s.length < 2 ? c[0] ? et(c[0].x) : $e(t) : (t = c.length, function(e) {
		for (var n = 0, r; n < t; ++n) s[(r = c[n]).i] = r.x(e);
		return s.join("");
	});
}
function nt(e, t) {
	var n = typeof t, r;
	return t == null || n === "boolean" ? G(t) : (n === "number" ? q : n === "string" ? (r = E(t)) ? (t = r, Ge) : tt : t instanceof E ? Ge : t instanceof Date ? Ye : qe(t) ? Ke : Array.isArray(t) ? Je : typeof t.valueOf != "function" && typeof t.toString != "function" || isNaN(t) ? Xe : q)(e, t);
}
function rt(e, t) {
	return e = +e, t = +t, function(n) {
		return Math.round(e * (1 - n) + t * n);
	};
}
var it = 1e-12;
function at(e) {
	return ((e = Math.exp(e)) + 1 / e) / 2;
}
function ot(e) {
	return ((e = Math.exp(e)) - 1 / e) / 2;
}
function st(e) {
	return ((e = Math.exp(2 * e)) - 1) / (e + 1);
}
(function e(t, n, r) {
	function i(e, i) {
		var a = e[0], o = e[1], s = e[2], c = i[0], l = i[1], u = i[2], d = c - a, f = l - o, p = d * d + f * f, m, h;
		if (p < it) h = Math.log(u / s) / t, m = function(e) {
			return [
				a + e * d,
				o + e * f,
				s * Math.exp(t * e * h)
			];
		};
		else {
			var g = Math.sqrt(p), _ = (u * u - s * s + r * p) / (2 * s * n * g), v = (u * u - s * s - r * p) / (2 * u * n * g), y = Math.log(Math.sqrt(_ * _ + 1) - _);
			h = (Math.log(Math.sqrt(v * v + 1) - v) - y) / t, m = function(e) {
				var r = e * h, i = at(y), c = s / (n * g) * (i * st(t * r + y) - ot(y));
				return [
					a + c * d,
					o + c * f,
					s * i / at(t * r + y)
				];
			};
		}
		return m.duration = Math.abs(h) * 1e3 * t / Math.SQRT2, m;
	}
	return i.rho = function(t) {
		var n = Math.max(.001, +t), r = n * n;
		return e(n, r, r * r);
	}, i;
})(Math.SQRT2, 2, 4);
function ct(e) {
	return (function t(n) {
		n = +n;
		function r(t, r) {
			var i = e((t = Be(t)).h, (r = Be(r)).h), a = K(t.s, r.s), o = K(t.l, r.l), s = K(t.opacity, r.opacity);
			return function(e) {
				return t.h = i(e), t.s = a(e), t.l = o(e ** +n), t.opacity = s(e), t + "";
			};
		}
		return r.gamma = t, r;
	})(1);
}
ct(Ue), ct(K);
// node_modules/d3-scale/src/constant.js
function lt(e) {
	return function() {
		return e;
	};
}
// node_modules/d3-scale/src/number.js
function ut(e) {
	return +e;
}
// node_modules/d3-scale/src/continuous.js
var dt = [0, 1];
function J(e) {
	return e;
}
function ft(e, t) {
	return (t -= e = +e) ? function(n) {
		return (n - e) / t;
	} : lt(isNaN(t) ? NaN : .5);
}
function pt(e, t) {
	var n;
	return e > t && (n = e, e = t, t = n), function(n) {
		return Math.max(e, Math.min(t, n));
	};
}
function mt(e, t, n) {
	var r = e[0], i = e[1], a = t[0], o = t[1];
	return i < r ? (r = ft(i, r), a = n(o, a)) : (r = ft(r, i), a = n(a, o)), function(e) {
		return a(r(e));
	};
}
function ht(e, t, n) {
	var r = Math.min(e.length, t.length) - 1, i = Array(r), a = Array(r), s = -1;
	for (e[r] < e[0] && (e = e.slice().reverse(), t = t.slice().reverse()); ++s < r;) i[s] = ft(e[s], e[s + 1]), a[s] = n(t[s], t[s + 1]);
	return function(t) {
		var n = o(e, t, 1, r) - 1;
		return a[n](i[n](t));
	};
}
function gt(e, t) {
	return t.domain(e.domain()).range(e.range()).interpolate(e.interpolate()).clamp(e.clamp()).unknown(e.unknown());
}
function _t() {
	var e = dt, t = dt, n = nt, r, i, a, o = J, s, c, l;
	function u() {
		var n = Math.min(e.length, t.length);
		return o !== J && (o = pt(e[0], e[n - 1])), s = n > 2 ? ht : mt, c = l = null, d;
	}
	function d(i) {
		return i == null || isNaN(i = +i) ? a : (c ||= s(e.map(r), t, n))(r(o(i)));
	}
	return d.invert = function(n) {
		return o(i((l ||= s(t, e.map(r), q))(n)));
	}, d.domain = function(t) {
		return arguments.length ? (e = Array.from(t, ut), u()) : e.slice();
	}, d.range = function(e) {
		return arguments.length ? (t = Array.from(e), u()) : t.slice();
	}, d.rangeRound = function(e) {
		return t = Array.from(e), n = rt, u();
	}, d.clamp = function(e) {
		return arguments.length ? (o = e ? !0 : J, u()) : o !== J;
	}, d.interpolate = function(e) {
		return arguments.length ? (n = e, u()) : n;
	}, d.unknown = function(e) {
		return arguments.length ? (a = e, d) : a;
	}, function(e, t) {
		return r = e, i = t, u();
	};
}
function vt() {
	return _t()(J, J);
}
// node_modules/d3-format/dist/d3-format.mjs
function yt(e) {
	return Math.abs(e = Math.round(e)) >= 1e21 ? e.toLocaleString("en").replace(/,/g, "") : e.toString(10);
}
function Y(e, t) {
	if (!isFinite(e) || e === 0) return null;
	var n = (e = t ? e.toExponential(t - 1) : e.toExponential()).indexOf("e"), r = e.slice(0, n);
	return [r.length > 1 ? r[0] + r.slice(2) : r, +e.slice(n + 1)];
}
function X(e) {
	return e = Y(Math.abs(e)), e ? e[1] : NaN;
}
function bt(e, t) {
	return function(n, r) {
		for (var i = n.length, a = [], o = 0, s = e[0], c = 0; i > 0 && s > 0 && (c + s + 1 > r && (s = Math.max(1, r - c)), a.push(n.substring(i -= s, i + s)), !((c += s + 1) > r));) s = e[o = (o + 1) % e.length];
		return a.reverse().join(t);
	};
}
function xt(e) {
	return function(t) {
		return t.replace(/[0-9]/g, function(t) {
			return e[+t];
		});
	};
}
var St = /^(?:(.)?([<>=^]))?([+\-( ])?([$#])?(0)?(\d+)?(,)?(\.\d+)?(~)?([a-z%])?$/i;
function Z(e) {
	if (!(t = St.exec(e))) throw Error("invalid format: " + e);
	var t;
	return new Ct({
		fill: t[1],
		align: t[2],
		sign: t[3],
		symbol: t[4],
		zero: t[5],
		width: t[6],
		comma: t[7],
		precision: t[8] && t[8].slice(1),
		trim: t[9],
		type: t[10]
	});
}
Z.prototype = Ct.prototype;
function Ct(e) {
	this.fill = e.fill === void 0 ? " " : e.fill + "", this.align = e.align === void 0 ? ">" : e.align + "", this.sign = e.sign === void 0 ? "-" : e.sign + "", this.symbol = e.symbol === void 0 ? "" : e.symbol + "", this.zero = !!e.zero, this.width = e.width === void 0 ? void 0 : +e.width, this.comma = !!e.comma, this.precision = e.precision === void 0 ? void 0 : +e.precision, this.trim = !!e.trim, this.type = e.type === void 0 ? "" : e.type + "";
}
Ct.prototype.toString = function() {
	return this.fill + this.align + this.sign + this.symbol + (this.zero ? "0" : "") + (this.width === void 0 ? "" : Math.max(1, this.width | 0)) + (this.comma ? "," : "") + (this.precision === void 0 ? "" : "." + Math.max(0, this.precision | 0)) + (this.trim ? "~" : "") + this.type;
};
function wt(e) {
	out: for (var t = e.length, n = 1, r = -1, i; n < t; ++n) switch (e[n]) {
		case ".":
			r = i = n;
			break;
		case "0":
			r === 0 && (r = n), i = n;
			break;
		default:
			if (!+e[n]) break out;
			r > 0 && (r = 0);
	}
	return r > 0 ? e.slice(0, r) + e.slice(i + 1) : e;
}
var Q;
function Tt(e, t) {
	var n = Y(e, t);
	if (!n) return Q = void 0, e.toPrecision(t);
	var r = n[0], i = n[1], a = i - (Q = Math.max(-8, Math.min(8, Math.floor(i / 3))) * 3) + 1, o = r.length;
	return a === o ? r : a > o ? r + Array(a - o + 1).join("0") : a > 0 ? r.slice(0, a) + "." + r.slice(a) : "0." + Array(1 - a).join("0") + Y(e, Math.max(0, t + a - 1))[0];
}
function Et(e, t) {
	var n = Y(e, t);
	if (!n) return e + "";
	var r = n[0], i = n[1];
	return i < 0 ? "0." + Array(-i).join("0") + r : r.length > i + 1 ? r.slice(0, i + 1) + "." + r.slice(i + 1) : r + Array(i - r.length + 2).join("0");
}
var Dt = {
	"%": (e, t) => (e * 100).toFixed(t),
	b: (e) => Math.round(e).toString(2),
	c: (e) => e + "",
	d: yt,
	e: (e, t) => e.toExponential(t),
	f: (e, t) => e.toFixed(t),
	g: (e, t) => e.toPrecision(t),
	o: (e) => Math.round(e).toString(8),
	p: (e, t) => Et(e * 100, t),
	r: Et,
	s: Tt,
	X: (e) => Math.round(e).toString(16).toUpperCase(),
	x: (e) => Math.round(e).toString(16)
};
function Ot(e) {
	return e;
}
var kt = Array.prototype.map, At = [
	"y",
	"z",
	"a",
	"f",
	"p",
	"n",
	"µ",
	"m",
	"",
	"k",
	"M",
	"G",
	"T",
	"P",
	"E",
	"Z",
	"Y"
];
function jt(e) {
	var t = e.grouping === void 0 || e.thousands === void 0 ? Ot : bt(kt.call(e.grouping, Number), e.thousands + ""), n = e.currency === void 0 ? "" : e.currency[0] + "", r = e.currency === void 0 ? "" : e.currency[1] + "", i = e.decimal === void 0 ? "." : e.decimal + "", a = e.numerals === void 0 ? Ot : xt(kt.call(e.numerals, String)), o = e.percent === void 0 ? "%" : e.percent + "", s = e.minus === void 0 ? "−" : e.minus + "", c = e.nan === void 0 ? "NaN" : e.nan + "";
	function l(e, l) {
		e = Z(e);
		var u = e.fill, d = e.align, f = e.sign, p = e.symbol, m = e.zero, h = e.width, g = e.comma, _ = e.precision, v = e.trim, y = e.type;
		y === "n" ? (g = !0, y = "g") : Dt[y] || (_ === void 0 && (_ = 12), v = !0, y = "g"), (m || u === "0" && d === "=") && (m = !0, u = "0", d = "=");
		var b = (l && l.prefix !== void 0 ? l.prefix : "") + (p === "$" ? n : p === "#" && /[boxX]/.test(y) ? "0" + y.toLowerCase() : ""), x = (p === "$" ? r : /[%p]/.test(y) ? o : "") + (l && l.suffix !== void 0 ? l.suffix : ""), S = Dt[y], ee = /[defgprs%]/.test(y);
		_ = _ === void 0 ? 6 : /[gprs]/.test(y) ? Math.max(1, Math.min(21, _)) : Math.max(0, Math.min(20, _));
		function C(e) {
			var n = b, r = x, o, l, p;
			if (y === "c") r = S(e) + r, e = "";
			else {
				e = +e;
				var C = e < 0 || 1 / e < 0;
				if (e = isNaN(e) ? c : S(Math.abs(e), _), v && (e = wt(e)), C && +e == 0 && f !== "+" && (C = !1), n = (C ? f === "(" ? f : s : f === "-" || f === "(" ? "" : f) + n, r = (y === "s" && !isNaN(e) && Q !== void 0 ? At[8 + Q / 3] : "") + r + (C && f === "(" ? ")" : ""), ee) {
					for (o = -1, l = e.length; ++o < l;) if (p = e.charCodeAt(o), 48 > p || p > 57) {
						r = (p === 46 ? i + e.slice(o + 1) : e.slice(o)) + r, e = e.slice(0, o);
						break;
					}
				}
			}
			g && !m && (e = t(e, Infinity));
			var w = n.length + e.length + r.length, T = w < h ? Array(h - w + 1).join(u) : "";
			switch (g && m && (e = t(T + e, T.length ? h - r.length : Infinity), T = ""), d) {
				case "<":
					e = n + e + r + T;
					break;
				case "=":
					e = n + T + e + r;
					break;
				case "^":
					e = T.slice(0, w = T.length >> 1) + n + e + r + T.slice(w);
					break;
				default: e = T + n + e + r;
			}
			return a(e);
		}
		return C.toString = function() {
			return e + "";
		}, C;
	}
	function u(e, t) {
		var n = Math.max(-8, Math.min(8, Math.floor(X(t) / 3))) * 3, r = 10 ** -n, i = l((e = Z(e), e.type = "f", e), { suffix: At[8 + n / 3] });
		return function(e) {
			return i(r * e);
		};
	}
	return {
		format: l,
		formatPrefix: u
	};
}
var $, Mt, Nt;
Pt({
	thousands: ",",
	grouping: [3],
	currency: ["$", ""]
});
function Pt(e) {
	return $ = jt(e), Mt = $.format, Nt = $.formatPrefix, $;
}
function Ft(e) {
	return Math.max(0, -X(Math.abs(e)));
}
function It(e, t) {
	return Math.max(0, Math.max(-8, Math.min(8, Math.floor(X(t) / 3))) * 3 - X(Math.abs(e)));
}
function Lt(e, t) {
	return e = Math.abs(e), t = Math.abs(t) - e, Math.max(0, X(t) - X(e)) + 1;
}
// node_modules/d3-scale/src/tickFormat.js
function Rt(e, t, n, r) {
	var i = p(e, t, n), a;
	switch (r = Z(r ?? ",f"), r.type) {
		case "s":
			var o = Math.max(Math.abs(e), Math.abs(t));
			return r.precision == null && !isNaN(a = It(i, o)) && (r.precision = a), Nt(r, o);
		case "":
		case "e":
		case "g":
		case "p":
		case "r":
			r.precision == null && !isNaN(a = Lt(i, Math.max(Math.abs(e), Math.abs(t)))) && (r.precision = a - (r.type === "e"));
			break;
		case "f":
		case "%": r.precision == null && !isNaN(a = Ft(i)) && (r.precision = a - (r.type === "%") * 2);
	}
	return Mt(r);
}
// node_modules/d3-scale/src/linear.js
function zt(e) {
	var t = e.domain;
	return e.ticks = function(e) {
		var n = t();
		return d(n[0], n[n.length - 1], e ?? 10);
	}, e.tickFormat = function(e, n) {
		var r = t();
		return Rt(r[0], r[r.length - 1], e ?? 10, n);
	}, e.nice = function(n) {
		n ??= 10;
		var r = t(), i = 0, a = r.length - 1, o = r[i], s = r[a], c, l, u = 10;
		for (s < o && (l = o, o = s, s = l, l = i, i = a, a = l); u-- > 0;) {
			if (l = f(o, s, n), l === c) return r[i] = o, r[a] = s, t(r);
			if (l > 0) o = Math.floor(o / l) * l, s = Math.ceil(s / l) * l;
			else if (l < 0) o = Math.ceil(o * l) / l, s = Math.floor(s * l) / l;
			else break;
			c = l;
		}
		return e;
	}, e;
}
function Bt() {
	var e = vt();
	return e.copy = function() {
		return gt(e, Bt());
	}, m.apply(e, arguments), zt(e);
}
export { _t as a, gt as i, Mt as n, m as o, Z as r, d as s, Bt as t };
