"""The page of `agop app`: uploads that one model explains, as HTML in Gradio blocks."""

import shutil
import threading
import warnings
import zipfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any
from urllib.parse import urlsplit

import gradio
import numpy as np
from fastapi import FastAPI, Request, Response
from PIL import Image
from starlette.middleware.trustedhost import TrustedHostMiddleware

from agop import methods
from agop.errors import AGOPError, FileError, InputError, recorded_warnings
from agop.images import overlays
from agop.images.explained import Explained, Explainer, percent
from agop.images.explanation_folder import ExplanationFolder
from agop.images.files import class_name
from agop.images.overlays import COLOUR_MAPS, DEFAULT_COLOURING, DIVERGING, Colouring
from agop.images.preprocessing import Preprocessing, open_image
from agop.registry import unknown_name_error
from agop.web import environment

TITLE = "agop: what an image classifier looks at"
# Seconds after which uploads and downloads are removed, and between two looks at them.
_KEPT, _LOOK = 6 * 60 * 60, 60 * 60
# The browser then loads nothing from other machines, and doesn't show this page inside another.
_HEADERS = {
    "content-security-policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; frame-ancestors 'none'; "
    "form-action 'self'; base-uri 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
_DEFAULTS = ("agop", "integrated-gradients", "vanilla")
_LISTED_CLASSES = 5
_COLOURS = [name for name in COLOUR_MAPS if name != DIVERGING]  # the page's maps have no signs
MOST_BYTES = 20 * 2**20
# Gradio rejects all files of a drop if one is above its limit. Up to that limit, `read_upload` rejects just the one.
MOST_SENT_BYTES = 5 * MOST_BYTES
MOST_PIXELS = 50_000_000
MOST_FILES = 50
_MODES = {"1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB", "HSV"}
_TEMPLATES = environment(__package__)
_CALLED = (percent, class_name, overlays.data_uri, overlays.has_few_pixels)
_TEMPLATES.globals |= {function.__name__: function for function in _CALLED}


def read_upload(path: Path, preprocessing: Preprocessing) -> Image.Image:
    """The uploaded image, scaled and cropped for the model. Errors have the file's name, not its path."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, about odd metadata of images that it can read
            _check(path)
            return preprocessing.picture(path)
    except (OSError, MemoryError) as error:
        reason = getattr(error, "strerror", None) or str(error).removeprefix(f"{path} ") or "not enough memory"
        raise FileError(f"{path.name}: {reason}") from error


def _check(path: Path) -> None:
    """Raise if a limit is exceeded, before any pixel is decoded."""
    size = path.stat().st_size
    if size == 0:
        raise FileError("is empty: choose another file")
    if size > MOST_BYTES:
        raise FileError(f"has {size / 2**20:.1f} MB, the limit is {MOST_BYTES // 2**20} MB: make it smaller")
    with open_image(path) as file:
        millions, most = file.width * file.height / 1e6, MOST_PIXELS / 1e6
        if millions > most:
            raise FileError(f"has {millions:.0f} million pixels, the limit is {most:.0f} million: make it smaller")
        if file.mode not in _MODES and not file.mode.startswith("I;16"):
            raise FileError(f"has pixels of mode {file.mode}, not colours: save it with 8 or 16 bits per channel")


@dataclass(frozen=True)
class Outcome:
    """Explained images, messages about skipped files and methods, and warnings. All images have all methods left."""

    explainer: Explainer
    results: list[Explained]
    skipped: list[str]
    notes: list[str]


@dataclass(frozen=True)
class Session:
    """Explains uploads with one model, one request at a time. `about` says where the model came from."""

    explainer: Explainer
    classes: int
    about: dict[str, Any]
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    @property
    def busy(self) -> bool:
        """True while a request is running."""
        return self._lock.locked()

    def offered(self) -> list[str]:
        """Methods that work with the prior, or without one."""
        return methods.runnable(self.explainer.prior)

    def explain(
        self, files: Sequence[Path], names: Sequence[str], report: Callable[[float, str], None] = lambda *_: None
    ) -> Outcome:
        """Explain the files by the named methods. Unreadable files and failing methods are skipped with a message."""
        explainer = replace(self.explainer, methods=self._checked(names))
        skipped: list[str] = []
        if len(files) > MOST_FILES:
            skipped.append(f"{len(files)} files are too many: only the first {MOST_FILES} are explained")
            files = files[:MOST_FILES]
        results: list[Explained] = []
        read = partial(read_upload, preprocessing=explainer.preprocessing)
        with self._lock, recorded_warnings() as notes:
            report(0, f"image 1 of {len(files)}")
            for result in explainer.explained(files, skipped.append, read):
                results.append(replace(result, path=Path(result.path.name)))
                report(len(results) / len(files), f"image {len(results)} of {len(files)}")
        common = [name for name in explainer.methods if all(name in result.maps for result in results)]
        results = [replace(result, maps={name: result.maps[name] for name in common}) for result in results]
        return Outcome(replace(explainer, methods=common), results, skipped, notes)

    def _checked(self, names: Sequence[str]) -> list[str]:
        """The named methods in the registry's order. Raises for none, and for names that aren't offered."""
        if not names:
            raise InputError("no method selected: tick at least one")
        for name in names:
            if name not in methods.names():  # not methods.get: a request must not import a module of this machine
                raise unknown_name_error("method", name, self.offered())
            if reason := methods.lacking(name, self.explainer.prior):
                raise InputError(f"{name} can't run, {reason}: make one with `agop fit`, and pass it with --prior")
        return [name for name in methods.names() if name in names]


def write_zip(outcome: Outcome, about: dict[str, Any], parent: Path, colouring: Colouring = DEFAULT_COLOURING) -> Path:
    """Write explanations.zip to a new folder below `parent`, and return its path."""
    path = Path(mkdtemp(dir=parent)) / "explanations.zip"
    with TemporaryDirectory(dir=parent) as name, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        files = [result.path for result in outcome.results]
        folder = ExplanationFolder(Path(name), files, outcome.explainer, about, colouring=colouring)
        for result in outcome.results:
            folder.add(result)
        folder.finish(outcome.skipped)
        for file in sorted(path for path in Path(name).rglob("*") if path.is_file()):
            archive.write(file, f"explanations/{file.relative_to(name).as_posix()}")
    return path


def page_of(outcome: Outcome, colouring: Colouring = DEFAULT_COLOURING) -> str:
    """Boxes with skipped files and notes, then a card per image."""
    axes = {"own": "a pixel’s value, relative to its map’s top value", "common": "a pixel’s share of its map"}
    stops = overlays.heat(np.linspace(0, 1, 17)[None], 1.0, colouring.colours)[0].tolist()
    return _html(
        "results.html",
        boxes={"Skipped": outcome.skipped, "Notes": outcome.notes},
        cards=[_card(result, colouring) for result in outcome.results],
        names=outcome.explainer.names,
        axis=axes[colouring.scale],
        stops=",".join(f"rgb({r},{g},{b})" for r, g, b in stops),
    )


def _card(explained: Explained, colouring: Colouring) -> tuple[Any, ...]:
    """One image, its pictures with captions, the ticks of the colour bar if a map has colours, and likely classes."""
    file, picture = explained.path.name, explained.picture
    maps = {method: saliency.numpy() for method, saliency in explained.maps.items()}
    strengths, top = colouring.strengths(maps)
    figures = [("image", f"the image {file}", picture)]
    for method, strength in strengths.items():
        drawn = overlays.tile(picture, strength, colouring)
        figures.append((overlays.label(method, maps[method]), f"{method} of {file}", drawn))
    # On a square-root axis a quarter of the top share is in the middle.
    shares = (0.0, 0.5, 1.0) if colouring.scale == "own" else (0.0, top / 4, top)
    # Two significant digits: colours can't be read more precisely.
    ticks = [f"{100 * share:.2g}\u00a0%" if share < 0.995 else "100\u00a0%" for share in shares]
    likely = explained.probabilities.topk(min(_LISTED_CLASSES, len(explained.probabilities)))
    return explained, figures, ticks if top > 0 else [], zip(*(part.tolist() for part in likely), strict=True)


def _html(template: str, **values: Any) -> str:
    """A template with its values. Gradio also fills templates, so braces and dollar signs are escaped."""
    text = _TEMPLATES.get_template(template).render(values)
    return text.translate({ord(sign): f"&#{ord(sign)};" for sign in "${}`"})


@dataclass(eq=False)
class Page:
    """The page of a session. Uploads and downloads are below `folder`; `examples` are images to click."""

    session: Session
    folder: Path
    examples: Sequence[Path] = ()
    colouring: Colouring = DEFAULT_COLOURING

    def __post_init__(self) -> None:
        (self.folder / "examples").mkdir()  # Gradio serves files from this folder only
        self.examples = [Path(shutil.copy(path, self.folder / "examples")) for path in self.examples]

    def blocks(self) -> Any:
        """The page as Gradio blocks."""
        with gradio.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(_LOOK, _KEPT)) as blocks:
            limits = f"up to {MOST_FILES}, at most {MOST_BYTES // 2**20} MB each"
            gradio.Markdown(f"# {TITLE}\nDrop images ({limits}), select methods, see which pixels the model relies on.")
            gradio.HTML(_html("about.html", session=self.session), elem_id="about")
            with gradio.Row(equal_height=False):
                with gradio.Column(scale=1, min_width=300):
                    images = gradio.File(label="Images", file_count="multiple", height=180, elem_id="images")
                    gallery = self._gallery() if self.examples else None
                    names, colours = self._methods(), self._colours()
                    button = gradio.Button("Explain", variant="primary", elem_id="explain")
                    label = "Download maps, overlays and manifest (.zip)"
                    download = gradio.DownloadButton(label, visible=False, elem_id="download")
                with gradio.Column(scale=3, min_width=320):
                    answers = gradio.HTML(
                        '<p class="agop-model">Results appear here.</p>', elem_id="answers", apply_default_css=False
                    )
            event: dict[str, Any] = {
                "fn": self.explain, "inputs": [images, names, *colours], "outputs": [answers, download],
                "concurrency_id": "model", "api_visibility": "private",
            }  # fmt: skip
            button.click(**event)
            images.upload(**event)
            if gallery is not None:
                gallery.select(self.example, None, images, api_visibility="private").then(**event)
        return blocks.queue(api_open=False, default_concurrency_limit=1)

    def explain(
        self, files: Any, names: Any, scale: str, percentile: float, opacity: float, colours: str,
        progress: Any = gradio.Progress(),  # noqa: B008
    ) -> list[Any]:  # fmt: skip
        """HTML with the results, and the file to download."""
        try:
            colouring = Colouring(scale, percentile, opacity, colours)
            if not files:
                raise InputError("no image uploaded: drop one or more, and press Explain")
            outcome = self.session.explain([Path(file) for file in files], names, progress)
            complete = bool(outcome.results and outcome.explainer.methods)
            path = str(write_zip(outcome, self.session.about, self.folder, colouring)) if complete else None
        except (Exception, SystemExit) as error:  # a user's own model may raise anything
            message = str(error) if isinstance(error, AGOPError) else f"{type(error).__name__}: {error}"
            return [_html("results.html", boxes={"Error": [message]}, cards=[]), gradio.update(visible=False)]
        return [page_of(outcome, colouring), gradio.update(value=path, visible=complete)]

    def example(self, event: gradio.SelectData) -> list[str]:
        """The example image that was clicked, as an upload."""
        return [str(self.examples[event.index])]

    def _gallery(self) -> gradio.Gallery:
        gradio.Markdown("Or click an example: is there a T, upper left, or an L, lower right, in the noise?")
        return gradio.Gallery(
            [str(path) for path in self.examples], show_label=False, columns=3, height="auto", allow_preview=False,
            interactive=False, object_fit="contain", elem_id="examples", buttons=[],
        )  # fmt: skip

    def _methods(self) -> gradio.CheckboxGroup:
        """Checkboxes for the methods; those that need a missing AGOP file are only mentioned."""
        offered = self.session.offered()
        missing = [name for name in methods.names() if name not in offered]
        parts = "" if self.session.explainer.prior is None else " with patch matrix, sketch and image moments"
        info = f"{', '.join(missing)}: need an AGOP file{parts} (make one with `agop fit`, pass --prior)"
        defaults = [name for name in offered if name in _DEFAULTS]
        return gradio.CheckboxGroup(
            offered, value=defaults, label="Methods", info=info if missing else "", elem_id="methods"
        )

    def _colours(self) -> list[Any]:
        """Controls for the fields of a Colouring, in their order."""
        initial = self.colouring
        scales = [("each map on its own scale", "own"), ("one scale for all maps", "common")]
        with gradio.Accordion("Colours of the maps", open=False, elem_id="colours"):
            return [
                gradio.Radio(scales, value=initial.scale, label="Scale", elem_id="scale"),
                gradio.Slider(
                    min(50, initial.percentile), 100, initial.percentile, step=0.5, elem_id="percentile",
                    label="Percentile of a map's sum (100: no clipping)",
                ),
                gradio.Slider(0, 1, initial.opacity, step=0.05, label="Opacity", elem_id="opacity"),
                gradio.Dropdown(_COLOURS, value=initial.colours, label="Colour map", elem_id="colour-map"),
            ]  # fmt: skip


def application(page: Page, hosts: Sequence[str]) -> FastAPI:
    """The page as an ASGI app. Requests to other `hosts` and of other sites are rejected."""
    theme = gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    theme.set(block_info_text_color="*neutral_500", block_info_text_color_dark="*neutral_400")
    blocks = page.blocks()
    # Gradio checks that a request names uploaded files only if this is set. launch() sets it, mounting doesn't.
    blocks.has_launched = True
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.middleware("http")
    async def answer(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        # Gradio's strict_cors keeps other sites from reading answers, not from sending uploads.
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
            return Response("pages of other sites can't use this one\n", 403)
        response = await call_next(request)
        response.headers.update(_HEADERS)
        return response

    app.add_middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    gradio.mount_gradio_app(
        app, blocks, path="/", footer_links=[], run_history=False, max_file_size=MOST_SENT_BYTES, ssr_mode=False,
        enable_monitoring=False, pwa=False, mcp_server=False, theme=theme,
        css_paths=Path(__file__).with_name("page.css"),
    )  # fmt: skip
    return app
