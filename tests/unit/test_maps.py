"""What explain() gives is a tensor in everything, and in a notebook a picture."""

import copy
import io
import json
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load, save

import agop
from agop.maps import Maps
from tests import zoo

IN_A_NOTEBOOK = """
import io, json, sys
from IPython.core.interactiveshell import InteractiveShell
from PIL import Image
shell = InteractiveShell.instance()
setup, *cells = json.loads(sys.argv[1])
shell.run_cell(setup).raise_error()
found = []
for cell in cells:
    shell.run_cell("%%capture shown\\n" + cell).raise_error()
    (data,) = [output.data for output in shell.user_ns["shown"].outputs]
    size = Image.open(io.BytesIO(data["image/png"])).size if "image/png" in data else None
    found.append([data["text/plain"], size])
print(json.dumps(found))
"""


def displayed(folder: Path, setup: str, *cells: str) -> list[tuple[str, list[int] | None]]:
    """What IPython displays for the last expression of each cell: its text, and the size of its picture."""
    process = [sys.executable, "-c", IN_A_NOTEBOOK, json.dumps([setup, *cells])]
    environment = os.environ | {"IPYTHONDIR": str(folder)}
    done = subprocess.run(process, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def explained(count: int = 8, **options) -> torch.Tensor:
    return agop.explain(zoo.made("plain"), zoo.images(count), "vanilla", **options)


def plain(maps: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(maps.numpy().copy())


def picture(maps: torch.Tensor) -> Image.Image:
    return Image.open(io.BytesIO(maps._repr_png_()))


def sum_of(queue, maps):
    queue.put((type(maps).__name__, float(maps.sum())))


def test_explain_gives_maps_whatever_the_method():
    assert type(explained()) is Maps
    assert type(agop.explain(zoo.made("plain"), zoo.images(), "random")) is Maps


@pytest.mark.parametrize(
    "operation",
    [
        lambda m: m + 1, lambda m: 1 - m, lambda m: m[3], lambda m: m[1:3], lambda m: m.sum((1, 2)), lambda m: m > 0,
        lambda m: m.clone(), lambda m: m.double(), lambda m: torch.stack([m, m]), lambda m: torch.cat([m, m]),
        lambda m: torch.where(m > 0, m, 0), lambda m: m.flatten(1) @ m.flatten(1).T, lambda m: next(iter(m)),
        torch.zeros_like, copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)),
        lambda m: load(save({"maps": m}))["maps"], lambda m: torch.nn.Buffer(m).sum(), lambda m: m.unbind()[0],
    ],
)  # fmt: skip
def test_every_operation_gives_the_plain_tensor_it_gives_on_a_plain_tensor(operation):
    found, expected = operation(explained()), operation(plain(explained()))
    assert type(found) is torch.Tensor
    assert found.dtype == expected.dtype
    assert torch.equal(found, expected)


def test_files_hold_a_plain_tensor(tmp_path):
    torch.save({"maps": explained()}, tmp_path / "maps.pt")
    loaded = torch.load(tmp_path / "maps.pt", weights_only=True)["maps"]
    assert type(loaded) is torch.Tensor
    assert torch.equal(loaded, explained())
    torch.save({"maps": plain(explained())}, tmp_path / "plain.pt")
    assert (tmp_path / "maps.pt").stat().st_size < (tmp_path / "plain.pt").stat().st_size + 64


def test_numpy_sees_the_same_memory():
    maps = explained()
    array = np.asarray(maps)
    assert array.shape == (8, 12, 12)
    array[0, 0, 0] = 7
    assert maps[0, 0, 0] == 7
    assert maps.numpy().base is not None


def test_in_place_operations_reach_it_and_its_picture():
    maps = explained()
    before = maps._repr_png_()
    maps[0] = 0
    maps *= 2
    assert type(maps) is Maps
    assert torch.equal(maps[1:], explained()[1:] * 2)
    assert not maps[0].any()
    assert maps._repr_png_() != before


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_autograd_treats_it_as_a_fresh_leaf(mode):
    with mode():
        maps = explained()
    assert maps.is_leaf
    assert not maps.requires_grad
    weight = torch.ones(1, requires_grad=True)
    maps *= weight  # a view made without gradients would refuse
    maps.sum().backward()
    assert float(weight.grad) == pytest.approx(float(explained().sum()), rel=1e-5)


def test_it_can_become_a_parameter_and_that_a_copy():
    parameter = torch.nn.Parameter(explained())
    assert isinstance(parameter, torch.nn.Parameter)
    assert parameter.requires_grad
    assert type(copy.deepcopy(parameter)) is torch.nn.Parameter
    (parameter**2).sum().backward()
    assert torch.equal(parameter.grad, 2 * explained())


def test_maps_with_a_graph_keep_it():
    weight = torch.ones(3, 2, 2, requires_grad=True)
    maps = Maps.of(weight * 2, torch.rand(3, 1, 2, 2), "own", None)
    maps.sum().backward()
    assert torch.equal(weight.grad, torch.full((3, 2, 2), 2.0))


def test_its_text_is_that_of_the_tensor():
    maps = explained()
    assert repr(maps) == repr(plain(maps))
    assert f"{maps}" == f"{plain(maps)}"
    assert repr(maps.requires_grad_()) == repr(plain(explained()).requires_grad_())


@pytest.mark.slow
def test_another_process_gets_a_plain_tensor():
    context = torch.multiprocessing.get_context("spawn")
    queue, maps = context.Queue(), explained()
    process = context.Process(target=sum_of, args=(queue, maps))
    process.start()
    assert queue.get(timeout=60) == ("Tensor", pytest.approx(float(maps.sum())))
    process.join()


def test_a_compiled_function_takes_it():
    doubled = torch.compile(lambda maps: maps * 2, backend="eager")
    assert torch.equal(doubled(explained()), explained() * 2)


def test_it_keeps_a_few_images_and_not_the_batch():
    images = zoo.images(50)
    kept = agop.explain(zoo.made("plain"), images, "vanilla", target=1)._source
    assert torch.equal(kept.images, images[:6])
    assert kept.images.untyped_storage().nbytes() == 6 * images[0].numel() * 4
    assert kept.targets.untyped_storage().nbytes() == 6 * 8
    large = Maps.of(torch.rand(2, 700, 300), torch.rand(2, 3, 700, 300, requires_grad=True), "own", None)
    assert large._source.images.shape == (2, 3, 234, 100)
    assert not large._source.images.requires_grad
    assert picture(large).size == (2 * 100 + 8, 2 * (234 + 22) + 8)


def test_it_costs_microseconds():
    maps, images = torch.rand(1000, 8, 8), torch.rand(1000, 1, 8, 8)

    def took() -> float:
        start = time.perf_counter()
        for _ in range(200):
            Maps.of(maps, images, "vanilla", None)
        return (time.perf_counter() - start) / 200

    assert min(took() for _ in range(10)) < 200e-6  # about 12 on an idle machine


def test_the_picture_has_a_column_for_each_of_the_first_six_images():
    for count, columns in ((1, 1), (6, 6), (8, 6)):
        assert picture(explained(count)).size == (columns * 200 - 8, 2 * (192 + 22) + 8)


def test_the_picture_shows_each_image_over_its_map():
    images = torch.zeros(2, 1, 4, 4)
    images[0, :, 0], images[1, :, :, 0] = 1, 1
    maps = torch.zeros(2, 4, 4)
    maps[0, 3, 3], maps[1, 0, 3] = 5, 1e-9
    pixels = np.asarray(picture(Maps.of(maps, images, "own", None)))
    panels = [pixels[top + 24 : top + 192 : 48, left + 24 : left + 192 : 48] for left in (0, 200) for top in (22, 244)]
    for image, expected in zip(panels[::2], images, strict=True):
        assert np.array_equal(image[..., 0], 255 * expected[0].numpy())
    for image, expected in zip(panels[1::2], maps, strict=True):
        assert np.array_equal(image[..., 0] == image[..., 0].max(), expected.numpy() > 0)


@pytest.mark.parametrize("value", [0.0, torch.nan, torch.inf])
def test_a_map_that_says_nothing_is_drawn_without_a_warning(value):
    maps = explained()
    maps[1] = value
    assert picture(maps).size == picture(explained()).size
    assert maps._repr_png_() != explained()._repr_png_()


def test_methods_and_targets_change_the_captions_alone():
    maps, images = torch.rand(3, 40, 40), torch.rand(3, 3, 40, 40)
    pages = [
        np.asarray(picture(Maps.of(maps, images, method, targets)))
        for method, targets in [("a", None), ("b", None), ("a", torch.tensor([0, 2, 1])), ("a", "")]
    ]
    for page in pages[1:]:
        rows = np.flatnonzero((page != pages[0]).any((1, 2)))
        assert len(rows) > 0
        assert all(row < 22 or 230 <= row < 252 for row in rows)


def test_what_is_no_batch_of_maps_any_more_shows_no_picture():
    maps = explained()
    assert maps.detach()._repr_png_() is None
    maps.resize_(3, 12)
    assert maps._repr_png_() is None


@pytest.mark.slow
def test_in_a_notebook_the_last_expression_is_a_picture(tmp_path):
    setup = """
import torch, agop
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3)).eval()
maps = agop.explain(model, torch.rand(9, 3, 4, 4), "vanilla")
"""
    (text, size), (same, nothing) = displayed(tmp_path, setup, "maps", "maps * 1")
    assert size == [6 * 200 - 8, 2 * (192 + 22) + 8]
    assert text.startswith("tensor([[[")
    assert nothing is None
    assert same == text


def test_a_compiled_function_may_detach_them():
    maps = agop.explain(zoo.made("plain"), zoo.images(2), "vanilla")
    doubled = torch.compile(lambda found: found.detach() * 2, backend="eager")(maps)
    assert torch.equal(doubled, maps * 2)
