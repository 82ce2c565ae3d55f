"""A folder of explanations: an overlay or sheet a picture, the raw maps, and a manifest."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save as bytes_from_tensors
from torch import Tensor, nn

from agop import methods
from agop.errors import FileError, InputError, warn
from agop.explaining.explain import explain
from agop.methods.base import takes_layer
from agop.model.fingerprint import fingerprint
from agop.model.probe import probing
from agop.model.targets import predicted, probabilities
from agop.pictures.heat import Picture
from agop.pictures.preprocessing import Preprocessing
from agop.pictures.sheets import sheet, shown
from agop.statistic.agop import AGOP
from agop.system.files import write_atomically
from agop.system.progress import track


@dataclass(frozen=True)
class Explained:
    """One picture with its prediction and its maps (H,W) by method."""

    path: Path
    picture: Picture
    predicted: int
    probability: float
    target: int
    maps: dict[str, Tensor]


# Pictures read at once; `explain` decides how many of them are in the model at once.
_READ_TOGETHER = 32


@dataclass(frozen=True)
class Explainer:
    """A model and what to explain of it, ready for pictures."""

    model: nn.Module
    methods: Sequence[str]
    preprocessing: Preprocessing
    prior: AGOP | None = None
    target: int | None = None
    layer: str | None = None
    batch_size: int | None = None
    skipped: list[str] = field(default_factory=list)
    names: Sequence[str] = ()

    def write(self, files: Sequence[Path], folder: Path, about: dict[str, Any]) -> int:
        """Explain the files into the folder; how many there were. Files that are no pictures are left out.

        A picture keeps its place below the folder that all files share: its class folder, if they have some.
        """
        maps: dict[str, list[Tensor]] = {name: [] for name in self.methods}
        entries: list[dict[str, Any]] = []
        taken: set[str] = set()
        shared = os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in files])
        for explained in self.explained(files):
            place = Path(os.path.relpath(os.path.abspath(explained.path), shared))
            name = _unused(place.with_suffix("").as_posix(), taken)
            write_atomically(folder / name, _png(self._drawn(explained)))
            for method, found in explained.maps.items():
                maps[method].append(found)
            entries.append(_entry(explained, name))
        if not entries:
            raise InputError("none of these files could be read: give pictures, or folders of them")
        stacked = {name: torch.stack(found).contiguous() for name, found in maps.items()}
        write_atomically(folder / "maps.safetensors", bytes_from_tensors(stacked))
        manifest = about | self._about() | {"images": entries, "skipped": self.skipped}
        write_atomically(folder / "manifest.json", json.dumps(manifest, indent=1, default=repr).encode())
        return len(entries)

    def explained(self, files: Sequence[Path]) -> Iterator[Explained]:
        """The files one by one, explained a batch at a time."""
        size = self.batch_size or _READ_TOGETHER
        batches = [files[start : start + size] for start in range(0, len(files), size)]
        for batch in track(batches, "explaining"):
            yield from self._batch(batch)

    def _batch(self, files: Sequence[Path]) -> Iterator[Explained]:
        read = [(path, picture) for path in files if (picture := self._read(path)) is not None]
        if not read:
            return
        images = torch.stack([self.preprocessing.tensor(picture) for _, picture in read])
        with probing(self.model) as probe:
            logits = probe.logits(images).cpu()
        maps = {name: self._maps(name, images) for name in self.methods}
        classes, likely = predicted(logits), probabilities(logits.float())
        for index, (path, picture) in enumerate(read):
            yield Explained(
                path, np.asarray(picture.convert("RGB")), int(classes[index]), round(float(likely[index].max()), 6),
                int(classes[index]) if self.target is None else self.target,
                {name: found[index].float() for name, found in maps.items()},
            )  # fmt: skip

    def _maps(self, name: str, images: Tensor) -> Tensor:
        layer = self.layer if takes_layer(methods.get(name)) else None
        return explain(self.model, images, name, self.prior, self.target, layer, self.batch_size)

    def _read(self, path: Path) -> Image.Image | None:
        try:
            return self.preprocessing.picture(path)
        except FileError as error:
            self.skipped.append(str(error))
            warn(f"left out: {error}")
            return None

    def _drawn(self, explained: Explained) -> Image.Image:
        maps = {name: found.numpy() for name, found in explained.maps.items()}
        if len(maps) == 1:
            return shown(explained.picture, next(iter(maps.values())))
        return sheet(explained.picture, maps, self.caption(explained))

    def caption(self, explained: Explained) -> str:
        """What stands above a picture: its predicted class and, if that is another, the explained one."""
        told = f"predicted {self._called(explained.predicted)}"
        other = explained.target != explained.predicted
        return f"{told}, explained {self._called(explained.target)}" if other else told

    def _called(self, index: int) -> str:
        return self.names[index] if index < len(self.names) else str(index)

    def _about(self) -> dict[str, Any]:
        return {
            "agop": version("agop"),
            "fingerprint": fingerprint(self.model),
            "methods": {name: _configuration(methods.create(name), self.layer) for name in self.methods},
            "preprocessing": self.preprocessing.to_dict(),
            "classes": list(self.names),
            "prior_provenance": None if self.prior is None else self.prior.provenance.to_dict(),
            "maps": "maps.safetensors",
        }


def _configuration(method: methods.Method, layer: str | None) -> dict[str, Any]:
    configuration = {f.name: getattr(method, f.name) for f in fields(method)}
    return configuration | {"layer": layer} if "layer" in configuration else configuration


def _entry(explained: Explained, name: str) -> dict[str, Any]:
    return {
        "file": str(explained.path),
        "picture": name,
        "predicted": explained.predicted,
        "probability": explained.probability,
        "target": explained.target,
    }


def _unused(stem: str, taken: set[str]) -> str:
    """A picture's name in the folder; two files of one place and name stand side by side."""
    name, number = f"{stem}.png", 2
    while name in taken:
        name, number = f"{stem}-{number}.png", number + 1
    taken.add(name)
    return name


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()
