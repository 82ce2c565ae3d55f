"""An AGOP in words."""

from dataclasses import replace

import pytest
import torch

import agop
from agop.statistic.description import facts, preprocessing_text
from agop.statistic.provenance import Provenance
from tests.unit.statistic.test_provenance import FULL


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
        (agop.Preprocessing((32, 32), resize=(32, 32)), "32×32 RGB, mean 0, std 1"),
    ],
)
def test_preprocessing_in_words(preprocessing, text):
    assert preprocessing_text(preprocessing.to_dict()) == text


def test_facts_hold_what_the_provenance_records_and_nothing_else():
    provenance = replace(FULL, labelled=9, correct=6, options={"only_correct": True}, steps=None)
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
    assert facts(agop.AGOP(torch.ones(1, 2, 2), 1234, provenance=Provenance())) == {
        "statistic": "diag(M) of 1×2×2 input values", "samples": "1,234 counted",
        "images": "preprocessing not recorded",
    }  # fmt: skip


def test_a_training_is_described_with_its_steps_and_many_classes_are_abbreviated():
    provenance = Provenance.from_dict(
        {"kind": "training-accumulated", "steps": 1200, "data": {"classes": [f"c{index}" for index in range(12)]}}
    )
    lines = facts(agop.AGOP(torch.ones(1, 2, 2), 5, torch.ones(12, 1, 2, 2), torch.ones(12).long(), provenance))
    assert lines["statistic"] == (
        "diag(M) of 1×2×2 input values, also by class (12 classes), collected during training (1,200 steps)"
    )
    assert lines["classes"] == "c0, c1, c2, c3, c4, c5, c6, c7, c8, c9 … (12)"
