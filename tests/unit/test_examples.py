"""Examples run to the end, as a user runs them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from examples import train_and_explain
from PIL import Image

import agop

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("with_*.py"))


# with_timm runs in tests/integrations, with placeholders for operators that timm's torchvision may lack. with_fiftyone
# reads the files of an audit: tests/unit/auditing/test_audit.py.
@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [path for path in EXAMPLES if path.stem not in ("with_timm", "with_fiftyone")],
    ids=lambda path: path.stem,
)
def test_example_runs(path, tmp_path):
    process = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"}, timeout=300,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip()


@pytest.mark.slow
def test_train_and_explain_draws_its_images(tmp_path, monkeypatch, capsys):
    """With two epochs instead of 100: `make pictures` runs all of them."""
    monkeypatch.chdir(tmp_path)
    train_and_explain.main(epochs=2)
    for scenario in ("linear", "translations_rotations"):
        with Image.open(f"demo/{scenario}.png") as picture:
            assert picture.height > 100
        assert agop.AGOP.load(f"demo/{scenario}/agop.safetensors").count > 0
    table = capsys.readouterr().out
    assert [method for method in train_and_explain.METHODS if method not in table] == []
