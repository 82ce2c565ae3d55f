"""An AGOP in words, its concentration (laws and the slow twin), and its pictures."""

import base64
import io
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import agop
from agop.prior.agop import DataProvenance, MergedPart, Provenance
from agop.prior.show import Overview, concentration, facts, few_samples, panels, picture, preprocessing_text

law = settings(deadline=None, derandomize=True, max_examples=60)


def slow_twin(saliency):
    """Share and place of the hottest pixels, by loops over pixels."""
    height, width = len(saliency), len(saliency[0])
    pixels = sorted(((value, -y, -x) for y, row in enumerate(saliency) for x, value in enumerate(row)), reverse=True)
    hottest = pixels[: math.ceil(height * width / 64)]
    weight = sum(value for value, _, _ in hottest)

    def median(places):
        passed = 0.0
        for place, value in sorted(places):
            passed += value
            if passed >= weight / 2:
                return place

    y0, x0 = median((-y, value) for value, y, _ in hottest), median((-x, value) for value, _, x in hottest)
    near = sum(value for value, y, x in hottest if abs(-y - y0) <= height / 4 and abs(-x - x0) <= width / 4)
    vertical = ("top", "", "bottom")[int(3 * (y0 + 0.5) / height)]
    horizontal = ("left", "", "right")[int(3 * (x0 + 0.5) / width)]
    words = [word for word in (vertical, horizontal) if word]
    place = " ".join(words or ["centre"])
    return weight / sum(value for value, _, _ in pixels), place if near >= weight / 2 else "scattered"


@st.composite
def saliencies(draw):
    """Maps (H,W) with small integers, so that sums are exact and ties occur."""
    height, width = draw(st.integers(1, 20)), draw(st.integers(1, 20))
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    saliency = torch.randint(0, draw(st.sampled_from([2, 9, 2**16])), (height, width), generator=random).double()
    saliency[0, 0] += 1
    return saliency ** draw(st.integers(1, 2))


@law
@given(saliencies())
def test_share_and_place_equal_those_of_the_slow_twin(saliency):
    hot = concentration(saliency)
    share, place = slow_twin(saliency.tolist())
    assert hot.pixels == math.ceil(saliency.numel() / 64)
    assert hot.share == pytest.approx(share, rel=1e-12)
    assert hot.place == place


@law
@given(saliencies())
def test_share_is_between_that_of_a_constant_map_and_1_and_ignores_the_scale(saliency):
    hot = concentration(saliency)
    assert hot.pixels / saliency.numel() - 1e-12 <= hot.share <= 1
    assert concentration(1024 * saliency) == hot
    assert concentration(saliency.flip(1)).share == hot.share


def of_classes(maps, counts, names=()):
    """AGOP of classes with these maps (K,H,W) and counts; NaN for a class without samples."""
    counts = torch.tensor(counts)
    diagonals = torch.where(counts[:, None, None] > 0, maps, torch.nan)[:, None].double()
    diagonal = (diagonals.nan_to_num() * counts[:, None, None, None]).sum(0) / counts.sum()
    provenance = Provenance(classes=len(maps), data=DataProvenance(tuple(names)))
    return agop.AGOP(diagonal, int(counts.sum()), diagonals, counts, provenance)


def patches(count, hot_class):
    """Maps (K,32,32): constant, and for one class 4×4 hot pixels at the bottom left."""
    maps = torch.ones(count, 32, 32)
    maps[hot_class, 28:, :4] = 20
    return maps


def test_summary_names_the_most_concentrated_class_and_the_range_of_the_others():
    maps = patches(3, 1)
    maps[2, :4, :4] = 2
    prior = of_classes(maps, [50, 50, 50], ["cat", "horse", "ship"])
    # 320 of 1328, 32 of 1040, 16 of 1024
    assert Overview.of(prior).line == (
        "class horse: 24 % of diag(M) in 16 of 1,024 pixels, at the bottom left; other classes 1.6–3.1 %"
    )
    assert [part.label for part in Overview.of(prior).classes] == ["class horse", "class ship", "class cat"]


def test_summary_of_classes_without_names_and_of_a_prior_without_classes():
    hot = "24 % of diag(M) in 16 of 1,024 pixels, at the bottom left"
    assert Overview.of(of_classes(patches(2, 1), [50, 50])).line == f"class 1: {hot}; other class 1.6 %"
    whole = Overview.of(agop.AGOP(patches(2, 1)[1:], 50))
    assert (whole.line, whole.classes) == (f"all samples: {hot}", ())


def test_classes_with_few_samples_are_listed_last_and_not_compared():
    """The map of a few samples is always concentrated."""
    prior = of_classes(patches(4, 1), [50, 19, 0, 50])
    assert [(part.label, part.samples) for part in Overview.of(prior).classes] == [
        ("class 0", 50), ("class 3", 50), ("class 1", 19),
    ]  # fmt: skip
    assert Overview.of(prior).line.startswith("class 0: 1.6 %")
    assert Overview.of(of_classes(patches(2, 1), [5, 5])).line.startswith("all samples:")
    assert Overview.of(of_classes(patches(2, 1), [50, 5])).line.startswith("all samples:")


def test_a_map_of_zeros_has_no_share():
    """Of a class whose logit doesn't depend on the image."""
    maps = patches(3, 1)
    maps[0] = 0
    prior = of_classes(maps, [50, 50, 50])
    zero = next(part for part in Overview.of(prior).classes if part.label == "class 0")
    assert zero.hot.place == "all zero"
    assert math.isnan(zero.hot.share)
    assert Overview.of(prior).line.endswith("other class 1.6 %")
    assert Overview.of(agop.AGOP(torch.zeros(1, 8, 8), 50)).line.startswith("diag(M) is zero")


@pytest.mark.parametrize(
    ("counts", "labelled", "message"),
    [
        ([60, 40], 100, ""),
        ([60, 39], 100, "99 samples were counted, which is few: use 100 or more"),
        ([90, 19, 0], 150, "2 of 3 classes have fewer than 20 samples (class 1, class 2)"),
        ([90, 19, 0], None, "1 of 3 classes have fewer than 20 samples (class 1)"),
        ([100, 0], None, ""),
    ],
)
def test_few_samples_are_stated_with_what_is_enough(counts, labelled, message):
    prior = of_classes(torch.ones(len(counts), 4, 4), counts)
    text = few_samples(replace(prior, provenance=replace(prior.provenance, labelled=labelled)))
    assert message in text
    assert bool(message) == bool(text)


@pytest.mark.parametrize(
    ("preprocessing", "text"),
    [
        (agop.Preprocessing((32, 48), (0.5,), (0.25,)), "32×48 RGB, mean 0.5, std 0.25"),
        (agop.Preprocessing((8, 8), gray=True), "8×8 gray, mean 0, std 1"),
        (
            agop.Preprocessing((224, 224), (0.485, 0.456, 0.406), (0.2, 0.2, 0.2), resize=256),
            "224×224 RGB cut from 256, mean 0.485,0.456,0.406, std 0.2,0.2,0.2",
        ),
        (agop.Preprocessing((32, 32), resize=(40, 48)), "32×32 RGB cut from 40×48, mean 0, std 1"),
    ],
)
def test_preprocessing_in_words(preprocessing, text):
    assert preprocessing_text(preprocessing.to_dict()) == text


def test_facts_hold_what_the_provenance_records_and_nothing_else():
    provenance = Provenance(
        kind="one checkpoint", model={"architecture": "a", "weights": "b"}, classes=2, skipped=1, labelled=9, correct=6,
        options={"only_correct": True}, versions={"agop": "0.1.0"}, data=DataProvenance(("x", "y"), {"size": [2, 2]}),
        merged=(MergedPart("a.safetensors", 3),),
    )  # fmt: skip
    assert facts(agop.AGOP(torch.ones(1, 2, 2), 7, provenance=provenance)) == {
        "statistic": "diag(M) of 1×2×2 input values, one checkpoint",
        "samples": "7 counted, the correctly classified ones; 1 skipped: NaN or infinite gradients; "
        "accuracy 66.7 % of 9",
        "model": "architecture a, weights b",
        "images": "2×2 RGB",
        "classes": "x, y",
        "merged from": "a.safetensors",
        "made with": "agop 0.1.0",
    }
    assert facts(agop.AGOP(torch.ones(1, 2, 2), 1234)) == {
        "statistic": "diag(M) of 1×2×2 input values", "samples": "1,234 counted",
        "images": "preprocessing not recorded",
    }  # fmt: skip


def test_a_training_is_described_with_its_steps_and_many_classes_are_abbreviated():
    names = DataProvenance(tuple(f"c{index}" for index in range(12)))
    provenance = Provenance(kind="training-accumulated", steps=1200, data=names)
    lines = facts(agop.AGOP(torch.ones(1, 2, 2), 5, torch.ones(12, 1, 2, 2), torch.ones(12).long(), provenance))
    assert lines["statistic"] == (
        "diag(M) of 1×2×2 input values, also by class (12 classes), collected during training (1,200 steps)"
    )
    assert lines["classes"] == "c0, c1, c2, c3, c4, c5, c6, c7, c8, c9 … (12)"


def lightness(image):
    return np.asarray(image.convert("L"), dtype=int)


def test_lightness_increases_with_the_value_and_the_maximum_is_brightest():
    saliency = torch.arange(256.0).reshape(16, 16)
    levels = lightness(picture(saliency)).flatten()
    assert (np.diff(levels) >= 0).all()
    assert levels[0] < 5
    assert levels[-1] > 240
    assert np.array_equal(np.asarray(picture(saliency)), np.asarray(picture(1e6 * saliency)))


def test_panels_show_all_samples_and_the_most_concentrated_classes_first():
    prior = of_classes(patches(40, 7), [50] * 40)
    captions, images = zip(*panels(Overview.of(prior)), strict=True)
    assert len(captions) == 24
    assert captions[:2] == ("2.3 % in 16 px: all samples", "24 % in 16 px: class 7")
    levels = lightness(images[1])
    assert levels[28:, :4].min() > 240 > 100 > levels[:28].max()


def test_a_notebook_shows_the_facts_the_concentration_and_the_maps():
    prior = of_classes(patches(2, 1), [50, 50], ["cat", "<b>horse</b>"])
    text = prior._repr_html_()
    assert "class &lt;b&gt;horse&lt;/b&gt;: 24 % of diag(M) in 16 of 1,024 pixels, at the bottom left" in text
    assert "<b>horse" not in text
    pictures = [Image.open(io.BytesIO(base64.b64decode(data))) for data in re.findall('base64,([^"]+)', text)]
    assert [image.size for image in pictures] == [(32, 32)] * 3


@pytest.mark.parametrize("diagonal", [torch.ones(3, 5, 7), torch.zeros(1, 2, 2)], ids=["whole", "zeros"])
def test_a_prior_made_by_hand_is_shown(diagonal):
    assert agop.AGOP(diagonal, 3)._repr_html_().count("<img") == 1
