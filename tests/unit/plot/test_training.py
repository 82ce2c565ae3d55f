"""Figures of a prior and of a training: filters and convergence."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import agop
from agop.errors import FileError, InputError, LayerError, PriorError, UnknownNameError
from tests import zoo
from tests.drawn_figures import colour_bar, pixels, texts
from tests.report_runs import write_convergence


def fitted(model, shape=(3, 12, 12), **options):
    return agop.fit(model, [zoo.images(9, shape=shape)], only_correct=False, progress=False, **options)


def picture(vector):
    """The picture of a signed vector (C,H,W), its largest absolute value bright."""
    extreme = vector.flatten()[vector.abs().argmax()]
    return (255 * (0.5 + 0.5 * vector / extreme)).round().movedim(0, -1).numpy()


def test_filters_are_the_eigenvectors_of_the_agop_of_patches():
    model = zoo.build("plain")
    prior = fitted(model)
    weight = model.body[0].weight.detach().double().flatten(1)
    values, vectors = torch.linalg.eigh(weight.T @ prior.patch_matrix @ weight)
    figure = agop.plot.filters(prior, model, count=3)
    assert [axes.get_title() for axes in figure.axes] == [
        f"{100 * float(value / values.sum()):.0f} %" for value in values.flip(0)[:3]
    ]
    for axes, vector in zip(figure.axes, vectors.T.flip(0), strict=False):
        assert np.abs(pixels(axes).astype(float) - picture(vector.reshape(3, 3, 3))).max() <= 1


def test_filters_of_a_prepared_model_and_of_groups_are_those_of_the_model():
    grouped = nn.Sequential(nn.Conv2d(3, 6, 3, groups=3), nn.ReLU(), nn.Flatten(), nn.Linear(600, 3))
    assert len(agop.plot.filters(fitted(grouped), grouped, count=100).axes) == 6
    model = zoo.build("batch norm and dropout")
    prior = fitted(model)
    first, second = (agop.plot.filters(prior, each, count=2) for each in (model, agop.prepare(model)))
    for axes, other in zip(first.axes, second.axes, strict=True):
        assert np.abs(pixels(axes).astype(float) - pixels(other)).max() <= 1


def test_missing_parts_raise():
    model = zoo.build("plain")
    bare = agop.fit(model, [zoo.images()], only_correct=False, progress=False, patches=False)
    with pytest.raises(PriorError, match="no patch matrix: make one"):
        agop.plot.filters(bare, model)
    with pytest.raises(InputError, match="count is 0"):
        agop.plot.filters(fitted(model), model, count=0)
    attention = zoo.build("attention")
    with pytest.raises(LayerError, match="is a LayerNorm"):
        agop.plot.filters(fitted(attention, layer="block.norm1"), attention)


def row(scenario, seed, step, method, metric, value):
    where = {"scenario": scenario, "background": "plain", "seed": seed, "step": step}
    return where | {"method": method, "metric": metric, "value": value}


def test_convergence_draws_mean_and_range_over_seeds(tmp_path):
    rows = [
        row(scenario, seed, step, method, metric, value + 0.1 * seed)
        for scenario in ("one", "two")
        for seed in (0, 1)
        for step in (100, 200)
        for method, metric, value in [
            ("model", "accuracy", 0.5), ("agop-global", "iou", step / 1000), ("agop-global", "energy", 0.9),
        ]
    ]  # fmt: skip
    rows.append(row("two", 0, 300, "agop-global", "iou", 0.6))
    rows.append(row("two", 1, 300, "agop-global", "iou", None))
    figure = agop.plot.convergence(write_convergence(tmp_path, rows))
    one, two = figure.axes
    assert [one.get_title(), two.get_title()] == ["one, plain", "two, plain"]
    curves = {line.get_label(): line for line in two.get_lines()}
    assert list(curves) == ["accuracy", "mIoU of agop-global"]
    assert curves["accuracy"].get_ydata() == pytest.approx([0.55, 0.55])
    assert curves["mIoU of agop-global"].get_xdata().tolist() == [100, 200, 300]
    assert curves["mIoU of agop-global"].get_ydata() == pytest.approx([0.15, 0.25, 0.6])
    band = two.collections[1].get_paths()[0].vertices
    assert {(x, round(y, 6)) for x, y in band} == {(100, 0.1), (100, 0.2), (200, 0.2), (200, 0.3), (300, 0.6)}
    assert {"training step", "mIoU, accuracy", "mean and range of 2 seeds"} <= texts(figure)


def test_lines_differ_in_colour_and_dash(tmp_path):
    methods = [("model", "accuracy"), ("agop-global", "iou"), ("agop-weighted", "iou")]
    rows = [row("one", 0, step, *method, 0.5) for step in (1, 2) for method in methods]
    figure = agop.plot.convergence(write_convergence(tmp_path, rows, seeds=1, scenarios=("one",)))
    lines = figure.axes[0].get_lines()
    assert len({line.get_color() for line in lines}) == len({line.get_linestyle() for line in lines}) == 3


@pytest.mark.parametrize(
    ("folder", "metric", "error", "message"),
    [
        ("run", "energy", InputError, r"energy wasn't measured.*pass one of iou"),
        ("run", "nothing", UnknownNameError, "nothing"),
        ("empty", "iou", FileError, "no convergence rows"),
        (".", "iou", FileError, "neither a run nor snapshots"),
        ("snapshots", "iou", FileError, r"snapshots doesn't exist: .*snapshot_every steps"),
        ("file", "iou", FileError, "file is a file: pass a run folder"),
    ],
)
def test_unmeasured_metrics_and_other_folders_raise(tmp_path, folder, metric, error, message):
    write_convergence(tmp_path / "run", [row("one", 0, 1, "agop-global", "iou", 0.5)])
    write_convergence(tmp_path / "empty", [])
    (tmp_path / "file").touch()
    with pytest.raises(error, match=message):
        agop.plot.convergence(tmp_path / folder, metric=metric)


def test_the_panel_of_a_missing_background_is_hidden(tmp_path):
    rows = [row("one", 0, 1, "agop-global", "iou", 0.5)]
    run = write_convergence(tmp_path, rows, backgrounds=("plain", "other"), absent=("two/plain",))
    assert [axes.get_visible() for axes in agop.plot.convergence(run).axes] == [True, False, True, True]


def write_snapshots(folder, steps, seed=0, resume=None):
    """Snapshots of a training at steps 2, 4, … Returns its state."""
    hook = agop.AGOPTrainingHook(zoo.build("plain", seed), only_correct=False, snapshot_every=2, snapshot_dir=folder)
    if resume is not None:
        hook.load_state_dict(resume)
    while hook.steps < steps:
        hook.step(zoo.images(4, seed=hook.steps))
    return hook.state_dict()


def cosine_curve(figure):
    (curve,) = next(axes for axes in figure.axes if axes.get_xlabel() == "training step").get_lines()
    return curve


def drawn_steps(folder):
    return cosine_curve(agop.plot.convergence(folder)).get_xdata().tolist()


def test_hook_snapshots_show_how_the_diagonal_evolves(tmp_path):
    write_snapshots(tmp_path, 20)
    figure = agop.plot.convergence(str(tmp_path))
    curve = cosine_curve(figure)
    assert curve.get_xdata().tolist() == list(range(2, 21, 2))
    assert curve.get_ydata()[-1] == pytest.approx(1)
    diagonals = [agop.AGOP.load(path).diagonal.flatten() for path in sorted(tmp_path.iterdir())]
    cosines = [float(torch.cosine_similarity(d, diagonals[-1], dim=0)) for d in diagonals]
    assert curve.get_ydata() == pytest.approx(cosines)
    assert [axes.get_title() for axes in figure.axes[:6]] == [f"step {step}" for step in (2, 6, 10, 12, 16, 20)]
    assert colour_bar(figure).get_ylabel() == "share of the map"


def test_snapshots_of_several_ranks_are_merged(tmp_path):
    for rank, (value, count) in enumerate([(1.0, 1), (5.0, 3)]):
        agop.AGOP(torch.tensor([[[value, 1.0]]]), count).save(tmp_path / f"step-00000100-rank{rank}.safetensors")
    agop.AGOP(torch.tensor([[[4.0, 1.0]]]), 4).save(tmp_path / "step-00000200.safetensors")
    figure = agop.plot.convergence(tmp_path)
    first, last = (pixels(axes) for axes in figure.axes[:2])
    assert np.array_equal(first, last)  # (1·1 + 3·5) / 4 = 4


def test_snapshots_of_two_trainings_in_one_folder_raise(tmp_path):
    write_snapshots(tmp_path, 8)
    write_snapshots(tmp_path, 4, seed=1)
    with pytest.raises(FileError, match=r"snapshots of 2 trainings \(steps 2 to 4; steps 6 to 8\): .*snapshot_dir"):
        agop.plot.convergence(tmp_path)
    write_snapshots(tmp_path, 8, seed=1)
    assert drawn_steps(tmp_path) == [2, 4, 6, 8]


def test_snapshots_of_a_resumed_training_are_one_training(tmp_path):
    write_snapshots(tmp_path, 8, resume=write_snapshots(tmp_path, 5))
    assert drawn_steps(tmp_path) == [2, 4, 6, 8]


def rank_snapshot(folder, step, rank, ranks, training):
    prior = agop.AGOP(torch.ones(1, 2, 2), 3)
    provenance = replace(prior.provenance, steps=step, rank=rank, ranks=ranks, training=training)
    suffix = f"-rank{rank}" if ranks > 1 else ""
    replace(prior, provenance=provenance).save(folder / f"step-{step:08d}{suffix}.safetensors")


@pytest.mark.parametrize(
    "snapshots",
    [
        [(2, 0, 2, "a"), (2, 1, 2, "b"), (4, 0, 2, "a"), (4, 1, 2, "c")],
        [(2, 0, 2, "a"), (2, 1, 2, "b"), (2, 0, 1, "c")],
        [(2, 0, 1, "a"), (4, 0, 1, None)],
    ],
    ids=["one rank is of another training", "with ranks and without", "one is of an earlier agop"],
)
def test_snapshots_of_other_ranks_raise(tmp_path, snapshots):
    for snapshot in snapshots:
        rank_snapshot(tmp_path, *snapshot)
    with pytest.raises(FileError, match="snapshots of 2 trainings"):
        agop.plot.convergence(tmp_path)


def test_each_rank_has_its_own_training_id_and_a_resumed_training_may_have_more_ranks(tmp_path):
    for snapshot in [(2, 0, 2, "a"), (2, 1, 2, "b"), (4, 0, 3, "a"), (4, 1, 3, "a"), (4, 2, 3, "a")]:
        rank_snapshot(tmp_path, *snapshot)
    assert drawn_steps(tmp_path) == [2, 4]
