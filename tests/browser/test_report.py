"""The page of a run in a real browser, opened from its file: texts, numbers and tables. Maps: test_report_maps."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file

import agop
from tests.browser.pages import canvas_bytes, current_table, mean, methods, table_cells, values
from tests.command import run_checked
from tests.report_runs import replace_name

pytest_plugins = ("tests.browser.report_run",)


@pytest.fixture(scope="module")
def as_json(run_folder):
    """The report of the run in JSON."""
    run_checked("report", run_folder, "--out", "report.json", "--force", folder=run_folder.parent)
    return json.loads((run_folder.parent / "report.json").read_text())


def test_the_page_opens_from_its_file_with_all_sections_and_charts(report, run_folder):
    heads = report.locator("h2").all_inner_texts()
    eigenvectors = "What the first layer looks for"
    assert heads == ["At a glance", "Tables", "Gallery", "Convergence", "Cost", eigenvectors, "About this run"]
    report.wait_for_selector("#cost-chart .main-svg")
    report.wait_for_selector("#convergence-chart .main-svg")
    titles = report.locator(".xtitle, .ytitle, .x2title, .y2title").all_text_contents()
    assert {"mIoU", "accuracy", "milliseconds per sample (logarithmic)"} <= set(titles)
    assert (run_folder / "index.html").stat().st_size < 6e6


def test_every_number_in_every_table_is_the_mean_of_its_rows_and_that_of_the_json_report(
    shared_report, run_folder, as_json
):
    cells = table_cells(shared_report)
    scores = {(table["scenario"], table["background"], table["masks"]): table["rows"] for table in as_json["tables"]}
    for scenario, background, method, metric, cell, masks in cells:
        score = scores[scenario, background, masks][method][metric]
        assert bool(cell["mark"]) == score["best"]
        if metric != "milliseconds":
            where = {"scenario": scenario, "background": background, "method": method, "metric": metric}
            expected = mean(run_folder, masks=masks, **where)
            assert cell["mean"] == ("–" if expected is None else f"{expected:.3f}")
            low, high = score["interval"] or (None, None)
            assert cell["interval"] == ("" if low is None else f"[{low:.3f}, {high:.3f}]")
            assert cell["paper"] == ("" if score["paper"] is None else f"paper: {score['paper']:.3f}")
    place = ["linear", "uncorrelated", "agop-weighted", "iou"]
    assert [cell["paper"] for *where, cell, masks in cells if (where, masks) == (place, "true")] == ["paper: 0.314"]
    # Both scenarios with all metrics and milliseconds; linear also with union masks, without deletion and milliseconds.
    assert len(cells) == 2 * 2 * 5 * 5 + 2 * 5 * 3


def test_the_page_shows_the_advice_and_the_claims(shared_report, as_json):
    lines = shared_report.locator("#advice li").all_inner_texts()
    assert lines == [*as_json["advice"], lines[-1]]
    assert len(lines) <= 4
    assert lines[-1].startswith("Verdicts on 2 claims: ")
    claims = shared_report.get_by_role("region", name="The paper’s claims").locator("details")
    assert claims.locator(".claim").all_inner_texts() == [checked["claim"] for checked in as_json["claims"]]
    for line, checked in zip(claims.all(), as_json["claims"], strict=True):
        assert line.locator("summary").inner_text()[0] in "✓✗?"
        assert all(given in line.locator("summary").inner_text() for given in checked["verdicts"].values())
        evidence = line.locator("p")
        assert not evidence.is_visible()
        line.locator("summary").click()
        assert all(given in evidence.inner_text() for given in checked["evidence"].values())
    assert claims.count() == 2  # those that need none of the paper's methods


def test_the_page_describes_the_run_its_methods_and_metrics(shared_report, as_json):
    about, spec = as_json["about"], as_json["spec"]
    text = shared_report.locator("#about").inner_text()
    assert about["command"] in text
    assert f"8 (2 seeds per task), {spec['epochs']} epochs each" in text
    assert ", ".join(f"{name} {number}" for name, number in about["versions"].items()) in text
    for method in spec["methods"]:
        assert f"{method}\n{agop.methods.get(method).__doc__.splitlines()[0]}" in text
    lines = shared_report.locator("table.definitions tbody tr").evaluate_all(
        "lines => lines.map(line => [...line.cells].map(cell => cell.textContent))"
    )
    assert [line[1] for line in lines] == [*spec["metrics"], "milliseconds"]
    for label, name, _, bounds, direction in lines[:-1]:
        metric = agop.metrics.get(name)
        assert (label, bounds) == (metric.label, "0 to 1")
        assert direction == ("higher is better" if metric.higher_is_better else "lower is better")


def test_selecting_a_task_changes_table_maps_and_charts(report, run_folder):
    assert "linear / uncorrelated" in report.locator(".at-place.chosen h3").inner_text()
    before = canvas_bytes(report, '#maps figure[data-method="vanilla"] canvas'), canvas_bytes(report, "#frame")
    report.select_option("#scenario", "translations_rotations")
    report.select_option("#background", "correlated")
    assert report.locator(".at-place.chosen").count() == 1
    assert report.locator(".at-place:visible").count() == 1
    assert "translations_rotations / correlated" in report.locator(".at-place.chosen h3").inner_text()
    where = {"scenario": "translations_rotations", "background": "correlated", "method": "vanilla", "metric": "iou"}
    assert values(report, "iou")[methods(report).index("vanilla")] == pytest.approx(mean(run_folder, **where))
    assert canvas_bytes(report, '#maps figure[data-method="vanilla"] canvas') != before[0]
    assert canvas_bytes(report, "#frame") != before[1]
    charts = report.evaluate("document.getElementById('cost-chart').data.flatMap(trace => trace.y)")
    assert any(y == pytest.approx(mean(run_folder, **where), rel=1e-4) for y in charts)


def test_tables_sort_by_mouse_and_keyboard(report):
    names = sorted(methods(report))
    for metric, up in (("iou", True), ("deletion", False)):
        head = current_table(report).locator(f'th[data-column="{metric}"]')
        directions = ("descending", "ascending") if up else ("ascending", "descending")
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == directions[0]
        assert values(report, metric) == sorted(values(report, metric), reverse=up)
        head.locator("button").press("Enter")
        assert head.get_attribute("aria-sort") == directions[1]
        assert values(report, metric) == sorted(values(report, metric), reverse=not up)
        assert sorted(methods(report)) == names
        current_table(report).locator('th[data-column="method"] button').click()
        assert methods(report) == names
        assert head.get_attribute("aria-sort") == "none"


def test_tooltips_show_intervals_on_hover_and_focus(report):
    cell = current_table(report).locator('tr[data-method="vanilla"] td[data-metric="iou"] .figure')
    assert not report.locator("#tip").is_visible()
    cell.hover()
    text = report.locator("#tip").inner_text()
    assert f"{cell.locator('xpath=..').locator('.interval').text_content()} over 2 seeds" in text
    report.mouse.move(5, 5)
    assert not report.locator("#tip").is_visible()
    # The table is the next Tab stop after its last header; the arrow keys move inside it.
    current_table(report).locator("th button").last.focus()
    report.keyboard.press("Tab")
    report.keyboard.press("ArrowDown")
    assert report.locator("#tip").inner_text() == text
    report.keyboard.press("ArrowRight")
    assert "Energy-GT of vanilla" in report.locator("#tip").inner_text()
    report.keyboard.press("Escape")
    assert not report.locator("#tip").is_visible()


# The tooltip is visible, directly above or below the focused number.
BESIDE = """() => {
  const tip = document.getElementById('tip'), figure = document.activeElement.getBoundingClientRect();
  const box = tip.getBoundingClientRect();
  return !tip.hidden && Math.min(Math.abs(box.bottom - figure.top), Math.abs(figure.bottom - box.top)) < 12;
}"""


def test_the_tooltip_follows_a_number_that_scrolls_into_view(report):
    report.set_viewport_size({"width": 390, "height": 400})
    last = current_table(report).locator("tbody tr").last.locator(".figure").last
    last.focus()
    report.wait_for_function("scrollY > 0")
    report.wait_for_function(BESIDE)
    tip = report.locator("#tip").bounding_box()
    assert tip["x"] >= 0
    assert tip["x"] + tip["width"] <= 390


def test_the_grid_and_its_chart_show_each_metric_with_the_best_marked(report, run_folder):
    for metric, choose in (("iou", max), ("energy", max), ("deletion", min)):
        report.select_option("#metric", metric)
        grid = report.locator(".grid:visible")
        assert grid.get_attribute("data-metric") == metric
        where = {"scenario": "linear", "background": "uncorrelated", "metric": metric}
        means = {method: mean(run_folder, **where, method=method) for method in methods(report)}
        won = grid.locator("tbody tr", has=report.locator("td:nth-child(2).won"))
        best = won.get_attribute("data-method")
        assert means[best] == choose(value for method, value in means.items() if method != "random")
        assert won.locator("td").first.inner_text().startswith(f"{means[best]:.3f}")
        order = grid.locator("[data-method]").evaluate_all("rows => rows.map(row => row.dataset.method)")
        assert order[-1] == "random"
        bars = report.evaluate(
            "document.getElementById('bars').data.flatMap(t => t.y.map((name, i) => [name, t.x[i]]))"
        )
        assert dict(bars) == pytest.approx(means, rel=1e-3)
    report.select_option("#task", label="translations_rotations / correlated")
    assert report.locator("#scenario").input_value() == "translations_rotations"  # the whole page shows this task
    where = {"scenario": "translations_rotations", "background": "correlated", "metric": "deletion"}
    bars = report.evaluate("document.getElementById('bars').data.flatMap(t => t.x)")
    assert sorted(bars) == pytest.approx(sorted(mean(run_folder, **where, method=m) for m in methods(report)), rel=1e-3)


@pytest.mark.parametrize(("width", "height"), [(1200, 900), (390, 844)])
def test_every_method_is_on_the_first_screen(width, height, page, run_folder):
    page.set_viewport_size({"width": width, "height": height})
    page.goto((run_folder / "index.html").as_uri())
    for row in page.locator(".grid.chosen [data-method]").all():
        box = row.locator("td").first.bounding_box()
        assert box["y"] + box["height"] <= height
        assert box["x"] + box["width"] <= width


def test_raw_files_download_byte_for_byte(report, run_folder):
    names = ["rows.jsonl", "timings.jsonl", "convergence.jsonl", "spec.json", "about.json"]
    assert report.locator("a[download]").evaluate_all("links => links.map(link => link.download)") == names
    for name in names:
        with report.expect_download() as download:
            report.locator(f'a[download="{name}"]').click()
        assert download.value.suggested_filename == name
        assert Path(download.value.path()).read_bytes() == (run_folder / name).read_bytes()


@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_fits_its_window(width, page, run_folder):
    page.set_viewport_size({"width": width, "height": 800})
    page.goto((run_folder / "index.html").as_uri())
    page.wait_for_selector("#cost-chart .main-svg")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    beyond = page.locator("main :is(select, button, input):visible").evaluate_all(
        """controls => controls.filter(control => !control.closest('.scroll') &&
             control.getBoundingClientRect().right > control.closest('section, form').getBoundingClientRect().right)
             .map(control => control.id)"""
    )
    assert beyond == []
    boxes = page.locator(".scroll:visible").evaluate_all(
        "boxes => boxes.map(box => box.tabIndex === 0 && box.getBoundingClientRect().right <= innerWidth)"
    )
    assert boxes
    assert all(boxes)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_wide_tables_show_scroll_hints_and_scroll_by_keys(scheme, report):
    report.emulate_media(color_scheme=scheme)
    box, first = report.locator(".grid.chosen .scroll"), report.locator(".grid.chosen tbody th").first

    def hints():
        arrow = "getComputedStyle(box.parentNode, '::after').content"
        shadow = "getComputedStyle(box.querySelector('tbody th')).boxShadow"
        return box.evaluate(f"box => [{arrow} !== 'none', {shadow} !== 'none']")

    assert hints() == [False, False]
    report.set_viewport_size({"width": 390, "height": 800})
    report.wait_for_selector(".grid.chosen .edged.more")
    assert hints() == [True, False]
    assert box.get_attribute("role") == "region"
    assert "mIoU" in box.get_attribute("aria-label")
    before = first.bounding_box()["x"]
    box.focus()
    for _ in range(30):
        report.keyboard.press("ArrowRight")
    report.wait_for_selector(".grid.chosen .edged.scrolled:not(.more)")
    assert hints() == [False, True]
    assert first.bounding_box()["x"] == pytest.approx(before, abs=1)
    assert report.locator("#sample").inner_text().startswith("sample 1 ")


def test_the_theme_follows_the_system_and_the_button(report):
    def is_light():
        colour = report.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour[4:-1].split(",")) > 384

    assert is_light()
    report.emulate_media(color_scheme="dark")
    assert not is_light()
    report.locator("#theme").click()
    assert is_light()
    report.locator("#theme").click()
    assert not is_light()
    assert report.evaluate("document.getElementById('cost-chart').layout.font.color") == "#e8eaee"


def test_all_tables_are_readable_without_javascript(browser, run_folder):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((run_folder / "index.html").as_uri())
    assert page.locator("table.figures:visible").count() == 4 + 2  # linear also with union masks
    assert page.locator("#place").is_hidden()
    context.close()


HOSTILE = "</script><b>x\"'&amp;{{7*7}}"
SCENARIO = "<b>x\"'&amp;{{7*7}}<!--"  # without a slash: part of a folder's name


@pytest.fixture
def copy(run_folder, tmp_path):
    """A copy of the run without its page."""
    return shutil.copytree(run_folder, tmp_path / "run", ignore=shutil.ignore_patterns("index.html"))


@pytest.fixture
def hostile(copy, tmp_path):
    """The run with markup in the names of a scenario, a method and a class, and in a note."""
    for cell in copy.glob("cells/*"):
        gallery = load_file(cell / "gallery.safetensors")
        gallery[f"maps/{HOSTILE}"] = gallery.pop("maps/vanilla")
        save_file(gallery, cell / "gallery.safetensors")
    replace_name(copy, "vanilla", HOSTILE)
    replace_name(copy, "linear", SCENARIO)
    about = json.loads((copy / "about.json").read_text())
    about |= {"classes": {SCENARIO: [HOSTILE, 'a "quoted" name']}, "notes": [HOSTILE], "command": HOSTILE}
    (copy / "about.json").write_text(json.dumps(about | {"samples": {SCENARIO: [HOSTILE] * 12}}))
    run_checked("report", "run", folder=tmp_path)
    return copy


def test_markup_in_names_is_escaped(page, hostile):
    page.goto((hostile / "index.html").as_uri())
    page.wait_for_selector("#cost-chart .main-svg")
    assert page.locator("b").count() == 0
    assert page.locator("#scenario").input_value() == SCENARIO
    assert HOSTILE in methods(page)
    assert HOSTILE in page.locator("#maps figure strong").all_inner_texts()
    assert page.locator("#class-maps strong").all_inner_texts() == [HOSTILE, 'a "quoted" name']
    assert page.locator("#maps .picture .which").inner_text() == HOSTILE
    assert HOSTILE in page.locator("#about").inner_text()
    assert any(HOSTILE in text for text in page.locator("#cost-chart .annotation-text").all_text_contents())
    page.select_option("#scenario", "translations_rotations")
    assert page.locator(".at-place.chosen h3").inner_text().startswith("translations_rotations")


def test_a_run_without_a_gallery_shows_everything_else(page, copy, tmp_path):
    for path in copy.glob("cells/*/gallery.safetensors"):
        path.unlink()
    run_checked("report", "run", folder=tmp_path)
    page.goto((copy / "index.html").as_uri())
    page.wait_for_selector("#cost-chart .main-svg")
    assert "This run has no gallery" in page.locator("#gallery").inner_text()
