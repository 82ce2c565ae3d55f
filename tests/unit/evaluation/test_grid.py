"""The grid pointing game: grids, scores, run folder, and errors."""

import json
from itertools import product

import numpy as np
import pytest
import torch
from torch import nn

import agop
from agop.errors import InputError, ModelError, PriorError
from tests import zoo
from tests.command import run_checked

CLASSES, SIDE = 5, 6
CELLS = ("upper left", "upper right", "lower left", "lower right")


class ChannelEnergy(nn.Module):
    """Logits (N,5): the energy of each channel. The gradient of a class is zero outside its own channel's pixels."""

    def __init__(self, scale=1.0):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, x):
        return self.scale * x.square().sum((2, 3))


class FirstClassByDefault(ChannelEnergy):
    """The logit of class 0 is constant, so its map is zero everywhere."""

    def forward(self, x):
        logits = super().forward(x)
        return torch.cat([0 * logits[:, :1] + 4.0, logits[:, 1:]], dim=1)


def squares(labels):
    """Images (N,5,6,6) and masks (N,6,6): a square of 2×2 in the channel of the label, at a random place."""
    draw = np.random.default_rng(0)
    images = torch.zeros(len(labels), CLASSES, SIDE, SIDE)
    masks = torch.zeros(len(labels), SIDE, SIDE, dtype=torch.bool)
    for image, mask, label in zip(images, masks, labels, strict=True):
        row, column = draw.integers(0, SIDE - 1, 2)
        mask[row : row + 2, column : column + 2] = True
        image[label][mask] = 1 + torch.rand(4, generator=torch.Generator().manual_seed(int(row * SIDE + column)))
    return images, masks


LABELS = torch.arange(60) % CLASSES
SWAPPED = torch.where(LABELS < 3, LABELS, 7 - LABELS)
IMAGES, MASKS = squares(LABELS)
MODEL = ChannelEnergy()


def joined(images):
    """Grids (G,C,2H,2W) of images (G,4,C,H,W) in reading order."""
    rows = [torch.cat([images[:, left], images[:, left + 1]], dim=-1) for left in (0, 2)]
    return torch.cat(rows, dim=-2)


def play(methods="vanilla", prior=None, **options):
    return agop.grid_pointing_game(MODEL, IMAGES, LABELS, methods, prior, **options)


def test_map_of_the_class_has_share_one_and_other_maps_a_quarter():
    prior = agop.fit(MODEL, [IMAGES], only_correct=False, progress=False)
    scores = play(["vanilla", "sobel", "random", "input", "laplace", "agop-global"], prior, masks=MASKS).scores
    assert (scores["vanilla"]["energy"] == 1).all()
    assert (scores["vanilla"]["pointing_game"] == 1).all()
    assert (scores["vanilla"]["average_precision"] == 1).all()
    for name in scores.keys() - {"vanilla"}:
        # The four shares of one map sum to 1.
        torch.testing.assert_close(scores[name]["energy"], torch.full((15,), 0.25, dtype=torch.float64))


def test_scores_equal_a_loop_over_grids_and_cells():
    torch.manual_seed(0)
    model, images = zoo.Wrapped(classes=6), torch.randn(60, 3, 12, 12)
    model.body[-1].bias.data -= model(images).mean(0).detach()  # else one class is predicted for all
    labels = model(images).argmax(1)
    masks = torch.rand(60, 12, 12) < 0.2
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    names = ["vanilla", "agop-weighted", "gradcam"]
    game = agop.grid_pointing_game(
        model, images, labels, names, prior, masks=masks, confidence=0, layer="body.0", batch_size=3
    )
    assert len(game.sources) > 3
    for name, (grid, sources) in product(names, enumerate(game.sources)):
        image = torch.zeros(3, 24, 24)
        shares, precisions = [], []
        places = [(0, 0), (0, 12), (12, 0), (12, 12)]
        for source, (row, column) in zip(sources, places, strict=True):
            image[:, row : row + 12, column : column + 12] = images[source]
        for source, (row, column) in zip(sources, places, strict=True):
            gradient = agop.input_gradients(model, image[None], int(labels[source])).values[0].abs()
            if name == "agop-weighted":
                gradient *= prior.weights.repeat(1, 2, 2)
            heat = gradient.sum(0)
            if name == "gradcam":
                heat = agop.explain(model, image[None], "gradcam", target=int(labels[source]), layer="body.0")[0]
            shares.append(heat[row : row + 12, column : column + 12].sum() / heat.sum())
            truth = torch.zeros(1, 24, 24, dtype=torch.bool)
            truth[0, row : row + 12, column : column + 12] = masks[source]
            precisions.append(agop.metrics.average_precision(heat[None], truth)[0])
        expected = {"energy": torch.stack(shares).nanmean(), "average_precision": torch.stack(precisions).nanmean()}
        for metric, value in expected.items():
            ours = game.scores[name][metric][grid]
            torch.testing.assert_close(ours, value.to(ours), rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("sizes", [(12,) * 5, (40, 9, 9, 9, 9), (3, 1, 5, 2, 30), (2, 2, 2, 2), (1,) * 10], ids=str)
def test_grids_have_four_classes_and_each_image_once(sizes):
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    images = nn.functional.one_hot(labels, len(sizes)).float()[:, :, None, None].repeat(1, 1, 2, 2)
    grids = agop.grid_pointing_game(ChannelEnergy(), images, labels, "random", confidence=0)
    # The most grids that four different classes per grid allow.
    most = max(g for g in range(101) if sum(min(size, g) for size in sizes) >= 4 * g)
    assert len(grids.sources) == most
    assert len(grids.sources.unique()) == 4 * most
    assert all(len(set(row.tolist())) == 4 for row in grids.classes)
    assert torch.equal(grids.classes, labels[grids.sources])
    uses = grids.classes.flatten().bincount(minlength=len(sizes))
    # A class is used less than another one only if all of its images are used.
    assert all(use == size or use >= uses.max() - 1 for use, size in zip(uses.tolist(), sizes, strict=True))


def test_fewer_grids_on_request_and_the_seed_decides_which():
    few, again, other = (play(grids=7, seed=seed).sources for seed in (1, 1, 2))
    assert few.shape == (7, 4)
    assert torch.equal(few, again)
    assert not torch.equal(few, other)


def test_classes_meet_in_all_pairs_and_positions():
    images, labels = (part.repeat(8, *[1] * (part.ndim - 1)) for part in (IMAGES, LABELS))
    classes = agop.grid_pointing_game(MODEL, images, labels, "random").classes
    assert len({(a, b) for row in classes.tolist() for a in row for b in row if a < b}) == 10
    assert all(len(column.unique()) == CLASSES for column in classes.T)


def test_only_correct_and_confident_images_are_used():
    labels = LABELS.clone()
    labels[:20] = (labels[:20] + 1) % CLASSES
    images = IMAGES.clone()
    images[20:40] *= 0.1
    for confidence, count in ((0.9, 20), (0, 40)):
        game = agop.grid_pointing_game(MODEL, images, labels, "random", confidence=confidence)
        assert f"; {count} of 60 images are classified correctly with P ≥ {confidence}" in str(game)
        assert game.sources.min() >= 60 - count


def test_baseline_image_is_repeated_in_each_cell():
    methods = [
        agop.methods.IntegratedGradients(steps=2, baseline=base) for base in (0.5, torch.full_like(IMAGES[0], 0.5))
    ]
    plain, image = (play(method, grids=3).scores["integrated-gradients"]["energy"] for method in methods)
    torch.testing.assert_close(plain, image)


def test_references_form_grids_of_different_images():
    method = agop.methods.ExpectedGradients(samples=4)
    prior = agop.fit(MODEL, [(IMAGES, LABELS)], False, progress=False)
    moments = prior.image_moments.repeat(1, 1, 2, 2)
    of_grids = {
        "references": joined(IMAGES[torch.tensor([[0, 2, 4, 6], [1, 3, 5, 7]])]),
        "prior": agop.AGOP(prior.diagonal.repeat(1, 2, 2), 1, image_moments=moments),
    }
    for name, given in (("references", IMAGES[:9]), ("prior", prior)):
        game = play([method], grids=3, **{name: given})
        shares = []
        for cell, ones in enumerate(torch.eye(4)):
            target, images = game.classes[:, cell], joined(IMAGES[game.sources])
            maps = agop.explain(MODEL, images, method, target=target, **{name: of_grids[name]})
            inside = joined(ones[:, None, None, None].expand(3, 4, 1, SIDE, SIDE))[:, 0]
            shares.append(agop.metrics.energy(maps, inside))
        torch.testing.assert_close(game.scores["expected-gradients"]["energy"], torch.stack(shares).nanmean(0))
    assert play([method], grids=1, references=IMAGES[:1]).scores  # one image in all cells


def test_undefined_maps_are_skipped_and_counted():
    images = IMAGES.clone()
    images[LABELS == 0] = 0
    game = agop.grid_pointing_game(FirstClassByDefault(), images, LABELS, "vanilla")
    assert (game.scores["vanilla"]["energy"] == 1).all()
    zero = int((game.classes == 0).sum())
    assert zero > 0
    assert f"vanilla: {zero} of {game.classes.numel()} maps have no score (map is zero everywhere: {zero})" in str(game)


def test_table_counts_grids_and_states_the_value_of_chance():
    game = play(["vanilla", "sobel"], masks=MASKS)
    lines = str(game).splitlines()
    assert lines[0] == "means over grids (N = 15) with 95 % intervals"
    assert lines[1].split()[:3] == ["Energy-GT", "PG", "AP"]
    assert any("0.25 for a map that doesn't depend on the class. AP" in line for line in lines)
    assert "15 grids of 60 images; 60 of 60 images are classified correctly with P ≥ 0.9" in str(game)
    assert "AP" not in str(play())


def test_run_folder_has_both_kinds_and_every_report_format(tmp_path):
    game = play(["vanilla", "sobel"], masks=MASKS)
    game.save(tmp_path / "run", classes={"own": ["a", "b", "c", "d", "e"]})
    rows = [json.loads(line) for line in (tmp_path / "run" / "rows.jsonl").read_text().splitlines()]
    values = {(row["masks"], row["method"], row["metric"]): (row["value"], row["n"]) for row in rows}
    assert values["grid cell", "sobel", "energy"] == (pytest.approx(0.25), 15)
    assert values["grid object", "vanilla", "average_precision"] == (1, 15)
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    assert about["command"] == "agop.grid_pointing_game(…)"
    assert any("0.25" in note for note in about["notes"])
    assert about["samples"]["own"][1] == f"grid 2, maps for {'abcde'[game.classes[1, 1]]} ({CELLS[1]})"
    for name in ("html", "markdown", "csv", "latex", "json"):
        run_checked("report", "run", "--format", name, "--out", f"report.{name}", folder=tmp_path)
        assert (tmp_path / f"report.{name}").stat().st_size > 100


def test_gallery_has_the_map_of_the_class_in_the_marked_cell():
    game = play("vanilla", masks=MASKS)
    gallery = game.gallery
    assert gallery.pictures.shape == (12, 2 * SIDE, 2 * SIDE, 3)
    assert (gallery.labels == -1).all()
    assert np.array_equal(gallery.maps["vanilla"] > 0, gallery.masks["grid object"])
    cells = {tuple(mask[::SIDE, ::SIDE].flatten()) for mask in gallery.masks["grid cell"]}
    assert cells == set(map(tuple, np.eye(4, dtype=bool)))


class FixedPatches(ChannelEnergy):
    """Raises a ValueError for another size, as transformers' ViT does."""

    def forward(self, x):
        if x.shape[-1] != SIDE:
            raise ValueError(f"Input image size ({x.shape[-1]}) doesn't match model ({SIDE}).")
        return super().forward(x)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(CLASSES * SIDE**2, 5)), "the model failed on images of shape"),
        (FixedPatches(), r"Input image size \(12\)"),
        (nn.Sequential(nn.AvgPool2d(SIDE), nn.Flatten()), "it returns 20 logits, 5 for smaller images"),
    ],
    ids=["linear", "vit", "flatten"],
)
def test_network_of_a_fixed_size_is_refused_before_anything_runs(model, reason):
    with pytest.raises(ModelError, match=rf"the network can't take 12×12 images \({reason}.*needs a network that"):
        agop.grid_pointing_game(model, IMAGES, LABELS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": LABELS % 3}, "a grid has four classes, the labels have only 3: pass images of more"),
        (
            {"labels": SWAPPED},
            r"36 of 60 images, of 3 classes, are classified correctly with P ≥ 0.9 \(36 with any P\)",
        ),
        ({"images": IMAGES / 9}, r"0 of 60 images, of 0 classes, .* \(60 with any P\).*lower the confidence, or pass"),
        ({"labels": LABELS[:5]}, r"labels have shape \(5,\)"),
        ({"labels": LABELS + 1}, "label 5 of sample 4 is out of range"),
        ({"masks": MASKS[:, 1:]}, r"masks have shape \(60, 5, 6\)"),
        ({"methods": []}, "no methods to compare"),
        ({"methods": "vanila"}, "did you mean 'vanilla'"),
        ({"grids": 0}, "grids is 0"),
        ({"confidence": 90}, "confidence 90"),
        ({"images": IMAGES[0]}, "images have shape"),
    ],
)
def test_wrong_input_raises(options, message):
    options = {"images": IMAGES, "labels": LABELS, "methods": "vanilla"} | options
    with pytest.raises(InputError, match=message):
        agop.grid_pointing_game(MODEL, **options)


def test_prior_has_the_shape_of_one_image_and_warns_once_about_another_model():
    prior = agop.fit(MODEL, [IMAGES], only_correct=False, progress=False)
    with pytest.raises(PriorError, match="agop-global needs a prior"):
        play("agop-global")
    with pytest.raises(PriorError, match="the prior is for images of shape"):
        agop.grid_pointing_game(MODEL, IMAGES[..., 1:], LABELS, "agop-global", prior)
    with pytest.warns(match="other weights") as caught:
        agop.grid_pointing_game(ChannelEnergy(2.0), IMAGES, LABELS, ["agop-global", "agop-weighted"], prior, grids=2)
    assert len(caught) == 1


def test_log_odds_of_each_class_are_explained():
    game = play(output="log_odds", grids=4)
    images = joined(IMAGES[game.sources])
    for number, saliency in enumerate(game.gallery.maps["vanilla"]):
        target = int(game.classes[number, number % 4])
        expected = agop.explain(MODEL, images[number : number + 1], "vanilla", target=target, output="log_odds")[0]
        torch.testing.assert_close(torch.from_numpy(saliency), expected)
    # Raising the log-odds also takes away the other classes.
    assert game.scores["vanilla"]["energy"].max() < 1
    assert "Gradients are those of log_odds" in repr(game)
