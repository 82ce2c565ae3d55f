"""The run folder of `agop bench shortcuts`."""

from dataclasses import replace

import pytest

from agop.errors import FileError, InputError
from agop.runs.shortcuts import (
    Detection,
    ModelResult,
    ShortcutSpec,
    begin,
    model_file,
    read_results,
    read_spec,
    write_result,
)

SPEC = ShortcutSpec(5, 600, 32, 1, ("audit", "spray"), (1, 2, 3, 4, 5))
RESULT = ModelResult(
    "patch", "confounder", "strong", 0, 0.9, 0.3, 0.5, True,
    {"audit": Detection(3.2, 1.5, True, 0.6), "spray": Detection(0.1, 0.2)}, ("A region decides class 1.",), 4.0, 0.3,
)  # fmt: skip


def test_what_is_written_is_read(tmp_path):
    begin(SPEC, tmp_path / "run")
    results = {"b": RESULT, "a": replace(RESULT, seed=1, share=None, transplant=None, fixed=False)}
    for name, result in results.items():
        write_result(tmp_path / "run", name, result)
    assert read_spec(tmp_path / "run") == SPEC
    assert read_results(tmp_path / "run") == [results["a"], results["b"]]


def test_the_same_specification_resumes_and_another_one_raises(tmp_path):
    begin(SPEC, tmp_path)
    write_result(tmp_path, "a", RESULT)
    begin(SPEC, tmp_path)
    assert read_results(tmp_path) == [RESULT]
    for other, problem in (
        (replace(SPEC, epochs=8), "epochs=1, not 8: choose another --out"),
        (replace(SPEC, detectors=("audit",)), "detectors="),
        (replace(SPEC, data="/photos"), "data=None, not '/photos'"),
    ):
        with pytest.raises(InputError, match=problem):
            begin(other, tmp_path)
    assert read_spec(tmp_path) == SPEC


def test_folder_with_other_files_is_not_used(tmp_path):
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(InputError, match="isn't a run of `agop bench shortcuts`"):
        begin(SPEC, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_edited_results_raise(tmp_path):
    write_result(tmp_path, "a", RESULT)
    path = model_file(tmp_path, "a")
    path.write_text(path.read_text().replace("0.9", "1.0"))
    with pytest.raises(FileError, match=r"a\.json is damaged .*delete it and run again to resume"):
        read_results(tmp_path)
