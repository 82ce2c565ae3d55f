import itertools
import os
import subprocess
import sys
import textwrap

import pytest
import torch

import agop
from agop.errors import InputError
from agop.prior.accumulator import Accumulator
from tests import zoo

SHAPE = (3, 5, 4)


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("shape", [(10, *SHAPE), (300, 3, 40, 40)])
def test_diagonal_is_the_mean_of_squared_gradients_also_in_chunks(shape, per_class):
    gradients, classes = torch.randn(shape), torch.arange(shape[0]) % 2 * 2
    sums = Accumulator(per_class)
    sums.update(gradients[:3], classes[:3], 3)
    sums.update(gradients[3:], classes[3:], 3)
    assert sums.count == len(gradients)
    assert sums.diagonal().dtype == torch.float64
    torch.testing.assert_close(sums.diagonal(), gradients.double().square().mean(0))
    diagonals = sums.parts()["class_diagonals"]
    if not per_class:
        assert diagonals is None
        return
    assert diagonals[1].isnan().all()
    assert sums.counts.tolist() == classes.bincount(minlength=3).tolist()
    for label in (0, 2):
        torch.testing.assert_close(diagonals[label], gradients[classes == label].double().square().mean(0))


def test_small_squares_are_not_lost_next_to_large_ones():
    sums = Accumulator()
    sums.update(torch.full((1, 1, 1, 1), 1e4), torch.zeros(1).long(), 2)
    for _ in range(100):
        sums.update(torch.full((1, 1, 1, 1), 1.0), torch.zeros(1).long(), 2)
    assert float(sums.diagonal() * sums.count) == 1e8 + 100


def test_another_number_of_classes_raises():
    sums = Accumulator()
    sums.update(torch.zeros(1, *SHAPE), torch.zeros(1).long(), 3)
    with pytest.raises(InputError, match="4 classes"):
        sums.update(torch.zeros(1, *SHAPE), torch.zeros(1).long(), 4)


@pytest.mark.parametrize("per_class", [False, True])
def test_an_empty_accumulator_is_the_identity_of_merge(per_class):
    sums, empty = Accumulator(per_class), Accumulator(per_class)
    sums.update(torch.randn(7, *SHAPE), torch.arange(7) % 3, 3)
    before, counts = sums.sums.clone(), sums.counts.clone()
    for merged in (sums.merge(empty), empty.merge(sums)):
        assert torch.equal(merged.sums, before)
        assert torch.equal(merged.counts, counts)


SHARES = {"equal": [(0, 20), (20, 40)], "unequal": [(0, 31), (31, 40)], "one rank without data": [(0, 40), (40, 40)]}

RANK = """
    import sys
    import torch, torch.distributed as dist
    from tests.unit.prior.test_accumulator import SHARES, collect
    rank, folder = int(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    for name, shares in SHARES.items():
        for source, prior in collect(*shares[rank], snapshot_dir=f"{folder}/snapshots").items():
            prior.save(f"{folder}/{name}-{source}-{rank}.safetensors")
    dist.destroy_process_group()
"""


def collect(start, end, **options):
    """The AGOPs of the hook and of fit over images start..end, joined over all ranks."""
    model, images, labels = zoo.build("batch norm and dropout"), zoo.images(40)[start:end], torch.arange(40) % 3
    hook = agop.AGOPTrainingHook(model, per_class=True, snapshot_every=1, rank=3, **options)
    if len(images):
        hook.step(images, labels[start:end])
    batches = [(images, labels[start:end])] if len(images) else []
    return {"hook": hook.finalize(), "fit": agop.fit(model, batches, progress=False, rank=3)}


@pytest.mark.slow
def test_two_ranks_give_the_same_as_one_process(tmp_path):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, "-c", textwrap.dedent(RANK)]
    ranks = [subprocess.Popen([*command, str(rank), str(tmp_path)], env=environment) for rank in (0, 1)]
    assert [process.wait(120) for process in ranks] == [0, 0]
    alone = collect(0, 40)
    for shares, source, rank in itertools.product(SHARES, alone, (0, 1)):
        together = agop.AGOP.load(tmp_path / f"{shares}-{source}-{rank}.safetensors")
        assert together.count == alone[source].count, shares
        assert together.provenance.accuracy == alone[source].provenance.accuracy == together.count / 40
        torch.testing.assert_close(together.diagonal, alone[source].diagonal, rtol=1e-6, atol=0)
        torch.testing.assert_close(together.patch_matrix, alone[source].patch_matrix, rtol=1e-5, atol=1e-9)
        torch.testing.assert_close(together.image_moments, alone[source].image_moments, rtol=1e-5, atol=1e-6)
        assert together.layer == alone[source].layer == "0"
        assert 0 < together.residual_share < 1
        below = together.sketch.double().square().sum(0) / together.count
        assert (below <= together.diagonal * (1 + 1e-5)).all()
        if source == "hook":
            assert torch.equal(together.class_counts, alone[source].class_counts), shares
