"""AGOPCallback in Lightning's Trainer, compared with plain training loops."""

import csv
import random
import signal
from inspect import signature
from types import SimpleNamespace

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import LearningRateFinder, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

import agop
from agop.errors import AGOPWarning, GradientError, InputError, ModelError, NoSamplesError
from agop.interop.lightning import AGOPCallback, check_strategy
from agop.networks import load_model
from tests import zoo
from tests.interop.agops import assert_equal_agops, trained_state
from tests.state import assert_same, same

pytestmark = [
    # Lightning's own: advice for large data and GPUs, and for settings that these tests choose on purpose.
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*The number of training batches"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
    pytest.mark.filterwarnings("ignore:.*Running in `fast_dev_run` mode"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty"),
    pytest.mark.filterwarnings("ignore:Found .* module.s. in eval mode"),
    pytest.mark.filterwarnings("ignore:.*Please add the following callbacks. ..ModelCheckpoint"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # Lightning 2.6 on a later torch
]


def loader(count=40, shuffle=False):
    return DataLoader(TensorDataset(zoo.images(count), torch.arange(count) % 3), batch_size=8, shuffle=shuffle)


class Resumable(list):
    """A list of batches that can resume in the middle of an epoch."""

    next = 0

    def __iter__(self):
        self.next %= len(self)
        while self.next < len(self):
            self.next += 1
            yield self[self.next - 1]

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.next = state["next"]


class Lit(L.LightningModule):
    """Batch norm, dropout and Adam. With `seeded`, dropout depends on the step alone, not on earlier random numbers."""

    def __init__(self, seeded=True, wrap=lambda logits: logits):
        super().__init__()
        torch.manual_seed(0)
        self.net = zoo.batch_normed().train()
        self.seeded, self.wrap = seeded, wrap
        self.losses = []

    def forward(self, x):
        return self.wrap(self.net(x))

    def training_step(self, batch, index):
        images, labels = batch.values() if isinstance(batch, dict) else batch
        if self.seeded:
            torch.manual_seed(self.trainer.fit_loop.epoch_loop.total_batch_idx)
        loss = nn.functional.cross_entropy(self.net(images), labels)
        self.losses.append(loss.item())
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


class Manual(Lit):
    automatic_optimization = False

    def training_step(self, batch, index):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, index))
        optimizer.step()


def trainer_with(*callbacks, **options):
    saves = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
    defaults = {"max_epochs": 2, "logger": False, "enable_checkpointing": saves}
    if not options.get("barebones"):
        defaults |= {"enable_progress_bar": False, "enable_model_summary": False}
    return L.Trainer(accelerator="cpu", devices=1, callbacks=list(callbacks), **defaults | options)


def fit(*callbacks, module=None, train=None, ckpt_path=None, **options):
    """The module and the Trainer after a fit."""
    module = Lit() if module is None else module
    trainer = trainer_with(*callbacks, **options)
    trainer.fit(module, loader() if train is None else train, ckpt_path=ckpt_path)
    return module, trainer


def every_step(folder):
    return ModelCheckpoint(folder, every_n_train_steps=1, save_top_k=-1, filename="{step}")


def plain_loop(accumulate=1, autocast=False, **options):
    """The same training as a plain loop: the module and the hook."""
    module = Lit()
    optimizer = module.configure_optimizers()
    hook = agop.AGOPTrainingHook(module, **options)
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


def state_after_fit(*callbacks, **options):
    module = Lit(seeded=False)
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    trainer = trainer_with(*callbacks, **options)
    trainer.fit(module, loader(shuffle=True), loader(16))
    return trained_state(module) | {
        "optimizer": trainer.optimizers[0].state_dict(),
        "losses": module.losses,
        "validation": {name: value for name, value in trainer.callback_metrics.items() if "agop" not in name},
    }


@pytest.mark.parametrize(
    "options",
    [{}, {"accumulate_grad_batches": 2}, {"precision": "bf16-mixed"}, {"precision": "bf16-true"},
     {"gradient_clip_val": 0.1, "val_check_interval": 2}],
    ids=str,
)  # fmt: skip
def test_fit_is_bitwise_equal_with_and_without_the_callback(options, tmp_path):
    without = state_after_fit(**options)
    callback = AGOPCallback(only_correct=False, out=tmp_path / "agop.safetensors")
    assert_same(without, state_after_fit(callback, **options))
    assert agop.AGOP.load(tmp_path / "agop.safetensors").count == 80


@pytest.mark.parametrize(
    ("options", "of_trainer", "module", "loop"),
    [
        ({}, {}, Lit, {}),
        ({"per_class": True}, {}, Lit, {"per_class": True}),
        ({"every": 3, "only_correct": False}, {}, Lit, {"every": 3, "only_correct": False}),
        ({}, {"accumulate_grad_batches": 3}, Lit, {"accumulate": 3}),
        ({}, {"precision": "bf16-mixed"}, Lit, {"autocast": True}),
        ({}, {}, Manual, {}),
    ],
    ids=str,
)
def test_agop_equals_the_hook_in_a_plain_loop(options, of_trainer, module, loop, tmp_path):
    module, callback = module(), AGOPCallback(out=None, snapshot_every=4, snapshot_dir=tmp_path, **options)
    fit(callback, module=module, **of_trainer)
    other, hook = plain_loop(**loop)
    assert same(module.state_dict(), other.state_dict())
    assert_equal_agops(callback.prior, hook.finalize())
    assert callback.prior.provenance.steps == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step-0000000{step}.safetensors" for step in (4, 8)]


@pytest.mark.parametrize(
    "wrap",
    [lambda z: (z, z.sum()), lambda z: {"loss": z.sum(), "logits": z}, lambda z: SimpleNamespace(logits=z)],
    ids=["tuple", "dict", "object"],
)
def test_wrapped_outputs_and_dict_batches_give_the_same_agop(wrap, finished):
    callback = AGOPCallback(out=None)
    batches = [{"pixel_values": images, "labels": labels} for images, labels in loader()]
    fit(callback, module=Lit(wrap=wrap), train=DataLoader(batches, batch_size=None))
    assert_equal_agops(callback.prior, finished.prior)


@pytest.mark.parametrize("model", ["net", lambda module: module.net])
def test_a_part_of_the_module_can_be_explained(model):
    whole, part = AGOPCallback(out=None), AGOPCallback(out=None, model=model)
    module, _ = fit(whole, part)
    assert torch.equal(part.prior.diagonal, whole.prior.diagonal)
    agop.explain(module.net, zoo.images(2), "agop-weighted", part.prior)  # doesn't warn about other weights
    agop.explain(module, zoo.images(2), "agop-weighted", whole.prior)


def test_checkpoint_keeps_the_states_of_two_parts_apart(tmp_path):
    class Two(Lit):
        def __init__(self):
            super().__init__()
            self.other = zoo.build("plain")

    def pair():
        return [AGOPCallback(out=None, model=name, only_correct=name == "net") for name in ("net", "other")]

    first, resumed = pair(), pair()
    fit(*first, ModelCheckpoint(tmp_path, save_last=True), module=Two())
    fit(*resumed, module=Two(), ckpt_path=tmp_path / "last.ckpt")
    for callback, other in zip(first, resumed, strict=True):
        assert_equal_agops(other.prior, callback.prior)
    assert first[0].prior.count < first[1].prior.count == 80


@pytest.fixture(scope="module", params=[{}], ids=str)
def finished(request, tmp_path_factory):
    """A finished fit with a checkpoint of each of its ten steps: options, folder, weights and prior."""
    folder, callback = tmp_path_factory.mktemp("checkpoints"), AGOPCallback(out=None, **request.param)
    module, _ = fit(callback, every_step(folder), train=Resumable(loader()))
    return SimpleNamespace(options=request.param, folder=folder, weights=module.state_dict(), prior=callback.prior)


@pytest.mark.parametrize("finished", [{}, {"every": 2, "per_class": True}], ids=str, indirect=True)
@pytest.mark.parametrize("step", [5, 3, 7, 10], ids=["end of epoch", "mid-epoch", "second epoch", "end of training"])
def test_resume_gives_a_bitwise_equal_agop(step, finished, tmp_path):
    path = finished.folder / f"step={step}.ckpt"
    torch.load(path, weights_only=True)
    callback = AGOPCallback(out=tmp_path / "agop.safetensors", **finished.options)
    module, trainer = fit(callback, train=Resumable(loader()), ckpt_path=path)
    assert trainer.global_step == 10
    assert same(module.state_dict(), finished.weights)
    assert_equal_agops(callback.prior, finished.prior)
    assert_equal_agops(agop.AGOP.load(tmp_path / "agop.safetensors"), finished.prior)


def test_resuming_with_other_options_raises(finished):
    with pytest.raises(InputError, match=r"only_correct.*True"):
        fit(AGOPCallback(out=None, only_correct=False), max_epochs=3, ckpt_path=finished.folder / "step=10.ckpt")


def test_resuming_on_fewer_ranks_merges_their_states(finished, tmp_path):
    callback = AGOPCallback(out=None)
    saved = torch.load(finished.folder / "step=10.ckpt", weights_only=True)
    (state,) = saved["callbacks"][callback.state_key]["ranks"]
    saved["callbacks"][callback.state_key]["ranks"] = [state, state]
    torch.save(saved, tmp_path / "two.ckpt")
    fit(callback, train=Resumable(loader()), ckpt_path=tmp_path / "two.ckpt")
    assert callback.prior.count == 2 * finished.prior.count
    assert torch.equal(callback.prior.diagonal, finished.prior.diagonal)


@pytest.fixture(scope="module")
def checkpoint_without_agop(tmp_path_factory):
    """A checkpoint after one epoch, of a fit without the callback."""
    folder = tmp_path_factory.mktemp("plain")
    fit(ModelCheckpoint(folder, filename="plain"), max_epochs=1)
    return folder / "plain.ckpt"


def test_resuming_a_finished_fit_without_agop_writes_no_file_and_warns(checkpoint_without_agop, tmp_path):
    callback = AGOPCallback(out=tmp_path / "agop.safetensors")
    with pytest.warns(AGOPWarning) as caught:
        fit(callback, ckpt_path=checkpoint_without_agop, max_epochs=1)
    reason = "no sample was counted: no batch was trained, are max_epochs or max_steps reached?"
    assert f"no AGOP file was written: {reason}" in [str(warning.message) for warning in caught]
    with pytest.raises(NoSamplesError, match="no batch was trained"):
        _ = callback.prior
    assert not (tmp_path / "agop.safetensors").exists()


def test_resuming_a_checkpoint_without_agop_starts_from_zero_even_with_the_same_trainer(checkpoint_without_agop):
    callback = AGOPCallback(out=None, only_correct=False)
    module, trainer = fit(callback)
    with pytest.warns(AGOPWarning, match=r"plain\.ckpt has no AGOP"):
        trainer.fit(module, loader(), ckpt_path=checkpoint_without_agop)
    assert callback.prior.count == 40  # the second of two epochs
    trainer.fit_loop.max_epochs = 3
    trainer.fit(module, loader())
    assert callback.prior.count == 80


def test_a_new_fit_starts_from_zero_and_the_same_trainer_continues(tmp_path):
    callback = AGOPCallback(out=None, only_correct=False)
    module, trainer = fit(callback, every_step(tmp_path))
    first = callback.prior
    trainer.test(module, loader(16), ckpt_path=tmp_path / "step=2.ckpt")  # also restores callbacks
    trainer.fit_loop.max_epochs = 3
    trainer.fit(module, loader())
    assert (first.count, callback.prior.count) == (80, 120)
    fit(callback, module=module)
    assert callback.prior.count == 80
    fit(callback)
    assert_equal_agops(callback.prior, first)


def test_test_validate_and_predict_collect_nothing_and_keep_the_agop(tmp_path):
    out = tmp_path / "agop.safetensors"
    callback = AGOPCallback(out=out)
    trainer_with(callback).predict(Lit(), loader(16))
    with pytest.raises(NoSamplesError, match=r"no AGOP yet: call trainer\.fit"):
        _ = callback.prior
    assert not out.exists()
    module, trainer = fit(callback, every_step(tmp_path))
    prior, written = callback.prior, out.stat().st_mtime_ns
    for run in (trainer.test, trainer.validate, trainer.predict):
        run(module, loader(16))
        run(module, loader(16), ckpt_path=tmp_path / "step=2.ckpt")
        assert callback.prior is prior
    assert out.stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("options", "count"),
    [({"limit_train_batches": 3}, 48), ({"max_steps": 4, "max_epochs": -1}, 32), ({"barebones": True}, 80),
     ({"num_sanity_val_steps": 2, "max_epochs": 1}, 40), ({"overfit_batches": 1}, 16)],
    ids=str,
)  # fmt: skip
def test_only_training_batches_are_counted(options, count, tmp_path):
    callback = AGOPCallback(only_correct=False, out=tmp_path / "agop.safetensors")
    trainer_with(callback, **options).fit(Lit(), loader(), loader(16))
    assert agop.AGOP.load(tmp_path / "agop.safetensors").count == callback.prior.count == count


def test_learning_rate_finder_is_not_counted(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the finder writes a temporary checkpoint to the current folder
    module, callback = Lit(), AGOPCallback(out=None)
    module.lr = 0.01
    fit(callback, LearningRateFinder(num_training_steps=4, update_attr=False), module=module)
    assert_equal_agops(callback.prior, finished.prior)


def test_fast_dev_run_writes_no_file(tmp_path):
    out = tmp_path / "agop.safetensors"
    out.write_bytes(b"a result")
    callback = AGOPCallback(only_correct=False, out=out, snapshot_every=1, snapshot_dir=tmp_path / "snapshots")
    fit(callback, fast_dev_run=2)
    assert callback.prior.count == 16
    assert out.read_bytes() == b"a result"
    assert not (tmp_path / "snapshots").exists()


@pytest.mark.parametrize(
    ("module", "options", "rows"),
    [
        (Lit, {"log_every_n_steps": 5}, [("4", 40.0), ("9", 80.0)]),
        (Manual, {"log_every_n_steps": 5}, [("4", 40.0), ("9", 80.0)]),
        (Lit, {"log_every_n_steps": 3, "accumulate_grad_batches": 2}, [("2", 40.0), ("5", 80.0)]),
        (Lit, {"log_every_n_steps": 0}, []),
    ],
    ids=["automatic", "manual", "accumulating", "never"],
)
def test_logger_gets_count_and_top_share(module, options, rows, tmp_path):
    callback = AGOPCallback(out=None, only_correct=False)
    fit(callback, module=module(), logger=CSVLogger(tmp_path), **options)
    logged = [row for path in tmp_path.rglob("metrics.csv") for row in csv.DictReader(path.read_text().splitlines())]
    assert [(row["step"], float(row["agop/count"])) for row in logged] == rows
    if rows:
        values = callback.prior.diagonal.flatten().sort(descending=True).values
        share = float(values[:5].sum() / values.sum())  # 5 of 432 values are the highest 1%
        assert float(logged[-1]["agop/top"]) == pytest.approx(share, rel=1e-5)


class Failing(Lit):
    def __init__(self, error):
        super().__init__()
        self.error = error

    def training_step(self, batch, index):
        if self.trainer.global_step == 7:
            raise self.error
        return super().training_step(batch, index)


@pytest.mark.parametrize(
    ("error", "raises"),
    [(ZeroDivisionError("user error"), pytest.raises(ZeroDivisionError, match="user error")),
     (KeyboardInterrupt(), pytest.raises(SystemExit))],
    ids=["error", "Ctrl-C"],
)  # fmt: skip
def test_interrupted_fit_raises_and_the_agop_so_far_is_saved_beside_out(error, raises, tmp_path):
    out, handler = tmp_path / "agop.safetensors", signal.getsignal(signal.SIGINT)
    out.write_bytes(b"an earlier result")
    callback = AGOPCallback(out=out, only_correct=False)
    with raises:
        fit(callback, module=Failing(error))
    signal.signal(signal.SIGINT, handler)  # Lightning ignores it after Ctrl-C
    assert out.read_bytes() == b"an earlier result"
    interrupted = agop.AGOP.load(tmp_path / "agop.interrupted.safetensors")
    assert interrupted.count == callback.prior.count == 56
    assert interrupted.provenance.steps == 7


def test_unwritable_file_warns_and_keeps_the_prior(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    callback = AGOPCallback(out=tmp_path / "file" / "agop.safetensors", only_correct=False)
    with pytest.warns(AGOPWarning, match=r"callback\.prior"):
        fit(callback)
    assert callback.prior.count == 80
    with pytest.warns(AGOPWarning, match="not written"), pytest.raises(ZeroDivisionError, match="user error"):
        fit(callback, module=Failing(ZeroDivisionError("user error")))


def test_fit_without_a_correct_sample_warns_with_the_reason(tmp_path):
    callback, module = AGOPCallback(out=tmp_path / "agop.safetensors"), Lit()
    classes = module.eval()(zoo.images(8)).argmax(1)
    wrong = DataLoader(TensorDataset(zoo.images(8), (classes + 1) % 3), batch_size=8)
    module.configure_optimizers = lambda: torch.optim.SGD(module.parameters(), lr=0.0)
    with pytest.warns(AGOPWarning, match="no AGOP file was written: .*none of 8"):
        fit(callback, module=module.train(), train=wrong, max_epochs=1)
    with pytest.raises(NoSamplesError, match="none of 8"):
        _ = callback.prior
    assert not list(tmp_path.iterdir())


class IgnoresBatch(Lit):
    def training_step(self, batch, index):
        return self.net(zoo.images(4)).sum()


class Reentrant(IgnoresBatch):
    def forward(self, x):
        return self.net[1:](checkpoint(self.net[0], x, use_reentrant=True))


class WithoutForward(IgnoresBatch):
    forward = L.LightningModule.forward


@pytest.mark.parametrize(
    ("callback", "module", "batches", "error", "message"),
    [
        ({}, IgnoresBatch, [{"text": torch.zeros(2)}], InputError, r"\['text'\].*pixel_values"),
        ({}, IgnoresBatch, ["words"], InputError, "a batch is a str"),
        ({}, IgnoresBatch, [(torch.zeros(2, 5), torch.zeros(2))], InputError, r"\(2, 5\)"),
        ({}, IgnoresBatch, [zoo.images(4)], InputError, "needs labels"),
        ({"only_correct": False}, IgnoresBatch, [zoo.images(4) / 0], GradientError, "nan='skip'"),
        ({"only_correct": False}, Reentrant, [zoo.images(4)], ModelError, "use_reentrant=False"),
        ({}, WithoutForward, [zoo.images(4)], InputError, "WithoutForward has no forward.*model='net'"),
        ({"model": "body"}, IgnoresBatch, [zoo.images(4)], InputError, "'body'.* has no such part: choose one of net"),
        ({"model": lambda module: 5}, IgnoresBatch, [zoo.images(4)], InputError, "model is a int"),
    ],
)
def test_unusable_batch_or_module_raises(callback, module, batches, error, message):
    with pytest.raises(error, match=message):
        fit(AGOPCallback(out=None, **callback), module=module(), train=DataLoader(batches, batch_size=None))


def test_nan_skip_skips_the_sample():
    images = zoo.images(4)
    images[1] = torch.nan
    callback = AGOPCallback(out=None, only_correct=False, nan="skip")
    fit(callback, module=IgnoresBatch(), train=DataLoader([images], batch_size=None), max_epochs=1)
    assert (callback.prior.count, callback.prior.provenance.skipped) == (3, 1)


def test_weights_of_a_module_s_part_load_from_its_checkpoint(tmp_path):
    module, trainer = fit(AGOPCallback(out=None), max_epochs=1)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    loaded = load_model("tests.zoo:batch_normed", tmp_path / "last.ckpt")
    assert_same(loaded.state_dict(), module.net.state_dict())


def test_options_of_the_hook_have_the_same_names_and_defaults():
    hook, callback = (signature(each).parameters for each in (agop.AGOPTrainingHook, AGOPCallback))
    assert {name: option.default for name, option in hook.items() if name != "model"}.items() <= {
        name: option.default for name, option in callback.items()
    }.items()


@pytest.mark.parametrize("options", [{"every": 0}, {"snapshot_every": 0}, {"nan": "no"}, {"rank": -1}, {"out": "."}])
def test_invalid_option_raises_in_the_constructor(options):
    with pytest.raises(InputError, match=next(iter(options))):
        AGOPCallback(**options)


def test_strategy_that_shards_the_weights_raises():
    """A DeepSpeedStrategy can be constructed only with deepspeed, so this one is a bare object with a config."""
    stages = []
    for stage in (1, 2, 3):
        stages.append(object.__new__(DeepSpeedStrategy))
        stages[-1].config = {"zero_optimization": {"stage": stage}}
    for strategy in (DDPStrategy(), *stages[:2]):
        check_strategy(strategy)
    for strategy in (FSDPStrategy(), ModelParallelStrategy(), stages[2]):
        with pytest.raises(ModelError, match=f"{type(strategy).__name__} shards the weights.*strategy='ddp'"):
            check_strategy(strategy)
