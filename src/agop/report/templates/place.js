let chosenPlace = data.places[0];
const PARTS = ["scenario", "background", "masks"];

// The place that matches the selection best; the scenario counts most.
function closest(selection) {
  const agreement = place => PARTS.reduce((sum, part, index) => sum + (place[part] === selection[part] ? 4 >> index : 0), 0);
  return data.places.reduce((best, place) => agreement(place) > agreement(best) ? place : best);
}

function choosePlace(place) {
  if (byId("place")) {
    chosenPlace = place ?? closest(Object.fromEntries(PARTS.map(part => [part, byId(part).value])));
    for (const part of PARTS) {
      byId(part).value = chosenPlace[part];
      for (const option of byId(part).options) {
        option.disabled = part !== "scenario" && !data.places.some(place => place.scenario === chosenPlace.scenario && place[part] === option.value);
      }
    }
  }
  const index = String(data.places.indexOf(chosenPlace));
  for (const part of document.querySelectorAll(".at-place")) part.classList.toggle("chosen", part.dataset.place === index);
  emit("place");
}

function chosenCell() {
  return data.cells[chosenPlace.cell];
}

if (byId("place")) {
  byId("place").addEventListener("change", () => choosePlace());
  byId("place").addEventListener("submit", event => event.preventDefault());
}
