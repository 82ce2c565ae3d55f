"""Options of the scenarios: wrong ones raise, and descriptions name the data."""

import pytest

from agop.bench.scenarios import get
from agop.errors import InputError, UnknownNameError


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("linear", {"size": 8}, InputError, "linear has no options: remove size"),
        ("linear-64", {"photo": "x"}, UnknownNameError, "did you mean 'photos'"),
        ("linear-64", {"samples": 7}, InputError, "samples is 7: pass an even number"),
        ("linear-64", {}, InputError, "photographs are missing: pass photos=FOLDER"),
        ("composite", {"digit": "x"}, UnknownNameError, "did you mean 'digits'"),
        ("composite", {"size": 28}, InputError, "size is 28: pass 32 or 64"),
        ("composite", {"samples": 3}, InputError, "samples is 3"),
        ("composite", {"samples": 100}, InputError, "photographs are missing: pass photos=FOLDER"),
        ("clevr-xai", {"network": "resnet81"}, UnknownNameError, "did you mean 'resnet18'"),
        ("clevr-xai", {"recipe": "shrot"}, UnknownNameError, "did you mean 'short'"),
        ("clevr-xai", {"network": "efficientnet-lite0", "weights": "x.pth"}, InputError, "has its own weights"),
        ("clevr-xai", {"samples": 3}, InputError, "samples is 3"),
        ("clevr-xai", {"sampels": 30}, UnknownNameError, "did you mean 'samples'"),
    ],
)
def test_wrong_options_raise(name, options, error, message):
    with pytest.raises(error, match=message):
        get(name).with_options(options).splits("photos", 0)


def test_a_folder_without_digits_raises(tmp_path):
    with pytest.raises(InputError, match="has no idx files"):
        get("composite").with_options({"samples": 100, "digits": str(tmp_path)}).splits("pink-noise", 0)


def test_descriptions_name_the_stand_ins():
    files = {"photos": "pictures"}
    assert "pink noise is a stand-in for photographs" in get("xor-64").description
    assert "photographs from pictures" in get("xor-64").with_options(files).description
    description = get("composite").description
    assert "digits in Pillow's font, a stand-in for MNIST" in description
    assert "pink noise, a stand-in for photographs" in description
    assert "stand-in" not in get("composite").with_options(files | {"digits": "mnist"}).description
