"""A folder of explanations: a sheet per image, a page with all images, the raw maps, and a manifest."""

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agop import methods
from agop.errors import InputError
from agop.explanation import resolve_method
from agop.images.explained import Explained, Explainer, Prediction, percent, summary, wrong_first
from agop.images.files import MANIFEST, OVERLAYS, class_name, earlier_overlays
from agop.images.overlays import DEFAULT_COLOURING, Colouring, Picture, data_uri, has_few_pixels, sheet, tile
from agop.io import Spool, check_overwrites, own_folder, package_version, write_atomically
from agop.methods.base import missing_layer
from agop.model.state import fingerprint
from agop.prior.show import png
from agop.web import environment, scripts, styles

MAPS, PAGE = "maps.safetensors", "index.html"
# Sides and JPEG quality of the small images: about 4 kB each.
_SIDE, _QUALITY = 112, 80


def check_outputs(folder: Path, files: Sequence[Path], inputs: Iterable[Path | None], *, force: bool = False) -> None:
    """Make the folder. Raises InputError if an input would be overwritten, or without `force` foreign files."""
    check_overwrites((folder / name for name in (MANIFEST, MAPS, PAGE, *overlay_names(files))), inputs, own=True)
    own_folder(folder, force=force)


def overlay_names(files: Sequence[Path]) -> list[str]:
    """A PNG for each file, below the folder of overlays. A number is added if the name is taken.

    The overlay of an image has the path of its file, relative to the common folder of all: class folders are kept.
    """
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


@dataclass
class ExplanationFolder:
    """Writes a folder: `add` one image of `files` at a time, then `finish`. Memory doesn't grow with their number.

    `about` says where the model came from; `labels` are the true classes by file.
    """

    path: Path
    files: Sequence[Path]
    explainer: Explainer
    about: dict[str, Any]
    labels: Mapping[Path, int | None] = field(default_factory=dict)
    colouring: Colouring = DEFAULT_COLOURING

    def __post_init__(self) -> None:
        self.predictions: list[Prediction] = []
        self._overlays: dict[Path, list[str]] = {}  # several for a file that comes twice
        for file, name in zip(self.files, overlay_names(self.files), strict=True):
            self._overlays.setdefault(file, []).append(name)
        self._earlier = earlier_overlays(self.path)

    def add(self, explained: Explained) -> None:
        """Write the image's PNG, and keep its maps and its row of the page on disk."""
        if not self.predictions:
            planned = {MANIFEST, MAPS, PAGE, *(name for names in self._overlays.values() for name in names)}
            self._write_manifest(planned | self._earlier, complete=False)
            self._maps = {name: Spool(self.path / MAPS) for name in self.explainer.methods}
            self._page = Overview(self.path / PAGE, self.explainer, self.about["model"])
        prediction = Prediction(
            str(explained.path), self._overlays[explained.path].pop(0), explained.predicted, explained.probability,
            explained.target, self.labels.get(explained.path),
        )  # fmt: skip
        maps = {name: saliency.numpy() for name, saliency in explained.maps.items()}
        drawn = sheet(explained.picture, maps, self.explainer.caption(explained), self.colouring)
        write_atomically(self.path / prediction.picture, png(drawn))
        for name, saliency in maps.items():
            self._maps[name].append(saliency.astype("<f4").tobytes())
        first = self.explainer.methods[0]
        strengths, _ = self.colouring.strengths({first: maps[first]})
        self._page.add(prediction, [explained.picture, tile(explained.picture, strengths[first], self.colouring)])
        self.predictions.append(prediction)

    def finish(self, skipped: Sequence[str]) -> None:
        """Write the maps, the page and the manifest, and remove overlays of an earlier run that weren't replaced."""
        if not self.predictions:
            raise InputError("none of the files could be read: pass images, or folders of images")
        write_atomically(self.path / MAPS, self._safetensors())
        self._page.write(self.predictions, skipped)
        written = {MANIFEST, MAPS, PAGE, *(prediction.picture for prediction in self.predictions)}
        for name in self._earlier - written:
            (self.path / name).unlink(missing_ok=True)
        self._write_manifest(written, complete=True, skipped=skipped)

    def _safetensors(self) -> Iterator[bytes]:
        """Maps (N,H,W) by method in the safetensors format: length of the header, header, values."""
        shape = [len(self.predictions), *self.explainer.preprocessing.size]
        size, header = 4 * math.prod(shape), {}
        for place, name in enumerate(self._maps):
            header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [place * size, (place + 1) * size]}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        yield len(text).to_bytes(8, "little") + text
        for spool in self._maps.values():
            yield from spool.parts()

    def _write_manifest(self, outputs: Iterable[str], *, complete: bool, skipped: Sequence[str] = ()) -> None:
        images = [prediction.to_dict() for prediction in self.predictions]
        state = {"complete": complete, "images": images, "skipped": list(skipped), "outputs": sorted(outputs)}
        manifest = self.about | self._configuration | state
        write_atomically(self.path / MANIFEST, json.dumps(manifest, indent=1, default=repr).encode())

    @cached_property
    def _configuration(self) -> dict[str, Any]:
        explainer = self.explainer
        return {
            "agop": package_version(),
            "fingerprint": fingerprint(explainer.model),
            "methods": {name: self._options(name) for name in explainer.methods},
            "output": explainer.output,
            "preprocessing": explainer.preprocessing.to_dict(),
            "classes": list(explainer.names),
            "colouring": asdict(self.colouring),
            "prior_provenance": None if explainer.prior is None else explainer.prior.provenance.to_dict(),
            "maps": MAPS,
        }

    def _options(self, name: str) -> dict[str, Any]:
        """Options of a method, with the layer that it gets."""
        method = resolve_method(name, missing_layer(methods.create(name), self.explainer.layer))
        return {each.name: getattr(method, each.name) for each in fields(method)}


class Overview:
    """Writes the page: `add` one image at a time, then `write`. Until then, the rows are on disk."""

    def __init__(self, path: Path, explainer: Explainer, model: str) -> None:
        self.path, self._explainer, self._model, self._templates = path, explainer, model, environment(__package__)
        self._templates.globals |= {"shown": shown, "percent": percent, "shown_class": self._class}
        self._rows, self._places = Spool(path), list[tuple[int, int]]()

    def add(self, prediction: Prediction, pictures: Sequence[Picture]) -> None:
        """Add a row with small versions of the pictures."""
        address, few = quote(os.fsencode(prediction.picture)), has_few_pixels(pictures[0])
        thumbnails = [data_uri(picture, _SIDE, _QUALITY) for picture in pictures]
        template = self._templates.get_template("row.html")
        content = template.render(prediction=prediction, address=address, few=few, thumbnails=thumbnails).encode()
        self._places.append((self._rows.append(content), len(content)))

    def _class(self, index: int) -> str:
        return shown(class_name(self._explainer.names, index))

    def write(self, predictions: Sequence[Prediction], skipped: Sequence[str]) -> None:
        """Write the page, with the rows of the predictions in the order of `wrong_first`."""
        from markupsafe import Markup

        rows = (Markup(self._rows.read(*self._places[place]).decode()) for place in wrong_first(predictions))
        parts = self._templates.get_template("page.html").generate(
            styles=styles(__package__, "overview"),
            scripts=scripts(__package__, "overview"),
            rows=rows,
            labelled=any(prediction.label is not None for prediction in predictions),
            summary=summary(predictions),
            model=shown(self._model),
            methods=[shown(method) for method in self._explainer.methods],
            target=None if self._explainer.target is None else self._class(self._explainer.target),
            skipped=[shown(message) for message in skipped],
        )
        write_atomically(self.path, (part.encode() for part in parts))


def shown(text: str) -> str:
    """The text; bytes of a file name that aren't UTF-8 become �."""
    return os.fsencode(text).decode("utf-8", "replace")
