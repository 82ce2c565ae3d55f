"""agop bench cutouts: objects pasted on photographs, explained by a pretrained network; the truth is their outline."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from agop import methods as all_methods
from agop import metrics as all_metrics
from agop.bench.scenarios.base import normalised, photographs
from agop.collect.fit import fit
from agop.errors import FileError, InputError
from agop.evaluation.evaluate import entries_that_run
from agop.evaluation.scoring import MethodScores, all_logits, score
from agop.evaluation.table import Evaluation, check_place, gallery
from agop.images.overlays import pixels
from agop.images.preprocessing import open_image
from agop.io import write_atomically
from agop.methods.base import takes_layer
from agop.model.load import load_model
from agop.processes import track
from agop.report.folder import is_control, spread, write_json
from agop.stats import Ratio, estimate
from agop.tables import Table

# The paper's methods, with which `agop` is compared.
PAPER = ("vanilla", "integrated-gradients", "smoothgrad", "gradcam", "gradcam++", "agop-local", "agop-weighted",
         "agop-global")  # fmt: skip
_OURS = ("agop", "agop-layer", "layercam", "normgrad", "random", "sobel")
METRICS = ("average_precision", "pointing_game", "iou", "energy")
ONE, TWO, BOTH, SHARE = "one object", "two objects", "both objects", "share"
# Longest side of an object, as a share of the image's side: one object, and one of two.
_SIDES, _SIDES_OF_TWO = (0.3, 0.7), (0.3, 0.5)
# The classes of two objects are among that many most probable ones.
_TOP = 3
_MOST_PHOTOS, _BATCH, _ROUNDS, _ROUNDS_OF_TWO = 1000, 32, 20, 100


@dataclass(frozen=True)
class CutoutsSpec:
    """What a run of cut-outs computes: images per object, pairs of objects, and the methods."""

    objects: Path
    photos: Path
    network: str
    size: int = 224
    per_object: int = 2
    pairs: int = 60
    seed: int = 0
    methods: tuple[str, ...] = (*PAPER, *_OURS)


@dataclass(frozen=True)
class Cutout:
    """An object (h,w,4), without its empty border, and the model's classes that name it."""

    name: str
    picture: Image.Image
    classes: frozenset[int]


@dataclass(frozen=True)
class Scene:
    """Pasted images: bytes (S,S,3), a mask (S,S) of each object, and the class that the network gives to each."""

    image: NDArray[np.uint8]
    masks: list[NDArray[np.bool_]]
    objects: list[Cutout]
    classes: list[int]


def read_objects(path: Path) -> list[Cutout]:
    """The objects of a folder's objects.csv, or of a CSV file: lines file,class[,class…] with paths relative to it."""
    path = path / "objects.csv" if path.is_dir() else path
    if not path.is_file():
        raise FileError(f"{path} doesn't exist: write lines file,class[,class…], with the model's class numbers")
    rows = [row for row in csv.reader(path.read_text().splitlines()) if row and row[1:] != ["class"]]
    objects = []
    for name, *classes in rows:
        with open_image(path.parent / name) as file:
            picture = file.convert("RGBA")
        box = picture.getchannel("A").getbbox()
        try:
            numbers = frozenset(map(int, classes))
        except ValueError as error:
            raise InputError(f"{path}: {name} has classes {', '.join(classes)}: give class numbers") from error
        if box is None or picture.getchannel("A").getextrema()[0] == 255 or not numbers:
            raise InputError(f"{path}: {name} needs a class and a transparent background: remove this line")
        objects.append(Cutout(name, picture.crop(box), numbers))
    if len({cutout.classes for cutout in objects}) < 2:
        raise InputError(f"{path} has fewer than 2 objects of different classes: add lines file,class[,class…]")
    return objects


def _scene(
    photos: NDArray[np.uint8], objects: Sequence[Cutout], sides: tuple[float, float], random: np.random.Generator
) -> Scene:
    """The objects at random places and sizes on a random photograph."""
    image = Image.fromarray(photos[random.integers(len(photos))]).convert("RGBA")
    masks = []
    for cutout in objects:
        scale = image.width * random.uniform(*sides) / max(cutout.picture.size)
        width, height = (max(1, round(scale * side)) for side in cutout.picture.size)
        place = int(random.integers(image.width - width + 1)), int(random.integers(image.width - height + 1))
        small = cutout.picture.resize((width, height), Image.Resampling.LANCZOS)
        image.alpha_composite(small, place)
        alpha = Image.new("L", image.size)
        alpha.paste(small.getchannel("A"), place)
        masks.append(np.asarray(alpha) > 127)
    return Scene(np.asarray(image.convert("RGB")), masks, list(objects), [])


def _recognised(model: nn.Module, scenes: Sequence[Scene], most: int) -> list[Scene]:
    """The scenes whose objects don't overlap and have a class among the network's `most` first ones, with the class."""
    images = normalised(np.stack([scene.image for scene in scenes]))
    first = all_logits(model, images, _BATCH).topk(most).indices.tolist()
    named = [
        replace(scene, classes=[next((c for c in own if c in cutout.classes), -1) for cutout in scene.objects])
        for scene, own in zip(scenes, first, strict=True)
    ]
    return [scene for scene in named if min(scene.classes) >= 0 and not np.any(sum(map(np.int8, scene.masks)) > 1)]


def draw_one(model: nn.Module, objects: Sequence[Cutout], photos: NDArray[np.uint8], spec: CutoutsSpec) -> list[Scene]:
    """Up to `per_object` scenes of each object that the network recognises."""
    random, kept = np.random.default_rng([spec.seed, 1]), dict[str, list[Scene]]()
    for _ in track(range(_ROUNDS), "pasting objects"):
        missing = [cutout for cutout in objects if len(kept.get(cutout.name, ())) < spec.per_object]
        if not missing:
            break
        for scene in _recognised(model, [_scene(photos, [c], _SIDES, random) for c in missing], 1):
            kept.setdefault(scene.objects[0].name, []).append(scene)
    if not kept:
        raise InputError("the network recognises none of the objects: check the class numbers and the network")
    return [scene for scenes in kept.values() for scene in scenes]


def draw_two(model: nn.Module, objects: Sequence[Cutout], photos: NDArray[np.uint8], spec: CutoutsSpec) -> list[Scene]:
    """Up to `pairs` scenes of two objects of different classes, both among the network's first classes."""
    random, kept = np.random.default_rng([spec.seed, 2]), list[Scene]()
    for _ in track(range(_ROUNDS_OF_TWO), "pasting pairs"):
        if len(kept) >= spec.pairs:
            break
        drawn = [[objects[i] for i in random.choice(len(objects), 2, replace=False)] for _ in range(2 * _BATCH)]
        drawn = [pair for pair in drawn if not pair[0].classes & pair[1].classes]
        if drawn:
            kept += _recognised(model, [_scene(photos, pair, _SIDES_OF_TWO, random) for pair in drawn], _TOP)
    return kept[: spec.pairs]


def run_cutouts(out: Path, spec: CutoutsSpec, *, print_line: Callable[[str], object], force: bool = False) -> None:
    """Score the methods on cut-outs; write a run folder for each task, and cutouts.json with the summary."""
    check_place(out / "one", force=force), check_place(out / "two", force=force)
    objects = read_objects(spec.objects)
    photos = photographs(str(spec.photos), spec.size, _MOST_PHOTOS)
    model = load_model(spec.network).eval()
    prior = fit(model, torch.split(normalised(photos), 8), only_correct=False, tune=False)
    ones = draw_one(model, objects, photos, spec)
    known = {scene.objects[0].name for scene in ones}
    twos = draw_two(model, [cutout for cutout in objects if cutout.name in known], photos, spec)
    facts = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(spec).items()}
    summary: dict[str, Any] = {"spec": facts, "objects": len(known), "images": len(ones), "pairs": len(twos)}
    found = f"{len(ones)} images of {len(known)} objects, and {len(twos)} pairs, that the network recognises"
    print_line(found)

    def scored(name: str, scenes: list[Scene], explained: list[int], names: Sequence[str]) -> list[MethodScores]:
        """The scores of the methods for one object of each scene, kept in the folder."""
        images = normalised(np.stack([scene.image for scene in scenes]))
        own = torch.tensor(np.stack([scene.masks[k] for scene, k in zip(scenes, explained, strict=True)]))
        every = torch.tensor(np.stack([np.any(scene.masks, axis=0) for scene in scenes]))
        classes = torch.tensor([scene.classes[k] for scene, k in zip(scenes, explained, strict=True)])
        entries, places = entries_that_run(names, prior, None, images, None), spread(len(scenes))
        keep = check_place(out / name, force=force)
        found = score(
            model, images, {"object": own, BOTH: every}, entries.items(), list(map(all_metrics.get, METRICS)), places,
            target=classes, batch_size=8, keep=keep, progress=True,
        )  # fmt: skip
        results = sorted(found, key=lambda result: [*entries].index(result.method))
        shown = gallery(model, images[places], pixels(images[places]), {"object": own[places]},
                        {result.method: result.maps for result in results}, classes[places], places)  # fmt: skip
        of_object = [replace(r, scores={"object": r.scores["object"]}) for r in results]
        Evaluation(tuple(of_object), shown, prior, "object").save(out / name, f"{name} cut-out", force=True)
        return results

    names = [scene.objects[0].name for scene in ones]
    results = scored("one", ones, [0] * len(ones), spec.methods)
    tables = {ONE: {r.method: _by_object(r.scores["object"], names) for r in results}}
    if twos:
        maps_of_class = [name for name in spec.methods if is_control(name) or takes_layer(all_methods.get(name))]
        explained = [0] * len(twos) + [1] * len(twos)
        names = [scene.objects[k].name for scene, k in zip([*twos, *twos], explained, strict=True)]
        tables[TWO] = {}
        for result in scored("two", [*twos, *twos], explained, maps_of_class):
            own, both = result.scores["object"], result.scores[BOTH]
            scores = own | {SHARE: own["energy"] / both["energy"]}
            del scores["energy"]
            tables[TWO][result.method] = _by_object(scores, names)
    report = [f"# Cut-outs on {spec.network}", "", f"{found}."]
    for task, scores in tables.items():
        table, ratios = _table(scores)
        for line in ("", task, *table.text(), *ratios):
            print_line(line)
        report += ["", f"## {task.capitalize()}", "", *table.markdown(), "", *(f"- {line}" for line in ratios)]
    means = {task: {name: own.mean().to_dict() for name, own in scores.items()} for task, scores in tables.items()}
    write_json(out / "cutouts.json", summary | {"means": means})
    write_atomically(out / "report.md", "\n".join([*report, ""]).encode())


def _by_object(scores: dict[str, Tensor], names: Sequence[str]) -> Any:
    """A data frame of each object's mean scores: its images aren't independent."""
    import pandas

    return pandas.DataFrame({metric: values.numpy() for metric, values in scores.items()}).groupby(names).mean()


def _table(scores: dict[str, Any]) -> tuple[Table, list[str]]:
    """Means with intervals over objects, and for each metric agop divided by the best of the paper's methods."""
    metrics = list(next(iter(scores.values())))
    rows = [[name, *(str(estimate(own[metric], (0, 1))) for metric in metrics)] for name, own in scores.items()]
    rivals, ratios = [name for name in PAPER if name in scores], []
    for metric in metrics if "agop" in scores and rivals else ():
        best = max(rivals, key=lambda name: float(scores[name][metric].mean()))
        ours, theirs = scores["agop"][metric], scores[best][metric]
        defined = ours.notna() & theirs.notna()
        ratio = Ratio(tuple(ours[defined]), tuple(theirs[defined]))
        ratios.append(f"{metric}: agop ÷ {best}, the best of the paper's methods: {ratio}")
    return Table(["", *metrics], rows), ratios
