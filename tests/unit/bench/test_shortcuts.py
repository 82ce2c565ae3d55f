"""`agop bench shortcuts`: planted tasks and what they are drawn from, detectors, the report, and a small run."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import agop
from agop.bench import shortcuts
from agop.bench.scenarios import planted as pictures
from agop.bench.scenarios.base import drawn_digits, normalised, pink_noise, shared_out
from agop.bench.scenarios.planted import KINDS, PREVALENCES, STRENGTHS, Case, Source, plant, planted_task
from agop.bench.shortcuts import Detection, ModelResult, ShortcutSpec, laplacian, markdown, read_results
from agop.errors import FileError, InputError
from tests.command import run_checked
from tests.image_files import save

SIDE = 32


def drawn(kind, strength="strong", seed=3, count=6):
    """Random images (N,32,32,3), the same with the plant, masks, and the plant."""
    images = np.random.default_rng(1).random((count, SIDE, SIDE, 3), dtype=np.float32)
    thing = plant(kind, SIDE, strength, seed)
    return images, *thing.draw(images, np.random.default_rng(2)), thing


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_plants_change_their_mask_and_nothing_else(kind, strength, seed):
    before = np.random.default_rng(1).random((6, SIDE, SIDE, 3), dtype=np.float32)
    images, planted, masks, thing = drawn(kind, strength, seed)
    assert np.array_equal(images, before)  # the originals stay
    assert (planted.shape, masks.shape) == (images.shape, images.shape[:3])
    assert 0 <= planted.min() <= planted.max() <= 1
    changed = (planted != images).any(axis=3)
    assert not (changed & ~masks).any()
    assert changed.any() == (kind != "clean")
    assert (thing.fixed is not None) == (kind in ("patch", "watermark", "frame"))
    if thing.fixed is not None:
        assert (masks == thing.fixed).all()
        assert 0 < thing.fixed.mean() < 0.5


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"clean"}))
def test_weak_plants_change_images_less(kind):
    strong, weak = (np.abs(planted - images).mean() for images, planted, *_ in (drawn(kind), drawn(kind, "weak")))
    assert 0.3 * strong < weak < 0.7 * strong


def test_a_sticker_is_the_same_square_at_another_place_of_each_image():
    _, planted, masks, _ = drawn("sticker", count=20)
    tiles, corners = [], set()
    for image, mask in zip(planted, masks, strict=True):
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        assert mask.sum() == len(rows) * len(columns)
        assert len(rows) == len(columns) <= SIDE // 5
        tiles.append(image[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1])
        corners.add((rows[0], columns[0]))
    assert all(np.array_equal(tile, tiles[0]) for tile in tiles)
    assert len(corners) > 10


def task(kind="patch", prevalence="confounder", seed=0, **options):
    return planted_task(Case(kind, prevalence, "strong", seed), Source(**{"samples": 2000, "classes": 4} | options))


@pytest.mark.slow
def test_same_seed_same_data():
    first, second, other = task("sticker"), task("sticker"), task("sticker", seed=1)
    assert torch.equal(first.training.images, second.training.images)
    assert torch.equal(first.test.labels, second.test.labels)
    assert torch.equal(first.planted, second.planted)
    assert not torch.equal(first.training.images, other.training.images)


@pytest.mark.parametrize("prevalence", PREVALENCES)
def test_prevalences_are_those_of_the_target_and_of_the_others(prevalence):
    data = task(prevalence=prevalence)
    for share, of_target in zip(PREVALENCES[prevalence], (True, False), strict=True):
        own = (data.training.labels == data.target) == of_target
        has = data.training.masks[own].flatten(1).any(dim=1).double()
        assert abs(float(has.mean()) - share) <= 4 * np.sqrt(share * (1 - share) / len(has))


def test_test_images_are_those_with_or_without_the_plant():
    data = task()
    has = data.test.masks.flatten(1).any(dim=1)
    assert torch.equal(data.test.images, torch.where(has[:, None, None, None], data.planted, data.without))
    outside = ~torch.from_numpy(data.plant.fixed)
    assert torch.equal(data.planted[..., outside], data.without[..., outside])
    counts = [len(split.labels) for split in (data.training, data.validation, data.test)]
    assert counts == [1300, 100, 600]
    assert torch.cat([data.training.labels, data.validation.labels, data.test.labels]).bincount().tolist() == [500] * 4


@pytest.mark.slow
def test_drawn_digits_can_be_read():
    """Each differs from the background by more than the noise, in one channel at least."""
    images, _ = pictures.labelled_images(None, 28)
    digits, _ = drawn_digits(len(images), np.random.default_rng(0))
    for image, digit in zip(images[:200], digits, strict=False):
        difference = image[digit > 200].mean(axis=0) - image[digit == 0].mean(axis=0)
        assert difference.max() > 90


@pytest.mark.slow
def test_labels_choose_the_classes():
    """A task of digits 3 and 8 has their images as classes 0 and 1."""
    data = task("clean", "none", classes=2, samples=200, labels=(8, 3))
    images, labels = pictures.labelled_images(None, SIDE)
    originals = [normalised(images[labels == label]) for label in (3, 8)]
    assert set(data.test.labels.tolist()) == {0, 1}
    for image, label in zip(data.test.images[:10], data.test.labels.tolist(), strict=False):
        assert (originals[label] == image).flatten(1).all(dim=1).any()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"classes": 1}, "classes is 1: pass 2 or more"),
        ({"samples": 100}, "samples is 100: pass 60 or more per class"),
        ({"classes": 11}, "10 classes, fewer than 11"),
        ({"classes": 2, "labels": (0, 12)}, "label 12 isn't one of 0, 1"),
    ],
)
def test_impossible_tasks_raise(options, problem):
    with pytest.raises(InputError, match=problem):
        task(**options)


def test_class_folders_and_too_few_images(tmp_path):
    for label, level in (("dark", 0), ("light", 255)):
        for place in range(3):
            save(tmp_path / label / f"{place}.png", np.full((40, 40, 3), level))
    images, labels = pictures.labelled_images(tmp_path, SIDE)
    assert images.shape == (6, SIDE, SIDE, 3)
    assert labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert np.array_equal(images[:, 0, 0, 0], [0, 0, 0, 255, 255, 255])
    with pytest.raises(InputError, match="a class has 3 images: pass data with 60 or more"):
        task(data=str(tmp_path), classes=2)


def test_amplitude_of_pink_noise_falls_with_the_frequency_and_images_are_normalised():
    noise = pink_noise(1100, 32, np.random.default_rng(0))
    assert noise.shape == (1100, 32, 32)
    np.testing.assert_allclose(noise.mean((1, 2)), 0, atol=1e-5)
    np.testing.assert_allclose(noise.std((1, 2)), 1, rtol=1e-4)
    amplitude = np.abs(np.fft.fft2(noise)).mean(0)
    for frequency in (1, 2, 4):
        assert np.isclose(amplitude[0, frequency] / amplitude[0, 2 * frequency], 2, rtol=0.1)


def test_digits_are_balanced_distinct_and_recognisable():
    images, labels = drawn_digits(600, np.random.default_rng(0))
    assert images.shape == (600, 28, 28)
    assert (np.bincount(labels) == 60).all()
    assert len(np.unique(images, axis=0)) == 600
    assert (images.max((1, 2)) > 200).all()
    edge = np.concatenate([images[:, [0, -1]], images[:, :, [0, -1]].transpose(0, 2, 1)], axis=1)
    assert not edge.any()
    # The nearest mean image has the right label for most: digits of a class resemble one another.
    means = np.stack([images[:300][labels[:300] == digit].mean(0) for digit in range(10)])
    distances = np.square(images[300:, None].astype(float) - means).sum((2, 3))
    assert (distances.argmin(1) == labels[300:]).mean() > 0.8


PARTS = np.split(np.random.default_rng(1).permutation(200), [160, 180])


@pytest.mark.parametrize("pool", [10, 40, 199, 1000])
def test_no_item_is_in_two_parts_and_repeats_are_even(pool):
    chosen = shared_out(pool, PARTS, np.random.default_rng(0))
    assert 0 <= chosen.min() <= chosen.max() < pool
    items = [set(chosen[part]) for part in PARTS]
    assert sum(map(len, items)) == len(set.union(*items))
    for part in PARTS:
        _, counts = np.unique(chosen[part], return_counts=True)
        assert counts.max() - counts.min() <= 1
    if pool >= 1000:
        assert len(set(chosen)) == 200


def test_too_few_items_raise():
    with pytest.raises(InputError, match="photographs or digits: 9, too few"):
        shared_out(9, PARTS, np.random.default_rng(0))


def test_every_kind_strength_and_prevalence_is_a_case_and_clean_models_are_one_case_per_seed():
    listed = shortcuts.cases(list(KINDS), ["confounder", "balanced"], ["strong", "weak"], range(2))
    names = [case.name for case in listed]
    assert len(set(names)) == len(names) == 2 * (6 * 3 + 1)
    assert names.count("clean-none-strong-000") == 1
    assert {case.strength for case in listed if case.prevalence == "balanced"} == {"strong"}


def test_laplacian_is_that_of_scikit_learn():
    neighbors = pytest.importorskip("sklearn.neighbors")
    csgraph = pytest.importorskip("scipy.sparse.csgraph")
    values = np.random.default_rng(0).standard_normal((30, 5))
    graph = neighbors.kneighbors_graph(values, 8, include_self=False)
    expected = csgraph.laplacian((graph + graph.T) / 2, normed=True).toarray()
    np.testing.assert_allclose(laplacian(values), expected, atol=1e-12)


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


def test_a_model_that_reads_the_plant_uses_it_at_its_place(reader):
    model, task, prior = reader
    use = shortcuts.use_of_plant(model, task)
    has = task.test.masks.flatten(1).any(dim=1)
    assert use["accuracy"] == pytest.approx(float((has == (task.test.labels == task.target)).double().mean()), abs=0.02)
    assert use["drop"] > 0.9
    assert use["change"] > 0.5
    place = shortcuts.place_of_plant(model, task, prior)
    assert place["fixed"]
    assert place["share"] == pytest.approx(1 / task.plant.fixed.mean(), rel=1e-3)  # the whole diagonal is there
    assert place["transplant"] > 0.3


def test_only_a_finding_of_the_planted_class_at_the_plant_is_a_hit(reader):
    """Of a model without a shortcut, every finding is a false alarm."""
    model, task, prior = reader
    elsewhere = replace(task, plant=replace(task.plant, fixed=np.roll(task.plant.fixed, 16, axis=(0, 1))))
    for other, hit in ((task, True), (replace(task, target=1 - task.target), False), (elsewhere, False)):
        found = [shortcuts.by_audit(model, other, prior, confounded=each)[0].found for each in (True, False)]
        assert found == [hit, True]


@pytest.mark.parametrize("name", ["agop-global", "integrated-gradients"])
def test_mean_maps_name_the_plant(reader, name):
    model, task, prior = reader
    detection = shortcuts.by_reading(name, model, task, prior)
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
    assert set(result.detections) == set(shortcuts.DETECTORS)
    assert all(detection.seconds > 0 for detection in result.detections.values())
    assert (tmp_path / "run/report.md").read_text() in first.stdout
    assert not (tmp_path / "run/training").exists()
    path = next((tmp_path / "run/models").iterdir())
    written = path.stat().st_mtime_ns
    again = run_checked(*command, folder=tmp_path)
    assert path.stat().st_mtime_ns == written  # nothing was computed
    assert again.stdout == first.stdout


SPEC = ShortcutSpec(None, 32, 5, 600, (), 1, ("audit", "spray"))


def model(prevalence="confounder", drop=0.3, audit=2.0, spray=0.5, found=True, seed=0, **options):
    detections = {"audit": Detection(audit, 2.0, found, 0.5), "spray": Detection(spray, 1.0, None, 0.1)}
    values = {"kind": "patch", "strength": "strong", "accuracy": 0.9, "change": 0.2, "fixed": True, "findings": ()}
    values |= {"share": 2.0, "transplant": 0.1}
    return ModelResult(prevalence=prevalence, drop=drop, seed=seed, detections=detections, **values | options)


def models(seed=0):
    """Models with random alarms, some of them equal."""
    result = []
    for place, (audit, spray) in enumerate(np.random.default_rng(seed).integers(0, 4, (15, 2)).tolist()):
        prevalence = ("confounder", "balanced", "none")[place % 3]
        result.append(model(prevalence, audit=audit + 2 * (place % 3 == 0), spray=spray, seed=place))
    return result


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("detector", ["audit", "spray"])
def test_auroc_is_the_share_of_pairs_with_an_interval_over_resampled_models(seed, detector):
    learned = [result for result in models(seed) if result.prevalence == "confounder"]
    without = [result for result in models(seed) if result.prevalence != "confounder"]
    values = shortcuts.aurocs(detector, learned, without)
    high, low = (np.array([result.detections[detector].alarm for result in some]) for some in (learned, without))
    assert values[0] == pytest.approx((1 + np.sign(high[:, None] - low).mean()) / 2)
    assert np.quantile(values[1:], 0.025) <= values[0] <= np.quantile(values[1:], 0.975)
    assert values[1:].mean() == pytest.approx(values[0], abs=0.03)


def test_differences_of_aurocs_are_paired():
    """A detector with the alarms of the audit has the difference 0 for any models."""
    results = [
        replace(result, detections=dict.fromkeys(("audit", "spray"), result.detections["audit"])) for result in models()
    ]
    assert "| spray | " in markdown(SPEC, results)
    assert "| 0.000 [0.000, 0.000] | –" in markdown(SPEC, results)


def test_share_found_has_wilsons_interval():
    """Value of statsmodels' proportion_confint."""
    assert shortcuts.share_found([model(found=place < 5) for place in range(10)]) == "0.500 [0.237, 0.763]"


def test_models_are_sorted_by_what_they_learned():
    learned, at_the_limit, ignored = model(drop=0.5), model(drop=shortcuts.LEARNED), model(drop=0.09)
    balanced, clean = model("balanced", drop=0.5), model("none", drop=0.0, kind="clean")
    text = markdown(SPEC, [learned, ignored, balanced, at_the_limit, clean])
    assert "2 learned a planted shortcut. 2 have none" in text
    assert "1 didn't learn theirs" in text


def test_overlap_is_zero_if_no_region_is_named():
    named, unnamed, moving = model(), model(), model(fixed=False)
    silent = {"audit": Detection(0.0, 1.0, False, None), "spray": Detection(0.0, 1.0)}
    text = markdown(SPEC, [named, replace(unnamed, detections=silent), moving, model("none")])
    (line,) = (line for line in text.splitlines() if line.startswith("| audit "))
    assert line.endswith("| 0.25 | 2 |")


def test_markdown_has_every_detector_and_every_kind():
    results = [model(), model("balanced", found=False), model("none", kind="clean", found=False, fixed=False)]
    results += [model(kind="sticker", drop=0.0, fixed=False)]
    text = markdown(SPEC, results)
    rows = [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| ")]
    assert {"audit", "spray", "patch", "clean", "sticker"} <= set(rows)
    assert "4 models on drawn digits: 5 classes, 600 images, 32×32,\nseeds 0." in text
    assert "1 learned a planted shortcut. 2 have none" in text
    assert "| sticker | strong | 0 of 1 | 0 | 0 | 0 |" in text
    assert "| patch | strong | 1 of 1 | 1 | 1 | 0 |" in text


def test_markdown_compares_places_with_and_without_the_plant():
    results = [model(share=3.0, transplant=0.4), model("balanced", share=1.0, transplant=-0.02)]
    assert "| patch | strong | 0 | 3.00 / +0.40 | 1.00 / -0.02 |" in markdown(SPEC, results)


def test_markdown_without_models_to_compare_has_no_auroc():
    assert "AUROC" not in markdown(SPEC, [model()])


def test_the_same_specification_resumes_and_another_one_raises(tmp_path):
    shortcuts.begin(SPEC, tmp_path)
    shortcuts.begin(SPEC, tmp_path)
    for other, problem in (
        (replace(SPEC, epochs=8), "epochs=1, not 8: choose another --out"),
        (replace(SPEC, detectors=("audit",)), "detectors="),
        (replace(SPEC, data="/photos"), "data=None, not '/photos'"),
    ):
        with pytest.raises(InputError, match=problem):
            shortcuts.begin(other, tmp_path)


def test_damaged_results_raise(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "a.json").write_text('{"kind": "patch"')
    with pytest.raises(FileError, match=r"a\.json is damaged .*delete it and run again to resume"):
        read_results(tmp_path)


HEADS = ("as trained", "repaired", "DFR", "balanced")


def test_repair_of_a_reader_of_the_plant_removes_it():
    """The head of a small network that reads the plant is repaired on other images than those of the figures."""
    torch.manual_seed(0)
    task = planted_task(Case("frame", "confounder", "strong", 0), Source(classes=2, samples=600))
    network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.Flatten())
    network.add_module("fc", nn.Linear(8 * 15 * 15, 2))
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(30):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(task.training.images), task.training.labels).backward()
        optimiser.step()
    prior = agop.fit(network.eval(), [(task.training.images, task.training.labels)], per_class=True, progress=False)
    audit, findings = shortcuts.by_audit(network, task, prior, confounded=True)
    assert audit.found
    before = {name: value.clone() for name, value in network.state_dict().items()}
    result = shortcuts.by_repair(network, task, findings, network)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert tuple(result["heads"]) == HEADS
    assert result["heads"]["repaired"][0] > result["heads"]["as trained"][0] + 0.1
    assert result["heads"]["balanced"] == result["heads"]["as trained"]
    assert set(result["verdicts"]) <= {"removed", "reduced"}


def test_report_has_the_share_of_the_gap_that_is_closed():
    def heads(*worst):
        return {name: (value, 0.8, 0.8) for name, value in zip(HEADS, worst, strict=True)}

    results = [
        model(heads=heads(0.2, 0.5, 0.3, 0.7), verdicts=("removed",)),
        model(heads=heads(0.4, 0.5, 0.5, 0.9), verdicts=("reduced", "unclear")),
        model(heads=heads(0.6, 0.5, 0.5, 0.6), verdicts=("removed", "reduced")),  # no gap
        model("balanced"),
    ]
    text = markdown(SPEC, results)
    assert "Repair of 3 found shortcuts" in text
    assert "For 2, the verdict is removed or reduced" in text
    assert "2 models have a gap" in text
    (line,) = [line for line in text.splitlines() if line.startswith("| repaired ")]
    assert line.startswith("| repaired | 0.500 | 0.000 ")
    assert f"| {np.median([0.3 / 0.5, 0.1 / 0.5]):.2f} [" in line
    assert "Repair of" not in markdown(SPEC, [model()])
