"""What the page lets one download: the folder that `agop explain` writes, as a .zip file."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from agop.app.session import Outcome
from agop.pictures.explained import Explained, Explainer

_ABOUT = ("model", "weights", "prior")


@dataclass(frozen=True)
class _Known(Explainer):
    """An explainer whose pictures are explained already."""

    known: Sequence[Explained] = ()

    def explained(self, files: Sequence[Path]) -> Iterator[Explained]:
        return iter(self.known)


def zipped(outcome: Outcome, where: Path) -> Path:
    """A .zip file, in a new folder, with a sheet a picture, the raw maps and the manifest."""
    loaded = outcome.loaded
    known = [
        replace(result.explained, maps={name: result.explained.maps[name] for name in outcome.methods})
        for result in outcome.results
    ]
    explainer = _Known(
        loaded.model, outcome.methods, loaded.preprocessing, loaded.prior, layer=loaded.fields.layer or None,
        skipped=outcome.refused, names=loaded.names, known=known,
    )  # fmt: skip
    about = {name: value or None for name, value in asdict(loaded.fields).items() if name in _ABOUT}
    path = Path(mkdtemp(dir=where)) / "explanations.zip"
    with TemporaryDirectory(dir=where) as folder, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        explainer.write([explained.path for explained in known], Path(folder), about)
        for file in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
            archive.write(file, f"explanations/{file.relative_to(folder).as_posix()}")
    return path
