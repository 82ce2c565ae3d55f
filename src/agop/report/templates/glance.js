function showGrid() {
  const metric = byId("metric").value;
  for (const grid of document.querySelectorAll(".grid")) grid.classList.toggle("chosen", grid.dataset.metric === metric);
}

byId("metric").addEventListener("change", showGrid);
showGrid();
