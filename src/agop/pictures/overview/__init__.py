"""index.html of a folder of explanations: one self-contained page with a row per image."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from agop.pictures.class_names import class_name
from agop.pictures.data_uri import data_uri, has_few_pixels
from agop.pictures.heat import Picture
from agop.pictures.predictions import Prediction, percent, summary, wrong_first
from agop.system.files import Spool, write_atomically
from agop.web import environment, scripts, styles

if TYPE_CHECKING:
    from markupsafe import Markup

# Sides and JPEG quality of the small images: about 4 kB each.
_SIDE, _QUALITY = 112, 80


class Overview:
    """Writes the page: `add` one image at a time, then `write`. Until then, the rows are on disk."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self.path, self._names, self._templates = path, names, environment(__name__)
        self._rows, self._places = Spool(path), list[tuple[int, int]]()

    def add(self, prediction: Prediction, pictures: Sequence[Picture]) -> None:
        """Add a row with small versions of the pictures."""
        row = self._templates.get_template("row.html").render(
            prediction=prediction,
            file=shown(prediction.file),
            address=quote(os.fsencode(prediction.picture)),
            predicted=shown(class_name(self._names, prediction.predicted)),
            true_class="" if prediction.label is None else shown(class_name(self._names, prediction.label)),
            percent=percent(prediction.probability),
            few=has_few_pixels(pictures[0]),
            thumbnails=[data_uri(picture, _SIDE, _QUALITY) for picture in pictures],
        )
        content = row.encode()
        self._places.append((self._rows.append(content), len(content)))

    def write(
        self,
        predictions: Sequence[Prediction],
        skipped: Sequence[str],
        *,
        model: str,
        methods: Sequence[str],
        target: int | None,
    ) -> None:
        """Write the page, with the rows of the predictions in the order of `wrong_first`."""
        parts = self._templates.get_template("page.html").generate(
            styles=styles(__name__, "overview"),
            scripts=scripts(__name__),
            rows=self._ordered_rows(wrong_first(predictions)),
            labelled=any(prediction.label is not None for prediction in predictions),
            summary=summary(predictions),
            model=shown(model),
            methods=[shown(method) for method in methods],
            target=None if target is None else shown(class_name(self._names, target)),
            skipped=[shown(message) for message in skipped],
        )
        write_atomically(self.path, (part.encode() for part in parts))

    def _ordered_rows(self, order: Sequence[int]) -> Iterator[Markup]:
        from markupsafe import Markup

        for position in order:
            yield Markup(self._rows.read(*self._places[position]).decode())


def shown(text: str) -> str:
    """The text; bytes of a file name that aren't UTF-8 become �."""
    return os.fsencode(text).decode("utf-8", "replace")
