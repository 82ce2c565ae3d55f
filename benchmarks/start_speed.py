"""How long users wait before anything happens: seconds of processor time of `import agop` and of short commands."""

from __future__ import annotations

import resource
import subprocess
import sys
from dataclasses import dataclass

# What a user types, the arguments of python, and the bar in seconds.
STARTS = (
    ("import agop", ("-c", "import agop, sys; sys.exit('torch' in sys.modules)"), 0.1),
    ("agop --help", ("-m", "agop", "--help"), 0.5),
    ("agop list", ("-m", "agop", "list"), 1.5),
)


@dataclass(frozen=True)
class Start:
    """Processor time of a new process, the shortest of several, and the bar it must stay below."""

    what: str
    seconds: float
    bar: float

    @property
    def holds(self) -> bool:
        """True if the bar is reached."""
        return self.seconds <= self.bar


def start_times(repeats: int = 7) -> list[Start]:
    """The start times. Processor time, because waiting for a busy core isn't the package's fault."""
    return [Start(what, min(_seconds(command) for _ in range(repeats)), bar) for what, command, bar in STARTS]


def _seconds(command: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    for start in start_times():
        print(f"{start.seconds:.3f} s  ≤ {start.bar} s  {'holds' if start.holds else 'missed'}  {start.what}")
