"""Predictions beside the classes of the folders."""

from pathlib import Path

import pytest

from agop.pictures.predictions import Prediction, label_of, lines, percent, summary, wrong_first

NAMES = ("cat", "dog", "crane", "crane")


def prediction(file, predicted, probability, label=None):
    return Prediction(file, f"overlays/{file}", predicted, probability, predicted, label)


MIXED = [
    prediction("a.png", 0, 0.9, 0),
    prediction("b.png", 1, 0.6, 0),
    prediction("c.png", 0, 0.99999),
    prediction("long/d.png", 0, 0.8, 1),
]


def test_wrong_ones_come_first_and_the_most_confident_of_them_on_top():
    assert wrong_first(MIXED) == [3, 1, 0, 2]
    assert wrong_first(MIXED[2:3] * 3) == [0, 1, 2]


def test_summary_counts_only_images_with_a_known_class():
    assert summary(MIXED) == "4 images, 1 of 3 with a known class classified correctly (33.3\u00a0%)"
    assert summary(MIXED[:1]) == "1 image, 1 of 1 classified correctly (100.0\u00a0%)"
    assert summary(MIXED[2:3]) == "1 image"


def test_lines_are_a_table_of_the_first_ones():
    assert lines(MIXED, NAMES, 3) == [
        "file        predicted  probability",
        "long/d.png  cat             80.0\u00a0%  wrong: dog",
        "b.png       dog             60.0\u00a0%  wrong: cat",
        "a.png       cat             90.0\u00a0%",
    ]
    assert lines(MIXED[2:3], (), 3)[1] == "c.png  class 0    over 99.9\u00a0%"


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0.0"), (1e-9, "under 0.1"), (0.0005, "0.1"), (0.9996, "over 99.9"), (1, "100.0")]
)
def test_percent_rounds_to_0_and_100_only_what_is(value, text):
    assert percent(value) == f"{text}\u00a0%"


@pytest.mark.parametrize(
    ("path", "folder", "label"),
    [
        ("photos/cat/1.png", "photos", 0),
        ("photos/dog/cat/1.png", "photos", 1),
        ("photos/test/dog/1.png", "photos", 1),
        ("photos/dog/1.png", "photos/dog", 1),
        ("photos/dog/1.png", None, 1),
        ("dog/photos/1.png", None, None),
        ("dog/photos/1.png", "dog/photos", None),
        ("photos/1.png", "photos", None),
        ("photos/Cat/1.png", "photos", None),
        ("photos/crane/1.png", "photos", None),
    ],
)
def test_label_is_the_folder_with_a_class_name(path, folder, label):
    assert label_of(Path(path), None if folder is None else Path(folder), NAMES) == label
