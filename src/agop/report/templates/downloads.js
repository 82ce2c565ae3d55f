async function unpackFile(id) {
  const packed = new Blob([bytes(byId(id).textContent)]);
  return new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).blob();
}

for (const link of document.querySelectorAll("a[data-raw]")) {
  link.addEventListener("click", async event => {
    event.preventDefault();
    const address = URL.createObjectURL(await unpackFile(link.dataset.raw));
    element("a", { href: address, download: link.getAttribute("download") }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  });
}

choosePlace();
showTheme();
