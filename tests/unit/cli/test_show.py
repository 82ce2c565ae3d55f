"""`agop show`."""

import numpy as np
import pytest
from PIL import Image

from agop.app import example
from tests.command import error_of, run_checked
from tests.image_files import save_random
from tests.unit.statistic.test_concentration import of_classes, patches


def test_show_prints_facts_and_concentration_and_draws_the_maps(tmp_path):
    prior = of_classes(patches(8, 1), [50] * 8, ["cat", "horse", *"abcdef"])
    (tmp_path / "some").mkdir()
    prior.save(tmp_path / "some" / "prior.safetensors")
    result = run_checked("show", "some/prior.safetensors", folder=tmp_path)
    assert result.stderr == ""
    assert "class horse: 24 % of diag(M) in 16 of 1,024 pixels, at the lower left; other classes 1.6 %" in result.stdout
    rows = {line.split("  ")[0]: line.split() for line in result.stdout.splitlines()}
    assert rows["class horse"] == ["class", "horse", "50", "24", "%", "lower", "left"]
    assert rows["all samples"][2] == "400"
    assert "wrote some/prior.png" in result.stdout
    with Image.open(tmp_path / "some" / "prior.png") as sheet:
        # Six panels of 192 pixels in the first row, three in the second. The second panel is the horse's map.
        assert sheet.size == (6 * 192 + 5 * 8, 2 * (192 + 22) + 8)
        horse = np.asarray(sheet.convert("L"), dtype=int)[22 : 22 + 192, 200 : 200 + 192]
    assert horse[168:, :24].min() > 240 > 100 > horse[:168].max()


def test_out_is_the_path_of_the_png_and_few_samples_warn(tmp_path):
    of_classes(patches(2, 1), [30, 30]).save(tmp_path / "prior.safetensors")
    result = run_checked("show", "prior.safetensors", "--out", "deep/maps.png", folder=tmp_path)
    assert "60 samples were counted, which is few" in result.stderr
    assert (tmp_path / "deep" / "maps.png").is_file()


def test_an_earlier_png_is_overwritten_and_another_one_only_by_force(tmp_path):
    of_classes(patches(2, 1), [300, 300]).save(tmp_path / "prior.safetensors")
    for _ in range(2):
        run_checked("show", "prior.safetensors", folder=tmp_path)
    drawn = (tmp_path / "prior.png").read_bytes()
    save_random(tmp_path, "prior.png")
    photo = (tmp_path / "prior.png").read_bytes()
    assert "prior.png already exists" in error_of("show", "prior.safetensors", folder=tmp_path)
    assert (tmp_path / "prior.png").read_bytes() == photo
    run_checked("show", "prior.safetensors", "--force", folder=tmp_path)
    assert (tmp_path / "prior.png").read_bytes() == drawn


def test_many_classes_are_listed_up_to_a_limit(tmp_path):
    of_classes(patches(40, 7), [50] * 40).save(tmp_path / "prior.safetensors")
    lines = run_checked("show", "prior.safetensors", folder=tmp_path).stdout.splitlines()
    assert sum(line.startswith("class ") for line in lines) == 1 + 23
    assert "… and 17 more" in "\n".join(lines)


def test_the_prior_of_a_hook_is_shown(tmp_path):
    result = run_checked("show", example.PRIOR, "--out", "x.png", folder=tmp_path)
    assert "collected during training" in result.stdout
    assert "all samples: " in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing.safetensors",), "could not read nothing.safetensors"),
        (("text.safetensors",), "text.safetensors is not an AGOP file"),
        (("text.safetensors", "--out", "maps.jpg"), "out maps.jpg isn't a .png file: give maps.png"),
        (("text.safetensors", "--out", "folder.png"), "folder.png already exists and isn't a result of this command"),
        (("text.safetensors", "--out", "text.safetensors/maps.png"), "text.safetensors isn't a writable folder"),
    ],
)
def test_mistakes_are_one_line(tmp_path, arguments, message):
    (tmp_path / "text.safetensors").write_text("text")
    (tmp_path / "folder.png").mkdir()
    assert message in error_of("show", *arguments, folder=tmp_path)
