"""One process, and two without torchrun. Jobs of torchrun are in tests/interop/test_torchrun.py."""

import os
import signal
import socket
import subprocess
import sys

import pytest
import torch.distributed as dist

from agop.errors import RankError
from agop.system.distributed import barrier, check_same_on_all_ranks, process_group, rank_and_world_size, torchrun_rank


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


def test_torchrun_rank_reads_the_environment_without_importing_torch():
    code = "import sys; from agop.system.distributed import torchrun_rank as t; print(*t(), 'torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"RANK": "3", "WORLD_SIZE": "5"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert result.stdout == "3 5 False\n"


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
from agop.system.distributed import barrier, check_same_on_all_ranks, process_group, rank_and_world_size
from agop.system.processes import available_cores

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
