"""Specifications of runs: what is accepted, from the command line and from files."""

import json
from dataclasses import asdict, replace

import pytest

from agop.errors import FileError, InputError
from agop.runs.spec import FORMAT, RunSpec
from tests.report_runs import write_values

SPEC = RunSpec("xai-tris", ("linear", "xor"), ("plain", "other"), 2, ("vanilla",), ("iou",), options={"size": 3})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": 0}, "seeds is 0: pass 1 or more"),
        ({"seeds": 300_000_000}, "1,200,000,000 cells with seeds=300,000,000: pass fewer"),
        ({"scenarios": ()}, "scenarios are empty"),
        ({"methods": ("vanilla", "vanilla")}, "vanilla, vanilla: pass one or more different names"),
        ({"scenarios": ("../../etc",)}, "becomes part of a folder's name"),
        ({"backgrounds": ("a\\b",)}, "becomes part of a folder's name"),
        ({"scenarios": ("x" * 300,)}, "pass one to 200 bytes of printable text"),
        ({"scenarios": ("x" * 150,), "backgrounds": ("y" * 150,)}, "are too long: pass shorter names"),
        ({"intervals": "days"}, "pass seeds or samples"),
        ({"absent": ("xor/plain", "xor/other")}, "xor has none of the backgrounds plain, other: choose another"),
    ],
)
def test_what_no_run_can_compute_or_name_raises(changes, message, tmp_path):
    with pytest.raises(InputError, match=message):
        replace(SPEC, **changes)
    write_values(tmp_path / "spec.json", asdict(SPEC) | changes)
    with pytest.raises(FileError, match=r"spec\.json is damaged"):
        RunSpec.load(tmp_path)


@pytest.mark.parametrize("name", ["", "a\x1b[2J", "a\nb", "\ud800"])
@pytest.mark.parametrize("kind", ["scenarios", "methods", "metrics", "sensitivity"])
def test_names_are_printable(kind, name):
    with pytest.raises(InputError, match="pass one to 200 bytes of printable text"):
        replace(SPEC, **{kind: (name,)})


def test_a_saved_specification_is_read_back(tmp_path):
    SPEC.save(tmp_path)
    assert RunSpec.load(tmp_path) == SPEC


@pytest.mark.parametrize("number", [FORMAT - 1, FORMAT + 1, None, "3", [FORMAT]])
def test_another_format_raises_and_says_what_to_do(number, tmp_path):
    write_values(tmp_path / "spec.json", asdict(SPEC) | {"format": number})
    with pytest.raises(FileError, match=rf"its format is .*, not {FORMAT}: run again .*--fresh"):
        RunSpec.load(tmp_path)


@pytest.mark.parametrize("changes", [{"seeds": 3e8}, {"seeds": "2"}, {"scenarios": "linear"}, {"options": []}])
def test_wrong_types_raise_with_the_field(changes, tmp_path):
    write_values(tmp_path / "spec.json", asdict(SPEC) | changes)
    with pytest.raises(FileError, match=rf"spec.{next(iter(changes))} is .*run again into another folder"):
        RunSpec.load(tmp_path)


def test_an_edited_specification_is_not_believed(tmp_path):
    SPEC.save(tmp_path)
    values = json.loads((tmp_path / "spec.json").read_text())
    (tmp_path / "spec.json").write_text(json.dumps(values | {"seeds": 1}))
    with pytest.raises(FileError, match="its checksum doesn't match"):
        RunSpec.load(tmp_path)
