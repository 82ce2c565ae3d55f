"""A session: one model that explains uploaded images, without the page."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image
from torch import nn

from agop import methods
from agop.app.uploads import MOST_FILES, read_upload
from agop.errors import InputError, recorded_warnings
from agop.model.probe import number_of_classes
from agop.model.targets import PREDICTED
from agop.pictures.class_names import class_names
from agop.pictures.explained import Explained, Explainer
from agop.pictures.preprocessing import Preprocessing
from agop.registry import unknown_name_error
from agop.statistic.agop import AGOP

_BATCH = 8
Report = Callable[[float, str], None]


@dataclass(frozen=True)
class Outcome:
    """Explained images, messages about skipped files and methods, and warnings. The explainer has the methods left."""

    explainer: Explainer
    results: list[Explained]
    skipped: list[str]
    notes: list[str]


class Session:
    """Explains uploads with one model, one request at a time. `about` says where the model came from."""

    def __init__(self, explainer: Explainer, classes: int, about: dict[str, Any]) -> None:
        self.explainer, self.classes, self.about = explainer, classes, about
        self._lock = threading.Lock()

    @classmethod
    def start(
        cls, model: nn.Module, preprocessing: Preprocessing, prior: AGOP | None, layer: str | None, names: Path | None,
        about: dict[str, Any],
    ) -> Session:  # fmt: skip
        """Run the model once, on zeros: a model or prior that doesn't fit raises now, not on the first upload."""
        zeros = preprocessing.zeros()
        classes = number_of_classes(model, zeros)
        if prior is not None:
            prior.check(model, zeros)
        explainer = Explainer(
            model, (), preprocessing, prior, layer=layer, batch_size=_BATCH,
            names=class_names(prior, names, classes, model), lenient=True,
            output=PREDICTED if prior is None else prior.provenance.output,
        )  # fmt: skip
        return cls(explainer, classes, about)

    @property
    def busy(self) -> bool:
        """True while a request is running."""
        return self._lock.locked()

    def offered(self) -> list[str]:
        """Methods that work with the prior, or without one."""
        return methods.runnable(self.explainer.prior)

    def explain(self, files: Sequence[Path], names: Sequence[str], report: Report = lambda *_: None) -> Outcome:
        """Explain the files by the named methods. Unreadable files and failing methods are skipped with a message."""
        explainer = replace(self.explainer, methods=self._checked(names))
        skipped: list[str] = []
        if len(files) > MOST_FILES:
            skipped.append(f"{len(files)} files are too many: only the first {MOST_FILES} are explained")
            files = files[:MOST_FILES]
        results: list[Explained] = []
        with self._lock, recorded_warnings() as notes:
            report(0, f"image 1 of {len(files)}")
            for result in explainer.explained(files, skipped.append, self._read):
                results.append(replace(result, path=Path(result.path.name)))
                report(len(results) / len(files), f"image {len(results)} of {len(files)}")
        return _with_common_methods(Outcome(explainer, results, skipped, notes))

    def _read(self, path: Path) -> Image.Image:
        return read_upload(path, self.explainer.preprocessing)

    def _checked(self, names: Sequence[str]) -> list[str]:
        """The named methods in the registry's order. Raises for none, and for names that aren't offered."""
        if not names:
            raise InputError("no method selected: tick at least one")
        for name in names:
            if name not in methods.names():  # not methods.get: a request must not import a module of this machine
                raise unknown_name_error("method", name, self.offered())
            if reason := methods.lacking(name, self.explainer.prior):
                raise InputError(f"{name} can't run, {reason}: make one with `agop fit`, and pass it with --prior")
        return [name for name in methods.names() if name in names]


def _with_common_methods(outcome: Outcome) -> Outcome:
    """The outcome with only those methods that explained every image."""
    common = [name for name in outcome.explainer.methods if all(name in result.maps for result in outcome.results)]
    results = [replace(result, maps={name: result.maps[name] for name in common}) for result in outcome.results]
    return replace(outcome, explainer=replace(outcome.explainer, methods=common), results=results)
