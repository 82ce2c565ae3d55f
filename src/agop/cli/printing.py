"""Print lines as they are, and end with one line on Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from rich.console import Console


def print_labelled(label: str, message: str, colour: str) -> None:
    """Print a message on standard error after a label in a colour."""
    from rich.text import Text

    plain_console(stderr=True).print(Text.assemble((f"{label}:", colour), " ", message))


def plain_console(*, stderr: bool = False) -> Console:
    """A console for plain lines."""
    from rich.console import Console

    return Console(stderr=stderr, soft_wrap=True, highlight=False, markup=False, emoji=False)


Command = Callable[..., None]


def stoppable(kept: str) -> Callable[[Command], Command]:
    """Decorate a command: when it's stopped, print what is kept of its work.

    That is the message of the KeyboardInterrupt, or `kept`, in which {out} is the command's option.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def run(**options: Any) -> None:
            try:
                command(**options)
            except KeyboardInterrupt as stop:
                plain_console(stderr=True).print(f"stopped: {str(stop) or kept.format(**options)}")
                raise

        return run

    return decorate


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on the first SIGTERM and ignore further ones. The old handler returns at the end.

    torchrun sends SIGTERM when another rank has ended, and also after Ctrl-C.
    """

    def interrupt(*_: Any) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Deliver SIGINT and SIGTERM after the block, not inside it."""
    received: list[int] = []

    def remember(number: int, _: Any) -> None:
        received.append(number)

    previous = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])
