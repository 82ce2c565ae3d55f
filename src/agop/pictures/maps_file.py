"""maps.safetensors: the maps of many images, written while only one image's maps are in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from agop.system.files import Spool, write_atomically


class MapsFile:
    """Maps (N,H,W) by method: `add` one image's maps (H,W) at a time, then `write`."""

    def __init__(self, path: Path, methods: Sequence[str]) -> None:
        self.path, self._count, self._shape = path, 0, (0, 0)
        self._maps = {name: Spool(path) for name in methods}

    def add(self, maps: Mapping[str, Tensor]) -> None:
        """Add the maps of one image."""
        for name, spool in self._maps.items():
            values = maps[name].cpu().numpy().astype("<f4")
            spool.append(values.tobytes())
            self._shape = values.shape
        self._count += 1

    def write(self) -> None:
        """Write the file, or leave the existing one unchanged."""
        write_atomically(self.path, self._content())

    def _content(self) -> Iterator[bytes]:
        """The safetensors format: length of the header, header, values."""
        header: dict[str, Any] = {}
        size = 4 * self._count * int(np.prod(self._shape))
        for place, name in enumerate(self._maps):
            offsets = [place * size, (place + 1) * size]
            header[name] = {"dtype": "F32", "shape": [self._count, *self._shape], "data_offsets": offsets}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        yield len(text).to_bytes(8, "little") + text
        for spool in self._maps.values():
            yield from spool.parts()
