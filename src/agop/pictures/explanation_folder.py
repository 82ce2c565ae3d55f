"""A folder of explanations: a sheet per image, the raw maps, and a manifest."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from safetensors.torch import save as bytes_from_tensors
from torch import Tensor

from agop import methods
from agop.errors import InputError
from agop.model.fingerprint import fingerprint
from agop.pictures.colouring import DEFAULT_COLOURING, Colouring
from agop.pictures.explained import Explained, Explainer
from agop.pictures.sheets import sheet
from agop.system.files import write_atomically
from agop.system.versions import package_version


class ExplanationFolder:
    """Writes a folder: `add` one image at a time, then `finish`.

    The PNG of an image has the path of its file, relative to `root`: class folders are kept.
    """

    def __init__(
        self, path: Path, explainer: Explainer, root: Path = Path(), colouring: Colouring = DEFAULT_COLOURING
    ) -> None:
        self.path, self.explainer, self.root, self.colouring = path, explainer, root, colouring
        self.entries: list[dict[str, Any]] = []
        self._maps: dict[str, list[Tensor]] = {name: [] for name in explainer.methods}
        self._names: set[str] = set()

    def add(self, explained: Explained) -> None:
        """Write the image's PNG, and keep its maps for `finish`."""
        name = self._unused(Path(os.path.relpath(explained.path, self.root)).with_suffix("").as_posix())
        write_atomically(self.path / name, _png(self._drawn(explained)))
        for method, saliency in explained.maps.items():
            self._maps[method].append(saliency)
        self.entries.append(
            {
                "file": str(explained.path),
                "picture": name,
                "predicted": explained.predicted,
                "probability": round(explained.probability, 6),
                "target": explained.target,
            }
        )

    def finish(self, about: dict[str, Any], skipped: Sequence[str]) -> None:
        """Write maps.safetensors and manifest.json."""
        if not self.entries:
            raise InputError("none of the files could be read: pass images, or folders of images")
        maps = {name: torch.stack(batch).contiguous() for name, batch in self._maps.items()}
        write_atomically(self.path / "maps.safetensors", bytes_from_tensors(maps))
        manifest = about | self._configuration() | {"images": self.entries, "skipped": list(skipped)}
        write_atomically(self.path / "manifest.json", json.dumps(manifest, indent=1, default=repr).encode())

    def _unused(self, stem: str) -> str:
        """Name for a PNG; a number is added if the name is taken."""
        name, number = f"{stem}.png", 2
        while name in self._names:
            name, number = f"{stem}-{number}.png", number + 1
        self._names.add(name)
        return name

    def _drawn(self, explained: Explained) -> Image.Image:
        maps = {name: saliency.numpy() for name, saliency in explained.maps.items()}
        return sheet(explained.picture, maps, self.explainer.caption(explained), self.colouring)

    def _configuration(self) -> dict[str, Any]:
        explainer = self.explainer
        return {
            "agop": package_version(),
            "fingerprint": fingerprint(explainer.model),
            "methods": {name: _method_fields(name, explainer.layer) for name in explainer.methods},
            "preprocessing": explainer.preprocessing.to_dict(),
            "classes": list(explainer.names),
            "colouring": asdict(self.colouring),
            "prior_provenance": None if explainer.prior is None else explainer.prior.provenance.to_dict(),
            "maps": "maps.safetensors",
        }


def common_folder(files: Sequence[Path]) -> Path:
    """The deepest folder that contains all files."""
    return Path(os.path.commonpath([os.path.dirname(os.path.abspath(path)) for path in files]))


def _method_fields(name: str, layer: str | None) -> dict[str, Any]:
    method = methods.create(name)
    values = {field.name: getattr(method, field.name) for field in fields(method)}
    return values | {"layer": layer} if "layer" in values else values


def _png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()
