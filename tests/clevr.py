"""A small CLEVR-XAI release in the layout of its published description, and a filled cache of drawn scenes."""

import json

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 48, 32
# Mask colours (sRGB), one per object of a scene.
COLOURS = [(201, 17, 90), (12, 240, 33), (77, 77, 250), (250, 200, 10), (0, 130, 140)]
BACKGROUND = (64, 64, 64)
LOOKS = [f"small {color} cube" for color in ("red", "blue", "green", "gray", "cyan")]
# Materials (metal or rubber) of each scene's objects: metal dominates two scenes, rubber two, neither the other.
SCENES = {0: "mmmrr", 1: "rrrrm", 2: "mmrr", 3: "mmm", 4: "rrr"}
# Scene of each question. The indices have gaps, as in the release.
QUESTIONS = {2: 0, 5: 1, 6: 2, 9: 3, 17: 4}
RARE = "fewer than 60 % of its scene's objects are of the queried material"


def name(index):
    return f"CLEVR_unique_{index:06d}.png"


def linear_light(value):
    """One sRGB value (0 to 255) as linear light (0 to 1)."""
    share = value / 255
    return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4


def official_object(look, material="metal", colour=(255, 255, 255)):
    size, color, shape = look.split()
    return {
        "shape": shape, "size": size, "material": material, "color": color, "3d_coords": [0, 0, 0.35],
        "rotation": 0.0, "pixel_coords": [0, 0, 10], "mask_color": [linear_light(value) for value in colour],
    }  # fmt: skip


def official_scene(index, objects):
    return {
        "split": "unique", "image_index": index, "image_filename": name(index), "mask_filename": name(index),
        "objects": objects, "directions": {}, "relationships": {},
    }  # fmt: skip


def official_question(index, scene, queried=0):
    """A question about the material of one object, whose look must be unique in the scene."""
    objects, words = scene["objects"], ("size", "color", "shape")
    target, left = objects[queried], list(range(len(objects)))
    nodes = [("scene", [], left)]
    for word in words:
        left = [place for place in left if objects[place][word] == target[word]]
        nodes.append((f"filter_{word}", [target[word]], left))
    nodes += [("unique", [], queried), ("query_material", [], target["material"])]
    program = [
        {"type": kind, "inputs": [place - 1] if place else [], "value_inputs": values, "_output": output}
        for place, (kind, values, output) in enumerate(nodes)
    ]
    return {
        "split": "unique", "image_filename": scene["image_filename"], "image_index": scene["image_index"],
        "image": scene["image_filename"][:-4], "question_index": index, "program": program,
        "question": f"What is the {' '.join(target[word] for word in words)} made of?", "answer": target["material"],
        "template_filename": "unique_query.json", "question_family_index": 1,
    }  # fmt: skip


def write_official(folder, materials=SCENES, asked=QUESTIONS):
    """Write scenes of random pixels, questions about the material of their first object, and one about a colour."""
    for kind in ("single_object", "all_objects"):
        truth_file(folder, kind, 0).parent.mkdir(parents=True)
        truth_file(folder, kind, 0).with_name("stats.json").write_text("{")
    (folder / "images").mkdir()
    (folder / "masks").mkdir()
    random, names = np.random.default_rng(0), {"m": "metal", "r": "rubber"}
    scenes = []
    for index, letters in materials.items():
        objects = [official_object(*look) for look in zip(LOOKS, map(names.get, letters), COLOURS, strict=False)]
        scenes.append(official_scene(index, objects))
        pixels = random.integers(0, 256, (HEIGHT, WIDTH, 4), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / name(index))
        mask_image = np.full((HEIGHT, WIDTH, 3), BACKGROUND, np.uint8)
        for mask, colour in zip(object_masks(len(objects)), COLOURS, strict=False):
            mask_image[mask] = colour
        Image.fromarray(mask_image).save(folder / "masks" / name(index))
    write(folder, "scenes", scenes)
    questions = [official_question(index, scenes[scene]) for index, scene in asked.items()]
    for index, scene in asked.items():
        masks = object_masks(len(scenes[scene]["objects"]))
        for kind, mask in (("single_object", masks[0]), ("all_objects", masks.any(axis=0))):
            np.save(truth_file(folder, kind, index), pillow_at_128(mask))
    about_colour = official_question(3, scenes[3]) | {"answer": "red"}
    about_colour["program"][-1] |= {"type": "query_color", "_output": "red"}
    write(folder, "simple_questions", [*questions, about_colour])


def object_masks(count):
    """Rectangles (count,H,W) that don't overlap."""
    masks = np.zeros((count, HEIGHT, WIDTH), bool)
    for index in range(count):
        masks[index, 4 + index : 11 + 2 * index, 2 + 9 * index : 9 + 9 * index] = True
    return masks


def pillow_at_128(mask):
    """The ground truth (128,128) as the benchmark's own code makes it from a mask (H,W)."""
    return np.array(Image.fromarray(mask.astype(np.float64)).resize((128, 128), resample=Image.BILINEAR)) > 0


def truth_file(folder, kind, index):
    return folder / f"ground_truth_simple_questions_{kind}" / f"{index}.npy"


def write(folder, what, records):
    key = what.split("_")[-1]
    (folder / f"CLEVR-XAI_{what}.json").write_text(json.dumps({"info": {"split": "unique"}, key: records}))


def read(folder, what):
    return json.loads((folder / f"CLEVR-XAI_{what}.json").read_text())[what.split("_")[-1]]


def fill_cache(cache, samples, size=64, chunk=20):
    """Fill the cache of drawn scenes with random pixels and square masks, so that a run draws nothing."""
    random, folder = np.random.default_rng(0), cache / "clevr" / f"v1-seed0-{size}"
    folder.mkdir(parents=True)
    for number in range(-(-samples // chunk)):
        masks = np.zeros((chunk, 3, size, size), bool)
        for kind, side in enumerate((30, 10, 20)):  # all objects, the single one, the dominant ones
            masks[:, kind, 5 : 5 + side, 5 : 5 + side] = True
        np.savez(
            folder / f"scenes-{number:05d}.npz",
            pictures=random.integers(0, 256, (chunk, size, size, 3), dtype=np.uint8),
            labels=random.integers(0, 2, chunk),
            scenes=number * chunk + np.arange(chunk),
            masks=np.packbits(masks.reshape(*masks.shape[:2], -1), axis=-1),
        )
