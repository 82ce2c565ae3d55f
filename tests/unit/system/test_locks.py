"""Locks between processes."""

import subprocess
import sys

import pytest

from agop.errors import FileError
from agop.system.locks import owned_lock

HOLDER = """
import sys
from pathlib import Path
from agop.system.locks import owned_lock
with owned_lock(Path(sys.argv[1]), "process 77 (a command)\\nmore"):
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_a_held_lock_raises_with_its_owner_and_a_killed_owner_releases_it(tmp_path):
    path = tmp_path / "run" / ".lock"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(FileError, match=r"run is in use by process 77 \(a command\): wait until it ends"):
            owned_lock(path, "me").__enter__()
        assert path.read_text().startswith("process 77")
        process.kill()
    with owned_lock(path, "me"):
        assert path.read_text() == "me"


def test_a_lock_is_released_at_the_end_also_after_an_error(tmp_path):
    with pytest.raises(KeyError), owned_lock(tmp_path / ".lock", "me"):
        raise KeyError
    with owned_lock(tmp_path / ".lock", "you"):
        pass


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "private").write_text("mine")
    (tmp_path / ".lock").symlink_to(tmp_path / "private")
    with pytest.raises(FileError, match="could not write"):
        owned_lock(tmp_path / ".lock", "me").__enter__()
    assert (tmp_path / "private").read_text() == "mine"
