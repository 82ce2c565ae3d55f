"""Model and images on different devices give the results of one device: every method, metric, hook, fit and merge.

Run by test_devices.py, with the device's name in AGOP_DEVICE. "remote" is a device without hardware: its tensors
compute on the CPU, but mixing them with CPU tensors raises. It uses torch's private-use backend in Python, which is
experimental, so this file is the only place that touches it.
"""

import os
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

import agop
from tests import zoo

METHODS = agop.methods.names()
METRICS = [name for name in agop.metrics.names() if name != "emd"]  # emd is NumPy's and POT's
REMOTE = "remote"
# As on a GPU: copies between devices, and indices on the CPU, are allowed.
_MIXED = {"copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_"}


class Remote(torch.Tensor):
    """A tensor that says it is on the device, around one on the CPU."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(
            cls, inner.size(), strides=inner.stride(), dtype=inner.dtype, device=torch.device(REMOTE, 0)
        )

    def __init__(self, inner):
        self.inner = inner

    def tolist(self):
        """Torch has it for tensors on any device, but not for subclasses."""
        return self.inner.tolist()

    def __repr__(self):
        return f"Remote({self.inner!r})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


class Backend(_DummyBackendModule):
    """The device's module, as torch.cuda: its random numbers are the CPU's."""

    def get_rng_state(self, device=None):
        return torch.get_rng_state()

    def set_rng_state(self, state, device=None):
        torch.set_rng_state(state)

    def synchronize(self, device=None):
        pass

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]


_setup_privateuseone_for_python_backend(REMOTE, Backend())


class RemoteMode(TorchDispatchMode):
    """Operators that create tensors on the device."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return compute(func, args, kwargs or {})


def compute(func, args, kwargs):
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
    on_device = [tensor for tensor in tensors if isinstance(tensor, Remote)]
    elsewhere = [tensor for tensor in tensors if tensor.ndim and not isinstance(tensor, Remote)]
    if on_device and elsewhere and func.overloadpacket.__name__ not in _MIXED:
        raise RuntimeError(f"{func} got tensors on the CPU and on {REMOTE}")
    target = kwargs.get("device")
    remote = bool(on_device) if target is None else torch.device(target).type == REMOTE
    if target is not None:
        kwargs = kwargs | {"device": torch.device("cpu")}
    result = func(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    if func._schema.is_mutable and args and isinstance(args[0], torch.Tensor) and isinstance(result, torch.Tensor):
        return args[0]
    return tree_map(_wrapped, result) if remote else result


def _inner(value):
    return value.inner if isinstance(value, Remote) else value


def _wrapped(value):
    if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
        raise TypeError("the device has no float64, as Apple's GPUs")
    return Remote(value) if isinstance(value, torch.Tensor) else value


@pytest.fixture
def device():
    """The device that isn't the CPU."""
    name = os.environ["AGOP_DEVICE"]
    with warnings.catch_warnings(), RemoteMode() if name == REMOTE else nullcontext():
        warnings.filterwarnings("ignore", message="the map of layer|cannot check whether")
        yield torch.device(name)


@pytest.fixture(scope="module")
def prior():
    return fit(model())


def model():
    return zoo.build("batch norm and dropout").eval()


def fit(network, images=None, **options):
    images = zoo.images(7, seed=3) if images is None else images
    labels = torch.zeros(len(images), dtype=torch.int64)
    return agop.fit(network, [(images, labels)], only_correct=False, progress=False, rank=3, per_class=True, **options)


def assert_equal(values, expected):
    torch.testing.assert_close(
        values.cpu(), expected.cpu(), rtol=1e-3, atol=1e-4 * float(expected.nan_to_num().abs().max()), equal_nan=True
    )


def test_tensors_of_two_devices_raise(device):
    with pytest.raises(RuntimeError):
        torch.ones(2, device=device) + torch.ones(2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("on_device", ["model", "images", "both"])
def test_methods(method, on_device, prior, device):
    def maps(network, images):
        return agop.explain(network, images, method, prior, references=zoo.images(4, seed=2))

    network = model().to(device) if on_device != "images" else model()
    images = zoo.images() if on_device == "model" else zoo.images().to(device)
    assert_equal(maps(network, images), maps(model(), zoo.images()))


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.parametrize("moved", ["maps", "masks", "model"])
def test_metrics(name, moved, device):
    metric, maps = agop.metrics.get(name), torch.rand(5, 12, 12, generator=torch.Generator().manual_seed(0))
    masks = maps > 0.7
    network, images = model(), zoo.images()
    if metric.needs_model:
        options = {"references": zoo.images(4, seed=2)} if name == "srg" else {}
        expected = metric(network, images, maps, **options)
        moved_maps = maps.to(device) if moved == "maps" else maps
        scores = metric(network.to(device) if moved == "model" else network, images, moved_maps, **options)
    else:
        expected = metric(maps, masks)
        scores = metric(maps.to(device) if moved == "maps" else maps, masks.to(device) if moved == "masks" else masks)
    assert_equal(scores, expected)


def test_fit_merge_and_save(prior, device, tmp_path):
    moved = fit(model().to(device))
    for name in ("diagonal", "class_diagonals", "patch_matrix", "image_moments"):
        assert_equal(getattr(moved, name), getattr(prior, name))
    merged = agop.merge([fit(model().to(device), zoo.images(4, seed=1)), fit(model(), zoo.images(5, seed=2))])
    assert_equal(
        merged.diagonal, agop.merge([fit(model(), zoo.images(n, seed=s)) for n, s in ((4, 1), (5, 2))]).diagonal
    )
    moved.save(tmp_path / "prior.safetensors")
    assert torch.equal(agop.AGOP.load(tmp_path / "prior.safetensors").diagonal, moved.diagonal)


@pytest.mark.filterwarnings("ignore:diag.M. may differ")
@pytest.mark.parametrize("every", [1, "auto"])
def test_hook_in_a_training_on_the_device(every, device):
    def trained(where):
        network = zoo.build("plain").to(where)
        optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
        hook = agop.AGOPTrainingHook(network, every=every, only_correct=False, rank=2)
        for seed in range(9):
            images = zoo.images(4, seed=seed)
            optimizer.zero_grad()
            network(images.to(where)).square().mean().backward()
            optimizer.step()
            hook.step(images, torch.zeros(4, dtype=torch.int64))  # on the CPU
        resumed = agop.AGOPTrainingHook(network, every=every, only_correct=False, rank=2)
        resumed.load_state_dict(hook.state_dict())
        return resumed

    moved, expected = trained(device), trained("cpu")
    assert_equal(moved.finalize().diagonal, expected.finalize().diagonal)
    assert moved.convergence == pytest.approx(expected.convergence)


def test_evaluate_and_sanity(prior, device):
    images, masks = zoo.images(), zoo.images()[:, 0] > 0.7
    table = agop.evaluate(model().to(device), images, masks, ["vanilla", "agop"], prior=prior)
    expected = agop.evaluate(model(), images, masks, ["vanilla", "agop"], prior=prior)
    for method in ("vanilla", "agop"):
        assert_equal(table.scores[method]["energy"], expected.scores[method]["energy"])
    assert not agop.sanity(model().to(device), images, "vanilla").model_independent
