const tip = byId("tip");
let tipped = null;

function showTip(figure) {
  tipped = figure;
  tip.textContent = figure.dataset.tip;
  tip.hidden = false;
  figure.setAttribute("aria-describedby", "tip");
  const at = figure.getBoundingClientRect(), size = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, at.left + at.width / 2 - size.width / 2), innerWidth - size.width - 8);
  const above = at.top - size.height - 8;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 4 ? above : at.bottom + 8}px`;
}

function hideTip() {
  if (tipped) tipped.removeAttribute("aria-describedby");
  tipped = null;
  tip.hidden = true;
}

for (const figure of document.querySelectorAll(".figure[title]")) {
  figure.dataset.tip = figure.title;
  figure.removeAttribute("title");
}
for (const name of ["mouseover", "focusin"]) {
  listen(name, event => {
    const figure = event.target.closest && event.target.closest(".figure");
    if (figure) showTip(figure);
    else if (name === "mouseover" && tipped !== document.activeElement) hideTip();
  });
}
listen("focusout", hideTip);
listen("keydown", event => { if (event.key === "Escape") hideTip(); });
// Focus may scroll a number into view: its tooltip follows.
addEventListener("scroll", () => {
  if (!tipped) return;
  if (tipped === document.activeElement) showTip(tipped);
  else hideTip();
}, { capture: true, passive: true });
