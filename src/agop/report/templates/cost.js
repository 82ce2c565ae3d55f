const MARGIN = { l: 62, r: 16, t: 12, b: 52 };
const KINDS = {
  agop: { name: "AGOP", colour: "--line-1", symbol: "circle" },
  other: { name: "other methods", colour: "--line-2", symbol: "diamond" },
  control: { name: "controls", colour: "--other", symbol: "circle-open" },
};

function spread(values, share) {
  const low = Math.min(...values), high = Math.max(...values), room = (high - low || 1) * share;
  return [low - room, high + room];
}

// The methods with a score and a time.
function costPoints() {
  const { scores } = chosenPlace, quality = scores[data.quality.name], times = scores.milliseconds;
  const points = data.methods.map((method, at) => ({ method, kind: data.kinds[method], score: quality[at], cost: times[at] }));
  return points.filter(point => point.score && point.cost && point.cost[0] > 0);
}

function costTrace(kind, points) {
  const style = KINDS[kind], colour = themed(style.colour), members = points.filter(point => point.kind === kind);
  const bars = key => ({
    type: "data", symmetric: false, thickness: 1, width: 3, color: colour,
    array: members.map(point => point[key][2] - point[key][0]), arrayminus: members.map(point => point[key][0] - point[key][1]),
  });
  return {
    type: "scatter", mode: "markers", name: style.name, x: members.map(point => point.cost[0]), y: members.map(point => point.score[0]),
    text: members.map(point => plain(point.method)), marker: { size: 10, color: colour, symbol: style.symbol, line: { width: kind === "control" ? 2 : 0, color: colour } },
    error_x: bars("cost"), error_y: bars("score"),
    hovertemplate: `%{text}<br>%{x:.3g} ms, ${plain(data.quality.label)} %{y:.3f}<extra></extra>`,
  };
}

function drawCost() {
  const points = costPoints(), chart = byId("cost-chart"), height = chart.clientWidth < 500 ? 620 : 460;
  byId("no-cost").hidden = points.length > 0;
  chart.hidden = points.length === 0;
  if (!points.length) return;
  const xs = spread(points.flatMap(point => point.cost.map(Math.log10)), 0.08), ys = spread(points.flatMap(point => point.score), 0.08);
  const width = chart.clientWidth - MARGIN.l - MARGIN.r, high = height - MARGIN.t - MARGIN.b - 28;
  const across = cost => (Math.log10(cost) - xs[0]) / (xs[1] - xs[0]) * width, down = score => (ys[1] - score) / (ys[1] - ys[0]) * high;
  const pixels = points.map(({ method, cost, score }) => {
    const x = across(cost[0]), y = down(score[0]);
    const horizontal = { x: across(cost[1]), y: y - 3, w: across(cost[2]) - across(cost[1]), h: 6 };
    const vertical = { x: x - 3, y: down(score[2]), w: 6, h: down(score[1]) - down(score[2]) };
    return { text: method, x, y, bars: [horizontal, vertical] };
  });
  const labels = placedLabels(pixels, width, high).map((label, index) => ({
    x: Math.log10(points[index].cost[0]), y: points[index].score[0], text: plain(points[index].method), font: { size: 12 }, borderpad: 0,
    ...(label.reach > 9 ? { showarrow: true, ax: label.ax, ay: label.ay, arrowhead: 0, arrowwidth: 0.8, arrowcolor: themed("--soft"), standoff: 5 }
      : { showarrow: false, xshift: label.ax, yshift: -label.ay }),
  }));
  Plotly.react(chart, Object.keys(KINDS).filter(kind => points.some(point => point.kind === kind)).map(kind => costTrace(kind, points)), chartLayout({
    height, margin: { ...MARGIN, t: MARGIN.t + 28 }, annotations: labels, showlegend: true, legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    xaxis: axis("milliseconds per sample (logarithmic)", { type: "log", range: xs, dtick: xs[1] - xs[0] > 1 ? 1 : "D2", exponentformat: "none" }),
    yaxis: axis(data.quality.label, { range: ys }),
  }), CHART);
}

let drawnWidth = 0;
new ResizeObserver(() => {
  const width = byId("cost-chart").clientWidth;
  if (width && width !== drawnWidth) { drawnWidth = width; drawCost(); }
}).observe(byId("cost-chart"));
listen("place", drawCost);
listen("theme", drawCost);
