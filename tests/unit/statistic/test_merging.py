"""merge(): laws first, then the errors."""

from dataclasses import replace
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import agop
from agop.errors import PriorError
from agop.pictures.folders import ClassFolders
from agop.pictures.preprocessing import Preprocessing
from agop.statistic.accumulator import Accumulator
from agop.statistic.provenance import DataProvenance, ImagesDigest
from tests import zoo
from tests.command import run

SHAPE, CLASSES = (2, 3, 3), 3
OPTIONS = {"only_correct": False, "progress": False}
UNKNOWN_OVERLAP = "cannot check whether .* and .* share samples"
pytestmark = pytest.mark.filterwarnings(f"ignore:{UNKNOWN_OVERLAP}")
law = settings(deadline=None, derandomize=True, max_examples=40)


@st.composite
def shares(draw, count=3):
    """Whether to collect per class, and `count` pairs of gradients and classes."""
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    sizes = draw(st.lists(st.integers(1, 4), min_size=count, max_size=count))
    factors = draw(st.lists(st.integers(-6, 6), min_size=count, max_size=count))
    per_class = draw(st.booleans())
    each = [
        (torch.randn(n, *SHAPE, generator=random) * 10.0**f, torch.randint(0, CLASSES, (n,), generator=random))
        for n, f in zip(sizes, factors, strict=True)
    ]
    return per_class, each


def collected(per_class, *each):
    """The AGOP of all shares, as one process computes it."""
    sums = Accumulator(per_class)
    for gradients, classes in each:
        sums.update(gradients, classes, CLASSES)
    return agop.AGOP.from_sums(sums, torch.nn.Linear(1, 1, bias=False).requires_grad_(False), "one checkpoint", {})


def of_one_model(per_class, each):
    priors = [collected(per_class, share) for share in each]
    return [with_provenance(prior, model=priors[0].provenance.model) for prior in priors]


def with_provenance(prior, **changes):
    return replace(prior, provenance=replace(prior.provenance, **changes))


def assert_equal(a, b):
    assert a.count == b.count
    torch.testing.assert_close(a.diagonal, b.diagonal, rtol=1e-12, atol=0)
    assert (a.class_counts is None) == (b.class_counts is None)
    if a.class_counts is not None:
        assert torch.equal(a.class_counts, b.class_counts)
        torch.testing.assert_close(a.class_diagonals, b.class_diagonals, rtol=1e-12, atol=0, equal_nan=True)


@law
@given(shares())
def test_merging_equals_one_process_over_all_samples(drawn):
    per_class, each = drawn
    merged = agop.merge(of_one_model(per_class, each))
    assert_equal(merged, collected(per_class, *each))
    assert merged.provenance.count == merged.count == sum(len(classes) for _, classes in each)


def test_merging_adds_the_correct_samples_if_all_parts_record_them():
    a, b = of_one_model(False, [(torch.ones(n, *SHAPE), torch.zeros(n).long()) for n in (2, 3)])
    a, b = with_provenance(a, labelled=4, correct=2), with_provenance(b, labelled=6, correct=3)
    assert agop.merge([a, b]).provenance.accuracy == 0.5
    assert agop.merge([a, with_provenance(b, labelled=None, correct=None)]).provenance.accuracy is None


@law
@given(shares())
def test_merging_is_commutative_and_associative(drawn):
    priors = of_one_model(*drawn)
    a, b, c = priors
    whole = agop.merge(priors)
    for order in permutations(priors):
        assert_equal(agop.merge(order), whole)
    assert_equal(agop.merge([agop.merge([a, b]), c]), agop.merge([a, agop.merge([b, c])]))
    nested = agop.merge([agop.merge([a, b]), c]).provenance.merged
    assert [part.digest for part in nested] == [part.digest for part in whole.provenance.merged]


@law
@given(shares(2))
def test_merging_changes_no_argument_and_counts_no_sample_twice(drawn):
    a, b = of_one_model(*drawn)
    before = a.diagonal.clone(), a.provenance.to_dict()
    merged = agop.merge([a, b])
    assert torch.equal(a.diagonal, before[0])
    assert a.provenance.to_dict() == before[1]
    for again in (a, b, merged):
        with pytest.raises(PriorError, match="would count twice"):
            agop.merge([merged, again])


@law
@given(shares(2))
def test_class_in_only_one_share_keeps_its_diagonal(drawn):
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


def fitted(seed=0, samples=slice(0, 20), **options):
    images = zoo.images(40)
    return agop.fit(zoo.build("batch norm and dropout", seed), [images[samples]], **(OPTIONS | options))


def test_merged_fits_of_two_halves_equal_the_fit_of_all(tmp_path):
    data = DataProvenance(("a", "b"), {"size": (12, 12)})
    halves = [
        with_provenance(fitted(samples=samples, per_class=True), data=data) for samples in (slice(0, 13), slice(13, 40))
    ]
    halves[0].save(tmp_path / "a")
    merged = agop.merge([agop.AGOP.load(tmp_path / "a"), halves[1]])
    whole = fitted(samples=slice(0, 40), per_class=True)
    assert merged.count == whole.count == 40
    assert torch.equal(merged.class_counts, whole.class_counts)
    torch.testing.assert_close(merged.diagonal, whole.diagonal, rtol=1e-6, atol=0)
    assert [part.count for part in merged.provenance.merged] == [13, 27]
    assert merged.provenance.data.to_dict() == data.to_dict()
    assert replace(merged.provenance, merged=(), data=DataProvenance()) == whole.provenance
    merged.check(zoo.build("batch norm and dropout"), zoo.images())  # warnings are errors


SECOND = slice(20, 40)
OPTIONS_OF_FIT = {"only_correct": False, "per_class": False, "nan": "raise"}


def changed(**changes):
    return with_provenance(fitted(samples=SECOND), **changes)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: changed(model={"architecture": "x", "weights": "y"}), r"architecture x vs \w+; weights y vs \w+"),
        (lambda: changed(options=OPTIONS_OF_FIT | {"only_correct": True}), "option only_correct True vs False"),
        (lambda: changed(options=OPTIONS_OF_FIT | {"nan": "skip"}), "option nan skip vs raise"),
        (lambda: changed(options=OPTIONS_OF_FIT | {"every": 4}), r"option every 4 vs \(not recorded\)"),
        (lambda: changed(options={"only_correct": False, "per_class": False}), r"option nan \(not recorded\) vs raise"),
        (lambda: changed(classes=5), "number of classes 5 vs 3"),
        (lambda: changed(data=DataProvenance(("cat", "dog"))), r"class folders cat, dog vs \(not recorded\)"),
        (
            lambda: changed(data=DataProvenance(preprocessing={"std": [2.0]})),
            r"preprocessing std 2.0 vs \(not recorded\)",
        ),
        (lambda: fitted(seed=1), r"weights \w+ vs \w+"),
        (lambda: fitted(samples=SECOND, per_class=True), "per class True vs False; option per_class True vs False"),
        (lambda: agop.AGOP(torch.ones(1, 2, 2), 5), "image shape 1×2×2 vs 3×12×12.*"),
    ],
)
def test_incompatible_agops_raise_with_every_difference(other, message):
    with pytest.raises(PriorError, match=f"^b.st can't be merged with a.st: {message}: merge files of one model"):
        agop.merge([fitted(), other()], ["a.st", "b.st"])


def test_merging_a_training_with_a_fit_raises():
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False)
    hook.step(zoo.images(5))
    pair = [("hook.st", hook.finalize()), ("fit.st", fitted())]
    for (name, a), (other, b) in permutations(pair):
        with pytest.raises(PriorError) as error:
            agop.merge([a, b], [name, other])
        assert str(error.value) == (
            f"{other} can't be merged with {name}: hook.st was collected during training, fit.st from a trained model: "
            "use one of them alone, or merge files of `agop fit`, or the snapshots of a training's ranks"
        )


def snapshots(folder, rank):
    """A hook's two snapshot files of one rank of two, loaded."""
    hook = agop.AGOPTrainingHook(zoo.build("plain"), only_correct=False, snapshot_every=1, snapshot_dir=folder)
    for step in range(2):
        hook.step(zoo.images(5, seed=10 * rank + step))
    return [with_provenance(agop.AGOP.load(path), rank=rank, ranks=2) for path in sorted(folder.iterdir())]


def test_snapshots_merge_only_across_ranks_at_the_same_step(tmp_path):
    (zero_1, zero_2), (_, one_2) = (snapshots(tmp_path / str(rank), rank) for rank in (0, 1))
    one_2 = with_provenance(one_2, model=one_2.provenance.model | {"weights": "other"})
    merged = agop.merge([zero_2, one_2])
    assert merged.count == 20
    assert merged.provenance.steps == 2
    assert merged.provenance.rank is None
    with pytest.raises(PriorError, match="snapshots of the same rank, 0: the later one includes the earlier one"):
        agop.merge([zero_1, zero_2])
    with pytest.raises(
        PriorError, match="a and b are snapshots of steps 1 and 2: pass the snapshots of all ranks at one"
    ):
        agop.merge([zero_1, one_2], ["a", "b"])
    with pytest.raises(PriorError, match="snapshots of the same rank, 0"):
        agop.merge([agop.merge([zero_2, one_2]), zero_1])


def trained(seed, model="plain", rank=0):
    """A hook's snapshots after each of three training steps, as rank `rank` of two, and its final AGOP."""
    model = zoo.build(model, seed).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook, snapshots = agop.AGOPTrainingHook(model, only_correct=False), []
    for step in range(3):
        model(zoo.images(5, seed=step)).square().sum().backward()
        optimizer.step()
        hook.step(zoo.images(5, seed=10 * rank + step))
        snapshots.append(with_provenance(hook.so_far(), rank=rank, ranks=2))
    return snapshots, hook.finalize()


def test_two_trainings_or_a_finished_training_raise():
    (ours, end), (theirs, other_end), (mates, _) = trained(0), trained(1, rank=1), trained(0, rank=1)
    assert agop.merge([ours[2], mates[2]]).count == 10 * 3
    for a, b in permutations([ours[2], theirs[2]]):
        with pytest.raises(PriorError, match="come from two trainings"):
            agop.merge([a, b])
    with pytest.raises(PriorError, match="are snapshots of the same rank, 0"):
        agop.merge([agop.merge([ours[1], mates[1]]), ours[2]])
    for a, b in [*permutations([end, ours[1]]), *permutations([end, mates[2]]), (end, other_end), (end, end)]:
        with pytest.raises(PriorError, match=r"finalize\(\) already covers its whole training"):
            agop.merge([a, b])


def test_ranks_with_different_batch_norm_buffers_merge():
    (ours, _), (theirs, _) = (trained(0, "batch norm and dropout", rank) for rank in (0, 1))
    model = theirs[0].provenance.model | {"weights": "other buffers"}
    mate = with_provenance(theirs[0], model=model, parameters=ours[0].provenance.parameters)
    assert agop.merge([ours[0], mate]).count == 10


def of_images(folder, names, rank=None, ranks=2, equal=False):
    """A fit that records its images as `agop fit` does: of all images, or as one rank of several."""
    for name in names:
        (folder / "a").mkdir(parents=True, exist_ok=True)
        (folder / "a" / f"{name}.png").write_text(f"image {name}")
    data = DataProvenance(pictures=ImagesDigest.from_dict(ClassFolders(folder, Preprocessing()).summary()))
    prior = fitted(samples=slice(0, 20) if equal else slice(0, 1 + len(names) // (2 if rank is None else 3)))
    return with_provenance(prior, data=data, rank=rank, ranks=None if rank is None else ranks)


def test_shared_images_raise(tmp_path):
    whole = of_images(tmp_path / "whole", range(50))
    again = of_images(tmp_path / "again", range(50), equal=True)  # as with another batch size: other rounding
    part = of_images(tmp_path / "part", range(30, 50))
    shares = [of_images(tmp_path / "whole", range(50), rank) for rank in (0, 1)]
    thirds = of_images(tmp_path / "whole", range(50), 1, 3, equal=True)
    later = of_images(tmp_path / "whole", range(50), 0, equal=True)
    pairs = [(whole, again), (whole, part), (whole, shares[0]), (shares[0], thirds), (shares[0], later)]
    for a, b in [each for pair in pairs for each in permutations(pair)]:
        with pytest.raises(PriorError, match="hold the same images, which would count twice"):
            agop.merge([a, b])
    joined = agop.merge([shares[0], replace(shares[1], count=7)])
    for other in (whole, part, later, *shares):
        with pytest.raises(PriorError, match="would count twice"):
            agop.merge([joined, other])


@pytest.mark.filterwarnings("error")
def test_different_images_merge_even_if_their_numbers_are_equal(tmp_path):
    """The gradients of a linear model don't depend on the images."""
    a, b = (of_images(tmp_path / str(first), range(first, first + 50), equal=True) for first in (0, 50))
    merged = agop.merge([a, b])
    assert merged.count == 40
    assert merged.provenance.data.pictures is None
    shares = [of_images(tmp_path / "0", range(50), rank, equal=True) for rank in (0, 1)]
    assert agop.merge(shares).count == 40
    assert agop.merge([agop.merge(shares), b]).count == 60
    # The same file names on two machines can be different images.
    for path in (tmp_path / "0" / "a").iterdir():
        path.write_text(f"other {path.name}")
    assert agop.merge([a, of_images(tmp_path / "0", (), equal=True)]).count == 40


def test_unrecorded_samples_warn():
    with pytest.warns(agop.AGOPWarning, match=UNKNOWN_OVERLAP):
        agop.merge([fitted(), fitted(samples=slice(10, 40))])
    earlier, later = (fitted(samples=slice(0, end)) for end in (10, 20))
    with pytest.raises(PriorError, match="snapshots of the same rank, 0"):
        agop.merge([with_provenance(prior, rank=0, ranks=2) for prior in (earlier, later)])


def test_merge_command_writes_one_file(tmp_path):
    fitted().save(tmp_path / "a.safetensors")
    fitted(samples=slice(20, 40)).save(tmp_path / "b.safetensors")
    result = run("merge", "a.safetensors", "b.safetensors", "--out", "c.safetensors", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "wrote c.safetensors: AGOP(3×12×12, 40 samples, one checkpoint), from 2 files" in result.stdout
    merged = agop.AGOP.load(tmp_path / "c.safetensors")
    assert [part.name for part in merged.provenance.merged] == ["a.safetensors", "b.safetensors"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["a", "a"], "a and a hold the same samples"),
        (["a", "c"], "a and c hold the same samples"),
        (["a"], "merge got 1 AGOP: pass two or more"),
        (["a", "nothing"], "could not read nothing"),
        (["a", "b", "--out", "folder"], "out folder is a folder: give a file, folder/agop.safetensors"),
    ],
)
def test_merge_command_reports_bad_files_and_writes_nothing(files, message, tmp_path):
    parts = [fitted(), fitted(samples=slice(20, 40))]
    parts[0].save(tmp_path / "a")
    parts[1].save(tmp_path / "b")
    agop.merge(parts).save(tmp_path / "c")
    (tmp_path / "folder").mkdir()
    result = run("merge", "--out", "d", *files, folder=tmp_path)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: {message}")
    assert not (tmp_path / "d").exists()
