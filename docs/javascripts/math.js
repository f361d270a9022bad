// Formulas: KaTeX is loaded only by pages that have any, and again after a change of page without a reload.
(() => {
  const base = new URL("../assets/katex/", document.currentScript.src);
  let ready;

  const load = () =>
    (ready ??= new Promise((resolve, reject) => {
      const style = document.createElement("link");
      style.rel = "stylesheet";
      style.href = new URL("katex.min.css", base);
      const script = document.createElement("script");
      script.src = new URL("katex.min.js", base);
      script.onload = resolve;
      script.onerror = () => reject(new Error("KaTeX could not be loaded"));
      document.head.append(style, script);
    }));

  const render = async () => {
    const formulas = [...document.querySelectorAll(".arithmatex:not([data-rendered])")];
    if (!formulas.length) return;
    await load();
    for (const formula of formulas) {
      const source = formula.textContent.trim();
      const displayMode = source.startsWith("\\[");
      const tex = source.replace(/^\\[[(]|\\[\])]$/g, "");
      window.katex.render(tex, formula, { displayMode, throwOnError: true, output: "htmlAndMathml" });
      formula.dataset.rendered = "";
    }
    document.dispatchEvent(new Event("hymo:formulas"));
  };

  if (window.document$?.subscribe) window.document$.subscribe(render);
  else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", render);
  else render();
})();
