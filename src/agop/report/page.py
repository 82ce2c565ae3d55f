"""The HTML page of a run: one self-contained file, built from the run folder alone."""

import base64
import gzip
import math
import re
from collections import Counter, defaultdict
from functools import lru_cache, partial
from itertools import product
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agop.images.overlays import COLOUR_MAPS, DEFAULT_COLOURING, heat
from agop.io import read_bytes
from agop.report.advice import advice
from agop.report.claims import check, heading, remarks, tally
from agop.report.folder import CONTROLS, FILES, collected, is_control
from agop.report.pictures import base64_text, eigenvector_views, gallery_view, selection, training_history
from agop.report.run import MEANINGS, Place, Run, comparisons, competing, headline, image_choices, marks, published
from agop.report.tables import ScoreCell, ScoreTable, score_tables
from agop.stats import Estimate
from agop.tables import counted, interval, mean, number
from agop.web import environment, scripts, styles

_STYLES = ("bars", "tables", "gallery", "charts", "eigenvectors")
_SCRIPTS = ("core", "theme", "place", "glance", "tips", "tables", "edges", "maps", "gallery", "charts", "convergence",
            "labels", "cost", "downloads")  # fmt: skip
_MACHINE = ("processor", "machine", "memory", "system")


def page(run: Run) -> str:
    """The whole page as HTML."""
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    templates = environment(__package__)
    templates.policies["json.dumps_kwargs"] = {"sort_keys": False}  # the order of methods is the run's
    templates.filters["breakable"] = _breakable
    data = _data(run)  # what the scripts draw
    choice_metric, choices = image_choices(run)
    claims = check(run)
    galleries = [cell["gallery"] for cell in data["cells"] if cell["gallery"]]
    return templates.get_template("page.html").render(
        # Our own files and plotly's are inserted verbatim; the templates escape all text from the run.
        styles=styles(__package__, *_STYLES),
        scripts=scripts(__package__, *_SCRIPTS),
        plotly=Markup(get_plotlyjs()),
        run=run,
        title=f"{run.spec.benchmark if run.spec.epochs else run.spec.scenarios[0]}: attribution scores",
        sentence=_sentence(run),
        advice=[*advice(run), *tally(claims)],
        grids=_grids(run),
        gradient=f"linear-gradient(to right, {', '.join(f'rgb{colour}' for colour in COLOUR_MAPS['viridis'])})",
        claims=claims,
        claims_heading=heading(run).replace("'", "’"),
        remarks=remarks(run),
        tables=sorted(score_tables(run), key=lambda table: run.places.index(table.place)),
        tip=partial(_tip, run),
        notes=partial(_notes, run),
        comparisons=comparisons(run),
        published=published(),
        choices=choices,
        choice_label=run.metrics[choice_metric]["label"],
        data=data,
        has_gallery=bool(galleries),
        selection=selection(run, max(galleries, key=lambda view: len(view["pictures"]))) if galleries else "",
        controls=[method for method in run.spec.methods if is_control(method)],
        convergence=any(cell["training"] for cell in data["cells"]),
        eigenvectors=eigenvector_views(run),
        facts=_facts(run),
        methods=_descriptions(run),
        raw=_raw(run),
    )


def _breakable(name: str) -> str:
    """The name as HTML that may break after punctuation."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([-_/@])(?=\w)", r"\1<wbr>", str(escape(name))))


def _data(run: Run) -> dict[str, Any]:
    cells = list(dict.fromkeys((scenario, background) for scenario, background, _ in run.places))
    metric = headline(run)
    about = run.metrics[metric]
    return {
        "places": [
            {
                "scenario": s,
                "background": b,
                "masks": k,
                "cell": cells.index((s, b)),
                "name": name,
                "scores": _scores(run, (s, b, k)),
            }
            for (s, b, k), name in _names(run).items()
        ],
        "cells": [{"gallery": gallery_view(run, *cell), "training": training_history(run, *cell)} for cell in cells],
        "metrics": {name: about["label"] for name, about in run.metrics.items()},
        "methods": list(run.spec.methods),
        "kinds": {method: _kind(method) for method in run.spec.methods},
        "variants": list(run.spec.sensitivity),
        "quality": {"name": metric, "label": about["label"], "up": about["higher_is_better"]},
        "colours": base64_text(ramp("inferno")),
        "percentile": DEFAULT_COLOURING.percentile,
    }


def _sentence(run: Run) -> str:
    """What the page shows, in one sentence."""
    spec = run.spec
    methods, images = counted(len(spec.methods), "attribution method"), counted(spec.test_images, "image")
    if spec.epochs == 0:
        return f"{methods}, scored on {images}."
    tasks = counted(len({place[:2] for place in run.places}), "task")
    return (
        f"{methods}, scored against ground-truth masks: {tasks}, {counted(spec.seeds, 'seed')} per task, "
        f"{run.images} per seed."
    )


def _facts(run: Run) -> list[tuple[str, str]]:
    """Facts about the run, as pairs of a name and a text."""
    spec, about, machine = run.spec, run.about, run.about.hardware
    cores = f"{machine['cores']} cores" if machine.get("cores") else ""
    trainings = f"{len(spec.cells())} ({counted(spec.seeds, 'seed')} per task), {counted(spec.epochs, 'epoch')} each"
    lines = [
        ("Command", about.command),
        ("Training runs", trainings if spec.epochs else ""),
        ("Images", f"{spec.test_images:,}{' per task' if len(run.places) > 1 else ''}; {spec.masks} masks"),
        ("Network", about.network or ""),
        *(("Note", note) for note in about.notes),
        ("Options", ", ".join(f"{key}: {value}" for key, value in spec.options.items())),
        ("Versions", "; resumed with ".join(run.versions)),
        ("Machine", ", ".join(filter(None, (cores, *(machine.get(part) for part in _MACHINE))))),
    ]
    return [(name, text) for name, text in lines if text]


def _descriptions(run: Run) -> list[tuple[str, str]]:
    """Description of each method that has one."""
    known = CONTROLS | run.about.methods
    descriptions = []
    for name in (*run.spec.methods, *run.spec.sensitivity):
        base, _, variant = name.partition("@")
        part = "layer" if base.startswith("gradcam") else "baseline" if base == "integrated-gradients" else "AGOP of"
        if description := known.get(name) or (f"{base} with the {part} “{variant}”" if variant else ""):
            descriptions.append((name, description))
    return descriptions


def _raw(run: Run) -> list[dict[str, Any]]:
    """The run's files, gzipped: convergence alone would be two megabytes as text."""
    contents = {name: collected(run.cells, name) for name in FILES}
    contents |= {name: read_bytes(run.folder / name) for name in ("spec.json", "about.json")}
    return [
        {
            "name": name,
            "size": f"{len(content) / 1e6:.1f} MB" if len(content) >= 1e6 else f"{len(content) / 1e3:.0f} kB",
            "text": base64.b64encode(gzip.compress(content, mtime=0)).decode(),
        }
        for name, content in contents.items()
        if content
    ]


def _kind(method: str) -> str:
    return "control" if is_control(method) else "agop" if method.startswith("agop") else "other"


def _names(run: Run) -> dict[Place, str]:
    """The places as short names: the scenario, and the background and the masks if there are others."""
    backgrounds, kinds = {place[1] for place in run.places}, Counter(place[:2] for place in run.places)
    names = {}
    for scenario, background, masks in run.places:
        parts = [scenario, background if len(backgrounds) > 1 else "", masks if kinds[scenario, background] > 1 else ""]
        names[scenario, background, masks] = " / ".join(filter(None, parts))
    return names


def _scores(run: Run, place: Place) -> dict[str, list[list[float] | None]]:
    """Mean, low and high of each method by metric; None without a score."""

    def ends(method: str, metric: str) -> list[float] | None:
        score = run.estimate(*place[:2], method, metric, place[2])
        values = () if score is None else (score.mean, *(score.interval or (score.mean, score.mean)))
        return [float(f"{value:.5g}") for value in values] or None

    return {metric: [ends(method, metric) for method in run.spec.methods] for metric in run.metrics}


def _tip(run: Run, place: Place, method: str, cell: ScoreCell) -> str:
    """What is shown when the mouse is over a cell."""
    tip = [f"{run.metrics[cell.metric]['label']} of {method}: {cell.mean if cell.ours else 'undefined'}"]
    if cell.ours is not None and cell.interval:
        unit = run.spec.intervals if cell.metric != "milliseconds" else "seeds"
        tip.append(f"95 % interval {cell.interval} over {len(cell.ours.values)} {unit}")
    elif cell.ours is not None:
        tip.append("no interval: only one value")
    if cell.published:
        tip.append(f"paper: {cell.published}")
    return "; ".join(filter(None, [*tip, _undefined(run, place, method, cell.metric)]))


def _undefined(run: Run, place: Place, method: str, metric: str) -> str | None:
    """How many samples have no score and why, over all seeds; empty if all have one, None if nothing was scored."""
    scenario, background, masks = place
    rows = run.seeds(scenario, background, method, metric, masks).values()
    if not rows or metric == "milliseconds":
        return None
    reasons: Counter[str] = sum((Counter(row.get("undefined")) for row in rows), Counter())
    defined = sum(row.get("n") or 0 for row in rows)
    why = ", ".join(f"{reason}: {count:,}" for reason, count in reasons.items())
    return f"{defined:,} of {counted(defined + reasons.total(), 'sample')} scored ({why})" if why else ""


def _notes(run: Run, table: ScoreTable) -> list[str]:
    """One line per method with undefined scores; metrics with the same counts share a line."""
    notes = []
    for method in table.rows:
        labels: dict[str, list[str]] = defaultdict(list)
        for metric, label in table.labels.items():
            if (text := _undefined(run, table.place, method, metric)) is not None:
                labels[text].append(label.removesuffix(" ↓"))
        for text, names in labels.items():
            which = "" if len(labels) == 1 else f" in {', '.join(names)}"
            notes += [f"{method}{which}: {text}."] if text else []
    return notes


def _grids(run: Run) -> list[dict[str, Any]]:
    """All methods by all places, one grid per metric with scores, milliseconds last. The best methods on average are
    first, controls last.

    `ends` are the values of the darkest and the brightest colour.
    """
    grids = []
    for metric, about in run.metrics.items():
        scores: dict[Place, dict[str, Estimate]] = defaultdict(dict)
        for (scenario, background, masks), method in product(run.places, run.spec.methods):
            if score := run.estimate(scenario, background, method, metric, masks):
                scores[scenario, background, masks][method] = score
        if means := [score.mean for line in scores.values() for score in line.values()]:
            up = about["higher_is_better"]
            ends = (min(means), max(means)) if up else (max(means), min(means))
            columns = {place: _squares(run, place, metric, line, ends) for place, line in scores.items()}

            def order(method: str, scores: Any = scores, worst: float = ends[0], up: bool = up) -> tuple[bool, float]:
                mean = fmean(line[method].mean if method in line else worst for line in scores.values())
                return is_control(method), -mean if up else mean

            rows = {m: [column[m] for column in columns.values()] for m in sorted(run.spec.methods, key=order)}
            names = [_names(run)[place] for place in scores]
            shown = [number(end, metric) for end in ends]
            grids.append(
                {"metric": metric, "label": about["label"], "up": up, "names": names, "rows": rows, "ends": shown}
            )
    return grids


def _squares(
    run: Run, place: Place, metric: str, scores: dict[str, Estimate], ends: tuple[float, float]
) -> dict[str, dict[str, str]]:
    """Each method on one place: mean, what the mouse shows, mark and colours, as text."""
    scenario, background, masks = place
    up, log = run.metrics[metric]["higher_is_better"], metric == "milliseconds" and min(ends) > 0
    fair = [m for m in competing(run) if run.fair(scenario, background, m, metric, masks)]

    def lead(a: str, b: str) -> Estimate | None:
        return run.difference(scenario, background, metric, *((a, b) if up else (b, a)), masks)

    by_method = marks(scores, fair, lead, up=up)
    squares = {}
    for method in run.spec.methods:
        score, mark, colour, ink = scores.get(method), by_method.get(method, ""), "", ""
        if score is not None:
            value, worse, better = (math.log(x) if log else x for x in (score.mean, *ends))
            colour, ink = shade(0.5 if better == worse else (value - worse) / (better - worse))
        tip = "; ".join(filter(None, (interval(score, metric), MEANINGS.get(mark))))
        squares[method] = {"mean": mean(score, metric), "tip": tip, "mark": mark, "colour": colour, "ink": ink}
    return squares


def shade(position: float) -> tuple[str, str]:
    """Viridis colour at a position in 0..1, and black or white, whichever has more contrast on it; both as CSS."""
    colour = ramp("viridis")[round(255 * min(max(position, 0.0), 1.0))]
    # Relative luminance of an sRGB colour, as defined by WCAG.
    part = colour / 255
    linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    dark = float(linear @ (0.2126, 0.7152, 0.0722)) + 0.05
    return f"rgb({', '.join(map(str, colour))})", "#000" if dark / 0.05 > 1.05 / dark else "#fff"


@lru_cache
def ramp(colours: str) -> NDArray[np.uint8]:
    """256 colours (256,3) of a colour map."""
    return np.asarray(heat(np.linspace(0, 1, 256)[None], 1.0, colours)[0])
