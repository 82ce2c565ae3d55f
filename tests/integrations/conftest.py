import numpy as np
import pytest
from PIL import Image

from agop.bench.scenarios.clevr_render import render
from agop.bench.scenarios.clevr_scene import random_scene


@pytest.fixture(scope="session")
def photo(tmp_path_factory):
    """The file of a rendered scene in 4×4 tiles, wider than high. A whole one of this size renders for seconds."""
    path = tmp_path_factory.mktemp("photos") / "scene.png"
    Image.fromarray(np.tile(render(random_scene(1, 0), 120, 80), (4, 4, 1))).save(path)
    return path


@pytest.fixture(scope="session")
def transformers():
    return pytest.importorskip("transformers")
