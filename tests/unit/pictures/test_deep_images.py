"""Images with more than 8 bits per channel."""

import numpy as np
import pytest
from PIL import Image

from agop.errors import FileError
from agop.pictures.preprocessing import Preprocessing

GRAY = Preprocessing((4, 4), gray=True)
RAMP = np.linspace(0, 1, 16).reshape(4, 4)


@pytest.mark.parametrize(
    "pixels",
    [(RAMP * 255).astype(np.uint8), (RAMP * 65535).astype(np.uint16), RAMP.astype(np.float32)],
    ids=["8 bits", "16 bits", "float"],
)
def test_depth_does_not_change_the_values(pixels, tmp_path):
    Image.fromarray(pixels).save(tmp_path / "ramp.tiff")
    tensor = GRAY.tensor(GRAY.picture(tmp_path / "ramp.tiff"))
    assert np.abs(tensor[0].numpy() - RAMP).max() < 1 / 128


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        ((RAMP * 300).astype(np.float32), r"float values from 0 to 300.*scale them to 0\.\.1"),
        ((RAMP - 1).astype(np.float32), r"float values from -1 to 0"),
        (np.full((4, 4), np.nan, np.float32), "float values from nan to nan"),
        ((RAMP * 2**31 * 0.9).astype(np.int32), "32-bit integers.*save it with 8 or 16 bits"),
    ],
    ids=["above 1", "negative", "NaN", "32 bits"],
)
def test_depths_without_a_known_range_raise(pixels, message, tmp_path):
    Image.fromarray(pixels).save(tmp_path / "deep.tiff")
    with pytest.raises(FileError, match=message):
        GRAY.picture(tmp_path / "deep.tiff")
