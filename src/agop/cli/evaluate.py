"""`agop evaluate`, `sanity`, `report`, `data` and `list`: scores of methods, and what can be scored."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agop.cli import options
from agop.cli.checks import count_classes, default_methods
from agop.cli.printing import plain_console
from agop.errors import InputError
from agop.registry import unknown_name_error

if TYPE_CHECKING:
    from rich.table import Table

    from agop.evaluation.table import Evaluation


@options.command
def evaluate(
    *,
    model: options.Model,
    pictures: Annotated[Path, "Folder of images. With class folders, accuracy is also reported."],
    masks: Annotated[
        Path | None,
        typer.Argument(help="Folder of masks, each with the relative path of its image. Optional with --grid."),
    ] = None,
    prior: options.Prior = None,
    references: options.References = None,
    method: Annotated[
        list[str] | None, "Only this method, or package.module:CLASS; repeatable. METHOD:OPTION=VALUE sets an option."
    ] = None,
    metric: Annotated[list[str] | None, "Only this metric; repeatable."] = None,
    out: Annotated[Path, "Run folder to write. After an interruption, the same command resumes."] = Path(
        "runs/evaluation"
    ),
    layer: options.Layer = None,
    output: options.Output = None,
    threshold: Annotated[
        int | None, typer.Option(min=1, max=255, help="Mask values from this one on are inside.")
    ] = None,
    controls: Annotated[
        bool, "Also score maps that don't depend on the model: a central blob and the mean mask."
    ] = True,
    first: Annotated[int | None, typer.Option(min=1, help="Only the first N images.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Number of steps for deletion and insertion.")] = None,
    grid: Annotated[bool, "Grid pointing game: score maps of four classes on 2×2 grids of images."] = False,
    grids: Annotated[int | None, typer.Option(min=1, help="At most this many grids. Default: 100.")] = None,
    confidence: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Smallest probability of the class, for images in a grid. Default: 0.9."),
    ] = None,
    names: options.Names = None,
    batch_size: options.BatchSize = None,
    force: options.ForceAll = False,
    how: options.ModelOptions,
) -> None:
    """Score methods on images with masks, or on grids: print a table and write a run folder for `agop report`."""
    from agop import methods
    from agop.evaluation.evaluate import evaluate as score
    from agop.evaluation.grid import CONFIDENCE, GRIDS, check_accepts_grids, grid_pointing_game
    from agop.evaluation.table import check_place
    from agop.images.datasets import load_image_mask_pairs
    from agop.images.files import class_names
    from agop.images.overlays import pixels
    from agop.report.advice import advice
    from agop.report.folder import command_line, spread
    from agop.report.run import Run

    if masks is None and not grid:
        raise InputError(
            "masks are missing: pass a folder of masks after the images, or --grid for the grid pointing game, which "
            "needs none"
        )
    others = {"--metric": metric, "--steps": steps} if grid else {"--grids": grids, "--confidence": confidence}
    if unused := [name for name, value in others.items() if value not in (None, [])]:
        fix = "with --grid: remove it" if grid else "without --grid: add --grid"
        raise InputError(f"{unused[0]} has no effect {fix}")
    for method_name in method or ():
        methods.create(method_name)  # raises before the images are read
    network, preprocessing, statistic = how.open(model, prior, force)
    name = pictures.resolve().name
    check_place(out, name, force=force)
    count = count_classes(network, preprocessing.zeros())
    if grid:
        check_accepts_grids(network, preprocessing.zeros())
    classes = class_names(statistic, names, count)
    data = load_image_mask_pairs(pictures, masks, preprocessing, threshold, first, classes, count)
    shared: dict[str, Any] = {
        "layer": layer,
        "batch_size": batch_size,
        "references": options.load_references(references, preprocessing),
        "output": options.output_of(output, statistic),
        "out": out,
        "force": force,
    }
    evaluation: Evaluation
    if grid:
        if data.labels is None:
            raise InputError("--grid needs the class of each image: put the images in PICTURES/CLASS/NAME.png")
        evaluation = on_grids = grid_pointing_game(
            network, data.images, data.labels, method, statistic, masks=data.masks, grids=grids or GRIDS,
            confidence=CONFIDENCE if confidence is None else confidence, **shared,
        )  # fmt: skip
        shown = on_grids.shown_pictures(data.images, *preprocessing.extremes)
    else:
        assert data.masks is not None  # checked above
        evaluation = score(
            network, data.images, data.masks, method, statistic, metric, labels=data.labels, steps=steps,
            controls=controls, **shared,
        )  # fmt: skip
        shown = pixels(data.images[spread(len(data.images))], *preprocessing.extremes)
    # The gallery shows images before normalisation.
    evaluation = replace(evaluation, gallery=replace(evaluation.gallery, pictures=shown))
    console = plain_console()
    console.print(str(evaluation))
    about = {
        "command": command_line(),
        "classes": {name: list(data.classes or classes)},
        "network": f"{model} on {pictures}",
    }
    if not grid:
        about["samples"] = {name: [data.names[place] for place in spread(len(data.names))]}
    evaluation.save(out, name, force=force, **about)
    console.print(f"\nIn short: {' '.join(advice(Run(out)))}")
    console.print(f"rows: {out}/rows.jsonl · page: agop report {out}")


@options.command
def sanity(
    *,
    model: options.Model,
    pictures: Annotated[Path, "Folder of images."],
    method: options.Methods = None,
    prior: options.Prior = None,
    references: options.References = None,
    output: options.Output = None,
    images: Annotated[int, typer.Option(min=1, help="At most this many images, evenly spaced.")] = 20,
    steps: Annotated[int, typer.Option(min=1, help="At most this many steps from the last layer to all layers.")] = 8,
    seed: Annotated[int, "Seed of the random weights."] = 0,
    batch_size: options.BatchSize = None,
    force: options.ForcePrior = False,
    how: options.ModelOptions,
) -> None:
    """Sanity check: compare maps with those of the same model with random weights, from the last layer to all."""
    from agop import methods
    from agop.evaluation.sanity import sanity as check
    from agop.images.files import load_some

    for name in method or ():
        methods.create(name)  # raises before the images are read
    network, preprocessing, statistic = how.open(model, prior, force)
    count_classes(network, preprocessing.zeros())  # raises before the images are read
    names = method or default_methods(network, preprocessing.zeros(), statistic)
    some, others = load_some(pictures, preprocessing, images), options.load_references(references, preprocessing)
    for name in names:
        result = check(
            network, some, name, statistic, batch_size=batch_size, references=others, steps=steps, seed=seed,
            output=options.output_of(output, statistic),
        )  # fmt: skip
        plain_console().print(f"{result}\n")


_FORMATS = {".html": "html", ".htm": "html", ".md": "markdown", ".csv": "csv", ".tex": "latex", ".json": "json"}


@options.command
def report(
    run: Annotated[Path, "Run folder of `agop bench` or `agop evaluate`."],
    format_: Annotated[
        str | None,
        typer.Option("--format", help="html, markdown, csv, latex or json; default: by the extension of --out."),
    ] = None,
    out: Annotated[Path | None, "File to write; default: RUN/index.html, or standard output if not html."] = None,
    samples: Annotated[str, "all, or correct: only images that every network of the run classifies correctly."] = "all",
    force: options.Force = False,
) -> None:
    """Write the report of a run as an HTML page, Markdown, CSV, LaTeX or JSON."""
    from agop.io import check_overwrites, write_atomically
    from agop.report.folder import FILES
    from agop.report.formats import registry
    from agop.report.run import Run

    extension = ".html" if out is None else out.suffix.lower()
    if format_ is None and extension not in _FORMATS:
        raise InputError(f"{out} doesn't end in {', '.join(_FORMATS)}: rename it or pass --format")
    name = format_ or _FORMATS[extension]
    if samples not in ("all", "correct"):
        raise unknown_name_error("choice of samples", samples, ["all", "correct"])
    results = Run(run) if samples == "all" else Run(run).with_correct_images()
    text = registry.get(name)(results)
    if out is None and name != "html":
        typer.echo(text, nl=False)
        return
    path = run / "index.html" if out is None else out
    inputs = [run / name for name in ("spec.json", "about.json", "cells", *FILES)]
    check_overwrites([path], inputs, own=out is None, force=force)
    write_atomically(path, text.encode())
    typer.echo(f"wrote {path}")


data = typer.Typer(help="Check the official data of a benchmark.", no_args_is_help=True, rich_markup_mode=None)


@data.command("clevr-xai")
@options.command
def clevr_xai(
    folder: Annotated[Path | None, typer.Argument(help="Folder with the official files, unpacked or not.")] = None,
    questions: Annotated[str, "simple or complex."] = "simple",
) -> None:
    """Check a folder with the CLEVR-XAI release; without a folder, print where to download it.

    The reader has been tested on files written from the release's published description, not on the release itself.
    """
    from agop.bench.scenarios.clevr_release import ARCHIVES, PAGE, read_release

    console = plain_console()
    if folder is None:
        console.print(f"Download CLEVR-XAI's files\n  {ARCHIVES[0]}\n  {ARCHIVES[1]}\nfrom {PAGE}")
        console.print("into one folder. Unpacking them is optional. Then check them and run the benchmark:")
        console.print("  agop data clevr-xai FOLDER\n  agop bench clevr-xai --data FOLDER")
        return
    console.print(read_release(folder, console.print, questions).summary())
    console.print(f"next: agop bench clevr-xai --data {folder}")


@options.command
def list_(
    scenarios: Annotated[bool, "List the scenarios of the benchmarks with their backgrounds instead."] = False,
) -> None:
    """List the methods with their options, the metrics, the benchmarks, and how to name a model."""
    from rich.console import Console

    from agop import bench, methods, metrics
    from agop.cli.bench import app
    from agop.model.load import FORMS

    console = Console(highlight=False)
    if scenarios:
        every = [bench.scenarios.get(name) for name in bench.scenarios.names()]
        rows = ((scenario.name, scenario.benchmark, ", ".join(scenario.backgrounds)) for scenario in every)
        console.print(_table(("scenario", "benchmark", "backgrounds"), rows))
        return
    own = []
    for method in map(methods.get, methods.names()):
        needed = ", ".join(word for word in ("model", "prior", "references") if getattr(method, f"needs_{word}"))
        defaults = ", ".join(f"{field.name}={field.default!r}" for field in fields(method))
        own.append((method.name, needed or "nothing", f"{_first_line(method)}{defaults and f' ({defaults})'}"))
    console.print(_table(("method", "needs", "description (options)"), own))
    console.print("METHOD:OPTION=VALUE sets options, separated by commas: integrated-gradients:steps=200,baseline=0.5")
    console.print("captum:NAME is an attribution method of Captum, if installed: captum:DeepLift, captum:Occlusion …")
    console.print("package.module:CLASS is your own method: a subclass of agop.methods.Method, or an instance of one")
    every_metric = [metrics.get(name) for name in metrics.names()]
    scored = ((m.name, "higher" if m.higher_is_better else "lower", _first_line(m)) for m in every_metric)
    for table in (
        _table(("metric", "better", "description"), scored),
        _table(("model", "description"), FORMS.items()),
        _table(("benchmark", "description"), ((str(c.name), _first_line(c.callback)) for c in app.registered_commands)),
    ):
        console.print()
        console.print(table)
    console.print("agop list --scenarios lists the scenarios of the benchmarks")


def _first_line(documented: object) -> str:
    return str(documented.__doc__).strip().splitlines()[0]


def _table(columns: Iterable[str], rows: Iterable[tuple[str, ...]]) -> Table:
    from rich.table import Table

    table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.columns[0].no_wrap = True  # names are typed
    for row in rows:
        table.add_row(*row)
    return table
