"""A real browser. Without one these tests are skipped, and the end of the run says so."""

import os
import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
LOCAL = ("file:", "data:", "blob:")


def skip(reason):
    if os.environ.get("AGOP_BROWSER") == "required":
        pytest.fail(f"AGOP_BROWSER=required, but {reason}")
    pytest.skip(f"browser tests skipped: {reason}")


def chromium():
    """Path of the browser, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("AGOP_CHROMIUM") or next((path for name in names if (path := shutil.which(name))), None)


@pytest.fixture(scope="session")
def driver():
    """Playwright, and the path of the browser."""
    path = chromium()
    if path is None:
        skip("chromium not found: apt-get install chromium, or set AGOP_CHROMIUM to its path")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip("playwright not found: pip install playwright")
    return sync_playwright, path


# Not for the session: while it is open, an event loop runs in this thread, which would disturb other tests.
@pytest.fixture(scope="module")
def browser(driver):
    drive, path = driver
    with drive() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Traffic:
    """Errors on a page's console, and its requests to the network."""

    errors: list[Any] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def traffic():
    return Traffic()


@contextmanager
def open_page(browser, traffic):
    """A page with an empty profile. At the end: no error on the console, no request beyond the file."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light", accept_downloads=True)
    page = context.new_page()
    page.on("console", lambda message: traffic.errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: traffic.errors.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(LOCAL) else traffic.requests.append(request.url))
    yield page
    context.close()
    assert traffic.errors == []
    assert traffic.requests == []


@pytest.fixture
def page(browser, traffic):
    with open_page(browser, traffic) as page:
        yield page
