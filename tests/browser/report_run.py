"""A small run of the real bench and its page, shared by all report tests. A pytest plugin of those test modules."""

import os
from dataclasses import replace
from itertools import groupby

import pytest
import torch
from filelock import FileLock

from agop import scenarios
from agop.bench.cell import run_cells
from agop.bench.run_folder import begin
from agop.report.page import page as page_text
from agop.report.run import Run
from agop.runs.rows import collect
from agop.runs.spec import RunSpec
from tests.browser.conftest import Traffic, open_page

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
            (folder / "index.html").write_text(page_text(Run(folder)))
    return folder


def _compute(folder):
    """All cells, trained fast on few images, with a snapshot after every epoch."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch, torch.random.fork_rng():
        patch.setattr("agop.scenarios.xai_tris_8x8._IMAGES", 1000)
        for name in SPEC.scenarios:
            scenario = scenarios.get(name)
            recipe = replace(scenario.recipe, snapshot_every=None, batch=32, learning_rate=3e-3)
            patch.setitem(scenarios.registry._plugins, name, replace(scenario, recipe=recipe))
        for _, cells in groupby(SPEC.cells(), lambda cell: (cell.scenario, cell.background)):
            run_cells(SPEC, list(cells), folder, lambda done: None)
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
