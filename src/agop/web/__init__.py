"""What agop's HTML pages share: templates that escape all text, styles for light and dark, and tables to sort."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def environment(package: str) -> Environment:
    """The templates of a package, and the shared layout. Values are escaped unless they are Markup; an undefined one
    raises.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    loader = ChoiceLoader([PackageLoader(package), PackageLoader("agop.web")])
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )  # fmt: skip


def styles(package: str, *names: str) -> Markup:
    """The shared styles, and those of a package."""
    return _joined("agop.web", ("base", "table"), "css") + "\n" + _joined(package, names, "css")


def scripts(package: str, *names: str) -> Markup:
    """The shared scripts, and those of a package."""
    return _joined("agop.web", ("sort",), "js") + "\n" + _joined(package, names, "js")


def _joined(package: str, names: tuple[str, ...], ending: str) -> Markup:
    """Our own files, which are inserted verbatim."""
    from markupsafe import Markup

    folder = files(package).joinpath("templates")
    return Markup("\n".join(folder.joinpath(f"{name}.{ending}").read_text(encoding="utf-8") for name in names))
