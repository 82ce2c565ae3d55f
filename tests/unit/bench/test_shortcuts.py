"""`agop bench shortcuts`: cases, detectors, and a small run."""

import numpy as np
import pytest
import torch
from torch import nn

import agop
from agop.bench.shortcuts.detectors import DETECTORS, by_reading, laplacian
from agop.bench.shortcuts.models import measured_place, measured_use
from agop.bench.shortcuts.run import cases
from agop.runs.shortcuts import read_results
from agop.scenarios.shortcuts.plants import KINDS
from agop.scenarios.shortcuts.task import Case, Source, planted_task
from tests.command import run_checked


def test_every_kind_strength_and_prevalence_is_a_case_and_clean_models_are_one_case_per_seed():
    listed = cases(list(KINDS), ["confounder", "balanced"], ["strong", "weak"], range(2))
    names = [case.name for case in listed]
    assert len(set(names)) == len(names) == 2 * (6 * 3 + 1)
    assert names.count("clean-none-strong-000") == 1
    assert {case.strength for case in listed if case.prevalence == "balanced"} == {"strong"}


def points(seed=0, *clusters):
    random = np.random.default_rng(seed)
    return np.concatenate([mean + random.standard_normal((count, 5)) for count, mean in clusters])


def test_laplacian_is_that_of_scikit_learn():
    neighbors = pytest.importorskip("sklearn.neighbors")
    csgraph = pytest.importorskip("scipy.sparse.csgraph")
    values = points(0, (30, 0.0))
    graph = neighbors.kneighbors_graph(values, 8, include_self=False)
    expected = csgraph.laplacian((graph + graph.T) / 2, normed=True).toarray()
    np.testing.assert_allclose(laplacian(values), expected, atol=1e-12)


def test_each_cluster_is_an_eigenvalue_zero():
    for clusters in ([(40, 0.0)], [(20, 0.0), (20, 100.0)], [(15, 0.0), (15, 100.0), (15, -100.0)]):
        eigenvalues = np.linalg.eigvalsh(laplacian(points(0, *clusters)))
        assert int((eigenvalues < 1e-9).sum()) == len(clusters)
        assert eigenvalues.min() > -1e-9
        assert eigenvalues.max() <= 2 + 1e-9


class PlantReader(nn.Module):
    """Predicts the target class from the pixels of the plant alone."""

    def __init__(self, task):
        super().__init__()
        region = torch.from_numpy(task.plant.fixed)
        planted, without = (images[:, :, region].mean(dim=0) for images in (task.planted, task.without))
        self.region, self.target = region, task.target
        self.weight = nn.Parameter((planted - without) / (planted - without).norm())
        self.middle = float(((planted + without) / 2 * self.weight.detach()).sum())

    def forward(self, images):
        score = (images[:, :, self.region] * self.weight).sum(dim=(1, 2)) - self.middle
        logits = torch.full((len(images), 2), 3.0)
        logits[:, self.target] = 3 + 5 * score
        return logits


@pytest.fixture(scope="module")
def reader():
    """A task with a patch, a model that looks at nothing else, and its prior."""
    task = planted_task(Case("patch", "confounder", "strong", 0), Source(classes=2, samples=400))
    model = PlantReader(task).eval()
    batches = [(task.training.images, task.training.labels)]
    return model, task, agop.fit(model, batches, per_class=True, only_correct=False, progress=False, patches=False)


def test_use_of_a_model_that_reads_the_plant(reader):
    model, task, _ = reader
    use = measured_use(model, task)
    has = task.test.masks.flatten(1).any(dim=1)
    assert use.accuracy == pytest.approx(float((has == (task.test.labels == task.target)).double().mean()), abs=0.02)
    assert use.drop > 0.9
    assert use.change > 0.5


def test_place_of_a_model_that_reads_the_plant(reader):
    model, task, prior = reader
    place = measured_place(model, task, prior)
    assert place.fixed
    assert place.share == pytest.approx(1 / task.plant.fixed.mean(), rel=1e-3)  # the whole diagonal is there
    assert place.transplant > 0.3


@pytest.mark.parametrize("name", ["agop-global", "integrated-gradients"])
def test_mean_maps_name_the_plant(reader, name):
    model, task, prior = reader
    detection = by_reading(name, model, task, prior)
    assert detection.found is None
    assert detection.alarm > 0.5
    assert detection.iou > 0.3


@pytest.mark.slow
def test_small_run_resumes(tmp_path):
    command = ("bench", "shortcuts", "--quick", "--kind", "patch", "--prevalence", "confounder", "--strength", "strong",
               "--seeds", "1", "--classes", "2", "--jobs", "1", "--out", "run")  # fmt: skip
    first = run_checked(*command, folder=tmp_path)
    (result,) = read_results(tmp_path / "run")
    assert (result.kind, result.prevalence, result.seed) == ("patch", "confounder", 0)
    assert set(result.detections) == set(DETECTORS)
    assert all(detection.seconds > 0 for detection in result.detections.values())
    assert (tmp_path / "run/report.md").read_text() in first.stdout
    assert not (tmp_path / "run/training").exists()
    path = next((tmp_path / "run/models").iterdir())
    written = path.stat().st_mtime_ns
    again = run_checked(*command, folder=tmp_path)
    assert path.stat().st_mtime_ns == written  # nothing was computed
    assert again.stdout == first.stdout
