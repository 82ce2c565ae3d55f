"""One process alone; jobs of several are in tests/interop/test_torchrun.py."""

import os
import signal
import time

import pytest
import torch.distributed as dist
from torch.distributed import HashStore

from agop.system.distributed import Ranks, collective, cores_here, ranks
from agop.system.pulse import Pulse


def test_without_torchrun_a_process_is_the_only_rank():
    before = signal.getsignal(signal.SIGTERM)
    with ranks(gpus=True) as here:
        assert (here.rank, here.count, here.first, here.first_here) == (0, 1, True, True)
        assert signal.getsignal(signal.SIGTERM) == before
        assert not dist.is_initialized()
        here.meet()
        here.same({"model": 1})
        assert here.share([3, 1, 2]) == [3, 1, 2]
    with pytest.raises(ValueError, match="mine"), ranks():
        raise ValueError("mine")


@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("items", [0, 1, 4, 7])
def test_the_shares_are_everything_once_and_as_even_as_can_be(items, count):
    places = [Ranks() for _ in range(count)]
    for rank, place in enumerate(places):
        place.rank, place.count = rank, count
    shares = [place.share(range(items)) for place in places]
    assert sorted(item for share in shares for item in share) == list(range(items))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_runtime_error_in_a_collective_is_a_lost_rank_and_other_errors_are_themselves(tmp_path):
    from agop.errors import InputError, RankError

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        with pytest.raises(RankError, match="rank 0 of 1 cannot reach the others: closed"), collective():
            raise RuntimeError("closed\nby peer")
        with pytest.raises(InputError, match="shape"), collective():
            raise InputError("shape")
    finally:
        dist.destroy_process_group()


def test_cores_are_shared_among_the_ranks_of_a_machine(monkeypatch):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    alone = cores_here()
    assert 1 <= alone <= (os.cpu_count() or 1)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert cores_here() == max(1, alone // 2)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1000")
    assert cores_here() == 1


def test_who_is_silent_is_named_who_has_left_is_not_and_a_word_ends_the_work():
    ended = []
    before = signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
    store = HashStore()
    beating = [Pulse(store, rank, 4, patience=60) for rank in (0, 1)]  # rank 2 is not there
    try:
        store.add("agop left 3", 1)
        assert beating[0].why() == "rank 2 of 4 ended early: it was killed, or its machine was lost"
        assert not ended
        beating[1].tell("rank 2 of 4 ended early: FileError: gone")
        beating[1].tell("a later word")
        assert beating[0].why() == "rank 2 of 4 ended early: FileError: gone"
        deadline = time.monotonic() + 20
        while not ended and time.monotonic() < deadline:
            time.sleep(0.05)
        assert ended
    finally:
        for pulse in beating:
            pulse.stop()
        signal.signal(signal.SIGTERM, before)
