"""The page of a run in a real browser, opened from its file: words, figures and tables. Maps: test_report_maps."""

import json
import shutil
from pathlib import Path

import pytest

from agop import methods as all_methods
from agop import metrics
from agop.report.advice import advice
from agop.report.claims import check
from agop.report.numbers import interval, number
from agop.report.page import page as made
from agop.report.run import Run, paper
from agop.runs.controls import CONTROLS
from agop.runs.gallery import Gallery
from tests.browser.pages import drawn, mean, methods, shown_table, table_cells, values


def test_it_opens_from_its_file_alone_with_all_its_sections_and_charts(report, folder):
    heads = report.locator("h2").all_inner_texts()
    assert heads == ["At a glance", "Tables", "Gallery", "Convergence", "Cost", "How this was made"]
    report.wait_for_selector("#cost-chart .main-svg")
    report.wait_for_selector("#convergence-chart .main-svg")
    titles = report.locator(".xtitle, .ytitle, .x2title, .y2title").all_text_contents()
    assert {"mIoU", "accuracy", "milliseconds a sample (logarithmic)"} <= set(titles)
    assert (folder / "index.html").stat().st_size < 6e6


def test_every_figure_of_every_table_is_the_mean_of_its_rows(still, folder):
    told = table_cells(still)
    for scenario, background, method, metric, cell in told:
        where = {"scenario": scenario, "background": background, "method": method, "metric": metric}
        expected = mean(folder, "timings.jsonl" if metric == "milliseconds" else "rows.jsonl", **where)
        assert cell["mean"] == number(expected, metric)
        # Written out, for the figures that three decimals are for.
        assert metric == "milliseconds" or cell["mean"] == ("–" if expected is None else f"{expected:.3f}")
        assert cell["interval"] == interval(Run(folder).estimate(scenario, background, method, metric), metric)
    assert len(told) == 2 * 2 * 5 * 5


def test_beside_the_figures_stand_those_of_the_paper(still):
    beside = [(*where, cell["paper"]) for *where, cell in table_cells(still)]
    for scenario, background, method, metric, told in beside:
        known = paper()[scenario][method].get(metric) if background == "uncorrelated" else None
        assert told == ("" if known is None else f"the paper: {number(known, metric)}")
    assert ("linear", "uncorrelated", "agop-weighted", "iou", "the paper: 0.314") in beside


def test_the_mark_stands_at_the_best_that_could_be_chosen(still, folder):
    """At the lowest where less is better, never at a control, and at all that look equal."""
    run, told = Run(folder), table_cells(still)
    for column in sorted({(scenario, background, metric) for scenario, background, _, metric, _ in told}):
        scenario, background, metric = column
        cells = {m: cell for s, b, m, k, cell in told if (s, b, k) == column}
        rivals = [
            m for m in cells.keys() - set(CONTROLS)
            if run.fair(scenario, background, m, metric) and cells[m]["mean"] != "–"
        ]  # fmt: skip
        choose = max if metric != "milliseconds" and metrics.get(metric).higher_is_better else min
        best = choose((float(cells[m]["mean"]) for m in rivals), default=None)
        assert {m for m, cell in cells.items() if cell["mark"]} == {
            m for m in rivals if float(cells[m]["mean"]) == best
        }
    assert {cell["mark"] for *_, cell in told} == {"", "●"}


def test_the_advice_and_the_claims_are_those_of_the_rows(still, folder):
    run = Run(folder)
    assert still.locator("#advice").inner_text() == advice(run)
    lines = still.locator("table.claims tbody tr").evaluate_all(
        "lines => lines.map(line => [...line.cells].map(cell => cell.textContent))"
    )
    signs = {"holds": "✓", "fails": "✗", "undecided": "?"}
    assert lines == [[c.claim, f"{signs[c.verdict]} {c.verdict}", c.figures] for c in check(run)]
    assert len(lines) > 5


def test_the_grid_tells_every_mean_with_its_interval(still, folder):
    run = Run(folder)
    for metric in run.metrics:
        grid = still.locator(f'.grid[data-metric="{metric}"]')
        lines = grid.locator("tbody tr").evaluate_all(
            """lines => lines.map(line => [
                 line.querySelector('.where').textContent, [...line.querySelectorAll('td')].map(
                   cell => ['.mean', 'small'].map(part => cell.querySelector(part)?.firstChild.data ?? ''))])"""
        )
        assert len(lines) == 4
        for place, cells in lines:
            found = [run.estimate(*place.split(" / "), method, metric) for method in run.spec.methods]
            assert cells == [[number(e.mean if e else None, metric), interval(e, metric)] for e in found]
    low, high = run.estimate("linear", "uncorrelated", "vanilla", "iou").interval
    assert f"[{low:.3f}, {high:.3f}]" in still.locator('.grid[data-metric="iou"]').inner_text()


def test_the_end_tells_how_the_run_was_made_and_what_its_names_mean(still, folder):
    about = json.loads((folder / "about.json").read_text())
    facts = dict(
        still.locator("#making > dl").first.evaluate(
            """list => [...list.querySelectorAll('dt')].map(
                 name => [name, name.nextElementSibling].map(part => part.textContent.trim()))"""
        )
    )
    assert facts["Command"] == about["command"]
    assert facts["Trainings"] == f"8 (2 seeds of each place), {Run(folder).spec.epochs} epochs each"
    assert facts["Images"] == f"{Run(folder).spec.test_images:,} of each place; true masks"
    assert facts["Versions"] == ", ".join(f"{name} {number}" for name, number in about["versions"].items())
    assert f"{about['hardware']['cores']} cores" in facts["Machine"]
    assert facts["Intervals"].startswith("95 %, by bootstrap over seeds")
    told = still.locator("#making > dl").nth(1).inner_text()
    for method, what in all_methods.descriptions(Run(folder).spec.methods).items():
        assert f"{method}\n{what}" in told


def test_every_metric_is_defined_with_its_range_and_direction(still, folder):
    lines = still.locator("table.definitions tbody tr").evaluate_all(
        "lines => lines.map(line => [...line.cells].map(cell => cell.textContent))"
    )
    assert [line[1] for line in lines] == [*Run(folder).spec.metrics, "milliseconds"]
    for label, name, what, bounds, direction in lines[:-1]:
        assert label == metrics.get(name).label
        assert what.startswith(metrics.get(name).__doc__.split(" (N,)")[0])
        assert bounds == "0 to 1"
        assert direction == ("more is better" if metrics.get(name).higher_is_better else "less is better")
    told = {name: what for _, name, what, _, _ in lines}
    assert "at or above 0.5 of the map's range" in told["iou"]
    assert "set to 0 in at most 64 steps" in told["deletion"]
    assert lines[-1][2] == "wall time of a map, milliseconds a sample"


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
        # Also beside the place, for a window in which the winner's column is not.
        line = report.locator(".grid.chosen tbody tr").first
        level = line.locator("td .mark", has_text="≈").count()
        beside = f"★ {method}, ≈ {level} more" if level else f"★ {method}"
        assert line.locator(".winner").inner_text() == beside


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
    beyond = report.locator("main :is(select, button, input):visible").evaluate_all(
        """controls => controls.filter(control => !control.closest('.scroll') &&
             control.getBoundingClientRect().right > control.closest('section, form').getBoundingClientRect().right)
             .map(control => control.id)"""
    )
    assert beyond == []
    boxes = report.locator(".scroll:visible").evaluate_all(
        "boxes => boxes.map(box => box.tabIndex === 0 && box.getBoundingClientRect().right <= innerWidth)"
    )
    assert boxes
    assert all(boxes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_table_that_goes_on_beyond_its_box_says_so_and_is_scrolled_by_keys(scheme, report):
    report.emulate_media(color_scheme=scheme)
    box, first = report.locator(".grid.chosen .scroll"), report.locator(".grid.chosen tbody th").first

    def cue():
        arrow = "getComputedStyle(box.parentNode, '::after').content"
        shadow = "getComputedStyle(box.querySelector('tbody th')).boxShadow"
        return box.evaluate(f"box => [{arrow} !== 'none', {shadow} !== 'none']")

    assert cue() == [False, False]
    report.set_viewport_size({"width": 390, "height": 800})
    report.wait_for_selector(".grid.chosen .edged.more")
    assert cue() == [True, False]
    assert box.get_attribute("role") == "region"
    assert "mIoU" in box.get_attribute("aria-label")
    before = first.bounding_box()["x"]
    box.focus()
    for _ in range(30):
        report.keyboard.press("ArrowRight")
    report.wait_for_selector(".grid.chosen .edged.scrolled:not(.more)")
    assert cue() == [False, True]
    assert first.bounding_box()["x"] == pytest.approx(before, abs=1)
    assert report.locator("#sample").inner_text().startswith("sample 1 ")


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
    about["samples"] = {HOSTILE: [HOSTILE] * 12}
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
    assert page.locator("#maps .picture .which").inner_text() == HOSTILE
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
