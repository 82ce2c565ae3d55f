"""The page of a run in a real browser, opened from its file."""

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from agop.report.page import page as made
from agop.report.run import Run
from agop.runs.gallery import Gallery

BENCH = (
    "bench", "xai-tris", "--quick", "--scenario", "linear", "--scenario", "translations_rotations", "--seeds", "2",
    "--method", "random", "--method", "vanilla", "--method", "gradcam", "--method", "agop-weighted",
    "--method", "agop-global",
    "--metric", "iou", "--metric", "energy", "--metric", "average_precision", "--metric", "deletion",
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory, browser):
    """A run by the real bench; not made where no browser could look at it."""
    out = tmp_path_factory.mktemp("page") / "run"
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for arguments in ([*BENCH, "--out", out, "--jobs", 2], ["report", out]):
        command = [sys.executable, "-m", "agop", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
    assert f"wrote {out / 'index.html'}" in done.stdout
    return out


@pytest.fixture
def report(page, folder):
    page.goto((folder / "index.html").as_uri())
    return page


def rows(folder, name="rows.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def mean(folder, **where):
    """The mean over seeds, straight from the rows; None if no seed has a defined one."""
    values = [row["value"] for row in rows(folder) if where.items() <= row.items() and row["value"] is not None]
    return statistics.fmean(values) if values else None


def shown_table(page):
    return page.locator(".at-place.chosen table.figures").first


def methods(page):
    return shown_table(page).locator("tbody tr").evaluate_all("rows => rows.map(row => row.dataset.method)")


def values(page, metric):
    cells = shown_table(page).locator(f'td[data-metric="{metric}"]')
    found = cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")
    return [float(value) for value in found if value]


def drawn(page, selector):
    """The bytes of a canvas."""
    return page.locator(selector).evaluate(
        "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
    )


def test_it_opens_from_its_file_alone_with_all_its_sections_and_charts(report, folder):
    heads = report.locator("h2").all_inner_texts()
    assert heads == ["At a glance", "Tables", "Gallery", "Convergence", "Cost", "How this was made"]
    report.wait_for_selector("#cost-chart .main-svg")
    report.wait_for_selector("#convergence-chart .main-svg")
    titles = report.locator(".xtitle, .ytitle, .x2title, .y2title").all_text_contents()
    assert {"mIoU", "accuracy", "milliseconds a sample (logarithmic)"} <= set(titles)
    assert (folder / "index.html").stat().st_size < 6e6


def test_every_figure_of_every_table_is_the_mean_of_its_rows(report, folder):
    told = report.locator("table.figures").evaluate_all(
        """tables => tables.flatMap(table => [...table.querySelectorAll('td')].map(cell => [
             table.closest('.at-place').querySelector('h3').textContent.split(',')[0],
             cell.parentNode.dataset.method, cell.dataset.metric, cell.querySelector('.mean').textContent]))"""
    )
    checked = 0
    for place, method, metric, text in told:
        if metric == "milliseconds":
            continue
        scenario, background = place.split(" / ")
        where = {"scenario": scenario, "background": background, "method": method, "metric": metric}
        expected = mean(folder, **where)
        assert text == ("–" if expected is None else f"{expected:.3f}")
        checked += 1
    assert checked == 2 * 2 * 5 * 4


def test_the_scenario_and_background_switches_change_table_maps_and_charts(report, folder):
    assert "linear / uncorrelated" in report.locator(".at-place.chosen h3").inner_text()
    before = drawn(report, '#maps figure[data-method="vanilla"] canvas'), drawn(report, "#frame")
    report.select_option("#scenario", "translations_rotations")
    report.select_option("#background", "correlated")
    assert report.locator(".at-place.chosen").count() == 1
    assert report.locator(".at-place:visible").count() == 1
    assert "translations_rotations / correlated" in report.locator(".at-place.chosen h3").inner_text()
    where = {"scenario": "translations_rotations", "background": "correlated", "method": "vanilla", "metric": "iou"}
    assert values(report, "iou")[methods(report).index("vanilla")] == pytest.approx(mean(folder, **where))
    assert drawn(report, '#maps figure[data-method="vanilla"] canvas') != before[0]
    assert drawn(report, "#frame") != before[1]
    charts = report.evaluate("document.getElementById('cost-chart').data.flatMap(trace => trace.y)")
    assert any(y == pytest.approx(mean(folder, **where), rel=1e-4) for y in charts)


@pytest.mark.parametrize(("metric", "better_first"), [("iou", True), ("deletion", False)])
def test_a_table_is_sorted_by_mouse_and_by_keyboard(metric, better_first, report):
    before = methods(report)
    head = shown_table(report).locator(f'th[data-column="{metric}"]')
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == ("descending" if better_first else "ascending")
    assert values(report, metric) == sorted(values(report, metric), reverse=better_first)
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == ("ascending" if better_first else "descending")
    assert values(report, metric) == sorted(values(report, metric), reverse=not better_first)
    assert sorted(methods(report)) == sorted(before)
    shown_table(report).locator('th[data-column="method"] button').click()
    assert methods(report) == sorted(before)
    assert head.get_attribute("aria-sort") == "none"


def test_intervals_are_told_on_hover_and_on_focus(report, folder):
    cell = shown_table(report).locator('tr[data-method="vanilla"] td[data-metric="iou"] .figure')
    assert not report.locator("#tip").is_visible()
    cell.hover()
    told = report.locator("#tip").inner_text()
    found = Run(folder).estimate("linear", "uncorrelated", "vanilla", "iou")
    assert f"[{found.interval[0]:.3f}, {found.interval[1]:.3f}] over 2 seeds" in told
    report.mouse.move(5, 5)
    assert not report.locator("#tip").is_visible()
    # One stop of the Tab key after the last head, then arrow keys.
    shown_table(report).locator("th button").last.focus()
    report.keyboard.press("Tab")
    report.keyboard.press("ArrowDown")
    assert report.locator("#tip").inner_text() == told
    report.keyboard.press("ArrowRight")
    assert "Energy-GT of vanilla" in report.locator("#tip").inner_text()
    report.keyboard.press("Escape")
    assert not report.locator("#tip").is_visible()


def test_the_tip_of_a_figure_that_scrolls_into_view_is_seen(report):
    report.set_viewport_size({"width": 390, "height": 400})
    last = shown_table(report).locator("tbody tr").last.locator(".figure").last
    last.focus()
    report.wait_for_function("scrollY > 0")
    report.wait_for_timeout(300)
    assert report.locator("#tip").is_visible()
    tip, figure = report.locator("#tip").bounding_box(), last.bounding_box()
    assert tip["x"] >= 0
    assert tip["x"] + tip["width"] <= 390
    assert min(abs(tip["y"] + tip["height"] - figure["y"]), abs(figure["y"] + figure["height"] - tip["y"])) < 12


def test_the_metric_changes_the_grid_whose_winner_is_the_best_of_its_line(report, folder):
    def winner():
        line = report.locator(".grid.chosen tbody tr").first
        names = report.locator(".grid.chosen thead th").all_inner_texts()[1:]
        marks = line.locator("td").evaluate_all("cells => cells.map(cell => cell.classList.contains('won'))")
        return names[marks.index(True)], line.locator("td.won .mean").inner_text()

    for metric, choose in (("iou", max), ("energy", max), ("deletion", min)):
        report.select_option("#metric", metric)
        assert report.locator(".grid:visible").get_attribute("data-metric") == metric
        where = {"scenario": "linear", "background": "uncorrelated", "metric": metric}
        means = {m: mean(folder, **where, method=m) for m in ("vanilla", "agop-weighted", "agop-global")}
        method, told = winner()
        assert means[method] == choose(means.values())
        assert told.startswith(f"{means[method]:.3f}")


def test_arrow_keys_and_buttons_walk_through_the_samples(report, folder):
    cell = folder / "cells" / "linear-uncorrelated-000"
    gallery, scores = Gallery.load(cell), load_file(cell / "scores.safetensors")

    def holds(sample):
        assert report.locator("#sample").inner_text() == f"sample {sample + 1} of {len(gallery.pictures)}"
        figure = report.locator('#maps figure[data-method="agop-weighted"]')
        told = figure.locator('[data-metric="average_precision"] dd').inner_text()
        assert told == f"{scores['true/agop-weighted/average_precision'][sample]:.2f}"
        right = gallery.labels[sample] == gallery.predicted[sample]
        assert report.locator("#maps .picture .right").count() == int(right)
        assert report.locator("#maps .picture .wrong").count() == int(not right)

    holds(0)
    for sample in (1, 2):
        report.keyboard.press("ArrowRight")
        holds(sample)
    report.keyboard.press("ArrowLeft")
    holds(1)
    report.locator("#next").click()
    holds(2)
    report.locator("#previous").click()
    report.locator("#previous").click()
    report.keyboard.press("ArrowLeft")
    holds(len(gallery.pictures) - 1)
    report.locator("#scale").focus()
    report.keyboard.press("ArrowDown")  # what needs the arrows keeps them
    report.locator("#step").focus()
    report.keyboard.press("ArrowLeft")
    holds(len(gallery.pictures) - 1)


def test_maps_share_one_scale_and_can_each_have_their_own(report, folder):
    gallery = Gallery.load(folder / "cells" / "linear-uncorrelated-000")
    chosen = {name: maps[0] / maps[0].sum() for name, maps in gallery.maps.items() if maps[0].sum() > 0}
    brightest = max(chosen, key=lambda name: chosen[name].max())

    def lights(name):
        pixels = np.array(drawn(report, f'#maps figure[data-method="{name}"] canvas')).reshape(8, 8, 4)
        return pixels[..., :3].astype(int).sum(axis=-1)

    for name in chosen.keys() - {brightest}:
        report.locator("#no-methods").click()
        for method in (name, brightest):
            report.locator(f'#method-choice input[data-method="{method}"]').check()
        assert report.locator("#maps figure[data-method]").count() == 2
        report.select_option("#scale", "common")
        common = lights(name)
        report.select_option("#scale", "own")
        own = lights(name)
        # The same order of pixels, and no pixel darker than before: colours only stretch.
        assert (own >= common).all()
        assert np.unravel_index(own.argmax(), own.shape) == np.unravel_index(chosen[name].argmax(), own.shape)
        assert own.max() == 252 + 255 + 164
    assert report.locator("#ticks span").last.inner_text() == "100 %"


def test_the_outline_is_the_border_of_the_mask(report, folder):
    mask = Gallery.load(folder / "cells" / "linear-uncorrelated-000").masks["true"][0]
    path = report.locator("#maps .picture path.over")
    length = path.evaluate("path => path.getTotalLength()")
    padded = np.pad(mask, 1).astype(int)
    border = sum(abs(np.diff(padded, axis=axis)).sum() for axis in (0, 1))
    assert length == pytest.approx(border)
    report.locator("#outline").uncheck()
    assert report.locator("#maps svg").count() == 0


def test_agop_global_is_shown_class_by_class(report):
    assert report.locator("#class-maps figure").count() == 2


def test_the_slider_and_play_show_the_snapshots(report, folder):
    found = sorted((folder / "cells" / "linear-uncorrelated-000" / "snapshots").glob("step-*.safetensors"))
    slider, last = report.locator("#step"), int(report.locator("#step").get_attribute("max"))
    assert last == len(found) - 1
    assert f"step {int(found[-1].stem[5:]):,} of" in report.locator("#frame-title").inner_text()
    diagonal = load_file(found[-1])["diagonal"].sum(axis=0)
    lights = np.array(drawn(report, "#frame")).reshape(8, 8, 4)[..., :3].sum(axis=-1)
    assert lights.argmax() == diagonal.argmax()
    slider.evaluate("slider => { slider.value = 0; slider.dispatchEvent(new Event('input', {bubbles: true})); }")
    assert f"step {int(found[0].stem[5:]):,} of" in report.locator("#frame-title").inner_text()
    line = report.evaluate("document.getElementById('convergence-chart').layout.shapes[0].x0")
    assert line == int(found[0].stem[5:])
    report.locator("#play").click()
    report.wait_for_function("document.getElementById('step').value === document.getElementById('step').max")


def test_the_chart_of_convergence_shows_the_means_over_seeds(report, folder):
    name, steps = "agop-global", sorted({row["step"] for row in rows(folder, "convergence.jsonl")})
    for metric in ("iou", "energy"):
        report.select_option("#convergence-metric", metric)
        traces = report.evaluate("document.getElementById('convergence-chart').data")
        told = next((trace["x"], trace["y"]) for trace in traces if trace.get("name") == name)
        where = {"scenario": "linear", "background": "uncorrelated", "method": name, "metric": metric}
        those = [row for row in rows(folder, "convergence.jsonl") if where.items() <= row.items()]
        expected = [statistics.fmean(row["value"] for row in those if row["step"] == step) for step in steps]
        assert told[0] == steps
        assert told[1] == pytest.approx(expected, abs=1e-4)


def test_the_raw_files_come_out_byte_for_byte(report, folder):
    names = ["rows.jsonl", "timings.jsonl", "convergence.jsonl", "spec.json", "about.json"]
    assert report.locator("a[download]").evaluate_all("links => links.map(link => link.download)") == names
    for name in names:
        with report.expect_download() as download:
            report.locator(f'a[download="{name}"]').click()
        assert download.value.suggested_filename == name
        assert Path(download.value.path()).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_is_wider_than_its_window(width, report):
    report.set_viewport_size({"width": width, "height": 800})
    report.reload()
    report.wait_for_selector("#cost-chart .main-svg")
    assert report.evaluate("document.documentElement.scrollWidth <= innerWidth")
    boxes = report.locator(".scroll:visible").evaluate_all(
        "boxes => boxes.map(box => box.tabIndex === 0 && box.getBoundingClientRect().right <= innerWidth)"
    )
    assert boxes
    assert all(boxes)


def test_dark_and_light_follow_the_system_and_the_button(report):
    def light():
        colour = report.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour[4:-1].split(",")) > 384

    assert light()
    report.emulate_media(color_scheme="dark")
    assert not light()
    report.locator("#theme").click()
    assert light()
    report.locator("#theme").click()
    assert not light()
    assert report.evaluate("document.getElementById('cost-chart').layout.font.color") == "#e8eaee"


def test_without_scripts_all_tables_can_be_read(browser, folder):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "index.html").as_uri())
    assert page.locator("table.figures:visible").count() == 4
    assert page.locator("#place").is_hidden()
    context.close()


HOSTILE = "</script><b>x\"'&amp;{{7*7}}"


@pytest.fixture
def hostile(folder, tmp_path):
    """The run with a scenario, a method, a class and a note that try to be markup."""
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    (copy / "index.html").unlink()
    for path in [*copy.glob("*.json*"), *copy.glob("cells/*/*.jsonl")]:
        told = path.read_text().replace('"linear"', json.dumps(HOSTILE)).replace('"vanilla"', json.dumps(HOSTILE))
        path.write_text(told)
    for cell in list(copy.glob("cells/linear-*")):
        moved = copy / "cells" / cell.name.replace("linear", HOSTILE)
        moved.parent.mkdir(parents=True, exist_ok=True)
        cell.rename(moved)
        gallery = Gallery.load(moved)
        if gallery is not None:
            gallery.maps[HOSTILE] = gallery.maps.pop("vanilla")
            gallery.save(moved)
    about = json.loads((copy / "about.json").read_text())
    about |= {"classes": {HOSTILE: [HOSTILE, 'a "quoted" name']}, "notes": [HOSTILE], "command": HOSTILE}
    (copy / "about.json").write_text(json.dumps(about))
    return copy


def test_names_that_would_be_markup_stay_names(page, hostile):
    (hostile / "index.html").write_text(made(Run(hostile)))
    page.goto((hostile / "index.html").as_uri())
    page.wait_for_selector("#cost-chart .main-svg")
    assert page.locator("b").count() == 0
    assert page.locator("#scenario").input_value() == HOSTILE
    assert HOSTILE in methods(page)
    assert HOSTILE in page.locator("#maps figure strong").all_inner_texts()
    assert page.locator("#class-maps strong").all_inner_texts() == [HOSTILE, 'a "quoted" name']
    assert HOSTILE in page.locator("#making").inner_text()
    assert any(HOSTILE in text for text in page.locator("#cost-chart .annotation-text").all_text_contents())
    page.select_option("#scenario", "translations_rotations")
    assert page.locator(".at-place.chosen h3").inner_text().startswith("translations_rotations")


def test_a_run_without_pictures_says_so_and_shows_the_rest(page, folder, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(folder, copy)
    for path in copy.glob("cells/*/gallery.safetensors"):
        path.unlink()
    (copy / "index.html").write_text(made(Run(copy)))
    page.goto((copy / "index.html").as_uri())
    page.wait_for_selector("#cost-chart .main-svg")
    assert "made by an older agop" in page.locator("#gallery").inner_text()
