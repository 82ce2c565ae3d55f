let sample = 0;
const unchecked = new Set(data.variants);

function unpackMaps(packed, size) {
  packed.values ??= bytes(packed.bytes);
  return index => ({ top: packed.tops[index] ?? null, values: packed.values.subarray(index * size, (index + 1) * size) });
}

function fillMethods(gallery) {
  byId("method-choice").replaceChildren(...Object.keys(gallery.maps).map(method => {
    const box = element("input", { type: "checkbox", "data-method": method });
    box.checked = !unchecked.has(method);
    box.addEventListener("change", () => {
      if (box.checked) unchecked.delete(method); else unchecked.add(method);
      showSample();
    });
    return element("label", {}, box, method);
  }));
}

function framed(gallery, content, path) {
  const frame = element("div", { class: gallery.width < 100 ? "frame pixels" : "frame" }, content);
  frame.style.aspectRatio = `${gallery.width} / ${gallery.height}`;
  if (path && byId("outline").checked) frame.append(outlined(path, gallery.width, gallery.height));
  return frame;
}

function mapFigure(gallery, name, map, top, path, attributes) {
  const canvas = element("canvas", { role: "img", "aria-label": `map of ${name}` });
  drawMap(canvas, map.values, gallery.rows, gallery.columns, byId("scale").value === "own" ? ownScale : commonScale(map.top, top));
  const frame = framed(gallery, canvas, map.top === null ? null : path);
  if (map.top === null) {
    canvas.style.visibility = "hidden";
    frame.append(element("div", { class: "nothing" }, "all zero or not finite"));
  }
  return element("figure", attributes, frame, element("figcaption", {}, element("strong", {}, name)));
}

function scoreList(scores, index) {
  const list = element("dl", { class: "scores" });
  for (const [metric, label] of Object.entries(data.metrics)) {
    if (!scores || !(metric in scores) || index >= scores[metric].length) continue;
    const value = scores[metric][index];
    const text = value === null ? "–" : value.toFixed(2);
    list.append(element("div", { "data-metric": metric }, element("dt", {}, label), element("dd", {}, text)));
  }
  return list;
}

function pictureFigure(gallery, path) {
  const label = gallery.labels[sample], predicted = gallery.predicted[sample], right = gallery.right[sample], name = gallery.names[sample];
  const image = element("img", { src: gallery.pictures[sample], alt: `sample ${sample + 1}${name ? `, ${name}` : ""}${label ? `, ${label}` : ""}` });
  const caption = element("figcaption", {}, element("strong", {}, "image"));
  if (name) caption.append(element("span", { class: "which" }, name), element("br"));
  if (label) caption.append(element("span", { class: "label" }, `label: ${label}`), element("br"));
  if (predicted) caption.append(element("span", { class: "predicted" }, `predicted: ${predicted} `));
  if (right !== null) caption.append(element("span", { class: right ? "right" : "wrong" }, right ? "✓ correct" : "✗ wrong"));
  return element("figure", { class: "picture" }, framed(gallery, image, path), caption);
}

function showBar(top) {
  const own = byId("scale").value === "own";
  drawRamp(byId("ramp"));
  drawTicks(byId("ticks"), place => percent(own ? place : place * place * top));
  const clipped = `pixels above it have at most ${100 - data.percentile}\u00a0% of the map’s sum`;
  byId("bar-title").textContent = own ? `value relative to the map’s top value (${clipped})`
    : "share of the map in one pixel (square-root scale up to the largest top value shown)";
}

function showSample() {
  const gallery = chosenCell().gallery;
  byId("no-gallery").hidden = Boolean(gallery);
  byId("all-maps").hidden = !gallery;
  if (!gallery) { byId("sample").textContent = ""; return; }
  const count = gallery.pictures.length, size = gallery.rows * gallery.columns;
  sample = ((sample % count) + count) % count;
  byId("sample").textContent = `sample ${sample + 1} of ${count}`;
  byId("gallery-body").dataset.sample = sample;
  byId("coarse").textContent = gallery.step > 1 ? `Maps of ${gallery.width}×${gallery.height} pixels are shown in blocks of ${gallery.step}×${gallery.step}.` : "";
  const path = gallery.outlines[chosenPlace.masks]?.[sample];
  const checked = Object.keys(gallery.maps).filter(method => !unchecked.has(method));
  const maps = checked.map(method => [method, unpackMaps(gallery.maps[method], size)(sample)]);
  const classes = gallery.classes ? gallery.classes.names.map((name, index) => [name, unpackMaps(gallery.classes.maps, size)(index)]) : [];
  const top = Math.max(...[...maps, ...classes].map(([, map]) => map.top ?? 0)) || 1;
  showBar(top);
  const scores = gallery.scores[chosenPlace.masks] ?? {};
  const figures = maps.map(([method, map]) => {
    const figure = mapFigure(gallery, method, map, top, path, { "data-method": method });
    figure.querySelector("figcaption").append(scoreList(scores[method], sample));
    return figure;
  });
  byId("maps").replaceChildren(pictureFigure(gallery, path), ...figures);
  byId("class-maps-part").hidden = classes.length === 0;
  byId("class-maps").replaceChildren(...classes.map(([name, map], index) => mapFigure(gallery, name, map, top, path, { "data-class": index })));
}

// Arrow keys step through the samples unless the focused element uses them itself.
function stepOnArrow(event) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const busy = event.target.closest?.("select, textarea, input:not([type=checkbox]), .scroll");
  if (!step || busy || event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
  event.preventDefault();
  moveSample(step);
}

function moveSample(step) {
  sample += step;
  showSample();
}

function checkAll(on) {
  for (const box of byId("method-choice").querySelectorAll("input")) {
    box.checked = on;
    if (on) unchecked.delete(box.dataset.method); else unchecked.add(box.dataset.method);
  }
  showSample();
}

if (byId("gallery-body")) {
  byId("previous").addEventListener("click", () => moveSample(-1));
  byId("next").addEventListener("click", () => moveSample(1));
  byId("all-methods").addEventListener("click", () => checkAll(true));
  byId("no-methods").addEventListener("click", () => checkAll(false));
  for (const id of ["scale", "outline"]) byId(id).addEventListener("change", showSample);
  listen("keydown", stepOnArrow);
  listen("place", () => {
    if (chosenCell().gallery) fillMethods(chosenCell().gallery);
    showSample();
  });
}
