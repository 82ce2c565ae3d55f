"""The README's screenshots of the report and the app, by a real browser: `make_screenshots.py RUN FOLDER`."""

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
AGOP = (sys.executable, "-m", "agop")


def main() -> None:
    """Every picture, into the folder."""
    run, folder = Path(sys.argv[1]), Path(sys.argv[2])
    chromium = os.environ.get("AGOP_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no chromium found: apt-get install chromium, or say where it is in AGOP_CHROMIUM")
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = Path(made) / "report.html"
        subprocess.run([*AGOP, "report", str(run), "--out", str(page)], check=True)
        report(browser, page, folder)
        app(browser, folder)
        browser.close()


def report(browser: Browser, path: Path, folder: Path) -> None:
    """The grid in the light, the gallery in the dark, the convergence a quarter of the way."""
    for scheme, section in (("light", "glance"), ("dark", "gallery"), ("light", "convergence")):
        page = opened(browser, path.as_uri(), (1180, 1700), scheme)
        page.wait_for_selector("#convergence .js-plotly-plot")
        if section == "convergence":
            slider = page.locator("#convergence input[type=range]")
            slider.fill(str(int(slider.get_attribute("max") or 0) // 4))
        part = page.locator(".grid[data-metric=iou]" if section == "glance" else f"#{section}").first
        part.scroll_into_view_if_needed()
        page.wait_for_timeout(500)  # the chart is drawn anew
        part.screenshot(path=folder / f"report-{section}.png")
        page.context.close()


def app(browser: Browser, folder: Path) -> None:
    """The example's first picture, explained."""
    with served() as address:
        page = opened(browser, address, (1400, 820), "light")
        page.locator("#examples button").first.click()
        page.wait_for_selector(".agop-card", timeout=60_000)
        page.wait_for_timeout(1000)  # the progress bar goes
        page.screenshot(path=folder / "app.png")
        page.context.close()


def opened(browser: Browser, address: str, size: tuple[int, int], scheme: str) -> Page:
    """A page of its own, in a window of that size."""
    width, height = size
    context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(address)
    return page


@contextmanager
def served() -> Iterator[str]:
    """The address of a running app."""
    with subprocess.Popen([*AGOP, "app", "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            told = process.stdout.readline() if process.stdout else ""
            yield re.findall(r"http://\S+", told)[0]
        finally:
            process.send_signal(signal.SIGINT)


if __name__ == "__main__":
    main()
