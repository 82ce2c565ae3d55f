import os

import pytest

from agop.errors import ModelError
from agop.system.processes import available_cores, map_in_processes


def test_cores_are_those_of_the_affinity(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7}, raising=False)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_keep_the_order_of_the_items(jobs):
    assert list(map_in_processes(abs, [-3, 1, -2], jobs)) == [3, 1, 2]


def test_a_worker_that_dies_raises():
    with pytest.raises(ModelError, match="a worker process died: run again to resume"):
        list(map_in_processes(os._exit, [1, 1], jobs=2))
