"""Gradients of any model, and the errors of models, images, targets and labels."""

import copy

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

import agop
from agop.errors import AGOPWarning, GradientError, InputError, ModelError, PriorError
from tests import zoo


@pytest.mark.parametrize("kind", zoo.KINDS)
@pytest.mark.parametrize("targets", [None, torch.tensor([0, 1, 0, 1, 1])], ids=["predicted", "explicit"])
def test_one_pass_equals_the_per_sample_loop_also_in_training_mode(kind, targets):
    model, images, calls = zoo.build(kind), zoo.images(), []
    expected, classes = zoo.per_sample_loop(model, images, targets)
    model.train()
    model.register_forward_hook(lambda *_: calls.append(1))
    gradients = agop.input_gradients(model, images, targets)
    torch.testing.assert_close(gradients.values, expected, rtol=1e-4, atol=1e-6)
    assert gradients.targets.tolist() == classes.tolist()
    assert len(calls) == (5 if kind == "batch norm without running statistics" else 1)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_under_no_grad_and_inference_mode(mode):
    model, images = zoo.build("batch norm and dropout"), zoo.images()
    expected = agop.input_gradients(model, images).values
    with mode():
        inside = agop.input_gradients(model, images.clone()).values
        assert not torch.is_grad_enabled()
    torch.testing.assert_close(inside, expected)


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
        agop.input_gradients(zoo.build("plain"), images)


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
        agop.input_gradients(model, zoo.images())


@pytest.mark.parametrize("classes", [1, 3])
def test_model_that_squeezes_its_output_works_for_one_image(classes):
    model = zoo.Wrapped(torch.squeeze, classes=classes)
    both = agop.input_gradients(model, zoo.images(2)).values
    torch.testing.assert_close(agop.input_gradients(model, zoo.images(2)[:1]).values, both[:1], rtol=1e-4, atol=1e-6)


def masked(value):
    """A network that sets the logit of class 0 to a constant."""
    return zoo.Wrapped(lambda logits: logits.index_fill(1, torch.tensor([0]), value))


def test_masked_classes_do_not_make_gradients_invalid():
    images, model = zoo.images(4), masked(-torch.inf)
    targets = torch.full((4,), 2)
    expected = agop.input_gradients(model.body, images, targets)
    assert torch.equal(agop.input_gradients(model, images, targets).values, expected.values)
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    assert prior.count == 4


@pytest.mark.parametrize(("value", "target"), [(-torch.inf, 0), (torch.inf, 2), (torch.nan, 2)])
def test_masked_target_and_other_infinite_logits_still_raise(value, target):
    with pytest.raises(GradientError, match="sample 0"):
        agop.explain(masked(value), zoo.images(2), "vanilla", target=target)


@pytest.mark.parametrize("method", ["gradcam", "gradcam++"])
def test_gradcam_does_not_depend_on_the_batch_without_running_statistics(method):
    model, images = zoo.build("batch norm without running statistics"), zoo.images(5)
    alone = torch.cat([agop.explain(model, image[None], method, target=1) for image in images])
    torch.testing.assert_close(agop.explain(model, images, method, target=1), alone)


def test_a_change_in_a_tensor_with_more_than_2_to_the_24_elements_is_noticed():
    """float32 can't represent such indices: the last one would lie beyond the end."""
    model = zoo.build("plain")
    model.register_buffer("table", torch.zeros(2**24 + 4, dtype=torch.float16))
    prior = agop.AGOP(torch.ones(3, 12, 12), 5, provenance=agop.fit(model, [zoo.images()], False).provenance)
    model.table[-1] = 1
    with pytest.warns(AGOPWarning, match="other weights"):
        prior.check(model, zoo.images())


def test_images_per_pass_are_bounded_by_default():
    model, rows = nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), []
    model.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    agop.explain(model, torch.zeros(5000, 1, 4, 4), "vanilla")
    assert max(rows) == 4096


def test_targets_are_one_class_or_one_per_image_and_labels_may_be_those_of_binary_losses():
    model, images = zoo.build("plain"), zoo.images(3)
    for targets in (2, [2, 2, 2], torch.tensor([2.0, 2.0, 2.0]), torch.tensor(2)):
        assert agop.input_gradients(model, images, targets).targets.tolist() == [2, 2, 2]
    prior = agop.fit(zoo.build("one logit"), [(images, torch.tensor([[1.0], [0.0], [1.0]]))], False, progress=False)
    assert prior.provenance.labelled == 3


@pytest.mark.parametrize(
    ("targets", "message"),
    [([0, 1], r"shape \(2,\) for 3 images"), (0.5, "fractions"), ("cat", "cat"), ([True, False, True], "bool"),
     (torch.zeros(3, 1), r"shape \(3, 1\)"), ([0, 3, 2], r"target 3 of sample 1 .*0 to 2"), (-1, "target -1")],
)  # fmt: skip
def test_invalid_targets_raise(targets, message):
    with pytest.raises(InputError, match=message):
        agop.input_gradients(zoo.build("plain"), zoo.images(3), targets)


@pytest.mark.parametrize(
    ("labels", "message"),
    [(torch.eye(3), r"argmax"), ([0, 1], r"\(2,\) for 3"), (torch.tensor([0.5, 1, 0]), "fractions"),
     (torch.tensor([float("nan"), 0, 0]), "NaN"), ([0, 3, 2], "label 3 of sample 1 .*0 to 2")],
)  # fmt: skip
def test_invalid_labels_raise(labels, message):
    with pytest.raises(InputError, match=message):
        agop.fit(zoo.build("plain"), [(zoo.images(3), labels)], progress=False)


@pytest.mark.parametrize("compiled", ["the model", "a layer"])
def test_compiled_models_are_explained_as_they_were_before(compiled):
    """A graph that was compiled in an earlier call ignores hooks that are registered later."""
    plain, images = zoo.build("batch norm and dropout").eval(), zoo.images(8)
    expected = agop.fit(plain, [images], only_correct=False, progress=False)
    model = copy.deepcopy(plain)
    if compiled == "the model":
        model.compile(backend="eager")
    else:
        model[0] = torch.compile(model[0], backend="eager")
    model(images)
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    torch.testing.assert_close(prior.patch_matrix, expected.patch_matrix)
    layer = "0" if compiled == "the model" else "0._orig_mod"
    maps = agop.explain(model, images, "gradcam", layer=layer)
    torch.testing.assert_close(maps, agop.explain(plain, images, "gradcam", layer="0"))


def test_softmax_of_a_compiled_model_is_bypassed():
    plain, images = nn.Sequential(zoo.build("plain"), nn.Softmax(dim=1)), zoo.images(4)
    model = copy.deepcopy(plain)
    model.compile(backend="eager")
    model(images)
    assert torch.equal(agop.input_gradients(model, images).logits, agop.input_gradients(plain, images).logits)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_scripted_model_with_a_prior_of_the_model_before_names_the_fix():
    model, images = zoo.build("batch norm and dropout").eval(), zoo.images(8)
    prior = agop.fit(model, [images], only_correct=False, progress=False)
    with pytest.raises(PriorError, match=r"as it was before torch\.jit"):
        agop.explain(torch.jit.script(model), images, "agop-patch", prior)
