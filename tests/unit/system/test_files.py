"""Files are written whole, and never over something else."""

import os

import pytest

from agop.errors import FileError, InputError
from agop.system.files import Spool, check_overwrites, write_atomically


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An input, a result of an earlier run, a foreign file, and other names of them."""
    monkeypatch.chdir(tmp_path)
    for name in ("input", "earlier", "foreign"):
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("input")
    os.link("input", "hard")
    (tmp_path / "broken").symlink_to("gone/deep/file")
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "file").touch()
    (tmp_path / "data" / "earlier").touch()
    return tmp_path


def check(folder, output, *, force=False):
    inputs = [folder / "input", None, folder / "nothing", folder / "data"]
    check_overwrites([folder / "new", folder / output], inputs, lambda path: path.name == "earlier", force=force)


@pytest.mark.parametrize("output", ["new", "earlier", "data/new", "data/earlier"])
def test_new_files_and_earlier_results_may_be_written(folder, output):
    check(folder, output)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("output", ["input", "link", "hard", "../{}/input"])
def test_inputs_are_never_overwritten(folder, output, force):
    with pytest.raises(InputError, match="is one of the inputs"):
        check(folder, output.format(folder.name), force=force)
    with pytest.raises(InputError, match="data/deep/file is in an input folder"):
        check(folder, "data/deep/file", force=force)


@pytest.mark.parametrize("output", ["foreign", "broken"])
def test_other_files_are_overwritten_only_by_force(folder, output):
    with pytest.raises(InputError, match=rf"{output} already exists .* pass --force"):
        check(folder, output)
    check(folder, output, force=True)


def test_content_can_come_in_parts_and_an_error_in_between_leaves_the_old_file(tmp_path):
    write_atomically(tmp_path / "file", (bytes([value]) for value in range(3)))
    assert (tmp_path / "file").read_bytes() == b"\0\1\2"

    def broken():
        yield b"new"
        raise OSError(28, "No space left on device")

    with pytest.raises(FileError, match=r"No space left.*the existing file is unchanged"):
        write_atomically(tmp_path / "file", broken())
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("file", b"\0\1\2")]


def test_spool_keeps_its_content_in_a_file_without_a_name(tmp_path):
    spool = Spool(tmp_path / "deep" / "file")
    assert [spool.append(content) for content in (b"one", b"", b"three")] == [0, 3, 3]
    assert spool.read(3, 5) == b"three"
    assert spool.append(b"4") == 8
    assert b"".join(spool.parts()) == b"onethree4"
    assert list((tmp_path / "deep").iterdir()) == []
    (tmp_path / "taken").touch()
    with pytest.raises(FileError, match="could not write"):
        Spool(tmp_path / "taken" / "file")
