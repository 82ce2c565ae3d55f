const prefersDark = matchMedia("(prefers-color-scheme: dark)");

function isDark() {
  const told = document.documentElement.dataset.theme;
  return told ? told === "dark" : prefersDark.matches;
}

function showTheme() {
  byId("theme").textContent = isDark() ? "Light" : "Dark";
  byId("theme").setAttribute("aria-label", isDark() ? "switch to light colours" : "switch to dark colours");
  tell("theme");
}

byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  showTheme();
});
prefersDark.addEventListener("change", showTheme);
