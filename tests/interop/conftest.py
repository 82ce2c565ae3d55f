import pytest
from PIL import Image

from agop.scenarios.clevr.render.images import render
from agop.scenarios.clevr.render.scene import random_scene


@pytest.fixture(scope="session")
def photo(tmp_path_factory):
    """The file of a rendered scene, wider than high."""
    path = tmp_path_factory.mktemp("photos") / "scene.png"
    Image.fromarray(render(random_scene(1, 0), 480, 320)).save(path)
    return path


@pytest.fixture(scope="session")
def transformers():
    return pytest.importorskip("transformers")
