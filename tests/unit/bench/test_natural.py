"""Solar cells in `agop bench shortcuts`: reading, the parts of the data, the report, and a small run."""

import json

import numpy as np
import pytest

from agop.bench.natural import AGREEMENTS, NaturalResult, NaturalSpec, markdown, parts
from agop.errors import FileError, InputError
from agop.images.datasets import has_cells, read_cells
from tests.command import run_checked
from tests.image_files import save


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Drawn cells: mono ones have dark corners, defects a bright line."""
    folder, random, lines = tmp_path_factory.mktemp("cells"), np.random.default_rng(0), []
    for index in range(480):
        image = random.uniform(100, 140, (24, 24))
        defect, mono = index % 2, index // 2 % 2
        if mono:
            image[:6, :6] = image[-6:, -6:] = 0
        if defect:
            image[int(random.integers(8, 16)), 4:20] = 200
        save(folder / f"images/{index}.png", image)
        lines.append(f"images/{index}.png  {('0.0', '0.6666666666666666')[defect]}  {('poly', 'mono')[mono]}")
    (folder / "labels.csv").write_text("\n".join(lines))
    return folder


def test_cells_are_read(folder):
    images, defects, types = read_cells(folder, 32)
    assert images.shape == (480, 32, 32, 3)
    assert defects.tolist() == [index % 2 for index in range(480)]
    assert types[:4].tolist() == ["poly", "poly", "mono", "mono"]
    assert (images[types == "mono"][:, 0, 0] == 0).all()
    assert has_cells(folder)
    assert not has_cells(folder / "images")


def test_other_files_raise(tmp_path):
    (tmp_path / "labels.csv").write_text("name,label\nx.png,3\n")
    with pytest.raises(FileError, match="isn't that of ELPV"):
        read_cells(tmp_path, 32)


@pytest.mark.parametrize("agreement", AGREEMENTS.values())
def test_parts_are_disjoint_and_have_the_same_shares(agreement):
    defects, types = np.arange(2400) % 2, np.array(["mono", "poly"])[np.arange(2400) // 2 % 2]
    training, more, repairing, tested = parts(defects, types, agreement, 560, 1)
    assert sorted(np.concatenate([training, repairing, tested]).tolist()) == list(range(2400))
    assert set(more) <= set(repairing)
    assert len(set(np.bincount(2 * defects[repairing] + (types[repairing] == "mono")))) == 1
    for part in (training, more):
        assert np.mean((types[part] == "mono") == (defects[part] == 1)) == pytest.approx(agreement, abs=0.01)
        assert defects[part].mean() == pytest.approx(0.5, abs=0.01)
    assert len(training) == 560
    assert min(np.bincount(2 * defects[tested] + (types[tested] == "mono"))) >= 40
    with pytest.raises(InputError, match="the cells suffice for"):
        parts(defects, types, agreement, 5000, 1)


def test_report_has_the_worst_group_before_and_after():
    before = {"intact mono": 0.3, "intact poly": 0.98, "defect mono": 0.9, "defect poly": 0.4}
    after = dict.fromkeys(before, 0.7)
    result = NaturalResult("mono", 1, before, after, (), ("Group mono decides.",), ("repaired",))
    text = markdown(NaturalSpec("x"), [result])
    assert "| 90 % | 1 | 0.30 → 0.70 | 0.98 → 0.70 | 0.90 → 0.70 | 0.40 → 0.70 | 0.30 → 0.70 | – | yes |" in text
    assert "- 90 %, seed 1: Group mono decides." in text


@pytest.mark.slow
def test_quick_run(folder, tmp_path):
    command = ("bench", "shortcuts", "--data", str(folder), "--quick", "--seeds", "1", "--kind", "mono", "--out", "run")
    assert "| 90 % | 0 |" in run_checked(*command, folder=tmp_path).stdout
    (file,) = (tmp_path / "run/models").iterdir()
    assert set(json.loads(file.read_text())["before"]) == {"intact mono", "intact poly", "defect mono", "defect poly"}
