"""`agop suspect`: which classes a mark raises."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agop.cli import options
from agop.cli.checks import READ_BATCH, count_classes, wrong_folders
from agop.cli.printing import plain_console
from agop.errors import InputError


@options.command
def suspect(
    *,
    model: options.Model,
    images: Annotated[Path, "Folder of images, of any classes."],
    mark: Annotated[Path, typer.Option(help="Image with transparency, in pixels of the model's input.")],
    place: Annotated[str, "top-left, anywhere (a random place in each image) or tiled."] = "top-left",
    labels: Annotated[
        bool, "The images are in folders named after their classes: also count correct predictions."
    ] = False,
    out: Annotated[Path, "Folder to write to."] = Path("suspicion"),
    count: Annotated[int, typer.Option(min=16, help="Images that are used, at most, evenly spaced.")] = 500,
    seed: Annotated[int, "Seed of the random places and of the shuffled copies."] = 0,
    names: options.Names = None,
    batch_size: options.BatchSize = None,
    force: options.Force = False,
    how: options.ModelOptions,
) -> None:
    """Test a suspicion: which of all classes does a mark raise, beside copies of it with shuffled pixels?"""
    from agop.auditing.suspect import Mark
    from agop.auditing.suspect import suspect as run_suspect
    from agop.images.files import ClassFolders, ImageFolder, class_names
    from agop.io import own_folder

    for path in (images, mark):
        if path.resolve() in (out.resolve(), *out.resolve().parents):
            raise InputError(f"{out} is in the folder of the images, {path}: choose another --out")
    network, preprocessing, _ = how.open(model, None, force)
    change = Mark.load(mark, preprocessing, place, seed)
    change(preprocessing.zeros())  # raises now if it is too large
    classes = count_classes(network, preprocessing.zeros())
    known = class_names(None, names, classes, network)
    pictures = ClassFolders(images, preprocessing) if labels else ImageFolder(images, preprocessing)
    if isinstance(pictures, ClassFolders):
        if known:
            pictures = pictures.with_classes(known, classes)
        elif problem := wrong_folders(pictures, classes):
            raise InputError(problem)
        known = known or tuple(pictures.classes)
    own_folder(out, force=force)
    result = run_suspect(
        network, pictures.spread(count).batches(batch_size or READ_BATCH), change, class_names=known,
        batch_size=batch_size, seed=seed,
    )  # fmt: skip
    console = plain_console()
    console.print(result.summary())
    result.save(out)
    console.print(f"wrote {out / 'index.html'}")
