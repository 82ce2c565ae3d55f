"""The page of an audit, in a browser."""

import pytest

import agop
from tests import shortcuts

NAMES = ("bar", "<img src=x onerror=alert(1)>", "square")


@pytest.fixture(scope="module")
def images():
    return shortcuts.drawn(360, 0.7)


@pytest.fixture(scope="module")
def cheating(images):
    return shortcuts.trained(*images)


@pytest.fixture(scope="module")
def honest():
    return shortcuts.trained(*shortcuts.drawn(360, 0.0))


def saved(factory, *arguments, **options):
    """An audit with names of the classes, and the address of its page."""
    audit = agop.audit(*arguments, per_class=80, progress=False, class_names=NAMES, **options)
    folder = factory.mktemp("audit")
    audit.save(folder)
    return audit, f"file://{folder}/index.html"


@pytest.fixture(scope="module")
def compared(cheating, honest, images, tmp_path_factory):
    """The honest model against the cheating one: the finding is new, with pictures of its own."""
    return saved(tmp_path_factory, honest, *images, against=cheating)


@pytest.fixture(scope="module")
def audited(cheating, images, tmp_path_factory):
    """The cheating model alone."""
    return saved(tmp_path_factory, cheating, *images)


def test_page_shows_findings_reliance_and_the_map_to_trust(page, audited):
    audit, address = audited
    page.goto(address)
    headings = page.locator("h2").all_inner_texts()
    assert headings == ["Findings", "What it relies on", "Which map to trust", "Everything that was tried"]
    assert page.locator("#selection .advice").inner_text() == audit.selection.recommendation
    rows = page.locator("#selection tbody tr").all_inner_texts()
    assert [row.split()[0] for row in rows] == [row["method"] for row in audit.selection.table]
    panels = page.locator("#reliance .panels:not(.filters) figure")
    assert panels.count() == len(NAMES)
    assert NAMES[1] in panels.first.inner_text()  # the most concentrated class; a name, not an element
    assert page.locator("#reliance .filters img").count() == len(audit.reliance.filters.shares)
    assert page.locator("img").evaluate_all("images => images.every(image => image.naturalWidth > 0)")


@pytest.mark.parametrize("width", [390, 1200])
def test_the_first_screen_has_the_verdict_the_proof_and_what_to_do(page, audited, width):
    (finding,), address = audited[0].findings, audited[1]
    page.set_viewport_size({"width": width, "height": 844})
    page.goto(address)
    verdict = page.locator(".verdict.bad").inner_text()
    assert verdict.startswith("Possible shortcut: a ")
    assert f"by {finding.effect:.2f}" in verdict
    captions = page.locator(".proof figcaption")
    classes = [NAMES[scores.argmax()] for scores in finding.example[1]]
    assert classes[0] != classes[1] == NAMES[finding.class_index]
    for caption, name in zip(captions.all(), classes, strict=True):
        assert f"predicted {name}" in caption.inner_text()
    assert page.locator(".proof .advice").inner_text() == finding.next_steps
    box = page.locator(".proof figure").last.bounding_box()
    assert box["y"] + box["height"] <= 844


def test_table_of_trials_sorts(page, audited):
    page.goto(audited[1])
    table = page.locator("table").last
    for column, name in ((7, "gap"), (8, "effect")):
        table.get_by_role("button", name=name).click()
        cells = table.locator(f"tbody td:nth-child({column})").all_inner_texts()
        values = [float(cell) for cell in cells if cell]  # what wasn't tested has no effect
        assert values == sorted(values, reverse=True)
        assert len(values) == sum(row[name] is not None for row in audited[0].table)


@pytest.mark.parametrize("width", [390, 1280])
def test_pages_are_not_wider_than_the_window(page, audited, compared, width):
    page.set_viewport_size({"width": width, "height": 800})
    for _, address in (audited, compared):
        page.goto(address)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        panel = page.locator("#reliance figure").first.bounding_box()
        assert panel["x"] >= 0
        assert panel["x"] + panel["width"] <= width


# Contrast of the text with the page, as WCAG defines it.
CONTRAST = """element => {
  const luminance = text => {
    const [r, g, b] = text.match(/[0-9.]+/g).slice(0, 3).map(value => {
      const share = value / 255;
      return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const [low, high] = [getComputedStyle(element).color, getComputedStyle(document.body).backgroundColor]
    .map(luminance).sort((a, b) => a - b);
  return (high + 0.05) / (low + 0.05);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(page, audited, scheme):
    page.emulate_media(color_scheme=scheme)
    page.goto(audited[1])
    for selector in ("#selection .advice", "#reliance figcaption", "#selection td", "#selection .note"):
        assert page.locator(selector).first.evaluate(CONTRAST) >= 4.5, selector


def test_page_shows_the_comparison(page, compared):
    audit, address = compared
    page.goto(address)
    texts = page.locator("td[class^=verdict]").all_inner_texts()
    assert texts == [row.verdict for row in audit.comparison.rows]
    assert "new" in texts
    pictures = page.locator("article img")
    assert pictures.count() == 14 * len(audit.comparison.rows) + len(audit.findings)
    assert pictures.evaluate_all("images => images.every(image => image.naturalWidth >= 112)")
    assert "<img src=x" in page.locator("article h3").last.inner_text()  # a name, not an element


@pytest.mark.slow
def test_no_shortcut_found_is_an_answer(page, honest, tmp_path_factory):
    audit, address = saved(tmp_path_factory, honest, *shortcuts.drawn(360, 0.0))
    page.goto(address)
    assert page.locator(".verdict").inner_text() == "No shortcut found."
    assert page.get_by_role("heading", name="What was tried").is_visible()
    section = page.locator("main > section").first
    assert f"An effect of {audit.detectable:.2f} beyond the controls, in half" in section.inner_text()
    counts = section.locator("tbody tr td:nth-child(2)").all_inner_texts()
    assert sum(map(int, counts)) == sum(row["stage"] == "screening" for row in audit.table)
