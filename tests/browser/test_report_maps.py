"""The maps and charts of a run's page in a real browser, compared with the run's files."""

import base64
import io
import shutil

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from agop.images.overlays import Colouring, top_value
from agop.report.folder import Gallery
from agop.report.page import page as page_text
from agop.report.pictures import block_sums, outline
from agop.report.run import Run
from tests.browser.pages import canvas_bytes, colour_indices, mean, rows, shares

pytest_plugins = ("tests.browser.report_run",)

CELL = "linear-uncorrelated-000"


@pytest.fixture(scope="module")
def gallery(run_folder):
    return Gallery.load(run_folder / "cells" / CELL)


@pytest.fixture(scope="module")
def by_class(run_folder):
    """diag(M) per class (K,H,W), as shares."""
    diagonals = load_file(run_folder / "cells" / CELL / "agop.safetensors")["class_diagonals"].sum(axis=1)
    return np.stack([shares(diagonal) for diagonal in diagonals])


def drawn(page, name, shape):
    """Colour indices (H,W) of a method's map on the page."""
    return colour_indices(canvas_bytes(page, f'#maps figure[data-method="{name}"] canvas'), shape)


def test_every_sample_shows_its_image_outline_and_maps(report, gallery):
    outlines, pictures = set(), set()
    for sample in range(len(gallery.pictures)):
        address = report.locator("#maps .picture img").get_attribute("src")
        picture = np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))))
        assert np.array_equal(picture, gallery.pictures[sample])
        paths = report.locator("#maps path.over").evaluate_all("paths => paths.map(path => path.getAttribute('d'))")
        assert set(paths) == {outline(gallery.masks["true"][sample])}
        strengths, _ = Colouring().strengths({name: maps[sample] for name, maps in gallery.maps.items()})
        for name, strength in strengths.items():
            assert drawn(report, name, strength.shape) == pytest.approx(255 * strength, abs=1.6)  # rounded twice
        outlines.add(paths[0])
        pictures.add(address)
        report.keyboard.press("ArrowRight")
    assert len(outlines) > 1
    assert len(pictures) == len(gallery.pictures)
    report.locator("#outline").uncheck()
    assert report.locator("#maps svg").count() == 0


def test_arrow_keys_and_buttons_step_through_the_samples(report, run_folder, gallery):
    scores = load_file(run_folder / "cells" / CELL / "scores.safetensors")

    def check(sample):
        assert report.locator("#sample").inner_text() == f"sample {sample + 1} of {len(gallery.pictures)}"
        figure = report.locator('#maps figure[data-method="agop-weighted"]')
        text = figure.locator('[data-metric="average_precision"] dd').inner_text()
        assert text == f"{scores['true/agop-weighted/average_precision'][sample]:.2f}"
        right = gallery.labels[sample] == gallery.predicted[sample]
        assert report.locator("#maps .picture .right").count() == int(right)
        assert report.locator("#maps .picture .wrong").count() == int(not right)

    check(0)
    for sample in (1, 2):
        report.keyboard.press("ArrowRight")
        check(sample)
    report.keyboard.press("ArrowLeft")
    check(1)
    report.locator("#next").click()
    check(2)
    report.locator("#previous").click()
    report.locator("#previous").click()
    report.keyboard.press("ArrowLeft")
    check(len(gallery.pictures) - 1)
    report.locator("#scale").focus()
    report.keyboard.press("ArrowDown")  # the select uses the arrows itself
    report.locator("#step").focus()
    report.keyboard.press("ArrowLeft")
    check(len(gallery.pictures) - 1)


def test_maps_have_their_own_scale_or_one_for_all(report, gallery, by_class):
    maps = {name: saliency[0] for name, saliency in gallery.maps.items()}
    classes = {f"class {index}": diagonal for index, diagonal in enumerate(by_class)}
    for name, saliency in maps.items():
        assert drawn(report, name, saliency.shape).max() == (255 if saliency.any() else 0)
    assert report.locator("#ticks span").all_inner_texts() == ["0", "25 %", "50 %", "75 %", "100 %"]
    assert "pixels above it have at most 2\u00a0% of the map’s sum" in report.locator("#bar-title").inner_text()
    # The common scale ends at the largest share on the page.
    report.select_option("#scale", "common")
    strengths, top = Colouring("common").strengths(maps | classes)
    assert any(0 < strengths[name].max() < 0.75 for name in maps)
    for name, saliency in maps.items():
        assert drawn(report, name, saliency.shape) == pytest.approx(255 * strengths[name], abs=1.1)
    last = report.locator("#ticks span").last.inner_text()
    assert float(last.removesuffix(" %")) == pytest.approx(100 * top, rel=0.05)


def test_agop_global_is_shown_per_class(shared_report, by_class):
    assert shared_report.locator("#class-maps figure").count() == len(by_class) == 2
    maps = [
        colour_indices(canvas_bytes(shared_report, f'#class-maps figure[data-class="{k}"] canvas'), by_class[k].shape)
        for k in range(2)
    ]
    assert not np.array_equal(*maps)
    strengths, _ = Colouring().strengths({str(k): by_class[k] for k in range(2)})
    assert np.array(maps) == pytest.approx(255 * np.stack(list(strengths.values())), abs=1.6)


@pytest.fixture
def large_maps(run_folder, tmp_path):
    """The run's page with other maps of 256×256 pixels, and these maps, as the page's blocks of 2×2."""
    folder = tmp_path / "run"
    shutil.copytree(run_folder, folder)
    (folder / "cells" / CELL / "agop.safetensors").unlink()
    y, x = np.mgrid[:256, :256]
    maps = {name: np.zeros((256, 256)) for name in ("broad", "noise", "one pixel", "zero", "constant", "NaN")}
    maps["broad"] += np.exp(-((x - 60) ** 2 + (y - 60) ** 2) / 5000)
    maps["noise"] += np.random.default_rng(0).random((256, 256)) ** 4
    maps["one pixel"][90, 200] = 1e-6
    maps["constant"] += 3.0
    maps["NaN"][5, 5] = np.nan
    picture, one = np.zeros((1, 256, 256, 3), dtype=np.uint8), np.zeros(1, dtype=int)
    gallery = Gallery(picture, one, one, {"true": picture[..., 0]}, {name: maps[name][None] for name in maps})
    gallery.save(folder / "cells" / CELL)
    (folder / "index.html").write_text(page_text(Run(folder)))
    return folder / "index.html", {name: block_sums(maps[name][None])[0] for name in maps}


@pytest.mark.slow
@pytest.mark.parametrize("scale", ["own", "common"])
def test_large_and_degenerate_maps_have_the_colours_of_python(page, large_maps, scale):
    path, maps = large_maps
    page.goto(path.as_uri())
    page.select_option("#scale", scale)
    strengths, _ = Colouring(scale).strengths(maps)
    assert (maps["noise"] > top_value(maps["noise"], 98)).sum() > 50  # clipped
    for name, strength in strengths.items():
        assert np.abs(drawn(page, name, (128, 128)) - 255 * strength).max() <= 1.6
    assert (strengths["broad"].max() == 1) == (scale == "own")
    assert page.locator("#maps .nothing").count() == 2


def test_the_slider_and_play_show_every_snapshot(report, run_folder):
    paths = sorted((run_folder / "cells" / CELL / "snapshots").glob("step-*.safetensors"))
    steps = [int(path.stem.removeprefix("step-")) for path in paths]
    diagonals = np.stack([load_file(path)["diagonal"].sum(axis=0) for path in paths])
    expected = 255 * np.sqrt(diagonals / diagonals.max())
    slider, last = report.locator("#step"), len(steps) - 1
    assert int(slider.get_attribute("max")) == last > 2
    assert not np.allclose(expected[0], expected[last], atol=5)
    for index in (last, 0, last // 2):
        slider.evaluate(
            "(slider, index) => { slider.value = index; slider.dispatchEvent(new Event('input', {bubbles: true})); }",
            index,
        )
        assert f"step {steps[index]:,} of {steps[-1]:,}" in report.locator("#frame-title").inner_text()
        indices = colour_indices(canvas_bytes(report, "#frame"), expected[index].shape)
        assert indices == pytest.approx(expected[index], abs=0.6)
        line = report.evaluate("document.getElementById('convergence-chart').layout.shapes[0].x0")
        assert line == steps[index]
    report.reload()
    report.evaluate(
        """() => {
             const canvas = document.getElementById('frame'), pen = canvas.getContext('2d');
             window.played = [];
             new MutationObserver(() => window.played.push([
               Number(document.getElementById('step').value),
               Array.from(pen.getImageData(0, 0, canvas.width, canvas.height).data),
             ])).observe(document.getElementById('frame-title'), {childList: true});
           }"""
    )
    report.locator("#play").click()
    report.wait_for_selector('#play[aria-pressed="false"]')
    played = report.evaluate("window.played")
    assert [index for index, _ in played] == list(range(len(steps)))
    for index, content in played:
        assert colour_indices(content, expected[index].shape) == pytest.approx(expected[index], abs=0.6)


def test_the_step_line_differs_in_colour_from_every_curve(report):
    for scheme, other in (("light", "dark"), ("dark", "light")):
        report.emulate_media(color_scheme=scheme)
        report.get_by_role("button", name=f"switch to {other} colours").wait_for()
        curves, line = report.evaluate(
            """(({data, layout}) => [data.map(trace => trace.line.color).filter(Boolean), layout.shapes[0].line.color])(
                 document.getElementById('convergence-chart'))"""
        )
        colours = np.array([[int(colour[place : place + 2], 16) for place in (1, 3, 5)] for colour in (line, *curves)])
        assert np.ptp(colours[0]) < 16  # black, white or grey
        assert len(set(curves)) == 3
        assert (np.abs(colours[1:] - colours[0]).max(axis=1) > 24).all()


def test_the_convergence_chart_shows_mean_and_range_over_seeds(report, run_folder):
    snapshot_rows = rows(run_folder, "convergence.jsonl")
    steps = sorted({row["step"] for row in snapshot_rows})
    place = {"scenario": "linear", "background": "uncorrelated"}
    for metric in ("iou", "energy"):
        report.select_option("#convergence-metric", metric)
        traces = report.evaluate("document.getElementById('convergence-chart').data")
        for name in ("agop-global", "agop-weighted", "accuracy"):
            of_model = {"method": "model", "metric": "accuracy"}
            where = place | (of_model if name == "accuracy" else {"method": name, "metric": metric})
            matching = [row for row in snapshot_rows if where.items() <= row.items()]
            seeds = [[row["value"] for row in matching if row["step"] == step] for step in steps]
            index = next(k for k, trace in enumerate(traces) if trace.get("name") == name)
            assert traces[index]["x"] == steps
            assert traces[index]["y"] == pytest.approx([np.mean(of) for of in seeds], abs=1e-4)
            ends = [max(of) for of in seeds] + [min(of) for of in seeds[::-1]]
            assert traces[index - 1]["y"] == pytest.approx(ends, abs=1e-4)


def test_the_cost_chart_shows_the_files_values_on_a_logarithmic_axis(shared_report, run_folder):
    chart = shared_report.evaluate(
        "(({data, layout}) => ({data, type: layout.xaxis.type}))(document.getElementById('cost-chart'))"
    )
    assert chart["type"] == "log"
    where, run = {"scenario": "linear", "background": "uncorrelated"}, Run(run_folder)
    points = []
    for trace in chart["data"]:
        ends = (trace["error_x"]["array"], trace["error_y"]["array"])
        points += zip(trace["text"], trace["x"], trace["y"], *ends, strict=True)
    scored = [method for method in run.spec.methods if run.estimate("linear", "uncorrelated", method, "iou")]
    assert sorted(point[0] for point in points) == sorted(scored)
    assert len(points) > 3
    for method, x, y, right, up in points:
        assert x == pytest.approx(mean(run_folder, "timings.jsonl", **where, method=method), rel=1e-4)
        assert y == pytest.approx(mean(run_folder, **where, method=method, metric="iou"), rel=1e-4)
        for name, value, reach in (("milliseconds", x, right), ("iou", y, up)):
            estimate = run.estimate("linear", "uncorrelated", method, name)
            assert value + reach == pytest.approx(estimate.interval[1], rel=1e-3)
