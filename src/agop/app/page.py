"""The page. The only module that imports Gradio: import it after `check_installed`."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gradio
from fastapi import FastAPI

from agop import methods
from agop.app import cards
from agop.app.folder import write_zip
from agop.app.guard import Guard
from agop.app.session import Session
from agop.app.storage import Storage
from agop.app.upload_limit import UploadLimit
from agop.app.uploads import MOST_BYTES, MOST_FILES, MOST_SENT_BYTES
from agop.errors import AGOPError, InputError
from agop.pictures.colouring import DEFAULT_COLOURING, Colouring
from agop.pictures.heat import COLOUR_MAPS

TITLE = "agop: what an image classifier looks at"
# Gradio has no options for these: the footer, padding, and the gallery's grid. The class names are Gradio's own.
_GRADIO_STYLE = """
footer { display: none !important; }
#about, #answers, #about .html-container, #answers .html-container { padding: 0; }
#examples { outline: none; border: 0; }
#examples img { image-rendering: pixelated; }
#examples .grid-wrap { min-height: 0; padding: 0; }
#examples .grid-container { grid-template-columns: repeat(3, minmax(0, 1fr)); margin: 0; }
#examples .thumbnail-item { width: 100%; min-width: 0; height: auto; aspect-ratio: 1; }
"""
_EMPTY = '<p class="agop-model">Results appear here.</p>'
_EXAMPLES = "examples"
_DEFAULTS = ("agop", "integrated-gradients", "vanilla")


class Page:
    """The page of a session. Uploads and downloads are below `folder`; `examples` are images to click."""

    def __init__(
        self,
        session: Session,
        folder: Path,
        examples: Sequence[Path] = (),
        colouring: Colouring = DEFAULT_COLOURING,
    ) -> None:
        self.session, self.folder, self.colouring = session, folder, colouring
        self.storage = Storage(folder, _EXAMPLES)
        (folder / _EXAMPLES).mkdir()  # Gradio serves files from this folder only
        self.examples = [Path(shutil.copy(path, folder / _EXAMPLES)) for path in examples]

    def blocks(self) -> Any:
        """The page as Gradio blocks."""
        with gradio.Blocks(title=TITLE, analytics_enabled=False) as blocks:
            limits = f"up to {MOST_FILES}, at most {MOST_BYTES // 2**20} MB each"
            gradio.Markdown(f"# {TITLE}\nDrop images ({limits}), select methods, see which pixels the model relies on.")
            gradio.HTML(cards.about(self.session), elem_id="about")
            with gradio.Row(equal_height=False):
                with gradio.Column(scale=1, min_width=300):
                    images = gradio.File(label="Images", file_count="multiple", height=180, elem_id="images")
                    gallery = self._gallery() if self.examples else None
                    names, colours = self._methods(), self._colours()
                    button = gradio.Button("Explain", variant="primary", elem_id="explain")
                    label = "Download maps, overlays and manifest (.zip)"
                    download = gradio.DownloadButton(label, visible=False, elem_id="download")
                with gradio.Column(scale=3, min_width=320):
                    answers = gradio.HTML(_EMPTY, elem_id="answers", apply_default_css=False)
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
            self.storage.forget()
            colouring = Colouring(scale, percentile, opacity, colours)
            if not files:
                raise InputError("no image uploaded: drop one or more, and press Explain")
            outcome = self.session.explain([Path(file) for file in files], names, progress)
            complete = bool(outcome.results and outcome.explainer.methods)
            path = str(write_zip(outcome, self.session.about, self.folder, colouring)) if complete else None
        except (Exception, SystemExit) as error:  # a user's own model may raise anything
            message = str(error) if isinstance(error, AGOPError) else f"{type(error).__name__}: {error}"
            return [cards.lines("Error", [message], "skipped"), gradio.update(visible=False)]
        return [cards.page_of(outcome, colouring), gradio.update(value=path, visible=complete)]

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
                gradio.Dropdown(list(COLOUR_MAPS), value=initial.colours, label="Colour map", elem_id="colour-map"),
            ]  # fmt: skip


def application(page: Page, host: str) -> Guard:
    """The page as an ASGI app, behind its guard."""
    theme = gradio.themes.Default(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    theme.set(block_info_text_color="*neutral_500", block_info_text_color_dark="*neutral_400")
    blocks = page.blocks()
    # Gradio checks that a request names uploaded files only if this is set. launch() sets it, mounting doesn't.
    blocks.has_launched = True
    app = gradio.mount_gradio_app(
        FastAPI(docs_url=None, redoc_url=None, openapi_url=None), blocks, path="/", footer_links=[],
        run_history=False, max_file_size=MOST_SENT_BYTES, ssr_mode=False, enable_monitoring=False, pwa=False,
        mcp_server=False, theme=theme, css=cards.STYLE + _GRADIO_STYLE,
    )  # fmt: skip
    return Guard(UploadLimit(app, page.storage), host)
