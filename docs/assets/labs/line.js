// node_modules/d3-shape/src/constant.js
function e(e) {
	return function() {
		return e;
	};
}
// node_modules/d3-path/dist/d3-path.mjs
var t = Math.PI, n = 2 * t, r = 1e-6, i = n - r;
function a(e) {
	this._ += e[0];
	for (let t = 1, n = e.length; t < n; ++t) this._ += arguments[t] + e[t];
}
function o(e) {
	let t = Math.floor(e);
	if (!(t >= 0)) throw Error(`invalid digits: ${e}`);
	if (t > 15) return a;
	let n = 10 ** t;
	return function(e) {
		this._ += e[0];
		for (let t = 1, r = e.length; t < r; ++t) this._ += Math.round(arguments[t] * n) / n + e[t];
	};
}
function s(e, t, n, r) {
	return e === n && t === r;
}
function c(e) {
	let t = Math.floor(e);
	if (!(t <= 15)) return s;
	let n = 10 ** t, r = function(e) {
		return Math.round(e * n);
	};
	return function(e, t, n, i) {
		return r(e) === r(n) && r(t) === r(i);
	};
}
var l = class {
	constructor(e) {
		this._x0 = this._y0 = this._x1 = this._y1 = null, this._ = "", this._append = e == null ? a : o(e), this._equal = e == null ? s : c(e);
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
	arcTo(e, n, i, a, o) {
		if (e = +e, n = +n, i = +i, a = +a, o = +o, o < 0) throw Error(`negative radius: ${o}`);
		let s = this._x1, c = this._y1, l = i - e, u = a - n, d = s - e, f = c - n, p = d * d + f * f;
		if (this._x1 === null) this._append`M${this._x1 = e},${this._y1 = n}`;
		else if (p > r) {
			if (!(Math.abs(f * l - u * d) > r) || !o) this._append`L${this._x1 = e},${this._y1 = n}`;
			else {
				let m = i - s, h = a - c, g = l * l + u * u, _ = m * m + h * h, v = Math.sqrt(g), y = Math.sqrt(p), b = o * Math.tan((t - Math.acos((g + p - _) / (2 * v * y))) / 2), x = b / y, S = b / v;
				Math.abs(x - 1) > r && this._append`L${e + x * d},${n + x * f}`, this._append`A${o},${o},0,0,${+(f * m > d * h)},${this._x1 = e + S * l},${this._y1 = n + S * u}`;
			}
		}
	}
	arc(e, a, o, s, c, l) {
		if (e = +e, a = +a, o = +o, l = !!l, o < 0) throw Error(`negative radius: ${o}`);
		let u = o * Math.cos(s), d = o * Math.sin(s), f = e + u, p = a + d, m = 1 ^ l, h = l ? s - c : c - s;
		if (this._x1 === null ? this._append`M${f},${p}` : (Math.abs(this._x1 - f) > r || Math.abs(this._y1 - p) > r) && this._append`L${f},${p}`, o) {
			if (h < 0 && (h = h % n + n), h > i) this._append`A${o},${o},0,1,${m},${e - u},${a - d}A${o},${o},0,1,${m},${this._x1 = f},${this._y1 = p}`;
			else if (h > r) {
				let n = e + o * Math.cos(c), r = a + o * Math.sin(c);
				if (h >= t && this._equal(f, p, n, r)) {
					h /= 2;
					let n = s + h;
					this._append`A${o},${o},0,${+(h >= t)},${m},${e + o * Math.cos(n)},${a + o * Math.sin(n)}`;
				}
				this._append`A${o},${o},0,${+(h >= t)},${m},${this._x1 = n},${this._y1 = r}`;
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
l.prototype;
// node_modules/d3-shape/src/path.js
function u(e) {
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
	}, () => new l(t);
}
Array.prototype.slice;
function d(e) {
	return typeof e == "object" && "length" in e ? e : Array.from(e);
}
// node_modules/d3-shape/src/curve/linear.js
function f(e) {
	this._context = e;
}
f.prototype = {
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
function p(e) {
	return new f(e);
}
// node_modules/d3-shape/src/point.js
function m(e) {
	return e[0];
}
function h(e) {
	return e[1];
}
// node_modules/d3-shape/src/line.js
function g(t, n) {
	var r = e(!0), i = null, a = p, o = null, s = u(c);
	t = typeof t == "function" ? t : t === void 0 ? m : e(t), n = typeof n == "function" ? n : n === void 0 ? h : e(n);
	function c(e) {
		var c, l = (e = d(e)).length, u, f = !1, p;
		for (i ?? (o = a(p = s())), c = 0; c <= l; ++c) !(c < l && r(u = e[c], c, e)) === f && ((f = !f) ? o.lineStart() : o.lineEnd()), f && o.point(+t(u, c, e), +n(u, c, e));
		if (p) return o = null, p + "" || null;
	}
	return c.x = function(n) {
		return arguments.length ? (t = typeof n == "function" ? n : e(+n), c) : t;
	}, c.y = function(t) {
		return arguments.length ? (n = typeof t == "function" ? t : e(+t), c) : n;
	}, c.defined = function(t) {
		return arguments.length ? (r = typeof t == "function" ? t : e(!!t), c) : r;
	}, c.curve = function(e) {
		return arguments.length ? (a = e, i != null && (o = a(i)), c) : a;
	}, c.context = function(e) {
		return arguments.length ? (e == null ? i = o = null : o = a(i = e), c) : i;
	}, c;
}
export { g as t };
