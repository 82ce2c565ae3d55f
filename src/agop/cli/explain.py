"""`agop explain`, `agop app` and `agop audit`: which pixels, regions and properties of images a model relies on."""

from __future__ import annotations

import copy
from dataclasses import asdict, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agop.cli import options
from agop.cli.checks import READ_BATCH, count_classes, default_methods, enlargement, mixed_sizes, wrong_folders
from agop.cli.printing import plain_console
from agop.errors import InputError, MissingExtraError, ModelError, recorded_warnings, warn

if TYPE_CHECKING:
    from agop.app.page import Session
    from agop.images.files import Skip
    from agop.prior.agop import AGOP

# Predictions that are printed; the page lists all.
_PRINTED = 20
# Images in the model at once, in the app.
_APP_BATCH = 8


@options.command
def explain(
    *,
    model: options.Model,
    images: Annotated[list[Path], "Images, or folders of images."],
    method: options.MethodsOrAll = None,
    prior: options.Prior = None,
    references: options.References = None,
    out: Annotated[Path, "Folder to write to."] = Path("explanations"),
    target: Annotated[str | None, "Class to explain, by name or number. Default: the predicted one."] = None,
    layer: options.Layer = None,
    output: options.Output = None,
    names: options.Names = None,
    batch_size: options.BatchSize = None,
    force: options.ForceAll = False,
    drawing: options.DrawingOptions,
    how: options.ModelOptions,
) -> None:
    """Explain images: write a sheet of overlays per image, index.html with all images, the raw maps, and a manifest."""
    from agop import methods
    from agop.images.explained import Explainer, label_of, lines, summary
    from agop.images.explanation_folder import ExplanationFolder, check_outputs
    from agop.images.files import class_index, class_names
    from agop.processes import track

    colouring = drawing.colouring()
    skipped: list[str] = []

    def skip(message: str) -> None:
        skipped.append(message)
        warn(f"skipped: {message}")

    for name in [name for name in method or () if name != "all"]:
        methods.create(name)  # raises before the model is loaded
    folders = _image_files(images, skip)
    network, preprocessing, statistic = how.open(model, prior, force)
    wanted = method or default_methods(network, preprocessing.zeros(), statistic)
    selected = _methods(wanted, layer, statistic, references)
    files = [path for path, _ in folders]
    check_outputs(out, files, [*files, Path(model), how.weights, prior, names], force=force)
    known = class_names(statistic, names, count_classes(network, preprocessing.zeros()), network)
    explainer = Explainer(
        network, selected, preprocessing, statistic, None if target is None else class_index(target, known), layer,
        batch_size, known, references=options.load_references(references, preprocessing),
        output=options.output_of(output, statistic),
    )  # fmt: skip
    labels = {path: label_of(path, folder, known) for path, folder in folders}
    source = how.manifest_source(model, prior)
    if references is not None:
        source["references"] = str(references)
    folder = ExplanationFolder(out, files, explainer, source, labels, colouring)
    for explained in track(explainer.explained(files, skip), "explaining", total=len(files)):
        folder.add(explained)
    folder.finish(skipped)
    console = plain_console()
    for line in lines(folder.predictions, known, _PRINTED):
        console.print(line)
    if len(folder.predictions) > _PRINTED:
        console.print(f"… and {len(folder.predictions) - _PRINTED:,} more in {out / 'index.html'}")
    console.print(summary(folder.predictions))
    console.print(f"wrote {out}/index.html, overlays/, maps.safetensors and manifest.json")


def _methods(names: list[str], layer: str | None, prior: AGOP | None, references: Path | None) -> list[str]:
    """Names of the methods, without repeats."""
    from agop import methods
    from agop.methods.base import takes_layer

    every = methods.runnable(prior, with_references=references is not None)
    selected = list(dict.fromkeys(each for name in names for each in (every if name == "all" else [name])))
    kinds = [methods.get(name) for name in selected]
    if layer is not None and not any(takes_layer(kind) and not kind.uses_first_layer for kind in kinds):
        raise InputError(f"--layer is for gradcam and gradcam++, not for {', '.join(selected)}: remove it")
    return selected


def _image_files(paths: list[Path], skip: Skip) -> list[tuple[Path, Path | None]]:
    """The files, and the image files in the folders, each with its folder."""
    from agop.images.files import image_files

    files: list[tuple[Path, Path | None]] = []
    for path in paths:
        if not path.exists():
            raise InputError(f"{path} does not exist: pass images, or folders of images")
        inside = image_files(path, skip) if path.is_dir() else [path]
        if not inside:
            raise InputError(f"{path} has no images: pass another folder")
        files += [(file, path if path.is_dir() else None) for file in inside]
    return files


@options.command
def app(
    *,
    model: Annotated[
        str | None,
        typer.Argument(
            help="package.module:function, torchvision:NAME, timm:NAME, hf:FOLDER or FILE.pt2. Default: an example."
        ),
    ] = None,
    prior: options.Prior = None,
    names: options.Names = None,
    layer: options.Layer = None,
    drawing: options.DrawingOptions,
    host: Annotated[
        str, "Address to listen on. With another one than the default, other machines can connect."
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on. 0: any free port.")] = 7860,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    force: options.ForcePrior = False,
    how: options.ModelOptions,
) -> None:
    """Serve a web page: drop images, see which pixels the model relies on."""
    from agop.app import example, is_local, serve

    if find_spec("gradio") is None:
        raise MissingExtraError("agop app", "gradio", "app")
    colouring = drawing.colouring()
    own = {"prior": prior, "names": names, "layer": layer, "force": force}
    arguments: dict[str, Any] = own | asdict(replace(how, device=None))
    passed = [f"--{name}" for name, value in arguments.items() if value is not None and value is not False]
    if model is None and passed:
        raise InputError(
            f"{', '.join(passed).replace('_', '-')} without a model: pass a model, or no options for the example"
        )
    arguments = example.ARGUMENTS if model is None else {**arguments, "model": model}
    if not is_local(host):
        warn(f"everybody who can reach {host} can upload images to this page and see its model's results")
    examples = example.images() if model is None else []
    load = partial(load_session, **arguments | {"device": how.device})
    serve(load, examples, host, port, typer.echo, browse, colouring)


def load_session(
    model: str,
    prior: Path | None = None,
    names: Path | None = None,
    layer: str | None = None,
    force: bool = False,
    **model_options: Any,
) -> Session:
    """Session with the model of the arguments, after a first pass through it."""
    from agop.app.page import Session
    from agop.images.explained import Explainer
    from agop.images.files import class_names

    how = options.ModelOptions(**model_options)
    library, _, name = model.partition(":")
    if library in ("torchvision", "timm") and how.weights is None:
        raise ModelError(f"the app doesn't download weights for {model}: pass --weights FILE")
    if library == "hf" and not Path(name).expanduser().is_dir():
        raise ModelError(f"{model} isn't a local folder, and the app doesn't download models: pass hf:FOLDER")
    network, preprocessing, statistic = how.open(model, prior, force)
    classes = count_classes(network, preprocessing.zeros())
    if statistic is not None:
        statistic.check_shape(preprocessing.zeros())  # raises now, not on the first upload
    explainer = Explainer(
        network, (), preprocessing, statistic, layer=layer, batch_size=_APP_BATCH, lenient=True,
        names=class_names(statistic, names, classes, network), output=options.output_of(None, statistic),
    )  # fmt: skip
    return Session(explainer, classes, how.manifest_source(model, prior))


@options.command
def audit(
    *,
    model: options.Model,
    data: Annotated[Path, "Folder with one folder of images per class."],
    prior: options.Prior = None,
    out: Annotated[Path, "Folder to write to."] = Path("audit"),
    against: Annotated[
        str | None, "Another model of the same classes, for example retrained: what is found is tested on both."
    ] = None,
    against_weights: Annotated[
        Path | None, "Weights of the other model. Without --against, it is MODEL with these weights."
    ] = None,
    repair: Annotated[
        Path | None, "Safetensors file for the weights of a repaired model, whose last layer is fitted anew."
    ] = None,
    groups: Annotated[
        Path | None, "CSV of lines path,group, paths below DATA: what else is known of the images, such as the camera."
    ] = None,
    per_class: Annotated[
        int | None, typer.Option(min=20, help="Images of each class that are used, at most. Default: 200 to 600.")
    ] = None,
    seed: Annotated[int, "Seed of the choice of images and of the controls."] = 0,
    names: options.Names = None,
    batch_size: options.BatchSize = None,
    force: options.ForceAll = False,
    how: options.ModelOptions,
) -> None:
    """Audit a model: find regions and properties of images that decide a class, and test each by interventions."""
    from safetensors.torch import save as to_safetensors

    from agop.auditing.audit import audit as run_audit
    from agop.auditing.repair import Repair
    from agop.auditing.subgroups import read_groups
    from agop.images.files import ClassFolders, class_names
    from agop.io import check_overwrites, own_folder, write_atomically
    from agop.model.load import load_weights

    if data.resolve() in (out.resolve(), *out.resolve().parents):
        raise InputError(f"{out} is in the folder of the images, {data}: choose another --out")
    with recorded_warnings() as doubts:
        network, preprocessing, statistic = how.open(model, prior, force)
    for doubt in doubts:
        warn(doubt)
    if repair is not None:
        options.check_writable(repair)
        check_overwrites([repair], [how.weights, prior], force=force, option="--repair")
    own_folder(out, force=force)
    images = ClassFolders(data, preprocessing)
    other = None
    if against_weights is not None and against is None and options.is_own(model):
        other = copy.deepcopy(network)  # the user's function runs once
        load_weights(other, against_weights)
    elif against is not None or against_weights is not None:
        other = replace(how, weights=against_weights).load(against or model)
    classes = count_classes(network, preprocessing.zeros())
    known = class_names(statistic, names, classes, network)
    if known:
        images = images.with_classes(known, classes)
    elif problem := wrong_folders(images, classes):
        raise InputError(problem)
    if how.size is None and (problem := enlargement(images)):
        warn(problem)
    result = run_audit(
        network, images.batches(batch_size or READ_BATCH, with_paths=True), None, statistic, against=other,
        class_names=known or images.classes, groups=None if groups is None else read_groups(groups, data),
        per_class=per_class, batch_size=batch_size, seed=seed,
    )  # fmt: skip
    if note := mixed_sizes(images):
        result = replace(result, notes=(*result.notes, note))
    console = plain_console()
    console.print(result.summary())
    result = replace(result, notes=(*doubts, *result.notes))
    result.save(out)
    console.print(f"wrote {out / 'index.html'}")
    if repair is not None and not result.sentences:
        warn(f"nothing to repair: {repair} isn't written")
    elif repair is not None:
        repaired = Repair.of(network, result, images.batches(batch_size or READ_BATCH, with_paths=True))
        for line in repaired.lines:
            console.print(line)
        weights = {name: value.contiguous().clone() for name, value in repaired.model.state_dict().items()}
        write_atomically(repair, to_safetensors(weights))
        replace(result, repair=tuple(repaired.lines)).save(out)
        console.print(f"wrote {repair}")
