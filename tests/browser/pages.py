"""How tests read a run's folder and its page."""

import json
import statistics

import numpy as np

from agop.report.page.colours import inferno


def rows(folder, name="rows.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def mean(folder, name="rows.jsonl", **where):
    """The mean over seeds, straight from the rows; None if no seed has a defined one."""
    values = [row["value"] for row in rows(folder, name) if where.items() <= row.items() and row["value"] is not None]
    return statistics.fmean(values) if values else None


def shown_table(page):
    return page.locator(".at-place.chosen table.figures").first


def methods(page):
    return shown_table(page).locator("tbody tr").evaluate_all("rows => rows.map(row => row.dataset.method)")


def values(page, metric):
    cells = shown_table(page).locator(f'td[data-metric="{metric}"]')
    found = cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")
    return [float(value) for value in found if value]


def table_cells(page):
    """Scenario, background, method, metric and what is read, of every cell of every table."""
    return page.locator("table.figures").evaluate_all(
        """tables => tables.flatMap(table => [...table.querySelectorAll('td')].map(cell => [
             ...table.closest('.at-place').querySelector('h3').textContent.split(',')[0].split(' / '),
             cell.parentNode.dataset.method, cell.dataset.metric,
             Object.fromEntries(['mean', 'mark', 'interval', 'paper'].map(
               part => [part, cell.querySelector(`.${part}`)?.textContent.trim() ?? '']))]))"""
    )


def drawn(page, selector):
    """The bytes of a canvas."""
    return page.locator(selector).evaluate(
        "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
    )


def levels(content, shape):
    """The places 0 .. 255 (H,W) on the colour bar that the bytes of a canvas stand for."""
    colours = np.array(content).reshape(-1, 1, 4)[..., :3]
    distance = abs(colours - inferno().astype(int)).sum(axis=-1)
    assert (distance.min(axis=1) == 0).all()
    return distance.argmin(axis=1).reshape(shape)


def share(saliency):
    """A map's parts of its own sum; zeros for a map that has none."""
    whole = saliency.sum(dtype=np.float64)
    return saliency / whole if np.isfinite(whole) and whole > 0 else np.zeros_like(saliency)
