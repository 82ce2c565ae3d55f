"""Questions about an object's material, and the paper's task: which material dominates the scene."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from agop.errors import InputError
from agop.scenarios.clevr.render.things import MATERIALS

_DESCRIBED_BY = ("size", "color", "shape")


@dataclass(frozen=True)
class Sample:
    """One question of the task: the picture's label is the queried object's material, 0 metal or 1 rubber."""

    question_index: int
    image_filename: str
    image_index: int
    label: int
    queried: int
    dominant: tuple[int, ...]


def questions_about(scene: dict[str, Any], first_index: int = 0) -> list[dict[str, Any]]:
    """A question about the material of each object that no other equals in size, colour and shape.

    They have the form of the official simple questions; if an object is unique under fewer words, it is under these.
    """
    alike = [[_same(one, other) for other in scene["objects"]] for one in scene["objects"]]
    unique = [index for index, same in enumerate(alike) if sum(same) == 1]
    return [_question(scene, queried, first_index + place) for place, queried in enumerate(unique)]


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(one[key] == other[key] for key in _DESCRIBED_BY)


def _question(scene: dict[str, Any], queried: int, index: int) -> dict[str, Any]:
    target = scene["objects"][queried]
    return {
        "split": scene["split"],
        "image_filename": scene["image_filename"],
        "image_index": scene["image_index"],
        "image": PurePath(scene["image_filename"]).stem,
        "question_index": index,
        "question": f"What is the {' '.join(target[key] for key in _DESCRIBED_BY)} made of?",
        "program": _program(scene["objects"], queried),
        "answer": target["material"],
        # The benchmark's template for simple questions, of which the second asks for the material.
        "template_filename": "unique_query.json",
        "question_family_index": 1,
    }


def _program(objects: list[dict[str, Any]], queried: int) -> list[dict[str, Any]]:
    """Nodes scene → filter_size → filter_color → filter_shape → unique → query_material, each with its output."""
    target, left = objects[queried], list(range(len(objects)))
    nodes: list[tuple[str, list[str], Any]] = [("scene", [], left)]
    for key in _DESCRIBED_BY:
        left = [index for index in left if objects[index][key] == target[key]]
        nodes.append((f"filter_{key}", [target[key]], left))
    nodes += [("unique", [], queried), ("query_material", [], target["material"])]
    return [
        {"type": kind, "inputs": [place - 1] if place else [], "value_inputs": values, "_output": output}
        for place, (kind, values, output) in enumerate(nodes)
    ]


def asks_for_material(question: dict[str, Any]) -> bool:
    """Whether the program ends with query_material."""
    program = question.get("program")
    return isinstance(program, list) and bool(program) and _kind(program[-1]) == "query_material"


def dominance(question: dict[str, Any], scene: dict[str, Any]) -> Sample | None:
    """The paper's sample of a question, or None if it has none.

    A question counts if it asks for a material that at least 60 % of the scene's objects have.
    """
    if not asks_for_material(question):
        return None
    try:
        queried = _queried(question["program"])
        materials = [one["material"] for one in scene["objects"]]
        label = MATERIALS.index(question["answer"])
        if materials[queried] != question["answer"]:
            raise ValueError(f"object {queried} is of {materials[queried]}, the answer is {question['answer']}")
        dominant = tuple(index for index, material in enumerate(materials) if material == question["answer"])
        if 5 * len(dominant) < 3 * len(materials):
            return None
        filename, index = str(scene["image_filename"]), int(question["image_index"])
        return Sample(int(question["question_index"]), filename, index, label, queried, dominant)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        told = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        which = question.get("question_index")
        raise InputError(f"question {which} or its scene is not in the official form ({told}): leave it out") from error


def _queried(program: list[dict[str, Any]]) -> int:
    """The object that goes into the last node, which a `unique` node gives."""
    node = program[program[-1]["inputs"][0]]
    output = node["_output"]
    if isinstance(output, list) and len(output) == 1:
        output = output[0]
    if not str(_kind(node)).endswith("unique") or type(output) is not int or output < 0:
        raise ValueError(f"{_kind(node)} gives {output!r}, not one object, to query_material")
    return output


def _kind(node: dict[str, Any]) -> Any:
    """What a program's node does; older releases of CLEVR call it its function."""
    return node.get("type", node.get("function"))
