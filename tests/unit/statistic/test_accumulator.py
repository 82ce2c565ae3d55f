import os
import subprocess
import sys
import textwrap

import pytest
import torch

from agop.errors import InputError, NoSamplesError
from agop.statistic.accumulator import Accumulator

SHAPE = (3, 5, 4)


def filled(seed=0, samples=7, per_class=False, classes=3) -> Accumulator:
    random = torch.Generator().manual_seed(seed)
    sums = Accumulator(per_class)
    gradients = torch.randn(samples, *SHAPE, generator=random)
    sums.update(gradients, torch.randint(0, classes, (samples,), generator=random), classes)
    return sums


def test_mean_of_squares():
    gradients = torch.randn(10, *SHAPE)
    sums = Accumulator()
    sums.update(gradients[:3], torch.zeros(3).long(), 2)
    sums.update(gradients[3:], torch.ones(7).long(), 2)
    torch.testing.assert_close(sums.diagonal(), gradients.double().square().mean(0))
    assert sums.diagonal().dtype == torch.float64
    assert sums.count == 10
    assert sums.class_diagonals() is None


def test_by_class():
    gradients, classes = torch.randn(10, *SHAPE), torch.tensor([0, 2, 2, 0, 0, 2, 0, 2, 2, 2])
    sums = Accumulator(per_class=True)
    sums.update(gradients, classes, 3)
    diagonals = sums.class_diagonals()
    for label in (0, 2):
        expected = gradients[classes == label].double().square().mean(0)
        torch.testing.assert_close(diagonals[label], expected)
    assert diagonals[1].isnan().all()
    assert sums.counts.tolist() == [4, 0, 6]
    torch.testing.assert_close(sums.diagonal(), gradients.double().square().mean(0))


def test_a_large_batch_is_the_same_as_its_parts():
    """The float64 copy is made in chunks: their seams must not show."""
    gradients, classes = torch.randn(300, 3, 40, 40), torch.randint(0, 2, (300,))
    for per_class in (False, True):
        sums = Accumulator(per_class)
        sums.update(gradients, classes, 2)
        torch.testing.assert_close(sums.diagonal(), gradients.double().square().mean(0))


def test_float64_keeps_the_tail_that_float32_loses():
    sums = Accumulator()
    sums.update(torch.full((1, 1, 1, 1), 1e4), torch.zeros(1).long(), 2)
    for _ in range(100):
        sums.update(torch.full((1, 1, 1, 1), 1.0), torch.zeros(1).long(), 2)
    assert float(sums.diagonal() * sums.count) == 1e8 + 100


def test_reset_and_empty():
    sums = filled()
    sums.reset()
    assert sums.count == 0
    with pytest.raises(NoSamplesError):
        sums.diagonal()


def test_what_does_not_fit_is_refused():
    sums = filled()
    with pytest.raises(InputError, match=r"\(3, 9, 9\)"):
        sums.update(torch.zeros(1, 3, 9, 9), torch.zeros(1).long(), 3)
    with pytest.raises(InputError, match="4 classes"):
        sums.update(torch.zeros(1, *SHAPE), torch.zeros(1).long(), 4)
    with pytest.raises(InputError, match="per_class"):
        sums.merge(Accumulator(per_class=True))


@pytest.mark.parametrize("per_class", [False, True])
def test_state_survives_a_weights_only_load(per_class, tmp_path):
    sums = filled(per_class=per_class)
    torch.save(sums.state_dict(), tmp_path / "state.pt")
    again = Accumulator(per_class)
    again.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(again.sums, sums.sums)
    assert torch.equal(again.counts, sums.counts)
    with pytest.raises(InputError, match="per_class"):
        Accumulator(not per_class).load_state_dict(sums.state_dict())


def test_sync_alone_is_a_copy():
    sums = filled()
    copy = sums.sync()
    assert torch.equal(copy.sums, sums.sums)
    copy.sums += 1
    assert not torch.equal(copy.sums, sums.sums)


RANK = """
    import sys
    import torch, torch.distributed as dist
    import agop
    from tests import zoo
    rank, world, shares, folder = int(sys.argv[1]), int(sys.argv[2]), eval(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=world)
    model, images = zoo.build("batch norm and dropout"), zoo.images(40)
    labels = torch.arange(40) % 3
    mine = slice(*shares[rank])
    hook = agop.AGOPTrainingHook(model, per_class=True, snapshot_every=1, snapshot_dir=folder + "/snapshots")
    if len(images[mine]):
        hook.step(images[mine], labels[mine])
    hook.finalize().save(f"{folder}/hook-{world}-{rank}.safetensors")
    batches = [(images[mine], labels[mine])] if len(images[mine]) else []
    agop.fit(model, batches, progress=False).save(f"{folder}/fit-{world}-{rank}.safetensors")
    if world > 1:
        dist.destroy_process_group()
"""


@pytest.mark.parametrize("shares", [[(0, 20), (20, 40)], [(0, 31), (31, 40)], [(0, 40), (40, 40)]])
def test_two_ranks_over_shares_of_the_data_give_what_one_process_gives(shares, tmp_path):
    from agop import AGOP

    run_ranks([(0, 40)], tmp_path)
    run_ranks(shares, tmp_path)
    for source in ("hook", "fit"):
        alone = AGOP.load(tmp_path / f"{source}-1-0.safetensors")
        for rank in (0, 1):
            together = AGOP.load(tmp_path / f"{source}-2-{rank}.safetensors")
            assert together.count == alone.count
            torch.testing.assert_close(together.diagonal, alone.diagonal, rtol=1e-6, atol=0)
            if source == "hook":
                assert torch.equal(together.class_counts, alone.class_counts)


def run_ranks(shares, folder):
    environment = os.environ | {"PYTHONPATH": os.getcwd(), "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(RANK), str(rank), str(len(shares)), repr(shares), str(folder)],
            env=environment,
        )
        for rank in range(len(shares))
    ]
    assert [process.wait(120) for process in ranks] == [0] * len(shares)
    (folder / "meet").unlink(missing_ok=True)
