"""AGOPCallback in Lightning's Trainer, compared with plain training loops. See also tests/contracts."""

import csv
import signal

import lightning as L
import pytest
import torch
from lightning.pytorch.callbacks import LearningRateFinder, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from torch import nn
from torch.utils.data import DataLoader

import agop
from agop.errors import AGOPWarning, InputError, ModelError, NoSamplesError
from agop.integrations.lightning import AGOPCallback, check_strategy
from tests import zoo
from tests.integrations.agops import assert_equal_agops
from tests.integrations.lightning_training import IGNORED, Lit, Resumable, every_step, fit, loader, trainer_with
from tests.state import assert_same, same

pytestmark = [pytest.mark.filterwarnings(ignored) for ignored in IGNORED]


class Manual(Lit):
    automatic_optimization = False

    def training_step(self, batch, index):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(super().training_step(batch, index))
        optimizer.step()


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
def test_agop_equals_the_hook_in_a_plain_loop(options, of_trainer, module, loop):
    module, callback = module(), AGOPCallback(out=None, **options)
    fit(callback, module=module, **of_trainer)
    other, hook = plain_loop(**loop)
    assert same(module.state_dict(), other.state_dict())
    assert_equal_agops(callback.prior, hook.finalize())
    assert callback.prior.provenance.steps == 10


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


def test_resuming_on_fewer_ranks_merges_their_states(tmp_path):
    first, callback = AGOPCallback(out=None), AGOPCallback(out=None)
    fit(first, every_step(tmp_path), train=Resumable(loader()))
    saved = torch.load(tmp_path / "step=10.ckpt", weights_only=True)
    (state,) = saved["callbacks"][callback.state_key]["ranks"]
    saved["callbacks"][callback.state_key]["ranks"] = [state, state]
    torch.save(saved, tmp_path / "two.ckpt")
    fit(callback, train=Resumable(loader()), ckpt_path=tmp_path / "two.ckpt")
    assert callback.prior.count == 2 * first.prior.count
    assert torch.equal(callback.prior.diagonal, first.prior.diagonal)


def test_resuming_a_checkpoint_without_agop_starts_from_zero_even_with_the_same_trainer(tmp_path):
    fit(ModelCheckpoint(tmp_path, filename="plain"), max_epochs=1)
    callback = AGOPCallback(out=None, only_correct=False)
    module, trainer = fit(callback)
    with pytest.warns(AGOPWarning, match=r"plain\.ckpt has no AGOP"):
        trainer.fit(module, loader(), ckpt_path=tmp_path / "plain.ckpt")
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


def test_learning_rate_finder_is_not_counted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the finder writes a temporary checkpoint to the current folder
    module, callback, without = Lit(), AGOPCallback(out=None), AGOPCallback(out=None)
    module.lr = 0.01
    fit(callback, LearningRateFinder(num_training_steps=4, update_attr=False), module=module)
    fit(without)
    assert_equal_agops(callback.prior, without.prior)


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


def test_error_of_the_training_is_raised_if_its_agop_can_not_be_written(tmp_path):
    (tmp_path / "file").write_text("not a folder")
    callback = AGOPCallback(out=tmp_path / "file" / "agop.safetensors", only_correct=False)
    with pytest.warns(AGOPWarning, match="not written"), pytest.raises(ZeroDivisionError, match="user error"):
        fit(callback, module=Failing(ZeroDivisionError("user error")))


class WithoutForward(Lit):
    forward = L.LightningModule.forward


@pytest.mark.parametrize(
    ("model", "module", "message"),
    [
        (None, WithoutForward, "WithoutForward has no forward.*model='net'"),
        ("body", Lit, "'body'.* has no such part: choose one of net"),
        (lambda module: 5, Lit, "model is a int"),
    ],
)
def test_module_without_the_part_raises(model, module, message):
    with pytest.raises(InputError, match=message):
        fit(AGOPCallback(out=None, model=model), module=module())


def test_batches_may_be_dicts_and_without_images_they_raise():
    class Dicts(Lit):
        def training_step(self, batch, index):
            return self.net(zoo.images(4)).sum()

    images = {"pixel_values": zoo.images(4), "labels": torch.arange(4) % 3}
    callback = AGOPCallback(out=None, only_correct=False)
    fit(callback, module=Dicts(), train=DataLoader([images], batch_size=None))
    assert callback.prior.count == 8
    with pytest.raises(InputError, match=r"\['text'\].*pixel_values"):
        fit(callback, module=Dicts(), train=DataLoader([{"text": torch.zeros(2)}], batch_size=None))


def test_weights_of_a_module_s_part_load_from_its_checkpoint(tmp_path):
    module, trainer = fit(AGOPCallback(out=None), max_epochs=1)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    loaded = agop.load_model("tests.zoo:batch_normed", tmp_path / "last.ckpt")
    assert_same(loaded.state_dict(), module.net.state_dict())


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
