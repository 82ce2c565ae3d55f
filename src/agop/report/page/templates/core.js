const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function bytes(text) {
  return Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
}

// Plotly reads tags in its texts; a name from the run is only text.
function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function themed(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function tell(what) {
  document.dispatchEvent(new CustomEvent(what));
}

function hear(what, then) {
  document.addEventListener(what, then);
}
