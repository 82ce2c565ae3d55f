"""The download: the folder that `agop explain` writes, as a .zip file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

from agop.app.session import Outcome
from agop.pictures.colouring import DEFAULT_COLOURING, Colouring
from agop.pictures.explanation_folder import ExplanationFolder
from agop.pictures.explanation_outputs import ExplanationOutputs


def write_zip(outcome: Outcome, about: dict[str, Any], parent: Path, colouring: Colouring = DEFAULT_COLOURING) -> Path:
    """Write explanations.zip to a new folder below `parent`, and return its path."""
    path = Path(mkdtemp(dir=parent)) / "explanations.zip"
    with TemporaryDirectory(dir=parent) as name, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        outputs = ExplanationOutputs(Path(name), [result.path for result in outcome.results])
        folder = ExplanationFolder(outputs, outcome.explainer, about, colouring=colouring)
        for result in outcome.results:
            folder.add(result)
        folder.finish(outcome.skipped)
        for file in sorted(path for path in Path(name).rglob("*") if path.is_file()):
            archive.write(file, f"explanations/{file.relative_to(name).as_posix()}")
    return path
