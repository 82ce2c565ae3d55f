"""The HTML page of a run: one self-contained file, built from the run folder alone."""

from __future__ import annotations

import re
from typing import Any

from agop.pictures.colouring import DEFAULT_COLOURING
from agop.report.advice import advice
from agop.report.claims import check, heading, remarks
from agop.report.image_choice import image_choices
from agop.report.numbers import counted
from agop.report.page import run_details
from agop.report.page.colours import gradient, inferno
from agop.report.page.cost import cost_points
from agop.report.page.eigenvector_view import eigenvector_views
from agop.report.page.gallery_view import gallery_view, selection
from agop.report.page.map_bytes import base64_text
from agop.report.page.table_view import table_views
from agop.report.page.training_history import training_history
from agop.report.page.winner_grids import winner_grids
from agop.report.published import comparisons, published
from agop.report.run import Run
from agop.report.winners import headline
from agop.runs.controls import CONTROLS
from agop.web import environment, scripts, styles

_STYLES = ("bars", "tables", "gallery", "charts", "eigenvectors")
_SCRIPTS = ("core", "theme", "place", "glance", "tips", "tables", "edges", "maps", "gallery", "charts", "convergence",
            "labels", "cost", "downloads")  # fmt: skip


def page(run: Run) -> str:
    """The whole page as HTML."""
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    templates = environment(__name__)
    templates.policies["json.dumps_kwargs"] = {"sort_keys": False}  # the order of methods is the run's
    # Our own files and plotly's are inserted verbatim; the templates escape all text from the run.
    own = {
        "styles": styles(__name__, *_STYLES),
        "scripts": scripts(__name__, *_SCRIPTS),
        "plotly": Markup(get_plotlyjs()),
    }
    templates.filters["breakable"] = _breakable
    return templates.get_template("page.html").render(**own, **_content(run))


def _breakable(name: str) -> str:
    """The name as HTML that may break after punctuation."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"([-_/@])(?=\w)", r"\1<wbr>", str(escape(name))))


def _content(run: Run) -> dict[str, Any]:
    """Variables of the templates; `data` is what the scripts draw."""
    data = _data(run)
    choice_metric, choices = image_choices(run)
    galleries = [cell["gallery"] for cell in data["cells"] if cell["gallery"]]
    return {
        "run": run,
        "title": f"{run.spec.benchmark if run.spec.epochs else run.spec.scenarios[0]}: attribution scores",
        "sentence": _sentence(run),
        "advice": advice(run),
        "grids": winner_grids(run),
        "gradient": gradient(),
        "claims": check(run),
        "claims_heading": heading(run).replace("'", "’"),
        "remarks": remarks(run),
        "tables": table_views(run),
        "comparisons": comparisons(run),
        "published": published(),
        "choices": choices,
        "choice_label": run.metrics[choice_metric]["label"],
        "data": data,
        "has_gallery": bool(galleries),
        "selection": selection(run, max(galleries, key=lambda view: len(view["pictures"]))) if galleries else "",
        "controls": [method for method in run.spec.methods if method in CONTROLS],
        "convergence": any(cell["training"] for cell in data["cells"]),
        "eigenvectors": eigenvector_views(run),
        "facts": run_details.facts(run),
        "definitions": run_details.definitions(run),
        "methods": run_details.methods(run),
        "raw": run_details.raw(run),
    }


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
                "cost": cost_points(run, (s, b, k)),
            }
            for s, b, k in run.places
        ],
        "cells": [{"gallery": gallery_view(run, *cell), "training": training_history(run, *cell)} for cell in cells],
        "metrics": {name: about["label"] for name, about in run.metrics.items()},
        "methods": list(run.spec.methods),
        "variants": list(run.spec.sensitivity),
        "quality": {"name": metric, "label": about["label"], "up": about["higher_is_better"]},
        "colours": base64_text(inferno()),
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
