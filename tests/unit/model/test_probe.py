import pytest
import torch
import torch.utils.checkpoint
from torch import nn

from agop.errors import InputError, ModelError
from agop.model.probe import input_gradients, rows_for
from tests import zoo


@pytest.mark.parametrize("kind", zoo.KINDS)
@pytest.mark.parametrize("targets", [None, torch.tensor([0, 1, 0, 1, 1])], ids=["predicted", "explicit"])
def test_one_pass_equals_the_per_sample_loop_also_in_training_mode(kind, targets):
    model, images, calls = zoo.build(kind), zoo.images(), []
    expected, classes = zoo.per_sample_loop(model, images, targets)
    model.train()
    model.register_forward_hook(lambda *_: calls.append(1))
    gradients = input_gradients(model, images, targets)
    torch.testing.assert_close(gradients.values, expected, rtol=1e-4, atol=1e-6)
    assert gradients.targets.tolist() == classes.tolist()
    assert len(calls) == (5 if kind == "batch norm without running statistics" else 1)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_under_no_grad_and_inference_mode(mode):
    model, images = zoo.build("batch norm and dropout"), zoo.images()
    expected = input_gradients(model, images).values
    with mode():
        inside = input_gradients(model, images.clone()).values
        assert not torch.is_grad_enabled()
    torch.testing.assert_close(inside, expected)


def test_frozen_parameters_and_float64_images_do_not_change_the_gradients():
    model, images = zoo.build("plain"), zoo.images()
    expected = input_gradients(model, images).values
    torch.testing.assert_close(input_gradients(model, images.double()).values, expected)
    torch.testing.assert_close(input_gradients(model.requires_grad_(False), images).values, expected)
    assert not any(p.requires_grad for p in model.parameters())


def test_bfloat16_model_accepts_float32_images():
    model, images = zoo.build("plain").bfloat16(), zoo.images()
    expected, _ = zoo.per_sample_loop(model, images.bfloat16())
    values = input_gradients(model, images).values
    assert values.dtype == torch.bfloat16
    torch.testing.assert_close(values, expected, rtol=0.1, atol=0.02)


def test_model_without_parameters():
    class Sums(nn.Module):
        def forward(self, x):
            return torch.stack([x.flatten(1).sum(1), 2 * x.flatten(1).sum(1)], dim=1)

    assert input_gradients(Sums(), torch.ones(2, 1, 3, 3)).values.unique().tolist() == [2]


def test_data_parallel_and_compiled_models_are_unwrapped():
    model, images = zoo.build("plain"), zoo.images()
    expected = input_gradients(model, images).values
    assert torch.equal(input_gradients(nn.DataParallel(model), images).values, expected)
    assert torch.equal(input_gradients(torch.compile(model), images).values, expected)


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(3, 8, 8), r"shape \(3, 8, 8\).*images\[None\]"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), "uint8.*/ 255"),
        (torch.zeros(0, 3, 8, 8), "at least one"),
        ([[1.0]], "list.*tensor"),
    ],
)
def test_invalid_images_raise(images, message):
    with pytest.raises(InputError, match=message):
        input_gradients(zoo.build("plain"), images)


def created_under_inference_mode():
    with torch.inference_mode():
        return zoo.build("plain")


class Detached(zoo.Wrapped):
    def forward(self, x):
        return super().forward(x.detach())


class Reentrant(zoo.Wrapped):
    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(super().forward, x, use_reentrant=True)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten()), r"\(5, 3, 12, 12\)"),
        (nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), "lazy"),
        (created_under_inference_mode(), "inference_mode"),
        (zoo.Wrapped(lambda logits: {"a": logits, "b": logits}), r"dict with keys \['a', 'b'\]"),
        (zoo.Wrapped(lambda logits: None), "NoneType"),
        (zoo.Wrapped(lambda logits: logits.sum()), r"shape \(\)"),
        (zoo.Wrapped(lambda logits: logits[:, :, None, None].expand(-1, -1, 4, 4)), r"\(5, 3, 4, 4\)"),
        (Detached(), "detach"),
        (Reentrant(), "use_reentrant=False"),
        (zoo.Wrapped(lambda logits: torch.zeros_like(logits) + torch.ones(3, requires_grad=True)), "does not depend"),
    ],
)
def test_models_without_input_gradients_raise(model, message):
    with pytest.raises(ModelError, match=message):
        input_gradients(model, zoo.images())


@pytest.mark.parametrize("classes", [1, 3])
def test_model_that_squeezes_its_output_works_for_one_image(classes):
    model = zoo.Wrapped(torch.squeeze, classes=classes)
    both = input_gradients(model, zoo.images(2)).values
    torch.testing.assert_close(input_gradients(model, zoo.images(2)[:1]).values, both[:1], rtol=1e-4, atol=1e-6)


def test_default_batch_size_follows_the_image_size():
    small, large = torch.zeros(1, 1, 8, 8), torch.zeros(1, 3, 224, 224)
    model = nn.Linear(1, 1)
    assert rows_for(small, None, model) == 4096
    assert 4096 > rows_for(large, None, model) >= 1
    assert rows_for(small, 7, model) == 7
    with pytest.raises(InputError, match="batch_size is 0"):
        rows_for(small, 0, model)
