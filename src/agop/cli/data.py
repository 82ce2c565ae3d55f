"""`agop data`: the official CLEVR-XAI files, checked, or scenes drawn in their form."""

from __future__ import annotations

import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from agop.errors import InputError

if TYPE_CHECKING:
    from agop.scenarios.clevr.release.writing import Drawn

app = typer.Typer(help="Get, check or draw the pictures of a benchmark.", no_args_is_help=True)


@app.command("clevr-xai")
def clevr_xai(
    folder: Annotated[Path | None, typer.Argument(help="The folder with the official files, unpacked or not.")] = None,
    questions: Annotated[str, typer.Option(help="simple or complex.")] = "simple",
) -> None:
    """Say where to get CLEVR-XAI; or, given a folder, whether what is there can be used."""
    from agop.scenarios.clevr.release.archive import ARCHIVES, PAGE
    from agop.scenarios.clevr.release.reader import read_release

    console = _console()
    if folder is None:
        console.print(f"CLEVR-XAI's files are\n  {ARCHIVES[0]}\n  {ARCHIVES[1]}\nfrom {PAGE}")
        console.print("Put them in one folder, packed or unpacked, and see whether they are whole:")
        console.print("  agop data clevr-xai FOLDER\nthen\n  agop bench clevr-xai --data FOLDER")
        console.print("Scenes in the same form, for want of the official ones: agop data clevr-render FOLDER")
        return
    console.print(read_release(folder, console.print, questions).summary())
    console.print(f"next: agop bench clevr-xai --data {folder}")


@app.command("clevr-render")
def clevr_render(
    folder: Annotated[Path, typer.Argument(help="Where to write; one that was begun is gone on with.")],
    count: Annotated[int, typer.Option(help="How many scenes.")] = 10_000,
    size: Annotated[str, typer.Option(help="The pictures' size, as WIDTHxHEIGHT.")] = "480x320",
    seed: Annotated[int, typer.Option(help="The same seed gives the same scenes.")] = 0,
    jobs: Annotated[int | None, typer.Option(help="Processes; by default one a core.")] = None,
) -> None:
    """Draw CLEVR-like scenes, with questions and masks, in the form of the official files."""
    from agop.scenarios.clevr.release.writing import write_release

    if count < 1:
        raise InputError(f"count is {count}: give 1 or more")
    width, height = _sides(size)
    draw = partial(_drawn, seed, width, height)
    about = {"seed": seed, "size": [width, height]}
    write_release(folder, draw, range(count), about, (os.cpu_count() or 1) if jobs is None else jobs)
    console = _console()
    console.print(f"wrote {count:,} scenes to {folder}; see what is in them: agop data clevr-xai {folder}")


def _drawn(seed: int, width: int, height: int, index: int) -> Drawn:
    """A scene in official form, its picture (H,W,3) and its objects' masks (objects,H,W)."""
    from agop.scenarios.clevr.render.raycast import object_masks, render
    from agop.scenarios.clevr.render.scene import random_scene

    scene = random_scene(seed, index)
    return scene.official(index), render(scene, width, height), object_masks(scene, width, height)


def _sides(size: str) -> tuple[int, int]:
    sides = re.fullmatch(r"(\d{1,4})[x×](\d{1,4})", size.strip().lower())
    if sides is None or min(int(side) for side in sides.groups()) < 8:
        raise InputError(f"size is {size!r}: give WIDTHxHEIGHT of 8 or more each, for example 480x320")
    return int(sides[1]), int(sides[2])


def _console() -> Console:
    return Console(soft_wrap=True, highlight=False, markup=False)
