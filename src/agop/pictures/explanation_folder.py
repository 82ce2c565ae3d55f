"""A folder of explanations: a sheet per image, a page with all images, the raw maps, and a manifest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image

from agop import methods
from agop.errors import InputError
from agop.methods.base import missing_layer
from agop.model.fingerprint import fingerprint
from agop.pictures.colouring import DEFAULT_COLOURING, Colouring
from agop.pictures.explained import Explained, Explainer
from agop.pictures.explanation_outputs import MANIFEST, MAPS, PAGE, ExplanationOutputs
from agop.pictures.heat import Picture
from agop.pictures.maps_file import MapsFile
from agop.pictures.overview import Overview
from agop.pictures.predictions import Prediction
from agop.pictures.sheets import sheet, tile
from agop.statistic.drawing import png
from agop.system.files import write_atomically
from agop.system.versions import package_version


class ExplanationFolder:
    """Writes a folder: `add` one image at a time, then `finish`. Memory doesn't grow with maps and pictures.

    `about` says where the model came from; `labels` are the true classes by file.
    """

    def __init__(
        self,
        outputs: ExplanationOutputs,
        explainer: Explainer,
        about: dict[str, Any],
        labels: Mapping[Path, int | None] | None = None,
        colouring: Colouring = DEFAULT_COLOURING,
    ) -> None:
        self.path, self.explainer, self.predictions = outputs.folder, explainer, list[Prediction]()
        self._outputs, self._about, self._labels, self._colouring = outputs, about, labels or {}, colouring

    def add(self, explained: Explained) -> None:
        """Write the image's PNG, and keep its maps and its row of the page on disk."""
        if not self.predictions:
            # From now on, the folder's new files count as agop's own, also if the process is killed.
            self._write_manifest(self._outputs.planned | self._outputs.earlier, complete=False)
        prediction = Prediction(
            str(explained.path), self._outputs.overlay(explained.path), explained.predicted, explained.probability,
            explained.target, self._labels.get(explained.path),
        )  # fmt: skip
        write_atomically(self.path / prediction.picture, png(self._drawn(explained)))
        self._maps.add(explained.maps)
        self._page.add(prediction, self._thumbnails(explained))
        self.predictions.append(prediction)

    def finish(self, skipped: Sequence[str]) -> None:
        """Write the maps, the page and the manifest, and remove files of an earlier run that weren't replaced."""
        if not self.predictions:
            raise InputError("none of the files could be read: pass images, or folders of images")
        self._maps.write()
        explainer = self.explainer
        self._page.write(
            self.predictions, skipped, model=self._about["model"], methods=explainer.methods, target=explainer.target
        )
        written = {MANIFEST, MAPS, PAGE, *(prediction.picture for prediction in self.predictions)}
        self._outputs.remove_earlier(written)
        self._write_manifest(written, complete=True, skipped=skipped)

    @cached_property
    def _maps(self) -> MapsFile:
        return MapsFile(self.path / MAPS, self.explainer.methods)

    @cached_property
    def _page(self) -> Overview:
        return Overview(self.path / PAGE, self.explainer.names)

    def _write_manifest(self, outputs: Iterable[str], *, complete: bool, skipped: Sequence[str] = ()) -> None:
        images = [prediction.to_dict() for prediction in self.predictions]
        state = {"complete": complete, "images": images, "skipped": list(skipped), "outputs": sorted(outputs)}
        manifest = self._about | self._configuration | state
        write_atomically(self.path / MANIFEST, json.dumps(manifest, indent=1, default=repr).encode())

    def _drawn(self, explained: Explained) -> Image.Image:
        maps = {name: saliency.numpy() for name, saliency in explained.maps.items()}
        return sheet(explained.picture, maps, self.explainer.caption(explained), self._colouring)

    def _thumbnails(self, explained: Explained) -> list[Picture]:
        """The image, and the map of the first method over it."""
        name = self.explainer.methods[0]
        strengths, _ = self._colouring.strengths({name: explained.maps[name].numpy()})
        return [explained.picture, tile(explained.picture, strengths[name], self._colouring)]

    @cached_property
    def _configuration(self) -> dict[str, Any]:
        explainer = self.explainer
        return {
            "agop": package_version(),
            "fingerprint": fingerprint(explainer.model),
            "methods": {name: _method_fields(name, explainer.layer) for name in explainer.methods},
            "output": explainer.output,
            "preprocessing": explainer.preprocessing.to_dict(),
            "classes": list(explainer.names),
            "colouring": asdict(self._colouring),
            "prior_provenance": None if explainer.prior is None else explainer.prior.provenance.to_dict(),
            "maps": MAPS,
        }


def _method_fields(name: str, layer: str | None) -> dict[str, Any]:
    method = methods.create(name)
    values = {field.name: getattr(method, field.name) for field in fields(method)}
    common = missing_layer(method, layer)
    return values if common is None else values | {"layer": common}
