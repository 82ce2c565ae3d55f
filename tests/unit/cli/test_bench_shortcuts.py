"""Wrong options of `agop bench shortcuts`."""

import pytest

from tests.command import error_of


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "path"], "did you mean 'patch'"),
        (["--prevalence", "balance"], "did you mean 'balanced'"),
        (["--strength", "week"], "did you mean 'weak'"),
        (["--detector", "spary"], "did you mean 'spray'"),
        (["--label", "0", "--label", "12"], "label 12 isn't one of 0, 1, 2"),
        (["--label", "3", "--label", "3"], "label 3 appears twice"),
        (["--label", "3"], "classes is 1: pass 2 or more"),
        (["--samples", "100"], "samples is 100: pass 60 or more per class"),
        (["--data", "missing"], "missing"),
    ],
)
def test_wrong_options_raise_before_anything_is_written(arguments, message, tmp_path):
    assert message in error_of("bench", "shortcuts", *arguments, "--out", "run", folder=tmp_path)
    assert not (tmp_path / "run").exists()


def test_folder_of_another_program_is_kept(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/letter.txt").write_text("mine")
    message = error_of("bench", "shortcuts", "--quick", "--kind", "clean", "--out", "full", folder=tmp_path)
    assert "isn't a run of `agop bench shortcuts`" in message
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["letter.txt"]
