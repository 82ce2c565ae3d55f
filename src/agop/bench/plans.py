"""Plans: what each benchmark computes. `common` are the options of every benchmark: seeds, method and metric."""

import hashlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agop import methods, metrics
from agop.bench import scenarios
from agop.bench.scenarios import clevr_release, clevr_xai, composite
from agop.bench.scenarios.xai_tris import Options as XaiTrisOptions
from agop.errors import InputError
from agop.io import read_bytes
from agop.methods.base import takes_layer, unknown_method_error
from agop.methods.controls import FIXED_MAPS
from agop.registry import unknown_name_error
from agop.report.folder import AGOP_CONTROLS, RunSpec

Names = Sequence[str] | None
# Variants integrated-gradients@NAME.
BASELINES = ("zero", "black", "mean", "blurred", "training")
# Parts of `agop` that take as many passes as `agop` itself: benches of larger networks run them only if named.
_PARTS_OF_AGOP = ("expected-gradients", "agop-expected")


@dataclass(frozen=True)
class Plan:
    """What a bench will compute, with notes for the report. `prepare(jobs)` makes the data that all cells read."""

    spec: RunSpec
    notes: tuple[str, ...] = ()
    prepare: Callable[[int], object] = lambda jobs: None


def plan_xai_tris(
    *, scenario: Names, background: Names, network: Names, masks: str, restarts: int, full: bool, quick: bool,
    untrained: bool, **common: Any,
) -> Plan:  # fmt: skip
    """Tetrominoes at 8×8: the faster methods on uncorrelated noise with the paper's network, or everything."""
    networks = scenarios.networks("xai-tris")
    selected = select("network", network, networks, networks if full else networks[:1])
    known = {name: scenarios.get(name) for which in selected for name in scenarios.names("xai-tris", which)}
    for name in scenario or ():
        if name in scenarios.names("xai-tris") and not any(name in (s.name, s.task) for s in known.values()):
            raise InputError(f"{name} isn't available with network {', '.join(selected)}: add --network cnn or mlp")
    tasks = select("scenario", scenario, list(dict.fromkeys(known[name].task or name for name in known)))
    own = {name: known[name].backgrounds for name in known if (known[name].task or name) in tasks}
    every = list(dict.fromkeys(b for backgrounds in own.values() for b in backgrounds))
    backgrounds = select("background", background, every, [b for b in every if full or b != "correlated"])
    spec = _spec(
        "xai-tris",
        without=() if full else (*AGOP_CONTROLS, *_PARTS_OF_AGOP),
        scenarios=tuple(own),
        backgrounds=backgrounds,
        masks="own" if masks == "true" else select("kind of mask", [masks], ["own", "union", "signed"])[0],
        epochs=0 if untrained else 2 if quick else known[next(iter(own))].recipe.epochs,
        test_images=100 if quick else 1000 if full else 400,
        absent=tuple(f"{name}/{b}" for name in own for b in backgrounds if b not in own[name]),
        restarts=None if quick or untrained else restarts,
        tasks={name: known[name].task for name in own if known[name].task},
        **common,
    )
    return Plan(spec)


def plan_xai_tris_64(*, scenario: Names, background: Names, photos: Path | None, quick: bool, **common: Any) -> Plan:
    """Tetrominoes at 64×64 in white noise or, with `photos`, on photographs."""
    known = scenarios.names("xai-tris-64")
    tasks = select("scenario", [f"{name.removesuffix('-64')}-64" for name in scenario or ()], known)
    every = scenarios.get(tasks[0]).backgrounds
    backgrounds = select("background", background, every, ["white" if photos is None else "photos"])
    notes: tuple[str, ...] = ()
    if photos is not None and "photos" not in backgrounds:
        raise InputError(f"--photos {photos} isn't used: add --background photos, or remove --photos")
    if photos is None and "photos" in backgrounds:
        backgrounds = tuple(dict.fromkeys(name.replace("photos", "pink-noise") for name in backgrounds))
        notes = ("--background photos without --photos: pink noise is used instead of photographs",)
    options = XaiTrisOptions(**_paths(photos=photos), samples=400 if quick else XaiTrisOptions.samples)
    return _on_photographs("xai-tris-64", tasks, backgrounds, options, notes, quick=quick, **common)


def plan_composite(
    *, scenario: Names, digits: Path | None, photos: Path | None, size: int, samples: int | None, quick: bool,
    **common: Any,
) -> Plan:  # fmt: skip
    """Digits on photographs, or drawn digits on pink noise."""
    tasks = select("scenario", scenario, scenarios.names("composite"))
    samples = samples if samples is not None else 400 if quick else composite.Options.samples
    options = composite.Options(**_paths(digits=digits, photos=photos), size=size, samples=samples)
    backgrounds = ("pink-noise" if photos is None else "photos",)
    drawn = ("without --digits, digits are drawn in Pillow's font",) if digits is None else ()
    noise = ("without --photos, pink noise is used instead of photographs",) if photos is None else ()
    return _on_photographs("composite", tasks, backgrounds, options, drawn + noise, quick=quick, **common)


def _on_photographs(
    benchmark: str, tasks: Sequence[str], backgrounds: Sequence[str], options: object, notes: tuple[str, ...], *,
    restarts: int, quick: bool, untrained: bool = False, **common: Any,
) -> Plan:  # fmt: skip
    """The plan of a bench that may read the user's files. Raises if a file is missing or damaged."""
    first = scenarios.get(tasks[0])
    spec = _spec(
        benchmark,
        scenarios=tasks,
        backgrounds=backgrounds,
        masks="own",
        epochs=0 if untrained else 1 if quick else first.recipe.epochs,
        test_images=20 if quick else 300,
        steps=8,
        options=_changed(options),
        restarts=None if quick or untrained else restarts,
        **common,
    )
    few = first.with_options(spec.options | {"samples": 100})
    for background in backgrounds:
        few.splits(background, seed=0)
    return Plan(spec, notes)


def plan_clevr_xai(
    *, data: Path | None, network: str, weights: Path | None, full: bool, quick: bool, **common: Any
) -> Plan:
    """CLEVR-XAI: the paper's methods, variants and controls, and the baselines of integrated gradients."""
    if full and quick:
        raise InputError("--full and --quick exclude each other: give one of them")
    samples = 200 if quick else clevr_xai.Options.samples
    options = clevr_xai.Options(**_paths(data=data, weights=weights), samples=samples, network=network)
    if weights is not None and not weights.is_file():
        raise InputError(f"weights {weights} is not a file: pass torchvision's resnet18-*.pth")
    options = replace(options, recipe="paper" if full else "fine-tuning" if options.fine_tunes else "short")
    scenario = clevr_xai.clevr_xai(**vars(options))
    scenario.network()  # raises now if a file or package is missing
    baselines = BASELINES if not common["method"] or "integrated-gradients" in common["method"] else ()
    finer_layer = clevr_xai.LAYERS[network][1]
    spec = _spec(
        "clevr-xai",
        variants=(f"gradcam@{finer_layer}", "agop-weighted@training", "agop-global@training"),
        scenarios=("clevr-xai",),
        backgrounds=("drawn" if data is None else "official",),
        masks="all_objects",
        epochs=1 if quick else scenario.recipe.epochs,
        test_images=20 if quick else 500,
        steps=64 if full else 8,
        sensitivity=tuple(f"integrated-gradients@{name}" for name in baselines),
        sensitivity_images=10 if quick else 100,
        intervals="samples" if common["seeds"] == 1 else "seeds",
        options=_changed(options),
        **common,
    )
    if data is not None:
        return Plan(spec, (clevr_release.read_release(data).summary(),))
    return Plan(spec, (), lambda jobs: clevr_xai.drawn_dataset(options.samples, options.size, jobs=jobs))


PLANS: dict[str, Callable[..., Plan]] = {
    "xai-tris": plan_xai_tris,
    "xai-tris-64": plan_xai_tris_64,
    "composite": plan_composite,
    "clevr-xai": plan_clevr_xai,
}


def select(kind: str, names: Names, known: Sequence[str], default: Names = None) -> tuple[str, ...]:
    """The names among the known ones, in their order; by default all known ones. Raises UnknownNameError."""
    for name in names or ():
        if name not in known:
            raise unknown_name_error(kind, name, list(known))
    return tuple(name for name in known if name in (names or default or known))


def _spec(
    benchmark: str, *, method: Names, metric: Names, variants: Sequence[str] = (),
    without: Sequence[str] = _PARTS_OF_AGOP, **fields: Any,
) -> RunSpec:  # fmt: skip
    """The specification with the named methods and metrics; by default all methods but `without`, and `variants`."""
    # A bench's priors have a sketch only if a named method needs it.
    named = method or ()
    own = [name for name in methods.names() if name in named or "sketch" not in methods.get(name).prior_parts]
    known = [*own, *AGOP_CONTROLS, *FIXED_MAPS, *variants]
    others = [name for name in dict.fromkeys(method or ()) if name not in known]
    for name in others:
        if ":" not in name:
            raise unknown_method_error(name, known)
        base, _, variant = name.partition("@")
        if not takes_layer(methods.create(base)) and variant:  # LIBRARY:NAME or package.module:NAME
            raise InputError(
                f"{base} has no variant {variant!r}: only methods of a layer have variants, captum:LayerGradCam@LAYER"
            )
    wanted = method or [name for name in known if name not in without]
    bases = {name: name.partition("@")[0] for name in others}
    return RunSpec(
        benchmark=benchmark,
        methods=(*(name for name in known if name in wanted), *others),
        metrics=select(
            "metric", [metrics.get(name).name for name in metric or ()], metrics.names(), metrics.default_names()
        ),
        code={name: _code_digest(base) for name, base in bases.items() if methods.is_own(base)},
        **fields,
    )


def _code_digest(name: str) -> str:
    """A digest of the code of a user's own method: results of its versions must not be mixed.

    The code is two files: the named module, and the one that defines the class.
    """
    modules = {name.partition(":")[0], methods.get(name).__module__}
    files = sorted({str(sys.modules[module].__file__) for module in modules})
    return hashlib.sha256(b"".join(read_bytes(Path(file)) for file in files)).hexdigest()[:16]


def _paths(**paths: Path | None) -> dict[str, Any]:
    return {name: str(path.resolve()) for name, path in paths.items() if path is not None}


def _changed(options: object) -> dict[str, Any]:
    """Only options that differ from the default: the specification stays readable."""
    return {name: value for name, value in vars(options).items() if value != getattr(type(options), name)}
