// node_modules/@lit/reactive-element/css-tag.js
var e = globalThis, t = e.ShadowRoot && (e.ShadyCSS === void 0 || e.ShadyCSS.nativeShadow) && "adoptedStyleSheets" in Document.prototype && "replace" in CSSStyleSheet.prototype, n = Symbol(), r = /* @__PURE__ */ new WeakMap(), i = class {
	constructor(e, t, r) {
		if (this._$cssResult$ = !0, r !== n) throw Error("CSSResult is not constructable. Use `unsafeCSS` or `css` instead.");
		this.cssText = e, this.t = t;
	}
	get styleSheet() {
		let e = this.o, n = this.t;
		if (t && e === void 0) {
			let t = n !== void 0 && n.length === 1;
			t && (e = r.get(n)), e === void 0 && ((this.o = e = new CSSStyleSheet()).replaceSync(this.cssText), t && r.set(n, e));
		}
		return e;
	}
	toString() {
		return this.cssText;
	}
}, a = (e) => new i(typeof e == "string" ? e : e + "", void 0, n), o = (e, ...t) => new i(e.length === 1 ? e[0] : t.reduce((t, n, r) => t + ((e) => {
	if (!0 === e._$cssResult$) return e.cssText;
	if (typeof e == "number") return e;
	throw Error("Value passed to 'css' function must be a 'css' function result: " + e + ". Use 'unsafeCSS' to pass non-literal values, but take care to ensure page security.");
})(n) + e[r + 1], e[0]), e, n), s = (n, r) => {
	if (t) n.adoptedStyleSheets = r.map((e) => e instanceof CSSStyleSheet ? e : e.styleSheet);
	else for (let t of r) {
		let r = document.createElement("style"), i = e.litNonce;
		i !== void 0 && r.setAttribute("nonce", i), r.textContent = t.cssText, n.appendChild(r);
	}
}, c = t ? (e) => e : (e) => e instanceof CSSStyleSheet ? ((e) => {
	let t = "";
	for (let n of e.cssRules) t += n.cssText;
	return a(t);
})(e) : e, { is: l, defineProperty: u, getOwnPropertyDescriptor: d, getOwnPropertyNames: f, getOwnPropertySymbols: p, getPrototypeOf: m } = Object, h = globalThis, g = h.trustedTypes, _ = g ? g.emptyScript : "", v = h.reactiveElementPolyfillSupport, y = (e, t) => e, b = {
	toAttribute(e, t) {
		switch (t) {
			case Boolean:
				e = e ? _ : null;
				break;
			case Object:
			case Array: e = e == null ? e : JSON.stringify(e);
		}
		return e;
	},
	fromAttribute(e, t) {
		let n = e;
		switch (t) {
			case Boolean:
				n = e !== null;
				break;
			case Number:
				n = e === null ? null : Number(e);
				break;
			case Object:
			case Array: try {
				n = JSON.parse(e);
			} catch {
				n = null;
			}
		}
		return n;
	}
}, x = (e, t) => !l(e, t), S = {
	attribute: !0,
	type: String,
	converter: b,
	reflect: !1,
	useDefault: !1,
	hasChanged: x
};
Symbol.metadata ??= Symbol("metadata"), h.litPropertyMetadata ??= /* @__PURE__ */ new WeakMap();
var C = class extends HTMLElement {
	static addInitializer(e) {
		this._$Ei(), (this.l ??= []).push(e);
	}
	static get observedAttributes() {
		return this.finalize(), this._$Eh && [...this._$Eh.keys()];
	}
	static createProperty(e, t = S) {
		if (t.state && (t.attribute = !1), this._$Ei(), this.prototype.hasOwnProperty(e) && ((t = Object.create(t)).wrapped = !0), this.elementProperties.set(e, t), !t.noAccessor) {
			let n = Symbol(), r = this.getPropertyDescriptor(e, n, t);
			r !== void 0 && u(this.prototype, e, r);
		}
	}
	static getPropertyDescriptor(e, t, n) {
		let { get: r, set: i } = d(this.prototype, e) ?? {
			get() {
				return this[t];
			},
			set(e) {
				this[t] = e;
			}
		};
		return {
			get: r,
			set(t) {
				let a = r?.call(this);
				i?.call(this, t), this.requestUpdate(e, a, n);
			},
			configurable: !0,
			enumerable: !0
		};
	}
	static getPropertyOptions(e) {
		return this.elementProperties.get(e) ?? S;
	}
	static _$Ei() {
		if (this.hasOwnProperty(y("elementProperties"))) return;
		let e = m(this);
		e.finalize(), e.l !== void 0 && (this.l = [...e.l]), this.elementProperties = new Map(e.elementProperties);
	}
	static finalize() {
		if (this.hasOwnProperty(y("finalized"))) return;
		if (this.finalized = !0, this._$Ei(), this.hasOwnProperty(y("properties"))) {
			let e = this.properties, t = [...f(e), ...p(e)];
			for (let n of t) this.createProperty(n, e[n]);
		}
		let e = this[Symbol.metadata];
		if (e !== null) {
			let t = litPropertyMetadata.get(e);
			if (t !== void 0) for (let [e, n] of t) this.elementProperties.set(e, n);
		}
		this._$Eh = /* @__PURE__ */ new Map();
		for (let [e, t] of this.elementProperties) {
			let n = this._$Eu(e, t);
			n !== void 0 && this._$Eh.set(n, e);
		}
		this.elementStyles = this.finalizeStyles(this.styles);
	}
	static finalizeStyles(e) {
		let t = [];
		if (Array.isArray(e)) {
			let n = new Set(e.flat(1 / 0).reverse());
			for (let e of n) t.unshift(c(e));
		} else e !== void 0 && t.push(c(e));
		return t;
	}
	static _$Eu(e, t) {
		let n = t.attribute;
		return !1 === n ? void 0 : typeof n == "string" ? n : typeof e == "string" ? e.toLowerCase() : void 0;
	}
	constructor() {
		super(), this._$Ep = void 0, this.isUpdatePending = !1, this.hasUpdated = !1, this._$Em = null, this._$Ev();
	}
	_$Ev() {
		this._$ES = new Promise((e) => this.enableUpdating = e), this._$AL = /* @__PURE__ */ new Map(), this._$E_(), this.requestUpdate(), this.constructor.l?.forEach((e) => e(this));
	}
	addController(e) {
		(this._$EO ??= /* @__PURE__ */ new Set()).add(e), this.renderRoot !== void 0 && this.isConnected && e.hostConnected?.();
	}
	removeController(e) {
		this._$EO?.delete(e);
	}
	_$E_() {
		let e = /* @__PURE__ */ new Map(), t = this.constructor.elementProperties;
		for (let n of t.keys()) this.hasOwnProperty(n) && (e.set(n, this[n]), delete this[n]);
		e.size > 0 && (this._$Ep = e);
	}
	createRenderRoot() {
		let e = this.shadowRoot ?? this.attachShadow(this.constructor.shadowRootOptions);
		return s(e, this.constructor.elementStyles), e;
	}
	connectedCallback() {
		this.renderRoot ??= this.createRenderRoot(), this.enableUpdating(!0), this._$EO?.forEach((e) => e.hostConnected?.());
	}
	enableUpdating(e) {}
	disconnectedCallback() {
		this._$EO?.forEach((e) => e.hostDisconnected?.());
	}
	attributeChangedCallback(e, t, n) {
		this._$AK(e, n);
	}
	_$ET(e, t) {
		let n = this.constructor.elementProperties.get(e), r = this.constructor._$Eu(e, n);
		if (r !== void 0 && !0 === n.reflect) {
			let i = (n.converter?.toAttribute === void 0 ? b : n.converter).toAttribute(t, n.type);
			this._$Em = e, i == null ? this.removeAttribute(r) : this.setAttribute(r, i), this._$Em = null;
		}
	}
	_$AK(e, t) {
		let n = this.constructor, r = n._$Eh.get(e);
		if (r !== void 0 && this._$Em !== r) {
			let e = n.getPropertyOptions(r), i = typeof e.converter == "function" ? { fromAttribute: e.converter } : e.converter?.fromAttribute === void 0 ? b : e.converter;
			this._$Em = r;
			let a = i.fromAttribute(t, e.type);
			this[r] = a ?? this._$Ej?.get(r) ?? a, this._$Em = null;
		}
	}
	requestUpdate(e, t, n, r = !1, i) {
		if (e !== void 0) {
			let a = this.constructor;
			if (!1 === r && (i = this[e]), n ??= a.getPropertyOptions(e), !((n.hasChanged ?? x)(i, t) || n.useDefault && n.reflect && i === this._$Ej?.get(e) && !this.hasAttribute(a._$Eu(e, n)))) return;
			this.C(e, t, n);
		}
		!1 === this.isUpdatePending && (this._$ES = this._$EP());
	}
	C(e, t, { useDefault: n, reflect: r, wrapped: i }, a) {
		n && !(this._$Ej ??= /* @__PURE__ */ new Map()).has(e) && (this._$Ej.set(e, a ?? t ?? this[e]), !0 !== i || a !== void 0) || (this._$AL.has(e) || (this.hasUpdated || n || (t = void 0), this._$AL.set(e, t)), !0 === r && this._$Em !== e && (this._$Eq ??= /* @__PURE__ */ new Set()).add(e));
	}
	async _$EP() {
		this.isUpdatePending = !0;
		try {
			await this._$ES;
		} catch (e) {
			Promise.reject(e);
		}
		let e = this.scheduleUpdate();
		return e != null && await e, !this.isUpdatePending;
	}
	scheduleUpdate() {
		return this.performUpdate();
	}
	performUpdate() {
		if (!this.isUpdatePending) return;
		if (!this.hasUpdated) {
			if (this.renderRoot ??= this.createRenderRoot(), this._$Ep) {
				for (let [e, t] of this._$Ep) this[e] = t;
				this._$Ep = void 0;
			}
			let e = this.constructor.elementProperties;
			if (e.size > 0) for (let [t, n] of e) {
				let { wrapped: e } = n, r = this[t];
				!0 !== e || this._$AL.has(t) || r === void 0 || this.C(t, void 0, n, r);
			}
		}
		let e = !1, t = this._$AL;
		try {
			e = this.shouldUpdate(t), e ? (this.willUpdate(t), this._$EO?.forEach((e) => e.hostUpdate?.()), this.update(t)) : this._$EM();
		} catch (t) {
			throw e = !1, this._$EM(), t;
		}
		e && this._$AE(t);
	}
	willUpdate(e) {}
	_$AE(e) {
		this._$EO?.forEach((e) => e.hostUpdated?.()), this.hasUpdated || (this.hasUpdated = !0, this.firstUpdated(e)), this.updated(e);
	}
	_$EM() {
		this._$AL = /* @__PURE__ */ new Map(), this.isUpdatePending = !1;
	}
	get updateComplete() {
		return this.getUpdateComplete();
	}
	getUpdateComplete() {
		return this._$ES;
	}
	shouldUpdate(e) {
		return !0;
	}
	update(e) {
		this._$Eq &&= this._$Eq.forEach((e) => this._$ET(e, this[e])), this._$EM();
	}
	updated(e) {}
	firstUpdated(e) {}
};
C.elementStyles = [], C.shadowRootOptions = { mode: "open" }, C[y("elementProperties")] = /* @__PURE__ */ new Map(), C[y("finalized")] = /* @__PURE__ */ new Map(), v?.({ ReactiveElement: C }), (h.reactiveElementVersions ??= []).push("2.1.2");
// node_modules/lit-html/lit-html.js
var w = globalThis, ee = (e) => e, T = w.trustedTypes, te = T ? T.createPolicy("lit-html", { createHTML: (e) => e }) : void 0, ne = "$lit$", E = `lit$${Math.random().toFixed(9).slice(2)}$`, re = "?" + E, ie = `<${re}>`, D = document, O = () => D.createComment(""), k = (e) => e === null || typeof e != "object" && typeof e != "function", A = Array.isArray, ae = (e) => A(e) || typeof e?.[Symbol.iterator] == "function", j = "[ 	\n\f\r]", M = /<(?:(!--|\/[^a-zA-Z])|(\/?[a-zA-Z][^>\s]*)|(\/?$))/g, N = /-->/g, P = />/g, F = RegExp(`>|${j}(?:([^\\s"'>=/]+)(${j}*=${j}*(?:[^ \t\n\f\r"'\`<>=]|("|')|))|$)`, "g"), oe = /'/g, se = /"/g, ce = /^(?:script|style|textarea|title)$/i, le = (e) => (t, ...n) => ({
	_$litType$: e,
	strings: t,
	values: n
}), I = le(1), L = le(2), R = Symbol.for("lit-noChange"), z = Symbol.for("lit-nothing"), ue = /* @__PURE__ */ new WeakMap(), B = D.createTreeWalker(D, 129);
function V(e, t) {
	if (!A(e) || !e.hasOwnProperty("raw")) throw Error("invalid template strings array");
	return te === void 0 ? t : te.createHTML(t);
}
var de = (e, t) => {
	let n = e.length - 1, r = [], i, a = t === 2 ? "<svg>" : t === 3 ? "<math>" : "", o = M;
	for (let t = 0; t < n; t++) {
		let n = e[t], s, c, l = -1, u = 0;
		for (; u < n.length && (o.lastIndex = u, c = o.exec(n), c !== null);) u = o.lastIndex, o === M ? c[1] === "!--" ? o = N : c[1] === void 0 ? c[2] === void 0 ? c[3] !== void 0 && (o = F) : (ce.test(c[2]) && (i = RegExp("</" + c[2], "g")), o = F) : o = P : o === F ? c[0] === ">" ? (o = i ?? M, l = -1) : c[1] === void 0 ? l = -2 : (l = o.lastIndex - c[2].length, s = c[1], o = c[3] === void 0 ? F : c[3] === "\"" ? se : oe) : o === se || o === oe ? o = F : o === N || o === P ? o = M : (o = F, i = void 0);
		let d = o === F && e[t + 1].startsWith("/>") ? " " : "";
		a += o === M ? n + ie : l >= 0 ? (r.push(s), n.slice(0, l) + ne + n.slice(l) + E + d) : n + E + (l === -2 ? t : d);
	}
	return [V(e, a + (e[n] || "<?>") + (t === 2 ? "</svg>" : t === 3 ? "</math>" : "")), r];
}, H = class e {
	constructor({ strings: t, _$litType$: n }, r) {
		let i;
		this.parts = [];
		let a = 0, o = 0, s = t.length - 1, c = this.parts, [l, u] = de(t, n);
		if (this.el = e.createElement(l, r), B.currentNode = this.el.content, n === 2 || n === 3) {
			let e = this.el.content.firstChild;
			e.replaceWith(...e.childNodes);
		}
		for (; (i = B.nextNode()) !== null && c.length < s;) {
			if (i.nodeType === 1) {
				if (i.hasAttributes()) for (let e of i.getAttributeNames()) if (e.endsWith(ne)) {
					let t = u[o++], n = i.getAttribute(e).split(E), r = /([.?@])?(.*)/.exec(t);
					c.push({
						type: 1,
						index: a,
						name: r[2],
						strings: n,
						ctor: r[1] === "." ? pe : r[1] === "?" ? me : r[1] === "@" ? he : G
					}), i.removeAttribute(e);
				} else e.startsWith(E) && (c.push({
					type: 6,
					index: a
				}), i.removeAttribute(e));
				if (ce.test(i.tagName)) {
					let e = i.textContent.split(E), t = e.length - 1;
					if (t > 0) {
						i.textContent = T ? T.emptyScript : "";
						for (let n = 0; n < t; n++) i.append(e[n], O()), B.nextNode(), c.push({
							type: 2,
							index: ++a
						});
						i.append(e[t], O());
					}
				}
			} else if (i.nodeType === 8) {
				if (i.data === re) c.push({
					type: 2,
					index: a
				});
				else {
					let e = -1;
					for (; (e = i.data.indexOf(E, e + 1)) !== -1;) c.push({
						type: 7,
						index: a
					}), e += E.length - 1;
				}
			}
			a++;
		}
	}
	static createElement(e, t) {
		let n = D.createElement("template");
		return n.innerHTML = e, n;
	}
};
function U(e, t, n = e, r) {
	if (t === R) return t;
	let i = r === void 0 ? n._$Cl : n._$Co?.[r], a = k(t) ? void 0 : t._$litDirective$;
	return i?.constructor !== a && (i?._$AO?.(!1), a === void 0 ? i = void 0 : (i = new a(e), i._$AT(e, n, r)), r === void 0 ? n._$Cl = i : (n._$Co ??= [])[r] = i), i !== void 0 && (t = U(e, i._$AS(e, t.values), i, r)), t;
}
var fe = class {
	constructor(e, t) {
		this._$AV = [], this._$AN = void 0, this._$AD = e, this._$AM = t;
	}
	get parentNode() {
		return this._$AM.parentNode;
	}
	get _$AU() {
		return this._$AM._$AU;
	}
	u(e) {
		let { el: { content: t }, parts: n } = this._$AD, r = (e?.creationScope ?? D).importNode(t, !0);
		B.currentNode = r;
		let i = B.nextNode(), a = 0, o = 0, s = n[0];
		for (; s !== void 0;) {
			if (a === s.index) {
				let t;
				s.type === 2 ? t = new W(i, i.nextSibling, this, e) : s.type === 1 ? t = new s.ctor(i, s.name, s.strings, this, e) : s.type === 6 && (t = new ge(i, this, e)), this._$AV.push(t), s = n[++o];
			}
			a !== s?.index && (i = B.nextNode(), a++);
		}
		return B.currentNode = D, r;
	}
	p(e) {
		let t = 0;
		for (let n of this._$AV) n !== void 0 && (n.strings === void 0 ? n._$AI(e[t]) : (n._$AI(e, n, t), t += n.strings.length - 2)), t++;
	}
}, W = class e {
	get _$AU() {
		return this._$AM?._$AU ?? this._$Cv;
	}
	constructor(e, t, n, r) {
		this.type = 2, this._$AH = z, this._$AN = void 0, this._$AA = e, this._$AB = t, this._$AM = n, this.options = r, this._$Cv = r?.isConnected ?? !0;
	}
	get parentNode() {
		let e = this._$AA.parentNode, t = this._$AM;
		return t !== void 0 && e?.nodeType === 11 && (e = t.parentNode), e;
	}
	get startNode() {
		return this._$AA;
	}
	get endNode() {
		return this._$AB;
	}
	_$AI(e, t = this) {
		e = U(this, e, t), k(e) ? e === z || e == null || e === "" ? (this._$AH !== z && this._$AR(), this._$AH = z) : e !== this._$AH && e !== R && this._(e) : e._$litType$ === void 0 ? e.nodeType === void 0 ? ae(e) ? this.k(e) : this._(e) : this.T(e) : this.$(e);
	}
	O(e) {
		return this._$AA.parentNode.insertBefore(e, this._$AB);
	}
	T(e) {
		this._$AH !== e && (this._$AR(), this._$AH = this.O(e));
	}
	_(e) {
		this._$AH !== z && k(this._$AH) ? this._$AA.nextSibling.data = e : this.T(D.createTextNode(e)), this._$AH = e;
	}
	$(e) {
		let { values: t, _$litType$: n } = e, r = typeof n == "number" ? this._$AC(e) : (n.el === void 0 && (n.el = H.createElement(V(n.h, n.h[0]), this.options)), n);
		if (this._$AH?._$AD === r) this._$AH.p(t);
		else {
			let e = new fe(r, this), n = e.u(this.options);
			e.p(t), this.T(n), this._$AH = e;
		}
	}
	_$AC(e) {
		let t = ue.get(e.strings);
		return t === void 0 && ue.set(e.strings, t = new H(e)), t;
	}
	k(t) {
		A(this._$AH) || (this._$AH = [], this._$AR());
		let n = this._$AH, r, i = 0;
		for (let a of t) i === n.length ? n.push(r = new e(this.O(O()), this.O(O()), this, this.options)) : r = n[i], r._$AI(a), i++;
		i < n.length && (this._$AR(r && r._$AB.nextSibling, i), n.length = i);
	}
	_$AR(e = this._$AA.nextSibling, t) {
		for (this._$AP?.(!1, !0, t); e !== this._$AB;) {
			let t = ee(e).nextSibling;
			ee(e).remove(), e = t;
		}
	}
	setConnected(e) {
		this._$AM === void 0 && (this._$Cv = e, this._$AP?.(e));
	}
}, G = class {
	get tagName() {
		return this.element.tagName;
	}
	get _$AU() {
		return this._$AM._$AU;
	}
	constructor(e, t, n, r, i) {
		this.type = 1, this._$AH = z, this._$AN = void 0, this.element = e, this.name = t, this._$AM = r, this.options = i, n.length > 2 || n[0] !== "" || n[1] !== "" ? (this._$AH = Array(n.length - 1).fill(/* @__PURE__ */ new String()), this.strings = n) : this._$AH = z;
	}
	_$AI(e, t = this, n, r) {
		let i = this.strings, a = !1;
		if (i === void 0) e = U(this, e, t, 0), a = !k(e) || e !== this._$AH && e !== R, a && (this._$AH = e);
		else {
			let r = e, o, s;
			for (e = i[0], o = 0; o < i.length - 1; o++) s = U(this, r[n + o], t, o), s === R && (s = this._$AH[o]), a ||= !k(s) || s !== this._$AH[o], s === z ? e = z : e !== z && (e += (s ?? "") + i[o + 1]), this._$AH[o] = s;
		}
		a && !r && this.j(e);
	}
	j(e) {
		e === z ? this.element.removeAttribute(this.name) : this.element.setAttribute(this.name, e ?? "");
	}
}, pe = class extends G {
	constructor() {
		super(...arguments), this.type = 3;
	}
	j(e) {
		this.element[this.name] = e === z ? void 0 : e;
	}
}, me = class extends G {
	constructor() {
		super(...arguments), this.type = 4;
	}
	j(e) {
		this.element.toggleAttribute(this.name, !!e && e !== z);
	}
}, he = class extends G {
	constructor(e, t, n, r, i) {
		super(e, t, n, r, i), this.type = 5;
	}
	_$AI(e, t = this) {
		if ((e = U(this, e, t, 0) ?? z) === R) return;
		let n = this._$AH, r = e === z && n !== z || e.capture !== n.capture || e.once !== n.once || e.passive !== n.passive, i = e !== z && (n === z || r);
		r && this.element.removeEventListener(this.name, this, n), i && this.element.addEventListener(this.name, this, e), this._$AH = e;
	}
	handleEvent(e) {
		typeof this._$AH == "function" ? this._$AH.call(this.options?.host ?? this.element, e) : this._$AH.handleEvent(e);
	}
}, ge = class {
	constructor(e, t, n) {
		this.element = e, this.type = 6, this._$AN = void 0, this._$AM = t, this.options = n;
	}
	get _$AU() {
		return this._$AM._$AU;
	}
	_$AI(e) {
		U(this, e);
	}
}, _e = w.litHtmlPolyfillSupport;
_e?.(H, W), (w.litHtmlVersions ??= []).push("3.3.3");
var ve = (e, t, n) => {
	let r = n?.renderBefore ?? t, i = r._$litPart$;
	if (i === void 0) {
		let e = n?.renderBefore ?? null;
		r._$litPart$ = i = new W(t.insertBefore(O(), e), e, void 0, n ?? {});
	}
	return i._$AI(e), i;
}, K = globalThis, q = class extends C {
	constructor() {
		super(...arguments), this.renderOptions = { host: this }, this._$Do = void 0;
	}
	createRenderRoot() {
		let e = super.createRenderRoot();
		return this.renderOptions.renderBefore ??= e.firstChild, e;
	}
	update(e) {
		let t = this.render();
		this.hasUpdated || (this.renderOptions.isConnected = this.isConnected), super.update(e), this._$Do = ve(t, this.renderRoot, this.renderOptions);
	}
	connectedCallback() {
		super.connectedCallback(), this._$Do?.setConnected(!0);
	}
	disconnectedCallback() {
		super.disconnectedCallback(), this._$Do?.setConnected(!1);
	}
	render() {
		return R;
	}
};
q._$litElement$ = !0, q.finalized = !0, K.litElementHydrateSupport?.({ LitElement: q });
var ye = K.litElementPolyfillSupport;
ye?.({ LitElement: q }), (K.litElementVersions ??= []).push("4.2.2");
// src/maths/recurrence.ts
var J = (e, t) => Array.from({ length: e }, () => Array(t).fill(0)), be = (e, t) => e.reduce((e, n, r) => e + n * t[r], 0), Y = (e, t) => e[0].map((n, r) => e.reduce((e, n, i) => e + n[r] * t[i], 0));
function xe(e, t, n, r, i, a) {
	let o = a ?? J(i.length, e[0].length), s = [], c = [];
	for (let a = 0; a < e.length; a++) o = o.map((n, o) => {
		let s = Math.exp(-i[o] * r[a]);
		return n.map((n, r) => s * n + t[a][o] * e[a][r]);
	}), c.push(o), s.push(Y(o, n[a]));
	return {
		o: s,
		final: o,
		states: c
	};
}
function Se(e, t, n, r, i, a, o) {
	let s = o ?? J(i.length, e[0].length), c = [];
	for (let o = 0; o < e.length; o += a) {
		let l = Math.min(o + a, e.length), u = [], d = 0;
		for (let e = o; e < l; e++) u.push(d += r[e]);
		for (let r = o; r < l; r++) {
			let a = i.map((e, t) => n[r][t] * Math.exp(-e * u[r - o])), l = Y(s, a);
			for (let a = o; a <= r; a++) {
				let s = 0;
				for (let e = 0; e < i.length; e++) s += n[r][e] * t[a][e] * Math.exp(-i[e] * (u[r - o] - u[a - o]));
				for (let t = 0; t < l.length; t++) l[t] += s * e[a][t];
			}
			c.push(l);
		}
		s = s.map((n, r) => {
			let a = Math.exp(-i[r] * d);
			return n.map((n, s) => {
				let c = a * n;
				for (let n = o; n < l; n++) c += t[n][r] * Math.exp(-i[r] * (d - u[n - o])) * e[n][s];
				return c;
			});
		});
	}
	return {
		o: c,
		final: s,
		states: []
	};
}
function Ce(e, t, n, r, i, a) {
	let o = a ?? J(t[0].length, n[0].length), s = [], c = [];
	for (let a = 0; a < n.length; a++) {
		let l = Math.exp(i[a]), u = o.map((e) => e.map((e) => l * e)), d = Y(u, t[a]);
		o = u.map((e, i) => e.map((e, o) => e + t[a][i] * r[a] * (n[a][o] - d[o]))), c.push(o), s.push(Y(o, e[a]));
	}
	return {
		o: s,
		final: o,
		states: c
	};
}
function we(e, t, n, r, i, a, o) {
	let s = o ?? J(t[0].length, n[0].length), c = [];
	for (let o = 0; o < n.length; o += a) {
		let l = Math.min(o + a, n.length), u = [], d = 0;
		for (let e = o; e < l; e++) u.push(d += i[e]);
		let f = (e, t) => Math.exp(u[e] - u[t]), p = [];
		for (let e = 0; e < l - o; e++) {
			let i = o + e, a = Y(s, t[i]), c = n[i].map((t, n) => r[i] * (t - Math.exp(u[e]) * a[n]));
			for (let n = 0; n < e; n++) {
				let a = r[i] * f(e, n) * be(t[i], t[o + n]);
				for (let e = 0; e < c.length; e++) c[e] -= a * p[n][e];
			}
			p.push(c);
		}
		for (let n = 0; n < l - o; n++) {
			let r = Y(s, e[o + n]).map((e) => Math.exp(u[n]) * e);
			for (let i = 0; i <= n; i++) {
				let a = f(n, i) * be(e[o + n], t[o + i]);
				for (let e = 0; e < r.length; e++) r[e] += a * p[i][e];
			}
			c.push(r);
		}
		let m = l - o - 1;
		s = s.map((e, n) => e.map((e, r) => p.reduce((e, i, a) => e + f(m, a) * t[o + a][n] * i[r], Math.exp(d) * e)));
	}
	return {
		o: c,
		final: s,
		states: []
	};
}
function Te(e, t) {
	return Math.max(0, ...e.flatMap((e, n) => e.map((e, r) => Math.abs(e - t[n][r]))));
}
// src/ui/base.ts
var Ee = import.meta.url, X = /* @__PURE__ */ new Map();
function De(e) {
	let t = X.get(e);
	return t || (t = fetch(new URL(`../data/${e}.json`, Ee)).then((t) => {
		if (!t.ok) throw Error(`${e}.json: ${t.status}`);
		return t.json();
	}), X.set(e, t)), t;
}
var Oe = () => De("presets"), ke = () => matchMedia("(prefers-reduced-motion: reduce)").matches, Ae = class extends q {
	static {
		this.properties = {
			width: { state: !0 },
			state: { state: !0 },
			playing: { state: !0 },
			note: { state: !0 }
		};
	}
	constructor() {
		super(), this.timer = 0, this.hidden_ = () => {
			document.hidden && this.pause();
		}, this.take = async (e) => {
			let t = e.target.files?.[0];
			if (t) {
				try {
					let { parse: e } = await import("./files.js");
					this.note = `${t.name}: ${this.accept(e(await t.text(), t.name, this.presets.presets))}`;
				} catch (e) {
					this.note = `${t.name} was not taken: ${e instanceof Error ? e.message : String(e)}`;
				}
				this.requestUpdate();
			}
		}, this.width = 640, this.state = {}, this.playing = !1, this.note = "";
	}
	prepare() {
		return Promise.resolve();
	}
	advance() {
		return !1;
	}
	finish() {}
	accept(e) {
		throw Error("this lab reads no file");
	}
	connectedCallback() {
		super.connectedCallback(), this.state = { ...this.defaults };
		for (let [e, t] of new URLSearchParams(location.search)) {
			if (!(e in this.defaults)) continue;
			let n = Number(t);
			typeof this.defaults[e] == "string" ? this.state[e] = t : Number.isFinite(n) && (this.state[e] = n);
		}
		this.observer = new ResizeObserver(([e]) => {
			let t = Math.floor(e.contentRect.width);
			t > 0 && t !== this.width && (this.width = t);
		}), this.sight = new IntersectionObserver(([e]) => {
			e.isIntersecting || this.pause();
		}), this.sight.observe(this), document.addEventListener("visibilitychange", this.hidden_), Promise.all([Oe(), this.prepare()]).then(([e]) => {
			this.presets = e, this.settle(), this.requestUpdate();
		}, (e) => {
			this.note = `The lab's data could not be loaded: ${String(e)}`;
		});
	}
	settle() {}
	disconnectedCallback() {
		super.disconnectedCallback(), this.observer?.disconnect(), this.sight?.disconnect(), document.removeEventListener("visibilitychange", this.hidden_), this.pause();
	}
	firstUpdated() {
		let e = this.renderRoot.querySelector(".lab");
		e && this.observer?.observe(e);
	}
	updated() {
		this.presets && this.dataset.state !== "ready" && (this.dataset.state = "ready");
	}
	get(e) {
		return Number(this.state[e]);
	}
	clamp(e, t, n) {
		this.state[e] = Math.min(n, Math.max(t, this.get(e)));
	}
	choose(e, t) {
		t.includes(String(this.state[e])) || (this.state[e] = this.defaults[e]);
	}
	set(e, t) {
		this.state = {
			...this.state,
			[e]: t
		}, this.settle();
		let n = new URL(location.href);
		for (let [e, t] of Object.entries(this.state)) t === this.defaults[e] ? n.searchParams.delete(e) : n.searchParams.set(e, String(t));
		history.replaceState(history.state, "", n);
	}
	reset() {
		this.pause(), this.note = "";
		for (let [e, t] of Object.entries(this.defaults)) this.set(e, t);
	}
	toggle(e = 350) {
		this.playing ? this.pause() : ke() ? this.finish() : (this.playing = !0, this.timer = window.setInterval(() => {
			this.advance() || this.pause();
		}, e));
	}
	pause() {
		window.clearInterval(this.timer), this.playing = !1;
	}
	slider(e, t, n, r, i, a = String) {
		let o = this.get(e);
		return I`<label class="control">
      <span class="name">${t} <output>${a(o)}</output></span>
      <input
        type="range"
        name=${e}
        min=${n}
        max=${r}
        step=${i}
        .value=${String(o)}
        aria-valuetext=${a(o)}
        @input=${(t) => this.set(e, Number(t.target.value))}
      />
    </label>`;
	}
	select(e, t, n) {
		return I`<label class="control">
      <span class="name">${t}</span>
      <select name=${e} @change=${(t) => this.set(e, t.target.value)}>
        ${n.map(([t, n]) => I`<option value=${t} ?selected=${this.state[e] === t}>${n}</option>`)}
      </select>
    </label>`;
	}
	playButton(e, t) {
		return I`<button type="button" class="play" aria-pressed=${this.playing} @click=${() => this.toggle(t)}>
      ${this.playing ? "❚❚ Pause" : `▶ ${e}`}
    </button>`;
	}
	resetButton() {
		return I`<button type="button" class="reset" @click=${() => this.reset()}>Reset</button>`;
	}
	file(e) {
		return I`<label class="control file">
      <span class="name">${e}</span>
      <input type="file" accept=".yaml,.yml,.json,.jsonl" @change=${this.take} />
    </label>`;
	}
	frame(e, t, n, r = z) {
		return I`<section class="lab" aria-label=${this.getAttribute("label") ?? "Lab"}>
      <div class="controls">${e}</div>
      <div class="figure">${t}</div>
      <p class="said" aria-live="polite">${n}</p>
      ${this.note ? I`<p class="note" role="status">${this.note}</p>` : z}
      ${r}
    </section>`;
	}
	table(e, t, n) {
		return I`<details class="numbers">
      <summary>${e}</summary>
      <div class="scroll" tabindex="0" role="region" aria-label=${e}>
        <table>
          <thead>
            <tr>
              ${t.map((e) => I`<th scope="col">${e}</th>`)}
            </tr>
          </thead>
          <tbody>
            ${n.map(([e, ...t]) => I`<tr>
                  <th scope="row">${e}</th>
                  ${t.map((e) => I`<td>${e}</td>`)}
                </tr>`)}
          </tbody>
        </table>
      </div>
    </details>`;
	}
	static {
		this.styles = o`
    :host {
      display: block;
      color: var(--hymo-ink);
      font-family: var(--md-text-font-family, sans-serif);
      font-size: 15px;
      line-height: 1.5;
    }
    .lab {
      border: 1px solid var(--hymo-line);
      border-radius: 8px;
      background: var(--hymo-panel);
      overflow: hidden;
    }
    .controls {
      display: grid;
      grid-template-columns: repeat(auto-fill, minmax(min(180px, 100%), 1fr));
      gap: 10px 20px;
      align-items: end;
      padding: 14px 16px;
      border-bottom: 1px solid var(--hymo-line);
    }
    .control {
      display: flex;
      flex-direction: column;
      gap: 4px;
      min-width: 0;
    }
    .name {
      display: flex;
      justify-content: space-between;
      gap: 8px;
      font-size: 13px;
      color: var(--hymo-soft);
    }
    output {
      font-family: var(--md-code-font-family, monospace);
      color: var(--hymo-ink);
      font-variant-numeric: tabular-nums;
      white-space: nowrap;
    }
    input[type="range"] {
      width: 100%;
      margin: 0;
      height: 28px;
      accent-color: var(--hymo-gdn);
    }
    select,
    button,
    input[type="file"] {
      font: inherit;
      font-size: 14px;
      min-height: 34px;
      max-width: 100%;
      box-sizing: border-box;
      color: inherit;
      background: var(--hymo-panel);
      border: 1px solid var(--hymo-line);
      border-radius: 5px;
      padding: 4px 10px;
    }
    button {
      cursor: pointer;
      border-color: var(--hymo-soft);
    }
    button:hover {
      border-color: var(--hymo-gdn);
    }
    button.play {
      border-color: var(--hymo-gdn);
      color: var(--hymo-gdn);
      font-weight: 600;
    }
    .buttons {
      display: flex;
      flex-wrap: wrap;
      gap: 8px;
    }
    :is(button, input, select, summary, [tabindex]):focus-visible {
      outline: 2px solid var(--hymo-gdn);
      outline-offset: 2px;
    }
    .figure {
      padding: 14px 16px 4px;
    }
    svg {
      display: block;
      max-width: 100%;
      font-family: var(--md-text-font-family, sans-serif);
      font-variant-numeric: tabular-nums;
    }
    svg text {
      fill: var(--hymo-ink);
      font-size: 12px;
    }
    svg text.soft {
      fill: var(--hymo-soft);
    }
    svg .axis {
      stroke: var(--hymo-line);
    }
    .said {
      margin: 0;
      padding: 8px 16px 14px;
      max-width: 62em;
    }
    .said b,
    .key {
      font-weight: 600;
    }
    .note {
      margin: 0 16px 14px;
      padding: 8px 12px;
      border-left: 3px solid var(--hymo-mla);
      background: var(--hymo-mla-soft);
    }
    .formula {
      font-family: var(--md-code-font-family, monospace);
      font-size: 13px;
      padding: 8px 12px;
      margin: 8px 0 0;
      border-radius: 5px;
      background: var(--md-code-bg-color);
      overflow-x: auto;
      white-space: nowrap;
    }
    .numbers {
      border-top: 1px solid var(--hymo-line);
      padding: 8px 16px;
    }
    summary {
      cursor: pointer;
      color: var(--hymo-soft);
      font-size: 13px;
      min-height: 24px;
    }
    .scroll {
      overflow-x: auto;
      max-height: 320px;
    }
    table {
      border-collapse: collapse;
      font-size: 13px;
      font-variant-numeric: tabular-nums;
      margin: 8px 0;
    }
    th,
    td {
      text-align: right;
      font-weight: 400;
      padding: 3px 12px 3px 0;
      border-bottom: 1px solid var(--hymo-line);
      white-space: nowrap;
    }
    th:first-child {
      text-align: left;
    }
    thead th {
      color: var(--hymo-soft);
    }
    @media print {
      .controls,
      .numbers {
        display: none;
      }
    }
  `;
	}
};
function je(e) {
	let t = e;
	if (!t || typeof t != "object" || !t.model) throw Error("no configuration: expected the groups model, optimizer, scheduler, training and run, as `hymo config show` prints them");
	for (let e of [
		"dim",
		"n_layers",
		"mla_layers",
		"n_heads",
		"vocab_size"
	]) if (!(e in t.model)) throw Error(`model.${e} is missing: load a resolved configuration, from \`hymo config show\` or a run's config.yaml`);
	for (let e of [
		"optimizer",
		"scheduler",
		"training",
		"run"
	]) if (!t[e]) throw Error(`the group ${e} is missing: load a resolved configuration`);
	return t;
}
// src/gdn.ts
var Z = [
	"cat",
	"dog",
	"owl",
	"fox"
], Q = [
	"red",
	"blue",
	"gold",
	"grey"
], $ = [
	["cat", "red"],
	["dog", "blue"],
	["owl", "gold"],
	["cat", "grey"],
	["fox", "red"],
	["dog", "gold"],
	["owl", "red"],
	["cat", "blue"]
], Me = class extends Ae {
	constructor(...e) {
		super(...e), this.defaults = {
			rule: "delta",
			t: 4,
			keep: .95,
			beta: 1,
			overlap: 0,
			chunk: 4
		}, this.heading = "";
	}
	settle() {
		this.choose("rule", ["delta", "linear"]), this.clamp("t", 1, $.length), this.clamp("keep", .5, 1), this.clamp("beta", 0, 1), this.clamp("overlap", 0, .9), this.clamp("chunk", 1, $.length);
	}
	advance() {
		let e = this.get("t") % $.length;
		return this.set("t", e + 1), e + 1 < $.length;
	}
	finish() {
		this.set("t", $.length);
	}
	accept(e) {
		let t = je(e).model;
		this.set("rule", t.gdn_recurrence === "gated_delta" ? "delta" : "linear");
		let n = Math.floor(t.gdn_d_inner / t.gdn_headdim);
		return this.heading = `your model keeps ${n} such states of ${t.gdn_d_state} × ${t.gdn_headdim} per GDN layer and uses the rule ${t.gdn_recurrence}.`, this.heading;
	}
	keys() {
		let e = this.get("overlap"), t = Z.length, [n, r] = [Math.sqrt(e / t), Math.sqrt(1 - e)];
		return Z.map((e, t) => Z.map((e, i) => (t === i ? r : 0) + n)).map((e) => {
			let t = Math.hypot(...e);
			return e.map((e) => e / t);
		});
	}
	run(e) {
		let t = this.keys(), n = $.map(([e]) => t[Z.indexOf(e)]), r = $.map(([, e]) => Q.map((t) => Number(t === e))), i = Math.max(this.get("keep"), 1e-9), a = $.map(() => 1);
		if (this.state.rule === "linear") {
			let t = Z.map(() => -Math.log(i));
			return e === null ? xe(r, n, n, a, t) : Se(r, n, n, a, t, e);
		}
		let o = $.map(() => this.get("beta")), s = $.map(() => Math.log(i));
		return e === null ? Ce(n, n, r, o, s) : we(n, n, r, o, s, e);
	}
	render() {
		let e = this.get("t"), t = this.state.rule === "delta", n = this.run(null), r = this.run(this.get("chunk")), i = Te(n.o, r.o), a = this.keys(), o = n.states[e - 1], [s, c] = $[e - 1], l = Z.map((e, t) => Q.map((e, n) => o.reduce((e, r, i) => e + r[n] * a[t][i], 0))), u = l[Z.indexOf(s)], d = Q[u.indexOf(Math.max(...u))], f = $.slice(0, e - 1).filter(([e]) => e === s);
		this.dataset.difference = i.toExponential(1), this.dataset.answer = d, this.dataset.t = String(e);
		let p = I`
      ${this.select("rule", "Update rule", [["delta", "gated delta: overwrite"], ["linear", "gated linear: add"]])}
      ${this.slider("t", "Token", 1, $.length, 1, (e) => `${e} of ${$.length}`)}
      ${this.slider("keep", "Kept per token", .5, 1, .01, (e) => e.toFixed(2))}
      ${t ? this.slider("beta", "Write strength β", 0, 1, .05, (e) => e.toFixed(2)) : ""}
      ${this.slider("overlap", "Overlap of keys", 0, .9, .05, (e) => e.toFixed(2))}
      ${this.slider("chunk", "Chunk size", 1, $.length, 1)}
      <div class="buttons">${this.playButton("Play the story", 700)}${this.resetButton()}</div>
      ${this.file("Your config (YAML, JSON)")}
    `, m = this.get("keep").toFixed(2), h = t ? `S ← ${m}·S;  S ← S + ${this.get("beta").toFixed(2)}·k("${s}")·(v("${c}") − Sᵀk("${s}"))ᵀ` : `H ← ${m}·H + k("${s}")·v("${c}")ᵀ`, g = I`After token ${e} (“the ${s} is ${c}”), asking for <b>${s}</b> answers
      <b>${d}</b> with ${Math.max(...u).toFixed(2)}${f.length ? t ? I`: the delta rule first takes out what ${s} held (${f.at(-1)[1]}), then writes.` : I`: adding keeps the earlier ${f.at(-1)[1]} beside it (${u[Q.indexOf(f.at(-1)[1])].toFixed(2)}).` : "."}
      In chunks of ${this.get("chunk")} the outputs are the same: largest difference
      <span class="key">${i < 1e-15 ? "0" : i.toExponential(1)}</span>.`;
		return this.frame(p, I`${this.draw(l, n, e)}
        <p class="formula" tabindex="0" role="group" aria-label="Update with the present values">${h}</p>`, g, this.table("The state as numbers", ["asked for", ...Q], Z.map((e, t) => [e, ...l[t].map((e) => e.toFixed(4))])));
	}
	draw(e, t, n) {
		let r = this.width - 34, i = this.get("chunk"), a = r / $.length, o = $.map(([e, t], r) => {
			let o = r === n - 1, s = Math.floor(r / i) % 2 ? "var(--hymo-gdn-soft)" : "transparent";
			return L`<g>
        <rect x=${r * a} y="18" width=${a} height="44" fill=${s}></rect>
        <rect x=${r * a + 2} y="20" width=${a - 4} height="40" rx="4" fill="none" stroke=${o ? "var(--hymo-mla)" : "var(--hymo-line)"} stroke-width=${o ? 3 : 1}></rect>
        <text x=${r * a + a / 2} y="37" text-anchor="middle" opacity=${r < n ? 1 : .75}>${e}</text>
        <text class="soft" x=${r * a + a / 2} y="53" text-anchor="middle">${t}</text>
      </g>`;
		}), s = r < 480, c = s ? r - 46 : Math.min(300, r * .48), l = c / Q.length, u = e.flatMap((e, t) => e.map((e, n) => L`<g>
        <rect x=${46 + n * l + 1} y=${106 + t * 38 + 1} width=${l - 2} height=${36} rx="3" fill=${e >= 0 ? "var(--hymo-gdn)" : "var(--hymo-mla)"} fill-opacity=${Math.min(1, Math.abs(e)) * .9} stroke="var(--hymo-line)"></rect>
        <text x=${46 + n * l + l / 2} y=${106 + t * 38 + 19 + 4} text-anchor="middle" style=${Math.abs(e) > .55 ? "fill:var(--hymo-panel)" : ""}>${e.toFixed(2)}</text>
      </g>`)), d = s ? 46 : 46 + c + 50, f = s ? 106 + Z.length * 38 + 46 : 106, p = s ? r - 46 : r - d - 4, m = Z.length * 38, h = $[n - 1][0], g = this.keys(), _ = (e) => d + p * e / ($.length - 1), v = (e) => f + m - (m * Math.max(-.2, Math.min(1.2, e)) + .2 * m) / 1.4, y = [
			"",
			"6 3",
			"2 3",
			"8 3 2 3"
		], b = [
			"var(--hymo-mla)",
			"var(--hymo-third)",
			"var(--hymo-gdn)",
			"var(--hymo-soft)"
		], x = Q.map((e, n) => {
			let r = t.states.map((e) => e.reduce((e, t, r) => e + t[n] * g[Z.indexOf(h)][r], 0));
			return L`<polyline fill="none" stroke=${b[n]} stroke-width="2" stroke-dasharray=${y[n]} points=${r.map((e, t) => `${_(t)},${v(e)}`).join(" ")}></polyline>
        <line x1=${d + n % 2 * 70} x2=${d + n % 2 * 70 + 20} y1=${f + m + 16 + 16 * Math.floor(n / 2)} y2=${f + m + 16 + 16 * Math.floor(n / 2)} stroke=${b[n]} stroke-width="2" stroke-dasharray=${y[n]}></line>
        <text x=${d + n % 2 * 70 + 24} y=${f + m + 20 + 16 * Math.floor(n / 2)}>${e}</text>`;
		}), S = f + m + 44;
		return I`<svg width=${r} height=${S} viewBox="0 0 ${r} ${S}" role="img" aria-label=${`The story of ${$.length} writes in chunks of ${i}; what the state answers for each key after token ${n}; the answers for ${h} over time`}>
      <text class="soft" x="0" y="12">what is written, token by token; shading marks chunks</text>
      ${o}
      <text class="soft" x=${46} y="86">answer to each key after token ${n}</text>
      ${Q.map((e, t) => L`<text class="soft" x=${46 + t * l + l / 2} y="102" text-anchor="middle">${e}</text>`)}
      ${Z.map((e, t) => L`<text x="0" y=${106 + t * 38 + 19 + 4}>${e}?</text>`)}
      ${u}
      <text class="soft" x=${d} y=${f - 8}>answers to “${h}?” over time</text>
      <line class="axis" x1=${d} x2=${d + p} y1=${v(0)} y2=${v(0)}></line>
      <line class="axis" x1=${d} x2=${d + p} y1=${v(1)} y2=${v(1)} stroke-dasharray="2 4"></line>
      <text class="soft" x=${d + p} y=${v(1) - 4} text-anchor="end">1</text>
      <line x1=${_(n - 1)} x2=${_(n - 1)} y1=${f} y2=${f + m} stroke="var(--hymo-mla)" stroke-width="1"></line>
      ${x}
    </svg>`;
	}
};
customElements.define("hymo-gdn-lab", Me);
