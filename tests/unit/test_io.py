"""Files are written whole, and never over something else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import agop
from agop.errors import FileError, InputError
from agop.io import Spool, check_overwrites, file_lock, own_folder, write_atomically


def test_new_empty_and_marked_folders_are_agops_own(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("deep/new", "empty"):
        own_folder(tmp_path / name)
        (tmp_path / name / "result").touch()
        own_folder(tmp_path / name)


def test_other_folders_need_force_each_time(tmp_path):
    (tmp_path / "thesis.tex").touch()
    for _ in range(2):
        with pytest.raises(InputError, match=r"has files that agop didn't write: .* --out, or pass --force"):
            own_folder(tmp_path)
        own_folder(tmp_path, force=True)
    with pytest.raises(FileError, match="could not write"):
        own_folder(tmp_path / "thesis.tex", force=True)


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


def check(folder, output, **options):
    inputs = [folder / "input", None, folder / "nothing", folder / "data"]
    check_overwrites([folder / "new", folder / output], inputs, **options)


def test_new_files_and_earlier_results_may_be_written(folder):
    for output in ("new", "data/new"):
        check(folder, output)
    for output in ("earlier", "data/earlier"):
        check(folder, output, own=True)


@pytest.mark.parametrize("options", [{}, {"force": True}, {"own": True}])
@pytest.mark.parametrize("output", ["input", "link", "hard", "../{}/input"])
def test_inputs_are_never_overwritten(folder, output, options):
    with pytest.raises(InputError, match="is one of the inputs"):
        check(folder, output.format(folder.name), **options)


@pytest.mark.parametrize("force", [False, True])
def test_files_in_an_input_folder_are_never_overwritten(folder, force):
    with pytest.raises(InputError, match="data/deep/file is in an input folder"):
        check(folder, "data/deep/file", force=force)


@pytest.mark.parametrize("output", ["foreign", "broken"])
def test_other_files_are_overwritten_only_by_force(folder, output):
    with pytest.raises(InputError, match=rf"{output} already exists: .* pass --force"):
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


def test_spool_on_a_full_disk_ends_without_a_traceback(tmp_path):
    """Its last bytes are still in memory when the process ends, and can't be written."""
    code = (
        "import resource, signal, sys; from pathlib import Path; from agop.io import Spool\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "spool = Spool(Path(sys.argv[1]) / 'maps'); spool.append(bytes(100))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


HOLDER = """
import sys
from pathlib import Path
from agop.io import file_lock
with file_lock(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_held_lock_raises_and_a_killed_holder_releases_it(tmp_path):
    path = tmp_path / "run" / ".lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(FileError, match="run is in use by another process: wait"), file_lock(path):
            pass
        process.kill()
    with pytest.raises(KeyError), file_lock(path):
        raise KeyError
    with file_lock(path):
        pass


def test_a_vendored_checkout_fits_and_saves(tmp_path):
    code = (
        "import importlib.metadata as metadata, sys\n"
        "real = metadata.version\n"
        "def version(name):\n"
        "    if name == 'agop': raise metadata.PackageNotFoundError(name)\n"
        "    return real(name)\n"
        "metadata.version = version\n"
        "import agop, torch\n"
        "model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))\n"
        "prior = agop.fit(model, [torch.randn(4, 1, 8, 8)], only_correct=False, progress=False)\n"
        "prior.save('prior.safetensors'); print(agop.__version__, prior.provenance.versions['agop'])"
    )
    source = str(Path(agop.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PYTHONPATH": source, "PATH": ""},
    )  # fmt: skip
    assert done.stdout == "unknown unknown\n", done.stderr
