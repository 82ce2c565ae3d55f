"""sanity(): maps of a model whose weights are randomised from the top down."""

from dataclasses import replace

import pytest
import torch
from scipy import stats
from torch import nn

import agop
from agop.errors import InputError, ModelError
from tests import zoo
from tests.state import assert_same, state_of

IMAGES = zoo.images(6)
pytestmark = pytest.mark.filterwarnings("ignore:the map of layer")


def wide() -> nn.Module:
    """Wide layers: a random network of these has no dead units."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 16, 3, padding=1), nn.Tanh(), nn.Conv2d(16, 16, 3, padding=1), nn.Tanh(), nn.Flatten())
    return nn.Sequential(*layers, nn.Linear(16 * 144, 3))


@pytest.fixture(scope="module")
def model():
    return wide()


@pytest.fixture(scope="module")
def prior(model):
    return agop.fit(model, [IMAGES], only_correct=False, progress=False)


@pytest.mark.parametrize("method", ["random", "input", "sobel"])
def test_maps_that_do_not_use_the_model_are_model_independent(model, method):
    result = agop.sanity(model, IMAGES, method)
    assert result.model_independent
    assert torch.allclose(result.correlations, torch.ones(3, 6, dtype=torch.float64))
    assert str(result).endswith("\nmodel-independent: the maps don't change at all when all weights are random")


@pytest.mark.parametrize("method", ["vanilla", "smoothgrad:samples=3", "gradcam:layer=2", "agop-weighted"])
def test_maps_that_use_gradients_depend_on_the_weights(model, prior, method):
    result = agop.sanity(model, IMAGES, method, prior)
    assert not result.model_independent
    assert result.layers == (("5",), ("2",), ("0",))
    assert result.correlations.shape == (3, 6)
    assert str(result).endswith("\nthe maps depend on the model's weights")


def test_agop_global_is_independent_of_the_weights_given_the_prior(model, prior):
    result = agop.sanity(model, IMAGES, "agop-global", prior)
    assert result.model_independent
    assert "model-independent given the prior, which is that of the trained model" in str(result)


def test_each_step_explains_the_trained_model_s_class_with_random_weights_from_the_top(model):
    """Against an explicit loop: the layers above are random, those below are trained."""
    result = agop.sanity(model, IMAGES, "vanilla", seed=5)
    target, trained = model(IMAGES).argmax(1), agop.explain(model, IMAGES, "vanilla")
    network = wide()
    for number, (step, layer) in enumerate(zip(result.correlations, (5, 2, 0), strict=True)):
        torch.manual_seed(5 + number)
        network[layer].reset_parameters()
        maps = agop.explain(network, IMAGES, "vanilla", target=target)
        pairs = zip(trained.flatten(1), maps.flatten(1), strict=True)
        torch.testing.assert_close(step, torch.tensor([stats.spearmanr(*pair).statistic for pair in pairs]))


def test_results_are_reproducible_and_few_steps_are_some_of_all_steps(model):
    every = agop.sanity(model, IMAGES, "vanilla", steps=None)
    few = agop.sanity(model, IMAGES, "vanilla", steps=2)
    assert few.layers == (("5",), ("2", "0"))
    assert torch.equal(few.correlations, every.correlations[[0, 2]])
    (one,) = agop.sanity(model, IMAGES, "vanilla", steps=1).correlations
    assert torch.equal(one, every.correlations[2])


@pytest.mark.parametrize("kind", ["batch norm and dropout", "attention", "one logit", "tuple"])
def test_model_is_unchanged_and_every_kind_works(kind):
    model = zoo.build(kind)
    before = state_of(model)
    result = agop.sanity(model, IMAGES, "vanilla")
    assert_same(before, state_of(model))
    assert not result.model_independent
    with_parameters = {name for name, m in model.named_modules() if list(m.parameters(recurse=False))}
    assert {name for step in result.layers for name in step} == with_parameters


def test_layer_may_be_a_module_of_the_model(model):
    by_module = agop.sanity(model, IMAGES, "gradcam", layer=model[2])
    by_name = agop.sanity(model, IMAGES, agop.methods.GradCAM(layer="2"))
    assert torch.equal(by_module.correlations.nan_to_num(9), by_name.correlations.nan_to_num(9))


def test_constant_maps_and_methods_with_references_work(model, prior):
    constant = agop.sanity(model, torch.ones(6, 3, 12, 12), "input")
    assert constant.model_independent  # although the correlation of constant maps is undefined
    assert "–" in str(constant)
    result = agop.sanity(model, IMAGES, "agop-expected:samples=4", prior, references=zoo.images(3, seed=4))
    assert not result.model_independent


def test_table_has_means_intervals_and_the_number_of_counted_images():
    correlations = torch.tensor([[0.5, 0.7, 0.6, 0.6], [1.0, torch.nan, torch.nan, torch.nan]], dtype=torch.float64)
    result = replace(
        agop.sanity(wide(), IMAGES[:1], "vanilla", steps=1), layers=(("fc",), ("b", "a")), correlations=correlations
    )
    lines = str(result).splitlines()
    assert lines[0].startswith("rank correlation of vanilla maps with those of the trained model: means over 4 images")
    assert lines[2].split() == ["nothing", "1.000"]
    assert lines[3].startswith("down to fc             0.600 [0.")
    assert lines[4] == "all layers, down to a  1.000 (1 of 4 images)"
    assert not result.model_independent  # defined for less than half of the images


class Uncopyable(nn.Linear):
    def __deepcopy__(self, memo):
        raise TypeError("no copies")


@pytest.mark.parametrize(
    ("layer", "options", "error", "message"),
    [
        (nn.AvgPool2d(12), {}, InputError, "no parameters"),
        (Uncopyable(12, 3), {}, ModelError, "can't be copied.*no copies"),
        (nn.Linear(12, 3), {"steps": 0}, InputError, "steps is 0"),
        (nn.Linear(12, 3), {"method": "agop-global"}, InputError, "needs a prior"),
    ],
)
def test_invalid_calls_raise(layer, options, error, message):
    with pytest.raises(error, match=message):
        agop.sanity(nn.Sequential(layer, nn.Flatten()), IMAGES, **{"method": "vanilla"} | options)


def test_log_odds_compare_their_maps(model):
    """Adding one function to all logits doesn't change them."""

    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x) + 20 * (x * torch.arange(12.0)).mean((1, 2, 3))[:, None]

    shifted = Shifted()
    same, other = (
        [agop.sanity(each, IMAGES, "vanilla", output=output).correlations for each in (model, shifted)]
        for output in ("log_odds", "logit")
    )
    torch.testing.assert_close(*same, rtol=0, atol=0.02)
    assert float((other[0] - other[1]).abs().max()) > 0.05


class HeadFirst(nn.Module):
    """The head is registered before the body, and the model has a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.head, self.scale, self.body = nn.Linear(4, 3), nn.Parameter(torch.arange(3.0)), nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return self.head(self.body(x * self.scale[:, None, None]).mean((2, 3)))


def test_layers_are_in_the_order_of_their_calls():
    assert agop.sanity(HeadFirst(), IMAGES, "vanilla").layers == (("head",), ("body",), ("",))
    layers = agop.sanity(zoo.build("attention"), IMAGES, "vanilla", steps=None).layers
    names = [name for step in layers for name in step]
    assert names[:2] == ["head", "norm"]
    assert names[-2:] == ["patch", ""]
    # In an attention, the output's weights are used without a call of their module.
    assert names.index("block.self_attn.out_proj") == names.index("block.self_attn") - 1


class ResetsBias(nn.Linear):
    """Its own reset_parameters() doesn't set the weights."""

    def reset_parameters(self):
        nn.init.uniform_(self.bias)


def test_weights_that_reset_parameters_does_not_set_are_permuted():
    layer = ResetsBias(432, 3)
    nn.init.normal_(layer.weight)
    before, seen = layer.weight.detach().clone(), []
    model = nn.Sequential(nn.Flatten(), layer)
    model.register_forward_hook(lambda module, *_: seen.append(module[1].weight.detach().clone()))
    agop.sanity(model, IMAGES, "vanilla")
    assert torch.equal(layer.weight, before)
    assert not torch.equal(seen[-1], before)
    assert torch.equal(seen[-1].flatten().sort().values, before.flatten().sort().values)
