"""Take the README's screenshots of the report and the app in a real browser: `make_screenshots.py RUN FOLDER`."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Resolves when the browser has painted all pending changes.
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
AGOP = (sys.executable, "-m", "agop")


def main() -> None:
    """Write all screenshots into the folder."""
    run, folder = Path(sys.argv[1]), Path(sys.argv[2])
    chromium = os.environ.get("AGOP_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("chromium not found: apt-get install chromium, or set AGOP_CHROMIUM to its path")
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = Path(temporary) / "report.html"
        subprocess.run([*AGOP, "report", str(run), "--out", str(page)], check=True)
        report(browser, page, folder)
        app(browser, folder)
        browser.close()


def report(browser: Browser, path: Path, folder: Path) -> None:
    """The summary in light colours, the gallery in dark ones, the convergence after a quarter of the steps."""
    for scheme, section in (("light", "glance"), ("dark", "gallery"), ("light", "convergence")):
        page = open_page(browser, path.as_uri(), (1180, 1700), scheme)
        page.wait_for_selector("#convergence .js-plotly-plot")
        page.wait_for_selector("#bars .main-svg")
        if section == "convergence":
            slider = page.locator("#convergence input[type=range]")
            slider.fill(str(int(slider.get_attribute("max") or 0) // 4))
        part = page.locator(".together" if section == "glance" else f"#{section}").first
        part.scroll_into_view_if_needed()
        page.evaluate(TWO_FRAMES)
        part.screenshot(path=folder / f"report-{section}.png")
        page.context.close()


def app(browser: Browser, folder: Path) -> None:
    """The first example image with its explanations."""
    with served() as address:
        page = open_page(browser, address, (1400, 960), "light")
        page.locator("#examples button").first.click()
        page.wait_for_selector(".agop-card", timeout=60_000)
        page.locator(".progress-text").first.wait_for(state="hidden")
        page.evaluate(TWO_FRAMES)
        page.screenshot(path=folder / "app.png")
        page.context.close()


def open_page(browser: Browser, address: str, size: tuple[int, int], scheme: str) -> Page:
    """A new page in a window of this size."""
    width, height = size
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    return page


@contextmanager
def served() -> Iterator[str]:
    """Address of a running app."""
    with subprocess.Popen([*AGOP, "app", "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            # Lines about the images come before the address.
            yield next(match[0] for line in process.stdout or () if (match := re.search(r"http://\S+", line)))
        finally:
            process.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
