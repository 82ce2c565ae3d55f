"""Official questions about an object's material, as samples of the paper's task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agop.errors import InputError
from agop.scenarios.clevr.task import Sample, sample_about


@dataclass(frozen=True)
class OfficialSample(Sample):
    """A sample of the release, with the number of its question and the name of its image."""

    question_index: int
    image_filename: str


def asks_for_material(question: dict[str, Any]) -> bool:
    """Whether the question's program ends with query_material."""
    program = question.get("program")
    return isinstance(program, list) and bool(program) and _kind(program[-1]) == "query_material"


def official_sample(question: dict[str, Any], scene: dict[str, Any]) -> OfficialSample | None:
    """The sample of a material question, or None if fewer than 60 % of the scene's objects share that material."""
    try:
        queried = _queried(question["program"])
        materials = [record["material"] for record in scene["objects"]]
        if materials[queried] != question["answer"]:
            raise ValueError(f"object {queried} is {materials[queried]}, the answer is {question['answer']}")
        sample = sample_about(queried, materials)
        index, filename = int(question["question_index"]), str(scene["image_filename"])
    except (KeyError, IndexError, TypeError, ValueError) as error:
        reason = f"lacks {error}" if isinstance(error, KeyError) else str(error)
        number = question.get("question_index")
        raise InputError(f"question {number} or its scene is not in the official format ({reason}): skip it") from error
    return None if sample is None else OfficialSample(**vars(sample), question_index=index, image_filename=filename)


def _queried(program: list[dict[str, Any]]) -> int:
    """Index of the object that a `unique` node passes to the last node."""
    node = program[program[-1]["inputs"][0]]
    output = node["_output"]
    if isinstance(output, list) and len(output) == 1:
        output = output[0]
    if not str(_kind(node)).endswith("unique") or type(output) is not int or output < 0:
        raise ValueError(f"{_kind(node)} passes {output!r}, not one object, to query_material")
    return output


def _kind(node: dict[str, Any]) -> Any:
    """The type of a program's node. Older releases of CLEVR call it `function`."""
    return node.get("type", node.get("function"))
