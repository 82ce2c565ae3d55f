"""Names of the files in a folder of explanations, and the check that they replace nothing else."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from agop.system.files import check_overwrites

MANIFEST, MAPS, PAGE, OVERLAYS = "manifest.json", "maps.safetensors", "index.html", "overlays"


class ExplanationOutputs:
    """The files that explaining `files` writes into a folder: names relative to it, planned and of an earlier run.

    The overlay of an image has the path of its file, relative to the common folder of all: class folders are kept.
    """

    def __init__(self, folder: Path, files: Sequence[Path]) -> None:
        self.folder = folder
        names = overlay_names(files)
        self.planned = frozenset((MANIFEST, MAPS, PAGE, *names))
        self.earlier = earlier_outputs(folder)
        self._overlays: dict[Path, list[str]] = {}
        for path, name in zip(files, names, strict=True):
            self._overlays.setdefault(path, []).append(name)

    def overlay(self, path: Path) -> str:
        """Name of the overlay of the file. A file that comes twice gets the next name at the second call."""
        return self._overlays[path].pop(0)

    def check(self, inputs: Iterable[Path | None], *, force: bool = False) -> None:
        """Raise InputError if an input, or without `force` a file that isn't an earlier explanation, would be lost."""
        check_overwrites((self.folder / name for name in sorted(self.planned)), inputs, self._is_own, force=force)

    def remove_earlier(self, kept: Iterable[str]) -> None:
        """Delete files of the earlier explanation, except some: old results must not mix with new ones."""
        for path in (self.folder / name for name in self.earlier.difference(kept)):
            if self._is_own(path):
                path.unlink(missing_ok=True)

    def _is_own(self, path: Path) -> bool:
        """True for a file of an earlier explanation, unless a link leads to another place."""
        name = path.relative_to(self.folder)
        return name.as_posix() in self.earlier and path.resolve() == self.folder.resolve() / name


def earlier_outputs(folder: Path) -> frozenset[str]:
    """Names of the files that an earlier explanation in the folder wrote, by its manifest; empty without one."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        names = manifest["outputs"] if "agop" in manifest else []
        return frozenset(name for name in names if _is_output(PurePosixPath(name)))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return frozenset()


def _is_output(name: PurePosixPath) -> bool:
    """True for a name that an explanation may have: a manifest can't claim other files."""
    overlay = name.parts[:1] == (OVERLAYS,) and name.suffix == ".png" and ".." not in name.parts
    return overlay or str(name) in (MANIFEST, MAPS, PAGE)


def is_overlay_folder(path: Path) -> bool:
    """True for the overlays of an explanation: they aren't images to explain."""
    return path.name == OVERLAYS and bool(earlier_outputs(path.parent))


def overlay_names(files: Sequence[Path]) -> list[str]:
    """A PNG for each file, below the folder of overlays. A number is added if the name is taken."""
    root = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in files])
    names: list[str] = []
    taken: set[str] = set()
    for path in files:
        stem = Path(OVERLAYS, os.path.relpath(path, root)).with_suffix("").as_posix()
        name, number = f"{stem}.png", 2
        while name.casefold() in taken:  # some file systems ignore the case
            name, number = f"{stem}-{number}.png", number + 1
        taken.add(name.casefold())
        names.append(name)
    return names
