const data = JSON.parse(document.getElementById("data").textContent);
const byId = id => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function bytes(text) {
  return Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
}

// Plotly interprets tags in texts; names from the run must stay plain text.
function plain(text) {
  return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

function themed(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function emit(name) {
  document.dispatchEvent(new CustomEvent(name));
}

function listen(name, handler) {
  document.addEventListener(name, handler);
}
