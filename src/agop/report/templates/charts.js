const CHART = { displayModeBar: false, responsive: true };

function axis(title, more = {}) {
  return {
    title: { text: plain(title), standoff: 8, font: { size: 13 } }, gridcolor: themed("--rule"), linecolor: themed("--soft"), zeroline: false,
    ticks: "outside", tickcolor: themed("--soft"), ...more,
  };
}

function chartLayout(more) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false,
    font: { color: themed("--ink"), family: getComputedStyle(document.body).fontFamily, size: 13 },
    hoverlabel: { bgcolor: themed("--raised"), bordercolor: themed("--rule"), font: { color: themed("--ink") } },
    ...more,
  };
}
