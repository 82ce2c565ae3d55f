// Label positions beside points without overlap: the nearest free one of many candidates.
const pen = document.createElement("canvas").getContext("2d");

function overlap(a, b) {
  const wide = Math.min(a.x + a.w, b.x + b.w) - Math.max(a.x, b.x), high = Math.min(a.y + a.h, b.y + b.h) - Math.max(a.y, b.y);
  return wide > 0 && high > 0 ? wide * high : 0;
}

function candidates(point, w, h) {
  const boxes = [];
  for (const reach of [9, 22, 38, 56, 76, 98]) {
    for (const angle of [0, 180, 90, 270, 45, 315, 135, 225]) {
      const dx = Math.cos(angle * Math.PI / 180), dy = -Math.sin(angle * Math.PI / 180);
      const cx = point.x + dx * (reach + w / 2), cy = point.y + dy * (reach + h / 2);
      boxes.push({ x: cx - w / 2, y: cy - h / 2, w, h, reach, ax: cx - point.x, ay: cy - point.y });
    }
  }
  return boxes;
}

// Points are {x, y, text, bars} in pixels; bars are the boxes of the error bars, which labels also avoid.
function placedLabels(points, width, height) {
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const occupied = points.flatMap(point => [{ x: point.x - 6, y: point.y - 6, w: 12, h: 12 }, ...point.bars]);
  return points.map(point => {
    const w = pen.measureText(point.text).width + 6, h = 17;
    const cost = box => {
      const outside = Math.max(0, -box.x) + Math.max(0, box.x + w - width) + Math.max(0, -box.y) + Math.max(0, box.y + h - height);
      return occupied.reduce((sum, other) => sum + overlap(box, other), 0) + 1000 * outside + box.reach / 10;
    };
    const best = candidates(point, w, h).reduce((a, b) => cost(b) < cost(a) ? b : a);
    occupied.push(best);
    return best;
  });
}
