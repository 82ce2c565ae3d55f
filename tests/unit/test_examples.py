"""Every example runs to its end, as a user runs it, and is short."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("with_*.py"))


def test_there_is_one_for_each_library():
    assert [path.stem.removeprefix("with_") for path in EXAMPLES] == [
        "captum", "lightning", "quantus", "timm", "transformers",
    ]  # fmt: skip


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_is_under_sixty_lines(path):
    assert len(path.read_text().splitlines()) < 60


# That with timm runs in tests/interop, with stand-ins for operators that timm's torchvision may lack.
@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.stem != "with_timm"], ids=lambda path: path.stem)
def test_it_runs(path, tmp_path):
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
