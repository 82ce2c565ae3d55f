"""Read a run folder and its page."""

import json
import statistics

import numpy as np

from agop.report.page import ramp


def rows(folder, name="rows.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def mean(folder, name="rows.jsonl", masks="true", **where):
    """Mean over seeds, straight from the rows; None if no seed has a defined value."""
    values = [
        row["value"] for row in rows(folder, name)
        if where.items() <= row.items() and row.get("masks", masks) == masks and row["value"] is not None
    ]  # fmt: skip
    return statistics.fmean(values) if values else None


def current_table(page):
    return page.locator(".at-place.chosen table.figures").first


def methods(page):
    return current_table(page).locator("tbody tr").evaluate_all("rows => rows.map(row => row.dataset.method)")


def values(page, metric):
    cells = current_table(page).locator(f'td[data-metric="{metric}"]')
    texts = cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")
    return [float(text) for text in texts if text]


def table_cells(page):
    """Scenario, background, method, metric, texts and kind of masks of every cell of every table."""
    return page.locator("table.figures").evaluate_all(
        """tables => tables.flatMap(table => [...table.querySelectorAll('td')].map(cell => [
             ...table.closest('.at-place').querySelector('h3').textContent.split(',')[0].split(' / '),
             cell.parentNode.dataset.method, cell.dataset.metric,
             Object.fromEntries(['mean', 'mark', 'interval', 'paper'].map(
               part => [part, cell.querySelector(`.${part}`)?.textContent.trim() ?? ''])),
             table.closest('.at-place').querySelector('h3').textContent.includes(', union masks') ? 'union' : 'true'
           ]))"""
    )


def canvas_bytes(page, selector):
    """The bytes of a canvas."""
    return page.locator(selector).evaluate(
        "c => Array.from(c.getContext('2d').getImageData(0, 0, c.width, c.height).data)"
    )


def colour_indices(content, shape):
    """Indices 0..255 (H,W) into the colour bar, from the bytes of a canvas."""
    colours = np.array(content).reshape(-1, 1, 4)[..., :3]
    distance = abs(colours - ramp("inferno").astype(int)).sum(axis=-1)
    assert (distance.min(axis=1) == 0).all()
    return distance.argmin(axis=1).reshape(shape)


def shares(saliency):
    """A map divided by its sum; zeros if the sum is zero or not finite."""
    total = saliency.sum(dtype=np.float64)
    return saliency / total if np.isfinite(total) and total > 0 else np.zeros_like(saliency)
