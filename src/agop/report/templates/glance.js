function showGrid() {
  const metric = byId("metric").value;
  for (const grid of document.querySelectorAll(".grid")) grid.classList.toggle("chosen", grid.dataset.metric === metric);
}

// A bar for each method, in the order of the table.
function drawBars() {
  const metric = byId("metric").value, scores = chosenPlace.scores[metric], chart = byId("bars");
  const order = [...document.querySelectorAll(".grid.chosen tbody [data-method]")].map(row => row.dataset.method);
  const known = order.map(method => [method, scores[data.methods.indexOf(method)]]).filter(([, score]) => score);
  const traces = Object.keys(KINDS).map(kind => {
    const own = known.filter(([method]) => data.kinds[method] === kind), colour = themed(KINDS[kind].colour);
    return {
      type: "bar", orientation: "h", y: own.map(([method]) => plain(method)), x: own.map(([, score]) => score[0]),
      marker: { color: colour, opacity: 0.75 }, hovertemplate: "%{y}: %{x:.3f}<extra></extra>",
      error_x: {
        type: "data", symmetric: false, thickness: 1.5, width: 3, color: themed("--ink"),
        array: own.map(([, score]) => score[2] - score[0]), arrayminus: own.map(([, score]) => score[0] - score[1]),
      },
    };
  });
  Plotly.react(chart, traces, chartLayout({
    height: 60 + 23 * known.length, margin: { l: 8, r: 8, t: 6, b: 44 }, bargap: 0.25, barmode: "overlay", showlegend: false,
    xaxis: axis(`${data.metrics[metric]} on ${chosenPlace.name}`, { type: metric === "milliseconds" ? "log" : "linear", exponentformat: "none" }),
    yaxis: { automargin: true, autorange: "reversed", categoryorder: "array", categoryarray: order.map(plain), tickfont: { size: 12 } },
  }), CHART);
  Plotly.Plots.resize(chart);  // the table of another metric may be narrower
}

byId("metric").addEventListener("change", () => { showGrid(); drawBars(); });
byId("task").addEventListener("change", () => choosePlace(data.places[byId("task").value]));
listen("place", () => { byId("task").value = data.places.indexOf(chosenPlace); drawBars(); });
listen("theme", drawBars);
showGrid();
