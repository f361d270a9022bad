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
})(e) : e, { is: l, defineProperty: u, getOwnPropertyDescriptor: d, getOwnPropertyNames: ee, getOwnPropertySymbols: te, getPrototypeOf: ne } = Object, f = globalThis, p = f.trustedTypes, re = p ? p.emptyScript : "", ie = f.reactiveElementPolyfillSupport, m = (e, t) => e, h = {
	toAttribute(e, t) {
		switch (t) {
			case Boolean:
				e = e ? re : null;
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
}, g = (e, t) => !l(e, t), _ = {
	attribute: !0,
	type: String,
	converter: h,
	reflect: !1,
	useDefault: !1,
	hasChanged: g
};
Symbol.metadata ??= Symbol("metadata"), f.litPropertyMetadata ??= /* @__PURE__ */ new WeakMap();
var v = class extends HTMLElement {
	static addInitializer(e) {
		this._$Ei(), (this.l ??= []).push(e);
	}
	static get observedAttributes() {
		return this.finalize(), this._$Eh && [...this._$Eh.keys()];
	}
	static createProperty(e, t = _) {
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
		return this.elementProperties.get(e) ?? _;
	}
	static _$Ei() {
		if (this.hasOwnProperty(m("elementProperties"))) return;
		let e = ne(this);
		e.finalize(), e.l !== void 0 && (this.l = [...e.l]), this.elementProperties = new Map(e.elementProperties);
	}
	static finalize() {
		if (this.hasOwnProperty(m("finalized"))) return;
		if (this.finalized = !0, this._$Ei(), this.hasOwnProperty(m("properties"))) {
			let e = this.properties, t = [...ee(e), ...te(e)];
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
			let i = (n.converter?.toAttribute === void 0 ? h : n.converter).toAttribute(t, n.type);
			this._$Em = e, i == null ? this.removeAttribute(r) : this.setAttribute(r, i), this._$Em = null;
		}
	}
	_$AK(e, t) {
		let n = this.constructor, r = n._$Eh.get(e);
		if (r !== void 0 && this._$Em !== r) {
			let e = n.getPropertyOptions(r), i = typeof e.converter == "function" ? { fromAttribute: e.converter } : e.converter?.fromAttribute === void 0 ? h : e.converter;
			this._$Em = r;
			let a = i.fromAttribute(t, e.type);
			this[r] = a ?? this._$Ej?.get(r) ?? a, this._$Em = null;
		}
	}
	requestUpdate(e, t, n, r = !1, i) {
		if (e !== void 0) {
			let a = this.constructor;
			if (!1 === r && (i = this[e]), n ??= a.getPropertyOptions(e), !((n.hasChanged ?? g)(i, t) || n.useDefault && n.reflect && i === this._$Ej?.get(e) && !this.hasAttribute(a._$Eu(e, n)))) return;
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
v.elementStyles = [], v.shadowRootOptions = { mode: "open" }, v[m("elementProperties")] = /* @__PURE__ */ new Map(), v[m("finalized")] = /* @__PURE__ */ new Map(), ie?.({ ReactiveElement: v }), (f.reactiveElementVersions ??= []).push("2.1.2");
// node_modules/lit-html/lit-html.js
var y = globalThis, b = (e) => e, x = y.trustedTypes, S = x ? x.createPolicy("lit-html", { createHTML: (e) => e }) : void 0, C = "$lit$", w = `lit$${Math.random().toFixed(9).slice(2)}$`, T = "?" + w, ae = `<${T}>`, E = document, D = () => E.createComment(""), O = (e) => e === null || typeof e != "object" && typeof e != "function", k = Array.isArray, oe = (e) => k(e) || typeof e?.[Symbol.iterator] == "function", A = "[ 	\n\f\r]", j = /<(?:(!--|\/[^a-zA-Z])|(\/?[a-zA-Z][^>\s]*)|(\/?$))/g, M = /-->/g, N = />/g, P = RegExp(`>|${A}(?:([^\\s"'>=/]+)(${A}*=${A}*(?:[^ \t\n\f\r"'\`<>=]|("|')|))|$)`, "g"), F = /'/g, I = /"/g, L = /^(?:script|style|textarea|title)$/i, R = (e) => (t, ...n) => ({
	_$litType$: e,
	strings: t,
	values: n
}), z = R(1), se = R(2), B = Symbol.for("lit-noChange"), V = Symbol.for("lit-nothing"), H = /* @__PURE__ */ new WeakMap(), U = E.createTreeWalker(E, 129);
function W(e, t) {
	if (!k(e) || !e.hasOwnProperty("raw")) throw Error("invalid template strings array");
	return S === void 0 ? t : S.createHTML(t);
}
var ce = (e, t) => {
	let n = e.length - 1, r = [], i, a = t === 2 ? "<svg>" : t === 3 ? "<math>" : "", o = j;
	for (let t = 0; t < n; t++) {
		let n = e[t], s, c, l = -1, u = 0;
		for (; u < n.length && (o.lastIndex = u, c = o.exec(n), c !== null);) u = o.lastIndex, o === j ? c[1] === "!--" ? o = M : c[1] === void 0 ? c[2] === void 0 ? c[3] !== void 0 && (o = P) : (L.test(c[2]) && (i = RegExp("</" + c[2], "g")), o = P) : o = N : o === P ? c[0] === ">" ? (o = i ?? j, l = -1) : c[1] === void 0 ? l = -2 : (l = o.lastIndex - c[2].length, s = c[1], o = c[3] === void 0 ? P : c[3] === "\"" ? I : F) : o === I || o === F ? o = P : o === M || o === N ? o = j : (o = P, i = void 0);
		let d = o === P && e[t + 1].startsWith("/>") ? " " : "";
		a += o === j ? n + ae : l >= 0 ? (r.push(s), n.slice(0, l) + C + n.slice(l) + w + d) : n + w + (l === -2 ? t : d);
	}
	return [W(e, a + (e[n] || "<?>") + (t === 2 ? "</svg>" : t === 3 ? "</math>" : "")), r];
}, G = class e {
	constructor({ strings: t, _$litType$: n }, r) {
		let i;
		this.parts = [];
		let a = 0, o = 0, s = t.length - 1, c = this.parts, [l, u] = ce(t, n);
		if (this.el = e.createElement(l, r), U.currentNode = this.el.content, n === 2 || n === 3) {
			let e = this.el.content.firstChild;
			e.replaceWith(...e.childNodes);
		}
		for (; (i = U.nextNode()) !== null && c.length < s;) {
			if (i.nodeType === 1) {
				if (i.hasAttributes()) for (let e of i.getAttributeNames()) if (e.endsWith(C)) {
					let t = u[o++], n = i.getAttribute(e).split(w), r = /([.?@])?(.*)/.exec(t);
					c.push({
						type: 1,
						index: a,
						name: r[2],
						strings: n,
						ctor: r[1] === "." ? ue : r[1] === "?" ? de : r[1] === "@" ? fe : J
					}), i.removeAttribute(e);
				} else e.startsWith(w) && (c.push({
					type: 6,
					index: a
				}), i.removeAttribute(e));
				if (L.test(i.tagName)) {
					let e = i.textContent.split(w), t = e.length - 1;
					if (t > 0) {
						i.textContent = x ? x.emptyScript : "";
						for (let n = 0; n < t; n++) i.append(e[n], D()), U.nextNode(), c.push({
							type: 2,
							index: ++a
						});
						i.append(e[t], D());
					}
				}
			} else if (i.nodeType === 8) {
				if (i.data === T) c.push({
					type: 2,
					index: a
				});
				else {
					let e = -1;
					for (; (e = i.data.indexOf(w, e + 1)) !== -1;) c.push({
						type: 7,
						index: a
					}), e += w.length - 1;
				}
			}
			a++;
		}
	}
	static createElement(e, t) {
		let n = E.createElement("template");
		return n.innerHTML = e, n;
	}
};
function K(e, t, n = e, r) {
	if (t === B) return t;
	let i = r === void 0 ? n._$Cl : n._$Co?.[r], a = O(t) ? void 0 : t._$litDirective$;
	return i?.constructor !== a && (i?._$AO?.(!1), a === void 0 ? i = void 0 : (i = new a(e), i._$AT(e, n, r)), r === void 0 ? n._$Cl = i : (n._$Co ??= [])[r] = i), i !== void 0 && (t = K(e, i._$AS(e, t.values), i, r)), t;
}
var le = class {
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
		let { el: { content: t }, parts: n } = this._$AD, r = (e?.creationScope ?? E).importNode(t, !0);
		U.currentNode = r;
		let i = U.nextNode(), a = 0, o = 0, s = n[0];
		for (; s !== void 0;) {
			if (a === s.index) {
				let t;
				s.type === 2 ? t = new q(i, i.nextSibling, this, e) : s.type === 1 ? t = new s.ctor(i, s.name, s.strings, this, e) : s.type === 6 && (t = new pe(i, this, e)), this._$AV.push(t), s = n[++o];
			}
			a !== s?.index && (i = U.nextNode(), a++);
		}
		return U.currentNode = E, r;
	}
	p(e) {
		let t = 0;
		for (let n of this._$AV) n !== void 0 && (n.strings === void 0 ? n._$AI(e[t]) : (n._$AI(e, n, t), t += n.strings.length - 2)), t++;
	}
}, q = class e {
	get _$AU() {
		return this._$AM?._$AU ?? this._$Cv;
	}
	constructor(e, t, n, r) {
		this.type = 2, this._$AH = V, this._$AN = void 0, this._$AA = e, this._$AB = t, this._$AM = n, this.options = r, this._$Cv = r?.isConnected ?? !0;
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
		e = K(this, e, t), O(e) ? e === V || e == null || e === "" ? (this._$AH !== V && this._$AR(), this._$AH = V) : e !== this._$AH && e !== B && this._(e) : e._$litType$ === void 0 ? e.nodeType === void 0 ? oe(e) ? this.k(e) : this._(e) : this.T(e) : this.$(e);
	}
	O(e) {
		return this._$AA.parentNode.insertBefore(e, this._$AB);
	}
	T(e) {
		this._$AH !== e && (this._$AR(), this._$AH = this.O(e));
	}
	_(e) {
		this._$AH !== V && O(this._$AH) ? this._$AA.nextSibling.data = e : this.T(E.createTextNode(e)), this._$AH = e;
	}
	$(e) {
		let { values: t, _$litType$: n } = e, r = typeof n == "number" ? this._$AC(e) : (n.el === void 0 && (n.el = G.createElement(W(n.h, n.h[0]), this.options)), n);
		if (this._$AH?._$AD === r) this._$AH.p(t);
		else {
			let e = new le(r, this), n = e.u(this.options);
			e.p(t), this.T(n), this._$AH = e;
		}
	}
	_$AC(e) {
		let t = H.get(e.strings);
		return t === void 0 && H.set(e.strings, t = new G(e)), t;
	}
	k(t) {
		k(this._$AH) || (this._$AH = [], this._$AR());
		let n = this._$AH, r, i = 0;
		for (let a of t) i === n.length ? n.push(r = new e(this.O(D()), this.O(D()), this, this.options)) : r = n[i], r._$AI(a), i++;
		i < n.length && (this._$AR(r && r._$AB.nextSibling, i), n.length = i);
	}
	_$AR(e = this._$AA.nextSibling, t) {
		for (this._$AP?.(!1, !0, t); e !== this._$AB;) {
			let t = b(e).nextSibling;
			b(e).remove(), e = t;
		}
	}
	setConnected(e) {
		this._$AM === void 0 && (this._$Cv = e, this._$AP?.(e));
	}
}, J = class {
	get tagName() {
		return this.element.tagName;
	}
	get _$AU() {
		return this._$AM._$AU;
	}
	constructor(e, t, n, r, i) {
		this.type = 1, this._$AH = V, this._$AN = void 0, this.element = e, this.name = t, this._$AM = r, this.options = i, n.length > 2 || n[0] !== "" || n[1] !== "" ? (this._$AH = Array(n.length - 1).fill(/* @__PURE__ */ new String()), this.strings = n) : this._$AH = V;
	}
	_$AI(e, t = this, n, r) {
		let i = this.strings, a = !1;
		if (i === void 0) e = K(this, e, t, 0), a = !O(e) || e !== this._$AH && e !== B, a && (this._$AH = e);
		else {
			let r = e, o, s;
			for (e = i[0], o = 0; o < i.length - 1; o++) s = K(this, r[n + o], t, o), s === B && (s = this._$AH[o]), a ||= !O(s) || s !== this._$AH[o], s === V ? e = V : e !== V && (e += (s ?? "") + i[o + 1]), this._$AH[o] = s;
		}
		a && !r && this.j(e);
	}
	j(e) {
		e === V ? this.element.removeAttribute(this.name) : this.element.setAttribute(this.name, e ?? "");
	}
}, ue = class extends J {
	constructor() {
		super(...arguments), this.type = 3;
	}
	j(e) {
		this.element[this.name] = e === V ? void 0 : e;
	}
}, de = class extends J {
	constructor() {
		super(...arguments), this.type = 4;
	}
	j(e) {
		this.element.toggleAttribute(this.name, !!e && e !== V);
	}
}, fe = class extends J {
	constructor(e, t, n, r, i) {
		super(e, t, n, r, i), this.type = 5;
	}
	_$AI(e, t = this) {
		if ((e = K(this, e, t, 0) ?? V) === B) return;
		let n = this._$AH, r = e === V && n !== V || e.capture !== n.capture || e.once !== n.once || e.passive !== n.passive, i = e !== V && (n === V || r);
		r && this.element.removeEventListener(this.name, this, n), i && this.element.addEventListener(this.name, this, e), this._$AH = e;
	}
	handleEvent(e) {
		typeof this._$AH == "function" ? this._$AH.call(this.options?.host ?? this.element, e) : this._$AH.handleEvent(e);
	}
}, pe = class {
	constructor(e, t, n) {
		this.element = e, this.type = 6, this._$AN = void 0, this._$AM = t, this.options = n;
	}
	get _$AU() {
		return this._$AM._$AU;
	}
	_$AI(e) {
		K(this, e);
	}
}, me = y.litHtmlPolyfillSupport;
me?.(G, q), (y.litHtmlVersions ??= []).push("3.3.3");
var he = (e, t, n) => {
	let r = n?.renderBefore ?? t, i = r._$litPart$;
	if (i === void 0) {
		let e = n?.renderBefore ?? null;
		r._$litPart$ = i = new q(t.insertBefore(D(), e), e, void 0, n ?? {});
	}
	return i._$AI(e), i;
}, Y = globalThis, X = class extends v {
	constructor() {
		super(...arguments), this.renderOptions = { host: this }, this._$Do = void 0;
	}
	createRenderRoot() {
		let e = super.createRenderRoot();
		return this.renderOptions.renderBefore ??= e.firstChild, e;
	}
	update(e) {
		let t = this.render();
		this.hasUpdated || (this.renderOptions.isConnected = this.isConnected), super.update(e), this._$Do = he(t, this.renderRoot, this.renderOptions);
	}
	connectedCallback() {
		super.connectedCallback(), this._$Do?.setConnected(!0);
	}
	disconnectedCallback() {
		super.disconnectedCallback(), this._$Do?.setConnected(!1);
	}
	render() {
		return B;
	}
};
X._$litElement$ = !0, X.finalized = !0, Y.litElementHydrateSupport?.({ LitElement: X });
var ge = Y.litElementPolyfillSupport;
ge?.({ LitElement: X }), (Y.litElementVersions ??= []).push("4.2.2");
// src/ui/base.ts
var _e = import.meta.url, Z = /* @__PURE__ */ new Map();
function Q(e) {
	let t = Z.get(e);
	return t || (t = fetch(new URL(`../data/${e}.json`, _e)).then((t) => {
		if (!t.ok) throw Error(`${e}.json: ${t.status}`);
		return t.json();
	}), Z.set(e, t)), t;
}
var $ = () => Q("presets"), ve = () => matchMedia("(prefers-reduced-motion: reduce)").matches, ye = class extends X {
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
					let [{ parse: e }, n] = await Promise.all([import("./files.js"), $()]);
					this.note = `${t.name}: ${this.accept(e(await t.text(), t.name, n.presets))}`;
				} catch (e) {
					this.note = `${t.name} was not taken: ${e instanceof Error ? e.message : String(e)}`;
				}
				this.requestUpdate();
			}
		}, this.width = 640, this.state = {}, this.playing = !1, this.note = "";
	}
	get waits() {
		return !0;
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
		}), this.sight.observe(this), document.addEventListener("visibilitychange", this.hidden_), this.waits ? Promise.all([$(), this.prepare()]).then(([e]) => {
			this.presets = e, this.settle(), this.requestUpdate();
		}, (e) => {
			this.note = `The lab's data could not be loaded: ${String(e)}`;
		}) : this.settle();
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
		(this.presets || !this.waits) && this.dataset.state !== "ready" && (this.dataset.state = "ready");
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
		this.playing ? this.pause() : ve() ? this.finish() : (this.playing = !0, this.timer = window.setInterval(() => {
			this.advance() || this.pause();
		}, e));
	}
	pause() {
		window.clearInterval(this.timer), this.playing = !1;
	}
	slider(e, t, n, r, i, a = String) {
		let o = this.get(e);
		return z`<label class="control">
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
		return z`<label class="control">
      <span class="name">${t}</span>
      <select name=${e} @change=${(t) => this.set(e, t.target.value)}>
        ${n.map(([t, n]) => z`<option value=${t} ?selected=${this.state[e] === t}>${n}</option>`)}
      </select>
    </label>`;
	}
	playButton(e, t) {
		return z`<button type="button" class="play" aria-pressed=${this.playing} @click=${() => this.toggle(t)}>
      ${this.playing ? "❚❚ Pause" : `▶ ${e}`}
    </button>`;
	}
	resetButton() {
		return z`<button type="button" class="reset" @click=${() => this.reset()}>Reset</button>`;
	}
	file(e) {
		return z`<label class="control file">
      <span class="name">${e}</span>
      <input type="file" accept=".yaml,.yml,.json,.jsonl" @change=${this.take} />
    </label>`;
	}
	frame(e, t, n, r = V) {
		return z`<section class="lab" aria-label=${this.getAttribute("label") ?? "Lab"}>
      <div class="controls">${e}</div>
      <div class="figure">${t}</div>
      <p class="said" aria-live="polite">${n}</p>
      ${this.note ? z`<p class="note" role="status">${this.note}</p>` : V}
      ${r}
    </section>`;
	}
	table(e, t, n) {
		return z`<details class="numbers">
      <summary>${e}</summary>
      <div class="scroll" tabindex="0" role="region" aria-label=${e}>
        <table>
          <thead>
            <tr>
              ${t.map((e) => z`<th scope="col">${e}</th>`)}
            </tr>
          </thead>
          <tbody>
            ${n.map(([e, ...t]) => z`<tr>
                  <th scope="row">${e}</th>
                  ${t.map((e) => z`<td>${e}</td>`)}
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
    input[type="file"] {
      padding: 0;
      overflow: hidden;
    }
    input[type="file"]::file-selector-button {
      font: inherit;
      width: 100%;
      min-height: 32px;
      margin: 0 3em 0 0;
      padding: 4px 10px;
      text-align: left;
      color: inherit;
      background: transparent;
      border: 0;
      cursor: pointer;
    }
    input[type="file"]:hover {
      border-color: var(--hymo-gdn);
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
      overflow-wrap: anywhere;
    }
    @media (max-width: 480px) {
      .controls {
        grid-template-columns: repeat(2, minmax(0, 1fr));
        gap: 8px 16px;
      }
      .controls > :is(.file, .buttons, :has(select)) {
        grid-column: 1 / -1;
      }
      .name {
        flex-wrap: wrap;
        row-gap: 0;
      }
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
}, be = (e, t = 0) => e.toLocaleString("en-US", {
	minimumFractionDigits: t,
	maximumFractionDigits: t
});
function xe(e) {
	for (let [t, n] of [
		["TiB", 40],
		["GiB", 30],
		["MiB", 20],
		["KiB", 10]
	]) if (e >= 2 ** n) {
		let r = e / 2 ** n;
		return `${r.toFixed(r < 10 ? 2 : 1)} ${t}`;
	}
	return `${e} B`;
}
function Se(e) {
	for (let [t, n] of [
		["T", 0xe8d4a51000],
		["B", 1e9],
		["M", 1e6],
		["k", 1e3]
	]) if (Math.abs(e) >= n) {
		let r = e / n;
		return `${r.toFixed(r < 10 ? 2 : 1)} ${t}`;
	}
	return String(Math.round(e * 100) / 100);
}
function Ce(e) {
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
export { Se as a, se as c, be as i, o as l, Ce as n, xe as o, Q as r, z as s, ye as t };
