"""Scenes written in the official form, masks brought to size, and the commands for both."""

import shutil
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from agop.cli.data import app
from agop.errors import FileError, InputError
from agop.scenarios.clevr.release.masks import as_released, resized
from agop.scenarios.clevr.release.reader import read_release
from agop.scenarios.clevr.release.writing import write_release
from tests import clevr
from tests.clevr import HEIGHT, RARE, WIDTH, name, object_masks, official_scene, pillow_at_128, read, truth_file


@pytest.fixture
def folder(tmp_path):
    clevr.write_official(tmp_path / "release")
    return tmp_path / "release"


@pytest.mark.parametrize(("shape", "size"), [((128, 128), 64), ((32, 48), 128), ((320, 480), 64), ((9, 9), 9)])
def test_resized_is_torchs_bilinear_above_zero(shape, size):
    masks = np.random.default_rng(0).random((2, 3, *shape)) < 0.05
    floats = torch.from_numpy(masks).float()
    expected = torch.nn.functional.interpolate(floats, (size, size), mode="bilinear", align_corners=False) > 0
    found = resized(masks, size)
    assert found.dtype == bool
    assert np.array_equal(found, expected.numpy())
    assert np.array_equal(resized(masks[1, 2], size), found[1, 2])


def test_as_released_is_what_the_benchmark_does():
    masks = np.random.default_rng(0).random((3, 320, 480)) < 0.001
    for mask in masks:
        assert np.array_equal(as_released(mask), pillow_at_128(mask))
    assert as_released(masks[0]).sum() > resized(masks[0], 128).sum()


def drawn(index, seen=None):
    """A scene with its picture and masks; module level, so that a worker process finds it."""
    if seen is not None:
        seen.append(index)
    scene = official_scene(99, ["mmmrr", "rrrr", "mr"][index % 3])
    picture = np.random.default_rng(index).integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
    return scene, picture, object_masks(len(scene["objects"]))


ABOUT = {"seed": 0, "size": [WIDTH, HEIGHT]}


def test_what_is_written_is_what_is_read(tmp_path):
    write_release(tmp_path / "out", drawn, range(6), ABOUT)
    release = read_release(tmp_path / "out")
    assert release.found == {"scenes": 6, "questions": 6, "material questions": 6}
    assert release.samples
    assert release.dropped.keys() <= {RARE}
    for sample in release.samples:
        scene, _, masks = drawn(sample.image_index)
        materials = [thing["material"] for thing in scene["objects"]]
        expected = {
            "all_objects": masks.any(0),
            "single_object": masks[sample.queried],
            "dominant": masks[[material == materials[sample.queried] for material in materials]].any(0),
        }
        assert sample.label == ["metal", "rubber"].index(materials[sample.queried])
        found = release.masks(sample)
        assert all(np.array_equal(found[kind], pillow_at_128(mask)) for kind, mask in expected.items())
    # the mask pictures alone say the same
    for kind in ("single_object", "all_objects"):
        shutil.rmtree(tmp_path / "out" / f"ground_truth_simple_questions_{kind}")
    again = read_release(tmp_path / "out")
    for sample in release.samples:
        found = again.masks(sample)
        assert np.array_equal(found["single_object"], pillow_at_128(drawn(sample.image_index)[2][sample.queried]))


def test_only_what_is_missing_or_broken_is_drawn_again(tmp_path):
    seen, folder = [], tmp_path / "out"
    write_release(folder, partial(drawn, seen=seen), range(4), ABOUT)
    whole = {path: path.read_bytes() for path in folder.rglob("*.*")}
    assert seen == [0, 1, 2, 3]
    (folder / "images" / name(1)).write_bytes(whole[folder / "images" / name(1)][:-20])
    (folder / "scenes" / name(2).replace("png", "json")).unlink()
    truth_file(folder, "all_objects", 3).unlink()
    write_release(folder, partial(drawn, seen=seen), range(5), ABOUT)
    assert seen == [0, 1, 2, 3, 1, 2, 3, 4]
    json_files = {folder / f"CLEVR-XAI_{what}.json" for what in ("scenes", "simple_questions")}
    assert all(path.read_bytes() == content for path, content in whole.items() if path not in json_files)
    assert len(read(folder, "scenes")) == 5


def test_two_processes_write_what_one_writes(tmp_path):
    for jobs in (1, 2):
        write_release(tmp_path / str(jobs), drawn, range(3), ABOUT, jobs)
    one, two = (
        {path.relative_to(tmp_path / jobs): path.read_bytes() for path in (tmp_path / jobs).rglob("*.*")}
        for jobs in "12"
    )
    assert one == two


def test_a_folder_that_is_something_else_is_left_alone(tmp_path):
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty and holds no drawn scenes: name another folder"):
        write_release(tmp_path, drawn, range(2), ABOUT)
    with pytest.raises(InputError, match=r"note\.txt is a file: name a folder"):
        write_release(tmp_path / "note.txt", drawn, range(2), ABOUT)
    write_release(tmp_path / "out", drawn, range(2), ABOUT)
    with pytest.raises(InputError, match=r"drawn with .*'seed': 0.*not .*'seed': 1"):
        write_release(tmp_path / "out", drawn, range(2), ABOUT | {"seed": 1})
    with pytest.raises(InputError, match="jobs is 0"):
        write_release(tmp_path / "out", drawn, range(2), ABOUT, jobs=0)


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_the_command_says_where_to_get_the_files_and_what_is_there(folder):
    told = run("clevr-xai")
    assert told.exit_code == 0
    for words in ("CLEVR-XAI_v1.0.zip", "CLEVR-XAI_v1.0_images_masks.zip", "/releases", "agop bench clevr-xai --data"):
        assert words in told.stdout
    told = run("clevr-xai", folder)
    assert told.exit_code == 0
    assert read_release(folder).summary() in told.stdout
    assert isinstance(run("clevr-xai", folder / "images").exception, FileError)


def test_the_command_draws_scenes_that_can_be_read(tmp_path):
    for count in (3, 6):  # the second goes on with the first
        done = run("clevr-render", tmp_path / "out", "--count", count, "--size", "48x32", "--seed", 1, "--jobs", 1)
        assert done.exit_code == 0, done.exception
    assert f"wrote 6 scenes to {tmp_path / 'out'}" in done.stdout.replace("\n", "")
    release = read_release(tmp_path / "out")
    assert release.found["scenes"] == 6
    with Image.open(tmp_path / "out" / "images" / name(5)) as picture:
        assert picture.size == (48, 32)


@pytest.mark.parametrize(("arguments", "said"), [
    (("--count", "0"), "count is 0"), (("--size", "480"), "size is '480': give WIDTHxHEIGHT"),
    (("--size", "0x320"), "size is '0x320'"), (("--size", "axb"), "size is 'axb'"), (("--jobs", "0"), "jobs is 0"),
])  # fmt: skip
def test_the_command_refuses_what_cannot_be_drawn(tmp_path, arguments, said):
    failed = run("clevr-render", tmp_path / "out", *arguments)
    assert isinstance(failed.exception, InputError)
    assert said in str(failed.exception)
    assert not (tmp_path / "out").exists()
