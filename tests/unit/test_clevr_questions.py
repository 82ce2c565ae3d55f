"""Questions about materials, and which of them the paper's task keeps."""

import re

import pytest

from agop.errors import InputError
from agop.scenarios.clevr.release.questions import MATERIALS, Sample, dominance, questions_about

OFFICIAL = {
    "split", "image_filename", "image_index", "image", "question", "program", "answer", "template_filename",
    "question_family_index", "question_index",
}  # fmt: skip


def thing(look, material="metal"):
    size, color, shape = look.split()
    return {"shape": shape, "size": size, "material": material, "color": color, "3d_coords": [0, 0, 0.7]}


def scene(*objects, index=7):
    name = f"CLEVR_unique_{index:06d}.png"
    return {"split": "unique", "image_index": index, "image_filename": name, "objects": list(objects)}


def room(metals, rubbers):
    """A scene of that many objects of each material, metal ones first, no two of them alike."""
    colours = ("gray", "red", "blue", "green", "brown", "purple", "cyan", "yellow")
    looks = [f"{size} {colour} cube" for size in ("small", "large") for colour in colours]
    materials = ["metal"] * metals + ["rubber"] * rubbers
    return scene(*(thing(look, material) for look, material in zip(looks, materials, strict=False)))


def asked(scene, queried):
    return next(q for q in questions_about(scene) if q["program"][-2]["_output"] == queried)


def run(program, objects):
    """The answer of a program, computed anew from the scene."""
    results = []
    for node in program:
        kind, given = node["type"], [results[i] for i in node["inputs"]]
        if kind == "scene":
            result = list(range(len(objects)))
        elif kind.startswith("filter_"):
            result = [i for i in given[0] if objects[i][kind.removeprefix("filter_")] == node["value_inputs"][0]]
        elif kind == "unique":
            (result,) = given[0]
        else:
            result = objects[given[0]][kind.removeprefix("query_")]
        assert node["_output"] == result
        results.append(result)
    return results[-1]


def test_every_program_gives_its_answer_when_it_is_run():
    looks = ["small red cube", "large red cube", "small red sphere", "small blue cube", "large gray cylinder"]
    for materials in (["metal"] * 5, ["metal", "rubber"] * 2 + ["metal"]):
        objects = [thing(look, material) for look, material in zip(looks, materials, strict=True)]
        questions = questions_about(scene(*objects))
        assert [run(q["program"], objects) for q in questions] == [q["answer"] for q in questions] == materials


def test_questions_have_the_official_form():
    questions = questions_about(scene(thing("small red cube"), thing("large red cube", "rubber")), first_index=40)
    assert [set(question) for question in questions] == [OFFICIAL] * 2
    assert [question["question_index"] for question in questions] == [40, 41]
    first = questions[0]
    assert first["question"] == "What is the small red cube made of?"
    assert (first["image"], first["image_index"]) == ("CLEVR_unique_000007", 7)
    kinds = [node["type"] for node in first["program"]]
    assert kinds == ["scene", "filter_size", "filter_color", "filter_shape", "unique", "query_material"]
    assert all(set(node) == {"type", "inputs", "value_inputs", "_output"} for node in first["program"])


def test_only_what_is_unique_without_its_material_is_asked_about():
    twins = (thing("small red cube", "metal"), thing("small red cube", "rubber"))
    questions = questions_about(scene(*twins, thing("small blue cube")))
    assert [question["question"] for question in questions] == ["What is the small blue cube made of?"]
    assert not any(re.search("metal|rubber", question["question"]) for question in questions)
    assert questions_about(scene(*twins)) == []


@pytest.mark.parametrize(("metals", "rubbers", "kept"), [(3, 2, True), (6, 4, True), (5, 4, False), (4, 3, False)])
def test_sixty_percent_is_enough_and_less_is_not(metals, rubbers, kept):
    found = dominance(asked(room(metals, rubbers), 0), room(metals, rubbers))
    assert (found is not None) == kept


def test_59_of_100_is_not_enough_and_60_is():
    for metals, kept in ((59, False), (60, True)):
        whole = room(3, 2)
        question = asked(whole, 0)
        whole["objects"] = [thing("small red cube", "metal")] * metals + [thing("small red cube", "rubber")] * (
            100 - metals
        )
        assert (dominance(question, whole) is not None) == kept


def test_the_sample_says_what_was_asked_and_what_dominates():
    whole = room(1, 4)
    assert dominance(asked(whole, 2), whole) == Sample(
        question_index=2, image_filename="CLEVR_unique_000007.png", image_index=7, label=1, queried=2,
        dominant=(1, 2, 3, 4),
    )  # fmt: skip
    assert dominance(asked(whole, 0), whole) is None  # the only metal one
    assert MATERIALS == ("metal", "rubber")


def test_older_programs_say_function_instead_of_type():
    whole = room(3, 1)
    question = asked(whole, 1)
    expected = dominance(question, whole)
    for node in question["program"]:
        node["function"] = node.pop("type")
    assert dominance(question, whole) == expected is not None


def test_the_queried_object_is_the_one_that_the_last_node_takes():
    whole = room(4, 0)
    question = asked(whole, 2)
    # a reference object's unique node stands between, as in complex questions
    question["program"].insert(5, {"type": "unique", "inputs": [0], "value_inputs": [], "_output": 0})
    assert dominance(question, whole).queried == 2


def test_other_questions_have_no_sample():
    question = asked(room(3, 0), 0)
    question["program"][-1]["type"] = "query_color"
    assert dominance(question, room(3, 0)) is None
    assert dominance(question | {"program": []}, room(3, 0)) is None


@pytest.mark.parametrize("change", [
    lambda q: q.update(answer="wood"), lambda q: q.update(answer="rubber"), lambda q: q.pop("question_index"),
    lambda q: q["program"][-2].update(_output=99), lambda q: q["program"][-2].update(_output=-1),
    lambda q: q["program"][-2].update(_output=[0, 1]), lambda q: q["program"][-2].update(type="filter_size"),
    lambda q: q["program"][-1].update(inputs=[]),
])  # fmt: skip
def test_what_is_not_in_the_official_form_is_an_error(change):
    question = asked(room(3, 0), 0)
    change(question)
    with pytest.raises(InputError, match="not in the official form"):
        dominance(question, room(3, 0))
