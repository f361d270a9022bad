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
	return ge(this).formatHsl();
}
function ce() {
	return this.rgb().formatRgb();
}
function E(e) {
	var t, n;
	return e = (e + "").trim().toLowerCase(), (t = ee.exec(e)) ? (n = t[1].length, t = parseInt(t[1], 16), n === 6 ? le(t) : n === 3 ? new O(t >> 8 & 15 | t >> 4 & 240, t >> 4 & 15 | t & 240, (t & 15) << 4 | t & 15, 1) : n === 8 ? D(t >> 24 & 255, t >> 16 & 255, t >> 8 & 255, (t & 255) / 255) : n === 4 ? D(t >> 12 & 15 | t >> 8 & 240, t >> 8 & 15 | t >> 4 & 240, t >> 4 & 15 | t & 240, ((t & 15) << 4 | t & 15) / 255) : null) : (t = C.exec(e)) ? new O(t[1], t[2], t[3], 1) : (t = w.exec(e)) ? new O(t[1] * 255 / 100, t[2] * 255 / 100, t[3] * 255 / 100, 1) : (t = T.exec(e)) ? D(t[1], t[2], t[3], t[4]) : (t = te.exec(e)) ? D(t[1] * 255 / 100, t[2] * 255 / 100, t[3] * 255 / 100, t[4]) : (t = ne.exec(e)) ? he(t[1], t[2] / 100, t[3] / 100, 1) : (t = re.exec(e)) ? he(t[1], t[2] / 100, t[3] / 100, t[4]) : ie.hasOwnProperty(e) ? le(ie[e]) : e === "transparent" ? new O(NaN, NaN, NaN, 0) : null;
}
function le(e) {
	return new O(e >> 16 & 255, e >> 8 & 255, e & 255, 1);
}
function D(e, t, n, r) {
	return r <= 0 && (e = t = n = NaN), new O(e, t, n, r);
}
function ue(e) {
	return e instanceof _ || (e = E(e)), e ? (e = e.rgb(), new O(e.r, e.g, e.b, e.opacity)) : new O();
}
function de(e, t, n, r) {
	return arguments.length === 1 ? ue(e) : new O(e, t, n, r ?? 1);
}
function O(e, t, n, r) {
	this.r = +e, this.g = +t, this.b = +n, this.opacity = +r;
}
h(O, de, g(_, {
	brighter(e) {
		return e = e == null ? y : y ** +e, new O(this.r * e, this.g * e, this.b * e, this.opacity);
	},
	darker(e) {
		return e = e == null ? v : v ** +e, new O(this.r * e, this.g * e, this.b * e, this.opacity);
	},
	rgb() {
		return this;
	},
	clamp() {
		return new O(A(this.r), A(this.g), A(this.b), k(this.opacity));
	},
	displayable() {
		return -.5 <= this.r && this.r < 255.5 && -.5 <= this.g && this.g < 255.5 && -.5 <= this.b && this.b < 255.5 && 0 <= this.opacity && this.opacity <= 1;
	},
	hex: fe,
	formatHex: fe,
	formatHex8: pe,
	formatRgb: me,
	toString: me
}));
function fe() {
	return `#${j(this.r)}${j(this.g)}${j(this.b)}`;
}
function pe() {
	return `#${j(this.r)}${j(this.g)}${j(this.b)}${j((isNaN(this.opacity) ? 1 : this.opacity) * 255)}`;
}
function me() {
	let e = k(this.opacity);
	return `${e === 1 ? "rgb(" : "rgba("}${A(this.r)}, ${A(this.g)}, ${A(this.b)}${e === 1 ? ")" : `, ${e})`}`;
}
function k(e) {
	return isNaN(e) ? 1 : Math.max(0, Math.min(1, e));
}
function A(e) {
	return Math.max(0, Math.min(255, Math.round(e) || 0));
}
function j(e) {
	return e = A(e), (e < 16 ? "0" : "") + e.toString(16);
}
function he(e, t, n, r) {
	return r <= 0 ? e = t = n = NaN : n <= 0 || n >= 1 ? e = t = NaN : t <= 0 && (e = NaN), new M(e, t, n, r);
}
function ge(e) {
	if (e instanceof M) return new M(e.h, e.s, e.l, e.opacity);
	if (e instanceof _ || (e = E(e)), !e) return new M();
	if (e instanceof M) return e;
	e = e.rgb();
	var t = e.r / 255, n = e.g / 255, r = e.b / 255, i = Math.min(t, n, r), a = Math.max(t, n, r), o = NaN, s = a - i, c = (a + i) / 2;
	return s ? (o = t === a ? (n - r) / s + (n < r) * 6 : n === a ? (r - t) / s + 2 : (t - n) / s + 4, s /= c < .5 ? a + i : 2 - a - i, o *= 60) : s = c > 0 && c < 1 ? 0 : o, new M(o, s, c, e.opacity);
}
function _e(e, t, n, r) {
	return arguments.length === 1 ? ge(e) : new M(e, t, n, r ?? 1);
}
function M(e, t, n, r) {
	this.h = +e, this.s = +t, this.l = +n, this.opacity = +r;
}
h(M, _e, g(_, {
	brighter(e) {
		return e = e == null ? y : y ** +e, new M(this.h, this.s, this.l * e, this.opacity);
	},
	darker(e) {
		return e = e == null ? v : v ** +e, new M(this.h, this.s, this.l * e, this.opacity);
	},
	rgb() {
		var e = this.h % 360 + (this.h < 0) * 360, t = isNaN(e) || isNaN(this.s) ? 0 : this.s, n = this.l, r = n + (n < .5 ? n : 1 - n) * t, i = 2 * n - r;
		return new O(ye(e >= 240 ? e - 240 : e + 120, i, r), ye(e, i, r), ye(e < 120 ? e + 240 : e - 120, i, r), this.opacity);
	},
	clamp() {
		return new M(ve(this.h), N(this.s), N(this.l), k(this.opacity));
	},
	displayable() {
		return (0 <= this.s && this.s <= 1 || isNaN(this.s)) && 0 <= this.l && this.l <= 1 && 0 <= this.opacity && this.opacity <= 1;
	},
	formatHsl() {
		let e = k(this.opacity);
		return `${e === 1 ? "hsl(" : "hsla("}${ve(this.h)}, ${N(this.s) * 100}%, ${N(this.l) * 100}%${e === 1 ? ")" : `, ${e})`}`;
	}
}));
function ve(e) {
	return e = (e || 0) % 360, e < 0 ? e + 360 : e;
}
function N(e) {
	return Math.max(0, Math.min(1, e || 0));
}
function ye(e, t, n) {
	return (e < 60 ? t + (n - t) * e / 60 : e < 180 ? n : e < 240 ? t + (n - t) * (240 - e) / 60 : t) * 255;
}
var be = Math.PI / 180, xe = 180 / Math.PI, P = 18, Se = .96422, Ce = 1, we = .82521, Te = 4 / 29, F = 6 / 29, Ee = 3 * F * F, De = F * F * F;
function Oe(e) {
	if (e instanceof I) return new I(e.l, e.a, e.b, e.opacity);
	if (e instanceof R) return Fe(e);
	e instanceof O || (e = ue(e));
	var t = L(e.r), n = L(e.g), r = L(e.b), i = Ae((.2225045 * t + .7168786 * n + .0606169 * r) / Ce), a, o;
	return t === n && n === r ? a = o = i : (a = Ae((.4360747 * t + .3850649 * n + .1430804 * r) / Se), o = Ae((.0139322 * t + .0971045 * n + .7141733 * r) / we)), new I(116 * i - 16, 500 * (a - i), 200 * (i - o), e.opacity);
}
function ke(e, t, n, r) {
	return arguments.length === 1 ? Oe(e) : new I(e, t, n, r ?? 1);
}
function I(e, t, n, r) {
	this.l = +e, this.a = +t, this.b = +n, this.opacity = +r;
}
h(I, ke, g(_, {
	brighter(e) {
		return new I(this.l + P * (e ?? 1), this.a, this.b, this.opacity);
	},
	darker(e) {
		return new I(this.l - P * (e ?? 1), this.a, this.b, this.opacity);
	},
	rgb() {
		var e = (this.l + 16) / 116, t = isNaN(this.a) ? e : e + this.a / 500, n = isNaN(this.b) ? e : e - this.b / 200;
		return t = Se * je(t), e = Ce * je(e), n = we * je(n), new O(Me(3.1338561 * t - 1.6168667 * e - .4906146 * n), Me(-.9787684 * t + 1.9161415 * e + .033454 * n), Me(.0719453 * t - .2289914 * e + 1.4052427 * n), this.opacity);
	}
}));
function Ae(e) {
	return e > De ? e ** (1 / 3) : e / Ee + Te;
}
function je(e) {
	return e > F ? e * e * e : Ee * (e - Te);
}
function Me(e) {
	return 255 * (e <= .0031308 ? 12.92 * e : 1.055 * e ** (1 / 2.4) - .055);
}
function L(e) {
	return (e /= 255) <= .04045 ? e / 12.92 : ((e + .055) / 1.055) ** 2.4;
}
function Ne(e) {
	if (e instanceof R) return new R(e.h, e.c, e.l, e.opacity);
	if (e instanceof I || (e = Oe(e)), e.a === 0 && e.b === 0) return new R(NaN, 0 < e.l && e.l < 100 ? 0 : NaN, e.l, e.opacity);
	var t = Math.atan2(e.b, e.a) * xe;
	return new R(t < 0 ? t + 360 : t, Math.sqrt(e.a * e.a + e.b * e.b), e.l, e.opacity);
}
function Pe(e, t, n, r) {
	return arguments.length === 1 ? Ne(e) : new R(e, t, n, r ?? 1);
}
function R(e, t, n, r) {
	this.h = +e, this.c = +t, this.l = +n, this.opacity = +r;
}
function Fe(e) {
	if (isNaN(e.h)) return new I(e.l, 0, 0, e.opacity);
	var t = e.h * be;
	return new I(e.l, Math.cos(t) * e.c, Math.sin(t) * e.c, e.opacity);
}
h(R, Pe, g(_, {
	brighter(e) {
		return new R(this.h, this.c, this.l + P * (e ?? 1), this.opacity);
	},
	darker(e) {
		return new R(this.h, this.c, this.l - P * (e ?? 1), this.opacity);
	},
	rgb() {
		return Fe(this).rgb();
	}
}));
var Ie = -.14861, Le = 1.78277, Re = -.29227, z = -.90649, B = 1.97294, ze = B * z, Be = B * Le, Ve = Le * Re - z * Ie;
function He(e) {
	if (e instanceof V) return new V(e.h, e.s, e.l, e.opacity);
	e instanceof O || (e = ue(e));
	var t = e.r / 255, n = e.g / 255, r = e.b / 255, i = (Ve * r + ze * t - Be * n) / (Ve + ze - Be), a = r - i, o = (B * (n - i) - Re * a) / z, s = Math.sqrt(o * o + a * a) / (B * i * (1 - i)), c = s ? Math.atan2(o, a) * xe - 120 : NaN;
	return new V(c < 0 ? c + 360 : c, s, i, e.opacity);
}
function Ue(e, t, n, r) {
	return arguments.length === 1 ? He(e) : new V(e, t, n, r ?? 1);
}
function V(e, t, n, r) {
	this.h = +e, this.s = +t, this.l = +n, this.opacity = +r;
}
h(V, Ue, g(_, {
	brighter(e) {
		return e = e == null ? y : y ** +e, new V(this.h, this.s, this.l * e, this.opacity);
	},
	darker(e) {
		return e = e == null ? v : v ** +e, new V(this.h, this.s, this.l * e, this.opacity);
	},
	rgb() {
		var e = isNaN(this.h) ? 0 : (this.h + 120) * be, t = +this.l, n = isNaN(this.s) ? 0 : this.s * t * (1 - t), r = Math.cos(e), i = Math.sin(e);
		return new O(255 * (t + n * (Ie * r + Le * i)), 255 * (t + n * (Re * r + z * i)), 255 * (t + B * r * n), this.opacity);
	}
}));
var H = (e) => () => e;
function We(e, t) {
	return function(n) {
		return e + n * t;
	};
}
function Ge(e, t, n) {
	return e **= +n, t = t ** +n - e, n = 1 / n, function(r) {
		return (e + r * t) ** +n;
	};
}
function Ke(e, t) {
	var n = t - e;
	return n ? We(e, n > 180 || n < -180 ? n - 360 * Math.round(n / 360) : n) : H(isNaN(e) ? t : e);
}
function qe(e) {
	return (e = +e) == 1 ? U : function(t, n) {
		return n - t ? Ge(t, n, e) : H(isNaN(t) ? n : t);
	};
}
function U(e, t) {
	var n = t - e;
	return n ? We(e, n) : H(isNaN(e) ? t : e);
}
var Je = (function e(t) {
	var n = qe(t);
	function r(e, t) {
		var r = n((e = de(e)).r, (t = de(t)).r), i = n(e.g, t.g), a = n(e.b, t.b), o = U(e.opacity, t.opacity);
		return function(t) {
			return e.r = r(t), e.g = i(t), e.b = a(t), e.opacity = o(t), e + "";
		};
	}
	return r.gamma = e, r;
})(1);
function Ye(e, t) {
	t ||= [];
	var n = e ? Math.min(t.length, e.length) : 0, r = t.slice(), i;
	return function(a) {
		for (i = 0; i < n; ++i) r[i] = e[i] * (1 - a) + t[i] * a;
		return r;
	};
}
function Xe(e) {
	return ArrayBuffer.isView(e) && !(e instanceof DataView);
}
function Ze(e, t) {
	for (var n = t ? t.length : 0, r = e ? Math.min(n, e.length) : 0, i = Array(r), a = Array(n), o = 0; o < r; ++o) i[o] = at(e[o], t[o]);
	for (; o < n; ++o) a[o] = t[o];
	return function(e) {
		for (o = 0; o < r; ++o) a[o] = i[o](e);
		return a;
	};
}
function Qe(e, t) {
	var n = /* @__PURE__ */ new Date();
	return e = +e, t = +t, function(r) {
		return n.setTime(e * (1 - r) + t * r), n;
	};
}
function W(e, t) {
	return e = +e, t = +t, function(n) {
		return e * (1 - n) + t * n;
	};
}
function $e(e, t) {
	var n = {}, r = {}, i;
	for (i in typeof e == "object" && e || (e = {}), typeof t == "object" && t || (t = {}), t) i in e ? n[i] = at(e[i], t[i]) : r[i] = t[i];
	return function(e) {
		for (i in n) r[i] = n[i](e);
		return r;
	};
}
var et = /[-+]?(?:\d+\.?\d*|\.?\d+)(?:[eE][-+]?\d+)?/g, tt = new RegExp(et.source, "g");
function nt(e) {
	return function() {
		return e;
	};
}
function rt(e) {
	return function(t) {
		return e(t) + "";
	};
}
function it(e, t) {
	var n = et.lastIndex = tt.lastIndex = 0, r, i, a, o = -1, s = [], c = [];
	for (e += "", t += ""; (r = et.exec(e)) && (i = tt.exec(t));) (a = i.index) > n && (a = t.slice(n, a), s[o] ? s[o] += a : s[++o] = a), (r = r[0]) === (i = i[0]) ? s[o] ? s[o] += i : s[++o] = i : (s[++o] = null, c.push({
		i: o,
		x: W(r, i)
	})), n = tt.lastIndex;
	return n < t.length && (a = t.slice(n), s[o] ? s[o] += a : s[++o] = a), s.length < 2 ? c[0] ? rt(c[0].x) : nt(t) : (t = c.length, function(e) {
		for (var n = 0, r; n < t; ++n) s[(r = c[n]).i] = r.x(e);
		return s.join("");
	});
}
function at(e, t) {
	var n = typeof t, r;
	return t == null || n === "boolean" ? H(t) : (n === "number" ? W : n === "string" ? (r = E(t)) ? (t = r, Je) : it : t instanceof E ? Je : t instanceof Date ? Qe : Xe(t) ? Ye : Array.isArray(t) ? Ze : typeof t.valueOf != "function" && typeof t.toString != "function" || isNaN(t) ? $e : W)(e, t);
}
function ot(e, t) {
	return e = +e, t = +t, function(n) {
		return Math.round(e * (1 - n) + t * n);
	};
}
var st = 1e-12;
function ct(e) {
	return ((e = Math.exp(e)) + 1 / e) / 2;
}
function lt(e) {
	return ((e = Math.exp(e)) - 1 / e) / 2;
}
function ut(e) {
	return ((e = Math.exp(2 * e)) - 1) / (e + 1);
}
(function e(t, n, r) {
	function i(e, i) {
		var a = e[0], o = e[1], s = e[2], c = i[0], l = i[1], u = i[2], d = c - a, f = l - o, p = d * d + f * f, m, h;
		if (p < st) h = Math.log(u / s) / t, m = function(e) {
			return [
				a + e * d,
				o + e * f,
				s * Math.exp(t * e * h)
			];
		};
		else {
			var g = Math.sqrt(p), _ = (u * u - s * s + r * p) / (2 * s * n * g), v = (u * u - s * s - r * p) / (2 * u * n * g), y = Math.log(Math.sqrt(_ * _ + 1) - _);
			h = (Math.log(Math.sqrt(v * v + 1) - v) - y) / t, m = function(e) {
				var r = e * h, i = ct(y), c = s / (n * g) * (i * ut(t * r + y) - lt(y));
				return [
					a + c * d,
					o + c * f,
					s * i / ct(t * r + y)
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
function dt(e) {
	return (function t(n) {
		n = +n;
		function r(t, r) {
			var i = e((t = Ue(t)).h, (r = Ue(r)).h), a = U(t.s, r.s), o = U(t.l, r.l), s = U(t.opacity, r.opacity);
			return function(e) {
				return t.h = i(e), t.s = a(e), t.l = o(e ** +n), t.opacity = s(e), t + "";
			};
		}
		return r.gamma = t, r;
	})(1);
}
dt(Ke), dt(U);
// node_modules/d3-scale/src/constant.js
function ft(e) {
	return function() {
		return e;
	};
}
// node_modules/d3-scale/src/number.js
function pt(e) {
	return +e;
}
// node_modules/d3-scale/src/continuous.js
var mt = [0, 1];
function G(e) {
	return e;
}
function ht(e, t) {
	return (t -= e = +e) ? function(n) {
		return (n - e) / t;
	} : ft(isNaN(t) ? NaN : .5);
}
function gt(e, t) {
	var n;
	return e > t && (n = e, e = t, t = n), function(n) {
		return Math.max(e, Math.min(t, n));
	};
}
function _t(e, t, n) {
	var r = e[0], i = e[1], a = t[0], o = t[1];
	return i < r ? (r = ht(i, r), a = n(o, a)) : (r = ht(r, i), a = n(a, o)), function(e) {
		return a(r(e));
	};
}
function vt(e, t, n) {
	var r = Math.min(e.length, t.length) - 1, i = Array(r), a = Array(r), s = -1;
	for (e[r] < e[0] && (e = e.slice().reverse(), t = t.slice().reverse()); ++s < r;) i[s] = ht(e[s], e[s + 1]), a[s] = n(t[s], t[s + 1]);
	return function(t) {
		var n = o(e, t, 1, r) - 1;
		return a[n](i[n](t));
	};
}
function yt(e, t) {
	return t.domain(e.domain()).range(e.range()).interpolate(e.interpolate()).clamp(e.clamp()).unknown(e.unknown());
}
function bt() {
	var e = mt, t = mt, n = at, r, i, a, o = G, s, c, l;
	function u() {
		var n = Math.min(e.length, t.length);
		return o !== G && (o = gt(e[0], e[n - 1])), s = n > 2 ? vt : _t, c = l = null, d;
	}
	function d(i) {
		return i == null || isNaN(i = +i) ? a : (c ||= s(e.map(r), t, n))(r(o(i)));
	}
	return d.invert = function(n) {
		return o(i((l ||= s(t, e.map(r), W))(n)));
	}, d.domain = function(t) {
		return arguments.length ? (e = Array.from(t, pt), u()) : e.slice();
	}, d.range = function(e) {
		return arguments.length ? (t = Array.from(e), u()) : t.slice();
	}, d.rangeRound = function(e) {
		return t = Array.from(e), n = ot, u();
	}, d.clamp = function(e) {
		return arguments.length ? (o = e ? !0 : G, u()) : o !== G;
	}, d.interpolate = function(e) {
		return arguments.length ? (n = e, u()) : n;
	}, d.unknown = function(e) {
		return arguments.length ? (a = e, d) : a;
	}, function(e, t) {
		return r = e, i = t, u();
	};
}
function xt() {
	return bt()(G, G);
}
// node_modules/d3-format/dist/d3-format.mjs
function St(e) {
	return Math.abs(e = Math.round(e)) >= 1e21 ? e.toLocaleString("en").replace(/,/g, "") : e.toString(10);
}
function K(e, t) {
	if (!isFinite(e) || e === 0) return null;
	var n = (e = t ? e.toExponential(t - 1) : e.toExponential()).indexOf("e"), r = e.slice(0, n);
	return [r.length > 1 ? r[0] + r.slice(2) : r, +e.slice(n + 1)];
}
function q(e) {
	return e = K(Math.abs(e)), e ? e[1] : NaN;
}
function Ct(e, t) {
	return function(n, r) {
		for (var i = n.length, a = [], o = 0, s = e[0], c = 0; i > 0 && s > 0 && (c + s + 1 > r && (s = Math.max(1, r - c)), a.push(n.substring(i -= s, i + s)), !((c += s + 1) > r));) s = e[o = (o + 1) % e.length];
		return a.reverse().join(t);
	};
}
function wt(e) {
	return function(t) {
		return t.replace(/[0-9]/g, function(t) {
			return e[+t];
		});
	};
}
var Tt = /^(?:(.)?([<>=^]))?([+\-( ])?([$#])?(0)?(\d+)?(,)?(\.\d+)?(~)?([a-z%])?$/i;
function J(e) {
	if (!(t = Tt.exec(e))) throw Error("invalid format: " + e);
	var t;
	return new Et({
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
J.prototype = Et.prototype;
function Et(e) {
	this.fill = e.fill === void 0 ? " " : e.fill + "", this.align = e.align === void 0 ? ">" : e.align + "", this.sign = e.sign === void 0 ? "-" : e.sign + "", this.symbol = e.symbol === void 0 ? "" : e.symbol + "", this.zero = !!e.zero, this.width = e.width === void 0 ? void 0 : +e.width, this.comma = !!e.comma, this.precision = e.precision === void 0 ? void 0 : +e.precision, this.trim = !!e.trim, this.type = e.type === void 0 ? "" : e.type + "";
}
Et.prototype.toString = function() {
	return this.fill + this.align + this.sign + this.symbol + (this.zero ? "0" : "") + (this.width === void 0 ? "" : Math.max(1, this.width | 0)) + (this.comma ? "," : "") + (this.precision === void 0 ? "" : "." + Math.max(0, this.precision | 0)) + (this.trim ? "~" : "") + this.type;
};
function Dt(e) {
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
var Y;
function Ot(e, t) {
	var n = K(e, t);
	if (!n) return Y = void 0, e.toPrecision(t);
	var r = n[0], i = n[1], a = i - (Y = Math.max(-8, Math.min(8, Math.floor(i / 3))) * 3) + 1, o = r.length;
	return a === o ? r : a > o ? r + Array(a - o + 1).join("0") : a > 0 ? r.slice(0, a) + "." + r.slice(a) : "0." + Array(1 - a).join("0") + K(e, Math.max(0, t + a - 1))[0];
}
function kt(e, t) {
	var n = K(e, t);
	if (!n) return e + "";
	var r = n[0], i = n[1];
	return i < 0 ? "0." + Array(-i).join("0") + r : r.length > i + 1 ? r.slice(0, i + 1) + "." + r.slice(i + 1) : r + Array(i - r.length + 2).join("0");
}
var At = {
	"%": (e, t) => (e * 100).toFixed(t),
	b: (e) => Math.round(e).toString(2),
	c: (e) => e + "",
	d: St,
	e: (e, t) => e.toExponential(t),
	f: (e, t) => e.toFixed(t),
	g: (e, t) => e.toPrecision(t),
	o: (e) => Math.round(e).toString(8),
	p: (e, t) => kt(e * 100, t),
	r: kt,
	s: Ot,
	X: (e) => Math.round(e).toString(16).toUpperCase(),
	x: (e) => Math.round(e).toString(16)
};
function jt(e) {
	return e;
}
var Mt = Array.prototype.map, Nt = [
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
function Pt(e) {
	var t = e.grouping === void 0 || e.thousands === void 0 ? jt : Ct(Mt.call(e.grouping, Number), e.thousands + ""), n = e.currency === void 0 ? "" : e.currency[0] + "", r = e.currency === void 0 ? "" : e.currency[1] + "", i = e.decimal === void 0 ? "." : e.decimal + "", a = e.numerals === void 0 ? jt : wt(Mt.call(e.numerals, String)), o = e.percent === void 0 ? "%" : e.percent + "", s = e.minus === void 0 ? "−" : e.minus + "", c = e.nan === void 0 ? "NaN" : e.nan + "";
	function l(e, l) {
		e = J(e);
		var u = e.fill, d = e.align, f = e.sign, p = e.symbol, m = e.zero, h = e.width, g = e.comma, _ = e.precision, v = e.trim, y = e.type;
		y === "n" ? (g = !0, y = "g") : At[y] || (_ === void 0 && (_ = 12), v = !0, y = "g"), (m || u === "0" && d === "=") && (m = !0, u = "0", d = "=");
		var b = (l && l.prefix !== void 0 ? l.prefix : "") + (p === "$" ? n : p === "#" && /[boxX]/.test(y) ? "0" + y.toLowerCase() : ""), x = (p === "$" ? r : /[%p]/.test(y) ? o : "") + (l && l.suffix !== void 0 ? l.suffix : ""), S = At[y], ee = /[defgprs%]/.test(y);
		_ = _ === void 0 ? 6 : /[gprs]/.test(y) ? Math.max(1, Math.min(21, _)) : Math.max(0, Math.min(20, _));
		function C(e) {
			var n = b, r = x, o, l, p;
			if (y === "c") r = S(e) + r, e = "";
			else {
				e = +e;
				var C = e < 0 || 1 / e < 0;
				if (e = isNaN(e) ? c : S(Math.abs(e), _), v && (e = Dt(e)), C && +e == 0 && f !== "+" && (C = !1), n = (C ? f === "(" ? f : s : f === "-" || f === "(" ? "" : f) + n, r = (y === "s" && !isNaN(e) && Y !== void 0 ? Nt[8 + Y / 3] : "") + r + (C && f === "(" ? ")" : ""), ee) {
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
		var n = Math.max(-8, Math.min(8, Math.floor(q(t) / 3))) * 3, r = 10 ** -n, i = l((e = J(e), e.type = "f", e), { suffix: Nt[8 + n / 3] });
		return function(e) {
			return i(r * e);
		};
	}
	return {
		format: l,
		formatPrefix: u
	};
}
var X, Ft, It;
Lt({
	thousands: ",",
	grouping: [3],
	currency: ["$", ""]
});
function Lt(e) {
	return X = Pt(e), Ft = X.format, It = X.formatPrefix, X;
}
function Rt(e) {
	return Math.max(0, -q(Math.abs(e)));
}
function zt(e, t) {
	return Math.max(0, Math.max(-8, Math.min(8, Math.floor(q(t) / 3))) * 3 - q(Math.abs(e)));
}
function Bt(e, t) {
	return e = Math.abs(e), t = Math.abs(t) - e, Math.max(0, q(t) - q(e)) + 1;
}
// node_modules/d3-scale/src/tickFormat.js
function Vt(e, t, n, r) {
	var i = p(e, t, n), a;
	switch (r = J(r ?? ",f"), r.type) {
		case "s":
			var o = Math.max(Math.abs(e), Math.abs(t));
			return r.precision == null && !isNaN(a = zt(i, o)) && (r.precision = a), It(r, o);
		case "":
		case "e":
		case "g":
		case "p":
		case "r":
			r.precision == null && !isNaN(a = Bt(i, Math.max(Math.abs(e), Math.abs(t)))) && (r.precision = a - (r.type === "e"));
			break;
		case "f":
		case "%": r.precision == null && !isNaN(a = Rt(i)) && (r.precision = a - (r.type === "%") * 2);
	}
	return Ft(r);
}
// node_modules/d3-scale/src/linear.js
function Ht(e) {
	var t = e.domain;
	return e.ticks = function(e) {
		var n = t();
		return d(n[0], n[n.length - 1], e ?? 10);
	}, e.tickFormat = function(e, n) {
		var r = t();
		return Vt(r[0], r[r.length - 1], e ?? 10, n);
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
function Ut() {
	var e = xt();
	return e.copy = function() {
		return yt(e, Ut());
	}, m.apply(e, arguments), Ht(e);
}
// node_modules/d3-scale/src/nice.js
function Wt(e, t) {
	e = e.slice();
	var n = 0, r = e.length - 1, i = e[n], a = e[r], o;
	return a < i && (o = n, n = r, r = o, o = i, i = a, a = o), e[n] = t.floor(i), e[r] = t.ceil(a), e;
}
// node_modules/d3-scale/src/log.js
function Gt(e) {
	return Math.log(e);
}
function Kt(e) {
	return Math.exp(e);
}
function qt(e) {
	return -Math.log(-e);
}
function Jt(e) {
	return -Math.exp(-e);
}
function Yt(e) {
	return isFinite(e) ? +("1e" + e) : e < 0 ? 0 : e;
}
function Xt(e) {
	return e === 10 ? Yt : e === Math.E ? Math.exp : (t) => e ** +t;
}
function Zt(e) {
	return e === Math.E ? Math.log : e === 10 && Math.log10 || e === 2 && Math.log2 || (e = Math.log(e), (t) => Math.log(t) / e);
}
function Qt(e) {
	return (t, n) => -e(-t, n);
}
function $t(e) {
	let t = e(Gt, Kt), n = t.domain, r = 10, i, a;
	function o() {
		return i = Zt(r), a = Xt(r), n()[0] < 0 ? (i = Qt(i), a = Qt(a), e(qt, Jt)) : e(Gt, Kt), t;
	}
	return t.base = function(e) {
		return arguments.length ? (r = +e, o()) : r;
	}, t.domain = function(e) {
		return arguments.length ? (n(e), o()) : n();
	}, t.ticks = (e) => {
		let t = n(), o = t[0], s = t[t.length - 1], c = s < o;
		c && ([o, s] = [s, o]);
		let l = i(o), u = i(s), f, p, m = e == null ? 10 : +e, h = [];
		if (!(r % 1) && u - l < m) {
			if (l = Math.floor(l), u = Math.ceil(u), o > 0) {
				for (; l <= u; ++l) for (f = 1; f < r; ++f) if (p = l < 0 ? f / a(-l) : f * a(l), !(p < o)) {
					if (p > s) break;
					h.push(p);
				}
			} else for (; l <= u; ++l) for (f = r - 1; f >= 1; --f) if (p = l > 0 ? f / a(-l) : f * a(l), !(p < o)) {
				if (p > s) break;
				h.push(p);
			}
			h.length * 2 < m && (h = d(o, s, m));
		} else h = d(l, u, Math.min(u - l, m)).map(a);
		return c ? h.reverse() : h;
	}, t.tickFormat = (e, n) => {
		if (e ??= 10, n ??= r === 10 ? "s" : ",", typeof n != "function" && (!(r % 1) && (n = J(n)).precision == null && (n.trim = !0), n = Ft(n)), e === Infinity) return n;
		let o = Math.max(1, r * e / t.ticks().length);
		return (e) => {
			let t = e / a(Math.round(i(e)));
			return t * r < r - .5 && (t *= r), t <= o ? n(e) : "";
		};
	}, t.nice = () => n(Wt(n(), {
		floor: (e) => a(Math.floor(i(e))),
		ceil: (e) => a(Math.ceil(i(e)))
	})), t;
}
function en() {
	let e = $t(bt()).domain([1, 10]);
	return e.copy = () => yt(e, en()).base(e.base()), m.apply(e, arguments), e;
}
// node_modules/d3-shape/src/constant.js
function Z(e) {
	return function() {
		return e;
	};
}
// node_modules/d3-path/dist/d3-path.mjs
var Q = Math.PI, tn = 2 * Q, $ = 1e-6, nn = tn - $;
function rn(e) {
	this._ += e[0];
	for (let t = 1, n = e.length; t < n; ++t) this._ += arguments[t] + e[t];
}
function an(e) {
	let t = Math.floor(e);
	if (!(t >= 0)) throw Error(`invalid digits: ${e}`);
	if (t > 15) return rn;
	let n = 10 ** t;
	return function(e) {
		this._ += e[0];
		for (let t = 1, r = e.length; t < r; ++t) this._ += Math.round(arguments[t] * n) / n + e[t];
	};
}
function on(e, t, n, r) {
	return e === n && t === r;
}
function sn(e) {
	let t = Math.floor(e);
	if (!(t <= 15)) return on;
	let n = 10 ** t, r = function(e) {
		return Math.round(e * n);
	};
	return function(e, t, n, i) {
		return r(e) === r(n) && r(t) === r(i);
	};
}
var cn = class {
	constructor(e) {
		this._x0 = this._y0 = this._x1 = this._y1 = null, this._ = "", this._append = e == null ? rn : an(e), this._equal = e == null ? on : sn(e);
	}
	moveTo(e, t) {
		this._append`M${this._x0 = this._x1 = +e},${this._y0 = this._y1 = +t}`;
	}
	closePath() {
		this._x1 !== null && (this._x1 = this._x0, this._y1 = this._y0, this._append`Z`);
	}
	lineTo(e, t) {
		this._append`L${this._x1 = +e},${this._y1 = +t}`;
	}
	quadraticCurveTo(e, t, n, r) {
		this._append`Q${+e},${+t},${this._x1 = +n},${this._y1 = +r}`;
	}
	bezierCurveTo(e, t, n, r, i, a) {
		this._append`C${+e},${+t},${+n},${+r},${this._x1 = +i},${this._y1 = +a}`;
	}
	arcTo(e, t, n, r, i) {
		if (e = +e, t = +t, n = +n, r = +r, i = +i, i < 0) throw Error(`negative radius: ${i}`);
		let a = this._x1, o = this._y1, s = n - e, c = r - t, l = a - e, u = o - t, d = l * l + u * u;
		if (this._x1 === null) this._append`M${this._x1 = e},${this._y1 = t}`;
		else if (d > $) {
			if (!(Math.abs(u * s - c * l) > $) || !i) this._append`L${this._x1 = e},${this._y1 = t}`;
			else {
				let f = n - a, p = r - o, m = s * s + c * c, h = f * f + p * p, g = Math.sqrt(m), _ = Math.sqrt(d), v = i * Math.tan((Q - Math.acos((m + d - h) / (2 * g * _))) / 2), y = v / _, b = v / g;
				Math.abs(y - 1) > $ && this._append`L${e + y * l},${t + y * u}`, this._append`A${i},${i},0,0,${+(u * f > l * p)},${this._x1 = e + b * s},${this._y1 = t + b * c}`;
			}
		}
	}
	arc(e, t, n, r, i, a) {
		if (e = +e, t = +t, n = +n, a = !!a, n < 0) throw Error(`negative radius: ${n}`);
		let o = n * Math.cos(r), s = n * Math.sin(r), c = e + o, l = t + s, u = 1 ^ a, d = a ? r - i : i - r;
		if (this._x1 === null ? this._append`M${c},${l}` : (Math.abs(this._x1 - c) > $ || Math.abs(this._y1 - l) > $) && this._append`L${c},${l}`, n) {
			if (d < 0 && (d = d % tn + tn), d > nn) this._append`A${n},${n},0,1,${u},${e - o},${t - s}A${n},${n},0,1,${u},${this._x1 = c},${this._y1 = l}`;
			else if (d > $) {
				let a = e + n * Math.cos(i), o = t + n * Math.sin(i);
				if (d >= Q && this._equal(c, l, a, o)) {
					d /= 2;
					let i = r + d;
					this._append`A${n},${n},0,${+(d >= Q)},${u},${e + n * Math.cos(i)},${t + n * Math.sin(i)}`;
				}
				this._append`A${n},${n},0,${+(d >= Q)},${u},${this._x1 = a},${this._y1 = o}`;
			}
		}
	}
	rect(e, t, n, r) {
		this._append`M${this._x0 = this._x1 = +e},${this._y0 = this._y1 = +t}h${n = +n}v${+r}h${-n}Z`;
	}
	toString() {
		return this._;
	}
};
cn.prototype;
// node_modules/d3-shape/src/path.js
function ln(e) {
	let t = 3;
	return e.digits = function(n) {
		if (!arguments.length) return t;
		if (n == null) t = null;
		else {
			let e = Math.floor(n);
			if (!(e >= 0)) throw RangeError(`invalid digits: ${n}`);
			t = e;
		}
		return e;
	}, () => new cn(t);
}
Array.prototype.slice;
function un(e) {
	return typeof e == "object" && "length" in e ? e : Array.from(e);
}
// node_modules/d3-shape/src/curve/linear.js
function dn(e) {
	this._context = e;
}
dn.prototype = {
	areaStart: function() {
		this._line = 0;
	},
	areaEnd: function() {
		this._line = NaN;
	},
	lineStart: function() {
		this._point = 0;
	},
	lineEnd: function() {
		(this._line || this._line !== 0 && this._point === 1) && this._context.closePath(), this._line = 1 - this._line;
	},
	point: function(e, t) {
		switch (e = +e, t = +t, this._point) {
			case 0:
				this._point = 1, this._line ? this._context.lineTo(e, t) : this._context.moveTo(e, t);
				break;
			case 1: this._point = 2;
			default: this._context.lineTo(e, t);
		}
	}
};
function fn(e) {
	return new dn(e);
}
// node_modules/d3-shape/src/point.js
function pn(e) {
	return e[0];
}
function mn(e) {
	return e[1];
}
// node_modules/d3-shape/src/line.js
function hn(e, t) {
	var n = Z(!0), r = null, i = fn, a = null, o = ln(s);
	e = typeof e == "function" ? e : e === void 0 ? pn : Z(e), t = typeof t == "function" ? t : t === void 0 ? mn : Z(t);
	function s(s) {
		var c, l = (s = un(s)).length, u, d = !1, f;
		for (r ?? (a = i(f = o())), c = 0; c <= l; ++c) !(c < l && n(u = s[c], c, s)) === d && ((d = !d) ? a.lineStart() : a.lineEnd()), d && a.point(+e(u, c, s), +t(u, c, s));
		if (f) return a = null, f + "" || null;
	}
	return s.x = function(t) {
		return arguments.length ? (e = typeof t == "function" ? t : Z(+t), s) : e;
	}, s.y = function(e) {
		return arguments.length ? (t = typeof e == "function" ? e : Z(+e), s) : t;
	}, s.defined = function(e) {
		return arguments.length ? (n = typeof e == "function" ? e : Z(!!e), s) : n;
	}, s.curve = function(e) {
		return arguments.length ? (i = e, r != null && (a = i(r)), s) : i;
	}, s.context = function(e) {
		return arguments.length ? (e == null ? r = a = null : a = i(r = e), s) : r;
	}, s;
}
export { en as n, Ut as r, hn as t };
