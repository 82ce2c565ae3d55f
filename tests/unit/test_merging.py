"""AGOPs of shares of the data, merged: laws first, then what is refused."""

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from itertools import permutations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import agop
from agop.cli.main import main
from agop.errors import InputError, PriorError
from agop.pictures.folders import ClassFolders
from agop.pictures.preprocessing import Preprocessing
from agop.statistic.accumulator import Accumulator
from tests import zoo

SHAPE, CLASSES = (2, 3, 3), 3
OPTIONS = {"only_correct": False, "progress": False}
UNSEEN = "cannot see whether .* and .* share samples"
pytestmark = pytest.mark.filterwarnings(f"ignore:{UNSEEN}")
law = settings(deadline=None, derandomize=True, max_examples=40)


@st.composite
def shares(draw, count=3):
    """Gradients of some samples in so many shares, with the classes of the samples; by class or not."""
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    sizes = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    factors = draw(st.lists(st.integers(-6, 6), min_size=count, max_size=count))
    per_class = draw(st.booleans())
    each = [
        (torch.randn(n, *SHAPE, generator=random) * 10.0**f, torch.randint(0, CLASSES, (n,), generator=random))
        for n, f in zip(sizes, factors, strict=True)
    ]
    return per_class, each


def made(per_class, *each):
    """The AGOP of some shares, as one process counts them."""
    sums = Accumulator(per_class)
    for gradients, classes in each:
        sums.update(gradients, classes, CLASSES)
    return agop.AGOP.from_sums(sums, torch.nn.Linear(1, 1, bias=False).requires_grad_(False), "one checkpoint", {})


def of_one_model(per_class, each):
    priors = [made(per_class, share) for share in each]
    return [replace(p, provenance=priors[0].provenance | {"count": p.count}) for p in priors]


def assert_equal(a, b):
    assert a.count == b.count
    torch.testing.assert_close(a.diagonal, b.diagonal, rtol=1e-12, atol=0)
    assert (a.class_counts is None) == (b.class_counts is None)
    if a.class_counts is not None:
        assert torch.equal(a.class_counts, b.class_counts)
        torch.testing.assert_close(a.class_diagonals, b.class_diagonals, rtol=1e-12, atol=0, equal_nan=True)


@law
@given(shares())
def test_merged_is_what_one_process_counts(drawn):
    per_class, each = drawn
    merged = agop.merge(of_one_model(per_class, each))
    assert_equal(merged, made(per_class, *each))
    assert merged.provenance["count"] == merged.count == sum(len(classes) for _, classes in each)


@law
@given(shares())
def test_the_order_and_the_grouping_do_not_matter(drawn):
    priors = of_one_model(*drawn)
    a, b, c = priors
    whole = agop.merge(priors)
    for order in permutations(priors):
        assert_equal(agop.merge(order), whole)
    assert_equal(agop.merge([agop.merge([a, b]), c]), agop.merge([a, agop.merge([b, c])]))
    nested = agop.merge([agop.merge([a, b]), c]).provenance["merged"]
    assert [part["digest"] for part in nested] == [part["digest"] for part in whole.provenance["merged"]]


@law
@given(shares(2))
def test_neither_side_is_changed_and_no_samples_count_twice(drawn):
    a, b = of_one_model(*drawn)
    before = a.diagonal.clone(), dict(a.provenance)
    merged = agop.merge([a, b])
    assert torch.equal(a.diagonal, before[0])
    assert a.provenance == before[1]
    for again in (a, b, merged):
        with pytest.raises(PriorError, match="would count twice"):
            agop.merge([merged, again])


@law
@given(shares(2))
def test_a_class_that_only_one_share_has_keeps_its_diagonal(drawn):
    _, each = drawn
    for place, (_, classes) in enumerate(each):
        classes.fill_(place)
    a, b = of_one_model(True, each)
    merged = agop.merge([a, b])
    torch.testing.assert_close(merged.class_diagonals[0], a.class_diagonals[0], rtol=1e-12, atol=0)
    torch.testing.assert_close(merged.class_diagonals[1], b.class_diagonals[1], rtol=1e-12, atol=0)
    assert merged.class_diagonals[2].isnan().all()
    assert merged.diagonal.isfinite().all()


@law
@given(st.lists(st.integers(1, 10**12), min_size=2, max_size=5, unique=True))
def test_counts_are_exact(counts):
    merged = agop.merge([agop.AGOP(torch.ones(1, 2, 2, dtype=torch.float64), count) for count in counts])
    assert merged.count == sum(counts)
    torch.testing.assert_close(merged.diagonal, torch.ones(1, 2, 2, dtype=torch.float64))
    assume(len(counts) > 2)
    with pytest.raises(InputError, match="give two or more"):
        agop.merge([merged])


def fitted(seed=0, samples=slice(0, 20), **options):
    images = zoo.images(40)
    return agop.fit(zoo.build("batch norm and dropout", seed), [images[samples]], **(OPTIONS | options))


def test_fits_of_two_halves_are_the_fit_of_all(tmp_path):
    halves = [fitted(samples=slice(0, 13), per_class=True), fitted(samples=slice(13, 40), per_class=True)]
    for half in halves:
        half.provenance["data"] = {"classes": ["a", "b"], "preprocessing": {"size": (12, 12)}}
    halves[0].save(tmp_path / "a")
    merged = agop.merge([agop.AGOP.load(tmp_path / "a"), halves[1]])
    whole = fitted(samples=slice(0, 40), per_class=True)
    assert merged.count == whole.count == 40
    assert torch.equal(merged.class_counts, whole.class_counts)
    torch.testing.assert_close(merged.diagonal, whole.diagonal, rtol=1e-6, atol=0)
    told = merged.provenance
    assert [part["count"] for part in told.pop("merged")] == [13, 27]
    assert told.pop("data") == {"classes": ["a", "b"], "preprocessing": {"size": [12, 12]}}
    assert told == whole.provenance
    merged.check(zoo.build("batch norm and dropout"), zoo.images())  # warnings are errors


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"model": {"architecture": "x", "weights": "y"}}, "the architecture is x, not .*the weights are y, not"),
        ({"options": {"only_correct": True, "per_class": False, "nan": "raise"}}, "option only_correct is True, not F"),
        ({"options": {"only_correct": False, "per_class": False, "nan": "skip"}}, "option nan is skip, not raise"),
        (
            {"options": {"only_correct": False, "per_class": False, "nan": "raise", "every": 4}},
            "the option every is 4, there not said",
        ),
        ({"classes": 5}, "the number of classes is 5, not 3"),
        ({"options": {"only_correct": False, "per_class": False}}, "the option nan is not said, there raise"),
        ({"data": {"classes": ["cat", "dog"]}}, "the class folders are cat, dog, there not said"),
        ({"data": {"preprocessing": {"std": [2.0]}}}, "the preprocessing's std is 2.0, there not said"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(changed, message):
    a, b = fitted(), fitted(samples=slice(20, 40))
    with pytest.raises(
        PriorError, match=f"(?s)b.st does not go with a.st: .*{message}.*: merge files of one model"
    ) as told:
        agop.merge([a, replace(b, provenance=b.provenance | changed)], ["a.st", "b.st"])
    assert "None" not in str(told.value)


def test_a_training_s_file_and_a_fit_s_are_told_apart_in_one_sentence():
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    hook.step(zoo.images(5))
    pair = [("hook.st", hook.finalize()), ("fit.st", fitted())]
    for (name, a), (other, b) in permutations(pair):
        with pytest.raises(PriorError) as told:
            agop.merge([a, b], [name, other])
        assert str(told.value) == (
            f"{other} does not go with {name}: hook.st was collected while a model trained, fit.st of a trained model: "
            "use one of them alone, or merge files of `agop fit`, or the snapshots of a training's ranks"
        )


def test_other_weights_other_shapes_and_by_class_are_refused():
    a = fitted()
    with pytest.raises(PriorError, match="AGOP 2 does not go with AGOP 1: the weights are"):
        agop.merge([a, fitted(seed=1)])
    with pytest.raises(PriorError, match=r"by class is True, not False.*the option per_class is True, not False"):
        agop.merge([a, fitted(samples=slice(20, 40), per_class=True)])
    with pytest.raises(PriorError, match=r"images of shape \(1, 2, 2\), not \(3, 12, 12\)"):
        agop.merge([a, agop.AGOP(torch.ones(1, 2, 2), 5)])


def snapshots(folder, rank, steps=2):
    """A hook's snapshots of one rank of two, as their files are."""
    torch.manual_seed(rank)
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False, snapshot_every=1, snapshot_dir=folder)
    for step in range(steps):
        hook.step(zoo.images(5, seed=10 * rank + step))
    found = [agop.AGOP.load(path) for path in sorted(folder.glob("*.safetensors"))]
    return [replace(p, provenance=p.provenance | {"rank": rank, "ranks": 2}) for p in found]


def test_snapshots_of_the_ranks_of_a_training(tmp_path):
    (zero_1, zero_2), (_, one_2) = (snapshots(tmp_path / str(rank), rank) for rank in (0, 1))
    one_2.provenance["model"] = one_2.provenance["model"] | {"weights": "moved on"}
    merged = agop.merge([zero_2, one_2])
    assert merged.count == 20
    assert merged.provenance["steps"] == 2
    assert "rank" not in merged.provenance
    with pytest.raises(PriorError, match="snapshots of one rank, 0: the later holds the earlier"):
        agop.merge([zero_1, zero_2])
    with pytest.raises(PriorError, match="a and b are of steps 1 and 2: give the snapshots of all ranks at one step"):
        agop.merge([zero_1, one_2], ["a", "b"])
    with pytest.raises(PriorError, match="snapshots of one rank, 0"):
        agop.merge([agop.merge([zero_2, one_2]), zero_1])


def trained(seed, model="plain", rank=0):
    """A hook's snapshot after each of three steps of a training, as of one rank of two, and its end."""
    model = zoo.build(model, seed).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook, found = agop.AGOPTrainingHook(model, only_correct=False), []
    for step in range(3):
        model(zoo.images(5, seed=step)).square().sum().backward()
        optimizer.step()
        hook.step(zoo.images(5, seed=10 * rank + step))
        found.append(replace(hook.so_far(), provenance=hook.so_far().provenance | {"rank": rank, "ranks": 2}))
    return found, hook.finalize()


def test_two_trainings_and_an_end_with_anything_are_refused():
    (ours, end), (theirs, other_end), (mates, _) = trained(0), trained(1, rank=1), trained(0, rank=1)
    assert agop.merge([ours[2], mates[2]]).count == 10 * 3
    for a, b in permutations([ours[2], theirs[2]]):
        with pytest.raises(PriorError, match="are of two trainings"):
            agop.merge([a, b])
    with pytest.raises(PriorError, match="are snapshots of one rank, 0"):
        agop.merge([agop.merge([ours[1], mates[1]]), ours[2]])
    for a, b in [*permutations([end, ours[1]]), *permutations([end, mates[2]]), (end, other_end), (end, end)]:
        with pytest.raises(PriorError, match=r"finalize\(\) gives already holds all of its training"):
            agop.merge([a, b])


def test_ranks_whose_batch_norms_have_met_other_images_go_together():
    (ours, _), (theirs, _) = (trained(0, "batch norm and dropout", rank) for rank in (0, 1))
    mate = theirs[0]
    mate.provenance.update(
        model=mate.provenance["model"] | {"weights": "other buffers"}, parameters=ours[0].provenance["parameters"]
    )
    assert agop.merge([ours[0], mate]).count == 10


def of_pictures(folder, names, rank=None, ranks=2, equal=False):
    """A fit that tells its pictures, as `agop fit` does: of all, or as one rank of two."""
    for name in names:
        (folder / "a").mkdir(parents=True, exist_ok=True)
        (folder / "a" / f"{name}.png").write_text(f"picture {name}")
    pictures = ClassFolders(folder, Preprocessing())
    prior = fitted(samples=slice(0, 20) if equal else slice(0, 1 + len(names) // (2 if rank is None else 3)))
    place = {} if rank is None else {"rank": rank, "ranks": ranks}
    return replace(prior, provenance=prior.provenance | place | {"data": {"pictures": pictures.summary()}})


def test_pictures_that_would_count_twice_are_refused(tmp_path):
    whole = of_pictures(tmp_path / "whole", range(50))
    again = of_pictures(tmp_path / "again", range(50), equal=True)  # as with another batch size: other rounding
    part = of_pictures(tmp_path / "part", range(30, 50))
    shares = [of_pictures(tmp_path / "whole", range(50), rank) for rank in (0, 1)]
    thirds = of_pictures(tmp_path / "whole", range(50), 1, 3, equal=True)
    later = of_pictures(tmp_path / "whole", range(50), 0, equal=True)
    pairs = [(whole, again), (whole, part), (whole, shares[0]), (shares[0], thirds), (shares[0], later)]
    for a, b in [each for pair in pairs for each in permutations(pair)]:
        with pytest.raises(PriorError, match="hold the same pictures, which would count twice"):
            agop.merge([a, b])
    joined = agop.merge([shares[0], replace(shares[1], count=7)])
    for other in (whole, part, later, *shares):
        with pytest.raises(PriorError, match="would count twice"):
            agop.merge([joined, other])


@pytest.mark.filterwarnings("error")
def test_other_pictures_go_together_even_if_their_numbers_are_equal(tmp_path):
    """The gradients of a linear model do not depend on the pictures."""
    a, b = (of_pictures(tmp_path / str(first), range(first, first + 50), equal=True) for first in (0, 50))
    merged = agop.merge([a, b])
    assert merged.count == 40
    assert "pictures" not in merged.provenance["data"]
    shares = [of_pictures(tmp_path / "0", range(50), rank, equal=True) for rank in (0, 1)]
    assert agop.merge(shares).count == 40
    assert agop.merge([agop.merge(shares), b]).count == 60
    # The same names on two machines are not the same pictures.
    for path in (tmp_path / "0" / "a").iterdir():
        path.write_text(f"other {path.name}")
    assert agop.merge([a, of_pictures(tmp_path / "0", (), equal=True)]).count == 40


def test_where_the_samples_cannot_be_seen_a_warning_says_so():
    with pytest.warns(agop.AGOPWarning, match=UNSEEN):
        agop.merge([fitted(), fitted(samples=slice(10, 40))])
    place = {"rank": 0, "ranks": 2}
    earlier, later = (fitted(samples=slice(0, end)) for end in (10, 20))
    with pytest.raises(PriorError, match="snapshots of one rank, 0"):
        agop.merge([replace(prior, provenance=prior.provenance | place) for prior in (earlier, later)])


def test_the_command(tmp_path):
    fitted().save(tmp_path / "a.safetensors")
    fitted(samples=slice(20, 40)).save(tmp_path / "b.safetensors")
    command = [sys.executable, "-m", "agop", "merge", "a.safetensors", "b.safetensors", "--out", "c.safetensors"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "wrote c.safetensors: AGOP(3×12×12, 40 samples, one checkpoint), from 2 files" in done.stdout
    merged = agop.AGOP.load(tmp_path / "c.safetensors")
    assert [part["name"] for part in merged.provenance["merged"]] == ["a.safetensors", "b.safetensors"]
    assert json.dumps(merged.provenance)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["a", "a"], "a and a hold the same samples"),
        (["a", "c"], "a and c hold the same samples"),
        (["a"], "there is nothing to merge in 1 AGOP: give two or more"),
        (["a", "nothing"], "could not read nothing"),
        (["a", "b", "--out", "folder"], "out folder is a folder: give a file, folder/agop.safetensors"),
    ],
)
def test_what_the_command_refuses(files, message, tmp_path, monkeypatch, capsys):
    parts = [fitted(), fitted(samples=slice(20, 40))]
    parts[0].save(tmp_path / "a")
    parts[1].save(tmp_path / "b")
    agop.merge(parts).save(tmp_path / "c")
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["agop", "merge", "--out", "d", *files])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # main() sets its own
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(f"error: {message}")
    assert not (tmp_path / "d").exists()
