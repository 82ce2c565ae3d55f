"""merge(): laws first, then the errors."""

from dataclasses import replace
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import agop
from agop.errors import PriorError
from tests import zoo
from tests.command import error_of, run_checked

SHAPE, CLASSES = (2, 3, 3), 3
OTHER = {"architecture": "x", "weights": "y"}
OPTIONS = {"only_correct": False, "progress": False}
law = settings(deadline=None, derandomize=True, max_examples=40)


@st.composite
def shares(draw):
    """Whether to keep classes, and three pairs of gradients and classes."""
    random = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    sizes = draw(st.lists(st.integers(1, 4), min_size=3, max_size=3))
    factors = draw(st.lists(st.integers(-6, 6), min_size=3, max_size=3))
    per_class = draw(st.booleans())
    each = [
        (torch.randn(n, *SHAPE, generator=random) * 10.0**f, torch.randint(0, CLASSES, (n,), generator=random))
        for n, f in zip(sizes, factors, strict=True)
    ]
    return per_class, each


def of_gradients(per_class, *each):
    """The AGOP of all shares, as means over their samples."""
    squares = torch.cat([gradients for gradients, _ in each]).double().square()
    classes = torch.cat([classes for _, classes in each])
    prior = agop.AGOP(squares.mean(0), len(squares))
    if not per_class:
        return prior
    own = torch.stack([squares[classes == label].mean(0) for label in range(CLASSES)])
    return replace(prior, class_diagonals=own, class_counts=classes.bincount(minlength=CLASSES))


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
def test_merging_equals_one_process_over_all_samples_is_commutative_and_associative(drawn):
    per_class, each = drawn
    priors = [of_gradients(per_class, share) for share in each]
    a, b, c = priors
    before = a.diagonal.clone()
    whole = agop.merge(priors)
    assert_equal(whole, of_gradients(per_class, *each))
    assert whole.provenance.count == whole.count == sum(len(classes) for _, classes in each)
    for order in permutations(priors):
        assert_equal(agop.merge(order), whole)
    nested = agop.merge([agop.merge([a, b]), c])
    assert_equal(nested, agop.merge([a, agop.merge([b, c])]))
    assert [part.count for part in nested.provenance.merged] == [part.count for part in whole.provenance.merged]
    assert torch.equal(a.diagonal, before)


@law
@given(st.lists(st.integers(1, 10**12), min_size=2, max_size=5))
def test_counts_are_exact(counts):
    merged = agop.merge([agop.AGOP(torch.ones(1, 2, 2, dtype=torch.float64), count) for count in counts])
    assert merged.count == sum(counts)
    torch.testing.assert_close(merged.diagonal, torch.ones(1, 2, 2, dtype=torch.float64))


def fitted(seed=0, samples=slice(0, 20), **options):
    images = zoo.images(40)
    return agop.fit(zoo.build("batch norm and dropout", seed), [images[samples]], **(OPTIONS | options))


def with_data(prior, **changes):
    return with_provenance(prior, data=replace(prior.provenance.data, **changes))


def test_merged_fits_of_two_halves_equal_the_fit_of_all(tmp_path):
    halves = [
        with_data(fitted(samples=samples, per_class=True, rank=3), classes=("a", "b"), preprocessing={"size": (12, 12)})
        for samples in (slice(0, 13), slice(13, 40))
    ]
    halves[0].save(tmp_path / "a")
    merged = agop.merge([agop.AGOP.load(tmp_path / "a"), halves[1]])
    whole = fitted(samples=slice(0, 40), per_class=True, rank=3)
    assert merged.count == whole.count == 40
    assert torch.equal(merged.class_counts, whole.class_counts)
    for name in ("diagonal", "patch_matrix", "class_patch_matrices", "image_moments"):
        torch.testing.assert_close(getattr(merged, name), getattr(whole, name), rtol=1e-5, atol=1e-6, equal_nan=True)
    assert merged.sketch.shape == whole.sketch.shape
    assert [part.count for part in merged.provenance.merged] == [13, 27]
    assert merged.provenance.data.classes == ("a", "b")
    assert replace(merged.provenance, merged=(), data=whole.provenance.data) == whole.provenance
    merged.check(zoo.build("batch norm and dropout"), zoo.images())  # warnings are errors


def test_merging_adds_the_correct_samples_if_all_parts_record_them():
    a, b = (agop.AGOP(torch.ones(SHAPE), count) for count in (2, 3))
    a, b = with_provenance(a, labelled=4, correct=2), with_provenance(b, labelled=6, correct=3)
    assert agop.merge([a, b]).provenance.accuracy == 0.5
    assert agop.merge([a, with_provenance(b, labelled=None, correct=None)]).provenance.accuracy is None


def with_options(**options):
    prior = fitted(samples=slice(20, 40))
    return with_provenance(prior, options=prior.provenance.options | options)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: with_provenance(fitted(), model=OTHER), r"architecture x vs \w+; weights y vs \w+"),
        (lambda: with_options(only_correct=True), "option only_correct True vs False"),
        (lambda: with_options(every=4), r"option every 4 vs \(not recorded\)"),
        (lambda: with_provenance(fitted(), classes=5), "number of classes 5 vs 3"),
        (lambda: with_data(fitted(), classes=("cat", "dog")), r"class folders cat, dog vs \(not recorded\)"),
        (lambda: with_data(fitted(), preprocessing={"std": [2.0]}), r"preprocessing std 2.0 vs \(not recorded\)"),
        (lambda: fitted(seed=1), r"weights \w+ vs \w+"),
        (lambda: fitted(per_class=True), "per class True vs False; option per_class True vs False"),
        (lambda: fitted(patches=False), r"layer of the patch matrix \(not recorded\) vs 0"),
        (lambda: agop.AGOP(torch.ones(1, 2, 2), 5), "image shape 1×2×2 vs 3×12×12.*"),
    ],
)
def test_incompatible_agops_raise_with_every_difference(other, message):
    with pytest.raises(PriorError, match=f"^b.st can't be merged with a.st: {message}: merge files of one model"):
        agop.merge([fitted(), other()], ["a.st", "b.st"])


def test_an_option_of_earlier_files_is_ignored():
    assert agop.merge([fitted(), with_options(references=0)]).count == 40


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


def trained(seed, rank):
    """A hook's snapshots after each of three training steps, as rank `rank` of two, and its final AGOP."""
    model = zoo.build("batch norm and dropout", seed).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hook, snapshots = agop.AGOPTrainingHook(model, only_correct=False), []
    for step in range(3):
        torch.manual_seed(step)
        model(zoo.images(5, seed=step)).square().sum().backward()
        optimizer.step()
        hook.step(zoo.images(5, seed=10 * rank + step))
        snapshots.append(with_provenance(hook.so_far(), rank=rank, ranks=2))
    return snapshots, hook.finalize()


def test_snapshots_merge_only_across_ranks_of_one_training_at_one_step():
    (ours, end), (mates, _), (theirs, _) = trained(0, 0), trained(0, 1), trained(1, 1)
    # The buffers of ranks differ, and with them the fingerprint.
    mate = with_provenance(mates[2], model=mates[2].provenance.model | {"weights": "other buffers"})
    merged = agop.merge([ours[2], mate])
    assert (merged.count, merged.provenance.steps, merged.provenance.rank) == (30, 3, None)
    for parts, problem in (
        ([ours[1], mates[2]], "step 3 vs 2"), ([ours[2], theirs[2]], r"parameters \w+ vs \w+"),
        ([ours[2], end], r"parameters \w+ vs \w+"),
    ):  # fmt: skip
        with pytest.raises(PriorError, match=problem):
            agop.merge(parts)
    for parts in ([ours[2], ours[2]], [merged, ours[2]]):
        with pytest.raises(PriorError, match="AGOP 1 and AGOP 2 are snapshots of the same rank, 0, whose"):
            agop.merge(parts)


def test_merge_command_writes_one_file(tmp_path):
    fitted().save(tmp_path / "a.safetensors")
    fitted(samples=slice(20, 40)).save(tmp_path / "b.safetensors")
    result = run_checked("merge", "a.safetensors", "b.safetensors", "--out", "c.safetensors", folder=tmp_path)
    assert "wrote c.safetensors: AGOP(3×12×12, 40 samples, one checkpoint), from 2 files" in result.stdout
    merged = agop.AGOP.load(tmp_path / "c.safetensors")
    assert [part.name for part in merged.provenance.merged] == ["a.safetensors", "b.safetensors"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["a", "c"], "c can't be merged with a: weights"),
        (["a"], "merge got 1 AGOP: pass two or more"),
        (["a", "nothing"], "could not read nothing"),
        (["a", "a", "--out", "folder"], "out folder is a folder: give a file, folder/agop.safetensors"),
    ],
)
def test_merge_command_reports_bad_files_and_writes_nothing(files, message, tmp_path):
    fitted().save(tmp_path / "a")
    fitted(seed=1).save(tmp_path / "c")
    (tmp_path / "folder").mkdir()
    assert error_of("merge", "--out", "d", *files, folder=tmp_path).startswith(f"error: {message}")
    assert not (tmp_path / "d").exists()
