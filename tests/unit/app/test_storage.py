"""The folder of uploads and downloads."""

import os
import threading
import time

import pytest

from agop.app.storage import Storage

OLD = 3600


@pytest.fixture
def storage(tmp_path):
    """100 bytes, with a fixed folder that never counts."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "a.png").write_bytes(bytes(500))
    return Storage(tmp_path, "examples", 100_000)


def write(storage, name, size, age=0):
    """A folder with a file, or with a name without a slash a file, of this size and age."""
    path = storage.folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(size))
    for changed in {path, path.parent} - {storage.folder}:
        os.utime(changed, (time.time() - age, time.time() - age))


def names(storage):
    return sorted(path.name for path in storage.folder.iterdir())


def test_old_files_and_folders_are_removed_and_the_fixed_folder_kept(storage):
    write(storage, "upload/a.png", 10, 7 * OLD)
    write(storage, "tmpaborted", 10, 7 * OLD)
    write(storage, "new/a.png", 10)
    storage.forget()
    assert names(storage) == ["examples", "new"]


def test_folder_with_a_new_file_is_not_old(storage):
    write(storage, "upload/a.png", 10, 7 * OLD)
    write(storage, "upload/b.png", 10)
    storage.forget()
    assert names(storage) == ["examples", "upload"]


def test_entry_that_vanishes_is_skipped(storage):
    """As does a file that another request moves between listing and reading."""
    (storage.folder / "vanished").symlink_to("nowhere")
    write(storage, "old/a.png", 10, 7 * OLD)
    storage.forget()
    assert names(storage) == ["examples", "vanished"]
    assert storage.make_room(10)


def test_storage_is_read_while_other_threads_move_files(storage):
    stop, errors = threading.Event(), []

    def upload(user):
        for number in range(300):
            temporary = storage.folder / f"tmp{user}-{number}"
            temporary.write_bytes(b"image")
            (storage.folder / f"{user}-{number}").mkdir()
            temporary.rename(storage.folder / f"{user}-{number}" / "a.png")

    def read():
        try:
            while not stop.is_set():
                storage.forget()
                storage.make_room(1)
        except OSError as error:
            errors.append(error)

    reader, uploaders = threading.Thread(target=read), [threading.Thread(target=upload, args=(u,)) for u in range(2)]
    for thread in (reader, *uploaders):
        thread.start()
    for thread in uploaders:
        thread.join()
    stop.set()
    reader.join()
    assert errors == []
    assert len(names(storage)) == 601


def test_oldest_uploads_make_room_but_not_those_that_a_request_may_need(storage):
    write(storage, "oldest/a.png", 40_000, 3 * OLD)
    write(storage, "old/a.png", 30_000, 2 * OLD)
    write(storage, "new/a.png", 20_000)
    assert storage.make_room(30_000)
    assert names(storage) == ["examples", "new", "old"]
    assert storage.make_room(70_000)
    assert names(storage) == ["examples", "new"]
    assert not storage.make_room(90_000)
    assert names(storage) == ["examples", "new"]


def test_upload_that_never_fits_removes_nothing(storage):
    write(storage, "old/a.png", 10, 2 * OLD)
    assert not storage.make_room(100_001)
    assert names(storage) == ["examples", "old"]
