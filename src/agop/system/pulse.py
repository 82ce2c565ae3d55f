"""The pulse of the ranks of a job, in a store that all of them see: who is still there, and why the job ends."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Sequence
from typing import Any

_BEAT_SECONDS = 0.5
_LISTEN_SECONDS = 3.0
_WHY = "agop why"


class Pulse:
    """A thread that beats for this rank and listens to others: rank 0 to all of them, all of them to rank 0.

    The store is one of torch.distributed. When a rank has ended early the thread sends this process SIGTERM, as
    torchrun does to those of its machine.
    """

    def __init__(self, store: Any, rank: int, count: int, patience: float) -> None:
        self.rank, self.count, self.patience = rank, count, patience
        self._store = store
        self._others = [other for other in range(count) if other != rank]
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()

    def tell(self, why: str) -> None:
        """Let the others know why the job ends; the first word counts."""
        self._store.compare_set(_WHY, "", why)

    def told(self) -> str:
        """Why the job ends, by the word of a rank; empty if it goes on."""
        return self._store.get(_WHY).decode() if self._store.check([_WHY]) else ""

    def why(self) -> str:
        """Which rank ended early: by its own word, or by its silence."""
        before, until = self._beats(self._others), time.monotonic() + _LISTEN_SECONDS
        while time.monotonic() < until:
            if told := self.told():
                return told
            time.sleep(0.1)
        silent = [rank for rank, beats in self._beats(self._others).items() if beats == before.get(rank)]
        if not silent:
            return f"rank {self.rank} of {self.count} was told to end"
        return f"rank {silent[0]} of {self.count} ended early: it was killed, or its machine was lost"

    def stop(self) -> None:
        """Leave: silence means nothing from now on."""
        self._leaving.set()
        self._thread.join(timeout=5)
        self._store.add(f"agop left {self.rank}", 1)

    def _beat(self) -> None:
        """In the thread: beat and listen until the job ends."""
        heard: dict[int, tuple[int, float]] = {}
        lost = ""
        while not lost and not self._leaving.wait(_BEAT_SECONDS):
            try:
                self._store.add(f"agop beats {self.rank}", 1)
                lost = self.told() or self._silence(heard)
                if lost:
                    self.tell(lost)
            except RuntimeError as error:  # the store is gone, and with it the machine that had it
                lost = str(error)
        if lost and not self._leaving.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)

    def _silence(self, heard: dict[int, tuple[int, float]]) -> str:
        """Which rank has not beaten for too long; `heard` are the last beats of each, with their time."""
        now = time.monotonic()
        for rank, beats in self._beats(self._others if self.rank == 0 else [0]).items():
            if heard.get(rank, (-1, now))[0] != beats:
                heard[rank] = (beats, now)
            elif now - heard[rank][1] > self.patience:
                return f"rank {rank} of {self.count} ended early: no sign of it for {self.patience:.0f} seconds"
        return ""

    def _beats(self, ranks: Sequence[int]) -> dict[int, int]:
        """How often each of these ranks has beaten, without those that have left."""
        here = [rank for rank in ranks if not self._store.check([f"agop left {rank}"])]
        return {rank: self._store.add(f"agop beats {rank}", 0) for rank in here}
