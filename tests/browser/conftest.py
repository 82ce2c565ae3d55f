"""A real browser, driven from outside; without one these tests are left out, and the end of the run says so."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from agop.runs.spec import RunSpec

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
LOCAL = ("file:", "data:", "blob:")
# As `agop bench xai-tris --quick`, but long enough for several snapshots.
SPEC = RunSpec(
    "xai-tris", ("linear", "translations_rotations"), ("uncorrelated", "correlated"), 2,
    ("random", "vanilla", "gradcam", "agop-weighted", "agop-global"),
    ("iou", "energy", "average_precision", "deletion"), epochs=6, test_images=100,
)  # fmt: skip
RUN = """
import sys
from pathlib import Path
from agop.bench.beginning import begin
from agop.bench.runner import run
from agop.runs.spec import RunSpec

begin(RunSpec.load(Path(sys.argv[1])), Path(sys.argv[2]))
run(RunSpec.load(Path(sys.argv[1])), Path(sys.argv[2]), 2)
"""


def leave_out(why):
    if os.environ.get("AGOP_BROWSER") == "required":
        pytest.fail(f"AGOP_BROWSER=required, but {why}")
    pytest.skip(f"browser tests left out: {why}")


def chromium():
    """Where the browser is, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("AGOP_CHROMIUM") or next((found for name in names if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def driver():
    """What drives a browser, and where the browser is."""
    path = chromium()
    if path is None:
        leave_out("no chromium found; apt-get install chromium, or say where it is in AGOP_CHROMIUM")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        leave_out("no playwright; pip install playwright")
    return sync_playwright, path


# Not for the session: while it is there, an event loop runs in this thread, which other tests would meet.
@pytest.fixture(scope="module")
def browser(driver):
    drive, path = driver
    with drive() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Heard:
    """What a page complained about, and what it asked the network for."""

    errors: list[Any] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def heard():
    return Heard()


@contextmanager
def opened(browser, heard):
    """A page with an empty profile; it may not end with an error on its console or a request that left the file."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light", accept_downloads=True)
    page = context.new_page()
    page.on("console", lambda message: heard.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: heard.errors.append(str(error)))
    page.on("request", lambda ask: None if ask.url.startswith(LOCAL) else heard.requests.append(ask.url))
    yield page
    context.close()
    assert heard.errors == []
    assert heard.requests == []


@pytest.fixture
def page(browser, heard):
    with opened(browser, heard) as page:
        yield page


@pytest.fixture(scope="session")
def folder(tmp_path_factory, driver):
    """A run by the real bench; not made where no browser could look at it."""
    out = tmp_path_factory.mktemp("page") / "run"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    SPEC.save(out.with_name("wanted"))
    for arguments in (["-c", RUN, out.with_name("wanted"), out], ["-m", "agop", "report", out]):
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
    assert f"wrote {out / 'index.html'}" in done.stdout
    return out


@pytest.fixture
def report(page, folder):
    page.goto((folder / "index.html").as_uri())
    return page


@pytest.fixture(scope="module")
def still(browser, folder):
    """The page of the run for tests that only read it: opened once for all of them."""
    with opened(browser, Heard()) as page:
        page.goto((folder / "index.html").as_uri())
        page.wait_for_selector("#cost-chart .main-svg")
        yield page
