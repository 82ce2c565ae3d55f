let playing = null;
const LINES = [["--line-1", "solid"], ["--line-2", "dash"], ["--other", "dot"], ["--line-3", "dashdot"]];

function curveTraces(name, curve, line, yaxis) {
  const [colour, dash] = [themed(line[0]), line[1]];
  const band = { x: [...curve.steps, ...[...curve.steps].reverse()], y: [...curve.high, ...[...curve.low].reverse()] };
  return [
    { ...band, yaxis, type: "scatter", mode: "lines", fill: "toself", fillcolor: colour, opacity: 0.18, line: { width: 0 }, hoverinfo: "skip", showlegend: false },
    { x: curve.steps, y: curve.mean, yaxis, type: "scatter", mode: curve.steps.length > 1 ? "lines" : "markers", name: plain(name), line: { color: colour, width: 2, dash }, marker: { color: colour }, hovertemplate: "%{y:.3f}" },
  ];
}

function currentFrame() {
  const frames = chosenCell().training?.frames;
  return frames ? { frames, index: Math.min(Number(byId("step").value), frames.steps.length - 1) } : null;
}

function stepLine() {
  const frame = currentFrame();
  if (!frame) return [];
  const x = frame.frames.steps[frame.index];
  return [{ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: themed("--ink"), width: 1.5 } }];
}

function drawCurves() {
  const training = chosenCell().training;
  byId("no-convergence").hidden = Boolean(training);
  byId("convergence-chart").hidden = byId("frames").hidden = !training;
  if (!training) return;
  const metric = byId("convergence-metric").value, accuracy = training.curves.model?.accuracy;
  const methods = Object.keys(training.curves).filter(method => metric in training.curves[method] && method !== "model");
  const traces = methods.flatMap((method, place) => curveTraces(method, training.curves[method][metric], LINES[place % 3], "y"));
  if (accuracy) traces.push(...curveTraces("accuracy", accuracy, LINES[3], "y2"));
  const seeds = Math.max(...traces.map(() => 1), ...methods.map(method => training.curves[method][metric].seeds));
  const title = `training step${seeds > 1 ? ` (mean and range of ${seeds} seeds)` : ""}`;
  Plotly.react(byId("convergence-chart"), traces, chartLayout({
    height: 420, margin: { l: 62, r: 12, t: 36, b: 52 }, hovermode: "x unified", shapes: stepLine(),
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    xaxis: axis(title, { rangemode: "tozero", anchor: accuracy ? "y2" : "y" }),
    yaxis: axis(data.metrics[metric] ?? metric, { domain: accuracy ? [0.45, 1] : [0, 1], rangemode: "tozero" }),
    yaxis2: axis("accuracy", { domain: [0, 0.36], rangemode: "tozero", visible: Boolean(accuracy) }),
  }), CHART);
}

function drawFrame() {
  const frame = currentFrame();
  byId("frames").hidden = !frame;
  if (!frame) return;
  const { frames, index } = frame, size = frames.rows * frames.columns;
  frames.values ??= bytes(frames.bytes);
  drawMap(byId("frame"), frames.values.subarray(index * size, (index + 1) * size), frames.rows, frames.columns, commonScale(1, 1));
  byId("frame").style.aspectRatio = `${frames.columns} / ${frames.rows}`;
  byId("frame-title").textContent = `diag(M) of seed 0 after step ${frames.steps[index].toLocaleString("en")} of ${frames.steps.at(-1).toLocaleString("en")}, channels summed, same scale at all steps`;
  byId("step").setAttribute("aria-valuetext", `step ${frames.steps[index]}`);
  drawRamp(byId("frame-ramp"));
  drawTicks(byId("frame-ticks"), place => place === 0 ? "0" : (place * place * frames.top).toPrecision(2));
}

function showStep() {
  drawFrame();
  if (chosenCell().training) Plotly.relayout(byId("convergence-chart"), { shapes: stepLine() });
}

function play(on) {
  clearInterval(playing);
  playing = on ? setInterval(nextStep, 120) : null;
  byId("play").textContent = on ? "❚❚ pause" : "▶ play";
  byId("play").setAttribute("aria-pressed", String(on));
}

function nextStep() {
  const slider = byId("step");
  if (Number(slider.value) >= Number(slider.max)) { play(false); return; }
  slider.value = Number(slider.value) + 1;
  showStep();
}

function showTraining() {
  const frames = chosenCell().training?.frames;
  play(false);
  if (frames) {
    byId("step").max = frames.steps.length - 1;
    byId("step").value = frames.steps.length - 1;
  }
  drawCurves();
  drawFrame();
}

function fillMetrics() {
  const measured = new Set(data.cells.flatMap(cell => Object.entries(cell.training?.curves ?? {}).flatMap(([method, curves]) => method === "model" ? [] : Object.keys(curves))));
  const order = Object.keys(data.metrics).filter(metric => measured.has(metric));
  byId("convergence-metric").replaceChildren(...order.map(metric => element("option", { value: metric }, data.metrics[metric])));
  if (measured.has(data.quality.name)) byId("convergence-metric").value = data.quality.name;
}

if (byId("convergence")) {
  fillMetrics();
  byId("convergence-metric").addEventListener("change", drawCurves);
  byId("step").addEventListener("input", () => { play(false); showStep(); });
  byId("play").addEventListener("click", () => {
    if (!playing && byId("step").value === byId("step").max) byId("step").value = 0;
    play(!playing);
    showStep();
  });
  listen("place", showTraining);
  listen("theme", drawCurves);
}
