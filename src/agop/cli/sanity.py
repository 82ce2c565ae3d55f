"""`agop sanity`: do a method's maps depend on the model's weights?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agop.cli import options
from agop.cli.printing import plain_console


def sanity(
    model: options.Model,
    pictures: Annotated[Path, typer.Argument(help="Folder of images.")],
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Method from `agop list`, or package.module:CLASS; repeatable. METHOD:OPTION=VALUE sets an option. "
            "Default: agop with --prior, vanilla without."
        ),
    ] = None,
    prior: options.Prior = None,
    references: options.References = None,
    contrast: options.Contrast = None,
    images: Annotated[int, typer.Option(min=1, help="At most this many images, evenly spaced.")] = 20,
    steps: Annotated[int, typer.Option(min=1, help="At most this many steps from the last layer to all layers.")] = 8,
    seed: Annotated[int, typer.Option(help="Seed of the random weights.")] = 0,
    weights: options.Weights = None,
    num_classes: options.NumClasses = None,
    size: options.Size = None,
    mean: options.Mean = None,
    std: options.Std = None,
    gray: options.Gray = False,
    batch_size: options.BatchSize = None,
    device: options.Device = None,
) -> None:
    """Sanity check: compare maps with those of the same model with random weights, from the last layer to all."""
    from agop import methods
    from agop.evaluating.sanity import sanity as check
    from agop.pictures.folders import load_some
    from agop.statistic.agop import AGOP

    names = method or (["agop"] if prior else ["vanilla"])
    for name in names:
        methods.create(name)  # raises before the images are read
    statistic = None if prior is None else AGOP.load(prior)
    how = options.preprocessing(model, size, mean, std, gray, statistic)
    options.warn_if_preprocessing_differs(statistic, how)
    some, others = load_some(pictures, how, images), options.load_references(references, how)
    network = options.load_model_on_device(model, weights, num_classes, device)
    for name in names:
        result = check(
            network, some, name, statistic, batch_size=batch_size, references=others, steps=steps, seed=seed,
            output=options.output_of(contrast, statistic),
        )  # fmt: skip
        plain_console().print(f"{result}\n")
