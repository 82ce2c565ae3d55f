"""The page itself, in Gradio's words."""

from __future__ import annotations

import shutil
import time
from dataclasses import astuple
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

from agop import methods
from agop.app import cards, example
from agop.app.fields import Fields
from agop.app.folder import zipped
from agop.app.session import Report, Session
from agop.app.uploads import MOST_BYTES, MOST_FILES
from agop.errors import AGOPError, InputError

TITLE = "agop: what an image classifier looks at"
STYLE = (
    cards.STYLE
    + """
footer { display: none !important; }
.agop-loaded { margin: 0 0 4px; overflow-wrap: anywhere; }
#about, #answers { padding: 0; }
#about .html-container, #answers .html-container { padding: 0; }
#examples img { image-rendering: pixelated; }
#examples .grid-wrap { min-height: 0; padding: 0; }
#examples { outline: none; border: 0; }
#examples .grid-container { grid-template-columns: repeat(3, minmax(0, 1fr)); margin: 0; }
#examples .thumbnail-item { width: 100%; min-width: 0; height: auto; aspect-ratio: 1; }
"""
)
_LABELS = {
    "model": ("Model", "package.module:function, torchvision:NAME, timm:NAME, hf:FOLDER or FILE.pt2"),
    "weights": ("Weights", "a .safetensors file on this machine, if the model does not come with them"),
    "prior": ("AGOP file", "a .safetensors file from `agop fit` or a hook, for the agop methods"),
    "classes": ("Classes", "of a library’s model"),
    "size": ("Size", "224 or HEIGHTxWIDTH; empty: the AGOP file’s or the model’s"),
    "mean": ("Mean", "0.5 or 0.5,0.5,0.5; or empty"),
    "std": ("Standard deviation", "likewise"),
    "gray": ("One channel (grey)", ""),
    "layer": ("Layer for GradCAM", "by name; empty: the last that fits"),
    "names": ("Names of the classes", "a text file on this machine, one name a line"),
}
Parts = tuple[Any, ...]
_ROWS = ((("model", "weights"), 320), (("prior", "names"), 320), (("classes", "size", "mean", "std", "layer"), 150))
_EXAMPLES, _KEPT_SECONDS = "examples", 6 * 60 * 60
_DEFAULTS = ("agop-weighted", "integrated-gradients", "vanilla")


class Page:
    """The page of a session. With `fixed`, the model is that of the command line and the page cannot change it."""

    def __init__(self, session: Session, folder: Path, fixed: bool) -> None:
        self.session, self.folder, self.fixed = session, folder, fixed
        self._begun_with = session.loaded
        (folder / _EXAMPLES).mkdir()
        self.examples = [Path(shutil.copy(path, folder / _EXAMPLES)) for path in example.pictures()]

    def blocks(self) -> Any:
        """The page as Gradio blocks."""
        import gradio

        with gradio.Blocks(title=TITLE, analytics_enabled=False) as blocks:
            most = f"up to {MOST_FILES} of at most {MOST_BYTES // 2**20} MB each"
            gradio.Markdown(f"# {TITLE}\nDrop pictures ({most}), choose methods, see which pixels the model relies on.")
            about = gradio.HTML(cards.about(self.session.loaded), elem_id="about")
            texts = [] if self.fixed else self._fields()
            with gradio.Row(equal_height=False):
                with gradio.Column(scale=1, min_width=300):
                    pictures, examples, group = self._pictures()
                    chosen = gradio.CheckboxGroup(**self._offered(), elem_id="methods")
                    start = gradio.Button("Explain", variant="primary", elem_id="explain")
                    download = gradio.DownloadButton(
                        "Download maps, overlays and manifest (.zip)", visible=False, elem_id="download"
                    )
                with gradio.Column(scale=3, min_width=320):
                    answers = gradio.HTML(_EMPTY, elem_id="answers", apply_default_css=False)
            self._wire(blocks, texts, about, (pictures, examples, group, chosen, start), (answers, download))
        return blocks.queue(api_open=False, default_concurrency_limit=1)

    def _wire(self, blocks: Any, texts: list[Any], about: Any, asking: Parts, answering: Parts) -> None:
        """Say what happens when; without fields nothing here can load a model."""
        import gradio

        def explain(files: Any, names: Any, progress: Any = gradio.Progress()) -> list[Any]:  # noqa: B008
            return self.explain(files, names, progress)

        def example(event: Any) -> list[str]:
            return [str(self.examples[event.index])]

        # Gradio tells by the type what to give; a name from inside a function it could not look up.
        example.__annotations__ = {"event": gradio.SelectData}
        pictures, examples, group, chosen, start = asking
        one_by_one = {"concurrency_id": "model", "api_visibility": "private"}
        asked = {"fn": explain, "inputs": [pictures, chosen], "outputs": [*answering, about], **one_by_one}
        start.click(**asked)
        pictures.upload(**asked)
        examples.select(example, None, pictures, api_visibility="private").then(**asked)
        if texts:
            *inputs, button = texts
            shown = [about, chosen, group]
            button.click(self.load, inputs, shown, **one_by_one)
            blocks.load(self.current, None, [*inputs, *shown], **one_by_one)

    def load(self, *texts: Any) -> list[Any]:
        """Load what the fields say; an error leaves what was loaded."""
        try:
            stripped: list[Any] = [text.strip() if isinstance(text, str) else text for text in texts]
            notes = self.session.load(Fields(*stripped))
        except Exception as error:  # a user's own model may raise anything
            told = cards.lines("Not loaded", [_plain(error)], "refused")
            return [told + cards.about(self.session.loaded), *self._choices()]
        return [cards.about(self.session.loaded, notes), *self._choices()]

    def current(self) -> list[Any]:
        """The fields and choices for what is loaded, for a page that is opened anew.

        Nothing if it is what the page was made with: an answer that comes late would undo what was chosen meanwhile.
        """
        import gradio

        if self.session.loaded is self._begun_with:
            return [gradio.update()] * (len(fields_of(Fields)) + 3)
        return [*astuple(self.session.loaded.fields), cards.about(self.session.loaded), *self._choices()]

    def explain(self, files: list[str] | None, chosen: list[str], report: Report) -> list[Any]:
        """The answers for the pictures, the file to download, and what was asked: another tab may have loaded it."""
        import gradio

        forget(self.folder)
        try:
            if not files:
                raise InputError("there is no picture: drop one, or several, and press Explain")
            outcome = self.session.explain([Path(file) for file in files], chosen, report)
            ready = bool(outcome.results and outcome.methods)
            path = str(zipped(outcome, self.folder)) if ready else None
        except Exception as error:  # a user's own model may raise anything
            told = cards.lines("Nothing was explained", [_plain(error)], "refused")
            return [told, gradio.update(visible=False), cards.about(self.session.loaded)]
        return [cards.page_of(outcome), gradio.update(value=path, visible=ready), cards.about(outcome.loaded)]

    def _fields(self) -> list[Any]:
        """A component a field, in order, and the button that loads."""
        import gradio

        now = self.session.loaded.fields
        made: dict[str, Any] = {}
        with gradio.Accordion("Model", open=False, elem_id="model"):
            for row, width in _ROWS:
                with gradio.Row():
                    for name in row:
                        label, info = _LABELS[name]
                        made[name] = gradio.Textbox(
                            getattr(now, name), label=label, info=info, lines=1, max_lines=1, min_width=width,
                            elem_id=f"field-{name}",
                        )  # fmt: skip
            made["gray"] = gradio.Checkbox(now.gray, label=_LABELS["gray"][0], elem_id="field-gray")
            load = gradio.Button("Load", elem_id="load")
        return [*(made[field.name] for field in fields_of(Fields)), load]

    def _pictures(self) -> Parts:
        import gradio

        pictures = gradio.File(label="Pictures", file_count="multiple", height=180, elem_id="pictures")
        with gradio.Column(visible=self._is_example(), min_width=0) as group:
            gradio.Markdown("Or click an example: is there a T, upper left, or an L, lower right, in the noise?")
            examples = gradio.Gallery(
                [str(path) for path in self.examples], show_label=False, columns=3, height="auto", allow_preview=False,
                interactive=False, object_fit="contain", elem_id="examples", buttons=[],
            )  # fmt: skip
        return pictures, examples, group

    def _is_example(self) -> bool:
        return self.session.loaded.fields == example.fields()

    def _offered(self) -> dict[str, Any]:
        """The methods to choose from; those that need an AGOP file are named, but not offered, without one."""
        offered = self.session.loaded.offered()
        missing = [name for name in methods.names() if name not in offered]
        info = f"{', '.join(missing)}: need an AGOP file of this model (`agop fit` makes one)." if missing else ""
        defaults = [name for name in offered if name in _DEFAULTS]
        return {"choices": offered, "value": defaults, "label": "Methods", "info": info}

    def _choices(self) -> list[Any]:
        import gradio

        return [gradio.update(**self._offered()), gradio.update(visible=self._is_example())]


def forget(folder: Path, seconds: float = _KEPT_SECONDS) -> None:
    """Remove what was uploaded to the folder, and what was made for download, so long ago."""
    for old in folder.iterdir():
        if old.name != _EXAMPLES and old.stat().st_mtime < time.time() - seconds:
            shutil.rmtree(old, ignore_errors=True)


_EMPTY = '<p class="agop-loaded">Results appear here.</p>'


def _plain(error: Exception) -> str:
    return str(error) if isinstance(error, AGOPError) else f"{type(error).__name__}: {error}"
