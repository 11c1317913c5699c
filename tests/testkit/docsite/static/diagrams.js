// Draws the diagrams of a page, again when the reader changes between light and dark.
(() => {
  const diagrams = [...document.querySelectorAll("pre.mermaid")];
  const texts = diagrams.map((each) => each.textContent);
  const { fontFamily } = getComputedStyle(document.body);
  const draw = async () => {
    const isDark = document.documentElement.dataset.theme === "dark";
    mermaid.initialize({ startOnLoad: false, theme: isDark ? "dark" : "neutral", fontFamily });
    diagrams.forEach((each, index) => {
      each.removeAttribute("data-processed");
      each.textContent = texts[index];
    });
    await mermaid.run({ nodes: diagrams });
  };
  let drawing = draw();
  const again = () => { drawing = drawing.then(draw); };
  new MutationObserver(again).observe(document.documentElement, { attributeFilter: ["data-theme"] });
})();
