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
})(e) : e, { is: l, defineProperty: u, getOwnPropertyDescriptor: d, getOwnPropertyNames: ee, getOwnPropertySymbols: te, getPrototypeOf: f } = Object, p = globalThis, m = p.trustedTypes, ne = m ? m.emptyScript : "", re = p.reactiveElementPolyfillSupport, h = (e, t) => e, g = {
	toAttribute(e, t) {
		switch (t) {
			case Boolean:
				e = e ? ne : null;
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
}, _ = (e, t) => !l(e, t), v = {
	attribute: !0,
	type: String,
	converter: g,
	reflect: !1,
	useDefault: !1,
	hasChanged: _
};
Symbol.metadata ??= Symbol("metadata"), p.litPropertyMetadata ??= /* @__PURE__ */ new WeakMap();
var y = class extends HTMLElement {
	static addInitializer(e) {
		this._$Ei(), (this.l ??= []).push(e);
	}
	static get observedAttributes() {
		return this.finalize(), this._$Eh && [...this._$Eh.keys()];
	}
	static createProperty(e, t = v) {
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
		return this.elementProperties.get(e) ?? v;
	}
	static _$Ei() {
		if (this.hasOwnProperty(h("elementProperties"))) return;
		let e = f(this);
		e.finalize(), e.l !== void 0 && (this.l = [...e.l]), this.elementProperties = new Map(e.elementProperties);
	}
	static finalize() {
		if (this.hasOwnProperty(h("finalized"))) return;
		if (this.finalized = !0, this._$Ei(), this.hasOwnProperty(h("properties"))) {
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
			let i = (n.converter?.toAttribute === void 0 ? g : n.converter).toAttribute(t, n.type);
			this._$Em = e, i == null ? this.removeAttribute(r) : this.setAttribute(r, i), this._$Em = null;
		}
	}
	_$AK(e, t) {
		let n = this.constructor, r = n._$Eh.get(e);
		if (r !== void 0 && this._$Em !== r) {
			let e = n.getPropertyOptions(r), i = typeof e.converter == "function" ? { fromAttribute: e.converter } : e.converter?.fromAttribute === void 0 ? g : e.converter;
			this._$Em = r;
			let a = i.fromAttribute(t, e.type);
			this[r] = a ?? this._$Ej?.get(r) ?? a, this._$Em = null;
		}
	}
	requestUpdate(e, t, n, r = !1, i) {
		if (e !== void 0) {
			let a = this.constructor;
			if (!1 === r && (i = this[e]), n ??= a.getPropertyOptions(e), !((n.hasChanged ?? _)(i, t) || n.useDefault && n.reflect && i === this._$Ej?.get(e) && !this.hasAttribute(a._$Eu(e, n)))) return;
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
y.elementStyles = [], y.shadowRootOptions = { mode: "open" }, y[h("elementProperties")] = /* @__PURE__ */ new Map(), y[h("finalized")] = /* @__PURE__ */ new Map(), re?.({ ReactiveElement: y }), (p.reactiveElementVersions ??= []).push("2.1.2");
// node_modules/lit-html/lit-html.js
var b = globalThis, x = (e) => e, S = b.trustedTypes, C = S ? S.createPolicy("lit-html", { createHTML: (e) => e }) : void 0, w = "$lit$", T = `lit$${Math.random().toFixed(9).slice(2)}$`, E = "?" + T, ie = `<${E}>`, D = document, O = () => D.createComment(""), k = (e) => e === null || typeof e != "object" && typeof e != "function", A = Array.isArray, ae = (e) => A(e) || typeof e?.[Symbol.iterator] == "function", j = "[ 	\n\f\r]", M = /<(?:(!--|\/[^a-zA-Z])|(\/?[a-zA-Z][^>\s]*)|(\/?$))/g, N = /-->/g, P = />/g, F = RegExp(`>|${j}(?:([^\\s"'>=/]+)(${j}*=${j}*(?:[^ \t\n\f\r"'\`<>=]|("|')|))|$)`, "g"), I = /'/g, L = /"/g, R = /^(?:script|style|textarea|title)$/i, z = (e) => (t, ...n) => ({
	_$litType$: e,
	strings: t,
	values: n
}), B = z(1), oe = z(2), V = Symbol.for("lit-noChange"), H = Symbol.for("lit-nothing"), U = /* @__PURE__ */ new WeakMap(), W = D.createTreeWalker(D, 129);
function G(e, t) {
	if (!A(e) || !e.hasOwnProperty("raw")) throw Error("invalid template strings array");
	return C === void 0 ? t : C.createHTML(t);
}
var se = (e, t) => {
	let n = e.length - 1, r = [], i, a = t === 2 ? "<svg>" : t === 3 ? "<math>" : "", o = M;
	for (let t = 0; t < n; t++) {
		let n = e[t], s, c, l = -1, u = 0;
		for (; u < n.length && (o.lastIndex = u, c = o.exec(n), c !== null);) u = o.lastIndex, o === M ? c[1] === "!--" ? o = N : c[1] === void 0 ? c[2] === void 0 ? c[3] !== void 0 && (o = F) : (R.test(c[2]) && (i = RegExp("</" + c[2], "g")), o = F) : o = P : o === F ? c[0] === ">" ? (o = i ?? M, l = -1) : c[1] === void 0 ? l = -2 : (l = o.lastIndex - c[2].length, s = c[1], o = c[3] === void 0 ? F : c[3] === "\"" ? L : I) : o === L || o === I ? o = F : o === N || o === P ? o = M : (o = F, i = void 0);
		let d = o === F && e[t + 1].startsWith("/>") ? " " : "";
		a += o === M ? n + ie : l >= 0 ? (r.push(s), n.slice(0, l) + w + n.slice(l) + T + d) : n + T + (l === -2 ? t : d);
	}
	return [G(e, a + (e[n] || "<?>") + (t === 2 ? "</svg>" : t === 3 ? "</math>" : "")), r];
}, K = class e {
	constructor({ strings: t, _$litType$: n }, r) {
		let i;
		this.parts = [];
		let a = 0, o = 0, s = t.length - 1, c = this.parts, [l, u] = se(t, n);
		if (this.el = e.createElement(l, r), W.currentNode = this.el.content, n === 2 || n === 3) {
			let e = this.el.content.firstChild;
			e.replaceWith(...e.childNodes);
		}
		for (; (i = W.nextNode()) !== null && c.length < s;) {
			if (i.nodeType === 1) {
				if (i.hasAttributes()) for (let e of i.getAttributeNames()) if (e.endsWith(w)) {
					let t = u[o++], n = i.getAttribute(e).split(T), r = /([.?@])?(.*)/.exec(t);
					c.push({
						type: 1,
						index: a,
						name: r[2],
						strings: n,
						ctor: r[1] === "." ? le : r[1] === "?" ? ue : r[1] === "@" ? de : Y
					}), i.removeAttribute(e);
				} else e.startsWith(T) && (c.push({
					type: 6,
					index: a
				}), i.removeAttribute(e));
				if (R.test(i.tagName)) {
					let e = i.textContent.split(T), t = e.length - 1;
					if (t > 0) {
						i.textContent = S ? S.emptyScript : "";
						for (let n = 0; n < t; n++) i.append(e[n], O()), W.nextNode(), c.push({
							type: 2,
							index: ++a
						});
						i.append(e[t], O());
					}
				}
			} else if (i.nodeType === 8) {
				if (i.data === E) c.push({
					type: 2,
					index: a
				});
				else {
					let e = -1;
					for (; (e = i.data.indexOf(T, e + 1)) !== -1;) c.push({
						type: 7,
						index: a
					}), e += T.length - 1;
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
function q(e, t, n = e, r) {
	if (t === V) return t;
	let i = r === void 0 ? n._$Cl : n._$Co?.[r], a = k(t) ? void 0 : t._$litDirective$;
	return i?.constructor !== a && (i?._$AO?.(!1), a === void 0 ? i = void 0 : (i = new a(e), i._$AT(e, n, r)), r === void 0 ? n._$Cl = i : (n._$Co ??= [])[r] = i), i !== void 0 && (t = q(e, i._$AS(e, t.values), i, r)), t;
}
var ce = class {
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
		W.currentNode = r;
		let i = W.nextNode(), a = 0, o = 0, s = n[0];
		for (; s !== void 0;) {
			if (a === s.index) {
				let t;
				s.type === 2 ? t = new J(i, i.nextSibling, this, e) : s.type === 1 ? t = new s.ctor(i, s.name, s.strings, this, e) : s.type === 6 && (t = new fe(i, this, e)), this._$AV.push(t), s = n[++o];
			}
			a !== s?.index && (i = W.nextNode(), a++);
		}
		return W.currentNode = D, r;
	}
	p(e) {
		let t = 0;
		for (let n of this._$AV) n !== void 0 && (n.strings === void 0 ? n._$AI(e[t]) : (n._$AI(e, n, t), t += n.strings.length - 2)), t++;
	}
}, J = class e {
	get _$AU() {
		return this._$AM?._$AU ?? this._$Cv;
	}
	constructor(e, t, n, r) {
		this.type = 2, this._$AH = H, this._$AN = void 0, this._$AA = e, this._$AB = t, this._$AM = n, this.options = r, this._$Cv = r?.isConnected ?? !0;
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
		e = q(this, e, t), k(e) ? e === H || e == null || e === "" ? (this._$AH !== H && this._$AR(), this._$AH = H) : e !== this._$AH && e !== V && this._(e) : e._$litType$ === void 0 ? e.nodeType === void 0 ? ae(e) ? this.k(e) : this._(e) : this.T(e) : this.$(e);
	}
	O(e) {
		return this._$AA.parentNode.insertBefore(e, this._$AB);
	}
	T(e) {
		this._$AH !== e && (this._$AR(), this._$AH = this.O(e));
	}
	_(e) {
		this._$AH !== H && k(this._$AH) ? this._$AA.nextSibling.data = e : this.T(D.createTextNode(e)), this._$AH = e;
	}
	$(e) {
		let { values: t, _$litType$: n } = e, r = typeof n == "number" ? this._$AC(e) : (n.el === void 0 && (n.el = K.createElement(G(n.h, n.h[0]), this.options)), n);
		if (this._$AH?._$AD === r) this._$AH.p(t);
		else {
			let e = new ce(r, this), n = e.u(this.options);
			e.p(t), this.T(n), this._$AH = e;
		}
	}
	_$AC(e) {
		let t = U.get(e.strings);
		return t === void 0 && U.set(e.strings, t = new K(e)), t;
	}
	k(t) {
		A(this._$AH) || (this._$AH = [], this._$AR());
		let n = this._$AH, r, i = 0;
		for (let a of t) i === n.length ? n.push(r = new e(this.O(O()), this.O(O()), this, this.options)) : r = n[i], r._$AI(a), i++;
		i < n.length && (this._$AR(r && r._$AB.nextSibling, i), n.length = i);
	}
	_$AR(e = this._$AA.nextSibling, t) {
		for (this._$AP?.(!1, !0, t); e !== this._$AB;) {
			let t = x(e).nextSibling;
			x(e).remove(), e = t;
		}
	}
	setConnected(e) {
		this._$AM === void 0 && (this._$Cv = e, this._$AP?.(e));
	}
}, Y = class {
	get tagName() {
		return this.element.tagName;
	}
	get _$AU() {
		return this._$AM._$AU;
	}
	constructor(e, t, n, r, i) {
		this.type = 1, this._$AH = H, this._$AN = void 0, this.element = e, this.name = t, this._$AM = r, this.options = i, n.length > 2 || n[0] !== "" || n[1] !== "" ? (this._$AH = Array(n.length - 1).fill(/* @__PURE__ */ new String()), this.strings = n) : this._$AH = H;
	}
	_$AI(e, t = this, n, r) {
		let i = this.strings, a = !1;
		if (i === void 0) e = q(this, e, t, 0), a = !k(e) || e !== this._$AH && e !== V, a && (this._$AH = e);
		else {
			let r = e, o, s;
			for (e = i[0], o = 0; o < i.length - 1; o++) s = q(this, r[n + o], t, o), s === V && (s = this._$AH[o]), a ||= !k(s) || s !== this._$AH[o], s === H ? e = H : e !== H && (e += (s ?? "") + i[o + 1]), this._$AH[o] = s;
		}
		a && !r && this.j(e);
	}
	j(e) {
		e === H ? this.element.removeAttribute(this.name) : this.element.setAttribute(this.name, e ?? "");
	}
}, le = class extends Y {
	constructor() {
		super(...arguments), this.type = 3;
	}
	j(e) {
		this.element[this.name] = e === H ? void 0 : e;
	}
}, ue = class extends Y {
	constructor() {
		super(...arguments), this.type = 4;
	}
	j(e) {
		this.element.toggleAttribute(this.name, !!e && e !== H);
	}
}, de = class extends Y {
	constructor(e, t, n, r, i) {
		super(e, t, n, r, i), this.type = 5;
	}
	_$AI(e, t = this) {
		if ((e = q(this, e, t, 0) ?? H) === V) return;
		let n = this._$AH, r = e === H && n !== H || e.capture !== n.capture || e.once !== n.once || e.passive !== n.passive, i = e !== H && (n === H || r);
		r && this.element.removeEventListener(this.name, this, n), i && this.element.addEventListener(this.name, this, e), this._$AH = e;
	}
	handleEvent(e) {
		typeof this._$AH == "function" ? this._$AH.call(this.options?.host ?? this.element, e) : this._$AH.handleEvent(e);
	}
}, fe = class {
	constructor(e, t, n) {
		this.element = e, this.type = 6, this._$AN = void 0, this._$AM = t, this.options = n;
	}
	get _$AU() {
		return this._$AM._$AU;
	}
	_$AI(e) {
		q(this, e);
	}
}, pe = b.litHtmlPolyfillSupport;
pe?.(K, J), (b.litHtmlVersions ??= []).push("3.3.3");
var me = (e, t, n) => {
	let r = n?.renderBefore ?? t, i = r._$litPart$;
	if (i === void 0) {
		let e = n?.renderBefore ?? null;
		r._$litPart$ = i = new J(t.insertBefore(O(), e), e, void 0, n ?? {});
	}
	return i._$AI(e), i;
}, X = globalThis, Z = class extends y {
	constructor() {
		super(...arguments), this.renderOptions = { host: this }, this._$Do = void 0;
	}
	createRenderRoot() {
		let e = super.createRenderRoot();
		return this.renderOptions.renderBefore ??= e.firstChild, e;
	}
	update(e) {
		let t = this.render();
		this.hasUpdated || (this.renderOptions.isConnected = this.isConnected), super.update(e), this._$Do = me(t, this.renderRoot, this.renderOptions);
	}
	connectedCallback() {
		super.connectedCallback(), this._$Do?.setConnected(!0);
	}
	disconnectedCallback() {
		super.disconnectedCallback(), this._$Do?.setConnected(!1);
	}
	render() {
		return V;
	}
};
Z._$litElement$ = !0, Z.finalized = !0, X.litElementHydrateSupport?.({ LitElement: Z });
var he = X.litElementPolyfillSupport;
he?.({ LitElement: Z }), (X.litElementVersions ??= []).push("4.2.2");
// src/ui/base.ts
var ge = import.meta.url, Q = /* @__PURE__ */ new Map();
function $(e) {
	let t = Q.get(e);
	return t || (t = fetch(new URL(`../data/${e}.json`, ge)).then((t) => {
		if (!t.ok) throw Error(`${e}.json: ${t.status}`);
		return t.json();
	}), Q.set(e, t)), t;
}
var _e = () => $("presets"), ve = () => matchMedia("(prefers-reduced-motion: reduce)").matches, ye = class extends Z {
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
		}), this.sight.observe(this), document.addEventListener("visibilitychange", this.hidden_), Promise.all([_e(), this.prepare()]).then(([e]) => {
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
		this.playing ? this.pause() : ve() ? this.finish() : (this.playing = !0, this.timer = window.setInterval(() => {
			this.advance() || this.pause();
		}, e));
	}
	pause() {
		window.clearInterval(this.timer), this.playing = !1;
	}
	slider(e, t, n, r, i, a = String) {
		let o = this.get(e);
		return B`<label class="control">
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
		return B`<label class="control">
      <span class="name">${t}</span>
      <select name=${e} @change=${(t) => this.set(e, t.target.value)}>
        ${n.map(([t, n]) => B`<option value=${t} ?selected=${this.state[e] === t}>${n}</option>`)}
      </select>
    </label>`;
	}
	playButton(e, t) {
		return B`<button type="button" class="play" aria-pressed=${this.playing} @click=${() => this.toggle(t)}>
      ${this.playing ? "❚❚ Pause" : `▶ ${e}`}
    </button>`;
	}
	resetButton() {
		return B`<button type="button" class="reset" @click=${() => this.reset()}>Reset</button>`;
	}
	file(e) {
		return B`<label class="control file">
      <span class="name">${e}</span>
      <input type="file" accept=".yaml,.yml,.json,.jsonl" @change=${this.take} />
    </label>`;
	}
	frame(e, t, n, r = H) {
		return B`<section class="lab" aria-label=${this.getAttribute("label") ?? "Lab"}>
      <div class="controls">${e}</div>
      <div class="figure">${t}</div>
      <p class="said" aria-live="polite">${n}</p>
      ${this.note ? B`<p class="note" role="status">${this.note}</p>` : H}
      ${r}
    </section>`;
	}
	table(e, t, n) {
		return B`<details class="numbers">
      <summary>${e}</summary>
      <div class="scroll" tabindex="0" role="region" aria-label=${e}>
        <table>
          <thead>
            <tr>
              ${t.map((e) => B`<th scope="col">${e}</th>`)}
            </tr>
          </thead>
          <tbody>
            ${n.map(([e, ...t]) => B`<tr>
                  <th scope="row">${e}</th>
                  ${t.map((e) => B`<td>${e}</td>`)}
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
export { Se as a, oe as c, be as i, o as l, Ce as n, xe as o, $ as r, B as s, ye as t };
