"""Stages: results of finished stages on disk, so that an interrupted audit resumes."""

from __future__ import annotations

import hashlib
import io
import json
import pickle
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from agop import interventions
from agop.auditing.grouping import Rule
from agop.auditing.intervals import Mean
from agop.auditing.pool import Pool
from agop.auditing.proposals import PatchProposal, PropertyProposal, RegionProposal
from agop.auditing.regions import Box
from agop.auditing.trial import Screening, Trial
from agop.errors import FileError
from agop.model.fingerprint import fingerprint
from agop.statistic.agop import AGOP
from agop.system.files import write_atomically
from agop.system.versions import package_version

T = TypeVar("T")
FOLDER = ".stages"
_SUFFIX = ".stage"
# All that a stage may hold besides tensors and numbers. Other classes in a file aren't loaded.
_CLASSES = (Trial, Screening, Rule, Mean, Box, RegionProposal, PatchProposal, PropertyProposal)


@dataclass(frozen=True)
class Stages:
    """Results by name in a folder. Without a folder, nothing is kept."""

    folder: Path | None = None

    @classmethod
    def of(cls, folder: Path | None, model: nn.Module, pool: Pool, prior: AGOP | None, **options: Any) -> Stages:
        """Stages in a folder named after everything that their results depend on."""
        if folder is None:
            return cls()
        versions = {"agop": package_version(), "torch": torch.__version__}
        known = {"model": fingerprint(model), "options": options, "versions": versions}
        tensors = [pool.images, pool.labels]
        if prior is not None:
            known["prior"] = prior.provenance.to_dict()
            tensors.append(prior.diagonal)
        digest = hashlib.sha256(json.dumps(known, sort_keys=True).encode())
        for tensor in tensors:
            digest.update(tensor.contiguous().numpy().data)
        return cls(folder / digest.hexdigest()[:16])

    def get(self, name: str, compute: Callable[[], T]) -> T:
        """The stored result, or the computed one, which is then stored."""
        value: T = self._get(name, compute, _save, _load)
        return value

    def prior(self, name: str, compute: Callable[[], AGOP]) -> AGOP:
        """The stored AGOP, or the computed one, which is then stored."""
        return self._get(name, compute, AGOP.save, AGOP.load)

    def _get(
        self, name: str, compute: Callable[[], T], save: Callable[[T, Path], None], load: Callable[[Path], T]
    ) -> T:
        if self.folder is None:
            return compute()
        path = self.folder / f"{name}{_SUFFIX}"
        if path.exists():
            with suppress(FileError):  # a damaged file: the stage is computed again
                return load(path)
        value = compute()
        save(value, path)
        return value


def kept_stages(folder: Path) -> str:
    """The stored stages of all models in words, "" if there are none."""
    counts = Counter(path.stem.split("-")[0] for path in folder.glob(f"*/*{_SUFFIX}"))
    return ", ".join(f"{counts[name]} × {name}" for name in sorted(counts))


def remove_stages(folder: Path | None) -> None:
    """Remove the stored stages, after the audit has ended."""
    if folder is None:
        return
    for path in folder.glob(f"*/*{_SUFFIX}"):
        path.unlink()
    for part in (*folder.glob("*/"), folder):
        with suppress(OSError):  # it has other files, or doesn't exist
            part.rmdir()


def _save(value: Any, path: Path) -> None:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    write_atomically(path, buffer.getvalue())


def _load(path: Path) -> Any:
    classes: list[Any] = [*_CLASSES, *(interventions.get(name) for name in interventions.names())]
    try:
        with torch.serialization.safe_globals(classes):
            return torch.load(path, weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, pickle.UnpicklingError) as error:
        raise FileError(f"could not read {path}: {error}") from error
