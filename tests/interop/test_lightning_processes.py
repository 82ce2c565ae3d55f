"""AGOPCallback in Lightning jobs that need processes of their own: several ranks, strategies, pytorch_lightning."""

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
from tests.interop.agops import assert_equal_agops

pytest.importorskip("lightning")
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


SMALL = """
    import sys
    from pathlib import Path
    import lightning as L, torch
    from agop.errors import AGOPError
    from agop.interop.lightning import AGOPCallback
    from tests import zoo

    class Lit(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = zoo.build("plain").body  # without zoo's lambda, which can't be pickled
        def configure_model(self):
            pass
        def forward(self, x):
            return self.net(x)
        def training_step(self, batch, index):
            print("trained")
            return self(batch).square().mean()
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    def fit(strategy, devices, callbacks):
        trainer = L.Trainer(max_epochs=1, accelerator="cpu", devices=devices, strategy=strategy, callbacks=callbacks,
                            logger=False, enable_checkpointing=False, enable_progress_bar=False)
        try:
            trainer.fit(Lit(), torch.utils.data.DataLoader(zoo.images(12), batch_size=3))
        except AGOPError as error:
            print("raised:", error)
"""


def test_sharded_weights_raise_before_the_first_step(tmp_path):
    """With ModelParallelStrategy, which runs on a CPU. FSDPStrategy needs a GPU."""
    fit = SMALL + "    fit(L.pytorch.strategies.ModelParallelStrategy(), 1, CALLBACKS)\n"
    process = run(tmp_path, fit.replace("CALLBACKS", "[]"))
    assert process.stdout.count("trained") == 4, process.stderr
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
    process = run(tmp_path, SMALL + code, out)
    assert out.exists(), process.stderr
    assert agop.AGOP.load(out).count == 12
    assert "raised: no AGOP yet" in process.stdout
    assert "under ddp_spawn only the file has it" in process.stdout


def test_pytorch_lightning_works_imported_before_or_after(tmp_path):
    """Also with the callback in a list or alone."""
    pytest.importorskip("pytorch_lightning")
    code = (
        SMALL.replace("import lightning as L", "import pytorch_lightning as L")
        + """
    callback = AGOPCallback(out=None, only_correct=False)
    fit("auto", 1, CALLBACKS)
    print("counted", callback.prior.count, "lightning" in sys.modules)
    """
    )
    before = run(tmp_path, code.replace("CALLBACKS", "callback"))
    assert "counted 12 False" in before.stdout, before.stderr
    agop_first = "    from agop.interop.lightning import AGOPCallback\n"
    after = run(tmp_path, agop_first + code.replace("CALLBACKS", "[callback]"))
    assert "counted 12 True" in after.stdout, after.stderr


TWO_RANKS = """
    import sys
    from pathlib import Path
    import lightning as L, torch
    from lightning.pytorch.callbacks import ModelCheckpoint
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    from agop.interop.lightning import AGOPCallback
    from tests import zoo

    out = Path(sys.argv[1])

    class Lit(L.LightningModule):
        def __init__(self, fails=False):
            super().__init__()
            self.net, self.fails, self.seen = zoo.build("plain"), fails, []
        def forward(self, x):
            return self.net(x)
        def training_step(self, batch, index):
            if self.fails and self.trainer.global_step == 3:
                raise ZeroDivisionError("user error")
            self.seen.append(batch[2])
            return nn.functional.cross_entropy(self(batch[0]), batch[1])
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(callback, module=None, ckpt_path=None, saving=None):
        module = Lit() if module is None else module
        callbacks = [each for each in (callback, saving) if each is not None]
        trainer = L.Trainer(max_epochs=2, accelerator="cpu", devices=2, strategy="ddp", callbacks=callbacks,
                            logger=False, enable_checkpointing=saving is not None, enable_progress_bar=False,
                            enable_model_summary=False)
        data = TensorDataset(zoo.images(32), torch.arange(32) % 3, torch.arange(32))
        trainer.fit(module, DataLoader(data, batch_size=4), ckpt_path=ckpt_path)
        return module, trainer

    def callback(name):
        return AGOPCallback(out=out / name, only_correct=False, snapshot_every=4, snapshot_dir=out / "snapshots")

    plain, _ = fit(None)
    first = callback("whole.safetensors")
    saving = ModelCheckpoint(out / "checkpoints", every_n_train_steps=4, save_top_k=-1, filename="{step}")
    module, trainer = fit(first, saving=saving)
    assert trainer.world_size == 2
    assert first.prior.count == 64, first.prior
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), module.parameters()))
    again = callback("resumed.safetensors")
    other, _ = fit(again, ckpt_path=out / "checkpoints" / "step=4.ckpt")
    assert all(torch.equal(a, b) for a, b in zip(other.parameters(), module.parameters()))
    assert torch.equal(again.prior.diagonal, first.prior.diagonal)
    assert again.prior.count == 64
    torch.save(module.seen, out / f"seen-rank{trainer.global_rank}.pt")
    (out / f"done-rank{trainer.global_rank}").touch()
    fit(callback("failed.safetensors"), Lit(fails=True))
"""


def test_two_ranks_give_the_agop_of_one_process(tmp_path):
    out = tmp_path / "out"
    process = run(tmp_path, TWO_RANKS, out)
    assert all((out / f"done-rank{rank}").exists() for rank in (0, 1)), process.stderr
    assert "user error" in process.stderr
    whole, resumed = (agop.AGOP.load(out / f"{name}.safetensors") for name in ("whole", "resumed"))
    assert_equal_agops(resumed, whole)

    module, images, labels = zoo.build("plain"), zoo.images(32), torch.arange(32) % 3
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
