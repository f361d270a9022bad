// src/labs.ts
var e = {
	"hymo-stack": () => import("./stack.js"),
	"hymo-gdn-lab": () => import("./gdn.js"),
	"hymo-moe-lab": () => import("./moe.js"),
	"hymo-cache-lab": () => import("./cache.js"),
	"hymo-mtp-lab": () => import("./mtp.js"),
	"hymo-step-lab": () => import("./step.js"),
	"hymo-planner-lab": () => import("./planner2.js")
};
function t() {
	for (let [t, n] of Object.entries(e)) document.querySelector(t) && !customElements.get(t) && n().catch((e) => {
		console.error(`${t} could not be loaded; its figure stays.`, e);
	});
}
var n = window.document$;
n ? n.subscribe(t) : t();
