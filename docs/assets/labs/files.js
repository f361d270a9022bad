// node_modules/js-yaml/dist/js-yaml.mjs
function e(e) {
	return e == null;
}
function t(e) {
	return typeof e == "object" && !!e;
}
function n(t) {
	return Array.isArray(t) ? t : e(t) ? [] : [t];
}
function r(e, t) {
	var n, r, i, a;
	if (t) for (a = Object.keys(t), n = 0, r = a.length; n < r; n += 1) i = a[n], e[i] = t[i];
	return e;
}
function i(e, t) {
	for (var n = "", r = 0; r < t; r += 1) n += e;
	return n;
}
function a(e) {
	return e === 0 && 1 / e == -Infinity;
}
var o = {
	isNothing: e,
	isObject: t,
	toArray: n,
	repeat: i,
	isNegativeZero: a,
	extend: r
};
function s(e, t) {
	var n = "", r = e.reason || "(unknown reason)";
	return e.mark ? (e.mark.name && (n += "in \"" + e.mark.name + "\" "), n += "(" + (e.mark.line + 1) + ":" + (e.mark.column + 1) + ")", !t && e.mark.snippet && (n += "\n\n" + e.mark.snippet), r + " " + n) : r;
}
function c(e, t) {
	Error.call(this), this.name = "YAMLException", this.reason = e, this.mark = t, this.message = s(this, !1), Error.captureStackTrace ? Error.captureStackTrace(this, this.constructor) : this.stack = (/* @__PURE__ */ Error()).stack || "";
}
c.prototype = Object.create(Error.prototype), c.prototype.constructor = c, c.prototype.toString = function(e) {
	return this.name + ": " + s(this, e);
};
var l = c;
function u(e, t, n, r, i) {
	var a = "", o = "", s = Math.floor(i / 2) - 1;
	return r - t > s && (a = " ... ", t = r - s + a.length), n - r > s && (o = " ...", n = r + s - o.length), {
		str: a + e.slice(t, n).replace(/\t/g, "→") + o,
		pos: r - t + a.length
	};
}
function d(e, t) {
	return o.repeat(" ", t - e.length) + e;
}
function f(e, t) {
	if (t = Object.create(t || null), !e.buffer) return null;
	t.maxLength || (t.maxLength = 79), typeof t.indent != "number" && (t.indent = 1), typeof t.linesBefore != "number" && (t.linesBefore = 3), typeof t.linesAfter != "number" && (t.linesAfter = 2);
	for (var n = /\r?\n|\r|\0/g, r = [0], i = [], a, s = -1; a = n.exec(e.buffer);) i.push(a.index), r.push(a.index + a[0].length), e.position <= a.index && s < 0 && (s = r.length - 2);
	s < 0 && (s = r.length - 1);
	var c = "", l, f, p = Math.min(e.line + t.linesAfter, i.length).toString().length, m = t.maxLength - (t.indent + p + 3);
	for (l = 1; l <= t.linesBefore && !(s - l < 0); l++) f = u(e.buffer, r[s - l], i[s - l], e.position - (r[s] - r[s - l]), m), c = o.repeat(" ", t.indent) + d((e.line - l + 1).toString(), p) + " | " + f.str + "\n" + c;
	for (f = u(e.buffer, r[s], i[s], e.position, m), c += o.repeat(" ", t.indent) + d((e.line + 1).toString(), p) + " | " + f.str + "\n", c += o.repeat("-", t.indent + p + 3 + f.pos) + "^\n", l = 1; l <= t.linesAfter && !(s + l >= i.length); l++) f = u(e.buffer, r[s + l], i[s + l], e.position - (r[s] - r[s + l]), m), c += o.repeat(" ", t.indent) + d((e.line + l + 1).toString(), p) + " | " + f.str + "\n";
	return c.replace(/\n$/, "");
}
var p = f, m = [
	"kind",
	"multi",
	"resolve",
	"construct",
	"instanceOf",
	"predicate",
	"represent",
	"representName",
	"defaultStyle",
	"styleAliases"
], h = [
	"scalar",
	"sequence",
	"mapping"
];
function g(e) {
	var t = {};
	return e !== null && Object.keys(e).forEach(function(n) {
		e[n].forEach(function(e) {
			t[String(e)] = n;
		});
	}), t;
}
function _(e, t) {
	if (t ||= {}, Object.keys(t).forEach(function(t) {
		if (m.indexOf(t) === -1) throw new l("Unknown option \"" + t + "\" is met in definition of \"" + e + "\" YAML type.");
	}), this.options = t, this.tag = e, this.kind = t.kind || null, this.resolve = t.resolve || function() {
		return !0;
	}, this.construct = t.construct || function(e) {
		return e;
	}, this.instanceOf = t.instanceOf || null, this.predicate = t.predicate || null, this.represent = t.represent || null, this.representName = t.representName || null, this.defaultStyle = t.defaultStyle || null, this.multi = t.multi || !1, this.styleAliases = g(t.styleAliases || null), h.indexOf(this.kind) === -1) throw new l("Unknown kind \"" + this.kind + "\" is specified for \"" + e + "\" YAML type.");
}
var v = _;
function ee(e, t) {
	var n = [];
	return e[t].forEach(function(e) {
		var t = n.length;
		n.forEach(function(n, r) {
			n.tag === e.tag && n.kind === e.kind && n.multi === e.multi && (t = r);
		}), n[t] = e;
	}), n;
}
function te() {
	var e = {
		scalar: {},
		sequence: {},
		mapping: {},
		fallback: {},
		multi: {
			scalar: [],
			sequence: [],
			mapping: [],
			fallback: []
		}
	}, t, n;
	function r(t) {
		t.multi ? (e.multi[t.kind].push(t), e.multi.fallback.push(t)) : e[t.kind][t.tag] = e.fallback[t.tag] = t;
	}
	for (t = 0, n = arguments.length; t < n; t += 1) arguments[t].forEach(r);
	return e;
}
function y(e) {
	return this.extend(e);
}
y.prototype.extend = function(e) {
	var t = [], n = [];
	if (e instanceof v) n.push(e);
	else if (Array.isArray(e)) n = n.concat(e);
	else if (e && (Array.isArray(e.implicit) || Array.isArray(e.explicit))) e.implicit && (t = t.concat(e.implicit)), e.explicit && (n = n.concat(e.explicit));
	else throw new l("Schema.extend argument should be a Type, [ Type ], or a schema definition ({ implicit: [...], explicit: [...] })");
	t.forEach(function(e) {
		if (!(e instanceof v)) throw new l("Specified list of YAML types (or a single Type object) contains a non-Type object.");
		if (e.loadKind && e.loadKind !== "scalar") throw new l("There is a non-scalar type in the implicit list of a schema. Implicit resolving of such types is not supported.");
		if (e.multi) throw new l("There is a multi type in the implicit list of a schema. Multi tags can only be listed as explicit.");
	}), n.forEach(function(e) {
		if (!(e instanceof v)) throw new l("Specified list of YAML types (or a single Type object) contains a non-Type object.");
	});
	var r = Object.create(y.prototype);
	return r.implicit = (this.implicit || []).concat(t), r.explicit = (this.explicit || []).concat(n), r.compiledImplicit = ee(r, "implicit"), r.compiledExplicit = ee(r, "explicit"), r.compiledTypeMap = te(r.compiledImplicit, r.compiledExplicit), r;
};
var ne = new y({ explicit: [
	new v("tag:yaml.org,2002:str", {
		kind: "scalar",
		construct: function(e) {
			return e === null ? "" : e;
		}
	}),
	new v("tag:yaml.org,2002:seq", {
		kind: "sequence",
		construct: function(e) {
			return e === null ? [] : e;
		}
	}),
	new v("tag:yaml.org,2002:map", {
		kind: "mapping",
		construct: function(e) {
			return e === null ? {} : e;
		}
	})
] });
function re(e) {
	if (e === null) return !0;
	var t = e.length;
	return t === 1 && e === "~" || t === 4 && (e === "null" || e === "Null" || e === "NULL");
}
function ie() {
	return null;
}
function ae(e) {
	return e === null;
}
var oe = new v("tag:yaml.org,2002:null", {
	kind: "scalar",
	resolve: re,
	construct: ie,
	predicate: ae,
	represent: {
		canonical: function() {
			return "~";
		},
		lowercase: function() {
			return "null";
		},
		uppercase: function() {
			return "NULL";
		},
		camelcase: function() {
			return "Null";
		},
		empty: function() {
			return "";
		}
	},
	defaultStyle: "lowercase"
});
function se(e) {
	if (e === null) return !1;
	var t = e.length;
	return t === 4 && (e === "true" || e === "True" || e === "TRUE") || t === 5 && (e === "false" || e === "False" || e === "FALSE");
}
function ce(e) {
	return e === "true" || e === "True" || e === "TRUE";
}
function le(e) {
	return Object.prototype.toString.call(e) === "[object Boolean]";
}
var ue = new v("tag:yaml.org,2002:bool", {
	kind: "scalar",
	resolve: se,
	construct: ce,
	predicate: le,
	represent: {
		lowercase: function(e) {
			return e ? "true" : "false";
		},
		uppercase: function(e) {
			return e ? "TRUE" : "FALSE";
		},
		camelcase: function(e) {
			return e ? "True" : "False";
		}
	},
	defaultStyle: "lowercase"
});
function de(e) {
	return 48 <= e && e <= 57 || 65 <= e && e <= 70 || 97 <= e && e <= 102;
}
function fe(e) {
	return 48 <= e && e <= 55;
}
function pe(e) {
	return 48 <= e && e <= 57;
}
function me(e) {
	if (e === null) return !1;
	var t = e.length, n = 0, r = !1, i;
	if (!t) return !1;
	if (i = e[n], (i === "-" || i === "+") && (i = e[++n]), i === "0") {
		if (n + 1 === t) return !0;
		if (i = e[++n], i === "b") {
			for (n++; n < t; n++) if (i = e[n], i !== "_") {
				if (i !== "0" && i !== "1") return !1;
				r = !0;
			}
			return r && i !== "_";
		}
		if (i === "x") {
			for (n++; n < t; n++) if (i = e[n], i !== "_") {
				if (!de(e.charCodeAt(n))) return !1;
				r = !0;
			}
			return r && i !== "_";
		}
		if (i === "o") {
			for (n++; n < t; n++) if (i = e[n], i !== "_") {
				if (!fe(e.charCodeAt(n))) return !1;
				r = !0;
			}
			return r && i !== "_";
		}
	}
	if (i === "_") return !1;
	for (; n < t; n++) if (i = e[n], i !== "_") {
		if (!pe(e.charCodeAt(n))) return !1;
		r = !0;
	}
	return !(!r || i === "_");
}
function he(e) {
	var t = e, n = 1, r;
	if (t.indexOf("_") !== -1 && (t = t.replace(/_/g, "")), r = t[0], (r === "-" || r === "+") && (r === "-" && (n = -1), t = t.slice(1), r = t[0]), t === "0") return 0;
	if (r === "0") {
		if (t[1] === "b") return n * parseInt(t.slice(2), 2);
		if (t[1] === "x") return n * parseInt(t.slice(2), 16);
		if (t[1] === "o") return n * parseInt(t.slice(2), 8);
	}
	return n * parseInt(t, 10);
}
function ge(e) {
	return Object.prototype.toString.call(e) === "[object Number]" && e % 1 == 0 && !o.isNegativeZero(e);
}
var _e = new v("tag:yaml.org,2002:int", {
	kind: "scalar",
	resolve: me,
	construct: he,
	predicate: ge,
	represent: {
		binary: function(e) {
			return e >= 0 ? "0b" + e.toString(2) : "-0b" + e.toString(2).slice(1);
		},
		octal: function(e) {
			return e >= 0 ? "0o" + e.toString(8) : "-0o" + e.toString(8).slice(1);
		},
		decimal: function(e) {
			return e.toString(10);
		},
		hexadecimal: function(e) {
			return e >= 0 ? "0x" + e.toString(16).toUpperCase() : "-0x" + e.toString(16).toUpperCase().slice(1);
		}
	},
	defaultStyle: "decimal",
	styleAliases: {
		binary: [2, "bin"],
		octal: [8, "oct"],
		decimal: [10, "dec"],
		hexadecimal: [16, "hex"]
	}
}), ve = /* @__PURE__ */ RegExp("^(?:[-+]?(?:[0-9][0-9_]*)(?:\\.[0-9_]*)?(?:[eE][-+]?[0-9]+)?|\\.[0-9_]+(?:[eE][-+]?[0-9]+)?|[-+]?\\.(?:inf|Inf|INF)|\\.(?:nan|NaN|NAN))$");
function ye(e) {
	return !(e === null || !ve.test(e) || e[e.length - 1] === "_");
}
function be(e) {
	var t = e.replace(/_/g, "").toLowerCase(), n = t[0] === "-" ? -1 : 1;
	return "+-".indexOf(t[0]) >= 0 && (t = t.slice(1)), t === ".inf" ? n === 1 ? Infinity : -Infinity : t === ".nan" ? NaN : n * parseFloat(t, 10);
}
var xe = /^[-+]?[0-9]+e/;
function Se(e, t) {
	var n;
	if (isNaN(e)) switch (t) {
		case "lowercase": return ".nan";
		case "uppercase": return ".NAN";
		case "camelcase": return ".NaN";
	}
	else if (e === Infinity) switch (t) {
		case "lowercase": return ".inf";
		case "uppercase": return ".INF";
		case "camelcase": return ".Inf";
	}
	else if (e === -Infinity) switch (t) {
		case "lowercase": return "-.inf";
		case "uppercase": return "-.INF";
		case "camelcase": return "-.Inf";
	}
	else if (o.isNegativeZero(e)) return "-0.0";
	return n = e.toString(10), xe.test(n) ? n.replace("e", ".e") : n;
}
function Ce(e) {
	return Object.prototype.toString.call(e) === "[object Number]" && (e % 1 != 0 || o.isNegativeZero(e));
}
var we = new v("tag:yaml.org,2002:float", {
	kind: "scalar",
	resolve: ye,
	construct: be,
	predicate: Ce,
	represent: Se,
	defaultStyle: "lowercase"
}), Te = ne.extend({ implicit: [
	oe,
	ue,
	_e,
	we
] }), Ee = /* @__PURE__ */ RegExp("^([0-9][0-9][0-9][0-9])-([0-9][0-9])-([0-9][0-9])$"), De = /* @__PURE__ */ RegExp("^([0-9][0-9][0-9][0-9])-([0-9][0-9]?)-([0-9][0-9]?)(?:[Tt]|[ \\t]+)([0-9][0-9]?):([0-9][0-9]):([0-9][0-9])(?:\\.([0-9]*))?(?:[ \\t]*(Z|([-+])([0-9][0-9]?)(?::([0-9][0-9]))?))?$");
function Oe(e) {
	return e === null ? !1 : Ee.exec(e) !== null || De.exec(e) !== null;
}
function ke(e) {
	var t, n, r, i, a, o, s, c = 0, l = null, u, d, f;
	if (t = Ee.exec(e), t === null && (t = De.exec(e)), t === null) throw Error("Date resolve error");
	if (n = +t[1], r = t[2] - 1, i = +t[3], !t[4]) return new Date(Date.UTC(n, r, i));
	if (a = +t[4], o = +t[5], s = +t[6], t[7]) {
		for (c = t[7].slice(0, 3); c.length < 3;) c += "0";
		c = +c;
	}
	return t[9] && (u = +t[10], d = +(t[11] || 0), l = (u * 60 + d) * 6e4, t[9] === "-" && (l = -l)), f = new Date(Date.UTC(n, r, i, a, o, s, c)), l && f.setTime(f.getTime() - l), f;
}
function Ae(e) {
	return e.toISOString();
}
var je = new v("tag:yaml.org,2002:timestamp", {
	kind: "scalar",
	resolve: Oe,
	construct: ke,
	instanceOf: Date,
	represent: Ae
});
function Me(e) {
	return e === "<<" || e === null;
}
var Ne = new v("tag:yaml.org,2002:merge", {
	kind: "scalar",
	resolve: Me
}), b = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=\n\r";
function Pe(e) {
	if (e === null) return !1;
	var t, n, r = 0, i = e.length, a = b;
	for (n = 0; n < i; n++) if (t = a.indexOf(e.charAt(n)), !(t > 64)) {
		if (t < 0) return !1;
		r += 6;
	}
	return r % 8 == 0;
}
function Fe(e) {
	var t, n, r = e.replace(/[\r\n=]/g, ""), i = r.length, a = b, o = 0, s = [];
	for (t = 0; t < i; t++) t % 4 == 0 && t && (s.push(o >> 16 & 255), s.push(o >> 8 & 255), s.push(o & 255)), o = o << 6 | a.indexOf(r.charAt(t));
	return n = i % 4 * 6, n === 0 ? (s.push(o >> 16 & 255), s.push(o >> 8 & 255), s.push(o & 255)) : n === 18 ? (s.push(o >> 10 & 255), s.push(o >> 2 & 255)) : n === 12 && s.push(o >> 4 & 255), new Uint8Array(s);
}
function Ie(e) {
	var t = "", n = 0, r, i, a = e.length, o = b;
	for (r = 0; r < a; r++) r % 3 == 0 && r && (t += o[n >> 18 & 63], t += o[n >> 12 & 63], t += o[n >> 6 & 63], t += o[n & 63]), n = (n << 8) + e[r];
	return i = a % 3, i === 0 ? (t += o[n >> 18 & 63], t += o[n >> 12 & 63], t += o[n >> 6 & 63], t += o[n & 63]) : i === 2 ? (t += o[n >> 10 & 63], t += o[n >> 4 & 63], t += o[n << 2 & 63], t += o[64]) : i === 1 && (t += o[n >> 2 & 63], t += o[n << 4 & 63], t += o[64], t += o[64]), t;
}
function Le(e) {
	return Object.prototype.toString.call(e) === "[object Uint8Array]";
}
var Re = new v("tag:yaml.org,2002:binary", {
	kind: "scalar",
	resolve: Pe,
	construct: Fe,
	predicate: Le,
	represent: Ie
}), ze = Object.prototype.hasOwnProperty, Be = Object.prototype.toString;
function Ve(e) {
	if (e === null) return !0;
	var t = [], n, r, i, a, o, s = e;
	for (n = 0, r = s.length; n < r; n += 1) {
		if (i = s[n], o = !1, Be.call(i) !== "[object Object]") return !1;
		for (a in i) if (ze.call(i, a)) {
			if (!o) o = !0;
			else return !1;
		}
		if (!o) return !1;
		if (t.indexOf(a) === -1) t.push(a);
		else return !1;
	}
	return !0;
}
function He(e) {
	return e === null ? [] : e;
}
var Ue = new v("tag:yaml.org,2002:omap", {
	kind: "sequence",
	resolve: Ve,
	construct: He
}), We = Object.prototype.toString;
function Ge(e) {
	if (e === null) return !0;
	var t, n, r, i, a, o = e;
	for (a = Array(o.length), t = 0, n = o.length; t < n; t += 1) {
		if (r = o[t], We.call(r) !== "[object Object]" || (i = Object.keys(r), i.length !== 1)) return !1;
		a[t] = [i[0], r[i[0]]];
	}
	return !0;
}
function Ke(e) {
	if (e === null) return [];
	var t, n, r, i, a, o = e;
	for (a = Array(o.length), t = 0, n = o.length; t < n; t += 1) r = o[t], i = Object.keys(r), a[t] = [i[0], r[i[0]]];
	return a;
}
var qe = new v("tag:yaml.org,2002:pairs", {
	kind: "sequence",
	resolve: Ge,
	construct: Ke
}), Je = Object.prototype.hasOwnProperty;
function Ye(e) {
	if (e === null) return !0;
	var t, n = e;
	for (t in n) if (Je.call(n, t) && n[t] !== null) return !1;
	return !0;
}
function Xe(e) {
	return e === null ? {} : e;
}
var Ze = new v("tag:yaml.org,2002:set", {
	kind: "mapping",
	resolve: Ye,
	construct: Xe
}), Qe = Te.extend({
	implicit: [je, Ne],
	explicit: [
		Re,
		Ue,
		qe,
		Ze
	]
}), x = Object.prototype.hasOwnProperty, S = 1, $e = 2, et = 3, C = 4, w = 1, tt = 2, nt = 3, rt = /[\x00-\x08\x0B\x0C\x0E-\x1F\x7F-\x84\x86-\x9F\uFFFE\uFFFF]|[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?:[^\uD800-\uDBFF]|^)[\uDC00-\uDFFF]/, it = /[\x85\u2028\u2029]/, at = /[,\[\]\{\}]/, ot = /^(?:!|!!|![a-z\-]+!)$/i, st = /^(?:!|[^,\[\]\{\}])(?:%[0-9a-f]{2}|[0-9a-z\-#;\/\?:@&=\+\$,_\.!~\*'\(\)\[\]])*$/i;
function ct(e) {
	return Object.prototype.toString.call(e);
}
function T(e) {
	return e === 10 || e === 13;
}
function E(e) {
	return e === 9 || e === 32;
}
function D(e) {
	return e === 9 || e === 32 || e === 10 || e === 13;
}
function O(e) {
	return e === 44 || e === 91 || e === 93 || e === 123 || e === 125;
}
function lt(e) {
	var t;
	return 48 <= e && e <= 57 ? e - 48 : (t = e | 32, 97 <= t && t <= 102 ? t - 97 + 10 : -1);
}
function ut(e) {
	return e === 120 ? 2 : e === 117 ? 4 : e === 85 ? 8 : 0;
}
function dt(e) {
	return 48 <= e && e <= 57 ? e - 48 : -1;
}
function ft(e) {
	return e === 48 ? "\0" : e === 97 ? "\x07" : e === 98 ? "\b" : e === 116 || e === 9 ? "	" : e === 110 ? "\n" : e === 118 ? "\v" : e === 102 ? "\f" : e === 114 ? "\r" : e === 101 ? "\x1B" : e === 32 ? " " : e === 34 ? "\"" : e === 47 ? "/" : e === 92 ? "\\" : e === 78 ? "" : e === 95 ? "\xA0" : e === 76 ? "\u2028" : e === 80 ? "\u2029" : "";
}
function pt(e) {
	return e <= 65535 ? String.fromCharCode(e) : String.fromCharCode((e - 65536 >> 10) + 55296, (e - 65536 & 1023) + 56320);
}
function mt(e, t, n) {
	t === "__proto__" ? Object.defineProperty(e, t, {
		configurable: !0,
		enumerable: !0,
		writable: !0,
		value: n
	}) : e[t] = n;
}
for (var ht = Array(256), gt = Array(256), k = 0; k < 256; k++) ht[k] = +!!ft(k), gt[k] = ft(k);
function _t(e, t) {
	this.input = e, this.filename = t.filename || null, this.schema = t.schema || Qe, this.onWarning = t.onWarning || null, this.legacy = t.legacy || !1, this.json = t.json || !1, this.listener = t.listener || null, this.implicitTypes = this.schema.compiledImplicit, this.typeMap = this.schema.compiledTypeMap, this.length = e.length, this.position = 0, this.line = 0, this.lineStart = 0, this.lineIndent = 0, this.firstTabInLine = -1, this.documents = [];
}
function vt(e, t) {
	var n = {
		name: e.filename,
		buffer: e.input.slice(0, -1),
		position: e.position,
		line: e.line,
		column: e.position - e.lineStart
	};
	return n.snippet = p(n), new l(t, n);
}
function A(e, t) {
	throw vt(e, t);
}
function j(e, t) {
	e.onWarning && e.onWarning.call(null, vt(e, t));
}
var yt = {
	YAML: function(e, t, n) {
		var r, i, a;
		e.version !== null && A(e, "duplication of %YAML directive"), n.length !== 1 && A(e, "YAML directive accepts exactly one argument"), r = /^([0-9]+)\.([0-9]+)$/.exec(n[0]), r === null && A(e, "ill-formed argument of the YAML directive"), i = parseInt(r[1], 10), a = parseInt(r[2], 10), i !== 1 && A(e, "unacceptable YAML version of the document"), e.version = n[0], e.checkLineBreaks = a < 2, a !== 1 && a !== 2 && j(e, "unsupported YAML version of the document");
	},
	TAG: function(e, t, n) {
		var r, i;
		n.length !== 2 && A(e, "TAG directive accepts exactly two arguments"), r = n[0], i = n[1], ot.test(r) || A(e, "ill-formed tag handle (first argument) of the TAG directive"), x.call(e.tagMap, r) && A(e, "there is a previously declared suffix for \"" + r + "\" tag handle"), st.test(i) || A(e, "ill-formed tag prefix (second argument) of the TAG directive");
		try {
			i = decodeURIComponent(i);
		} catch {
			A(e, "tag prefix is malformed: " + i);
		}
		e.tagMap[r] = i;
	}
};
function M(e, t, n, r) {
	var i, a, o, s;
	if (t < n) {
		if (s = e.input.slice(t, n), r) for (i = 0, a = s.length; i < a; i += 1) o = s.charCodeAt(i), o === 9 || 32 <= o && o <= 1114111 || A(e, "expected valid JSON character");
		else rt.test(s) && A(e, "the stream contains non-printable characters");
		e.result += s;
	}
}
function bt(e, t, n, r) {
	var i, a, s, c;
	for (o.isObject(n) || A(e, "cannot merge mappings; the provided source object is unacceptable"), i = Object.keys(n), s = 0, c = i.length; s < c; s += 1) a = i[s], x.call(t, a) || (mt(t, a, n[a]), r[a] = !0);
}
function N(e, t, n, r, i, a, o, s, c) {
	var l, u;
	if (Array.isArray(i)) for (i = Array.prototype.slice.call(i), l = 0, u = i.length; l < u; l += 1) Array.isArray(i[l]) && A(e, "nested arrays are not supported inside keys"), typeof i == "object" && ct(i[l]) === "[object Object]" && (i[l] = "[object Object]");
	if (typeof i == "object" && ct(i) === "[object Object]" && (i = "[object Object]"), i = String(i), t === null && (t = {}), r === "tag:yaml.org,2002:merge") {
		if (Array.isArray(a)) for (l = 0, u = a.length; l < u; l += 1) bt(e, t, a[l], n);
		else bt(e, t, a, n);
	} else !e.json && !x.call(n, i) && x.call(t, i) && (e.line = o || e.line, e.lineStart = s || e.lineStart, e.position = c || e.position, A(e, "duplicated mapping key")), mt(t, i, a), delete n[i];
	return t;
}
function P(e) {
	var t = e.input.charCodeAt(e.position);
	t === 10 ? e.position++ : t === 13 ? (e.position++, e.input.charCodeAt(e.position) === 10 && e.position++) : A(e, "a line break is expected"), e.line += 1, e.lineStart = e.position, e.firstTabInLine = -1;
}
function F(e, t, n) {
	for (var r = 0, i = e.input.charCodeAt(e.position); i !== 0;) {
		for (; E(i);) i === 9 && e.firstTabInLine === -1 && (e.firstTabInLine = e.position), i = e.input.charCodeAt(++e.position);
		if (t && i === 35) do
			i = e.input.charCodeAt(++e.position);
		while (i !== 10 && i !== 13 && i !== 0);
		if (T(i)) for (P(e), i = e.input.charCodeAt(e.position), r++, e.lineIndent = 0; i === 32;) e.lineIndent++, i = e.input.charCodeAt(++e.position);
		else break;
	}
	return n !== -1 && r !== 0 && e.lineIndent < n && j(e, "deficient indentation"), r;
}
function I(e) {
	var t = e.position, n = e.input.charCodeAt(t);
	return !!((n === 45 || n === 46) && n === e.input.charCodeAt(t + 1) && n === e.input.charCodeAt(t + 2) && (t += 3, n = e.input.charCodeAt(t), n === 0 || D(n)));
}
function L(e, t) {
	t === 1 ? e.result += " " : t > 1 && (e.result += o.repeat("\n", t - 1));
}
function xt(e, t, n) {
	var r, i, a, o, s, c, l, u, d = e.kind, f = e.result, p = e.input.charCodeAt(e.position);
	if (D(p) || O(p) || p === 35 || p === 38 || p === 42 || p === 33 || p === 124 || p === 62 || p === 39 || p === 34 || p === 37 || p === 64 || p === 96 || (p === 63 || p === 45) && (i = e.input.charCodeAt(e.position + 1), D(i) || n && O(i))) return !1;
	for (e.kind = "scalar", e.result = "", a = o = e.position, s = !1; p !== 0;) {
		if (p === 58) {
			if (i = e.input.charCodeAt(e.position + 1), D(i) || n && O(i)) break;
		} else if (p === 35) {
			if (r = e.input.charCodeAt(e.position - 1), D(r)) break;
		} else if (e.position === e.lineStart && I(e) || n && O(p)) break;
		else if (T(p)) {
			if (c = e.line, l = e.lineStart, u = e.lineIndent, F(e, !1, -1), e.lineIndent >= t) {
				s = !0, p = e.input.charCodeAt(e.position);
				continue;
			}
			e.position = o, e.line = c, e.lineStart = l, e.lineIndent = u;
			break;
		}
		s &&= (M(e, a, o, !1), L(e, e.line - c), a = o = e.position, !1), E(p) || (o = e.position + 1), p = e.input.charCodeAt(++e.position);
	}
	return M(e, a, o, !1), e.result ? !0 : (e.kind = d, e.result = f, !1);
}
function St(e, t) {
	var n = e.input.charCodeAt(e.position), r, i;
	if (n !== 39) return !1;
	for (e.kind = "scalar", e.result = "", e.position++, r = i = e.position; (n = e.input.charCodeAt(e.position)) !== 0;) if (n === 39) {
		if (M(e, r, e.position, !0), n = e.input.charCodeAt(++e.position), n === 39) r = e.position, e.position++, i = e.position;
		else return !0;
	} else T(n) ? (M(e, r, i, !0), L(e, F(e, !1, t)), r = i = e.position) : e.position === e.lineStart && I(e) ? A(e, "unexpected end of the document within a single quoted scalar") : (e.position++, i = e.position);
	A(e, "unexpected end of the stream within a single quoted scalar");
}
function Ct(e, t) {
	var n, r, i, a, o, s = e.input.charCodeAt(e.position);
	if (s !== 34) return !1;
	for (e.kind = "scalar", e.result = "", e.position++, n = r = e.position; (s = e.input.charCodeAt(e.position)) !== 0;) if (s === 34) return M(e, n, e.position, !0), e.position++, !0;
	else if (s === 92) {
		if (M(e, n, e.position, !0), s = e.input.charCodeAt(++e.position), T(s)) F(e, !1, t);
		else if (s < 256 && ht[s]) e.result += gt[s], e.position++;
		else if ((o = ut(s)) > 0) {
			for (i = o, a = 0; i > 0; i--) s = e.input.charCodeAt(++e.position), (o = lt(s)) >= 0 ? a = (a << 4) + o : A(e, "expected hexadecimal character");
			e.result += pt(a), e.position++;
		} else A(e, "unknown escape sequence");
		n = r = e.position;
	} else T(s) ? (M(e, n, r, !0), L(e, F(e, !1, t)), n = r = e.position) : e.position === e.lineStart && I(e) ? A(e, "unexpected end of the document within a double quoted scalar") : (e.position++, r = e.position);
	A(e, "unexpected end of the stream within a double quoted scalar");
}
function wt(e, t) {
	var n = !0, r, i, a, o = e.tag, s, c = e.anchor, l, u, d, f, p, m = Object.create(null), h, g, _, v = e.input.charCodeAt(e.position);
	if (v === 91) u = 93, p = !1, s = [];
	else if (v === 123) u = 125, p = !0, s = {};
	else return !1;
	for (e.anchor !== null && (e.anchorMap[e.anchor] = s), v = e.input.charCodeAt(++e.position); v !== 0;) {
		if (F(e, !0, t), v = e.input.charCodeAt(e.position), v === u) return e.position++, e.tag = o, e.anchor = c, e.kind = p ? "mapping" : "sequence", e.result = s, !0;
		n ? v === 44 && A(e, "expected the node content, but found ','") : A(e, "missed comma between flow collection entries"), g = h = _ = null, d = f = !1, v === 63 && (l = e.input.charCodeAt(e.position + 1), D(l) && (d = f = !0, e.position++, F(e, !0, t))), r = e.line, i = e.lineStart, a = e.position, R(e, t, S, !1, !0), g = e.tag, h = e.result, F(e, !0, t), v = e.input.charCodeAt(e.position), (f || e.line === r) && v === 58 && (d = !0, v = e.input.charCodeAt(++e.position), F(e, !0, t), R(e, t, S, !1, !0), _ = e.result), p ? N(e, s, m, g, h, _, r, i, a) : d ? s.push(N(e, null, m, g, h, _, r, i, a)) : s.push(h), F(e, !0, t), v = e.input.charCodeAt(e.position), v === 44 ? (n = !0, v = e.input.charCodeAt(++e.position)) : n = !1;
	}
	A(e, "unexpected end of the stream within a flow collection");
}
function Tt(e, t) {
	var n, r, i = w, a = !1, s = !1, c = t, l = 0, u = !1, d, f = e.input.charCodeAt(e.position);
	if (f === 124) r = !1;
	else if (f === 62) r = !0;
	else return !1;
	for (e.kind = "scalar", e.result = ""; f !== 0;) if (f = e.input.charCodeAt(++e.position), f === 43 || f === 45) w === i ? i = f === 43 ? nt : tt : A(e, "repeat of a chomping mode identifier");
	else if ((d = dt(f)) >= 0) d === 0 ? A(e, "bad explicit indentation width of a block scalar; it cannot be less than one") : s ? A(e, "repeat of an indentation width identifier") : (c = t + d - 1, s = !0);
	else break;
	if (E(f)) {
		do
			f = e.input.charCodeAt(++e.position);
		while (E(f));
		if (f === 35) do
			f = e.input.charCodeAt(++e.position);
		while (!T(f) && f !== 0);
	}
	for (; f !== 0;) {
		for (P(e), e.lineIndent = 0, f = e.input.charCodeAt(e.position); (!s || e.lineIndent < c) && f === 32;) e.lineIndent++, f = e.input.charCodeAt(++e.position);
		if (!s && e.lineIndent > c && (c = e.lineIndent), T(f)) l++;
		else {
			if (e.lineIndent < c) {
				i === nt ? e.result += o.repeat("\n", a ? 1 + l : l) : i === w && a && (e.result += "\n");
				break;
			}
			for (r ? E(f) ? (u = !0, e.result += o.repeat("\n", a ? 1 + l : l)) : u ? (u = !1, e.result += o.repeat("\n", l + 1)) : l === 0 ? a && (e.result += " ") : e.result += o.repeat("\n", l) : e.result += o.repeat("\n", a ? 1 + l : l), a = !0, s = !0, l = 0, n = e.position; !T(f) && f !== 0;) f = e.input.charCodeAt(++e.position);
			M(e, n, e.position, !1);
		}
	}
	return !0;
}
function Et(e, t) {
	var n, r = e.tag, i = e.anchor, a = [], o, s = !1, c;
	if (e.firstTabInLine !== -1) return !1;
	for (e.anchor !== null && (e.anchorMap[e.anchor] = a), c = e.input.charCodeAt(e.position); c !== 0 && (e.firstTabInLine !== -1 && (e.position = e.firstTabInLine, A(e, "tab characters must not be used in indentation")), !(c !== 45 || (o = e.input.charCodeAt(e.position + 1), !D(o))));) if (s = !0, e.position++, F(e, !0, -1) && e.lineIndent <= t) a.push(null), c = e.input.charCodeAt(e.position);
	else if (n = e.line, R(e, t, et, !1, !0), a.push(e.result), F(e, !0, -1), c = e.input.charCodeAt(e.position), (e.line === n || e.lineIndent > t) && c !== 0) A(e, "bad indentation of a sequence entry");
	else if (e.lineIndent < t) break;
	return s ? (e.tag = r, e.anchor = i, e.kind = "sequence", e.result = a, !0) : !1;
}
function Dt(e, t, n) {
	var r, i, a, o, s, c, l = e.tag, u = e.anchor, d = {}, f = Object.create(null), p = null, m = null, h = null, g = !1, _ = !1, v;
	if (e.firstTabInLine !== -1) return !1;
	for (e.anchor !== null && (e.anchorMap[e.anchor] = d), v = e.input.charCodeAt(e.position); v !== 0;) {
		if (!g && e.firstTabInLine !== -1 && (e.position = e.firstTabInLine, A(e, "tab characters must not be used in indentation")), r = e.input.charCodeAt(e.position + 1), a = e.line, (v === 63 || v === 58) && D(r)) v === 63 ? (g && (N(e, d, f, p, m, null, o, s, c), p = m = h = null), _ = !0, g = !0, i = !0) : g ? (g = !1, i = !0) : A(e, "incomplete explicit mapping pair; a key node is missed; or followed by a non-tabulated empty line"), e.position += 1, v = r;
		else {
			if (o = e.line, s = e.lineStart, c = e.position, !R(e, n, $e, !1, !0)) break;
			if (e.line === a) {
				for (v = e.input.charCodeAt(e.position); E(v);) v = e.input.charCodeAt(++e.position);
				if (v === 58) v = e.input.charCodeAt(++e.position), D(v) || A(e, "a whitespace character is expected after the key-value separator within a block mapping"), g && (N(e, d, f, p, m, null, o, s, c), p = m = h = null), _ = !0, g = !1, i = !1, p = e.tag, m = e.result;
				else if (_) A(e, "can not read an implicit mapping pair; a colon is missed");
				else return e.tag = l, e.anchor = u, !0;
			} else if (_) A(e, "can not read a block mapping entry; a multiline key may not be an implicit key");
			else return e.tag = l, e.anchor = u, !0;
		}
		if ((e.line === a || e.lineIndent > t) && (g && (o = e.line, s = e.lineStart, c = e.position), R(e, t, C, !0, i) && (g ? m = e.result : h = e.result), g || (N(e, d, f, p, m, h, o, s, c), p = m = h = null), F(e, !0, -1), v = e.input.charCodeAt(e.position)), (e.line === a || e.lineIndent > t) && v !== 0) A(e, "bad indentation of a mapping entry");
		else if (e.lineIndent < t) break;
	}
	return g && N(e, d, f, p, m, null, o, s, c), _ && (e.tag = l, e.anchor = u, e.kind = "mapping", e.result = d), _;
}
function Ot(e) {
	var t, n = !1, r = !1, i, a, o = e.input.charCodeAt(e.position);
	if (o !== 33) return !1;
	if (e.tag !== null && A(e, "duplication of a tag property"), o = e.input.charCodeAt(++e.position), o === 60 ? (n = !0, o = e.input.charCodeAt(++e.position)) : o === 33 ? (r = !0, i = "!!", o = e.input.charCodeAt(++e.position)) : i = "!", t = e.position, n) {
		do
			o = e.input.charCodeAt(++e.position);
		while (o !== 0 && o !== 62);
		e.position < e.length ? (a = e.input.slice(t, e.position), o = e.input.charCodeAt(++e.position)) : A(e, "unexpected end of the stream within a verbatim tag");
	} else {
		for (; o !== 0 && !D(o);) o === 33 && (r ? A(e, "tag suffix cannot contain exclamation marks") : (i = e.input.slice(t - 1, e.position + 1), ot.test(i) || A(e, "named tag handle cannot contain such characters"), r = !0, t = e.position + 1)), o = e.input.charCodeAt(++e.position);
		a = e.input.slice(t, e.position), at.test(a) && A(e, "tag suffix cannot contain flow indicator characters");
	}
	a && !st.test(a) && A(e, "tag name cannot contain such characters: " + a);
	try {
		a = decodeURIComponent(a);
	} catch {
		A(e, "tag name is malformed: " + a);
	}
	return n ? e.tag = a : x.call(e.tagMap, i) ? e.tag = e.tagMap[i] + a : i === "!" ? e.tag = "!" + a : i === "!!" ? e.tag = "tag:yaml.org,2002:" + a : A(e, "undeclared tag handle \"" + i + "\""), !0;
}
function kt(e) {
	var t, n = e.input.charCodeAt(e.position);
	if (n !== 38) return !1;
	for (e.anchor !== null && A(e, "duplication of an anchor property"), n = e.input.charCodeAt(++e.position), t = e.position; n !== 0 && !D(n) && !O(n);) n = e.input.charCodeAt(++e.position);
	return e.position === t && A(e, "name of an anchor node must contain at least one character"), e.anchor = e.input.slice(t, e.position), !0;
}
function At(e) {
	var t, n, r = e.input.charCodeAt(e.position);
	if (r !== 42) return !1;
	for (r = e.input.charCodeAt(++e.position), t = e.position; r !== 0 && !D(r) && !O(r);) r = e.input.charCodeAt(++e.position);
	return e.position === t && A(e, "name of an alias node must contain at least one character"), n = e.input.slice(t, e.position), x.call(e.anchorMap, n) || A(e, "unidentified alias \"" + n + "\""), e.result = e.anchorMap[n], F(e, !0, -1), !0;
}
function R(e, t, n, r, i) {
	var a, o, s, c = 1, l = !1, u = !1, d, f, p, m, h, g;
	if (e.listener !== null && e.listener("open", e), e.tag = null, e.anchor = null, e.kind = null, e.result = null, a = o = s = C === n || et === n, r && F(e, !0, -1) && (l = !0, e.lineIndent > t ? c = 1 : e.lineIndent === t ? c = 0 : e.lineIndent < t && (c = -1)), c === 1) for (; Ot(e) || kt(e);) F(e, !0, -1) ? (l = !0, s = a, e.lineIndent > t ? c = 1 : e.lineIndent === t ? c = 0 : e.lineIndent < t && (c = -1)) : s = !1;
	if (s &&= l || i, (c === 1 || C === n) && (h = S === n || $e === n ? t : t + 1, g = e.position - e.lineStart, c === 1 ? s && (Et(e, g) || Dt(e, g, h)) || wt(e, h) ? u = !0 : (o && Tt(e, h) || St(e, h) || Ct(e, h) ? u = !0 : At(e) ? (u = !0, (e.tag !== null || e.anchor !== null) && A(e, "alias node should not have any properties")) : xt(e, h, S === n) && (u = !0, e.tag === null && (e.tag = "?")), e.anchor !== null && (e.anchorMap[e.anchor] = e.result)) : c === 0 && (u = s && Et(e, g))), e.tag === null) e.anchor !== null && (e.anchorMap[e.anchor] = e.result);
	else if (e.tag === "?") {
		for (e.result !== null && e.kind !== "scalar" && A(e, "unacceptable node kind for !<?> tag; it should be \"scalar\", not \"" + e.kind + "\""), d = 0, f = e.implicitTypes.length; d < f; d += 1) if (m = e.implicitTypes[d], m.resolve(e.result)) {
			e.result = m.construct(e.result), e.tag = m.tag, e.anchor !== null && (e.anchorMap[e.anchor] = e.result);
			break;
		}
	} else if (e.tag !== "!") {
		if (x.call(e.typeMap[e.kind || "fallback"], e.tag)) m = e.typeMap[e.kind || "fallback"][e.tag];
		else for (m = null, p = e.typeMap.multi[e.kind || "fallback"], d = 0, f = p.length; d < f; d += 1) if (e.tag.slice(0, p[d].tag.length) === p[d].tag) {
			m = p[d];
			break;
		}
		m || A(e, "unknown tag !<" + e.tag + ">"), e.result !== null && m.kind !== e.kind && A(e, "unacceptable node kind for !<" + e.tag + "> tag; it should be \"" + m.kind + "\", not \"" + e.kind + "\""), m.resolve(e.result, e.tag) ? (e.result = m.construct(e.result, e.tag), e.anchor !== null && (e.anchorMap[e.anchor] = e.result)) : A(e, "cannot resolve a node with !<" + e.tag + "> explicit tag");
	}
	return e.listener !== null && e.listener("close", e), e.tag !== null || e.anchor !== null || u;
}
function jt(e) {
	var t = e.position, n, r, i, a = !1, o;
	for (e.version = null, e.checkLineBreaks = e.legacy, e.tagMap = Object.create(null), e.anchorMap = Object.create(null); (o = e.input.charCodeAt(e.position)) !== 0 && (F(e, !0, -1), o = e.input.charCodeAt(e.position), !(e.lineIndent > 0 || o !== 37));) {
		for (a = !0, o = e.input.charCodeAt(++e.position), n = e.position; o !== 0 && !D(o);) o = e.input.charCodeAt(++e.position);
		for (r = e.input.slice(n, e.position), i = [], r.length < 1 && A(e, "directive name must not be less than one character in length"); o !== 0;) {
			for (; E(o);) o = e.input.charCodeAt(++e.position);
			if (o === 35) {
				do
					o = e.input.charCodeAt(++e.position);
				while (o !== 0 && !T(o));
				break;
			}
			if (T(o)) break;
			for (n = e.position; o !== 0 && !D(o);) o = e.input.charCodeAt(++e.position);
			i.push(e.input.slice(n, e.position));
		}
		o !== 0 && P(e), x.call(yt, r) ? yt[r](e, r, i) : j(e, "unknown document directive \"" + r + "\"");
	}
	if (F(e, !0, -1), e.lineIndent === 0 && e.input.charCodeAt(e.position) === 45 && e.input.charCodeAt(e.position + 1) === 45 && e.input.charCodeAt(e.position + 2) === 45 ? (e.position += 3, F(e, !0, -1)) : a && A(e, "directives end mark is expected"), R(e, e.lineIndent - 1, C, !1, !0), F(e, !0, -1), e.checkLineBreaks && it.test(e.input.slice(t, e.position)) && j(e, "non-ASCII line breaks are interpreted as content"), e.documents.push(e.result), e.position === e.lineStart && I(e)) e.input.charCodeAt(e.position) === 46 && (e.position += 3, F(e, !0, -1));
	else if (e.position < e.length - 1) A(e, "end of the stream or a document separator is expected");
	else return;
}
function Mt(e, t) {
	e = String(e), t ||= {}, e.length !== 0 && (e.charCodeAt(e.length - 1) !== 10 && e.charCodeAt(e.length - 1) !== 13 && (e += "\n"), e.charCodeAt(0) === 65279 && (e = e.slice(1)));
	var n = new _t(e, t), r = e.indexOf("\0");
	for (r !== -1 && (n.position = r, A(n, "null byte is not allowed in input")), n.input += "\0"; n.input.charCodeAt(n.position) === 32;) n.lineIndent += 1, n.position += 1;
	for (; n.position < n.length - 1;) jt(n);
	return n.documents;
}
function Nt(e, t, n) {
	typeof t == "object" && t && n === void 0 && (n = t, t = null);
	var r = Mt(e, n);
	if (typeof t != "function") return r;
	for (var i = 0, a = r.length; i < a; i += 1) t(r[i]);
}
function Pt(e, t) {
	var n = Mt(e, t);
	if (n.length !== 0) {
		if (n.length === 1) return n[0];
		throw new l("expected a single document in the stream, but found more");
	}
}
var Ft = {
	loadAll: Nt,
	load: Pt
}, It = Object.prototype.toString, Lt = Object.prototype.hasOwnProperty, z = 65279, Rt = 9, B = 10, zt = 13, Bt = 32, Vt = 33, Ht = 34, V = 35, Ut = 37, Wt = 38, Gt = 39, Kt = 42, qt = 44, Jt = 45, H = 58, Yt = 61, Xt = 62, Zt = 63, Qt = 64, $t = 91, en = 93, tn = 96, nn = 123, rn = 124, an = 125, U = {};
U[0] = "\\0", U[7] = "\\a", U[8] = "\\b", U[9] = "\\t", U[10] = "\\n", U[11] = "\\v", U[12] = "\\f", U[13] = "\\r", U[27] = "\\e", U[34] = "\\\"", U[92] = "\\\\", U[133] = "\\N", U[160] = "\\_", U[8232] = "\\L", U[8233] = "\\P";
var on = [
	"y",
	"Y",
	"yes",
	"Yes",
	"YES",
	"on",
	"On",
	"ON",
	"n",
	"N",
	"no",
	"No",
	"NO",
	"off",
	"Off",
	"OFF"
], sn = /^[-+]?[0-9_]+(?::[0-9_]+)+(?:\.[0-9_]*)?$/;
function cn(e, t) {
	var n, r, i, a, o, s, c;
	if (t === null) return {};
	for (n = {}, r = Object.keys(t), i = 0, a = r.length; i < a; i += 1) o = r[i], s = String(t[o]), o.slice(0, 2) === "!!" && (o = "tag:yaml.org,2002:" + o.slice(2)), c = e.compiledTypeMap.fallback[o], c && Lt.call(c.styleAliases, s) && (s = c.styleAliases[s]), n[o] = s;
	return n;
}
function ln(e) {
	var t = e.toString(16).toUpperCase(), n, r;
	if (e <= 255) n = "x", r = 2;
	else if (e <= 65535) n = "u", r = 4;
	else if (e <= 4294967295) n = "U", r = 8;
	else throw new l("code point within a string may not be greater than 0xFFFFFFFF");
	return "\\" + n + o.repeat("0", r - t.length) + t;
}
var un = 1, W = 2;
function dn(e) {
	this.schema = e.schema || Qe, this.indent = Math.max(1, e.indent || 2), this.noArrayIndent = e.noArrayIndent || !1, this.skipInvalid = e.skipInvalid || !1, this.flowLevel = o.isNothing(e.flowLevel) ? -1 : e.flowLevel, this.styleMap = cn(this.schema, e.styles || null), this.sortKeys = e.sortKeys || !1, this.lineWidth = e.lineWidth || 80, this.noRefs = e.noRefs || !1, this.noCompatMode = e.noCompatMode || !1, this.condenseFlow = e.condenseFlow || !1, this.quotingType = e.quotingType === "\"" ? W : un, this.forceQuotes = e.forceQuotes || !1, this.replacer = typeof e.replacer == "function" ? e.replacer : null, this.implicitTypes = this.schema.compiledImplicit, this.explicitTypes = this.schema.compiledExplicit, this.tag = null, this.result = "", this.duplicates = [], this.usedDuplicates = null;
}
function fn(e, t) {
	for (var n = o.repeat(" ", t), r = 0, i = -1, a = "", s, c = e.length; r < c;) i = e.indexOf("\n", r), i === -1 ? (s = e.slice(r), r = c) : (s = e.slice(r, i + 1), r = i + 1), s.length && s !== "\n" && (a += n), a += s;
	return a;
}
function G(e, t) {
	return "\n" + o.repeat(" ", e.indent * t);
}
function pn(e, t) {
	for (var n = 0, r = e.implicitTypes.length, i; n < r; n += 1) if (i = e.implicitTypes[n], i.resolve(t)) return !0;
	return !1;
}
function K(e) {
	return e === Bt || e === Rt;
}
function q(e) {
	return 32 <= e && e <= 126 || 161 <= e && e <= 55295 && e !== 8232 && e !== 8233 || 57344 <= e && e <= 65533 && e !== z || 65536 <= e && e <= 1114111;
}
function mn(e) {
	return q(e) && e !== z && e !== zt && e !== B;
}
function hn(e, t, n) {
	var r = mn(e), i = r && !K(e);
	return (n ? r : r && e !== qt && e !== $t && e !== en && e !== nn && e !== an) && e !== V && !(t === H && !i) || mn(t) && !K(t) && e === V || t === H && i;
}
function gn(e) {
	return q(e) && e !== z && !K(e) && e !== Jt && e !== Zt && e !== H && e !== qt && e !== $t && e !== en && e !== nn && e !== an && e !== V && e !== Wt && e !== Kt && e !== Vt && e !== rn && e !== Yt && e !== Xt && e !== Gt && e !== Ht && e !== Ut && e !== Qt && e !== tn;
}
function _n(e) {
	return !K(e) && e !== H;
}
function J(e, t) {
	var n = e.charCodeAt(t), r;
	return n >= 55296 && n <= 56319 && t + 1 < e.length && (r = e.charCodeAt(t + 1), r >= 56320 && r <= 57343) ? (n - 55296) * 1024 + r - 56320 + 65536 : n;
}
function vn(e) {
	return /^\n* /.test(e);
}
var yn = 1, Y = 2, bn = 3, xn = 4, X = 5;
function Sn(e, t, n, r, i, a, o, s) {
	var c, l = 0, u = null, d = !1, f = !1, p = r !== -1, m = -1, h = gn(J(e, 0)) && _n(J(e, e.length - 1));
	if (t || o) for (c = 0; c < e.length; l >= 65536 ? c += 2 : c++) {
		if (l = J(e, c), !q(l)) return X;
		h &&= hn(l, u, s), u = l;
	}
	else {
		for (c = 0; c < e.length; l >= 65536 ? c += 2 : c++) {
			if (l = J(e, c), l === B) d = !0, p && (f ||= c - m - 1 > r && e[m + 1] !== " ", m = c);
			else if (!q(l)) return X;
			h &&= hn(l, u, s), u = l;
		}
		f ||= p && c - m - 1 > r && e[m + 1] !== " ";
	}
	return !d && !f ? h && !o && !i(e) ? yn : a === W ? X : Y : n > 9 && vn(e) ? X : o ? a === W ? X : Y : f ? xn : bn;
}
function Cn(e, t, n, r, i) {
	e.dump = function() {
		if (t.length === 0) return e.quotingType === W ? "\"\"" : "''";
		if (!e.noCompatMode && (on.indexOf(t) !== -1 || sn.test(t))) return e.quotingType === W ? "\"" + t + "\"" : "'" + t + "'";
		var a = e.indent * Math.max(1, n), o = e.lineWidth === -1 ? -1 : Math.max(Math.min(e.lineWidth, 40), e.lineWidth - a), s = r || e.flowLevel > -1 && n >= e.flowLevel;
		function c(t) {
			return pn(e, t);
		}
		switch (Sn(t, s, e.indent, o, c, e.quotingType, e.forceQuotes && !r, i)) {
			case yn: return t;
			case Y: return "'" + t.replace(/'/g, "''") + "'";
			case bn: return "|" + wn(t, e.indent) + Tn(fn(t, a));
			case xn: return ">" + wn(t, e.indent) + Tn(fn(En(t, o), a));
			case X: return "\"" + Dn(t) + "\"";
			default: throw new l("impossible error: invalid scalar style");
		}
	}();
}
function wn(e, t) {
	var n = vn(e) ? String(t) : "", r = e[e.length - 1] === "\n";
	return n + (r && (e[e.length - 2] === "\n" || e === "\n") ? "+" : r ? "" : "-") + "\n";
}
function Tn(e) {
	return e[e.length - 1] === "\n" ? e.slice(0, -1) : e;
}
function En(e, t) {
	for (var n = /(\n+)([^\n]*)/g, r = function() {
		var r = e.indexOf("\n");
		return r = r === -1 ? e.length : r, n.lastIndex = r, Z(e.slice(0, r), t);
	}(), i = e[0] === "\n" || e[0] === " ", a, o; o = n.exec(e);) {
		var s = o[1], c = o[2];
		a = c[0] === " ", r += s + (!i && !a && c !== "" ? "\n" : "") + Z(c, t), i = a;
	}
	return r;
}
function Z(e, t) {
	if (e === "" || e[0] === " ") return e;
	for (var n = / [^ ]/g, r, i = 0, a, o = 0, s = 0, c = ""; r = n.exec(e);) s = r.index, s - i > t && (a = o > i ? o : s, c += "\n" + e.slice(i, a), i = a + 1), o = s;
	return c += "\n", e.length - i > t && o > i ? c += e.slice(i, o) + "\n" + e.slice(o + 1) : c += e.slice(i), c.slice(1);
}
function Dn(e) {
	for (var t = "", n = 0, r, i = 0; i < e.length; n >= 65536 ? i += 2 : i++) n = J(e, i), r = U[n], !r && q(n) ? (t += e[i], n >= 65536 && (t += e[i + 1])) : t += r || ln(n);
	return t;
}
function On(e, t, n) {
	for (var r = "", i = e.tag, a = 0, o = n.length, s; a < o; a += 1) s = n[a], e.replacer && (s = e.replacer.call(n, String(a), s)), (Q(e, t, s, !1, !1) || s === void 0 && Q(e, t, null, !1, !1)) && (r !== "" && (r += "," + (e.condenseFlow ? "" : " ")), r += e.dump);
	e.tag = i, e.dump = "[" + r + "]";
}
function kn(e, t, n, r) {
	for (var i = "", a = e.tag, o = 0, s = n.length, c; o < s; o += 1) c = n[o], e.replacer && (c = e.replacer.call(n, String(o), c)), (Q(e, t + 1, c, !0, !0, !1, !0) || c === void 0 && Q(e, t + 1, null, !0, !0, !1, !0)) && (r && i === "" || (i += G(e, t)), e.dump && B === e.dump.charCodeAt(0) ? i += "-" : i += "- ", i += e.dump);
	e.tag = a, e.dump = i || "[]";
}
function An(e, t, n) {
	for (var r = "", i = e.tag, a = Object.keys(n), o = 0, s = a.length, c, l, u; o < s; o += 1) u = "", r !== "" && (u += ", "), e.condenseFlow && (u += "\""), c = a[o], l = n[c], e.replacer && (l = e.replacer.call(n, c, l)), Q(e, t, c, !1, !1) && (e.dump.length > 1024 && (u += "? "), u += e.dump + (e.condenseFlow ? "\"" : "") + ":" + (e.condenseFlow ? "" : " "), Q(e, t, l, !1, !1) && (u += e.dump, r += u));
	e.tag = i, e.dump = "{" + r + "}";
}
function jn(e, t, n, r) {
	var i = "", a = e.tag, o = Object.keys(n), s, c, u, d, f, p;
	if (e.sortKeys === !0) o.sort();
	else if (typeof e.sortKeys == "function") o.sort(e.sortKeys);
	else if (e.sortKeys) throw new l("sortKeys must be a boolean or a function");
	for (s = 0, c = o.length; s < c; s += 1) p = "", r && i === "" || (p += G(e, t)), u = o[s], d = n[u], e.replacer && (d = e.replacer.call(n, u, d)), Q(e, t + 1, u, !0, !0, !0) && (f = e.tag !== null && e.tag !== "?" || e.dump && e.dump.length > 1024, f && (e.dump && B === e.dump.charCodeAt(0) ? p += "?" : p += "? "), p += e.dump, f && (p += G(e, t)), Q(e, t + 1, d, !0, f) && (e.dump && B === e.dump.charCodeAt(0) ? p += ":" : p += ": ", p += e.dump, i += p));
	e.tag = a, e.dump = i || "{}";
}
function Mn(e, t, n) {
	for (var r, i = n ? e.explicitTypes : e.implicitTypes, a = 0, o = i.length, s, c; a < o; a += 1) if (s = i[a], (s.instanceOf || s.predicate) && (!s.instanceOf || typeof t == "object" && t instanceof s.instanceOf) && (!s.predicate || s.predicate(t))) {
		if (e.tag = n ? s.multi && s.representName ? s.representName(t) : s.tag : "?", s.represent) {
			if (c = e.styleMap[s.tag] || s.defaultStyle, It.call(s.represent) === "[object Function]") r = s.represent(t, c);
			else if (Lt.call(s.represent, c)) r = s.represent[c](t, c);
			else throw new l("!<" + s.tag + "> tag resolver accepts not \"" + c + "\" style");
			e.dump = r;
		}
		return !0;
	}
	return !1;
}
function Q(e, t, n, r, i, a, o) {
	e.tag = null, e.dump = n, Mn(e, n, !1) || Mn(e, n, !0);
	var s = It.call(e.dump), c = r, u;
	r &&= e.flowLevel < 0 || e.flowLevel > t;
	var d = s === "[object Object]" || s === "[object Array]", f, p;
	if (d && (f = e.duplicates.indexOf(n), p = f !== -1), (e.tag !== null && e.tag !== "?" || p || e.indent !== 2 && t > 0) && (i = !1), p && e.usedDuplicates[f]) e.dump = "*ref_" + f;
	else {
		if (d && p && !e.usedDuplicates[f] && (e.usedDuplicates[f] = !0), s === "[object Object]") r && Object.keys(e.dump).length !== 0 ? (jn(e, t, e.dump, i), p && (e.dump = "&ref_" + f + e.dump)) : (An(e, t, e.dump), p && (e.dump = "&ref_" + f + " " + e.dump));
		else if (s === "[object Array]") r && e.dump.length !== 0 ? (e.noArrayIndent && !o && t > 0 ? kn(e, t - 1, e.dump, i) : kn(e, t, e.dump, i), p && (e.dump = "&ref_" + f + e.dump)) : (On(e, t, e.dump), p && (e.dump = "&ref_" + f + " " + e.dump));
		else if (s === "[object String]") e.tag !== "?" && Cn(e, e.dump, t, a, c);
		else if (s === "[object Undefined]") return !1;
		else {
			if (e.skipInvalid) return !1;
			throw new l("unacceptable kind of an object to dump " + s);
		}
		e.tag !== null && e.tag !== "?" && (u = encodeURI(e.tag[0] === "!" ? e.tag.slice(1) : e.tag).replace(/!/g, "%21"), u = e.tag[0] === "!" ? "!" + u : u.slice(0, 18) === "tag:yaml.org,2002:" ? "!!" + u.slice(18) : "!<" + u + ">", e.dump = u + " " + e.dump);
	}
	return !0;
}
function Nn(e, t) {
	var n = [], r = [], i, a;
	for ($(e, n, r), i = 0, a = r.length; i < a; i += 1) t.duplicates.push(n[r[i]]);
	t.usedDuplicates = Array(a);
}
function $(e, t, n) {
	var r, i, a;
	if (typeof e == "object" && e) {
		if (i = t.indexOf(e), i !== -1) n.indexOf(i) === -1 && n.push(i);
		else if (t.push(e), Array.isArray(e)) for (i = 0, a = e.length; i < a; i += 1) $(e[i], t, n);
		else for (r = Object.keys(e), i = 0, a = r.length; i < a; i += 1) $(e[r[i]], t, n);
	}
}
function Pn(e, t) {
	t ||= {};
	var n = new dn(t);
	n.noRefs || Nn(e, n);
	var r = e;
	return n.replacer && (r = n.replacer.call({ "": r }, "", r)), Q(n, 0, r, !0, !0) ? n.dump + "\n" : "";
}
var Fn = { dump: Pn }, In = Ft.load;
Ft.loadAll, Fn.dump;
// src/ui/files.ts
function Ln(e, t, n) {
	if (t.endsWith(".jsonl")) return e.split("\n").filter((e) => e.trim()).map((e) => JSON.parse(e));
	let r = t.endsWith(".json") ? JSON.parse(e) : In(e);
	if (!r || typeof r != "object" || Array.isArray(r)) throw Error("expected groups of fields");
	let i = "config" in r && typeof r.config == "object" ? r.config : r, a = i.base;
	if (typeof a != "string") return i;
	let o = n[a];
	if (!o) throw Error(`base: ${a} is no packaged preset`);
	let s = structuredClone(o);
	for (let [e, t] of Object.entries(i)) e !== "base" && (s[e] = {
		...s[e],
		...t
	});
	let c = i.scheduler;
	return c && "total_steps" in c && (s.scheduler.total_tokens = c.total_tokens ?? null), c && "total_tokens" in c && (s.scheduler.total_steps = c.total_steps ?? null), s;
}
export { Ln as parse };
