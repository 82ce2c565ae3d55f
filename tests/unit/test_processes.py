"""Worker processes, and the ranks of torch.distributed. Jobs of torchrun are in tests/integrations/test_torchrun.py."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys

import pytest
import torch.distributed as dist

from agop.errors import InputError, ModelError, RankError
from agop.processes import (
    barrier,
    check_same_on_all_ranks,
    process_group,
    progress_bar,
    rank_and_world_size,
    run_each,
    run_tasks,
    torchrun_rank,
    track,
)
from tests.command import wait_until


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


def test_progress_bar_knows_the_time_left_of_items_that_take_minutes():
    bar, now = progress_bar(), [0.0]
    bar.get_time = lambda: now[0]
    task = bar.add_task("evaluating", total=12)
    for now[0] in (148.0, 150.0):  # two processes end at nearly the same time
        bar.advance(task)
    assert bar.tasks[0].time_remaining == pytest.approx(750)


def test_without_a_terminal_long_work_prints_lines_also_during_one_item(capsys, monkeypatch):
    assert list(track("abc", "quick work")) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("agop.processes._LINE_EVERY", 0.01)
    for _ in track(["an item"], "long work"):
        wait_until(lambda: "long work: 0 of 1" in capsys.readouterr().err, seconds=10)


def test_without_a_terminal_a_stage_of_seconds_has_a_line_at_its_end(capsys, monkeypatch):
    monkeypatch.setattr("agop.processes._WORTH_A_LINE", 0.0)
    assert list(track(range(3), lambda item: f"item {item}")) == [0, 1, 2]
    assert capsys.readouterr().err == "item 2: 3 of 3\n"


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


def hang(_):
    print("started", flush=True)
    signal.pause()


HANGING = """
from contextlib import closing
from agop.processes import run_each
from tests.unit.test_processes import hang
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


def test_one_process_without_torchrun_needs_no_process_group(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    handler = signal.getsignal(signal.SIGTERM)
    with process_group(gpus=True):
        assert torchrun_rank() == rank_and_world_size() == (0, 1)
        assert not dist.is_initialized()
        barrier()
        check_same_on_all_ranks({"model": 1})
    assert signal.getsignal(signal.SIGTERM) == handler


def test_a_rank_that_cannot_join_raises(monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RankError, match=r"^rank 1 of 2 couldn't join the others: .* MASTER_ADDR"), process_group():
        pass


RANK = """
import signal, sys, torch
from datetime import timedelta
from agop.errors import InputError, RankError
from agop.processes import available_cores, barrier, check_same_on_all_ranks, process_group, rank_and_world_size

with process_group():
    rank, world_size = rank_and_world_size()
    print("place", rank, world_size, torch.get_num_threads() == max(1, available_cores() // 2))
    check_same_on_all_ranks({"model": "a", "size": 8})
    try:
        check_same_on_all_ranks({"model": "a", "size": 8 + rank} | ({"extra": True} if rank else {}))
    except InputError as error:
        print("input", error)
    barrier()
    if rank == 1:
        sys.stdout.flush()
        sys.stdin.read()  # alive, but never at the barrier
    try:
        barrier(timedelta(seconds=0.5))
    except RankError as error:
        print("rank", error)
print("left", rank_and_world_size(), signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)
"""


def test_two_ranks_share_cores_compare_settings_and_name_the_missing_rank():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK], text=True, **pipes,
            env=os.environ | place | {"RANK": str(rank), "GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:  # rank 0 first: rank 1 waits until its standard input is closed
        outputs = [process.communicate(timeout=60)[0] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert [process.returncode for process in ranks] == [0, 0]
    for rank, output in enumerate(outputs):
        assert f"place {rank} 2 True\n" in output
        assert (
            "input the ranks have different work (size is 8 on rank 0, 9 on rank 1; "
            "extra is None on rank 0, True on rank 1): start all of them with the same command" in output
        )
        assert "left (0, 1) True\n" in output
    assert "rank rank 1 of 2 ended early, or took more than 0:00:00.500000: read its error" in outputs[0]
    assert "rank rank 1 of 2 lost rank 0: read the error of rank 0" in outputs[1]
