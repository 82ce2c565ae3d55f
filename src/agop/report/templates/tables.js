// Each table is one Tab stop; the arrow keys move inside it.
function addArrowKeys(table) {
  const step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const at = (row, column) => table.tBodies[0].rows[row]?.cells[column]?.querySelector(".figure");
  let current = at(0, 1);
  if (!current) return;
  current.tabIndex = 0;
  table.addEventListener("keydown", event => {
    const cell = event.target.closest("td"), move = step[event.key];
    if (!cell || !move || event.ctrlKey || event.metaKey || event.altKey) return;
    const next = at(cell.parentNode.sectionRowIndex + move[0], cell.cellIndex + move[1]);
    event.preventDefault();
    if (next) next.focus();
  });
  table.addEventListener("focusin", event => {
    const figure = event.target.closest(".figure");
    if (!figure) return;
    current.tabIndex = -1;
    current = figure;
    current.tabIndex = 0;
  });
}

for (const table of document.querySelectorAll("table.figures")) {
  addArrowKeys(table);
}

function showIntervals() {
  for (const table of document.querySelectorAll("table.figures")) table.classList.toggle("with-intervals", byId("intervals").checked);
}
byId("intervals").addEventListener("change", showIntervals);
showIntervals();
