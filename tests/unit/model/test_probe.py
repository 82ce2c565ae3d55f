import pytest
import torch
import torch.utils.checkpoint
from torch import nn

import agop
from agop.errors import InputError, ModelError
from agop.model.probe import input_gradients, rows_for
from tests import zoo


@pytest.mark.parametrize("kind", zoo.KINDS)
def test_one_backward_pass_equals_the_per_sample_loop(kind):
    model, images = zoo.build(kind), zoo.images()
    expected, classes = zoo.per_sample_loop(model, images)
    model.train()
    gradients = input_gradients(model, images)
    torch.testing.assert_close(gradients.values, expected, rtol=1e-4, atol=1e-6)
    assert gradients.targets.tolist() == classes.tolist()


@pytest.mark.parametrize("kind", ["plain", "one logit", "attention"])
def test_gradients_for_explicit_targets(kind):
    model, images = zoo.build(kind), zoo.images()
    targets = torch.tensor([0, 1, 0, 1, 1])
    expected, _ = zoo.per_sample_loop(model, images, targets)
    torch.testing.assert_close(input_gradients(model, images, targets).values, expected, rtol=1e-4, atol=1e-6)


def test_batch_takes_one_forward_pass():
    model, calls = zoo.build("batch norm and dropout"), []
    model.register_forward_hook(lambda *_: calls.append(1))
    input_gradients(model, zoo.images(40))
    assert len(calls) == 1


def test_samples_are_independent_even_if_the_model_is_in_training_mode():
    model, images = zoo.build("batch norm and dropout").train(), zoo.images()
    alone = torch.cat([input_gradients(model, image[None]).values for image in images])
    torch.testing.assert_close(input_gradients(model, images).values, alone, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_under_no_grad_and_inference_mode(mode):
    model, images = zoo.build("batch norm and dropout"), zoo.images()
    expected = input_gradients(model, images).values
    with mode():
        inside = input_gradients(model, images.clone()).values
        assert not torch.is_grad_enabled()
    torch.testing.assert_close(inside, expected)


def test_frozen_parameters_do_not_change_the_gradients():
    model, images = zoo.build("plain"), zoo.images()
    expected = input_gradients(model, images).values
    torch.testing.assert_close(input_gradients(model.requires_grad_(False), images).values, expected)
    assert not any(p.requires_grad for p in model.parameters())


def test_bfloat16_model_accepts_float32_images():
    model, images = zoo.build("plain").bfloat16(), zoo.images()
    expected, _ = zoo.per_sample_loop(model, images.bfloat16())
    values = input_gradients(model, images).values
    assert values.dtype == torch.bfloat16
    torch.testing.assert_close(values, expected, rtol=0.1, atol=0.02)


def test_float32_model_accepts_float64_images():
    model, images = zoo.build("plain"), zoo.images()
    torch.testing.assert_close(input_gradients(model, images.double()).values, input_gradients(model, images).values)


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


def test_images_are_not_changed():
    model, images = zoo.build("in-place first"), zoo.images()
    before = images.clone()
    input_gradients(model, images)
    assert torch.equal(images, before)
    assert not images.requires_grad


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


def test_wrong_number_of_channels_raises_with_the_shape():
    with pytest.raises(ModelError, match=r"\(2, 1, 12, 12\)"):
        input_gradients(zoo.build("plain"), torch.zeros(2, 1, 12, 12))


class Detached(zoo.Wrapped):
    def forward(self, x):
        return super().forward(x.detach())


class Reentrant(zoo.Wrapped):
    def forward(self, x):
        return torch.utils.checkpoint.checkpoint(super().forward, x, use_reentrant=True)


@pytest.mark.parametrize(
    ("model", "message"),
    [
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


def test_parameters_created_under_inference_mode_raise():
    with torch.inference_mode():
        model = zoo.build("plain")
    with pytest.raises(ModelError, match="inference_mode"):
        input_gradients(model, zoo.images())


def test_lazy_layers_raise():
    with pytest.raises(ModelError, match="lazy"):
        input_gradients(nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), zoo.images())


@pytest.mark.parametrize("classes", [1, 3])
def test_model_that_squeezes_its_output_works_for_one_image(classes):
    model = zoo.Wrapped(torch.squeeze, classes=classes)
    both = input_gradients(model, zoo.images(2)).values
    torch.testing.assert_close(input_gradients(model, zoo.images(2)[:1]).values, both[:1], rtol=1e-4, atol=1e-6)


def test_out_of_range_target_raises_with_the_sample():
    with pytest.raises(InputError, match=r"target 3 of sample 1 .* 3 classes"):
        input_gradients(zoo.build("plain"), zoo.images(2), torch.tensor([0, 3]))


def test_default_batch_size_follows_the_image_size():
    small, large = torch.zeros(1, 1, 8, 8), torch.zeros(1, 3, 224, 224)
    model = nn.Linear(1, 1)
    assert rows_for(small, None, model) > rows_for(large, None, model) >= 1
    assert rows_for(small, 7, model) == 7
    with pytest.raises(InputError, match="batch_size is 0"):
        rows_for(small, 0, model)


def test_input_gradients_is_public():
    assert agop.input_gradients is input_gradients
