"""Damaged and hostile run folders: seeded mutations of small runs, and what a report makes of them."""

import io
import json
import re
import shutil
from collections import Counter

import numpy as np
from rich.console import Console
from safetensors.numpy import load, save

from agop.errors import AGOPError
from agop.report.formats import registry
from agop.report.run import Run
from agop.report.terminal import show
from agop.runs.cell_files import SEAL, seal
from agop.runs.gallery import Gallery
from tests.report_runs import write_clevr, write_evaluation, write_values, write_xai_tris

FORMATS = ("markdown", "csv", "latex", "json", "html")
VALUES = (None, True, 0, -1, 3, 300_000_000, 10**30, 1e308, float("nan"), float("inf"), "", "x", "../..",
          "\ud800\x1b[2J", [], [1], ["a", "a"], {}, {"x": 1}, [[[[]]]])  # fmt: skip


def write_runs(folder):
    """One run of each kind: a benchmark with snapshots, one with variants, and an evaluation with a gallery."""
    write_xai_tris(folder / "xai-tris", seeds=2, scenarios=("linear",))
    write_clevr(
        folder / "clevr-xai", {"agop-global": [0.3, 0.4, 0.5], "centre": [0.5, 0.5, np.nan], "vanilla": [0.1] * 3}
    )
    write_evaluation(folder / "evaluation", {"random": [0.1, 0.2, 0.1], "vanilla": [0.3, np.nan, 0.4]}, "scans")
    random = np.random.default_rng(0)
    for cell in sorted(folder.glob("*/cells/*-000")):
        pictures = random.integers(0, 256, (3, 4, 4, 3), dtype=np.uint8)
        maps = {"vanilla": random.random((3, 4, 4), dtype=np.float32), "random": np.zeros((3, 4, 4))}
        masks = {"true": random.random((3, 4, 4)) > 0.5}
        labels, predicted = np.array([0, 1, -1]), np.array([0, 0, 1])
        Gallery(pictures, labels, predicted, masks, maps, np.array([0, 1, 2])).save(cell)
        if not (cell / "scores.safetensors").exists():
            (cell / "scores.safetensors").write_bytes(save({"true/vanilla/iou": np.array([0.1, np.nan, 0.3])}))
        diagonals = random.random((2, 3, 4, 4))
        parts = {"patch_matrix": np.eye(5), "sketch": random.random((2, 3, 4, 4), dtype=np.float32)}
        metadata = {"agop": json.dumps({"format": 2, "layer": "conv", "count": 9})}
        prior = save({"class_diagonals": diagonals, "diagonal": diagonals[0]} | parts, metadata)
        (cell / "agop.safetensors").write_bytes(prior)
        (cell / "checkpoint.safetensors").write_bytes(save({"conv.weight": random.random((5, 3, 2, 2))}))
        (cell / "snapshots").mkdir()
        for step in (100, 200):
            (cell / "snapshots" / f"step-{step:08d}.safetensors").write_bytes(save({"diagonal": diagonals[0] * step}))
        seal(cell)
    return sorted(folder.iterdir())


def delete(random, path, others):
    path.unlink()


def empty(random, path, others):
    path.write_bytes(b"")


def truncate(random, path, others):
    content = path.read_bytes()
    path.write_bytes(content[: random.integers(len(content))])


def cut_at_a_line_end(random, path, others):
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: random.integers(len(lines))]))


def flip_a_bit(random, path, others):
    content = bytearray(path.read_bytes())
    content[random.integers(len(content))] ^= 1 << int(random.integers(8))
    path.write_bytes(content)


def swap(random, path, others):
    other = others[random.integers(len(others))]
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)


def change_a_value(random, path, others):
    """Another value somewhere in a JSON file, another array in a safetensors file; other files as `flip_a_bit`."""
    if path.suffix == ".json":
        values = json.loads(path.read_text())
        _replace_value(random, values)
        path.write_text(json.dumps(values))
    elif path.suffix == ".jsonl" and path.stat().st_size:
        lines = path.read_text().splitlines()
        index = random.integers(len(lines))
        row = json.loads(lines[index])
        _replace_value(random, row)
        path.write_text("\n".join([*lines[:index], json.dumps(row), *lines[index + 1 :], ""]))
    elif path.suffix == ".safetensors":
        path.write_bytes(save(_changed_arrays(random, load(path.read_bytes()))))
    elif path.stat().st_size:
        flip_a_bit(random, path, others)


def _replace_value(random, values):
    """Replace, delete or rename one value, at any depth."""
    while True:
        keys = list(values) if isinstance(values, dict) else list(range(len(values)))
        key = keys[random.integers(len(keys))]
        if isinstance(values[key], dict | list) and values[key] and random.random() < 0.7:
            values = values[key]
            continue
        if random.random() < 0.2:
            del values[key]
        else:
            values[key] = VALUES[random.integers(len(VALUES))]
        return


def _changed_arrays(random, arrays):
    name = list(arrays)[random.integers(len(arrays))]
    array = arrays.pop(name)
    changes = [
        lambda: None,
        lambda: array[:0],
        lambda: array[..., :1],
        lambda: array[None],
        array.flatten,
        lambda: np.float64(3.0),
        lambda: np.concatenate([array, array]),
        lambda: np.full(array.shape, [np.nan, np.inf, 1e308, -1, 2**40][random.integers(5)], dtype=np.float64),
        lambda: array.astype([np.int8, np.uint64, np.float16, bool][random.integers(4)]),
    ]
    with np.errstate(all="ignore"):
        changed = changes[random.integers(len(changes))]()
    renamed = name if random.random() < 0.8 else ["x", "maps/", "/", "//", "true/x/iou"][random.integers(5)]
    return arrays | ({} if changed is None else {renamed: np.ascontiguousarray(changed)})


MUTATIONS = (delete, empty, truncate, cut_at_a_line_end, flip_a_bit, swap, change_a_value, change_a_value)


def report(folder):
    """Every report of a run, without the embedded raw files."""
    run = Run(folder)
    console = Console(file=io.StringIO(), width=200)
    show(run, console)
    texts = {name: registry.get(name)(run) for name in FORMATS}
    texts["html"] = re.sub(r'<script type="text/plain".*?</script>', "", texts["html"])
    for text in texts.values():
        text.encode(errors="replace")
    return texts | {"terminal": console.file.getvalue()}


def damage(random, folder, *, checksums):
    """Mutate one file and describe how. With `checksums`, all checksums are computed again, as an attacker would."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    path, mutation = files[random.integers(len(files))], MUTATIONS[random.integers(len(MUTATIONS))]
    mutation(random, path, files)
    if checksums:
        _seal_again(folder, path)
    return f"{mutation.__name__} {path.relative_to(folder)}"


def _seal_again(folder, changed):
    for path in [*folder.glob("*.json"), *([changed] if changed.name == SEAL else [])]:
        try:
            write_values(path, json.loads(path.read_text()))
        except (ValueError, AttributeError, OSError):
            continue
    for cell in folder.glob("cells/*"):
        if changed.parent != cell or changed.name != SEAL:
            seal(cell)


def try_mutations(runs, folder, count, seed=0, *, checksums):
    """Damage a copy of a run and report it, `count` times. Returns counts of the outcomes, and all failures as text.

    Failures are exceptions that aren't agop's own, messages without a fix and, unless the checksums were computed
    again, reports that differ from the original's.
    """
    random, outcomes, failures = np.random.default_rng(seed), Counter(), []
    originals = {run: report(run) for run in runs}
    for number in range(count):
        run = runs[random.integers(len(runs))]
        copy = shutil.copytree(run, folder / "copy")
        description = f"{number}: {run.name}: {damage(random, copy, checksums=checksums)}"
        try:
            outcome = "unchanged" if report(copy) == originals[run] else "other report"
        except AGOPError as error:
            outcome = "refused" if ": " in str(error) else "refused without a fix"
        except Exception as error:
            outcome = f"raw {type(error).__name__}"
        outcomes[outcome] += 1
        if outcome not in ("refused", "unchanged", *(["other report"] if checksums else [])):
            failures.append(f"{description}: {outcome}")
        shutil.rmtree(copy)
    return outcomes, failures
