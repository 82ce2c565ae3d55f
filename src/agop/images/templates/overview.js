// The maps of an image, large while the pointer or the focus is on its small ones. A click opens the file.
const large = document.createElement("img");
large.id = "large";
large.alt = "";
large.hidden = true;
document.body.append(large);
for (const link of document.querySelectorAll(".pictures a")) {
  const show = () => { large.src = link.href; large.hidden = false; };
  for (const name of ["mouseenter", "focus"]) link.addEventListener(name, show);
  for (const name of ["mouseleave", "blur"]) link.addEventListener(name, () => { large.hidden = true; });
}
