"""What the callbacks of both trainers, Lightning's and transformers', have in common."""

import json
import random
import shutil
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import agop
from agop.errors import AGOPWarning, InputError, NoSamplesError
from agop.integrations.lightning import AGOPCallback
from tests import zoo
from tests.integrations import lightning_training as lit
from tests.integrations.agops import assert_equal_agops, trained_state
from tests.state import assert_same

pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
from agop.integrations.transformers import AGOPTrainerCallback
from tests.integrations import hugging_face
from tests.integrations.hugging_face import cheap_garbage_collection  # noqa: F401  # a fixture

pytestmark = [
    *(pytest.mark.filterwarnings(ignored) for ignored in lit.IGNORED),
    pytest.mark.usefixtures("cheap_garbage_collection"),
    pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning"),
    pytest.mark.filterwarnings("ignore:You are adding"),  # two callbacks of one class
]


class Lightning:
    """Two epochs of five batches of eight images, a checkpoint after each batch."""

    Callback, batch, steps = AGOPCallback, 8, 10
    resumed_at: ClassVar = {"end of epoch": 5, "mid-epoch": 3, "second epoch": 7, "end of training": 10}
    reached = "are max_epochs or max_steps reached"

    def state(self, folder, *callbacks, **options):
        """Everything a training leaves behind."""
        module = lit.Lit(seeded=False)
        torch.manual_seed(3)
        random.seed(3)
        np.random.seed(3)
        trainer = lit.trainer_with(*callbacks, **options)
        trainer.fit(module, lit.loader(shuffle=True), lit.loader(16))
        return trained_state(module) | {
            "optimizer": trainer.optimizers[0].state_dict(),
            "losses": module.losses,
            "validation": {name: value for name, value in trainer.callback_metrics.items() if "agop" not in name},
        }

    def train(self, folder, *callbacks, resume=None):
        """The weights after a training with a checkpoint of each step, which may resume one."""
        saving = [lit.every_step(folder)] if resume is None else []
        module, trainer = lit.fit(*callbacks, *saving, train=lit.Resumable(lit.loader()), ckpt_path=resume)
        assert trainer.global_step == self.steps
        return module.state_dict()

    def checkpoint(self, folder, step):
        path = folder / f"step={step}.ckpt"
        torch.load(path, weights_only=True)
        return path

    def without_agop(self, checkpoint, folder):
        """A copy of a checkpoint that lacks the callback's state."""
        saved = torch.load(checkpoint, weights_only=True)
        del saved["callbacks"][AGOPCallback().state_key]
        torch.save(saved, folder / "copy.ckpt")
        return folder / "copy.ckpt"

    def train_on_wrong_labels(self, folder, callback):
        module = lit.Lit()
        classes = module.eval()(zoo.images(8)).argmax(1)
        wrong = DataLoader(TensorDataset(zoo.images(8), (classes + 1) % 3), batch_size=8)
        module.configure_optimizers = lambda: torch.optim.SGD(module.parameters(), lr=0.0)
        lit.fit(callback, module=module.train(), train=wrong, max_epochs=1)


class Transformers:
    """Two epochs of three steps of two micro-batches of three images, a checkpoint after every other step."""

    Callback, batch, steps = AGOPTrainerCallback, 3, 6
    resumed_at: ClassVar = {"mid-epoch": 2, "second epoch": 4, "end of training": 6}
    reached = "are num_train_epochs or max_steps reached"

    def __init__(self, model=hugging_face.vit):
        self.model = model

    def state(self, folder, *callbacks, **options):
        """Everything a training leaves behind."""
        trainer = hugging_face.trainer_of(self.model(), folder, callbacks, **options)
        trainer.train()
        keys = ("loss", "grad_norm", "eval_loss", "learning_rate")
        history = [{key: entry[key] for key in keys if key in entry} for entry in trainer.state.log_history]
        return trained_state(trainer.model) | {"optimizer": trainer.optimizer.state_dict(), "history": history}

    def train(self, folder, *callbacks, resume=None):
        """The weights after a training with a checkpoint of every other step, which may resume one.

        The model is loaded from it as well: transformers 5.20 saves a ViT's layers under their older names and doesn't
        load them on resume, with only a warning (huggingface/transformers issue 43701).
        """
        model = self.model() if resume is None else type(self.model()).from_pretrained(resume)
        trainer = hugging_face.trainer_of(model, folder, callbacks, save_strategy="steps", save_steps=2)
        trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
        assert trainer.state.global_step == self.steps
        return {name: value.clone() for name, value in trainer.model.state_dict().items()}

    def checkpoint(self, folder, step):
        return folder / f"checkpoint-{step}"

    def without_agop(self, checkpoint, folder):
        """A copy of a checkpoint that lacks the callback's state."""
        copied = shutil.copytree(checkpoint, folder / checkpoint.name)
        state = json.loads((copied / "trainer_state.json").read_text())
        del state["stateful_callbacks"]["AGOPTrainerCallback"]
        (copied / "trainer_state.json").write_text(json.dumps(state))
        return copied

    def train_on_wrong_labels(self, folder, callback):
        model, images = self.model(), hugging_face.Images(8)
        model.classifier.bias.data[0] = 99
        images.labels[:] = 1
        options = {"per_device_train_batch_size": 4, "max_steps": 1, "train_dataset": images}
        hugging_face.trainer_of(model, folder, [callback], **options).train()


def name_of(value):
    return type(value).__name__ if isinstance(value, Lightning | Transformers) else str(value)


TRAINERS = [Lightning(), Transformers()]
RESNET = Transformers(hugging_face.resnet)
either = pytest.mark.parametrize("trainer", TRAINERS, ids=name_of)
EVALUATED = {"eval_strategy": "steps", "eval_steps": 1, "eval_on_start": True}


@pytest.mark.parametrize(
    ("trainer", "options"),
    [
        *((TRAINERS[0], options) for options in (
            {}, {"accumulate_grad_batches": 2}, {"precision": "bf16-mixed"}, {"precision": "bf16-true"},
            {"gradient_clip_val": 0.1, "val_check_interval": 2},
        )),
        *((TRAINERS[1], options) for options in (EVALUATED, {"bf16": True})),
        (RESNET, EVALUATED),
    ],
    ids=name_of,
)  # fmt: skip
def test_training_is_bitwise_equal_with_and_without_the_callback(trainer, options, tmp_path):
    without = trainer.state(tmp_path / "without", **options)
    callback = trainer.Callback(out=tmp_path / "agop.safetensors", only_correct=False)
    assert_same(without, trainer.state(tmp_path / "with", callback, **options))
    assert_equal_agops(agop.AGOP.load(tmp_path / "agop.safetensors"), callback.prior)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """Finished trainings with their checkpoints, each made once: folder, weights and prior."""
    made = {}

    def finished(trainer, **options):
        key = (trainer, *options.items())
        if key not in made:
            folder = tmp_path_factory.mktemp("finished")
            callback = trainer.Callback(out=folder / "agop.safetensors", **options)
            made[key] = SimpleNamespace(weights=trainer.train(folder, callback), prior=callback.prior, folder=folder)
        return made[key]

    return finished


# One of the outputs as a number of its own: without classes, all samples count.
NUMBER = {"output": agop.outputs.value(1)}


@pytest.mark.parametrize(
    ("trainer", "options", "moment"),
    [
        (trainer, options, moment)
        for trainer, options in ((TRAINERS[0], {}), (TRAINERS[0], {"every": 2, "per_class": True}), (TRAINERS[1], {}),
                                 (TRAINERS[1], {"per_class": True}), (RESNET, {}), (TRAINERS[0], NUMBER),
                                 (TRAINERS[1], NUMBER))
        for moment in trainer.resumed_at
    ],
    ids=name_of,
)  # fmt: skip
def test_resume_gives_a_bitwise_equal_agop(trainer, options, moment, trainings, tmp_path):
    finished = trainings(trainer, **options)
    checkpoint = trainer.checkpoint(finished.folder, trainer.resumed_at[moment])
    callback = trainer.Callback(out=tmp_path / "agop.safetensors", **options)
    assert_same(finished.weights, trainer.train(tmp_path, callback, resume=checkpoint))
    assert_equal_agops(callback.prior, finished.prior)
    assert callback.prior.provenance == finished.prior.provenance
    assert callback.prior.provenance.output == ("value(index=1)" if options is NUMBER else "logit")
    assert_equal_agops(agop.AGOP.load(tmp_path / "agop.safetensors"), finished.prior)


@either
def test_resuming_without_agop_starts_from_zero_and_warns(trainer, trainings, tmp_path):
    middle = list(trainer.resumed_at.values())[-2]
    checkpoint = trainer.without_agop(trainer.checkpoint(trainings(trainer).folder, middle), tmp_path)
    callback = trainer.Callback(out=tmp_path / "agop.safetensors", only_correct=False)
    with pytest.warns(AGOPWarning, match="has no AGOP.*: collecting starts"):
        trainer.train(tmp_path, callback, resume=checkpoint)
    # Lightning's last three batches; two micro-batches of three and the last one of two.
    assert callback.prior.count == (24 if trainer.Callback is AGOPCallback else 8)


@either
def test_resuming_a_finished_training_without_agop_writes_no_file_and_warns(trainer, trainings, tmp_path):
    checkpoint = trainer.without_agop(trainer.checkpoint(trainings(trainer).folder, trainer.steps), tmp_path)
    callback = trainer.Callback(out=tmp_path / "agop.safetensors")
    with pytest.warns(AGOPWarning) as caught:
        trainer.train(tmp_path, callback, resume=checkpoint)
    reason = f"no AGOP file was written: no sample was counted: no batch was trained, {trainer.reached}?"
    assert reason in [str(warning.message) for warning in caught]
    with pytest.raises(NoSamplesError, match="no batch was trained"):
        _ = callback.prior
    assert not (tmp_path / "agop.safetensors").exists()


@either
def test_resuming_with_other_options_raises(trainer, trainings, tmp_path):
    checkpoint = trainer.checkpoint(trainings(trainer).folder, list(trainer.resumed_at.values())[-2])
    with pytest.raises(InputError, match=r"only_correct.*create it with the same"):
        trainer.train(tmp_path, trainer.Callback(out=tmp_path / "agop", only_correct=False), resume=checkpoint)


@either
def test_a_new_training_starts_from_zero(trainer, trainings, tmp_path):
    callback = trainer.Callback(out=tmp_path / "agop.safetensors")
    with pytest.raises(NoSamplesError, match=r"no AGOP yet: call trainer\.(fit|train) with this callback"):
        _ = callback.prior
    for folder in ("first", "second"):
        trainer.train(tmp_path / folder, callback)
        assert_equal_agops(callback.prior, trainings(trainer).prior)


@either
def test_training_without_a_correct_sample_warns_with_the_reason(trainer, tmp_path):
    callback = trainer.Callback(out=tmp_path / "agop.safetensors")
    with pytest.warns(AGOPWarning, match="no AGOP file was written: no sample was counted: none of 8"):
        trainer.train_on_wrong_labels(tmp_path, callback)
    with pytest.raises(NoSamplesError, match="none of 8"):
        _ = callback.prior
    assert not (tmp_path / "agop.safetensors").exists()


@either
def test_unwritable_file_warns_and_keeps_the_prior(trainer, trainings, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    callback = trainer.Callback(out=tmp_path / "file" / "agop.safetensors")
    with pytest.warns(AGOPWarning, match=r"save callback\.prior elsewhere"):
        trainer.train(tmp_path / "run", callback)
    assert_equal_agops(callback.prior, trainings(trainer).prior)


@either
@pytest.mark.parametrize("options", [{"every": 0}, {"nan": "no"}, {"rank": -1}, {"out": "."}, {"evry": 2}], ids=str)
def test_invalid_option_raises_in_the_constructor(trainer, options):
    with pytest.raises(InputError, match=next(iter(options))):
        trainer.Callback(**options)


@either
def test_snapshots_are_written(trainer, tmp_path):
    callback = trainer.Callback(
        out=tmp_path / "agop", only_correct=False, snapshot_every=4, snapshot_dir=tmp_path / "snapshots"
    )
    trainer.train(tmp_path / "run", callback)
    names = sorted(path.name for path in (tmp_path / "snapshots").iterdir())
    assert names == ["step-00000004.safetensors", "step-00000008.safetensors"]
    assert agop.AGOP.load(tmp_path / "snapshots" / names[0]).count == 4 * trainer.batch
