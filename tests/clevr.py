"""A miniature CLEVR-XAI release, written by hand in the official form."""

import json

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 48, 32
COLOURS = [(201, 17, 90), (12, 240, 33), (77, 77, 250), (250, 200, 10), (0, 130, 140)]
RARE = "fewer than 60 % of its scene's objects are of the queried material"
# Scene → its objects' materials; question index → its scene, with gaps, as in the release.
SCENES = {0: "mmmrr", 1: "rrrrm", 2: "mmrr", 3: "mmm", 4: "rrr"}
QUESTIONS = {2: 0, 5: 1, 6: 2, 9: 3, 17: 4}


def light(value):
    """One sRGB value in linear light."""
    share = value / 255
    return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4


def name(index):
    return f"CLEVR_unique_{index:06d}.png"


def object_masks(count):
    masks = np.zeros((count, HEIGHT, WIDTH), bool)
    for index in range(count):
        masks[index, 4 + index : 11 + 2 * index, 2 + 9 * index : 9 + 9 * index] = True
    return masks


def official_scene(index, materials):
    looks = [{"shape": "cube", "size": "small", "color": color} for color in ("red", "blue", "green", "gray", "cyan")]
    objects = [
        look | {"material": {"m": "metal", "r": "rubber"}[material], "mask_color": [light(value) for value in colour],
                "3d_coords": [0, 0, 0.35], "rotation": 0.0, "pixel_coords": [0, 0, 10]}
        for look, material, colour in zip(looks, materials, COLOURS, strict=False)
    ]  # fmt: skip
    return {
        "split": "unique", "image_index": index, "image_filename": name(index), "mask_filename": name(index),
        "objects": objects, "directions": {}, "relationships": {},
    }  # fmt: skip


def official_question(index, scene):
    """About the material of the scene's first object."""
    target = scene["objects"][0]
    outputs = [list(range(len(scene["objects"]))), [0], 0, target["material"]]
    kinds = ["scene", "filter_color", "unique", "query_material"]
    program = [
        {"type": kind, "inputs": [place - 1] if place else [], "value_inputs": ["red"] * (place == 1), "_output": out}
        for place, (kind, out) in enumerate(zip(kinds, outputs, strict=True))
    ]
    return {
        "split": "unique", "image_filename": scene["image_filename"], "image_index": scene["image_index"],
        "image": scene["image_filename"][:-4], "question": "What material is the red cube?", "program": program,
        "answer": target["material"], "template_filename": "unique_query.json", "question_family_index": 1,
        "question_index": index,
    }  # fmt: skip


def pillow_at_128(mask):
    """What the benchmark's own code does to a ground truth."""
    return np.array(Image.fromarray(mask.astype(np.float64)).resize((128, 128), resample=Image.BILINEAR)) > 0


def write_official(folder, materials=SCENES, asked=QUESTIONS):
    """By default two scenes that metal dominates, two that rubber does, and one that is half and half."""
    for part in ("images", "masks", "ground_truth_simple_questions_single_object"):
        (folder / part).mkdir(parents=True)
    (folder / "ground_truth_simple_questions_all_objects").mkdir()
    scenes = [official_scene(index, made_of) for index, made_of in materials.items()]
    random = np.random.default_rng(0)
    for scene in scenes:
        pixels = random.integers(0, 256, (HEIGHT, WIDTH, 4), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / scene["image_filename"])
        mask = np.full((HEIGHT, WIDTH, 3), 64, np.uint8)
        for area, colour in zip(object_masks(len(scene["objects"])), COLOURS, strict=False):
            mask[area] = colour
        Image.fromarray(mask).save(folder / "masks" / scene["mask_filename"])
    for index, scene in asked.items():
        masks = object_masks(len(materials[scene]))
        for kind, truth in (("single_object", masks[0]), ("all_objects", masks.any(0))):
            np.save(folder / f"ground_truth_simple_questions_{kind}/{index}.npy", pillow_at_128(truth))
            (folder / f"ground_truth_simple_questions_{kind}/stats.json").write_text("{")
    other = official_question(3, scenes[3])
    other["program"][-1] |= {"type": "query_color", "_output": "red"}
    questions = [official_question(index, scenes[scene]) for index, scene in asked.items()]
    write(folder, "scenes", scenes)
    write(folder, "simple_questions", [*questions, other | {"answer": "red"}])


def write(folder, what, records):
    key = what.split("_")[-1]
    (folder / f"CLEVR-XAI_{what}.json").write_text(json.dumps({"info": {"split": "unique"}, key: records}))


def read(folder, what):
    return json.loads((folder / f"CLEVR-XAI_{what}.json").read_text())[what.split("_")[-1]]


def truth_file(folder, kind, index):
    return folder / f"ground_truth_simple_questions_{kind}" / f"{index}.npy"
