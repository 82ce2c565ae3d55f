function showGrid() {
  const wanted = byId("metric").value;
  for (const grid of document.querySelectorAll(".grid")) grid.classList.toggle("chosen", grid.dataset.metric === wanted);
}

byId("metric").addEventListener("change", showGrid);
showGrid();
