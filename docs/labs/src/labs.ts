// Site-wide entry: a few hundred bytes that load a lab's code when the page holds its element.
const labs: Record<string, () => Promise<unknown>> = {
  "hymo-stack": () => import("./stack"),
  "hymo-gdn-lab": () => import("./gdn"),
  "hymo-moe-lab": () => import("./moe"),
  "hymo-cache-lab": () => import("./cache"),
  "hymo-mtp-lab": () => import("./mtp"),
  "hymo-step-lab": () => import("./step"),
  "hymo-planner-lab": () => import("./planner"),
};

function load(): void {
  for (const [tag, start] of Object.entries(labs)) {
    if (document.querySelector(tag) && !customElements.get(tag)) {
      start().catch((error: unknown) => {
        console.error(`${tag} could not be loaded; its figure stays.`, error);
      });
    }
  }
}

const pages = (window as { document$?: { subscribe(next: () => void): void } }).document$;
if (pages) pages.subscribe(load);
else load();
