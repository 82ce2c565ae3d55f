"""Masked classes, batch norms without running statistics, large tensors, and the number of images per pass."""

import numpy as np
import pytest
import torch
from torch import nn

import agop
from agop.errors import GradientError, InputError
from agop.model.fingerprint import fingerprint
from agop.model.probe import input_gradients, rows_for
from tests import zoo


class Masked(nn.Module):
    """A network that sets the logits of some classes to a constant."""

    def __init__(self, classes, value):
        super().__init__()
        self.net, self.classes, self.value = zoo.build("plain").eval(), classes, value

    def forward(self, images):
        return self.net(images).index_fill(1, torch.tensor(self.classes), self.value)


def test_masked_classes_do_not_make_gradients_invalid():
    images, model = zoo.images(4), Masked([0], -torch.inf)
    targets = torch.full((4,), 2)
    expected = input_gradients(model.net, images, targets)
    assert torch.equal(input_gradients(model, images, targets).values, expected.values)
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    assert prior.count == 4


@pytest.mark.parametrize(("value", "target"), [(-torch.inf, 0), (torch.inf, 2), (torch.nan, 2)])
def test_masked_target_and_other_infinite_logits_still_raise(value, target):
    with pytest.raises(GradientError, match="sample 0"):
        agop.explain(Masked([0], value), zoo.images(2), "vanilla", target=target)


@pytest.mark.filterwarnings("ignore:the map of layer")
@pytest.mark.parametrize("method", ["gradcam", "gradcam++"])
def test_gradcam_does_not_depend_on_the_batch_without_running_statistics(method):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6, track_running_stats=False), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3),
    )  # fmt: skip
    images = zoo.images(5)
    alone = torch.cat([agop.explain(model, image[None], method, target=1) for image in images])
    torch.testing.assert_close(agop.explain(model, images, method, target=1), alone)


def test_fingerprint_of_a_tensor_with_more_than_2_to_the_24_elements():
    """float32 can't represent such indices: the last one would lie beyond the end."""
    size = 2**24 + 4
    model = nn.Module()
    model.register_buffer("table", torch.from_numpy(np.zeros(size, dtype=np.float16)))
    before = fingerprint(model)
    model.table[-1] = 1
    assert fingerprint(model) != before


def test_images_per_pass_follow_the_device_of_the_model():
    images = torch.zeros(2, 1, 32, 32)
    on_cpu, elsewhere = nn.Linear(1, 1), nn.Linear(1, 1, device="meta")
    assert rows_for(images, None, elsewhere) == 8 * rows_for(images, None, on_cpu)
    assert rows_for(images, 5, elsewhere) == 5


@pytest.mark.parametrize("maps", [torch.ones(2, 8, 7), -torch.ones(2, 8, 8), "text"], ids=["shape", "negative", "type"])
def test_maps_of_methods_without_a_model_are_checked(maps):
    class Fixed(agop.methods.Method):
        needs_model = False

        def maps(self, job):
            return maps

    method = Fixed()
    object.__setattr__(method, "name", "fixed")  # on the class, a name would register it
    with pytest.raises(InputError, match=r"fixed returned .*: its maps\(\) must return a non-negative tensor"):
        agop.explain(zoo.build("plain"), torch.zeros(2, 3, 8, 8), method)


def test_resumed_counts_are_on_the_cpu(monkeypatch):
    """torch.load(map_location="cuda") moves them to the GPU."""
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    hook.step(zoo.images(2))
    moved = []
    monkeypatch.setattr(torch.Tensor, "cpu", lambda tensor: moved.append(tensor) or tensor.clone())
    state = hook.state_dict()
    moved.clear()
    hook.load_state_dict(state)
    assert any(tensor is state["sums"]["counts"] for tensor in moved)
