"""Worker processes: progress, errors, and an end in every case."""

import multiprocessing
import os
import signal
import subprocess
import sys

import pytest

from agop.errors import InputError, ModelError
from agop.system.workers import run_each, run_tasks


class TwoPartError(Exception):
    """An exception that pickle can't restore."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def work(task, progress):
    progress(0.5)
    if task == "raise":
        raise InputError("task is 'raise': pass another")
    if task == "own error":
        raise TwoPartError("this", "that")
    if task == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "hang":
        signal.pause()


def test_every_task_reports_its_progress_and_its_end():
    reports = list(run_tasks(work, {"a": "", "b": "", "c": ""}, workers=2))
    for name in "abc":
        assert [fraction for other, fraction in reports if other == name] == [0.5, 1.0]
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("task", "error", "message"),
    [
        ("raise", InputError, "pass another"),
        ("own error", RuntimeError, "TwoPartError: this and that"),
        ("die", ModelError, "worker process of a died: run again to resume"),
    ],
)
def test_an_error_in_a_worker_is_raised_and_ends_the_others(task, error, message):
    with pytest.raises(error, match=message) as raised:
        list(run_tasks(work, {"a": task, "b": "hang"}, workers=2))
    assert not multiprocessing.active_children()
    if task != "die":
        assert "in work" in str(raised.value.__cause__)  # the worker's traceback


def test_a_closed_iterator_leaves_no_worker():
    reports = run_tasks(work, {"a": "hang", "b": "hang"}, workers=2)
    assert next(reports)[1] == 0.5
    reports.close()
    assert not multiprocessing.active_children()


def touch(path):
    path.touch()


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_item_is_done_once_and_reported(tmp_path, jobs):
    paths = [tmp_path / str(number) for number in range(5)]
    assert len(list(run_each(touch, paths, jobs))) == 5
    assert sorted(tmp_path.iterdir()) == paths
    assert not multiprocessing.active_children()


def test_a_worker_that_dies_raises():
    with pytest.raises(ModelError, match="died: run again to resume"):
        list(run_each(os._exit, [1, 1], jobs=2))


def hang(_):
    print("started", flush=True)
    signal.pause()


HANGING = """
from contextlib import closing
from agop.system.workers import run_each
from tests.unit.system.test_workers import hang
if __name__ == "__main__":
    with closing(run_each(hang, [1, 2], jobs=2)) as ended:
        list(ended)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_killed_parent_leaves_no_worker_and_no_warning(tmp_path, number):
    """Pools and queues leave semaphores behind, and multiprocessing's resource tracker warns about them."""
    (tmp_path / "hanging.py").write_text(HANGING)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "hanging.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), os.getcwd()]))},
    )  # fmt: skip
    assert [process.stdout.readline() for _ in range(2)] == ["started\n"] * 2
    process.send_signal(number)
    _, errors = process.communicate()  # ends only when all processes with this pipe have ended
    assert process.returncode != 0
    assert "resource_tracker" not in errors
    assert "semaphore" not in errors
