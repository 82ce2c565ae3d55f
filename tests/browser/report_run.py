"""A small run of the real bench and its page, shared by all report tests. A pytest plugin of those test modules."""

import os
import sys
from dataclasses import replace
from itertools import groupby

import pytest
import torch
from filelock import FileLock

from agop.bench import scenarios
from agop.bench.runner import begin, run_cells
from agop.report.folder import RunSpec, collect
from tests.browser.conftest import Traffic, open_page
from tests.command import run_checked

SPEC = RunSpec(
    "xai-tris", ("linear", "translations_rotations"), ("uncorrelated", "correlated"), 2,
    ("random", "vanilla", "gradcam", "agop-weighted", "agop-global"),
    ("iou", "energy", "average_precision", "deletion"), epochs=4, test_images=20,
)  # fmt: skip


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory, driver):
    """Run folder with its index.html. Workers of pytest-xdist share it: the first one makes it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = base / "report-run"
    with FileLock(base / "report-run.lock", timeout=600):
        if not (folder / "index.html").exists():
            begin(SPEC, folder)
            _compute(folder)
            run_checked("report", folder, folder=base)
    return folder


def _compute(folder):
    """All cells, trained fast on few images, with a snapshot after every epoch."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        patch.setattr(sys.modules[scenarios.xai_tris.__module__], "_IMAGES", 1000)
        for name in SPEC.scenarios:
            scenario = scenarios.get(name)
            recipe = replace(scenario.recipe, snapshot_every=None, batch=32, learning_rate=3e-3)
            patch.setitem(scenarios.registry.plugins, name, replace(scenario, recipe=recipe))
        for _, cells in groupby(SPEC.cells(), lambda cell: (cell.scenario, cell.background)):
            run_cells(SPEC, folder, list(cells), lambda done: None)
    torch.set_num_threads(threads)
    collect(SPEC, folder)


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
