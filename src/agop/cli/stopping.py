"""What a command says when Ctrl-C stops it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from rich.console import Console

Command = Callable[..., None]


def stoppable(kept: str = "") -> Callable[[Command], Command]:
    """A command that says on Ctrl-C, in one line, what stays of its work.

    That is what the KeyboardInterrupt says, else `kept`, in which {out} is the command's option.
    """

    def with_a_last_word(command: Command) -> Command:
        @wraps(command)
        def run(**options: Any) -> None:
            try:
                command(**options)
            except KeyboardInterrupt as stopped:
                told = str(stopped) or kept.format(**options)
                console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
                console.print(f"stopped: {told}" if told else "stopped")
                raise

        return run

    return with_a_last_word
