// What scrolls sideways can be reached and scrolled by keyboard: wide tables, code, formulas.
(() => {
  const places = ".md-typeset__scrollwrap, .md-typeset pre > code, div.arithmatex";

  const mark = () => {
    for (const place of document.querySelectorAll(places)) {
      const scrolls = place.scrollWidth > place.clientWidth || place.scrollHeight > place.clientHeight;
      if (scrolls) place.tabIndex = 0;
      else place.removeAttribute("tabindex");
    }
  };

  const start = () => {
    mark();
    document.addEventListener("hymo:formulas", mark);
    document.fonts.addEventListener("loadingdone", mark);
    new ResizeObserver(mark).observe(document.body);
  };
  if (window.document$?.subscribe) window.document$.subscribe(start);
  else if (document.readyState === "complete") start();
  else window.addEventListener("load", start);
})();
