"""Print lines as they are: a path or name in them is never markup, an emoji or broken by a narrow terminal."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

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


def print_any_name() -> None:
    """Let standard output print file names that aren't UTF-8, as escapes; standard error does so by default."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
