"""A run of the real bench and its page, shared by all report tests. A pytest plugin of those test modules."""

import os
import subprocess
import sys

import pytest
from filelock import FileLock

from tests.browser.conftest import RUN, SPEC, Traffic, open_page


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory, driver):
    """Run folder with its index.html. Workers of pytest-xdist share it: the first one makes it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = base / "report-run"
    with FileLock(base / "report-run.lock", timeout=600):
        if not (folder / "index.html").exists():
            SPEC.save(base / "report-run-spec")
            _python("-c", RUN, base / "report-run-spec", folder)
            assert f"wrote {folder / 'index.html'}" in _python("-m", "agop", "report", folder)
    return folder


def _python(*arguments):
    command = [sys.executable, *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def report(page, run_folder):
    """The run's page, freshly opened."""
    page.goto((run_folder / "index.html").as_uri())
    return page


@pytest.fixture(scope="module")
def shared_report(browser, run_folder):
    """The run's page for tests that only read it, opened once per module."""
    with open_page(browser, Traffic()) as page:
        page.goto((run_folder / "index.html").as_uri())
        page.wait_for_selector("#cost-chart .main-svg")
        yield page
