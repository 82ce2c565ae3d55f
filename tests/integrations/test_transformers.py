"""AGOPTrainerCallback in the real Trainer: tiny classifiers with random weights. See also tests/contracts."""

import json
import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import agop
from agop.errors import InputError, ModelError, NoSamplesError
from tests.integrations.agops import assert_equal_agops
from tests.state import assert_same, state_of

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
from transformers import Trainer, TrainerCallback  # noqa: E402

from agop.integrations.transformers import AGOPTrainerCallback  # noqa: E402
from tests.integrations.hugging_face import (  # noqa: E402
    SAMPLES,
    Images,
    cheap_garbage_collection,  # noqa: F401  # a fixture
    resnet,
    trainer_of,
    vit,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning"),
    pytest.mark.usefixtures("cheap_garbage_collection"),
]
MODELS = {"vit": vit, "resnet": resnet}


def train(model, folder, callbacks=(), **options):
    trainer = trainer_of(model, folder, callbacks, **options)
    trainer.train()
    return trainer


def has_hooks(model):
    return any(hooks for module in state_of(model)["hooks"] for hooks in module)


class Recording(Trainer):
    """Records each micro-batch and the weights it is trained with."""

    records: list

    def training_step(self, model, inputs, *more):
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        loss = super().training_step(model, inputs, *more)
        # The training pass updates batch norm averages, and the callback counts after it.
        buffers = {name: value.clone() for name, value in model.named_buffers()}
        self.__dict__.setdefault("records", []).append((weights | buffers, inputs["pixel_values"], inputs["labels"]))
        return loss


@pytest.mark.parametrize("name", MODELS)
def test_each_micro_batch_counts_once_with_its_own_weights(name, tmp_path):
    """14 images in batches of 3, two per step: the last batch and the last step of an epoch are smaller."""
    callbacks = {only: AGOPTrainerCallback(tmp_path / str(only), only_correct=only) for only in (True, False)}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="You are adding")  # two callbacks of one class
        trainer = train(
            MODELS[name](), tmp_path, callbacks.values(), trainer=Recording, eval_strategy="epoch", eval_on_start=True
        )
    assert [len(labels) for *_, labels in trainer.records] == [3, 3, 3, 3, 2] * 2
    sums, counts = {only: torch.zeros(3, 16, 16, dtype=torch.float64) for only in callbacks}, {True: 0, False: 0}
    slow = MODELS[name]().eval()
    for weights, images, labels in trainer.records:
        slow.load_state_dict(weights)
        for image, label in zip(images, labels, strict=True):
            leaf = image[None].clone().requires_grad_()
            logits = slow(leaf).logits[0]
            (gradient,) = torch.autograd.grad(logits.max(), leaf)
            for only in {False, bool(logits.argmax() == label)}:
                sums[only] += gradient[0].double() ** 2
                counts[only] += 1
    assert 0 < counts[True] <= counts[False] == 2 * SAMPLES
    for only, callback in callbacks.items():
        assert callback.prior.count == counts[only]
        torch.testing.assert_close(callback.prior.diagonal.double(), sums[only] / counts[only], rtol=1e-4, atol=0)


def test_file_and_log(tmp_path):
    callback = AGOPTrainerCallback(only_correct=False, every=2, per_class=True)
    trainer = train(vit(), tmp_path / "run", [callback], eval_strategy="epoch")
    written = agop.AGOP.load(tmp_path / "run" / "agop.safetensors")
    assert_equal_agops(written, callback.prior)
    assert written.class_diagonals.shape == (2, 3, 16, 16)
    assert written.count == 3 + 3 + 2 + 3 + 3  # every other of the micro-batches of 3, 3, 3, 3, 2, 3, 3, 3, 3, 2
    counts = [entry["agop_count"] for entry in trainer.state.log_history if "agop_count" in entry]
    assert counts == [3, 6, 8, 11, 14, 14, 14]
    assert all(("agop_count" in entry) == ("eval_loss" not in entry) for entry in trainer.state.log_history)
    written.check(trainer.model, Images().images)


def resume(model, folder, place, callbacks):
    """Resume a checkpoint. See tests/contracts/test_callbacks.py why its model is loaded as well."""
    trainer = trainer_of(type(model).from_pretrained(place), folder, callbacks)
    trainer.train(resume_from_checkpoint=str(place))
    assert trainer.state.global_step == 6


@pytest.mark.filterwarnings("ignore:You are adding")
def test_checkpoint_has_the_state_of_each_of_two_callbacks_once(tmp_path):
    def pair():
        return [AGOPTrainerCallback(tmp_path / "a", only_correct=False), AGOPTrainerCallback(tmp_path / "b", every=2)]

    first, resumed = pair(), pair()
    train(vit(), tmp_path, first, save_strategy="steps", save_steps=2)
    for step in (2, 6):
        state = json.loads((tmp_path / f"checkpoint-{step}" / "trainer_state.json").read_text())
        assert len(state["stateful_callbacks"]["AGOPTrainerCallback"]) == 2
    resume(vit(), tmp_path / "resumed", tmp_path / "checkpoint-4", resumed)
    for callback, other in zip(first, resumed, strict=True):
        assert_equal_agops(other.prior, callback.prior)


class SavesAtTheEnd(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        control.should_save |= state.global_step == state.max_steps


def test_second_training_and_its_checkpoint_have_only_its_own_samples(tmp_path):
    callback = AGOPTrainerCallback(tmp_path / "agop", only_correct=False)
    train(vit(), tmp_path / "first", [callback], save_strategy="steps", save_steps=2)
    first = callback.prior.diagonal
    train(resnet(), tmp_path / "second", [callback, SavesAtTheEnd()])
    assert agop.AGOP.load(tmp_path / "agop").count == 2 * SAMPLES
    assert not list(tmp_path.rglob("agop.safetensors"))  # `out` names the file
    resumed = AGOPTrainerCallback(tmp_path / "agop", only_correct=False)
    resume(resnet(), tmp_path / "resumed", tmp_path / "second" / "checkpoint-6", [resumed])
    assert not torch.equal(first, callback.prior.diagonal)
    assert_equal_agops(resumed.prior, callback.prior)


def test_restoring_callbacks_by_the_trainer_raises(tmp_path):
    with pytest.raises(InputError, match=r"restore_callback_states_from_checkpoint.*leave it False"):
        train(vit(), tmp_path, [AGOPTrainerCallback()], restore_callback_states_from_checkpoint=True)


def test_batch_split_over_gpus_raises_unless_attached(tmp_path):
    """Without a GPU: the arguments report two, as they do on a machine that has them."""
    trainer = trainer_of(vit(), tmp_path, [AGOPTrainerCallback()])
    trainer.args._n_gpu = 2  # n_gpu itself has no setter
    with pytest.raises(InputError, match=r"2 GPUs each get a part of a batch.*attach\(trainer\)"):
        trainer.train()
    other = trainer_of(vit(), tmp_path)
    attached = AGOPTrainerCallback().attach(other)
    other.args._n_gpu = 2
    attached.on_train_begin(other.args, other.state, other.control, model=other.model)
    assert other.state.global_step == trainer.state.global_step == 0


@pytest.mark.parametrize("name", MODELS)
def test_gradients_have_full_precision_in_mixed_precision_training(name, tmp_path):
    """With a learning rate and a batch norm momentum of 0, only the callback's pass could differ."""

    def constant_model():
        model = MODELS[name]()
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 0.0
        return model

    options = {"learning_rate": 0.0, "num_train_epochs": 1}
    full, mixed = AGOPTrainerCallback(only_correct=False), AGOPTrainerCallback(only_correct=False)
    train(constant_model(), tmp_path, [full], **options)
    trainer = train(constant_model(), tmp_path, [mixed], bf16=True, **options)
    close = {"rtol": 1e-5, "atol": 1e-5 * float(full.prior.diagonal.max())}
    torch.testing.assert_close(mixed.prior.diagonal, full.prior.diagonal, **close)
    trainer.train()  # starts from zero; accelerate wraps the model a second time
    assert mixed.prior.count == full.prior.count == SAMPLES
    torch.testing.assert_close(mixed.prior.diagonal, full.prior.diagonal, **close)


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same_agop(reentrant, tmp_path):
    """transformers checkpoints only in training mode; the callback's pass is in eval mode."""
    plain, checkpointed = AGOPTrainerCallback(), AGOPTrainerCallback()
    train(vit(), tmp_path, [plain], max_steps=1)
    trainer = train(vit(), tmp_path, [checkpointed], max_steps=1, gradient_checkpointing=True,
                    gradient_checkpointing_kwargs={"use_reentrant": reentrant})  # fmt: skip
    assert trainer.model.is_gradient_checkpointing
    assert_equal_agops(checkpointed.prior, plain.prior)


class AlwaysCheckpointed(nn.Module):
    """A custom classifier that also checkpoints in eval mode."""

    def __init__(self, reentrant):
        super().__init__()
        torch.manual_seed(0)
        self.reentrant, self.first, self.last = reentrant, nn.Conv2d(3, 4, 3), nn.Linear(4, 2)

    def forward(self, pixel_values, labels=None):
        features = checkpoint(self.first, pixel_values, use_reentrant=self.reentrant)
        logits = self.last(features.relu().mean((2, 3)))
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"logits": logits} if loss is None else {"loss": loss, "logits": logits}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize("bf16", [False, True])
def test_reentrant_checkpointing_in_eval_mode_raises_and_restores_the_model(bf16, tmp_path):
    model = AlwaysCheckpointed(reentrant=True)
    with pytest.raises(ModelError, match=r"reentrant checkpointing.*use_reentrant=False"):
        train(model, tmp_path, [AGOPTrainerCallback(only_correct=False)], bf16=bf16)
    assert not has_hooks(model)
    is_wrapped = model.forward.__func__ is not AlwaysCheckpointed.forward
    assert is_wrapped == bf16  # accelerate's autocast is back in place
    with pytest.raises(ModelError, match="use_reentrant=False"):
        agop.explain(model, Images().images, "vanilla")
    callback = AGOPTrainerCallback(only_correct=False)
    train(AlwaysCheckpointed(reentrant=False), tmp_path, [callback], bf16=bf16)
    assert callback.prior.count == 2 * SAMPLES


def test_labels_that_do_not_reach_the_model_need_attach(tmp_path):
    smoothing = {"label_smoothing_factor": 0.1}
    with pytest.raises(InputError, match=r"attach\(trainer\)"):
        train(vit(), tmp_path, [AGOPTrainerCallback()], **smoothing)
    without = train(vit(), tmp_path, **smoothing)
    trainer = trainer_of(vit(), tmp_path, **smoothing)
    attached = AGOPTrainerCallback().attach(trainer)
    trainer.train()
    assert_same(without.optimizer.state_dict(), trainer.optimizer.state_dict())
    assert_same(without.model.state_dict(), trainer.model.state_dict())
    every_sample = AGOPTrainerCallback(only_correct=False)
    train(vit(), tmp_path, [every_sample], **smoothing)
    assert 0 < attached.prior.count <= every_sample.prior.count == 2 * SAMPLES


@pytest.mark.parametrize("name", MODELS)
def test_attached_callback_gives_the_same_agop_as_a_listed_one(name, tmp_path):
    listed, trainer = AGOPTrainerCallback(), trainer_of(MODELS[name](), tmp_path)
    attached = AGOPTrainerCallback().attach(trainer).attach(trainer)
    trainer.train()
    train(MODELS[name](), tmp_path, [listed])
    assert_equal_agops(attached.prior, listed.prior)


class FailingCallback(TrainerCallback):
    def on_step_end(self, *_, **__):
        raise ZeroDivisionError


class FailsAfterForward(Trainer):
    def compute_loss(self, model, inputs, *more, **named):
        super().compute_loss(model, inputs, *more, **named)
        raise ZeroDivisionError


class FailsBeforeForward(Trainer):
    def compute_loss(self, *_, **__):
        raise ZeroDivisionError


class FailsInForward(AlwaysCheckpointed):
    def forward(self, pixel_values, labels=None):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("model", "callbacks", "trainer"),
    [
        (vit, [], FailsAfterForward),
        (lambda: FailsInForward(reentrant=False), [], Trainer),
        (vit, [FailingCallback()], Trainer),
    ],
    ids=["loss", "forward", "callback"],
)
def test_error_in_training_leaves_no_hook_on_the_model_and_no_prior(model, callbacks, trainer, tmp_path):
    model, callback = model(), AGOPTrainerCallback()
    with pytest.raises(ZeroDivisionError):
        train(model, tmp_path, [callback, *callbacks], trainer=trainer)
    assert not has_hooks(model)
    with pytest.raises(NoSamplesError, match="no AGOP yet"):
        _ = callback.prior


@pytest.mark.parametrize("mode", [True, False], ids=["training", "evaluation"])
def test_hook_of_a_failed_step_is_removed_by_the_next_forward_pass(mode, tmp_path):
    model = vit()
    with pytest.raises(ZeroDivisionError):
        train(model, tmp_path, [AGOPTrainerCallback()], trainer=FailsBeforeForward)
    model.train(mode)(pixel_values=Images().images)
    assert not has_hooks(model)
    train(model, tmp_path, [AGOPTrainerCallback()], max_steps=1)
    assert not has_hooks(model)
