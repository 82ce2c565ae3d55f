"""The reader of the official release: complete releases, and releases with missing or corrupt files."""

import pickle
import shutil
import zipfile

import numpy as np
import pytest
from PIL import Image

from agop.errors import FileError, UnknownNameError
from agop.scenarios.clevr.dataset import drawn_sample
from agop.scenarios.clevr.release.samples import read_release
from agop.scenarios.clevr.render.images import object_masks as rendered_masks
from agop.scenarios.clevr.render.images import render
from agop.scenarios.clevr.render.scene import random_scene
from tests import clevr
from tests.clevr import COLOURS, HEIGHT, RARE, WIDTH, name, object_masks, pillow_at_128, read, truth_file, write


@pytest.fixture
def folder(tmp_path):
    clevr.write_official(tmp_path / "release")
    return tmp_path / "release"


def kept(release):
    return [sample.question_index for sample in release.samples]


def dropped(folder, index, reason):
    """Whether that sample, and no other, is dropped for that reason."""
    release = read_release(folder)
    return kept(release) == [i for i in (2, 5, 9, 17) if i != index] and release.dropped == {RARE: 1, reason: 1}


def only_mask_image_dropped(folder, index, reason):
    """Whether an unusable mask image costs the dominant mask, and the sample only if a ground truth is missing."""
    release = read_release(folder)
    sample = next(sample for sample in release.samples if sample.question_index == index)
    assert (kept(release), release.without_dominant) == ([2, 5, 9, 17], 1)
    assert release.masks(sample).keys() == {"all_objects", "single_object"}
    truth_file(folder, "single_object", index).unlink()
    return dropped(folder, index, reason)


def test_complete_release(folder):
    messages = []
    release = read_release(folder, messages.append)
    assert release.totals == {"scenes": 5, "questions": 6, "material questions": 5}
    assert (kept(release), release.dropped, release.kept) == ([2, 5, 9, 17], {RARE: 1}, 4)
    assert [sample.label for sample in release.samples] == [0, 1, 0, 1]
    assert [sample.dominant for sample in release.samples] == [(0, 1, 2), (0, 1, 2, 3), (0, 1, 2), (0, 1, 2)]
    assert messages[-1] == "checking the images and masks of 4 samples"
    summary = release.summary()
    assert "kept: 4 samples on 4 images, 2 metal and 2 rubber" in summary
    assert f"dropped: 1, {RARE}" in summary
    image = release.image(release.samples[1], 16)
    with Image.open(folder / "images" / name(1)) as file:
        assert np.array_equal(image, file.convert("RGB").resize((16, 16), Image.BILINEAR))
    assert (image.shape, image.dtype) == ((16, 16, 3), np.uint8)


def test_masks_are_the_releases_ground_truths_where_it_has_them(folder):
    changed = np.zeros((128, 128), bool)
    changed[5:9, 7:60] = True
    np.save(truth_file(folder, "all_objects", 5), changed)
    release = read_release(folder)
    masks = release.masks(release.samples[1])
    assert np.array_equal(masks["all_objects"], changed)
    assert np.array_equal(masks["single_object"], pillow_at_128(object_masks(5)[0]))
    assert np.array_equal(masks["dominant"], pillow_at_128(object_masks(5)[:4].any(0)))
    assert {mask.dtype for mask in masks.values()} == {np.dtype(bool)}


def test_mask_colours_with_rounding_noise_still_match_their_object(folder):
    for path in (folder / "masks").iterdir():
        with Image.open(path) as image:
            pixels = np.array(image).astype(int)
        noise = np.random.default_rng(0).integers(-1, 2, pixels.shape)
        Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8)).save(path)
    truth_file(folder, "single_object", 2).unlink()
    release = read_release(folder)
    assert np.array_equal(release.masks(release.samples[0])["single_object"], pillow_at_128(object_masks(5)[0]))


def test_without_a_mask_image_there_is_no_dominant_mask(folder):
    (folder / "masks" / name(1)).unlink()
    assert "1 without a usable mask image, skipped by the benchmark" in read_release(folder).summary()
    assert only_mask_image_dropped(folder, 5, "it has neither a ground truth nor a mask image")


@pytest.mark.parametrize("corrupt", [lambda data: data[: len(data) // 2], lambda _: b"", lambda _: b"no"])
def test_sample_with_a_corrupt_image_is_dropped(folder, corrupt):
    for part, test, what in (("masks", only_mask_image_dropped, "mask image"), ("images", dropped, "image")):
        path = folder / part / name(3)
        path.write_bytes(corrupt(path.read_bytes()))
        assert test(folder, 9, f"its {what} is corrupt")


def test_sample_with_a_missing_image_is_dropped(folder):
    (folder / "images" / name(3)).unlink()
    assert dropped(folder, 9, "its image is missing")


def test_mask_image_of_another_size_is_not_used(folder):
    with Image.open(folder / "masks" / name(4)) as image:
        image.resize((HEIGHT, WIDTH), Image.NEAREST).save(folder / "masks" / name(4))
    assert only_mask_image_dropped(folder, 17, "its mask image and its image differ in size")


def test_mask_image_of_another_scene_is_not_used(folder):
    scenes = read(folder, "scenes")
    for record in scenes[3]["objects"]:
        record["mask_color"] = [1.0, 1.0, 1.0]
    write(folder, "scenes", scenes)
    assert only_mask_image_dropped(folder, 9, "its mask image's colours don't match the scene's objects")


NOT_A_MASK = "its ground truth is not a two-dimensional mask of true and false"


@pytest.mark.parametrize(("truth", "reason"), [
    (np.ones((1, 128, 128), bool), NOT_A_MASK), (np.ones(128, bool), NOT_A_MASK), (np.ones((128, 4), bool), NOT_A_MASK),
    (np.full((128, 128), 0.5), NOT_A_MASK), (np.full((128, 128), np.nan), NOT_A_MASK),
    (np.full((128, 128), "a"), NOT_A_MASK), (np.zeros((128, 128), bool), "one of its masks is empty"),
    (b"", "its ground truth is corrupt"), (b"garbage", "its ground truth is corrupt"),
    (b"\x93NUMPY\x01\x00v\x00{'descr'", "its ground truth is corrupt"),
])  # fmt: skip
def test_sample_with_an_unusable_ground_truth_is_dropped(folder, truth, reason):
    path = truth_file(folder, "single_object", 9)
    if isinstance(truth, bytes):
        path.write_bytes(truth)
    else:
        np.save(path, truth)
    assert dropped(folder, 9, reason)


def test_ground_truths_of_other_sizes_and_of_numbers_are_read(folder):
    numbers = np.zeros((16, 24), np.uint8)
    numbers[3:6, 5:9] = 1
    np.save(truth_file(folder, "all_objects", 9), numbers)
    release = read_release(folder)
    assert kept(release) == [2, 5, 9, 17]
    assert np.array_equal(release.masks(release.samples[2])["all_objects"], numbers == 1)


class Trap:
    """A pickle that runs code when loaded."""

    loaded = False

    def __reduce__(self):
        return setattr, (Trap, "loaded", True)


@pytest.mark.parametrize("as_array", [True, False])
def test_pickle_raises_and_is_not_loaded(folder, as_array):
    path = truth_file(folder, "single_object", 9)
    if as_array:
        np.save(path, np.array([Trap()], dtype=object), allow_pickle=True)
    else:
        path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(FileError, match=r"single_object/9\.npy in .* is a pickle"):
        read_release(folder)
    assert not Trap.loaded


def test_questions_without_a_scene_or_in_another_format_are_counted(folder):
    questions = read(folder, "simple_questions")
    questions[0]["image_filename"] = "CLEVR_unique_000099.png"
    questions[1]["program"][-2]["_output"] = 99
    del questions[3]["program"][-2]["_output"]
    write(folder, "simple_questions", questions)
    release = read_release(folder)
    assert kept(release) == [17]
    malformed = "the question or its scene is not in the official format"
    assert release.dropped == {RARE: 1, "its scene is missing": 1, malformed: 2}
    assert release.kept + sum(release.dropped.values()) == release.totals["material questions"]


def test_file_names_in_the_json_cannot_point_outside_the_folder(folder):
    shutil.move(folder / "images" / name(3), folder.parent / name(3))
    scenes = read(folder, "scenes")
    scenes[3]["image_filename"] = f"../../{name(3)}"
    write(folder, "scenes", scenes)
    assert dropped(folder, 9, "its image is missing")


def test_complex_questions_get_the_single_object_from_the_mask_image(folder):
    (folder / "CLEVR-XAI_simple_questions.json").rename(folder / "CLEVR-XAI_complex_questions.json")
    release = read_release(folder, questions="complex")
    assert kept(release) == [2, 5, 9, 17]
    assert np.array_equal(release.masks(release.samples[0])["single_object"], pillow_at_128(object_masks(5)[0]))
    with pytest.raises(UnknownNameError, match="did you mean 'simple'"):
        read_release(folder, questions="simpel")


def zipped(folder, out, top=""):
    """Pack a folder into the two official archives."""
    out.mkdir()
    parts = {"CLEVR-XAI_v1.0.zip": False, "CLEVR-XAI_v1.0_images_masks.zip": True}
    for archive, of_images in parts.items():
        with zipfile.ZipFile(out / archive, "w") as file:
            file.writestr(f"__MACOSX/{top}._CLEVR-XAI_scenes.json", "added by macOS")
            for path in sorted(folder.rglob("*.*")):
                if (path.suffix == ".png") == of_images:
                    file.write(path, f"{top}{path.relative_to(folder)}")
    return out


def same(release, other):
    for sample in release.samples:
        one, two = release.masks(sample), other.masks(sample)
        assert one.keys() == two.keys()
        assert all(np.array_equal(one[kind], two[kind]) for kind in one)
        assert np.array_equal(release.image(sample, 8), other.image(sample, 8))
    return release.samples == other.samples and release.summary() == other.summary()


@pytest.mark.parametrize("top", ["", "CLEVR-XAI_v1.0/"])
def test_archives_give_the_same_as_the_unpacked_folder(folder, tmp_path, top):
    archives = zipped(folder, tmp_path / "zips", top)
    expected = read_release(folder)
    before = sorted(tmp_path.rglob("*"))
    assert same(read_release(archives), expected)
    assert same(read_release(archives / "CLEVR-XAI_v1.0.zip"), expected)
    assert same(read_release(archives / "CLEVR-XAI_v1.0_images_masks.zip"), expected)
    assert sorted(tmp_path.rglob("*")) == before  # nothing is unpacked


def test_subfolders_and_half_unpacked_folders_are_read(folder, tmp_path):
    expected = read_release(folder)
    nested = tmp_path / "nested"
    shutil.copytree(folder, nested / "CLEVR-XAI_v1.0")
    assert same(read_release(nested), expected)
    archives = zipped(folder, tmp_path / "half")
    (archives / "CLEVR-XAI_v1.0.zip").unlink()
    for part in ("images", "masks"):
        shutil.rmtree(nested / "CLEVR-XAI_v1.0" / part)
    shutil.move(archives / "CLEVR-XAI_v1.0_images_masks.zip", nested)
    assert same(read_release(nested), expected)


def test_corrupt_member_drops_its_sample_and_corrupt_archive_raises(folder, tmp_path):
    archives = zipped(folder, tmp_path / "zips")
    path = archives / "CLEVR-XAI_v1.0_images_masks.zip"
    content, member = bytearray(path.read_bytes()), (folder / "images" / name(3)).read_bytes()
    place = bytes(content).index(member[60:80])
    content[place : place + 4] = b"\0\0\0\0"
    path.write_bytes(content)
    assert dropped(archives, 9, "its image is corrupt")
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(FileError, match=r"images_masks\.zip is not a valid zip archive.*download it again"):
        read_release(archives)


@pytest.mark.parametrize("what", ["scenes", "simple_questions"])
def test_truncated_json_raises_with_its_name(folder, what):
    path = folder / f"CLEVR-XAI_{what}.json"
    content = path.read_text()
    path.write_text(content[: len(content) // 2])
    with pytest.raises(FileError, match=rf"CLEVR-XAI_{what}\.json in .* is not valid JSON"):
        read_release(folder)
    path.write_text('{"info": 1}')
    with pytest.raises(FileError, match=rf"CLEVR-XAI_{what}\.json in .* has no list of"):
        read_release(folder)


def test_folders_without_a_release_raise_with_the_download_page(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("x")
    for path, problem in (("empty", "has no CLEVR-XAI_scenes"), ("gone", "doesn't exist"), ("file.txt", "neither")):
        with pytest.raises(FileError, match=rf"{problem}.*download .*github\.com/ahmedmagdiosman/clevr-xai/releases"):
            read_release(tmp_path / path)
    shutil.rmtree(folder / "images")
    with pytest.raises(FileError, match=r"no usable sample.*images_masks\.zip.*4 dropped: its image is mis"):
        read_release(folder)


def test_reader_returns_rendered_scenes_as_they_were_written(tmp_path):
    """Labels, objects, masks and images of several scenes, with and without ground-truth files."""
    drawn = []
    for number in range(4):
        index, sample = drawn_sample(0, number)
        scene = random_scene(0, index)
        objects = [
            clevr.official_object(f"{each.size} {each.color} {each.shape}", each.material, colour)
            for each, colour in zip(scene.objects, COLOURS, strict=False)
        ]
        record = clevr.official_scene(number, objects)
        drawn.append((sample, record, render(scene, 96, 64, 1), rendered_masks(scene, 96, 64)))
    questions = [clevr.official_question(n, record, sample.queried) for n, (sample, record, *_) in enumerate(drawn)]
    clevr.write_release(tmp_path / "release", [parts[1:] for parts in drawn], questions)
    for with_ground_truths in (True, False):
        if not with_ground_truths:
            for kind in ("single_object", "all_objects"):
                shutil.rmtree(truth_file(tmp_path / "release", kind, 0).parent)
        release = read_release(tmp_path / "release")
        assert release.kept == 4
        for sample, (expected, _, image, masks) in zip(release.samples, drawn, strict=True):
            assert vars(expected).items() <= vars(sample).items()
            kinds = {
                "all_objects": masks.any(axis=0),
                "single_object": masks[sample.queried],
                "dominant": masks[list(sample.dominant)].any(axis=0),
            }
            read_masks = release.masks(sample)
            assert read_masks.keys() == kinds.keys()
            assert all(np.array_equal(read_masks[kind], pillow_at_128(mask)) for kind, mask in kinds.items())
            assert np.array_equal(release.image(sample, 32), Image.fromarray(image).resize((32, 32), Image.BILINEAR))
