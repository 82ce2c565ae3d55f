import os

from agop.system.processes import available_cores


def test_cores_are_those_of_the_affinity(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7}, raising=False)
    assert available_cores() == 3
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert available_cores() == 1
