"""suspect(): a mark that a network learned raises its class, a change without a shape none; marks, controls, files."""

import csv
import json

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import ttest_1samp
from torch import nn

import agop
from agop.auditing.suspect import Mark
from agop.errors import FileError, InputError, ModelError
from tests import shortcuts

NAMES = ("bar", "-<b>pole", "square")


def network(classes=40, seed=0):
    torch.manual_seed(seed)
    layers = (nn.Conv2d(3, 16, 3, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.LazyLinear(classes))
    model = nn.Sequential(*layers)
    model(torch.randn(9, 3, 12, 12))
    return model


def images(count=24, seed=0):
    return torch.rand(count, 3, 12, 12, generator=torch.Generator().manual_seed(seed))


def noise(seed, side=6):
    """An opaque mark of random pixels: shuffled, it is as likely."""
    values = torch.rand(4, side, side, generator=torch.Generator().manual_seed(seed))
    values[3] = 1
    return Mark(values)


@pytest.fixture(scope="module")
def learned():
    """A network that learned bright lines, images of all classes without them, and the lines as a mark."""
    picture = torch.zeros(2, shortcuts.SIDE, shortcuts.SIDE)
    picture[0], picture[1, :, 1::2] = 1, 0.4
    model = shortcuts.trained(*shortcuts.drawn(360, 0.7, plant="grid"))
    return model, shortcuts.drawn(60, 0.0, seed=1), Mark(picture)


@pytest.fixture(scope="module")
def suspicion(learned):
    model, (pictures, labels), mark = learned
    return agop.suspect(model, pictures, mark, labels, class_names=NAMES, progress=False)


def test_learned_mark_raises_its_class(suspicion, learned):
    model, (pictures, labels), mark = learned
    assert [row["class_index"] for row in suspicion.raised] == [shortcuts.PLANTED]
    top = suspicion.table[0]
    assert top["control"] < top["interval"][0] < top["change"] < top["interval"][1]
    shares = tuple(float((model(x).argmax(dim=1) == labels).double().mean()) for x in (pictures, mark(pictures)))
    assert suspicion.accuracy == pytest.approx(shares)
    text = suspicion.sentence
    assert text.startswith("The mark raises class -<b>pole most of 3 classes: logit +")
    assert f"accuracy is {100 * shares[0]:.0f} % before and {100 * shares[1]:.0f} % after" in text
    assert all(row["accuracy"] is not None for row in suspicion.copies)


def test_every_class_has_a_row_also_without_images(learned):
    """Without labels, with images of one class."""
    model, (pictures, labels), mark = learned
    result = agop.suspect(model, [pictures[labels == 0][:10], pictures[labels == 0][10:]], mark, progress=False)
    assert sorted(row["class_index"] for row in result.table) == [0, 1, 2]
    assert result.table[0]["class_index"] == shortcuts.PLANTED
    assert result.accuracy is None
    assert "accuracy" not in result.sentence


def test_changes_without_a_shape_raise_no_class():
    """The bound of a binomial test: at a rate of 5 %, more than 6 of 40 suspicions have a finding in 1 % of cases."""
    found = [
        bool(agop.suspect(network(seed=seed % 4), images(16), noise(seed), seed=seed, progress=False).raised)
        for seed in range(40)
    ]
    assert sum(found) <= 6


def test_colours_that_act_without_their_shape_are_said():
    """A network that learned a checker is as sure of its shuffled copies."""
    model = shortcuts.trained(*shortcuts.drawn(360, 0.7))
    checker = torch.ones(2, 16, 16)
    checker[:1] = shortcuts.PLANTS["patch"](torch.zeros(1, 1, 16, 16))[0]
    checker[1] = 0
    checker[(slice(1, 2), *shortcuts.PLACE)] = 1
    result = agop.suspect(model, shortcuts.drawn(60, 0.0, seed=1)[0], Mark(checker), class_names=NAMES, progress=False)
    assert not result.raised
    assert "The mark and its controls raise class -<b>pole, most of 3 classes: logit +" in result.sentence


def test_mark_of_one_colour_is_compared_with_the_images_as_they_are():
    """A copy with shuffled pixels would be the mark. A network that learned a bright frame."""
    model = shortcuts.trained(*shortcuts.drawn(360, 0.7, plant="frame"))
    frame = torch.full((2, 16, 16), 0.8)
    frame[1] = 1
    frame[1, 1:-1, 1:-1] = 0
    opaque = Mark(torch.ones(2, 4, 4))
    result = agop.suspect(model, shortcuts.drawn(60, 0.0, seed=1)[0], opaque, progress=False)
    assert [row["name"] for row in result.copies][:2] == ["as they are", "mirrored"]
    assert "It has no shuffled copies" in result.sentence
    assert "It has no shuffled copies" not in agop.suspect(network(), images(), noise(1), progress=False).sentence
    dot = torch.zeros(2, 6, 6)
    dot[0, 1:5, 1:5] = dot[1, 1:5, 1:5] = 1
    assert Mark(dot).copies(0)[0] == {}
    assert len(Mark(frame).copies(0)[0]) == 8  # its box is not full: shuffled, it isn't a frame


@pytest.mark.parametrize("place", ["anywhere", "tiled"])
def test_transparent_margins_do_not_keep_a_mark_in_its_place(place):
    whole = torch.zeros(4, 12, 12)
    whole[:, 2:5, 3:6] = 1
    alone = Mark(torch.ones(4, 3, 3), place=place)
    assert torch.equal(Mark(whole, place=place)(images()), alone(images()))


def test_no_class_is_an_answer():
    result = agop.suspect(network(), images(), noise(3), progress=False)
    assert "No class is raised more than by the controls" in result.sentence
    assert f"A rise by {result.detectable:.2g} beyond the controls" in result.sentence


def test_another_change_is_tested_against_the_images_as_they_are(learned):
    model, (pictures, _), mark = learned
    result = agop.suspect(model, pictures, mark.__call__, progress=False)
    assert [row["name"] for row in result.copies] == ["as they are"]
    assert result.table[0]["class_index"] == shortcuts.PLANTED
    assert result.table[0]["control"] == 0


def test_figures_are_those_of_a_loop_over_classes():
    """With controls of one's own, p is that of a paired t-test against the strongest one, or no change, times Holm."""
    model, pictures, change = network().eval(), images(), lambda x: x + 0.3 * (x > 0.5)
    controls = {"darker": lambda x: x - 0.1, "mirrored": lambda x: x.flip(3)}
    result = agop.suspect(model, pictures, change, controls=controls, progress=False)

    def centred(x):
        logits = model(x).detach().double()
        return logits - logits.mean(dim=1, keepdim=True)

    before = centred(pictures)
    own, others = centred(change(pictures)) - before, [centred(each(pictures)) - before for each in controls.values()]
    ps = []
    for row in sorted(result.table, key=lambda row: row["class_index"]):
        index = row["class_index"]
        strongest = max([torch.zeros(len(pictures)), *(other[:, index] for other in others)], key=lambda v: v.mean())
        test = ttest_1samp(own[:, index] - strongest, 0, alternative="greater")
        ps.append(test.pvalue)
        low, high = ttest_1samp(own[:, index], 0).confidence_interval()
        assert row["change"] == pytest.approx(float(own[:, index].mean()), abs=1e-5)
        assert row["interval"] == pytest.approx([low, high], abs=1e-5)
        assert row["control"] == pytest.approx(max(float(other[:, index].mean()) for other in others), abs=1e-5)
    corrected = {row["class_index"]: row["p"] for row in result.table}
    smallest = int(np.argmin(ps))
    assert corrected[smallest] == pytest.approx(min(1, 40 * ps[smallest]), rel=1e-3)
    assert [row["name"] for row in result.copies] == ["darker", "mirrored"]


def test_batches_do_not_matter_and_the_model_stays():
    model = network().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    whole, parts = (
        agop.suspect(model, data, noise(1), batch_size=size, progress=False)
        for data, size in ((images(), None), ([images()[:5], images()[5:]], 3))
    )
    for one, other in zip(whole.table, parts.table, strict=True):
        assert one["class"] == other["class"]
        assert one["change"] == pytest.approx(other["change"], abs=1e-5)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_one_logit_is_two_classes():
    model = nn.Sequential(nn.Flatten(), nn.Linear(432, 1))
    result = agop.suspect(model, images(), noise(0), progress=False)
    first, second = (row["change"] for row in sorted(result.table, key=lambda row: row["class_index"]))
    assert first == pytest.approx(-second)


# --- Marks and controls


def test_mark_is_put_on_a_picture_before_or_after_its_preprocessing(tmp_path):
    random = np.random.default_rng(0)
    mark = random.integers(0, 256, (5, 4, 4), np.uint8)
    Image.fromarray(mark).save(tmp_path / "mark.png")
    preprocessing = agop.Preprocessing((12, 12), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
    picture = random.integers(0, 256, (12, 12, 3), np.uint8)
    marked, opacity = picture / 255, mark[..., 3:] / 255
    marked[:5, :4] = opacity * mark[..., :3] / 255 + (1 - opacity) * marked[:5, :4]
    result = Mark.load(tmp_path / "mark.png", preprocessing)(preprocessing.tensor(Image.fromarray(picture))[None])[0]
    mean, std = (torch.tensor(values)[:, None, None] for values in (preprocessing.mean, preprocessing.std))
    torch.testing.assert_close(result, ((torch.from_numpy(marked).permute(2, 0, 1) - mean) / std).float())


@pytest.mark.parametrize("mode", ["LA", "PA", "RGBA", "P"])
def test_marks_of_all_modes_with_alpha(tmp_path, mode):
    source = Image.new("RGBA", (4, 4), (200, 200, 200, 255))
    options = {"transparency": 0} if mode == "P" else {}
    source.convert(mode).save(tmp_path / ("mark.tif" if mode == "PA" else "mark.png"), **options)
    gray = agop.Preprocessing((8, 8), gray=True)
    if mode != "P":
        changed = Mark.load(next(tmp_path.iterdir()), gray)(torch.zeros(1, 1, 8, 8))
        assert float(changed[0, 0, :4, :4].mean()) == pytest.approx(200 / 255, abs=0.02)


def test_places_of_a_mark():
    pictures = torch.zeros(30, 3, 12, 12)
    mark = torch.ones(4, 3, 5)
    top, anywhere, tiled = (Mark(mark, place=place)(pictures)[:, 0] for place in ("top-left", "anywhere", "tiled"))
    assert bool((top[:, :3, :5] == 1).all())
    assert float(top.sum()) == float(anywhere.sum()) == 30 * 15
    assert len(torch.unique(anywhere, dim=0)) > 10
    assert bool((tiled == 1).all())


@pytest.mark.parametrize("name", ["shuffled 1", "mirrored", "upside down"])
def test_copies_have_the_pixels_of_the_mark_in_its_box(name):
    pictures, mark = torch.zeros(3, 3, 12, 12), noise(0)
    shuffled, alike = mark.copies(seed=0)
    changed, copied = mark(pictures), (shuffled | alike)[name](pictures)
    assert not torch.equal(changed, copied)
    assert bool((copied[:, :, 6:] == 0).all())
    for before, after in zip(changed, copied, strict=True):
        assert sorted(before.flatten(1).T.tolist()) == sorted(after.flatten(1).T.tolist())
    if name == "mirrored":
        assert torch.equal(copied[..., :6].flip(3), changed[..., :6])


def test_other_colours_of_a_mark():
    picture = torch.tensor([0.9, 0.5, 0.2, 1.0])[:, None, None].expand(4, 3, 3)
    pictures, (_, alike) = torch.zeros(2, 3, 12, 12), Mark(picture).copies(seed=0)
    for name, colour in {
        "inverted": (0.1, 0.5, 0.8),
        "red kept": (0.9, 0.5, 0.8),
        "blue kept": (0.1, 0.5, 0.2),
    }.items():
        torch.testing.assert_close(alike[name](pictures)[0, :, 0, 0], torch.tensor(colour))
    assert set(Mark(picture[:2]).copies(seed=0)[1]) == {"mirrored", "upside down", "inverted"}


# --- Bad input


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"change": lambda x: x}, "leaves all images as they are"),
        ({"change": lambda x: x[:, :, 1:]}, r"change returns \(24, 3, 11, 12\)"),
        ({"change": lambda x: x / 0}, "change returns NaN or infinite values"),
        ({"change": 3}, "change isn't a function"),
        ({"change": lambda x: None}, "change returns NoneType"),
        ({"controls": []}, "controls are empty"),
        ({"controls": [4]}, "control 1 isn't a function"),
        ({"class_names": ("a", "b")}, "there are 2 class names, the model has 40 classes"),
        ({"labels": torch.full((24,), 40)}, "label 40 of sample 0 is out of range"),
        ({"images": images(7)}, "there are 7 images: give at least 8"),
        ({"images": []}, "there are 0 images"),
        ({"change": Mark(torch.ones(4, 13, 4))}, "the mark has 13×4 pixels, the images 12×12: make it smaller"),
        ({"change": Mark(torch.ones(2, 4, 4))}, "the mark has 1 colours, the images 3 channels"),
    ],
)
def test_bad_input_raises(options, problem):
    values = {"images": images(), "change": noise(0), "progress": False} | options
    with pytest.raises(InputError, match=problem):
        agop.suspect(network(), **values)


def test_bad_marks_raise(tmp_path):
    path = tmp_path / "mark.png"
    for mode in ("RGB", "L", "I;16"):
        Image.new(mode, (4, 4)).save(path)
        with pytest.raises(InputError, match=rf"no transparency \(mode {mode}\): save the mark as a PNG with alpha"):
            Mark.load(path, agop.Preprocessing())
    Image.new("RGBA", (4, 4), (9, 9, 9, 0)).save(path)
    with pytest.raises(InputError, match="invisible"):
        Mark.load(path, agop.Preprocessing())
    with pytest.raises(InputError, match="place is 'left': give top-left, anywhere, tiled"):
        Mark(torch.ones(4, 3, 3), place="left")
    path.write_text("text")
    with pytest.raises(FileError, match="unknown format"):
        Mark.load(path, agop.Preprocessing())


def test_outputs_that_are_nan_raise():
    model = network().eval()
    model[4].bias.data[3] = torch.nan
    with pytest.raises(ModelError, match="NaN or infinite"):
        agop.suspect(model, images(), noise(0), progress=False)


# --- Files


def test_files_have_a_row_per_class_and_escaped_names(suspicion, tmp_path):
    suspicion.save(tmp_path)
    with (tmp_path / "suspicion.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 3
    saved = json.loads((tmp_path / "suspicion.json").read_text())
    assert saved["table"] == [{**row} for row in suspicion.table]
    assert saved["sentence"] == suspicion.sentence
    page = (tmp_path / "index.html").read_text()
    assert "-&lt;b&gt;pole" in page
    assert "<b>pole" not in page
    assert page.count("data:image") == 12
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file: give a folder"):
        suspicion.save(tmp_path / "file")
