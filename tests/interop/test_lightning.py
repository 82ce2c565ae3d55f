"""The callback in real Trainers, against plain loops."""

import csv
import os
import random
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import LearningRateFinder, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import agop
from agop.errors import AGOPWarning, GradientError, InputError, ModelError, NoSamplesError
from agop.interop.lightning import AGOPCallback, check_strategy
from tests import zoo
from tests.state import same

pytestmark = [
    # Lightning's own: advice for large data and GPUs, and a word on what a test does on purpose.
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*The number of training batches"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:.*Running in `fast_dev_run` mode"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Found .* module.s. in eval mode"),
    pytest.mark.filterwarnings("ignore:.*Please add the following callbacks. ..ModelCheckpoint"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # Lightning 2.6 on a later torch
]


def data(count=40):
    return TensorDataset(zoo.images(count), torch.arange(count) % 3)


def loader(count=40, shuffle=False):
    return DataLoader(data(count), batch_size=8, shuffle=shuffle)


class Lit(L.LightningModule):
    """Batch norm, dropout and Adam; `seeded` gives a step the same dropout wherever it is run."""

    def __init__(self, seeded=False, wrap=lambda logits: logits):
        super().__init__()
        torch.manual_seed(0)
        self.net = zoo.batch_normed().train()
        self.seeded, self.wrap = seeded, wrap
        self.seen = []

    def forward(self, x):
        return self.wrap(self.net(x))

    def training_step(self, batch, index):
        images, labels = batch.values() if isinstance(batch, dict) else batch
        if self.seeded:
            torch.manual_seed(self.trainer.fit_loop.epoch_loop.total_batch_idx)
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.seen.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        assert torch.is_inference_mode_enabled() or self.trainer.state.fn == "fit"
        assert not torch.is_grad_enabled()
        assert not self.training
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
        if not self.trainer.barebones:
            self.log("val", loss)

    test_step = validation_step

    def predict_step(self, batch, index):
        return self.net(batch[0])

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.01)


def trainer(callback=None, **options):
    callbacks = [*([] if callback is None else [callback]), *options.pop("callbacks", [])]
    defaults = {"max_epochs": 2, "logger": False, "enable_checkpointing": any(
        isinstance(found, ModelCheckpoint) for found in callbacks)}  # fmt: skip
    if not options.get("barebones"):
        defaults |= {"enable_progress_bar": False, "enable_model_summary": False}
    return L.Trainer(accelerator="cpu", devices=1, callbacks=callbacks, **defaults | options)


def fitted(callback, module=None, train=None, ckpt_path=None, **options):
    module = Lit(seeded=True) if module is None else module
    used = trainer(callback, **options)
    used.fit(module, loader() if train is None else train, ckpt_path=ckpt_path)
    return module, used


def by_hand(options=None, accumulate=1, autocast=False):
    """The same training as a plain loop with the hook in it, and the hook."""
    module = Lit()
    optimizer = module.configure_optimizers()
    hook = agop.AGOPTrainingHook(module, **options or {})
    batches = list(loader())
    for step, (images, labels) in enumerate(batches * 2):
        torch.manual_seed(step)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = nn.functional.cross_entropy(module.net(images), labels)
        (loss / accumulate).backward()
        if (step % len(batches) + 1) % accumulate == 0 or (step + 1) % len(batches) == 0:
            optimizer.step()
            optimizer.zero_grad()
        hook.step(images, labels)
    return module, hook


def assert_equal(prior, other):
    assert prior.count == other.count > 0
    assert torch.equal(prior.diagonal, other.diagonal)
    assert same(prior.provenance["model"], other.provenance["model"])
    if other.class_counts is not None:
        assert torch.equal(prior.class_counts, other.class_counts)
        assert same(prior.class_diagonals, other.class_diagonals)


def everything_after(callback, **options):
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    module = Lit()
    torch.manual_seed(3)
    used = trainer(callback, **options)
    used.fit(module, loader(shuffle=True), loader(16))
    return {
        "weights": module.state_dict(),
        "optimizer": used.optimizers[0].state_dict(),
        "modes": [part.training for part in module.modules()],
        "gradients": [None if p.grad is None else p.grad for p in module.parameters()],
        "flags": [p.requires_grad for p in module.parameters()],
        "losses": module.seen,
        "validation": {name: value for name, value in used.callback_metrics.items() if "agop" not in name},
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "numpy": np.random.get_state()[1].tolist(),
    }


@pytest.mark.parametrize(
    "options",
    [{}, {"accumulate_grad_batches": 2}, {"precision": "bf16-mixed"}, {"precision": "bf16-true"},
     {"gradient_clip_val": 0.1, "val_check_interval": 2}],
    ids=str,
)  # fmt: skip
def test_a_fit_is_bit_for_bit_what_it_is_without_the_callback(options, tmp_path):
    plain = everything_after(None, **options)
    collected = everything_after(AGOPCallback(only_correct=False, out=tmp_path / "agop.safetensors"), **options)
    changed = [key for key in plain if not same(plain[key], collected[key])]
    assert not changed
    assert agop.AGOP.load(tmp_path / "agop.safetensors").count == 80


@pytest.mark.parametrize(
    ("options", "hand", "setting"),
    [
        ({}, {}, {}),
        ({"per_class": True}, {"per_class": True}, {}),
        ({"every_n_steps": 3, "only_correct": False}, {"every": 3, "only_correct": False}, {}),
        ({}, {}, {"accumulate_grad_batches": 3}),
        ({}, {}, {"precision": "bf16-mixed"}),
    ],
    ids=str,
)
def test_the_agop_is_that_of_the_hook_in_a_plain_loop(options, hand, setting):
    callback = AGOPCallback(out=None, **options)
    module, _ = fitted(callback, **setting)
    other, hook = by_hand(
        options=hand, accumulate=setting.get("accumulate_grad_batches", 1), autocast="precision" in setting
    )
    assert same(module.state_dict(), other.state_dict())
    assert_equal(callback.prior, hook.finalize())
    assert callback.prior.provenance["steps"] == 10


@pytest.mark.parametrize(
    "wrap",
    [lambda z: (z, z.sum()), lambda z: {"loss": z.sum(), "logits": z}, lambda z: SimpleNamespace(logits=z)],
    ids=["tuple", "dict", "object"],
)
def test_outputs_and_batches_in_other_forms(wrap):
    plain, wrapped = AGOPCallback(out=None), AGOPCallback(out=None)
    fitted(plain)
    dicts = [{"pixel_values": images, "labels": labels} for images, labels in loader()]
    fitted(wrapped, Lit(seeded=True, wrap=wrap), DataLoader(dicts, batch_size=None))
    assert_equal(wrapped.prior, plain.prior)


@pytest.mark.parametrize("model", ["net", lambda module: module.net])
def test_a_part_can_be_explained(model):
    whole, part = AGOPCallback(out=None), AGOPCallback(out=None, model=model)
    module, _ = fitted(whole, callbacks=[part])
    assert torch.equal(part.prior.diagonal, whole.prior.diagonal)
    agop.explain(module.net, zoo.images(2), "agop-weighted", part.prior)  # no warning of another model
    agop.explain(module, zoo.images(2), "agop-weighted", whole.prior)


def test_two_parts_in_one_fit_are_kept_apart_in_the_checkpoint(tmp_path):
    class Two(Lit):
        def __init__(self):
            super().__init__(seeded=True)
            self.other = zoo.build("plain")

    saving = ModelCheckpoint(tmp_path, save_last=True)
    made = [AGOPCallback(out=None, model=name, only_correct=name == "net") for name in ("net", "other")]
    fitted(made[0], Two(), callbacks=[made[1], saving])
    again = [AGOPCallback(out=None, model=name, only_correct=name == "net") for name in ("net", "other")]
    fitted(again[0], Two(), callbacks=[again[1]], ckpt_path=tmp_path / "last.ckpt")
    for callback, resumed in zip(made, again, strict=True):
        assert_equal(resumed.prior, callback.prior)
    assert made[0].prior.count < made[1].prior.count == 80


class Resumable:
    """A loader that goes on in the middle of an epoch."""

    def __init__(self):
        self.batches, self.next = list(loader()), 0

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        self.next %= len(self.batches)
        while self.next < len(self.batches):
            self.next += 1
            yield self.batches[self.next - 1]

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


@pytest.mark.parametrize("options", [{}, {"every_n_steps": 2, "per_class": True}], ids=str)
@pytest.mark.parametrize("every", [5, 3, 7], ids=["end of epoch", "mid-epoch", "mid-epoch later"])
def test_a_resumed_fit_ends_with_the_agop_of_an_uninterrupted_one(every, options, tmp_path):
    whole = AGOPCallback(out=None, **options)
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=every, save_top_k=-1, filename="{step}")
    module, _ = fitted(whole, train=Resumable(), callbacks=[saving])
    path = tmp_path / f"step={every}.ckpt"
    torch.load(path, weights_only=True)
    resumed = AGOPCallback(out=tmp_path / "agop.safetensors", **options)
    again, used = fitted(resumed, Lit(seeded=True), Resumable(), ckpt_path=path)
    assert used.global_step == 10
    assert same(again.state_dict(), module.state_dict())
    assert_equal(resumed.prior, whole.prior)
    assert_equal(agop.AGOP.load(tmp_path / "agop.safetensors"), whole.prior)


def test_a_run_that_is_done_gives_its_agop_when_it_is_resumed(tmp_path):
    whole, resumed = AGOPCallback(out=None), AGOPCallback(out=None)
    fitted(whole, callbacks=[ModelCheckpoint(tmp_path, save_last=True)])
    fitted(resumed, ckpt_path=tmp_path / "last.ckpt")
    assert_equal(resumed.prior, whole.prior)


def test_a_run_that_was_done_without_a_callback_has_no_agop_and_says_why(tmp_path):
    fitted(None, callbacks=[ModelCheckpoint(tmp_path, save_last=True)])
    late = AGOPCallback(out=tmp_path / "agop.safetensors")
    with pytest.warns(AGOPWarning) as told:
        fitted(late, ckpt_path=tmp_path / "last.ckpt")
    why = "no sample was counted: no batch was trained, are max_epochs or max_steps reached?"
    assert f"no AGOP file was written: {why}" in [str(found.message) for found in told]
    with pytest.raises(NoSamplesError, match="no batch was trained"):
        _ = late.prior
    assert not (tmp_path / "agop.safetensors").exists()


def test_a_checkpoint_of_other_options_is_refused(tmp_path):
    fitted(AGOPCallback(out=None), callbacks=[ModelCheckpoint(tmp_path, save_last=True)])
    with pytest.raises(InputError, match=r"only_correct.*True"):
        fitted(AGOPCallback(out=None, only_correct=False), max_epochs=3, ckpt_path=tmp_path / "last.ckpt")


def test_a_checkpoint_of_more_ranks_goes_on_with_all_of_them(tmp_path):
    saving = ModelCheckpoint(tmp_path, save_last=True)
    first = AGOPCallback(out=None)
    fitted(first, callbacks=[saving])
    saved = torch.load(tmp_path / "last.ckpt", weights_only=True)
    (state,) = saved["callbacks"][first.state_key]["ranks"]
    saved["callbacks"][first.state_key]["ranks"] = [state, state]
    torch.save(saved, tmp_path / "two.ckpt")
    resumed = AGOPCallback(out=None)
    fitted(resumed, ckpt_path=tmp_path / "two.ckpt")
    assert resumed.prior.count == 2 * first.prior.count
    assert torch.equal(resumed.prior.diagonal, first.prior.diagonal)


def test_another_fit_starts_anew_and_the_same_trainer_goes_on(tmp_path):
    callback = AGOPCallback(out=None, only_correct=False)
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1, filename="{step}")
    module, used = fitted(callback, callbacks=[saving])
    first = callback.prior
    used.test(module, loader(16), ckpt_path=tmp_path / "step=2.ckpt")  # restores callbacks, too
    used.fit_loop.max_epochs = 3
    used.fit(module, loader())
    assert (first.count, callback.prior.count) == (80, 120)
    fitted(callback, module)
    assert callback.prior.count == 80
    fitted(callback)
    assert_equal(callback.prior, first)


def test_a_checkpoint_without_an_agop_starts_anew_also_with_the_same_trainer(tmp_path):
    fitted(None, callbacks=[ModelCheckpoint(tmp_path, filename="plain")], max_epochs=1)
    callback = AGOPCallback(out=None, only_correct=False)
    module, used = fitted(callback)
    with pytest.warns(AGOPWarning, match=r"plain\.ckpt has no AGOP"):
        used.fit(module, loader(), ckpt_path=tmp_path / "plain.ckpt")
    assert callback.prior.count == 40  # the second of two epochs
    used.fit_loop.max_epochs = 3
    used.fit(module, loader())
    assert callback.prior.count == 80


def test_test_validate_and_predict_leave_the_agop_and_count_nothing(tmp_path):
    callback = AGOPCallback(out=tmp_path / "agop.safetensors")
    saving = ModelCheckpoint(tmp_path, every_n_train_steps=2, save_top_k=-1, filename="{step}")
    module, used = fitted(callback, callbacks=[saving])
    prior, written = callback.prior, (tmp_path / "agop.safetensors").stat().st_mtime_ns
    for run in (used.test, used.validate, used.predict):
        run(module, loader(16))
        run(module, loader(16), ckpt_path=tmp_path / "step=2.ckpt")
        assert callback.prior is prior
    assert (tmp_path / "agop.safetensors").stat().st_mtime_ns == written
    fresh = AGOPCallback(out=tmp_path / "none.safetensors")
    trainer(fresh).predict(module, loader(16))
    with pytest.raises(NoSamplesError, match=r"trainer\.fit"):
        _ = fresh.prior
    assert not (tmp_path / "none.safetensors").exists()


@pytest.mark.parametrize(
    ("options", "count"),
    [({"limit_train_batches": 3}, 48), ({"max_steps": 4, "max_epochs": -1}, 32), ({"barebones": True}, 80),
     ({"num_sanity_val_steps": 2, "max_epochs": 1}, 40), ({"overfit_batches": 1}, 16)],
    ids=str,
)  # fmt: skip
def test_exactly_the_batches_that_train_are_counted(options, count, tmp_path):
    callback = AGOPCallback(only_correct=False, out=tmp_path / "agop.safetensors")
    used = trainer(callback, **options)
    used.fit(Lit(), loader(), loader(16))
    assert agop.AGOP.load(tmp_path / "agop.safetensors").count == callback.prior.count == count


def test_looking_for_a_learning_rate_counts_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # Lightning's finder writes a checkpoint here for a while
    module = Lit(seeded=True)
    module.lr = 0.01
    callback, expected = AGOPCallback(out=None), AGOPCallback(out=None)
    used = trainer(callback, callbacks=[LearningRateFinder(num_training_steps=4, update_attr=False)])
    used.fit(module, loader())
    fitted(expected)
    assert_equal(callback.prior, expected.prior)


def test_fast_dev_run_writes_nothing(tmp_path):
    kept = tmp_path / "agop.safetensors"
    kept.write_bytes(b"a result")
    callback = AGOPCallback(only_correct=False, out=kept, snapshot_every=1, snapshot_dir=tmp_path / "snapshots")
    fitted(callback, fast_dev_run=2)
    assert callback.prior.count == 16
    assert kept.read_bytes() == b"a result"
    assert not (tmp_path / "snapshots").exists()


def test_manual_optimization_and_snapshots(tmp_path):
    class Manual(Lit):
        automatic_optimization = False

        def training_step(self, batch, index):
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(super().training_step(batch, index))
            optimizer.step()

    callback = AGOPCallback(out=None, snapshot_every=4, snapshot_dir=tmp_path)
    module, _ = fitted(callback, Manual(seeded=True))
    other, hook = by_hand()
    assert same(module.state_dict(), other.state_dict())
    assert_equal(callback.prior, hook.finalize())
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-0000000{n}.safetensors" for n in (4, 8)]


def test_the_logger_gets_the_progress(tmp_path):
    callback = AGOPCallback(out=None, only_correct=False)
    fitted(callback, logger=CSVLogger(tmp_path), log_every_n_steps=5)
    (path,) = tmp_path.rglob("metrics.csv")
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [(row["step"], float(row["agop/count"])) for row in rows] == [("4", 40.0), ("9", 80.0)]
    values = callback.prior.diagonal.flatten().sort(descending=True).values
    assert float(rows[-1]["agop/top"]) == pytest.approx(float(values[:5].sum() / values.sum()), rel=1e-5)  # 5 of 432


class Failing(Lit):
    def __init__(self, error):
        super().__init__(seeded=True)
        self.error = error

    def training_step(self, batch, index):
        if self.trainer.global_step == 7:
            raise self.error
        return super().training_step(batch, index)


def test_an_error_in_fit_is_told_and_what_was_collected_is_beside(tmp_path):
    kept = tmp_path / "agop.safetensors"
    kept.write_bytes(b"an earlier result")
    callback = AGOPCallback(out=kept, only_correct=False)
    with pytest.raises(ZeroDivisionError, match="my own"):
        fitted(callback, Failing(ZeroDivisionError("my own")))
    assert kept.read_bytes() == b"an earlier result"
    found = agop.AGOP.load(tmp_path / "agop.interrupted.safetensors")
    assert found.count == callback.prior.count == 56
    assert found.provenance["steps"] == 7


def test_ctrl_c_keeps_what_was_collected(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    callback = AGOPCallback(out=tmp_path / "agop.safetensors", only_correct=False)
    try:
        with pytest.raises(SystemExit):  # Lightning's way
            fitted(callback, Failing(KeyboardInterrupt()))
    finally:
        signal.signal(signal.SIGINT, before)
    assert [path.name for path in tmp_path.iterdir()] == ["agop.interrupted.safetensors"]


def test_a_file_that_cannot_be_written_ends_nothing(tmp_path):
    (tmp_path / "file").write_text("in the way")
    callback = AGOPCallback(out=tmp_path / "file" / "agop.safetensors", only_correct=False)
    with pytest.warns(AGOPWarning, match=r"callback\.prior"):
        fitted(callback)
    assert callback.prior.count == 80
    with pytest.warns(AGOPWarning, match="not written"), pytest.raises(ZeroDivisionError, match="my own"):
        fitted(callback, Failing(ZeroDivisionError("my own")))


def test_a_fit_in_which_no_sample_counted_says_why(tmp_path):
    callback = AGOPCallback(out=tmp_path / "agop.safetensors")
    module = Lit()
    classes = module.eval()(zoo.images(8)).argmax(1)
    wrong = DataLoader(TensorDataset(zoo.images(8), (classes + 1) % 3), batch_size=8)
    module.configure_optimizers = lambda: torch.optim.SGD(module.parameters(), lr=0.0)
    with pytest.warns(AGOPWarning, match="no AGOP file was written: .*none of 8"):
        fitted(callback, module.train(), wrong, max_epochs=1)
    with pytest.raises(NoSamplesError, match="none of 8"):
        _ = callback.prior
    assert not list(tmp_path.iterdir())


class Odd(Lit):
    def training_step(self, batch, index):
        return self.net(zoo.images(4)).sum()


class Reentrant(Odd):
    def forward(self, x):
        return self.net[1:](checkpoint(self.net[0], x, use_reentrant=True))


class Formless(L.LightningModule):
    training_step, configure_optimizers = Odd.training_step, Lit.configure_optimizers

    def __init__(self):
        super().__init__()
        self.net = zoo.build("plain")


@pytest.mark.parametrize(
    ("callback", "module", "batches", "error", "message"),
    [
        ({}, Odd, [{"text": torch.zeros(2)}], InputError, r"\['text'\].*pixel_values"),
        ({}, Odd, ["words"], InputError, "a batch is a str"),
        ({}, Odd, [(torch.zeros(2, 5), torch.zeros(2))], InputError, r"\(2, 5\)"),
        ({}, Odd, [zoo.images(4)], InputError, "needs labels"),
        ({"only_correct": False}, Odd, [zoo.images(4) / 0], GradientError, "nan='skip'"),
        ({"only_correct": False}, Reentrant, [zoo.images(4)], ModelError, "use_reentrant=False"),
        ({}, Formless, [zoo.images(4)], InputError, "Formless has no forward.*model='net'"),
        ({"model": "body"}, Odd, [zoo.images(4)], InputError, "'body', but Odd has no such part: choose one of net"),
        ({"model": lambda module: 5}, Odd, [zoo.images(4)], InputError, "model is a int"),
    ],
)
def test_what_cannot_be_collected_is_told_plainly(callback, module, batches, error, message):
    with pytest.raises(error, match=message):
        fitted(AGOPCallback(out=None, **callback), module(), DataLoader(batches, batch_size=None))


def test_nan_skip_goes_on():
    images = zoo.images(4)
    images[1] = torch.nan
    callback = AGOPCallback(out=None, only_correct=False, nan="skip")
    fitted(callback, Odd(), DataLoader([images], batch_size=None), max_epochs=1)
    assert (callback.prior.count, callback.prior.provenance["skipped"]) == (3, 1)


@pytest.mark.parametrize("options", [{"every_n_steps": 0}, {"snapshot_every": 0}, {"nan": "no"}, {"out": "."}])
def test_options_that_make_no_sense_are_told_at_once(options):
    with pytest.raises(InputError, match=next(iter(options)).removesuffix("_n_steps")):
        AGOPCallback(**options)


def test_sharded_weights_are_refused():
    from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy, ModelParallelStrategy

    check_strategy(DDPStrategy())
    for strategy in (FSDPStrategy(), ModelParallelStrategy()):
        with pytest.raises(ModelError, match=f"{type(strategy).__name__} shards the weights"):
            check_strategy(strategy)


def test_of_deepspeed_only_the_stage_that_splits_the_weights_is_refused():
    """Lightning makes a DeepSpeedStrategy only where deepspeed is installed, which is not among our tests' packages; so
    this one is not made but has a configuration, which is what the real class tells its stage by.
    """
    from lightning.pytorch.strategies import DeepSpeedStrategy

    strategy = object.__new__(DeepSpeedStrategy)
    for stage in (1, 2, 3):
        strategy.config = {"zero_optimization": {"stage": stage}}
        if stage < 3:
            check_strategy(strategy)
            continue
        with pytest.raises(ModelError, match=r"DeepSpeedStrategy shards the weights.*strategy='ddp'"):
            check_strategy(strategy)


def run(code, *arguments, timeout=300, **environment):
    """A process of its own, with the code or with a script and its arguments."""
    root = Path(__file__).parents[2]
    paths = os.pathsep.join([str(root), str(root / "src")])
    return subprocess.run(
        [sys.executable, *arguments, *([] if code is None else ["-c", textwrap.dedent(code)])],
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"} | environment,
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


ALONE = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo"}
SMALL = """
    import sys
    from pathlib import Path
    import lightning as L, torch
    from lightning.pytorch.strategies import ModelParallelStrategy
    from agop.errors import AGOPError
    from agop.interop.lightning import AGOPCallback
    from tests import zoo

    class Lit(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = zoo.build("plain").body  # without a lambda, which no process can be given
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
            print("refused:", error)
"""


@pytest.mark.slow
def test_a_fit_with_sharded_weights_is_refused_before_it_trains():
    """Lightning's ModelParallelStrategy trains on a CPU; its FSDPStrategy wants a GPU."""
    fit = SMALL + "    fit(ModelParallelStrategy(), 1, CALLBACKS)\n"
    done = run(fit.replace("CALLBACKS", "[]"), **ALONE)
    assert done.stdout.count("trained") == 4, done.stderr
    done = run(fit.replace("CALLBACKS", "[AGOPCallback(out=None, only_correct=False)]"), **ALONE)
    assert "refused: ModelParallelStrategy shards the weights" in done.stdout, done.stderr
    assert "trained\n" not in done.stdout


@pytest.mark.slow
def test_under_ddp_spawn_only_the_file_has_the_agop(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        textwrap.dedent(SMALL)
        + textwrap.dedent("""
            if __name__ == "__main__":
                callback = AGOPCallback(out=sys.argv[1], only_correct=False)
                fit("ddp_spawn", 2, [callback])
                try:
                    callback.prior
                except AGOPError as error:
                    print("not here:", error)
        """)
    )
    out = tmp_path / "agop.safetensors"
    done = run(None, str(script), str(out), **ALONE)
    assert out.exists(), done.stderr
    assert agop.AGOP.load(out).count == 12
    assert "not here: there is no AGOP yet" in done.stdout
    assert "under ddp_spawn only the file has it" in done.stdout


@pytest.mark.slow
def test_the_other_package_of_lightning_works_too():
    """pytorch_lightning, imported before or after, with the callback in a list or alone."""
    pytest.importorskip("pytorch_lightning")
    code = """
        import sys
        if "{first}" == "agop":
            from agop.interop.lightning import AGOPCallback
        import pytorch_lightning as pl, torch
        from agop.interop.lightning import AGOPCallback
        from tests import zoo
        class Lit(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.net = zoo.build("plain")
            def forward(self, x):
                return self.net(x)
            def training_step(self, batch, index):
                return self(batch).square().mean()
            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.01)
        callback = AGOPCallback(out=None, only_correct=False)
        trainer = pl.Trainer(max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                             callbacks={given})
        trainer.fit(Lit(), torch.utils.data.DataLoader(zoo.images(6), batch_size=3))
        print("counted", callback.prior.count, "lightning" in sys.modules)
    """
    before = run(code.replace("{first}", "pl").replace("{given}", "callback"))
    assert "counted 6 False" in before.stdout, before.stderr
    after = run(code.replace("{first}", "agop").replace("{given}", "[callback]"))
    assert "counted 6 True" in after.stdout, after.stderr


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
                raise ZeroDivisionError("my own")
            self.seen.append(batch[2])
            return nn.functional.cross_entropy(self(batch[0]), batch[1])
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(callback, module=None, ckpt_path=None, saving=None):
        module = Lit() if module is None else module
        callbacks = [found for found in (callback, saving) if found is not None]
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


@pytest.mark.slow
def test_two_ranks_give_one_agop_of_both(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(TWO_RANKS))
    done = run(None, str(script), str(tmp_path / "out"), **ALONE)
    out = tmp_path / "out"
    assert all((out / f"done-rank{rank}").exists() for rank in (0, 1)), done.stderr
    assert "my own" in done.stderr
    whole, resumed = (agop.AGOP.load(out / f"{name}.safetensors") for name in ("whole", "resumed"))
    assert_equal(resumed, whole)

    module, images, labels = zoo.build("plain"), zoo.images(32), torch.arange(32) % 3
    optimizer, hook = torch.optim.SGD(module.parameters(), lr=0.1), agop.AGOPTrainingHook(module, only_correct=False)
    seen = [torch.load(out / f"seen-rank{rank}.pt") for rank in (0, 1)]
    for rows in map(torch.cat, zip(*seen, strict=True)):  # the same in one process
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
