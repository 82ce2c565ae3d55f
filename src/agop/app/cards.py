"""Results as HTML: a card per image, with its maps and their colour bar."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

from agop.app.session import Outcome, Session
from agop.pictures.class_names import class_name
from agop.pictures.colouring import DEFAULT_COLOURING, Colouring
from agop.pictures.data_uri import data_uri, has_few_pixels
from agop.pictures.explained import Explained
from agop.pictures.heat import Picture, heat
from agop.pictures.predictions import percent
from agop.pictures.sheets import label, tile

_LISTED_CLASSES = 5

STYLE = """
.agop-lines { margin: 0 0 12px; padding: 10px 14px; border-radius: 8px; border: 1px solid var(--border-color-primary);
  background: var(--background-fill-secondary); overflow-wrap: anywhere; }
.agop-model { margin: 0 0 4px; overflow-wrap: anywhere; }
.agop-lines.skipped { border-left: 4px solid #d9480f; }
.agop-lines b { display: block; }
.agop-lines ul { margin: 4px 0 0; padding-left: 20px; list-style: disc; }
.agop-card { margin: 0 0 16px; padding: 14px; border-radius: 8px; border: 1px solid var(--border-color-primary);
  background: var(--background-fill-primary); }
.agop-card h3 { margin: 0 0 10px; font-size: 1rem; font-weight: 600; overflow-wrap: anywhere; }
.agop-card h3 span { font-weight: 400; }
.agop-maps { display: grid; gap: 12px; grid-template-columns: repeat(auto-fill, minmax(min(150px, 42%), 1fr)); }
.agop-maps figure { margin: 0; display: flex; flex-direction: column; justify-content: flex-end; }
.agop-maps img { width: 100%; border-radius: 4px; display: block; }
.agop-maps img.few { image-rendering: pixelated; }
.agop-maps figcaption { font-size: 0.85rem; margin-bottom: 4px; overflow-wrap: anywhere; }
.agop-below { display: flex; flex-wrap: wrap; gap: 14px 32px; margin-top: 14px; font-size: 0.85rem; }
.agop-below > div { flex: 1 1 220px; max-width: 320px; }
.agop-bar { height: 12px; margin: 4px 0 2px; border-radius: 3px; }
.agop-ticks { display: flex; justify-content: space-between; font-variant-numeric: tabular-nums; }
.agop-below table { width: 100%; border-collapse: collapse; font-variant-numeric: tabular-nums; }
.agop-below td { padding: 1px 8px 1px 0; border: 0; overflow-wrap: anywhere; }
.agop-below td:last-child { text-align: right; width: 5em; padding-right: 0; white-space: nowrap; }
"""


def escape(text: str) -> str:
    """HTML that shows the text literally, also in Gradio, which fills templates with braces and dollar signs."""
    return html.escape(text).translate({ord(sign): f"&#{ord(sign)};" for sign in "${}`"})


def page_of(outcome: Outcome, colouring: Colouring = DEFAULT_COLOURING) -> str:
    """Boxes with skipped files and notes, then a card per image."""
    parts = [lines("Skipped", outcome.skipped, "skipped"), lines("Notes", outcome.notes, "notes")]
    return "".join(parts + [card(result, outcome.explainer.names, colouring) for result in outcome.results])


def lines(title: str, texts: Sequence[str], kind: str) -> str:
    """A box with a line per text; empty without texts."""
    if not texts:
        return ""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    role = "alert" if kind == "skipped" else "note"
    return f'<div class="agop-lines {kind}" role="{role}"><b>{escape(title)}</b><ul>{items}</ul></div>'


def about(session: Session) -> str:
    """The model, its input and its prior."""
    explainer = session.explainer
    size = "×".join(map(str, explainer.preprocessing.size))
    channels = "gray" if explainer.preprocessing.gray else "RGB"
    prior = "no AGOP file" if explainer.prior is None else repr(explainer.prior)
    name = f"<code>{escape(str(session.about['model']))}</code>"
    return f'<p class="agop-model">Model: {name}, {session.classes} classes, {size} {channels}; {escape(prior)}</p>'


def card(explained: Explained, names: Sequence[str], colouring: Colouring = DEFAULT_COLOURING) -> str:
    """One image: its prediction, its maps, and its most likely classes."""
    file = explained.path.name
    maps = {method: saliency.numpy() for method, saliency in explained.maps.items()}
    strengths, top = colouring.strengths(maps)
    figures = [_figure("image", f"the image {file}", explained.picture)]
    for method, strength in strengths.items():
        drawn = tile(explained.picture, strength, colouring)
        figures.append(_figure(label(method, maps[method]), f"{method} of {file}", drawn))
    return (
        f'<section class="agop-card"><h3>{escape(file)} <span>is predicted to be</span> '
        f"{escape(class_name(names, explained.predicted))} <span>({percent(explained.probability)})</span></h3>"
        f'<div class="agop-maps">{"".join(figures)}</div>'
        f'<div class="agop-below">{_bar(colouring, top)}{_classes(explained, names)}</div></section>'
    )


def _figure(caption: str, alternative: str, picture: Picture) -> str:
    few, address = has_few_pixels(picture), data_uri(picture)
    image = f'<img src="{address}" alt="{escape(alternative)}"{" class=few" if few else ""}>'
    return f"<figure><figcaption>{escape(caption)}</figcaption>{image}</figure>"


def _bar(colouring: Colouring, top: float) -> str:
    """The colour bar; empty if no map has colours."""
    if not top > 0:
        return ""
    if colouring.scale == "own":
        title, values = "a pixel’s value, relative to its map’s top value", (0.0, 0.5, 1.0)
    else:  # on a square-root axis a quarter of the top share is in the middle
        title, values = "a pixel’s share of its map", (0.0, top / 4, top)
    ticks = "".join(f"<span>{_percent(value)}</span>" for value in values)
    colours = heat(np.linspace(0, 1, 17)[None], 1.0, colouring.colours)[0].tolist()
    stops = ",".join(f"rgb({r},{g},{b})" for r, g, b in colours)
    bar = f'<div class="agop-bar" style="background: linear-gradient(to right,{stops})"></div>'
    return f'<div>{title}{bar}<div class="agop-ticks">{ticks}</div></div>'


def _classes(explained: Explained, names: Sequence[str]) -> str:
    values, classes = explained.probabilities.topk(min(_LISTED_CLASSES, len(explained.probabilities)))
    rows = "".join(
        f"<tr><td>{escape(class_name(names, index))}</td><td>{percent(value)}</td></tr>"
        for index, value in zip(classes.tolist(), values.tolist(), strict=True)
    )
    return f"<div>most likely classes<table>{rows}</table></div>"


def _percent(share: float) -> str:
    """Percent with two significant digits: colours can't be read more precisely."""
    return f"{100 * share:.2g}\u00a0%" if share < 0.995 else "100\u00a0%"
