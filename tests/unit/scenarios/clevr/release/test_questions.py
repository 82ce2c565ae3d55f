"""Official questions about materials, and which of them become samples."""

import pytest

from agop.errors import InputError
from agop.scenarios.clevr.release.questions import OfficialSample, asks_for_material, official_sample
from agop.scenarios.clevr.render.objects import MATERIALS
from tests.clevr import official_object, official_question, official_scene


def scene(metal, rubber):
    """A scene of that many metal and then rubber objects, no two of them alike."""
    colours = ("gray", "red", "blue", "green", "brown", "purple", "cyan", "yellow")
    looks = [f"{size} {colour} cube" for size in ("small", "large") for colour in colours]
    materials = ["metal"] * metal + ["rubber"] * rubber
    return official_scene(7, [official_object(*pair) for pair in zip(looks, materials, strict=False)])


def sample(record, queried=0):
    return official_sample(official_question(queried, record, queried), record)


@pytest.mark.parametrize(("metal", "rubber", "kept"), [(3, 2, True), (6, 4, True), (5, 4, False), (4, 3, False)])
def test_sixty_percent_is_enough_and_less_is_not(metal, rubber, kept):
    assert (sample(scene(metal, rubber)) is not None) == kept


def test_sample_holds_the_queried_object_its_label_and_the_dominant_objects():
    record = scene(1, 4)
    assert sample(record, 2) == OfficialSample(
        queried=2, label=1, dominant=(1, 2, 3, 4), question_index=2, image_filename="CLEVR_unique_000007.png"
    )
    assert sample(record, 0) is None  # the only metal object
    assert MATERIALS == ("metal", "rubber")


def test_older_programs_have_function_instead_of_type():
    record = scene(3, 1)
    question = official_question(1, record, 1)
    expected = official_sample(question, record)
    for node in question["program"]:
        node["function"] = node.pop("type")
    assert asks_for_material(question)
    assert official_sample(question, record) == expected is not None


def test_queried_object_is_the_input_of_the_last_node():
    record = scene(4, 0)
    question = official_question(0, record, 2)
    # A reference object's unique node in between, as in complex questions.
    question["program"].insert(5, {"type": "unique", "inputs": [0], "value_inputs": [], "_output": 0})
    assert official_sample(question, record).queried == 2


def test_only_questions_that_end_with_query_material_ask_for_it():
    question = official_question(0, scene(3, 0))
    assert asks_for_material(question)
    question["program"][-1]["type"] = "query_color"
    assert not asks_for_material(question)
    assert not asks_for_material(question | {"program": []})


@pytest.mark.parametrize("change", [
    lambda q: q.update(answer="wood"), lambda q: q.update(answer="rubber"), lambda q: q.pop("question_index"),
    lambda q: q["program"][-2].update(_output=99), lambda q: q["program"][-2].update(_output=-1),
    lambda q: q["program"][-2].update(_output=[0, 1]), lambda q: q["program"][-2].update(type="filter_size"),
    lambda q: q["program"][-1].update(inputs=[]),
])  # fmt: skip
def test_malformed_questions_raise(change):
    record = scene(3, 0)
    question = official_question(0, record)
    change(question)
    with pytest.raises(InputError, match="not in the official format"):
        official_sample(question, record)
