"""Worker processes: progress, errors, and an end in every case."""

import multiprocessing
import os
import signal

import pytest

from agop.bench.workers import run_tasks
from agop.errors import InputError, ModelError


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
