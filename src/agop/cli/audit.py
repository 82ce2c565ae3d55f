"""`agop audit`: which regions and properties of images decide a class, and is that a shortcut?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from agop.cli import options
from agop.cli.first_look import READ_BATCH, enlargement, mixed_sizes, wrong_folders
from agop.cli.printing import plain_console
from agop.errors import InputError, recorded_warnings, warn

Against = Annotated[
    str | None,
    typer.Option(help="Another model of the same classes, for example retrained: what is found is tested on both."),
]
AgainstWeights = Annotated[
    Path | None, typer.Option(help="Weights of the other model. Without --against, it is MODEL with these weights.")
]


def audit(
    model: options.Model,
    data: Annotated[Path, typer.Argument(help="Folder with one folder of images per class.")],
    prior: options.Prior = None,
    out: Annotated[Path, typer.Option(help="Folder to write to. An interrupted audit is resumed.")] = Path("audit"),
    against: Against = None,
    against_weights: AgainstWeights = None,
    per_class: Annotated[int, typer.Option(min=20, help="Images of each class that are used, at most.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the choice of images and of the controls.")] = 0,
    weights: options.Weights = None,
    num_classes: options.NumClasses = None,
    names: options.Names = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    gray: options.Gray = False,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
    force: options.Force = False,
) -> None:
    """Audit a model: find regions and properties of images that decide a class, and test each by interventions."""
    from agop.auditing.audit import run_audit
    from agop.auditing.examining import Settings
    from agop.auditing.result import FILES, is_own_file
    from agop.auditing.stages import FOLDER, remove_stages
    from agop.model.probe import number_of_classes
    from agop.pictures.class_names import class_names
    from agop.pictures.folders import ClassFolders
    from agop.statistic.agop import AGOP
    from agop.system.files import check_overwrites

    if data.resolve() in (out.resolve(), *out.resolve().parents):
        raise InputError(f"{out} is in the folder of the images, {data}: choose another --out")
    statistic = None if prior is None else AGOP.load(prior)
    with recorded_warnings() as doubts:
        preprocessing = options.preprocessing(model, size, mean, std, gray, statistic)
        options.warn_if_preprocessing_differs(statistic, preprocessing)
    for doubt in doubts:
        warn(doubt)
    outputs = [out / name for name in FILES]
    options.check_writable(outputs[0])
    inputs = [weights, Path(model), data, prior, names, against_weights, None if against is None else Path(against)]
    check_overwrites(outputs, inputs, is_own_file, force=force)
    images = ClassFolders(data, preprocessing)
    network = options.load_model_on_device(model, weights, num_classes, device)
    other = None
    if against is not None or against_weights is not None:
        other = options.load_model_on_device(against or model, against_weights, num_classes, device)
    classes = number_of_classes(network, preprocessing.zeros())
    known = class_names(statistic, names, classes, network)
    if known:
        images = images.with_classes(known, classes)
    elif problem := wrong_folders(images, classes):
        raise InputError(problem)
    if size is None and (problem := enlargement(images)):
        warn(problem)
    with _stages_mentioned(out / FOLDER):
        result = run_audit(
            network, images.batches_with_paths(batch_size or READ_BATCH), None, statistic, other,
            known or images.classes, per_class, batch_size, Settings(seed, True, out / FOLDER),
        )  # fmt: skip
        if note := mixed_sizes(images):
            result = replace(result, notes=(*result.notes, note))
        console = plain_console()
        console.print(result.summary())
        replace(result, notes=(*doubts, *result.notes)).save(out)
    remove_stages(out / FOLDER)
    console.print(f"wrote {out / FILES[0]}")


@contextmanager
def _stages_mentioned(folder: Path) -> Iterator[None]:
    """Add the stages that are kept to the message of Ctrl-C."""
    from agop.auditing.stages import kept_stages

    try:
        yield
    except KeyboardInterrupt as stop:
        if kept := kept_stages(folder):
            stop.args = (f"{kept} kept in {folder}: run the same command again to resume",)
        raise
