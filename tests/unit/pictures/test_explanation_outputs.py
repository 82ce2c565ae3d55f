"""Names of the files in a folder of explanations, and what they may replace."""

import json
from pathlib import Path

import pytest

from agop.errors import InputError
from agop.pictures.explanation_outputs import ExplanationOutputs, earlier_outputs, is_overlay_folder, overlay_names


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["a/1.png", "b/1.png"], ["a/1.png", "b/1.png"]),
        (["a/1.png", "a/1.jpg", "a/1.png"], ["1.png", "1-2.png", "1-3.png"]),
        (["a/x.png", "a/X.gif"], ["x.png", "X-2.png"]),
        (["a/../b/1.tar.png", "c/2"], ["b/1.tar.png", "c/2.png"]),
    ],
)
def test_overlays_keep_the_folders_and_never_share_a_name(files, names):
    assert overlay_names([Path(file) for file in files]) == [f"overlays/{name}" for name in names]


def manifest(folder, *outputs, **others):
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text(json.dumps({"agop": "1", "outputs": outputs} | others))


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("old")


def test_a_manifest_names_earlier_files_but_no_others(tmp_path):
    names = ["manifest.json", "index.html", "maps.safetensors", "overlays/a/1.png"]
    manifest(tmp_path, *names, "/etc/passwd", "overlays/../a.png", "overlays/a.txt", "notes.txt", "a/overlays/1.png")
    assert earlier_outputs(tmp_path) == set(names)
    assert is_overlay_folder(tmp_path / "overlays")
    assert not is_overlay_folder(tmp_path / "cats")


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "3", '{"outputs": ["index.html"]}', '{"agop": 1, "outputs": [3]}', "[" * 10**5]
)
def test_another_manifest_names_nothing(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    assert earlier_outputs(tmp_path) == set()


def test_only_files_of_an_earlier_explanation_are_replaced(tmp_path):
    outputs = ["manifest.json", "overlays/1.png"]
    manifest(tmp_path, *outputs)
    touch(tmp_path, "overlays/1.png", "overlays/2.png")
    ExplanationOutputs(tmp_path, [Path("x/1.png")]).check([])
    both = ExplanationOutputs(tmp_path, [Path("x/1.png"), Path("x/2.png")])
    with pytest.raises(InputError, match=r"overlays/2\.png already exists"):
        both.check([])
    both.check([], force=True)
    with pytest.raises(InputError, match="is one of the inputs"):
        both.check([tmp_path / "overlays/1.png"], force=True)


@pytest.mark.parametrize("linked", ["overlays/1.png", "overlays"])
def test_links_are_not_earlier_files(tmp_path, linked):
    touch(tmp_path / "private", "1.png")
    manifest(tmp_path / "out", "manifest.json", "overlays/1.png")
    (tmp_path / "out" / linked).parent.mkdir(exist_ok=True)
    (tmp_path / "out" / linked).symlink_to(tmp_path / "private" / ("1.png" if "." in linked else ""))
    outputs = ExplanationOutputs(tmp_path / "out", [Path("1.png")])
    with pytest.raises(InputError, match="already exists"):
        outputs.check([])
    outputs.remove_earlier([])
    assert (tmp_path / "private" / "1.png").read_text() == "old"


def test_files_of_the_earlier_run_that_were_not_replaced_are_removed(tmp_path):
    manifest(tmp_path, "manifest.json", "overlays/1.png", "overlays/2.png", "overlays/gone.png")
    touch(tmp_path, "overlays/1.png", "overlays/2.png", "overlays/foreign.png")
    ExplanationOutputs(tmp_path, [Path("1.png")]).remove_earlier(["manifest.json", "overlays/1.png"])
    assert sorted(path.name for path in (tmp_path / "overlays").iterdir()) == ["1.png", "foreign.png"]
