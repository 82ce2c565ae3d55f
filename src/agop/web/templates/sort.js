// A click on a column's header sorts by the `data-value` of its cells, as text or as numbers.
// `data-first` is the order of the first click; the next click reverses it.
function sortBy(head) {
  const first = head.dataset.first || "ascending", other = first === "ascending" ? "descending" : "ascending";
  const order = head.getAttribute("aria-sort") === first ? other : first;
  for (const each of head.parentNode.querySelectorAll("[aria-sort]")) each.setAttribute("aria-sort", each === head ? order : "none");
  const sign = order === "ascending" ? 1 : -1, text = head.dataset.kind === "text";
  const compare = (a, b) => {
    const [x, y] = [a, b].map(row => row.cells[head.cellIndex].dataset.value);
    if (x === "" || y === "") return (x === "") - (y === "");  // undefined last in both orders
    return sign * (text ? x.localeCompare(y, undefined, { numeric: true }) : x - y);
  };
  const body = head.closest("table").tBodies[0];
  body.append(...[...body.rows].sort(compare));
}

for (const button of document.querySelectorAll("button.sort")) button.addEventListener("click", () => sortBy(button.closest("th")));
