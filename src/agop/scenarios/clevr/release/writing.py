"""Scenes drawn into the official layout, in parallel; what is there and whole is not drawn again."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from agop.errors import FileError, InputError
from agop.scenarios.clevr.release.masks import Mask, as_released, painted
from agop.scenarios.clevr.release.questions import questions_about
from agop.system.files import read_bytes, write_atomically
from agop.system.processes import map_in_processes
from agop.system.progress import track

Drawn = tuple[dict[str, Any], NDArray[np.uint8], Mask]
Draw = Callable[[int], Drawn]
_ABOUT = "drawn.json"


def write_release(folder: Path, draw: Draw, indices: Sequence[int], about: dict[str, Any], jobs: int = 1) -> None:
    """Draw the scenes of these indices that are not there yet, then write the JSON files over all of them.

    `draw` gives a scene in official form, its picture (H,W,3) and its objects' masks (objects,H,W). `about` says what
    makes these scenes these: a folder that was begun with another is refused. With jobs above 1, `draw` is pickled.
    """
    if jobs < 1:
        raise InputError(f"jobs is {jobs}: give 1 or more")
    _open(folder, about)
    missing = [index for index in indices if not _is_whole(folder, index)]
    written = map_in_processes(partial(_write, folder, draw), missing, jobs)
    for _ in track(missing, "drawing scenes"):
        next(written)
    scenes = [json.loads(read_bytes(_scene_file(folder, index))) for index in indices]
    asked = [question for scene in scenes if (question := _asked(scene)) is not None]
    info = {"split": "unique", "version": "1.0", "drawn": about}
    write_atomically(folder / "CLEVR-XAI_simple_questions.json", _json({"info": info, "questions": asked}))
    write_atomically(folder / "CLEVR-XAI_scenes.json", _json({"info": info, "scenes": scenes}))


def _open(folder: Path, about: dict[str, Any]) -> None:
    """A new or empty folder, or one that was begun with the same."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file: name a folder")
    begun = folder / _ABOUT
    if not begun.exists():
        if folder.exists() and any(folder.iterdir()):
            raise InputError(f"{folder} is not empty and holds no drawn scenes: name another folder")
        write_atomically(begun, _json(about))
    try:
        there = json.loads(read_bytes(begun))
    except ValueError as error:
        raise FileError(f"{begun} is not whole JSON ({error}): name another folder, or delete this one") from error
    if there != json.loads(_json(about)):
        raise InputError(f"{folder} holds scenes drawn with {there}, not {about}: name another folder, or draw those")


def _write(folder: Path, draw: Draw, index: int) -> None:
    """One scene's files; its scene comes last, so that with it the others are there."""
    scene, picture, masks = draw(index)
    if masks.shape != (len(scene["objects"]), *picture.shape[:2]):
        raise InputError(f"scene {index} has masks of shape {masks.shape} for a picture of shape {picture.shape}")
    name = f"{_name(index)}.png"
    mask_picture, colours = painted(masks)
    objects = [one | {"mask_color": colour} for one, colour in zip(scene["objects"], colours, strict=True)]
    names = {"split": "unique", "image_index": index, "image_filename": name, "mask_filename": name}
    scene = scene | names | {"objects": objects}
    write_atomically(folder / "images" / name, _png(picture))
    write_atomically(folder / "masks" / name, _png(mask_picture))
    question = _asked(scene)
    if question is not None:
        queried = question["program"][-2]["_output"]
        for kind, mask in (("single_object", masks[queried]), ("all_objects", np.logical_or.reduce(masks))):
            write_atomically(_truth_file(folder, kind, index), _npy(as_released(mask)))
    write_atomically(_scene_file(folder, index), _json(scene))


def _asked(scene: dict[str, Any]) -> dict[str, Any] | None:
    """One question a scene, as the release has, and under its scene's number; about which object is left to chance."""
    questions = questions_about(scene)
    if not questions:
        return None
    chosen = np.random.default_rng(scene["image_index"]).integers(len(questions))
    return questions[chosen] | {"question_index": scene["image_index"]}


def _is_whole(folder: Path, index: int) -> bool:
    """Whether all files of a scene are there and can be read."""
    try:
        scene = json.loads(_scene_file(folder, index).read_bytes())
        for kind in ("images", "masks"):
            with Image.open(folder / kind / f"{_name(index)}.png") as picture:
                picture.verify()
        truths = [_truth_file(folder, kind, index) for kind in ("single_object", "all_objects")]
        return _asked(scene) is None or all(truth.is_file() for truth in truths)
    except (OSError, ValueError, KeyError, SyntaxError):
        return False


def _name(index: int) -> str:
    return f"CLEVR_unique_{index:06d}"


def _scene_file(folder: Path, index: int) -> Path:
    return folder / "scenes" / f"{_name(index)}.json"


def _truth_file(folder: Path, kind: str, index: int) -> Path:
    return folder / f"ground_truth_simple_questions_{kind}" / f"{index}.npy"


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


def _png(pixels: NDArray[np.uint8]) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format="PNG")
    return content.getvalue()


def _npy(mask: Mask) -> bytes:
    content = io.BytesIO()
    np.save(content, mask, allow_pickle=False)
    return content.getvalue()
