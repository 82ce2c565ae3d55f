"""Figures: what they show is what was given, they are read without guessing, and they leave no trace."""

import json
import os
import pickle
import subprocess
import sys
from itertools import pairwise

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

import agop
from agop.errors import FileError, InputError, UnknownNameError
from agop.pictures import heat
from agop.plot.figures import outline
from agop.plot.inputs import picture_of
from agop.runs.spec import RunSpec
from tests import zoo
from tests.notebook import displayed

NUMBERS = np.random.default_rng(0)
IMAGE = torch.from_numpy(NUMBERS.random((3, 6, 9)))
MAP = NUMBERS.random((6, 9))
MASK = NUMBERS.random((6, 9)) > 0.6


def texts(figure: Figure) -> set[str]:
    """All that is written in a figure."""
    return {text.get_text() for text in figure.findobj(matplotlib.text.Text)}


def drawn(axes) -> np.ndarray:
    return np.asarray(axes.images[0].get_array())


def colour_bar(figure: Figure):
    (bar,) = [axes for axes in figure.axes if hasattr(axes, "_colorbar")]
    return bar


def written(folder, rows, seeds=2, scenarios=("one", "two"), absent=()):
    spec = RunSpec("own", scenarios, ("plain",), seeds, ("agop-global",), ("iou",), absent=absent)
    spec.save(folder)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "convergence.jsonl").write_text(lines)
    for cell in spec.cells():
        (folder / "cells" / cell.name).mkdir(parents=True)
        for name in ("rows", "timings", "convergence"):
            (folder / "cells" / cell.name / f"{name}.jsonl").write_text("")
    return folder


def noted(scenario, seed, step, method, metric, value):
    where = {"scenario": scenario, "background": "plain", "seed": seed, "step": step}
    return where | {"method": method, "metric": metric, "value": value}


# Pictures, maps and masks as they are given


@pytest.mark.parametrize(
    "given",
    [
        IMAGE.float(), IMAGE.clone().requires_grad_(), (255 * IMAGE).round().to(torch.uint8),
        IMAGE.permute(1, 2, 0).numpy(), (255 * IMAGE).round().to(torch.uint8).permute(1, 2, 0).numpy(),
        Image.fromarray((255 * IMAGE).round().to(torch.uint8).permute(1, 2, 0).numpy()),
    ],
)  # fmt: skip
def test_values_in_0_to_1_and_bytes_are_taken_as_they_are(given):
    assert np.array_equal(picture_of(given), (255 * IMAGE).round().permute(1, 2, 0).numpy())


def test_other_values_go_from_black_to_white():
    values = 7 * IMAGE - 3
    expected = (values - values.min()) / (values.max() - values.min())
    assert np.array_equal(picture_of(values), (255 * expected).round().permute(1, 2, 0).numpy())
    assert np.abs(picture_of(values.bfloat16()) - 255 * expected.permute(1, 2, 0).numpy()).max() < 3


def test_grey_images_are_grey():
    for given in (IMAGE[:1], IMAGE[0].numpy(), IMAGE[0, ..., None].numpy()):
        assert np.array_equal(picture_of(given), (255 * IMAGE[0, ..., None]).round().expand(-1, -1, 3).numpy())
    assert picture_of(torch.rand(5, 6, 9)).shape == (6, 9, 3)
    assert picture_of(np.full((2, 2), 40_000, dtype=np.uint16)).shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("image", "map", "mask", "said"),
    [
        (IMAGE[0], MAP, None, r"image has shape \(6, 9\): give one image \(C,H,W\)"),
        (IMAGE[None], MAP, None, r"\(1, 3, 6, 9\).* image\[0\]"),
        (IMAGE.numpy(), MAP, None, r"image has shape \(3, 6, 9\): give an array \(H,W,3\), or a tensor"),
        ("cat.png", MAP, None, "image is a str"),
        (IMAGE, MAP[:5], None, r"map has shape \(5, 9\), its image \(6, 9\)"),
        (IMAGE, MAP[None], None, r"map has shape \(1, 6, 9\)"),
        (IMAGE, MAP - 0.5, None, "goes down to -0.4"),
        (IMAGE, "vanilla", None, "map is a str"),
        (IMAGE, MAP, MASK.T, r"mask has shape \(9, 6\), its image \(6, 9\)"),
    ],
)
def test_what_cannot_be_drawn_is_told_with_its_shape(image, map, mask, said):
    with pytest.raises(InputError, match=said):
        agop.plot.overlay(image, map, mask=mask)


@pytest.mark.parametrize("mask", [MASK, np.ones((3, 4), bool), np.zeros((3, 4), bool), np.eye(5, dtype=bool)])
def test_the_outline_parts_the_mask_from_the_rest(mask):
    expected = set()
    for row, column in np.argwhere(mask):
        for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
            beside = (row + down, column + right)
            inside = 0 <= beside[0] < mask.shape[0] and 0 <= beside[1] < mask.shape[1] and mask[beside]
            if not inside:
                middle = np.array([column + right / 2, row + down / 2])
                along = np.array([abs(down), abs(right)]) / 2
                expected.add((*(middle - along), *(middle + along)))
    assert {tuple(line.ravel()) for line in outline(mask)} == expected


# overlay


def test_overlay_shows_the_map_over_its_image_with_a_bar_from_0_to_its_maximum():
    figure = agop.plot.overlay(IMAGE, torch.from_numpy(5 * MAP).requires_grad_(), mask=MASK, title="mine")
    axes, bar = figure.axes
    assert np.array_equal(drawn(axes), heat.overlay(picture_of(IMAGE), 5 * MAP))
    assert len(axes.collections[0].get_segments()) == len(outline(MASK))
    assert bar.get_ylim() == (0, 5 * MAP.max())
    assert bar.get_ylabel() == "map value"
    assert axes.get_title() == "mine"


def test_the_bar_has_the_colours_of_the_maps():
    bar = colour_bar(agop.plot.overlay(IMAGE, MAP))
    shown = bar._colorbar.mappable.to_rgba([0, MAP.max() / 2, MAP.max()], bytes=True)[:, :3]
    expected = heat.heat(np.array([[0, 0.5, 1.0]]))[0]
    assert np.abs(shown.astype(int) - expected).max() <= 3


def test_overlay_draws_into_axes_that_are_given():
    whole = Figure()
    left, right = whole.subfigures(1, 2)
    assert agop.plot.overlay(IMAGE, MAP, ax=right.subplots(), title="right") is whole
    assert "right" in texts(right)
    assert not left.axes


@pytest.mark.parametrize(("value", "said"), [(torch.nan, "not finite"), (torch.inf, "not finite"), (0.0, "all zero")])
def test_a_map_that_says_nothing_says_so(value, said):
    dead = torch.full((6, 9), value)
    alone = agop.plot.overlay(IMAGE, dead)
    assert said in texts(alone)
    assert len(alone.axes) == 1  # no bar without a scale
    beside = agop.plot.compare(IMAGE[None], {"dead": dead[None], "good": MAP[None]})
    assert said in texts(beside)
    without = agop.plot.compare(IMAGE[None], {"good": MAP[None]})
    assert np.array_equal(drawn(beside.axes[2]), drawn(without.axes[1]))
    assert len(agop.plot.compare(IMAGE[None], {"dead": dead[None]}).axes) == 2
    assert said in texts(agop.plot.show(IMAGE[None], dead[None]))


# compare


def test_compare_shows_the_root_of_each_share_on_one_scale():
    maps = {"even": np.ones((2, 6, 9)), "own": NUMBERS.random((2, 6, 9)) ** 4}
    figure = agop.plot.compare(IMAGE[None].expand(2, -1, -1, -1), maps, masks=np.stack([MASK, ~MASK]))
    shares = {name: found / found.sum((1, 2), keepdims=True) for name, found in maps.items()}
    top = max(share.max() for share in shares.values())
    for row in range(2):
        image, *panels = figure.axes[3 * row : 3 * row + 3]
        assert np.array_equal(drawn(image), picture_of(IMAGE))
        for axes, share in zip(panels, shares.values(), strict=True):
            assert np.array_equal(drawn(axes), heat.heat(np.sqrt(share[row] / top), 1.0))
            assert len(axes.collections[0].get_segments()) == len(outline((MASK, ~MASK)[row]))
    assert colour_bar(figure).get_ylim() == pytest.approx((0, top))


def test_the_unit_of_a_map_does_not_matter():
    maps = [{"a": MAP[None] * unit, "b": MAP[None] ** 3} for unit in (1, 1e-8, 1e20)]
    first, *others = [[drawn(axes) for axes in agop.plot.compare(IMAGE[None], given).axes[:3]] for given in maps]
    for other in others:
        assert all(np.abs(a.astype(int) - b).max() <= 1 for a, b in zip(first, other, strict=True))


def test_the_bar_of_shares_has_round_percents_that_stand_where_they_say():
    for power in (1, 8, 60):
        figure = agop.plot.compare(IMAGE[None], {"own": MAP[None] ** power})
        bar = colour_bar(figure)
        figure.draw_without_rendering()
        ticks, labels = bar.get_yticks(), [label.get_text() for label in bar.get_yticklabels()]
        assert [float(label.removesuffix(" %")) for label in labels] == pytest.approx(100 * ticks, rel=0.01)
        assert (np.diff(ticks) > 0).all()
        assert (ticks[0], ticks[-1]) == pytest.approx(bar.get_ylim())
        assert bar.get_ylabel() == "share of the map"


def test_rows_and_columns_have_their_names_in_lines_that_fit():
    maps = {"integrated-gradients@a-long-baseline": MAP[None], "vanilla": MAP[None]}
    figure = agop.plot.compare([IMAGE], maps, titles=["class 3"])
    figure.draw_without_rendering()
    assert {"image", "vanilla", "class 3"} <= texts(figure)
    heads = [axes.title.get_window_extent() for axes in figure.axes[:3]]
    assert all(a.x1 < b.x0 for a, b in pairwise(heads))
    assert all(box.y1 <= figure.bbox.height for box in heads)
    assert figure.axes[1].get_title().replace("\n", "") == "integrated-gradients@a-long-baseline"


def test_large_letters_stay_on_the_page():
    with matplotlib.rc_context({"font.size": 18}):
        figure = agop.plot.compare([IMAGE], {"integrated-gradients": MAP[None]}, titles=["metal"])
        figure.draw_without_rendering()
        page, tight = figure.bbox, figure.get_tightbbox().transformed(figure.dpi_scale_trans)
    assert tight.x0 >= 0
    assert tight.y0 >= 0
    assert tight.x1 <= page.x1
    assert tight.y1 <= page.y1


@pytest.mark.parametrize(
    ("count", "maps", "more", "said"),
    [
        (2, {"own": MAP[None]}, {}, r"own has shape \(1, 6, 9\): give maps \(2,6,9\)"),
        (1, {"own": MAP[None, :5]}, {}, r"own has shape \(5, 9\), its image \(6, 9\)"),
        (1, {}, {}, "no method"),
        (1, MAP[None], {}, "maps is a ndarray"),
        (1, {"own": MAP[None]}, {"masks": [MASK, MASK]}, "1 images and 2 masks"),
        (1, {"own": MAP[None]}, {"titles": []}, "1 images and 0 titles"),
        (0, {"own": MAP[None]}, {}, "0 images"),
        (101, {"own": MAP[None]}, {}, "101 images: give 1 to 100"),
    ],
)
def test_what_does_not_fit_together_is_told(count, maps, more, said):
    with pytest.raises(InputError, match=said):
        agop.plot.compare(IMAGE[None].expand(count, -1, -1, -1), maps, **more)


# show


@pytest.mark.parametrize(("count", "columns"), [(1, 1), (6, 6), (8, 6)])
def test_show_has_a_column_for_each_of_the_first_six_images(count, columns):
    images, maps = torch.rand(count, 3, 4, 4), torch.rand(count, 4, 4)
    figure = agop.plot.show(images, maps)
    assert len(figure.axes) == 2 * columns + 1
    for column in range(columns):
        axes = figure.axes[column]
        assert axes.get_title() == f"{column + 1} of {count}"
        assert np.array_equal(drawn(axes), picture_of(images[column]))


def test_show_draws_the_maps_below_their_images_on_one_scale():
    images, maps = np.zeros((2, 4, 4, 3)), np.zeros((2, 4, 4))
    maps[0, 3, 3], maps[1, 0, 3] = 5, 1e-9
    figure = agop.plot.show(images, maps, title="vanilla")
    for axes, expected in zip(figure.axes[2:4], maps, strict=True):
        assert np.array_equal(drawn(axes), heat.heat(expected))
    assert [axes.get_ylabel() for axes in figure.axes[::2][:2]] == ["image", "vanilla"]
    assert colour_bar(figure).get_ylim() == (0, 1)


def test_show_names_the_targets():
    images, maps = torch.rand(3, 1, 4, 4), torch.rand(3, 4, 4)
    numbered = agop.plot.show(images, maps, targets=torch.tensor([0, 2, 1]))
    assert [axes.get_title() for axes in numbered.axes[:3]] == ["1 of 3, class 0", "2 of 3, class 2", "3 of 3, class 1"]
    named = agop.plot.show(images, maps, targets=["cat", "dog", "cat"])
    assert named.axes[1].get_title() == "2 of 3, dog"


def test_show_thins_large_images_and_averages_their_maps():
    maps = torch.ones(1, 700, 300)
    maps[0, 0, 0] = 10
    image, saliency = agop.plot.show(torch.rand(1, 3, 700, 300), maps).axes[:2]
    assert drawn(image).shape == drawn(saliency).shape == (234, 100, 3)
    assert drawn(saliency)[0, 0].tolist() == heat.heat(np.ones((1, 1)))[0, 0].tolist()


@pytest.mark.parametrize(
    ("maps", "targets", "message"),
    [
        (torch.rand(1, 6, 9), None, "2 images and 1 maps: pass one per image"),
        (torch.rand(2, 6, 9), [1], "2 images and 1 targets"),
        (torch.rand(2, 9, 6), None, r"map has shape \(9, 6\), its image \(6, 9\)"),
        (-torch.ones(2, 6, 9), None, "goes down to -1"),
    ],
)
def test_show_rejects_maps_that_do_not_fit(maps, targets, message):
    with pytest.raises(InputError, match=message):
        agop.plot.show(IMAGE[None].expand(2, -1, -1, -1), maps, targets=targets)


def test_show_rejects_an_empty_batch():
    with pytest.raises(InputError, match="0 images: pass at least one"):
        agop.plot.show(torch.rand(0, 3, 4, 4), torch.rand(0, 4, 4))


# convergence


def test_convergence_shows_means_over_seeds_and_their_range(tmp_path):
    rows = [
        noted(scenario, seed, step, method, metric, value + 0.1 * seed)
        for scenario in ("one", "two")
        for seed in (0, 1)
        for step in (100, 200)
        for method, metric, value in [
            ("model", "accuracy", 0.5), ("agop-global", "iou", step / 1000), ("agop-global", "energy", 0.9),
        ]
    ]  # fmt: skip
    rows.append(noted("two", 0, 300, "agop-global", "iou", 0.6))
    rows.append(noted("two", 1, 300, "agop-global", "iou", None))
    figure = agop.plot.convergence(written(tmp_path, rows))
    one, two = figure.axes
    assert [one.get_title(), two.get_title()] == ["one, plain", "two, plain"]
    curves = {line.get_label(): line for line in two.get_lines()}
    assert list(curves) == ["accuracy", "mIoU of agop-global"]
    assert curves["accuracy"].get_ydata() == pytest.approx([0.55, 0.55])
    assert curves["mIoU of agop-global"].get_xdata().tolist() == [100, 200, 300]
    assert curves["mIoU of agop-global"].get_ydata() == pytest.approx([0.15, 0.25, 0.6])
    band = two.collections[1].get_paths()[0].vertices
    assert {(x, round(y, 6)) for x, y in band} == {(100, 0.1), (100, 0.2), (200, 0.2), (200, 0.3), (300, 0.6)}
    assert {"training step", "mIoU, accuracy", "mean and range of 2 seeds"} <= texts(figure)


def test_lines_differ_in_colour_and_in_dash(tmp_path):
    methods = [("model", "accuracy"), ("agop-global", "iou"), ("agop-weighted", "iou")]
    rows = [noted("one", 0, step, *method, 0.5) for step in (1, 2) for method in methods]
    figure = agop.plot.convergence(written(tmp_path, rows, seeds=1, scenarios=("one",)))
    lines = figure.axes[0].get_lines()
    assert len({line.get_color() for line in lines}) == len({line.get_linestyle() for line in lines}) == 3


def test_a_metric_that_was_not_noted_and_folders_of_something_else(tmp_path):
    run = written(tmp_path / "run", [noted("one", 0, 1, "agop-global", "iou", 0.5)])
    with pytest.raises(InputError, match=r"energy was not noted.*give one of iou"):
        agop.plot.convergence(run, metric="energy")
    with pytest.raises(UnknownNameError, match="nothing"):
        agop.plot.convergence(run, metric="nothing")
    with pytest.raises(FileError, match="no rows of convergence"):
        agop.plot.convergence(written(tmp_path / "empty", []))
    with pytest.raises(FileError, match="neither a run nor snapshots"):
        agop.plot.convergence(tmp_path)
    with pytest.raises(FileError, match=r"snapshots does not exist: .*snapshot_every steps"):
        agop.plot.convergence(tmp_path / "snapshots")
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="file is a file: give a run folder"):
        agop.plot.convergence(tmp_path / "file")


def test_a_scenario_without_a_background_leaves_its_place_empty(tmp_path):
    rows = [noted("one", 0, 1, "agop-global", "iou", 0.5)]
    figure = agop.plot.convergence(written(tmp_path, rows, absent=("two/plain",)))
    assert [axes.get_visible() for axes in figure.axes] == [True, False]


def test_snapshots_of_a_hook_show_how_the_diagonal_grows(tmp_path):
    model = zoo.build("plain")
    hook = agop.AGOPTrainingHook(model, only_correct=False, snapshot_every=2, snapshot_dir=tmp_path)
    for step in range(20):
        hook.step(zoo.images(4) * (step + 1))
    figure = agop.plot.convergence(str(tmp_path))
    (curve,) = next(axes for axes in figure.axes if axes.get_xlabel() == "training step").get_lines()
    assert curve.get_xdata().tolist() == list(range(2, 21, 2))
    assert curve.get_ydata()[-1] == pytest.approx(1)
    diagonals = [agop.AGOP.load(path).diagonal.flatten() for path in sorted(tmp_path.iterdir())]
    cosines = [float(torch.cosine_similarity(d, diagonals[-1], dim=0)) for d in diagonals]
    assert curve.get_ydata() == pytest.approx(cosines)
    assert [axes.get_title() for axes in figure.axes[:6]] == [f"step {step}" for step in (2, 6, 10, 12, 16, 20)]
    assert colour_bar(figure).get_ylabel() == "share of the map"


def test_snapshots_of_ranks_are_one_statistic(tmp_path):
    for rank, (value, count) in enumerate([(1.0, 1), (5.0, 3)]):
        agop.AGOP(torch.tensor([[[value, 1.0]]]), count).save(tmp_path / f"step-00000100-rank{rank}.safetensors")
    agop.AGOP(torch.tensor([[[4.0, 1.0]]]), 4).save(tmp_path / "step-00000200.safetensors")
    figure = agop.plot.convergence(tmp_path)
    first, last = (drawn(axes) for axes in figure.axes[:2])
    assert np.array_equal(first, last)  # (1·1 + 3·5) / 4 = 4


# What is left behind


def test_nothing_global_changes():
    plt.close("all")
    plt.figure()
    before, settings = plt.get_fignums(), dict(matplotlib.rcParams)
    figure = agop.plot.compare(IMAGE[None], {"own": MAP[None]}, masks=MASK[None])
    figure._repr_png_()
    agop.plot.overlay(IMAGE, MAP).draw_without_rendering()
    assert plt.get_fignums() == before
    assert dict(matplotlib.rcParams) == settings
    plt.close("all")


def test_figures_can_be_saved_and_copied(tmp_path):
    figure = agop.plot.overlay(IMAGE, MAP, mask=MASK, title="mine")
    for suffix, start in (("pdf", b"%PDF"), ("svg", b"<?xml"), ("png", b"\x89PNG")):
        figure.savefig(tmp_path / f"figure.{suffix}")
        assert (tmp_path / f"figure.{suffix}").read_bytes().startswith(start)
    assert pickle.loads(pickle.dumps(figure))._repr_png_() == figure._repr_png_()


@pytest.mark.slow
def test_no_backend_is_needed_or_loaded(tmp_path):
    code = (
        "import sys, numpy as np, agop\n"
        "figure = agop.plot.overlay(np.zeros((4, 4)), np.ones((4, 4)))\n"
        f"figure.savefig({str(tmp_path / 'x.pdf')!r})\n"
        "print('matplotlib.pyplot' in sys.modules)"
    )
    environment = os.environ | {"MPLBACKEND": "qtagg"}
    environment.pop("DISPLAY", None)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "False\n"


def test_without_matplotlib_the_error_says_what_to_install():
    code = (
        "import sys\n"
        "sys.modules['matplotlib'] = None  # Python's own way to say that a package is not there\n"
        "import agop\n"
        "try: agop.plot.overlay\n"
        "except agop.AGOPError as error: print(error)\n"
        "print(dir(agop.plot))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    error, names = done.stdout.splitlines()
    assert error == "agop.plot needs matplotlib: pip install 'agop[plot]'"
    assert names == "['compare', 'convergence', 'overlay', 'show']"


@pytest.mark.slow
def test_in_a_notebook_a_figure_shows_itself(tmp_path):
    setup = "import numpy as np, agop; numbers = np.random.default_rng(0).random((1, 4, 4))"
    cells = ["agop.plot.compare(numbers, {'own': numbers})", "agop.plot.overlay(numbers[0], numbers[0])"]
    cells.append("agop.plot.show(numbers, numbers)")
    for text, size in displayed(tmp_path, setup, *cells):
        assert size is not None
        assert min(size) > 100
        assert text.startswith("<ShownFigure size ")
