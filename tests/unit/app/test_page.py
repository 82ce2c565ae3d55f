"""The page's folder, and the modules that import Gradio."""

from pathlib import Path

import agop
from agop.app.page import forget


def test_old_uploads_are_removed_and_examples_kept(tmp_path):
    for name in ("examples", "upload"):
        (tmp_path / name).mkdir()
    forget(tmp_path, 100)
    assert (tmp_path / "upload").exists()
    forget(tmp_path, -100)
    assert [path.name for path in tmp_path.iterdir()] == ["examples"]


def test_only_the_page_imports_gradio():
    source = Path(agop.__file__).parent
    assert [path.name for path in source.rglob("*.py") if "import gradio" in path.read_text()] == ["page.py"]
