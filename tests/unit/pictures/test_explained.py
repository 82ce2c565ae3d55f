"""The explaining loop."""

import pytest
import torch

import agop
from agop.errors import LayerError
from agop.networks import CNN8by8
from agop.pictures.explained import Explainer
from agop.pictures.formats import FORMATS
from tests.image_files import save_random

PREPROCESSING = agop.Preprocessing((8, 8), (0.5,), (0.5,), gray=True)


@pytest.fixture
def files(tmp_path):
    """Five images, the third unreadable."""
    save_random(tmp_path, *(f"{index}.png" for index in range(5)))
    (tmp_path / "2.png").write_text("text")
    return sorted(tmp_path.iterdir())


@pytest.fixture
def explainer():
    torch.manual_seed(0)
    return Explainer(CNN8by8(), ["vanilla", "smoothgrad"], PREPROCESSING, batch_size=2)


def test_unreadable_files_are_skipped_and_results_do_not_depend_on_the_batch_size(files, explainer):
    messages = []
    results = list(explainer.explained(files, messages.append))
    assert [result.path for result in results] == [*files[:2], *files[3:]]
    assert messages == [f"{files[2]} can't be read as an image: unknown format, use {', '.join(FORMATS)}"]
    other = Explainer(explainer.model, explainer.methods, PREPROCESSING)
    for one, two in zip(results, other.explained(files, print), strict=True):
        assert (one.path, one.predicted, one.target) == (two.path, two.predicted, two.target)
        torch.testing.assert_close(one.probabilities, two.probabilities)
        torch.testing.assert_close(one.maps, two.maps)


def test_failing_method_raises_unless_lenient(files):
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 2))
    with pytest.raises(LayerError):
        list(Explainer(model, ["vanilla", "gradcam"], PREPROCESSING).explained(files, print))
    messages = []
    lenient = Explainer(model, ["vanilla", "gradcam"], PREPROCESSING, batch_size=1, lenient=True)
    results = list(lenient.explained(files, messages.append))
    assert [list(result.maps) for result in results] == [["vanilla"]] * 4
    assert len([message for message in messages if message.startswith("gradcam: ")]) == 1


def test_caption_has_the_predicted_and_the_explained_class(files, explainer):
    [result] = explainer.explained(files[:1], print)
    other = 1 - result.predicted
    assert explainer.caption(result) == f"predicted class {result.predicted}"
    names = ["disc", "square"]
    named = Explainer(explainer.model, ["vanilla"], PREPROCESSING, target=other, names=names)
    [result] = named.explained(files[:1], print)
    assert named.caption(result) == f"predicted {names[result.predicted]}, explained {names[other]}"
