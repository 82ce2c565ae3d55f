const COLOURS = bytes(data.colours);
const SVG = "http://www.w3.org/2000/svg";

// A map's colours on its own scale. Byte b means top · (b / 255)², and this axis is linear up to the map's top.
function ownScale(byte) {
  return byte * byte / 255;
}

// A map's colours on a square-root axis up to the largest top of all maps.
function commonScale(top, largest) {
  return byte => byte * Math.sqrt(top / largest);
}

// `scale` turns the bytes of a map into colour indices.
function drawMap(canvas, values, rows, columns, scale) {
  canvas.width = columns;
  canvas.height = rows;
  const image = new ImageData(columns, rows);
  for (let place = 0; place < values.length; place++) {
    const colour = 3 * Math.min(255, Math.round(scale(values[place])));
    image.data.set([COLOURS[colour], COLOURS[colour + 1], COLOURS[colour + 2], 255], 4 * place);
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.classList.toggle("pixels", columns < 100);
}

function drawRamp(canvas) {
  drawMap(canvas, Uint8Array.from({ length: 256 }, (_, place) => place), 1, 256, byte => byte);
  canvas.classList.remove("pixels");
}

// Labels at equal steps of the colours.
function drawTicks(box, label) {
  box.replaceChildren(...[0, 0.25, 0.5, 0.75, 1].map(place => {
    const tick = element("span", {}, label(place));
    tick.style.left = `${100 * place}%`;
    return tick;
  }));
}

function percent(share) {
  if (share === 0) return "0";
  const value = 100 * share;
  return `${value >= 10 ? value.toFixed(0) : value >= 1 ? value.toFixed(1) : value.toPrecision(2)} %`;
}

function outlined(path, width, height) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  for (const name of ["under", "over"]) {
    const line = document.createElementNS(SVG, "path");
    line.setAttribute("d", path);
    line.setAttribute("class", name);
    svg.append(line);
  }
  return svg;
}
