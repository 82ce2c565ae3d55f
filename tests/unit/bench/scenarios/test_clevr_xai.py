"""CLEVR-XAI: the reader of the release, drawn samples, the scenario, and runs of the benchmark."""

import json
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from agop.bench.runner import run_cells
from agop.bench.scenarios import clevr_xai, get
from agop.bench.scenarios.clevr_release import KINDS, official_sample, read_release, resized
from agop.bench.scenarios.clevr_render import object_masks, render
from agop.bench.scenarios.clevr_scene import random_scene
from agop.bench.scenarios.clevr_xai import by_scene, drawn_dataset, drawn_masks, drawn_sample, official_dataset
from agop.errors import FileError, InputError, UnknownNameError
from agop.report.folder import RunSpec, read
from tests import clevr
from tests.clevr import RARE, name, pillow_at_128, truth_file, write_official
from tests.command import run, run_checked

COUNT, SIZE = 12, 32


def test_a_mask_of_half_the_size_has_every_pixel_with_a_true_one_below_it():
    masks = np.random.default_rng(0).random((2, 3, 128, 128)) < 0.05
    smaller = resized(masks, 64)
    assert smaller.dtype == bool
    assert np.array_equal(smaller, masks.reshape(2, 3, 64, 2, 64, 2).any(axis=(3, 5)))
    assert np.array_equal(resized(masks[1, 2], 64), smaller[1, 2])
    assert np.array_equal(resized(masks, 128), masks)


def scene(metal, rubber):
    """A scene of that many metal and then rubber objects, no two of them alike."""
    colours = ("gray", "red", "blue", "green", "brown", "purple", "cyan", "yellow")
    looks = [f"{size} {colour} cube" for size in ("small", "large") for colour in colours]
    materials = ["metal"] * metal + ["rubber"] * rubber
    return clevr.official_scene(7, [clevr.official_object(*pair) for pair in zip(looks, materials, strict=False)])


def sample(record):
    return official_sample(clevr.official_question(0, record), record)


def test_sixty_percent_is_enough_and_less_is_not():
    for metal, rubber in ((3, 2), (6, 4)):
        assert sample(scene(metal, rubber)).label == 0
    for metal, rubber in ((5, 4), (4, 3)):
        with pytest.raises(InputError, match=RARE):
            sample(scene(metal, rubber))


def test_older_programs_have_function_instead_of_type():
    record = scene(3, 1)
    question = clevr.official_question(1, record, 1)
    expected = official_sample(question, record)
    for node in question["program"]:
        node["function"] = node.pop("type")
    assert official_sample(question, record) == expected


def test_queried_object_is_the_input_of_the_last_node():
    record = scene(4, 0)
    question = clevr.official_question(0, record, 2)
    # A reference object's unique node in between, as in complex questions.
    question["program"].insert(5, {"type": "unique", "inputs": [0], "value_inputs": [], "_output": 0})
    assert official_sample(question, record).queried == 2


@pytest.mark.parametrize("change", [
    lambda q: q.update(answer="wood"), lambda q: q.update(answer="rubber"), lambda q: q.pop("question_index"),
    lambda q: q["program"][-2].update(_output=99), lambda q: q["program"][-2].update(_output=-1),
    lambda q: q["program"][-2].update(_output=[0, 1]), lambda q: q["program"][-2].update(type="filter_size"),
    lambda q: q["program"][-1].update(inputs=[]),
])  # fmt: skip
def test_malformed_questions_raise(change):
    record = scene(3, 0)
    question = clevr.official_question(0, record)
    change(question)
    with pytest.raises(InputError, match="not in the official format"):
        official_sample(question, record)


@pytest.fixture
def folder(tmp_path):
    write_official(tmp_path / "release")
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
    assert (kept(release), release.dropped, len(release.samples)) == ([2, 5, 9, 17], {RARE: 1}, 4)
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


@pytest.mark.parametrize(("shape", "kind"), [((128, 128), bool), ((16, 24), np.uint8)])
def test_masks_are_the_releases_ground_truths_where_it_has_them(folder, shape, kind):
    changed = np.zeros(shape, kind)
    changed[5:9, 7:20] = 1
    np.save(truth_file(folder, "all_objects", 5), changed)
    release = read_release(folder)
    masks = release.masks(release.samples[1])
    assert np.array_equal(masks["all_objects"], changed == 1)
    assert np.array_equal(masks["single_object"], pillow_at_128(clevr.object_masks(5)[0]))
    assert np.array_equal(masks["dominant"], pillow_at_128(clevr.object_masks(5)[:4].any(0)))
    assert {mask.dtype for mask in masks.values()} == {np.dtype(bool)}


def test_mask_colours_with_rounding_noise_still_match_their_object(folder):
    for path in (folder / "masks").iterdir():
        with Image.open(path) as image:
            pixels = np.array(image).astype(int)
        noise = np.random.default_rng(0).integers(-1, 2, pixels.shape)
        Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8)).save(path)
    truth_file(folder, "single_object", 2).unlink()
    release = read_release(folder)
    assert np.array_equal(release.masks(release.samples[0])["single_object"], pillow_at_128(clevr.object_masks(5)[0]))


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


def test_mask_image_of_another_size_is_not_used(folder):
    with Image.open(folder / "masks" / name(4)) as image:
        image.resize((clevr.HEIGHT, clevr.WIDTH), Image.NEAREST).save(folder / "masks" / name(4))
    assert only_mask_image_dropped(folder, 17, "its mask image and its image differ in size")


def test_mask_image_of_another_scene_is_not_used(folder):
    scenes = clevr.read(folder, "scenes")
    for record in scenes[3]["objects"]:
        record["mask_color"] = [1.0, 1.0, 1.0]
    clevr.write(folder, "scenes", scenes)
    assert only_mask_image_dropped(folder, 9, "its mask image's colours don't match the scene's objects")


class Trap:
    """A pickle that runs code when loaded."""

    loaded = False

    def __reduce__(self):
        return setattr, (Trap, "loaded", True)


CORRUPT = "its ground truth is corrupt, or a pickle, which could run code"
NOT_A_MASK = "its ground truth is not a two-dimensional mask of true and false"


@pytest.mark.parametrize(("truth", "reason"), [
    (np.ones((1, 128, 128), bool), NOT_A_MASK), (np.ones(128, bool), NOT_A_MASK), (np.ones((128, 4), bool), NOT_A_MASK),
    (np.full((128, 128), 0.5), NOT_A_MASK), (np.full((128, 128), np.nan), NOT_A_MASK),
    (np.full((128, 128), "a"), NOT_A_MASK), (np.zeros((128, 128), bool), "one of its masks is empty"),
    (b"", CORRUPT), (b"garbage", CORRUPT),
    (b"\x93NUMPY\x01\x00v\x00{'descr'", CORRUPT),
    (np.array([Trap()], dtype=object), CORRUPT), (pickle.dumps(Trap()), CORRUPT),
])  # fmt: skip
def test_sample_with_an_unusable_ground_truth_is_dropped(folder, truth, reason):
    path = truth_file(folder, "single_object", 9)
    if isinstance(truth, bytes):
        path.write_bytes(truth)
    else:
        np.save(path, truth)
    assert dropped(folder, 9, reason)
    assert not Trap.loaded


def test_questions_without_a_scene_or_in_another_format_are_counted(folder):
    questions = clevr.read(folder, "simple_questions")
    questions[0]["image_filename"] = "CLEVR_unique_000099.png"
    questions[1]["program"][-2]["_output"] = 99
    del questions[3]["program"][-2]["_output"]
    clevr.write(folder, "simple_questions", questions)
    release = read_release(folder)
    assert kept(release) == [17]
    malformed = "the question or its scene is not in the official format"
    assert release.dropped == {RARE: 1, "its scene is missing": 1, malformed: 2}
    assert len(release.samples) + sum(release.dropped.values()) == release.totals["material questions"]


def test_file_names_in_the_json_cannot_point_outside_the_folder(folder):
    shutil.move(folder / "images" / name(3), folder.parent / name(3))
    scenes = clevr.read(folder, "scenes")
    scenes[3]["image_filename"] = f"../../{name(3)}"
    clevr.write(folder, "scenes", scenes)
    assert dropped(folder, 9, "its image is missing")


def test_questions_without_ground_truths_get_their_masks_from_the_mask_image(folder):
    (folder / "CLEVR-XAI_simple_questions.json").rename(folder / "CLEVR-XAI_complex_questions.json")
    release = read_release(folder, questions="complex")
    assert kept(release) == [2, 5, 9, 17]
    objects = clevr.object_masks(5)
    expected = {"all_objects": objects.any(0), "single_object": objects[0], "dominant": objects[:3].any(0)}
    masks = release.masks(release.samples[0])
    assert masks.keys() == expected.keys()
    assert all(np.array_equal(masks[kind], pillow_at_128(mask)) for kind, mask in expected.items())
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


@pytest.fixture
def chunks_of_four(monkeypatch):
    monkeypatch.setattr("agop.bench.scenarios.clevr_xai._CHUNK", 4)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def dataset(chunks_of_four, cache):
    return drawn_dataset(COUNT, SIZE, cache=cache)


def test_drawn_samples_follow_the_task(dataset):
    for number in (0, 7, COUNT - 1):
        index, sample = drawn_sample(0, number)
        scene = random_scene(0, index)
        objects = scene.objects
        material = objects[sample.queried].material
        assert dataset.scenes[number] == index
        looks = [(each.size, each.color, each.shape) for each in objects]
        assert looks.count(looks[sample.queried]) == 1
        assert dataset.labels[number] == ("metal", "rubber").index(material) == sample.label
        assert sum(each.material == material for each in objects) >= 0.6 * len(objects)
        assert sample.dominant == tuple(i for i, each in enumerate(objects) if each.material == material)
        assert np.array_equal(dataset.images[number], render(scene, SIZE, SIZE))
        masks = [dataset.masks[kind][number] for kind in dataset.masks]
        assert np.array_equal(masks, drawn_masks(scene, sample, SIZE))
        exact = object_masks(scene, SIZE, SIZE).any(axis=0)
        assert (dataset.masks["all_objects"][number] & exact).sum() > 0.95 * exact.sum()


def test_drawn_samples_differ_and_their_masks_are_nested(dataset):
    all_objects, single, dominant = (dataset.masks[kind] for kind in KINDS)
    assert not (dominant & ~all_objects).any()
    assert not (single & ~dominant).any()
    assert single.any(axis=(1, 2)).all()
    assert 0 < dataset.labels.sum() < COUNT
    assert len(set(dataset.scenes)) == COUNT
    assert len({image.tobytes() for image in dataset.images}) == COUNT


@pytest.mark.slow
def test_masks_cover_the_papers_share_of_the_image():
    """16.2 % and 2.3 %. The standard error of a mean over 120 scenes is about 0.6 percentage points."""
    samples = [drawn_sample(1, number) for number in range(120)]
    masks = [drawn_masks(random_scene(1, index), sample, 64) for index, sample in samples]
    covered = np.stack(masks).mean(axis=(0, 2, 3))
    assert covered[0] == pytest.approx(0.162, abs=0.014)
    assert covered[1] == pytest.approx(0.023, abs=0.01)


def test_missing_chunks_are_drawn_again_and_corrupt_ones_raise(dataset, cache):
    files = sorted(cache.glob("clevr/*/*.npz"))
    assert len(files) == 3
    contents = [path.read_bytes() for path in files]
    files[1].write_bytes(contents[1][:-100] + b"x" * 100)
    files[2].unlink()
    with pytest.raises(FileError, match="delete it, and its scenes will be drawn again"):
        drawn_dataset(COUNT, SIZE, cache=cache)
    files[1].unlink()
    assert_same(drawn_dataset(COUNT, SIZE, cache=cache), dataset)
    assert [path.read_bytes() for path in files] == contents


@pytest.mark.slow
def test_two_processes_draw_the_same_bytes_as_one(dataset, cache, tmp_path):
    assert_same(drawn_dataset(COUNT, SIZE, jobs=2, cache=tmp_path), dataset)
    for path in sorted(cache.glob("clevr/*/*")):
        assert (tmp_path / path.relative_to(cache)).read_bytes() == path.read_bytes()


def assert_same(one, other):
    assert all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("images", "labels", "scenes"))
    assert all(np.array_equal(one.masks[kind], other.masks[kind]) for kind in other.masks)


def test_cached_samples_are_not_drawn_again_and_the_environment_names_their_folder(cache, dataset, monkeypatch):
    monkeypatch.setattr("agop.bench.scenarios.clevr_xai.render", None)
    monkeypatch.setenv("AGOP_CACHE", str(cache))
    assert_same(drawn_dataset(COUNT, SIZE), dataset)
    assert np.array_equal(drawn_dataset(10, SIZE).images, dataset.images[:10])


def test_official_samples_of_one_image_are_one_scene_whatever_their_index(tmp_path):
    """Otherwise the split could put an image on both sides."""
    write_official(tmp_path, dict.fromkeys(range(4), "mmm"), {index: index % 4 for index in range(12)})
    questions = clevr.read(tmp_path, "simple_questions")
    for place, question in enumerate(questions):
        question["image_index"] = place
    clevr.write(tmp_path, "simple_questions", questions)
    official = official_dataset(tmp_path, 16)
    assert len(official.scenes) == 12
    assert len(set(official.scenes)) == 4
    assert len({image.tobytes() for image in official.images[official.scenes == 0]}) == 1
    assert len(official_dataset(tmp_path, 16, 5).scenes) == 5


@pytest.mark.parametrize("seed", [0, 1])
def test_no_scene_is_in_both_splits(seed):
    scenes = np.random.default_rng(3).integers(0, 40, 200)  # about five questions per scene
    training, validation = by_scene(scenes, seed)
    assert sorted([*training, *validation]) == list(range(200))
    assert not set(scenes[training]) & set(scenes[validation])
    assert 155 < len(training) < 172
    # One question per scene gives the paper's numbers.
    assert [len(part) for part in by_scene(np.arange(4952), seed)] == [3962, 990]


@pytest.fixture
def random_dataset(monkeypatch):
    """Random images and masks in place of drawn scenes."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    masks = {kind: random.random((60, 16, 16)) < 0.5 for kind in KINDS}
    dataset = clevr_xai.Dataset(images, random.integers(0, 2, 60), np.arange(60), masks)
    monkeypatch.setattr("agop.bench.scenarios.clevr_xai.drawn_dataset", lambda samples, size: dataset)
    return dataset


@pytest.mark.parametrize("kind", KINDS)
def test_images_labels_and_masks_are_those_of_the_seeds_split(random_dataset, kind):
    """Images are normalised by ImageNet's mean and standard deviation."""
    places = [by_scene(np.arange(60), seed) for seed in (0, 1)]
    assert not np.array_equal(places[0][1], places[1][1])
    for seed in (0, 1):
        training, validation, test = get("clevr-xai").with_options({"samples": 60}).splits("drawn", seed, kind)
        assert test is validation
        for part, rows in zip((training, validation), places[seed], strict=True):
            expected = (random_dataset.images[rows] / 255 - (0.485, 0.456, 0.406)) / (0.229, 0.224, 0.225)
            np.testing.assert_allclose(part.images.permute(0, 2, 3, 1), expected, atol=1e-5)
            assert np.array_equal(part.labels, random_dataset.labels[rows])
            masks = {kind: part.masks, **part.others}
            assert len(masks) == len(KINDS)
            assert all(np.array_equal(masks[name], random_dataset.masks[name][rows]) for name in KINDS)


QUICK = ("bench", "clevr-xai", "--quick", "--metric", "iou", "--metric", "energy", "--metric", "deletion")
METHODS = ("vanilla", "agop-global", "agop-global@training", "mean-mask")
SELECTED = [word for method in METHODS for word in ("--method", method)]


# A worker's two threads sleep while they wait for each other: spinning is slow on a busy machine.
NO_SPINNING = {"OMP_WAIT_POLICY": "PASSIVE"}


@pytest.fixture(scope="module")
def drawn_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clevr")
    clevr.fill_cache(folder / "cache", 200)
    cache = str(folder / "cache")
    result = run_checked(*QUICK, *SELECTED, "--verbose", "--out", "run", folder=folder, AGOP_CACHE=cache, **NO_SPINNING)
    assert "claims of the paper, about methods or scenarios that this run doesn't have" in result.stdout
    return folder / "run"


@pytest.mark.slow
def test_run_has_every_kind_of_mask_and_both_priors(drawn_run):
    rows = read(drawn_run)
    assert {row["masks"] for row in rows} == set(KINDS)
    values = {(row["masks"], row["method"], row["metric"]): row["value"] for row in rows}
    assert values["all_objects", "agop-global", "iou"] != values["all_objects", "agop-global@training", "iou"]
    assert ("single_object", "vanilla", "deletion") not in values
    assert values["all_objects", "mean-mask", "energy"] > values["single_object", "mean-mask", "energy"]
    cell = drawn_run / "cells" / "clevr-xai-drawn-000"
    assert (cell / "agop.safetensors").exists()
    assert (cell / "agop-training.safetensors").exists()
    assert not (cell / "training.pt").exists()


@pytest.mark.slow
def test_report_of_a_run_has_its_facts_and_a_table_for_every_kind_of_mask(drawn_run):
    text, values = (
        run("report", drawn_run, "--format", name, folder=drawn_run).stdout for name in ("markdown", "json")
    )
    assert "trained from scratch (no ImageNet weights given)" in text
    assert "200 scenes drawn offline" in text
    assert "single_object masks" in text
    assert "0.124" in text  # the paper's mIoU of vanilla
    assert [table["masks"] for table in json.loads(values)["tables"]] == list(KINDS)
    assert "AGOP-Global beats IG in mIoU" not in text  # IG wasn't in this run


@pytest.fixture
def one_thread(monkeypatch):
    """One thread in this process, also when a cell asks for two."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "set_num_threads", lambda count: None)
        yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_stopped_run_resumes_from_its_checkpoint_with_equal_bytes(tmp_path, one_thread, monkeypatch):
    monkeypatch.setenv("AGOP_CACHE", str(tmp_path / "cache"))
    clevr.fill_cache(tmp_path / "cache", 20, size=32)
    spec = RunSpec(
        "clevr-xai", ("clevr-xai",), ("drawn",), 1, ("vanilla", "agop-global@training"), ("iou",),
        masks="all_objects", epochs=3, test_images=2, options={"samples": 20, "size": 32},
    )  # fmt: skip
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run_cells(spec, whole, spec.cells(), lambda done: None)
    checkpoint = stopped / "cells" / ".clevr-xai-drawn-000.part" / "training.pt"

    def stop(done):
        if checkpoint.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cells(spec, stopped, spec.cells(), stop)
    assert torch.load(checkpoint, weights_only=True)["epoch"] == 1
    run_cells(spec, stopped, spec.cells(), lambda done: None)
    for file in ("rows.jsonl", "convergence.jsonl", "checkpoint.safetensors", "agop-training.safetensors"):
        path = Path("cells/clevr-xai-drawn-000") / file
        assert (stopped / path).read_bytes() == (whole / path).read_bytes(), file


@pytest.fixture
def release(tmp_path):
    scenes = {index: ("mmmrr", "rrrrm")[index % 2] for index in range(20)}
    write_official(tmp_path / "release", scenes, {index: index for index in scenes})
    return tmp_path / "release"


@pytest.mark.slow
def test_without_mask_images_the_ground_truths_are_scored(tmp_path, release, one_thread):
    shutil.rmtree(release / "masks")
    spec = RunSpec(
        "clevr-xai", ("clevr-xai",), ("official",), 1, ("vanilla",), ("iou",),
        masks="all_objects", epochs=1, test_images=4, options={"data": str(release), "size": 32},
    )  # fmt: skip
    run_cells(spec, tmp_path / "run", spec.cells(), lambda done: None)
    rows = (tmp_path / "run" / "cells" / "clevr-xai-official-000" / "rows.jsonl").read_text().splitlines()
    assert {json.loads(row)["masks"] for row in rows} == {"all_objects", "single_object"}


@pytest.mark.slow
def test_official_release_runs_and_its_summary_is_reported(tmp_path, release):
    run_checked(*QUICK, *SELECTED, "--data", release, "--out", "run", folder=tmp_path, **NO_SPINNING)
    report = run("report", "run", "--format", "markdown", folder=tmp_path).stdout
    assert "the official images" in report
    assert "found: 20 scenes" in report
    assert "clevr-xai / official" in report
