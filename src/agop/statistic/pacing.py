"""Paces: on which calls of the training hook the model runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Protocol

import torch

from agop.errors import InputError

AUTO = "auto"
# The share of the training's time that passes may take is 15 %. The rest is for errors of measurement: with five timed
# passes, the interval of a ResNet-18 was once a fifth too short.
_SHARE = 0.10
_FIRST_INTERVAL, _MEASURED_PASSES = 8, 9


class Pace(Protocol):
    """Decides on which calls a pass is made."""

    def call(self, step: int) -> Any:
        """Context of call number `step`, which gives True if a pass is due."""

    def state(self) -> dict[str, int]:
        """What a resumed training needs."""

    def load(self, state: dict[str, int]) -> None:
        """Resume from a state."""


def pace_for(every: int | str, device: torch.device) -> Pace:
    """The pace of an option `every`: a positive integer, or "auto"."""
    if every == AUTO:
        return AutoPace(lambda: _synchronized_time(device))
    if not isinstance(every, int) or every < 1:
        raise InputError(f"every is {every!r}: give a positive integer or {AUTO!r}")
    return FixedPace(every)


class FixedPace:
    """A pass on calls 0, k, 2k …"""

    def __init__(self, every: int) -> None:
        self._every = every

    @contextmanager
    def call(self, step: int) -> Iterator[bool]:
        """True on every k-th call."""
        yield step % self._every == 0

    def state(self) -> dict[str, int]:
        """Nothing: the step decides."""
        return {}

    def load(self, state: dict[str, int]) -> None:
        """Nothing to load."""


class AutoPace:
    """A pass on every 8th call until nine passes are timed, then on every k-th, so that passes take at most 15 % of the
    training's time.

    k stays the same then: passes at equal distances give every later part of the training its weight.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._interval, self._next, self._decided = _FIRST_INTERVAL, 0, False
        self._passes: list[float] = []
        self._between: list[float] = []
        self._left: float | None = None

    @contextmanager
    def call(self, step: int) -> Iterator[bool]:
        """True if a pass is due. Times the pass, and the training between two calls."""
        due = step >= self._next
        if self._decided:
            yield due
        else:
            start = self._clock()
            yield due
            self._measured(start, self._clock(), due)
        if due:
            self._next = step + self._interval

    def _measured(self, start: float, end: float, due: bool) -> None:
        if self._left is not None:
            self._between.append(start - self._left)
        self._left = end
        if due:
            self._passes.append(end - start)
        if len(self._passes) == _MEASURED_PASSES:
            self._interval = max(1, math.ceil(median(self._passes) / (_SHARE * median(self._between))))
            self._decided = True

    def state(self) -> dict[str, int]:
        """The interval, the next call with a pass, and whether the interval is final."""
        return {"interval": self._interval, "next": self._next, "decided": int(self._decided)}

    def load(self, state: dict[str, int]) -> None:
        """Resume. A training that was interrupted while passes were timed times them again."""
        self._interval, self._next, self._decided = state["interval"], state["next"], bool(state["decided"])


def _synchronized_time(device: torch.device) -> float:
    """Seconds, after all work on the device: an accelerator works while Python continues."""
    if device.type not in ("cpu", "meta"):
        torch.get_device_module(device).synchronize(device)
    return time.perf_counter()
