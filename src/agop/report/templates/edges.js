// Scroll hints for wide tables: an arrow at the right edge, a shadow of the first column at the left.
function showEdges(box) {
  const frame = box.parentNode, beyond = box.scrollWidth - box.clientWidth - box.scrollLeft;
  frame.classList.toggle("more", beyond > 1);
  frame.classList.toggle("scrolled", box.scrollLeft > 1);
}

for (const box of document.querySelectorAll(".scroll")) {
  const frame = element("div", { class: "edged" });
  box.replaceWith(frame);
  frame.append(box);
  box.addEventListener("scroll", () => showEdges(box), { passive: true });
  const resized = new ResizeObserver(() => showEdges(box));
  for (const part of [box, box.firstElementChild]) resized.observe(part);
}
