"""The HTML page: its text and the data behind it. What the browser shows is tested in tests/browser."""

import base64
import gzip
import io
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save
from safetensors.torch import save_file
from torch import nn

import agop
from agop.images.overlays import signed_picture
from agop.prior.matrices import sketch_eigenvectors
from tests import zoo
from tests.command import error_of
from tests.drawn_figures import pixels
from tests.report_runs import (
    Tags,
    add_gallery,
    change_about,
    replace_name,
    report,
    write_clevr,
    write_evaluation,
    write_xai_tris,
)  # fmt: skip

SCORES = {"random": [0.1, 0.2, 0.1, 0.2], "vanilla": [0.3, 0.5, np.nan, 0.4]}
CELL = "cells/linear-uncorrelated-000"


def page_data(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def gallery(folder, maps, masks=None, **options):
    """The page's data of an evaluation with these maps (S,H,W) by method and masks (S,H,W)."""
    count, *size = next(iter(maps.values())).shape
    write_evaluation(folder, SCORES, "my scans", "energy")
    masks = np.zeros((count, *size)) if masks is None else masks
    pictures, classes = np.zeros((count, *size, 3), dtype=np.uint8), [0] * count
    cell = folder / "cells" / "my scans-given-000"
    add_gallery(cell, pictures, classes, classes, {"true": masks}, maps, **options)
    return page_data(report(folder, "html"))["cells"][0]["gallery"]


def edges(path):
    """The unit edges of an outline, each as a pair of corners."""
    pairs = []
    for start_x, start_y, direction, stop in re.findall(r"M(\d+) (\d+)([HV])(\d+)", path):
        x, y, end = int(start_x), int(start_y), int(stop)
        steps = range(x, end) if direction == "H" else range(y, end)
        pairs += [((s, y), (s + 1, y)) if direction == "H" else ((x, s), (x, s + 1)) for s in steps]
    return pairs


def test_outlines_have_each_edge_between_inside_and_outside_once(tmp_path):
    random = np.random.default_rng(0)
    masks = np.stack([random.random((7, 5)) < density for density in (0.0, 0.1, 0.5, 0.9, 1.0)])
    for mask, path in zip(masks, gallery(tmp_path, {"random": masks}, masks)["outlines"]["true"], strict=True):
        padded, expected = np.pad(mask, 1), set()
        for y, x in np.argwhere(mask):
            beside = {
                (0, 1): ((x, y), (x + 1, y)), (2, 1): ((x, y + 1), (x + 1, y + 1)),
                (1, 0): ((x, y), (x, y + 1)), (1, 2): ((x + 1, y), (x + 1, y + 1)),
            }  # fmt: skip
            expected |= {edge for (down, right), edge in beside.items() if not padded[y + down, x + right]}
        drawn = edges(path)
        assert len(drawn) == len(set(drawn))
        assert set(drawn) == expected


def unpack(packed, shape):
    """Shares (S,H,W) from bytes, as the page's script computes them."""
    steps = np.frombuffer(base64.b64decode(packed["bytes"]), dtype=np.uint8).reshape(shape)
    tops = np.array([top or 0 for top in packed["tops"]])[:, None, None]
    return tops * (steps / 255) ** 2


def test_maps_are_each_pixels_share_of_its_map(tmp_path):
    maps = np.random.default_rng(0).random((3, 8, 9)) ** 4 * np.array([1, 1000, 1e-9])[:, None, None]
    packed = gallery(tmp_path, {"vanilla": maps})["maps"]["vanilla"]
    shares = maps / maps.sum(axis=(1, 2), keepdims=True)
    assert packed["tops"] == pytest.approx(shares.max(axis=(1, 2)), rel=1e-5)
    # Half a step of 255 on the square-root axis.
    roots = np.sqrt(shares.max(axis=(1, 2), keepdims=True))
    assert (abs(np.sqrt(unpack(packed, maps.shape)) - np.sqrt(shares)) <= roots * 0.51 / 255).all()


def test_all_zero_and_non_finite_maps_have_no_shares(tmp_path):
    maps = np.ones((3, 2, 2))
    maps[0], maps[2, 0, 0] = 0, np.nan
    assert gallery(tmp_path, {"vanilla": maps})["maps"]["vanilla"]["tops"] == [None, 0.25, None]


def test_large_maps_are_summed_in_blocks(tmp_path):
    maps = np.random.default_rng(0).random((1, 300, 200))
    view = gallery(tmp_path, {"vanilla": maps})
    assert (view["step"], view["rows"], view["columns"]) == (3, 100, 67)
    shares = unpack(view["maps"]["vanilla"], (1, 100, 67))
    assert shares[0, 1, 66] == pytest.approx(maps[0, 3:6, 198:200].sum() / maps.sum(), rel=0.01)


def columns(text, metric):
    """Of each task in a grid: marks by method, and the attributes and content of the cells by method."""
    grid = text[text.index(f'<div class="grid" data-metric="{metric}">') :].split("</table>")[0]
    names = [re.sub("<wbr>", "", name) for name in re.findall('<th scope="col">(.*?)</th>', grid)[1:]]
    found = {name: ({}, {}) for name in names}
    for method, row in re.findall(r'<tr data-method="(.*?)">(.*?)</tr>', grid, re.DOTALL):
        for name, cell in zip(names, re.findall("<td(.*?</span>)</td>", row), strict=True):
            marks, cells = found[name]
            cells[method] = cell
            if mark := re.search('class="mark"> (.)<', cell):
                marks[method] = mark[1]
    return found


def test_methods_in_the_grid_are_sorted_by_their_mean_over_tasks(tmp_path):
    text = report(write_xai_tris(tmp_path), "html")
    for metric, up in (("iou", True), ("deletion", False)):
        cells = [cells for _, cells in columns(text, metric).values()]
        means = [
            np.mean([float(re.search(">([0-9.]+)<", each[method])[1]) for each in cells])
            for method in cells[0]
            if method != "random"
        ]
        assert means == sorted(means, reverse=up)
        assert len(set(means)) > 3


def test_the_grid_marks_the_winner_its_equals_and_higher_controls(tmp_path):
    values = {"agop-weighted": (0.39, 0.40, 0.41), "smoothgrad": (0.40, 0.39, 0.40), "agop-global": (0.19, 0.20, 0.21),
              "random": (0.9, 0.9, 0.9)}  # fmt: skip

    def change(row):
        changed = row["metric"] == "iou" and row["scenario"] == "linear" and row["background"] == "uncorrelated"
        return {"value": values.get(row["method"], (0.1,) * 3)[row["seed"]]} if changed else None

    text = report(write_xai_tris(tmp_path, change), "html")
    marks, cells = columns(text, "iou")["linear / uncorrelated"]
    assert marks == {"agop-weighted": "★", "smoothgrad": "≈", "random": "▲"}
    assert ">0.400<" in cells["agop-weighted"]
    assert 'title="[0.373, 0.427]; best of its column"' in cells["agop-weighted"]
    assert list(cells)[-1] == "random"  # controls are last, also when they score higher
    marks, _ = columns(text, "deletion")["linear / uncorrelated"]
    assert [method for method, mark in marks.items() if mark == "★"] == ["gradcam"]  # lower is better


def test_one_seed_marks_no_method_as_equal_to_the_best_and_text_is_readable_on_every_colour(tmp_path):
    text = report(write_xai_tris(tmp_path, seeds=1), "html")
    for marks, cells in (column for metric in ("iou", "deletion") for column in columns(text, metric).values()):
        assert "≈" not in marks.values()
        styles = " ".join(cells.values())
        for *colour, ink in re.findall(r"background: rgb\((\d+), (\d+), (\d+)\); color: (#\w+)", styles):
            part = np.array(colour, dtype=float) / 255
            linear = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
            light = linear @ (0.2126, 0.7152, 0.0722) + 0.05
            assert (1.05 / light if ink == "#fff" else light / 0.05) >= 4.5


def test_undefined_scores_have_counts_and_reasons(tmp_path):
    def change(row):
        if row["method"] == "gradcam":
            return {"value": None, "n": 0, "undefined": {"map is zero everywhere": 10}}
        return {"n": 9, "undefined": {"mask is empty": 1}} if row["method"] == "vanilla" else None

    run = write_xai_tris(tmp_path, change)
    assert "| gradcam | – | – | – | – |" in report(run, "markdown")
    text = report(run, "html")
    assert "PG of gradcam: undefined; paper: 0.000; 0 of 30 samples scored (map is zero everywhere: 30)" in text
    assert "<li>vanilla: 27 of 30 samples scored (mask is empty: 3).</li>" in text
    assert "<li>gradcam: 0 of 30 samples scored (map is zero everywhere: 30).</li>" in text


def test_the_page_is_well_formed_and_forbids_network_access(tmp_path):
    run = write_xai_tris(tmp_path)
    text = report(run, "html")
    tags = Tags(text)
    assert tags.open == []
    assert tags.names.count("section") == 6
    assert re.search(r'Content-Security-Policy" content="default-src \'none\'', text)
    head = text[: text.index("plotly.js")]
    assert "http://" not in head
    assert "https://" not in head
    assert report(run, "html") == text
    packed_rows = re.search(r'<script type="text/plain" id="raw-0">(.*?)</script>', text)[1]
    assert gzip.decompress(base64.b64decode(packed_rows)) == (tmp_path / "rows.jsonl").read_bytes()


def test_names_from_the_run_are_escaped_everywhere(tmp_path):
    write_xai_tris(tmp_path)
    method, scenario = "</script><b>x\"'&{{7*7}}", "<b>x\"'&{{7*7}}<!--"
    replace_name(tmp_path, "vanilla", method)
    text = report(replace_name(tmp_path, "xor", scenario), "html")
    assert "b" not in Tags(text).names
    assert method in page_data(text)["methods"]
    assert page_data(text)["places"][3]["scenario"] == scenario


def test_an_evaluation_has_no_claims_no_convergence_and_no_accuracy(tmp_path):
    run = write_evaluation(tmp_path, SCORES, "my scans", "energy")
    text = report(run, "html")
    assert 'id="convergence"' not in text
    assert "claims" not in re.sub(r"<(style|script).*?</\1>", "", text, flags=re.DOTALL)
    assert "None" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert "This run has no gallery" in text
    markdown = report(run, "markdown")
    assert "## my scans / given\n" in markdown
    assert "claims" not in markdown


def test_the_gallery_has_images_maps_scores_and_classes(tmp_path):
    write_evaluation(tmp_path, SCORES, "my scans", "energy")
    cell = tmp_path / "cells" / "my scans-given-000"
    random = np.random.default_rng(0)
    maps = {"random": random.random((3, 4, 4)), "vanilla": random.random((3, 4, 4))}
    pictures = random.integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    add_gallery(cell, pictures, [0, 1, -1], [0, 0, 1], {"true": np.ones((3, 4, 4))}, maps)
    diagonals = random.random((2, 3, 4, 4))
    diagonals[1] = np.nan
    (cell / "agop.safetensors").write_bytes(save({"class_diagonals": diagonals, "diagonal": diagonals[0]}))
    view = page_data(report(tmp_path, "html"))["cells"][0]["gallery"]
    assert view["labels"] == ["healthy", "class 1", ""]
    assert view["predicted"] == ["healthy", "healthy", "class 1"]
    assert view["right"] == [True, False, None]
    assert list(view["maps"]) == ["random", "vanilla"]
    assert view["scores"]["true"]["vanilla"]["energy"] == [0.3, 0.5, None]
    assert view["classes"]["names"] == ["healthy", "class 1"]
    assert view["classes"]["maps"]["tops"][1] is None


def test_gallery_samples_have_their_own_scores_and_names(tmp_path):
    view = gallery(tmp_path, {"vanilla": np.zeros((2, 4, 4))}, places=[1, 3])
    assert view["scores"]["true"]["vanilla"]["energy"] == [0.5, 0.4]
    assert view["names"] == ["image 2", "image 4"]
    assert "2 evenly spaced images of 4, not hand-picked" in " ".join((tmp_path / "index.html").read_text().split())
    run = replace_name(tmp_path, "x", "x")
    text = report(change_about(run, samples={"my scans": ["a/1.png", "b/<3>.png"]}), "html")
    assert page_data(text)["cells"][0]["gallery"]["names"] == ["a/1.png", "b/<3>.png"]


def test_frames_are_evenly_spaced_and_share_one_scale(tmp_path):
    run = write_xai_tris(tmp_path)
    folder = tmp_path / CELL / "snapshots"
    folder.mkdir()
    for k in range(1, 201):
        (folder / f"step-{100 * k:08d}.safetensors").write_bytes(save({"diagonal": np.full((2, 3, 3), k / 2)}))
    history = page_data(report(run, "html"))["cells"][0]["training"]
    frames = history["frames"]
    assert len(frames["steps"]) == 60
    assert (frames["steps"][0], frames["steps"][-1], frames["top"]) == (100, 20000, 200)
    assert len(set(np.diff(frames["steps"]))) <= 2
    steps = np.frombuffer(base64.b64decode(frames["bytes"]), dtype=np.uint8).reshape(60, 9)
    assert steps[:, 0] == pytest.approx(255 * np.sqrt(np.array(frames["steps"]) / 20000), abs=0.5)
    curve = history["curves"]["agop-global"]["iou"]
    assert curve["steps"] == [100, 200, 300]
    assert curve["mean"] == pytest.approx([0.11, 0.21, 0.31])
    assert (curve["low"][0], curve["high"][0], curve["seeds"]) == (0.1, 0.12, 3)


def test_variants_have_a_table_and_higher_controls_are_marked(tmp_path):
    run = write_clevr(tmp_path, {"agop-global": [0.3, 0.31], "centre": [0.9, 0.9], "mean-mask": [0.1, 0.1]})
    text = report(run, "html")
    assert re.search(r"<h3 .*variants, on the first 2 images</h3>", text)
    assert columns(text, "iou")["clevr-xai"][0] == {"agop-global": "★", "centre": "▲"}
    assert page_data(text)["variants"] == ["integrated-gradients@black"]


def fitted(model, shape=(3, 12, 12), **options):
    return agop.fit(model, [zoo.images(9, shape=shape)], only_correct=False, progress=False, **options)


def add_prior(cell, prior, model=None):
    """The prior, and the model's weights, as files of a cell."""
    prior.save(cell / "agop.safetensors")
    if model is not None:
        save_file(model.state_dict(), cell / "checkpoint.safetensors")


def assert_shows(text, shares, pictures):
    """The page's eigenvectors have these shares and pictures."""
    section = text[text.index('id="eigenvectors"') :].split("</section>")[0]
    panels = re.findall(r'<img[^>]*src="data:image/\w+;base64,([^"]*)".*?<figcaption>(.*?)<', section, re.DOTALL)
    assert [share for _, share in panels] == shares
    for (content, _), picture in zip(panels, pictures, strict=True):
        assert np.array_equal(Image.open(io.BytesIO(base64.b64decode(content))), picture)


def test_filters_are_those_of_the_first_cell(tmp_path):
    write_xai_tris(tmp_path, seeds=1, scenarios=("linear", "xor"))
    model = zoo.build("plain")
    prior = fitted(model)
    for name in (CELL, "cells/linear-correlated-000"):
        add_prior(tmp_path / name, prior, model)
    text = report(tmp_path, "html")
    assert "What the first layer looks for" in text
    figure = agop.plot.filters(prior, model, count=6)
    assert_shows(text, [axes.get_title() for axes in figure.axes], map(pixels, figure.axes))


def test_eigenimages_need_no_weights_and_come_with_the_residual_share(tmp_path):
    write_evaluation(tmp_path, {"random": [0.1, 0.2]}, "my scans")
    prior = fitted(agop.bench.CNN8by8(), (1, 8, 8), rank=5)
    add_prior(tmp_path / "cells" / "my scans-given-000", prior)
    text = report(tmp_path, "html")
    eigenvectors = sketch_eigenvectors(prior.sketch.numpy(), prior.count, prior.diagonal.numpy(), 6)
    assert_shows(text, eigenvectors.percents, map(signed_picture, eigenvectors.vectors))
    assert f"residual share {100 * prior.residual_share:.3g} %" in text
    assert "What the first layer looks for" not in text


GROUPED = nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.ReLU(), nn.Flatten(), nn.Linear(600, 3))


@pytest.mark.parametrize(
    ("model", "options", "with_weights"),
    [
        (None, {}, False),
        (zoo.build("plain"), {"patches": False}, True),
        (zoo.build("plain"), {}, False),
        (zoo.build("attention"), {"layer": "block.norm1"}, True),
        (GROUPED, {}, True),
    ],
    ids=["no prior", "no patch matrix", "no weights", "tokens", "groups"],
)
def test_runs_without_filters_and_sketch_have_no_panel(tmp_path, model, options, with_weights):
    write_xai_tris(tmp_path, seeds=1, scenarios=("linear",))
    if model is not None:
        add_prior(tmp_path / CELL, fitted(model, **options), model if with_weights else None)
    assert 'id="eigenvectors"' not in report(tmp_path, "html")


@pytest.mark.parametrize("name", ["patch_matrix", "sketch"])
def test_parts_that_are_not_finite_raise(tmp_path, name):
    write_xai_tris(tmp_path, seeds=1, scenarios=("linear",))
    model = zoo.build("plain")
    prior = fitted(model, rank=4)
    getattr(prior, name)[0, 0] = torch.nan
    add_prior(tmp_path / CELL, prior, model)
    message = error_of("report", tmp_path, folder=tmp_path)
    assert re.search(r"agop.safetensors is damaged .*: delete", message)
