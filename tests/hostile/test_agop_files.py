"""Damaged files: flipped bits and mutated values in AGOP files, and commands with mutated files of all kinds.

AGOP_HOSTILE_FLIPS, AGOP_HOSTILE_FILES and AGOP_HOSTILE_CALLS set how often each is tried.
"""

import os
import random
from collections import Counter

import pytest
import torch

import agop
from agop.errors import FileError
from tests.agop_files import flipped
from tests.mutated_calls import prepare, try_all
from tests.mutated_files import mutated, mutated_safetensors
from tests.state import same

pytestmark = [
    pytest.mark.hostile, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
]  # fmt: skip
FLIPS = int(os.environ.get("AGOP_HOSTILE_FLIPS", "3000"))
FILES = int(os.environ.get("AGOP_HOSTILE_FILES", "3000"))
CALLS = int(os.environ.get("AGOP_HOSTILE_CALLS", "2400"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    prepare(folder)
    return folder


def loaded(path):
    """The AGOP of a file; None if it's rejected."""
    try:
        return agop.AGOP.load(path)
    except FileError:
        return None


def are_equal(a, b):
    names = ("diagonal", "count", "class_diagonals", "class_counts", "provenance")
    return all(same(getattr(a, name), getattr(b, name)) for name in names)


def test_flipped_bits(folder, tmp_path):
    """A file with a flipped bit is rejected, or the bit doesn't matter and its content is the same."""
    content, expected = (folder / "prior.safetensors").read_bytes(), agop.AGOP.load(folder / "prior.safetensors")
    draw, outcomes = random.Random(FLIPS), Counter()
    for _ in range(FLIPS):
        (tmp_path / "flipped").write_bytes(flipped(content, draw.randrange(8 * len(content))))
        prior = loaded(tmp_path / "flipped")
        outcomes["rejected" if prior is None else "equal" if are_equal(prior, expected) else "wrong"] += 1
    print(f"\nflipped bits in AGOP files: {FLIPS} tried, {FLIPS - outcomes['wrong']} held ({dict(outcomes)})")
    assert not outcomes["wrong"]


def test_mutated_values(folder, tmp_path):
    """A file without a checksum, as of earlier versions: what loads has valid values, and can be saved and loaded."""
    content = (folder / "prior.safetensors").read_bytes()
    outcomes = Counter()
    for number in range(FILES):
        (tmp_path / "mutated").write_bytes(mutated(content, random.Random(number), mutated_safetensors))
        prior = loaded(tmp_path / "mutated")
        if prior is None:
            outcomes["rejected"] += 1
            continue
        valid = prior.count > 0 and bool((prior.diagonal >= 0).all()) and bool(prior.diagonal.isfinite().all())
        prior.save(tmp_path / "again")
        outcomes["accepted" if valid and are_equal(agop.AGOP.load(tmp_path / "again"), prior) else "wrong"] += 1
    print(f"\nAGOP files with mutated values: {FILES} tried, {FILES - outcomes['wrong']} held ({dict(outcomes)})")
    assert not outcomes["wrong"]


def test_commands_with_mutated_files(folder):
    outcomes, leaks = try_all(folder, CALLS, seed=CALLS)
    totals = Counter()
    for (_, result), count in outcomes.items():
        totals[result] += count
    print(f"\ncommands and app with mutated files: {CALLS} tried, {CALLS - len(leaks)} held ({dict(totals)})")
    assert leaks == {}


def test_huge_preprocessing_takes_no_memory(folder, tmp_path):
    """A few kilobytes that ask for images of 16,000² are rejected before any image is read."""
    prior = agop.AGOP.load(folder / "prior.safetensors")
    prior.provenance.data.preprocessing.update(size=[16_000, 16_000])
    prior.save(tmp_path / "huge.safetensors")
    with pytest.raises(FileError, match="size"):
        agop.AGOP.load(tmp_path / "huge.safetensors")
    assert torch.equal(prior.diagonal, agop.AGOP.load(folder / "prior.safetensors").diagonal)
