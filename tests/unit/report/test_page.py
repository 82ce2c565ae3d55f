"""The parts of the page. What the browser shows is tested in tests/browser."""

import base64
import gzip
import json
import re
from dataclasses import asdict
from html.parser import HTMLParser

import numpy as np
import pytest
from safetensors.numpy import save

from agop.pictures.colouring import Colouring
from agop.plot import figures
from agop.report.formats import registry
from agop.report.numbers import number
from agop.report.page.colours import inferno, shade
from agop.report.page.map_bytes import block_size, block_sums, pack_maps
from agop.report.page.outlines import outline
from agop.report.page.table_view import table_views
from agop.report.page.training_history import training_history
from agop.report.page.winner_grids import winner_grids
from agop.report.run import Run
from agop.runs.cell_files import seal
from agop.runs.gallery import Gallery
from tests.report_runs import METHODS, replace_name, write_clevr, write_evaluation, write_values, write_xai_tris

SCORES = {"random": [0.1, 0.2, 0.1, 0.2], "vanilla": [0.3, 0.5, np.nan, 0.4]}


def edges(path):
    """The unit edges of an outline, each as a pair of corners."""
    pairs = []
    for start_x, start_y, direction, stop in re.findall(r"M(\d+) (\d+)([HV])(\d+)", path):
        x, y, end = int(start_x), int(start_y), int(stop)
        steps = range(x, end) if direction == "H" else range(y, end)
        pairs += [((s, y), (s + 1, y)) if direction == "H" else ((x, s), (x, s + 1)) for s in steps]
    return pairs


@pytest.mark.parametrize("density", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_outlines_have_each_edge_between_inside_and_outside_once(density):
    """Those of the page, and those of agop.plot, whose pixel centres are at whole numbers."""
    mask = np.random.default_rng(0).random((7, 5)) < density
    padded, expected = np.pad(mask, 1), set()
    for y, x in np.argwhere(mask):
        beside = {
            (0, 1): ((x, y), (x + 1, y)), (2, 1): ((x, y + 1), (x + 1, y + 1)),
            (1, 0): ((x, y), (x, y + 1)), (1, 2): ((x + 1, y), (x + 1, y + 1)),
        }  # fmt: skip
        expected |= {edge for (down, right), edge in beside.items() if not padded[y + down, x + right]}
    lines = np.reshape(figures.outline(mask), (-1, 2, 2)) + 0.5
    for drawn in (edges(outline(mask)), [tuple(sorted(map(tuple, line))) for line in lines.tolist()]):
        assert len(drawn) == len(set(drawn))
        assert set(drawn) == expected


def unpack(packed, shape):
    """Shares (S,H,W) from bytes, as the page's script computes them."""
    steps = np.frombuffer(base64.b64decode(packed["bytes"]), dtype=np.uint8).reshape(shape)
    tops = np.array([top or 0 for top in packed["tops"]])[:, None, None]
    return tops * (steps / 255) ** 2


def test_packed_maps_are_each_pixels_share_of_its_map():
    maps = np.random.default_rng(0).random((3, 8, 9)) ** 4 * np.array([1, 1000, 1e-9])[:, None, None]
    shares = maps / maps.sum(axis=(1, 2), keepdims=True)
    packed = pack_maps(maps)
    assert packed["tops"] == pytest.approx(shares.max(axis=(1, 2)), rel=1e-5)
    # Half a step of 255 on the square-root axis.
    roots = np.sqrt(shares.max(axis=(1, 2), keepdims=True))
    assert (abs(np.sqrt(unpack(packed, maps.shape)) - np.sqrt(shares)) <= roots * 0.51 / 255).all()


@pytest.mark.parametrize("scale", ["own", "common"])
def test_packed_maps_have_the_strengths_of_sheets(scale):
    """Of each map about 40 pixels are clipped."""
    maps = np.random.default_rng(0).random((3, 100, 100)) ** 4
    strengths, _ = Colouring(scale).strengths({str(index): saliency for index, saliency in enumerate(maps)})
    packed = pack_maps(maps)
    shares = unpack(packed, maps.shape)
    tops = np.array(packed["tops"])[:, None, None]
    drawn = shares / tops if scale == "own" else np.sqrt(shares / tops.max())
    assert (shares == tops).sum() > 100
    assert np.abs(drawn - np.stack(list(strengths.values()))).max() < 1.1 / 255


def test_all_zero_and_non_finite_maps_have_no_shares():
    maps = np.ones((3, 2, 2))
    maps[0], maps[2, 0, 0] = 0, np.nan
    assert pack_maps(maps)["tops"] == [None, 0.25, None]


def test_large_maps_are_summed_in_blocks():
    maps = np.random.default_rng(0).random((2, 300, 200))
    assert block_size(maps.shape) == 3
    small = block_sums(maps)
    assert small.shape == (2, 100, 67)
    assert small[0, 1, 66] == pytest.approx(maps[0, 3:6, 198:200].sum())
    assert small.sum() == pytest.approx(maps.sum())
    assert np.array_equal(block_sums(maps[:, :128, :128]), maps[:, :128, :128])


def test_text_is_readable_on_every_shade_and_colours_grow_lighter():
    def luminance(colour):
        part = np.array(colour) / 255
        return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4) @ (0.2126, 0.7152, 0.0722)

    lights = []
    for position in np.linspace(0, 1, 101):
        colour, ink = shade(position)
        light = luminance([int(n) for n in re.findall(r"\d+", colour)])
        contrast = (1.05 / (light + 0.05)) if ink == "#fff" else (light + 0.05) / 0.05
        assert contrast >= 4.5
        lights.append(light)
    assert lights == sorted(lights)
    table = inferno()
    assert table.shape == (256, 3)
    assert (np.diff([luminance(colour) for colour in table]) > -1e-3).all()


def test_milliseconds_have_two_significant_digits():
    texts = [number(value, "milliseconds") for value in (0.000326, 0.0123, 0.9, 9.96, 123.4, 0.0)]
    assert texts == ["0.00033", "0.012", "0.90", "10.0", "123", "0"]
    assert number(0.98765, "iou") == "0.988"
    assert number(None, "iou") == "–"


def grid_of(run, metric):
    return next(grid for grid in winner_grids(run) if grid.metric == metric)


def test_the_grid_marks_the_winner_its_equals_and_higher_controls(tmp_path):
    values = {"agop-weighted": (0.39, 0.40, 0.41), "smoothgrad": (0.40, 0.39, 0.40), "agop-global": (0.19, 0.20, 0.21),
              "random": (0.9, 0.9, 0.9)}  # fmt: skip

    def change(row):
        changed = row["metric"] == "iou" and row["scenario"] == "linear" and row["background"] == "uncorrelated"
        return {"value": values.get(row["method"], (0.1,) * 3)[row["seed"]]} if changed else None

    grid = grid_of(write_xai_tris(tmp_path, change), "iou")
    line = dict(zip(METHODS, grid.lines["linear / uncorrelated"], strict=True))
    assert {method: square.mark for method, square in line.items() if square.mark} == {
        "agop-weighted": "★", "smoothgrad": "≈", "random": "▲",
    }  # fmt: skip
    assert line["agop-weighted"].mean == "0.400"
    assert line["agop-weighted"].interval == "[0.373, 0.427]"


def test_the_grid_marks_the_lowest_score_if_lower_is_better(tmp_path):
    grid = grid_of(write_xai_tris(tmp_path), "deletion")
    line = dict(zip(METHODS, grid.lines["linear / uncorrelated"], strict=True))
    assert [method for method, square in line.items() if square.mark == "★"] == ["gradcam"]
    assert not grid.up
    assert float(grid.ends[0]) > float(grid.ends[1])


def test_one_seed_marks_no_method_as_equal_to_the_best(tmp_path):
    grids = winner_grids(write_xai_tris(tmp_path, seeds=1))
    assert "≈" not in {square.mark for grid in grids for line in grid.lines.values() for square in line}


def test_undefined_scores_have_counts_and_reasons(tmp_path):
    def change(row):
        if row["method"] == "gradcam":
            return {"value": None, "n": 0, "undefined": {"map is zero everywhere": 10}}
        return {"n": 9, "undefined": {"mask is empty": 1}} if row["method"] == "vanilla" else None

    run = write_xai_tris(tmp_path, change)
    assert "| gradcam | – | – | – | – |" in registry.get("markdown")(run)
    table = table_views(run)[0]
    entry = table.lines["gradcam"][0]
    assert (entry.mean, entry.value) == ("–", None)
    assert "0 of 30 samples scored (map is zero everywhere: 30)" in entry.tip
    assert table.notes == [
        "vanilla: 27 of 30 samples scored (mask is empty: 3).",
        "gradcam: 0 of 30 samples scored (map is zero everywhere: 30).",
    ]


class Tags(HTMLParser):
    """The elements of a page; raises if one is closed that isn't open."""

    VOID = ("meta", "link", "input", "br", "img", "wbr", "hr")

    def __init__(self, text):
        super().__init__()
        self.open, self.names = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.names.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def page_data(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_page_is_well_formed_and_forbids_network_access(tmp_path):
    text = registry.get("html")(write_xai_tris(tmp_path))
    tags = Tags(text)
    assert tags.open == []
    assert tags.names.count("section") == 6
    assert re.search(r'Content-Security-Policy" content="default-src \'none\'', text)
    head = text[: text.index("plotly.js")]
    assert "http://" not in head
    assert "https://" not in head
    assert registry.get("html")(Run(tmp_path)) == text
    packed_rows = re.search(r'<script type="text/plain" id="raw-0">(.*?)</script>', text)[1]
    assert gzip.decompress(base64.b64decode(packed_rows)) == (tmp_path / "rows.jsonl").read_bytes()


def test_names_from_the_run_are_escaped_everywhere(tmp_path):
    write_xai_tris(tmp_path)
    method, scenario = "</script><b>x\"'&{{7*7}}", "<b>x\"'&{{7*7}}<!--"
    replace_name(tmp_path, "vanilla", method)
    replace_name(tmp_path, "xor", scenario)
    text = registry.get("html")(Run(tmp_path))
    assert "b" not in Tags(text).names
    assert method in page_data(text)["methods"]
    assert page_data(text)["places"][3]["scenario"] == scenario


def test_an_evaluation_has_no_claims_no_convergence_and_no_accuracy(tmp_path):
    run = write_evaluation(tmp_path, SCORES, "my scans", "energy")
    assert run.convergence == []
    text = registry.get("html")(run)
    assert 'id="convergence"' not in text
    assert "claims" not in re.sub(r"<(style|script).*?</\1>", "", text, flags=re.DOTALL)
    assert "None" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert "This run has no gallery" in text
    markdown = registry.get("markdown")(run)
    assert "## my scans / given\n" in markdown
    assert "claims" not in markdown


def test_the_gallery_has_images_maps_scores_and_classes(tmp_path):
    write_evaluation(tmp_path, SCORES, "my scans", "energy")
    cell = tmp_path / "cells" / "my scans-given-000"
    random = np.random.default_rng(0)
    maps = {"random": random.random((3, 4, 4)), "vanilla": random.random((3, 4, 4))}
    masks = np.zeros((3, 4, 4), dtype=bool)
    masks[:, 1:3, 1:3] = True
    pictures = random.integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
    Gallery(pictures, np.array([0, 1, -1]), np.array([0, 0, 1]), {"true": masks}, maps).save(cell)
    diagonals = random.random((2, 3, 4, 4))
    diagonals[1] = np.nan
    (cell / "agop.safetensors").write_bytes(save({"class_diagonals": diagonals, "diagonal": diagonals[0]}))
    seal(cell)
    view = page_data(registry.get("html")(Run(tmp_path)))["cells"][0]["gallery"]
    assert view["labels"] == ["healthy", "class 1", ""]
    assert view["predicted"] == ["healthy", "healthy", "class 1"]
    assert view["right"] == [True, False, None]
    assert list(view["maps"]) == ["random", "vanilla"]
    assert unpack(view["maps"]["vanilla"], (3, 4, 4)).sum(axis=(1, 2)) == pytest.approx(1, abs=0.02)
    assert view["scores"]["true"]["vanilla"]["energy"] == [0.3, 0.5, None]
    assert len(edges(view["outlines"]["true"][0])) == 8
    assert view["classes"]["names"] == ["healthy", "class 1"]
    assert view["classes"]["maps"]["tops"][1] is None


def test_gallery_samples_have_their_own_scores_and_names(tmp_path):
    run = write_evaluation(tmp_path, SCORES, "my scans", "energy")
    cell = tmp_path / "cells" / "my scans-given-000"
    few = np.zeros((2, 4, 4), dtype=np.uint8)
    places = np.array([1, 3])
    Gallery(
        np.stack([few] * 3, axis=-1), np.array([0, 0]), np.array([0, 0]), {"true": few}, {"vanilla": few}, places
    ).save(cell)
    seal(cell)
    text = registry.get("html")(Run(tmp_path))
    view = page_data(text)["cells"][0]["gallery"]
    assert view["scores"]["true"]["vanilla"]["energy"] == [0.5, 0.4]
    assert view["names"] == ["image 2", "image 4"]
    assert "2 evenly spaced images of 4, not hand-picked" in " ".join(text.split())
    write_values(tmp_path / "about.json", asdict(run.about) | {"samples": {"my scans": ["a/1.png", "b/<3>.png"]}})
    assert page_data(registry.get("html")(Run(tmp_path)))["cells"][0]["gallery"]["names"] == ["a/1.png", "b/<3>.png"]


def test_frames_are_evenly_spaced_and_share_one_scale(tmp_path):
    write_xai_tris(tmp_path)
    folder = tmp_path / "cells" / "linear-uncorrelated-000" / "snapshots"
    folder.mkdir()
    for k in range(1, 201):
        (folder / f"step-{100 * k:08d}.safetensors").write_bytes(save({"diagonal": np.full((2, 3, 3), k / 2)}))
    seal(folder.parent)
    history = training_history(Run(tmp_path), "linear", "uncorrelated")
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
    run = write_clevr(tmp_path, {"agop-global": [0.3, 0.4], "centre": [0.5, 0.5], "mean-mask": [0.1, 0.1]})
    text = registry.get("html")(run)
    assert table_views(run)[1].title.endswith("variants, on the first 2 images")
    assert "▲" in text
    assert page_data(text)["variants"] == ["integrated-gradients@black"]
