"""No call changes the model, the images or the random state, also if it raises."""

import random
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import agop
from tests import zoo
from tests.state import assert_same, state_of


class WritesWeightsInTrain(zoo.Wrapped):
    """Changes its weights when its mode changes, as merged LoRA layers do."""

    def train(self, mode=True):
        if hasattr(self, "body"):
            self.body[0].weight.data.mul_(1.5)
        return super().train(mode)


MODELS = {
    **{kind: (lambda kind=kind: zoo.build(kind)) for kind in ("plain", "in-place", "layer norm", "attention")},
    "writes a buffer": zoo.RunningScale,
    "replaces a buffer": lambda: zoo.RunningScale("replaced"),
    "draws random numbers": zoo.NoisyInEval,
    "writes its input": zoo.WritesInput,
    "grows buffers": zoo.GrowsBuffers,
    "registers its first buffer": zoo.FirstBufferInForward,
    "draws from NumPy": zoo.NumpyNoise,
    "train() changes weights": WritesWeightsInTrain,
}


def in_a_mixed_state(model: nn.Module) -> nn.Module:
    """A model with some modules in eval mode, some frozen parameters, some gradients, and a user's hook."""
    modules = list(model.modules())
    model.train()
    modules[len(modules) // 2].training = False
    parameters = list(model.parameters())
    parameters[0].requires_grad_(False)
    parameters[-1].grad = torch.ones_like(parameters[-1])
    modules[1].register_forward_hook(lambda *_: None)
    return model


PRIOR = agop.AGOP(
    torch.linspace(0.1, 1, 432, dtype=torch.float64).reshape(3, 12, 12), count=1, sketch=torch.ones(2, 3, 12, 12)
)


def with_patch_matrix(model) -> agop.AGOP:
    """PRIOR with a patch matrix of ones at the model's first convolution."""
    name, layer = next((name, module) for name, module in model.named_modules() if isinstance(module, nn.Conv2d))
    size = layer.out_channels
    return replace(
        PRIOR, patch_matrix=torch.ones(size, size).double(), provenance=replace(PRIOR.provenance, layer=name)
    )


@pytest.mark.parametrize("method", agop.methods.names())
@pytest.mark.parametrize("kind", MODELS)
def test_explain_changes_nothing(kind, method):
    model, images = in_a_mixed_state(MODELS[kind]()), zoo.images()
    before_images = images.clone()
    np.random.seed(0)
    np.random.randn()  # NumPy now caches the second of a pair
    layer = "body.0" if method.startswith("gradcam") and hasattr(model, "body") else None
    before = state_of(model)
    with warnings.catch_warnings(), torch.inference_mode(kind == "in-place"):
        warnings.simplefilter("ignore")
        prior = with_patch_matrix(model)
        agop.explain(model, images, method, prior, layer=layer, batch_size=2, references=images[:2])
    assert_same(before, state_of(model))
    assert torch.equal(images, before_images)
    assert not images.requires_grad
    assert images.grad is None


@pytest.mark.parametrize("kind", MODELS)
def test_hook_prepare_and_fit_with_a_random_loader_change_nothing(kind):
    model, images, labels = in_a_mixed_state(MODELS[kind]()), zoo.images(), torch.tensor([0, 1, 2, 0, 1])
    before = state_of(model)
    hook = agop.AGOPTrainingHook(model, only_correct=False)
    hook.step(images, labels)
    hook.finalize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some can't be traced
        agop.prepare(model)
    agop.fit(model, DataLoader(TensorDataset(images, labels), batch_size=2, shuffle=True), only_correct=False)
    assert_same(before, state_of(model))


@pytest.mark.parametrize("method", ["vanilla", "integrated-gradients", "smoothgrad", "gradcam"])
@pytest.mark.parametrize("how", ["in place", "data", "replaced"])
def test_maps_do_not_depend_on_the_batch_size_if_a_forward_pass_writes_buffers(how, method):
    model, images = zoo.RunningScale(how), zoo.images(6)
    layer = "body.0" if method == "gradcam" else None
    maps = [agop.explain(model, images, method, layer=layer, batch_size=rows) for rows in (1, 4, 6)]
    torch.testing.assert_close(maps[0], maps[2])
    torch.testing.assert_close(maps[1], maps[2])
    assert model.scale.item() == 1


@pytest.mark.parametrize("build", [zoo.RunningScale, zoo.FirstBufferInForward])
def test_fit_does_not_depend_on_the_batch_size_if_a_forward_pass_writes_buffers(build):
    model, options = build(), {"only_correct": False, "progress": False}
    parts, whole = (agop.fit(model, [zoo.images(6)], **options, batch_size=rows) for rows in (2, 6))
    torch.testing.assert_close(parts.diagonal, whole.diagonal)


def test_numpy_draws_in_a_forward_pass_depend_on_the_seed_only():
    model, images = zoo.NumpyNoise(), zoo.images()

    def maps(seed):
        np.random.seed(seed)
        return agop.explain(model, images, "vanilla")

    first = maps(0)
    maps(1)
    assert torch.equal(maps(0), first)
    assert not torch.equal(maps(1), first)
    np.random.seed(0)
    noisy = images + torch.from_numpy(np.random.randn(*images.shape)).float()
    expected = zoo.per_sample_loop(model.body, noisy)[0].abs().sum(dim=1)  # the network without its noise
    torch.testing.assert_close(first, expected)


def test_numpy_draws_of_the_model_do_not_change_those_of_the_loader():
    def loader(drawn):
        for _ in range(3):
            drawn.append(np.random.rand())
            yield zoo.images()

    sequences = []
    for model in (zoo.build("plain"), zoo.NumpyNoise()):
        np.random.seed(0)
        sequences.append([])
        agop.fit(model, loader(sequences[-1]), only_correct=False, progress=False)
    assert sequences[0] == sequences[1]


def test_buffer_with_nan_is_not_written_to():
    """Writing even the same values would break a graph that has saved the buffer."""
    model = zoo.GrowsBuffers()
    before = model.not_a_number._version
    agop.input_gradients(model, zoo.images())
    assert model.not_a_number._version == before


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_scripted_model_is_unchanged():
    model, images = zoo.build("batch norm and dropout").eval(), zoo.images()
    scripted = torch.jit.script(model).train()
    before = state_of(scripted)
    torch.testing.assert_close(agop.explain(scripted, images, "vanilla"), agop.explain(model, images, "vanilla"))
    assert before["modes"] == state_of(scripted)["modes"]
    assert all(torch.equal(a[2], b[2]) for a, b in zip(before["buffers"], state_of(scripted)["buffers"], strict=True))


class Raises(zoo.RunningScale):
    """Raises after its network has run."""

    def forward(self, x):
        torch.rand(3)
        super().forward(x)
        raise ValueError("in the middle")


def runs_the_whole_model(name) -> bool:
    method = agop.methods.get(name)
    return method.needs_model and "patch_matrix" not in method.prior_parts


@pytest.mark.parametrize("method", list(filter(runs_the_whole_model, agop.methods.names())))
def test_call_that_raises_changes_nothing(method):
    model = in_a_mixed_state(Raises())
    layer = "body.0" if method.startswith("gradcam") else None
    before = state_of(model)
    with pytest.raises(ValueError, match="in the middle"):
        agop.explain(model, zoo.images(), method, PRIOR, layer=layer, references=zoo.images(2))
    with pytest.raises(ValueError, match="in the middle"):
        agop.AGOPTrainingHook(model).step(zoo.images(), torch.zeros(5).long())
    assert_same(before, state_of(model))


def test_hook_between_forward_and_backward_does_not_change_gradients():
    model, images = zoo.build("batch norm and dropout").train(), zoo.images()
    torch.manual_seed(3)
    model(images).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.manual_seed(3)
    loss = model(images).sum()
    agop.AGOPTrainingHook(model, only_correct=False).step(images)
    loss.backward()
    assert all(torch.equal(p.grad, e) for p, e in zip(model.parameters(), expected, strict=True))


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("optimiser", [torch.optim.Adam, torch.optim.SGD])
def test_training_with_the_hook_is_bitwise_equal_to_training_without(where, optimiser, tmp_path):
    assert_same(trained(None, optimiser, tmp_path), trained(where, optimiser, tmp_path))


def trained(where, optimiser, folder):
    torch.manual_seed(0)
    model = zoo.batch_normed(inplace=True).train()
    options = {"momentum": 0.9} if optimiser is torch.optim.SGD else {}
    steps = optimiser(model.parameters(), lr=0.01, weight_decay=1e-4, **options)
    hook = agop.AGOPTrainingHook(model, snapshot_every=2, snapshot_dir=folder, per_class=True)
    for _ in range(6):
        images, labels = torch.randn(8, 3, 12, 12), torch.randint(0, 3, (8,))
        steps.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        if where == "before":
            hook.step(images, labels)
        steps.step()
        if where == "after":
            hook.step(images, labels)
    return {"model": model.state_dict(), "optimiser": steps.state_dict(), "random": torch.get_rng_state()}


DRAWS = {
    "torch": lambda: tuple(torch.randint(2**62, (2,)).tolist()),
    "python": lambda: random.getrandbits(99),
    "numpy": lambda: np.random.bytes(12),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
@pytest.mark.parametrize("call", ["explain", "fit", "hook"])
def test_another_thread_gets_no_random_number_twice(draw, call):
    model, images = zoo.build("batch norm and dropout"), zoo.images()
    hook = agop.AGOPTrainingHook(model, only_correct=False)
    drawn, stop = [], threading.Event()

    def draws():
        while not stop.is_set():
            drawn.append(draw())

    thread = threading.Thread(target=draws)
    thread.start()
    for _ in range(20):
        if call == "explain":
            agop.explain(model, images, "vanilla")
        elif call == "fit":
            agop.fit(model, [images], only_correct=False, progress=False)
        else:
            hook.step(images)
    stop.set()
    thread.join()
    assert len(drawn) > 20
    assert len(set(drawn)) == len(drawn)


def test_threads_that_explain_one_model_in_train_mode_get_its_maps():
    model, images = zoo.build("batch norm and dropout").train(), zoo.images()
    expected = agop.explain(model, images, "vanilla")
    with ThreadPoolExecutor(8) as pool:
        maps = list(pool.map(lambda _: agop.explain(model, images, "vanilla"), range(200)))
    assert all(torch.equal(each, expected) for each in maps)
    assert all(module.training for module in model.modules())


def test_numpy_may_use_another_bit_generator():
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(0))
    try:
        agop.explain(zoo.NumpyNoise(), zoo.images(), "vanilla")
        assert np.random.random() == np.random.RandomState(np.random.PCG64(0)).random()  # the model's draws are undone
    finally:
        np.random.set_bit_generator(before)
