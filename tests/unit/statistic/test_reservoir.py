"""The reservoir: which images it keeps doesn't depend on their order, batches and parts."""

import hashlib
import pickle
from itertools import permutations

import pytest
import torch

import agop
from agop.errors import InputError, PriorError
from agop.networks import CNN8by8
from agop.statistic.accumulator import Accumulator
from agop.statistic.reservoir import Reservoir
from tests import zoo

SIZE = 5
IMAGES = zoo.images(30)


def smallest(images, size=SIZE):
    """The images with the smallest hashes, in a loop."""
    by_hash = {
        hashlib.blake2b(image.numpy().tobytes(), digest_size=8, salt=b"agop references").digest(): image
        for image in images
    }
    return torch.stack([by_hash[key] for key in sorted(by_hash)[:size]])


@pytest.mark.parametrize("splits", [(), (1, 2, 3), (17,), tuple(range(30))])
@pytest.mark.parametrize("seed", range(3))
def test_order_and_batches_do_not_matter(splits, seed):
    order = torch.randperm(30, generator=torch.Generator().manual_seed(seed))
    reservoir = Reservoir.of(SIZE, torch.tensor_split(IMAGES[order], splits))
    assert torch.equal(reservoir.images(), smallest(IMAGES))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_parts_merge_in_any_order(order):
    parts = [Reservoir.of(SIZE, [part]) for part in torch.tensor_split(IMAGES, (2, 13))]
    a, b, c = (parts[place] for place in order)
    for merged in (a.merge(b).merge(c), a.merge(b.merge(c)).merge(Reservoir(SIZE))):
        assert torch.equal(merged.images(), smallest(IMAGES))


def test_every_image_has_the_same_chance():
    """Also images that differ in one value only. Of 400 images, about half have a key below the median."""
    images = torch.zeros(400, 1, 1, 2)
    images[:, 0, 0, 0] = torch.arange(400)
    kept = Reservoir.of(200, [images]).images()[:, 0, 0, 0]
    assert 80 < (kept < 200).sum() < 120


def test_equal_images_count_once_and_few_images_are_all_kept():
    assert len(Reservoir.of(SIZE, [IMAGES[:3], IMAGES[:3].double(), IMAGES[1:2]]).images()) == 3
    assert Reservoir(SIZE).images() is None
    broken = IMAGES[:2].clone()
    broken[0, 0, 0, 0] = torch.inf
    assert torch.equal(Reservoir.of(SIZE, [broken]).images(), broken[1:])


def test_kept_images_do_not_hold_or_share_their_batch():
    batch = IMAGES.clone()
    reservoir = Reservoir.of(SIZE, [batch])
    batch.zero_()
    assert torch.equal(reservoir.images(), smallest(IMAGES))
    assert all(image.untyped_storage().nbytes() == image.nbytes for image in reservoir._by_key.values())


@pytest.mark.filterwarnings("ignore:cannot check whether")
def test_fit_keeps_counted_images_through_files_merging_and_states(tmp_path):
    model, labels = zoo.build("plain").eval(), torch.arange(30) % 3
    counted = model(IMAGES).argmax(1) == labels
    assert SIZE < counted.sum() < 30
    snapshots = []
    options = {"progress": False, "references": SIZE, "snapshot": snapshots.append}
    whole = agop.fit(model, [(IMAGES, labels)], batch_size=4, **options)
    for name, part in (("a", slice(0, 12)), ("b", slice(12, 30))):
        agop.fit(model, [(IMAGES[part], labels[part])], **options).save(tmp_path / name)
    merged = agop.merge([agop.AGOP.load(tmp_path / name) for name in "ba"])
    for prior in (whole, snapshots[0], merged, pickle.loads(pickle.dumps(whole))):
        assert torch.equal(prior.references, smallest(IMAGES[counted]))
        assert prior.provenance.options["references"] == SIZE
    sums = Accumulator(references=SIZE)
    sums.update(IMAGES, labels, 3, images=IMAGES)
    torch.save(sums.state_dict(), tmp_path / "state.pt")
    restored = Accumulator.from_state(torch.load(tmp_path / "state.pt", weights_only=True))
    restored.update(-IMAGES, labels, 3, images=-IMAGES)
    assert torch.equal(restored.reference_images(), smallest(torch.cat([IMAGES, -IMAGES])))


def test_by_default_no_image_is_kept_and_merging_needs_the_same_number():
    model, images = CNN8by8(), torch.randn(6, 1, 8, 8)
    priors = [agop.fit(model, [images], False, progress=False, references=size) for size in (0, 2, 3)]
    assert priors[0].references is None
    for prior in priors[1:]:
        with pytest.raises(PriorError, match="option references"):
            agop.merge([priors[0], prior])
    with pytest.raises(InputError, match="references=2 and references=3"):
        Reservoir(2).merge(Reservoir(3))


@pytest.mark.parametrize("references", [-1, 1.5, True, "64", None])
def test_references_must_be_a_number_of_images(references):
    with pytest.raises(InputError, match=r"references is .*: give the number of training images to keep.* 0 for none"):
        agop.fit(CNN8by8(), [torch.randn(3, 1, 8, 8)], False, progress=False, references=references)
