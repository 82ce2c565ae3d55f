"""The callbacks of both trainers in jobs with processes of their own: ranks, strategies, pytorch_lightning."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from torch import nn

import agop
from tests import zoo
from tests.integrations.agops import assert_equal_agops
from tests.integrations.torchrun import finish, start

pytest.importorskip("lightning")
pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
pytestmark = pytest.mark.slow


def run(folder, code, *arguments):
    """Run code as a script in a new process."""
    (folder / "train.py").write_text(textwrap.dedent(code))
    root = Path(__file__).parents[2]
    environment = {
        "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")]), "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, str(folder / "train.py"), *map(str, arguments)], env=os.environ | environment,
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


LIGHTNING = """
    import sys
    from pathlib import Path
    import lightning as L, torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from agop.errors import AGOPError
    from agop.integrations.lightning import AGOPCallback
    from tests import zoo

    class Lit(L.LightningModule):
        def __init__(self, fails=False):
            super().__init__()
            self.net = zoo.build("plain").body  # without zoo's lambda, which can't be pickled
            self.fails, self.seen = fails, []
        def configure_model(self):
            pass
        def forward(self, x):
            return self.net(x)
        def training_step(self, batch, index):
            if self.fails and self.trainer.global_step == 3:
                raise ZeroDivisionError("user error")
            print("trained")
            self.seen.append(batch[2])
            return nn.functional.cross_entropy(self(batch[0]), batch[1])
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(strategy, devices, callbacks, module=None, epochs=1, ckpt_path=None):
        module = Lit() if module is None else module
        trainer = L.Trainer(max_epochs=epochs, accelerator="cpu", devices=devices, strategy=strategy,
                            callbacks=callbacks, logger=False, enable_checkpointing="ModelCheckpoint" in str(callbacks),
                            enable_progress_bar=False, enable_model_summary=False)
        data = TensorDataset(zoo.images(32), torch.arange(32) % 3, torch.arange(32))
        try:
            trainer.fit(module, DataLoader(data, batch_size=4), ckpt_path=ckpt_path)
        except AGOPError as error:
            print("raised:", error)
        return module, trainer
"""


def test_sharded_weights_raise_before_the_first_step(tmp_path):
    """With ModelParallelStrategy, which runs on a CPU. FSDPStrategy needs a GPU."""
    fit = LIGHTNING + "    fit(L.pytorch.strategies.ModelParallelStrategy(), 1, CALLBACKS)\n"
    process = run(tmp_path, fit.replace("CALLBACKS", "[]"))
    assert process.stdout.count("trained") == 8, process.stderr
    process = run(tmp_path, fit.replace("CALLBACKS", "[AGOPCallback(out=None, only_correct=False)]"))
    assert "raised: ModelParallelStrategy shards the weights" in process.stdout, process.stderr
    assert "trained\n" not in process.stdout


def test_ddp_spawn_has_the_agop_only_in_the_file(tmp_path):
    code = """
    if __name__ == "__main__":
        callback = AGOPCallback(out=sys.argv[1], only_correct=False)
        fit("ddp_spawn", 2, [callback])
        try:
            callback.prior
        except AGOPError as error:
            print("raised:", error)
    """
    out = tmp_path / "agop.safetensors"
    process = run(tmp_path, LIGHTNING + code, out)
    assert out.exists(), process.stderr
    assert agop.AGOP.load(out).count == 32
    assert "raised: no AGOP yet" in process.stdout
    assert "under ddp_spawn only the file has it" in process.stdout


def test_pytorch_lightning_works_imported_before_or_after(tmp_path):
    """Also with the callback in a list or alone."""
    pytest.importorskip("pytorch_lightning")
    code = """
    callback = AGOPCallback(out=None, only_correct=False)
    fit("auto", 1, CALLBACKS)
    print("counted", callback.prior.count, "lightning" in sys.modules)
    """
    code = LIGHTNING.replace("import lightning as L", "import pytorch_lightning as L") + code
    before = run(tmp_path, code.replace("CALLBACKS", "callback"))
    assert "counted 32 False" in before.stdout, before.stderr
    agop_first = "    from agop.integrations.lightning import AGOPCallback\n"
    after = run(tmp_path, agop_first + code.replace("CALLBACKS", "[callback]"))
    assert "counted 32 True" in after.stdout, after.stderr


TWO_RANKS = (
    LIGHTNING
    + """
    from lightning.pytorch.callbacks import ModelCheckpoint

    out = Path(sys.argv[1])

    def callback(name):
        return AGOPCallback(out=out / name, only_correct=False, snapshot_every=4, snapshot_dir=out / "snapshots")

    plain, _ = fit("ddp", 2, [], epochs=2)
    first = callback("whole.safetensors")
    saving = ModelCheckpoint(out / "checkpoints", every_n_train_steps=4, save_top_k=-1, filename="{step}")
    module, trainer = fit("ddp", 2, [first, saving], epochs=2)
    assert trainer.world_size == 2
    assert first.prior.count == 64, first.prior
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), module.parameters()))
    again = callback("resumed.safetensors")
    other, _ = fit("ddp", 2, [again], epochs=2, ckpt_path=out / "checkpoints" / "step=4.ckpt")
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), module.parameters()))
    assert torch.equal(again.prior.diagonal, first.prior.diagonal)
    assert again.prior.count == 64
    torch.save(module.seen, out / f"seen-rank{trainer.global_rank}.pt")
    (out / f"done-rank{trainer.global_rank}").touch()
    fit("ddp", 2, [callback("failed.safetensors")], Lit(fails=True), epochs=2)
"""
)


def test_two_ranks_give_the_agop_of_one_process(tmp_path):
    out = tmp_path / "out"
    process = run(tmp_path, TWO_RANKS, out)
    assert all((out / f"done-rank{rank}").exists() for rank in (0, 1)), process.stderr
    assert "user error" in process.stderr
    whole, resumed = (agop.AGOP.load(out / f"{name}.safetensors") for name in ("whole", "resumed"))
    assert_equal_agops(resumed, whole)

    module, images, labels = zoo.build("plain").body, zoo.images(32), torch.arange(32) % 3
    optimizer, hook = torch.optim.SGD(module.parameters(), lr=0.1), agop.AGOPTrainingHook(module, only_correct=False)
    seen = [torch.load(out / f"seen-rank{rank}.pt") for rank in (0, 1)]
    for rows in map(torch.cat, zip(*seen, strict=True)):  # one process with the batches of both ranks
        optimizer.zero_grad()
        nn.functional.cross_entropy(module(images[rows]), labels[rows]).backward()
        optimizer.step()
        hook.step(images[rows], labels[rows])
    assert whole.count == hook.count == 64
    torch.testing.assert_close(whole.diagonal, hook.finalize().diagonal, rtol=1e-3, atol=1e-9)
    snapshots = sorted(path.name for path in (out / "snapshots").iterdir())
    assert snapshots == [f"step-0000000{step}-rank{rank}.safetensors" for step in (4, 8) for rank in (0, 1)]
    assert not (out / "failed.safetensors").exists()
    parts = [agop.AGOP.load(path) for path in out.glob("failed.interrupted-rank*.safetensors")]
    assert parts
    assert {part.count for part in parts} == {12}


TRANSFORMERS = """
    import sys
    from pathlib import Path
    import torch
    from transformers import TrainerCallback
    from agop.integrations.transformers import AGOPTrainerCallback
    from tests.integrations.hugging_face import resnet, trainer_of

    out, parts = Path(sys.argv[1]), sys.argv[2:]
    evaluated = {"eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "loss"}

    class SaveAtStep2(TrainerCallback):
        def on_step_end(self, args, state, control, **more):
            control.should_save |= state.global_step == 2

    def train(name, strategy, callbacks, place=None):
        model = resnet() if place is None else type(resnet()).from_pretrained(place)
        trainer = trainer_of(model, out / name, callbacks, per_device_train_batch_size=1, save_strategy=strategy,
                             save_steps=2, ddp_backend="gloo", ddp_find_unused_parameters=False,
                             **(evaluated if strategy == "best" else {}))
        trainer.train(resume_from_checkpoint=None if place is None else str(place))
        torch.save(trainer.model.state_dict(), out / f"{name}-rank{trainer.args.process_index}.pt")

    for part in parts:
        name, strategy, place = part.split(",")
        callbacks = [AGOPTrainerCallback(out / f"{name}.safetensors", only_correct=False)]
        if strategy == "unscheduled":
            strategy, callbacks = "no", [*callbacks, SaveAtStep2()]
        train(name, strategy, callbacks, out / place if place else None)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()  # otherwise gloo's threads may abort the interpreter's exit
"""


def torchrun(folder, count, *parts):
    """Standard error of a torchrun job of `count` processes that runs these trainings one after the other."""
    (folder / "train.py").write_text(textwrap.dedent(TRANSFORMERS))
    result = finish(start(count, folder / "train.py", folder, *parts, folder=folder))
    assert result.returncode == 0, result.stderr
    return result.stderr


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Two processes with seven images each, two epochs of four steps; then the same, resumed from a checkpoint."""
    folder = tmp_path_factory.mktemp("job")
    places = {"steps": "checkpoint-2", "epoch": "checkpoint-4", "best": "checkpoint-2", "unscheduled": "checkpoint-2"}
    parts = [
        part for strategy, place in places.items()
        for part in (f"{strategy},{strategy},", f"{strategy}-resumed,{strategy},{strategy}/{place}")
    ]  # fmt: skip
    return folder, torchrun(folder, 2, *parts)


@pytest.mark.parametrize("strategy", ["steps", "epoch", "best"])
def test_two_processes_resume_bitwise_equal(strategy, job):
    folder, _ = job
    whole, resumed = (agop.AGOP.load(folder / f"{strategy}{end}.safetensors") for end in ("", "-resumed"))
    weights = [torch.load(folder / f"{strategy}{end}-rank1.pt") for end in ("", "-resumed")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert resumed.count == whole.count == 28
    assert torch.equal(resumed.diagonal, whole.diagonal)


def test_an_unscheduled_checkpoint_has_the_state_of_one_process_and_warns(job):
    folder, stderr = job
    assert agop.AGOP.load(folder / "unscheduled.safetensors").count == 28
    assert agop.AGOP.load(folder / "unscheduled-resumed.safetensors").count == 28 - 4
    assert stderr.count("one of 2 processes") == 2


def test_one_process_resumes_a_checkpoint_of_two(job):
    """Two processes counted fourteen images in four steps. One process has ten steps left, with two images each."""
    folder, _ = job
    torchrun(folder, 1, "alone,epoch,epoch/checkpoint-4")
    assert agop.AGOP.load(folder / "alone.safetensors").count == 14 + 20
