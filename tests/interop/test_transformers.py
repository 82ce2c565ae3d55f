"""The Trainer's callback, against the real Trainer: tiny classifiers made in memory, on random pictures."""

import json
import shutil
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import agop
from agop.errors import AGOPWarning, InputError, ModelError, NoSamplesError
from tests.state import assert_same, state_of

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")
from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: E402

from agop.interop.transformers import AGOPTrainerCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")
SAMPLES = 14


class Pictures(torch.utils.data.Dataset):
    """Pictures whose class is the brighter half, with a column that no model takes."""

    def __init__(self, count=SAMPLES, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.arange(count) % 2
        self.images = torch.randn(count, 3, 16, 16, generator=generator)
        for image, label in zip(self.images, self.labels, strict=True):
            image[:, :, 8 * label : 8 * label + 8] += 1

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"pixel_values": self.images[index], "labels": int(self.labels[index]), "path": f"{index}.png"}


def vit(**more):
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=16, patch_size=4,
        num_labels=2, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.1, **more,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def resnet():
    torch.manual_seed(0)
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 12], depths=[1, 1], layer_type="basic", num_labels=2
    )
    return transformers.ResNetForImageClassification(config)


MODELS = {"vit": vit, "resnet": resnet}


def trainer_of(model, folder, callbacks=(), trainer=Trainer, **more):
    options = {
        "num_train_epochs": 2, "per_device_train_batch_size": 3, "gradient_accumulation_steps": 2,
        "learning_rate": 3e-3, "logging_steps": 1, "save_strategy": "no", "report_to": [], "use_cpu": True,
        "disable_tqdm": True, "dataloader_pin_memory": False, "seed": 3,
    }  # fmt: skip
    args = TrainingArguments(output_dir=str(folder), **(options | more))
    return trainer(
        model, args, train_dataset=Pictures(), eval_dataset=Pictures(5, seed=1), callbacks=list(callbacks),
    )  # fmt: skip


def trained(model, folder, callbacks=(), **more):
    trainer = trainer_of(model, folder, callbacks, **more)
    trainer.train()
    return trainer


def everything(trainer):
    """What a training leaves behind: the model, the process's random state, the optimizer and the losses."""
    keys = ("loss", "grad_norm", "eval_loss", "learning_rate")
    history = [{key: entry[key] for key in keys if key in entry} for entry in trainer.state.log_history]
    found = state_of(trainer.model)
    # Two models: neither the ids of their buffers nor how often each was written to are compared.
    found["buffers"] = [(name, value) for name, _, value in found["buffers"]]
    found["parameters"] = [(value, trainable) for value, trainable, _ in found["parameters"]]
    return found | {"optimizer": trainer.optimizer.state_dict(), "history": history}


@pytest.mark.parametrize("name", MODELS)
def test_training_with_the_callback_is_the_training_without_it(name, tmp_path):
    evaluated = {"eval_strategy": "steps", "eval_steps": 1, "eval_on_start": True}
    plain = everything(trained(MODELS[name](), tmp_path / "plain", **evaluated))
    callback = AGOPTrainerCallback()
    watched = everything(trained(MODELS[name](), tmp_path / "watched", [callback], **evaluated))
    assert_same(plain, watched)
    assert callback.prior.count > 0


class Recording(Trainer):
    """Remembers each micro-batch and the weights it met."""

    seen: list

    def training_step(self, model, inputs, *more):
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        loss = super().training_step(model, inputs, *more)
        # A batch norm's averages move in the training pass; the callback comes after it.
        moved = {name: value.clone() for name, value in model.named_buffers()}
        self.__dict__.setdefault("seen", []).append((weights | moved, inputs["pixel_values"], inputs["labels"]))
        return loss


@pytest.mark.parametrize("only_correct", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_each_micro_batch_counts_once_with_its_own_weights(name, only_correct, tmp_path):
    """14 pictures in batches of 3, two a step: the last batch and the last step of an epoch are cut short."""
    callback = AGOPTrainerCallback(only_correct=only_correct)
    model = MODELS[name]()
    trainer = trained(model, tmp_path, [callback], trainer=Recording, eval_strategy="epoch", eval_on_start=True)
    total, count, slow = torch.zeros(3, 16, 16, dtype=torch.float64), 0, MODELS[name]().eval()
    assert [len(labels) for *_, labels in trainer.seen] == [3, 3, 3, 3, 2] * 2
    for weights, images, labels in trainer.seen:
        slow.load_state_dict(weights)
        for image, label in zip(images, labels, strict=True):
            one = image[None].clone().requires_grad_()
            logits = slow(one).logits[0]
            if only_correct and logits.argmax() != label:
                continue
            (gradient,) = torch.autograd.grad(logits.max(), one)
            total, count = total + gradient[0].double() ** 2, count + 1
    assert 0 < count == callback.prior.count
    assert only_correct or count == 2 * SAMPLES
    torch.testing.assert_close(callback.prior.diagonal.double(), total / count, rtol=1e-4, atol=0)


def test_the_file_the_log_and_the_options(tmp_path):
    callback = AGOPTrainerCallback(
        only_correct=False, every=2, per_class=True, snapshot_dir=tmp_path / "snapshots", snapshot_every=4
    )
    trainer = trained(vit(), tmp_path / "run", [callback], eval_strategy="epoch")
    written = agop.AGOP.load(tmp_path / "run" / "agop.safetensors")
    assert torch.equal(written.diagonal, callback.prior.diagonal)
    assert written.class_diagonals.shape == (2, 3, 16, 16)
    # Of ten micro-batches of 3, 3, 3, 3, 2, 3, 3, 3, 3, 2 every other one.
    assert written.count == 3 + 3 + 2 + 3 + 3
    told = [entry.get("agop_count") for entry in trainer.state.log_history]
    assert [count for count in told if count is not None] == [3, 6, 8, 11, 14, 14, 14]
    assert all(("agop_count" in entry) == ("eval_loss" not in entry) for entry in trainer.state.log_history)
    assert sorted(path.name for path in (tmp_path / "snapshots").iterdir()) == [
        "step-00000004.safetensors", "step-00000008.safetensors",
    ]  # fmt: skip
    written.check(trainer.model, Pictures().images)


def test_a_named_file_and_a_second_training_begins_anew(tmp_path):
    callback = AGOPTrainerCallback(tmp_path / "mine.safetensors", only_correct=False)
    trainer = trained(vit(), tmp_path / "run", [callback], num_train_epochs=1)
    trainer.train()
    assert agop.AGOP.load(tmp_path / "mine.safetensors").count == SAMPLES
    assert not (tmp_path / "run" / "agop.safetensors").exists()


def gone_on(name, folder, place, callbacks):
    """A training that goes on from a checkpoint.

    The model is read from there, too: the Trainer of transformers 5.20 saves a ViT's layers under their older names,
    and finds none of them when it goes on; all it says is a warning (huggingface/transformers issue 43701).
    """
    model = type(MODELS[name]()).from_pretrained(place)
    trainer = trainer_of(model, folder, callbacks)
    trainer.train(resume_from_checkpoint=str(place))
    assert trainer.state.global_step == 6
    return trainer


@pytest.mark.parametrize(("name", "per_class"), [("vit", False), ("vit", True), ("resnet", False)])
def test_a_resumed_training_gives_the_same_statistic_to_the_bit(name, per_class, tmp_path):
    whole = AGOPTrainerCallback(per_class=per_class)
    weights = trained(
        MODELS[name](), tmp_path / "whole", [whole], save_strategy="steps", save_steps=2
    ).model.state_dict()
    # Step 2 is in the middle of an epoch of three; the folder may have moved.
    for step in (2, 4):
        moved = tmp_path / "elsewhere" / f"checkpoint-{step}"
        shutil.copytree(tmp_path / "whole" / f"checkpoint-{step}", moved)
        resumed = AGOPTrainerCallback(per_class=per_class)
        trainer = gone_on(name, tmp_path / "resumed", moved, [resumed])
        assert_same(weights, trainer.model.state_dict())
        assert torch.equal(resumed.prior.diagonal, whole.prior.diagonal)
        assert resumed.prior.provenance == whole.prior.provenance
        if per_class:
            assert torch.equal(resumed.prior.class_diagonals.nan_to_num(7), whole.prior.class_diagonals.nan_to_num(7))


@pytest.mark.filterwarnings("ignore:You are adding")
def test_two_callbacks_each_find_their_own_in_a_checkpoint(tmp_path):
    def pair():
        return [AGOPTrainerCallback(tmp_path / "a", only_correct=False), AGOPTrainerCallback(tmp_path / "b", every=2)]

    whole, resumed = pair(), pair()
    trained(vit(), tmp_path / "whole", whole, save_strategy="steps", save_steps=2)
    gone_on("vit", tmp_path / "resumed", tmp_path / "whole" / "checkpoint-4", resumed)
    for one, other in zip(whole, resumed, strict=True):
        assert torch.equal(one.prior.diagonal, other.prior.diagonal)


@pytest.mark.filterwarnings("ignore:You are adding")
def test_a_checkpoint_holds_each_callback_s_state_once(tmp_path):
    pair = [AGOPTrainerCallback(tmp_path / "a", only_correct=False), AGOPTrainerCallback(tmp_path / "b", every=2)]
    trained(vit(), tmp_path, pair, save_strategy="steps", save_steps=1)
    states = [json.loads((tmp_path / f"checkpoint-{step}" / "trainer_state.json").read_text()) for step in (1, 6)]
    assert [len(state["stateful_callbacks"]["AGOPTrainerCallback"]) for state in states] == [2, 2]


def test_the_trainer_s_own_way_to_restore_callbacks_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"restore_callback_states_from_checkpoint.*leave it out"):
        trained(vit(), tmp_path, [AGOPTrainerCallback()], restore_callback_states_from_checkpoint=True)


def test_a_batch_that_is_split_over_gpus_is_refused_unless_attached(tmp_path):
    """Here there is no GPU: the arguments say two, as they do on a machine that has them, once the Trainer is made."""
    trainer = trainer_of(vit(), tmp_path, [AGOPTrainerCallback()])
    trainer.args._n_gpu = 2
    with pytest.raises(InputError, match=r"2 GPUs each see a part of a batch.*attach\(trainer\)"):
        trainer.train()
    attached = AGOPTrainerCallback()
    other = trainer_of(vit(), tmp_path)
    attached.attach(other)
    other.args._n_gpu = 2
    attached.on_train_begin(other.args, other.state, other.control, model=other.model)  # raises nothing
    assert other.state.global_step == trainer.state.global_step == 0


@pytest.mark.parametrize("name", MODELS)
def test_mixed_precision_does_not_reach_the_gradients(name, tmp_path):
    """At a learning rate of 0 nothing but the callback's own pass can differ; a batch norm's averages may not move."""
    options = {"learning_rate": 0.0, "num_train_epochs": 1, "save_strategy": "no"}
    full, mixed = AGOPTrainerCallback(only_correct=False), AGOPTrainerCallback(only_correct=False)
    models = [still(MODELS[name]()) for _ in range(2)]
    trained(models[0], tmp_path, [full], **options)
    trainer = trained(models[1], tmp_path, [mixed], bf16=True, **options)
    close = {"rtol": 1e-5, "atol": 1e-5 * float(full.prior.diagonal.max())}
    torch.testing.assert_close(mixed.prior.diagonal, full.prior.diagonal, **close)
    trainer.train()  # wrapped once more
    torch.testing.assert_close(mixed.prior.diagonal, full.prior.diagonal, **close)


def still(model):
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.0
    return model


def test_mixed_precision_trains_as_without_the_callback_also_after_an_error(tmp_path):
    plain = everything(trained(vit(), tmp_path, bf16=True))
    assert_same(plain, everything(trained(vit(), tmp_path, [AGOPTrainerCallback()], bf16=True)))
    model = AlwaysAnew(reentrant=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(ModelError, match="use_reentrant=False"):
            trained(model, tmp_path, [AGOPTrainerCallback(only_correct=False)], bf16=True)
    assert model.forward.__func__ is not AlwaysAnew.forward  # accelerate's is in its place again


def test_a_checkpoint_of_other_options_and_one_without_the_callback(tmp_path):
    trained(vit(), tmp_path, [AGOPTrainerCallback()], save_strategy="steps", save_steps=4)
    place = tmp_path / "checkpoint-4"
    with pytest.raises(InputError, match=r"only_correct.*create it with the same"):
        trainer_of(vit(), tmp_path, [AGOPTrainerCallback(only_correct=False)]).train(resume_from_checkpoint=str(place))
    state = json.loads((place / "trainer_state.json").read_text())
    del state["stateful_callbacks"]["AGOPTrainerCallback"]
    (place / "trainer_state.json").write_text(json.dumps(state))
    late = AGOPTrainerCallback(only_correct=False)
    with pytest.warns(AGOPWarning, match="holds no AGOP: collected from step 4 on"):
        trainer_of(vit(), tmp_path, [late]).train(resume_from_checkpoint=str(place))
    assert late.prior.count == 3 + 3 + 2  # step 5 has two micro-batches of the epoch, step 6 its last


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
@pytest.mark.parametrize("reentrant", [False, True])
def test_gradient_checkpointing(reentrant, tmp_path):
    """transformers' layers are computed anew in training mode alone; the callback's pass is in eval mode."""
    plain, anew = AGOPTrainerCallback(), AGOPTrainerCallback()
    trained(vit(), tmp_path, [plain], max_steps=1)
    trainer = trained(vit(), tmp_path, [anew], max_steps=1, gradient_checkpointing=True,
                      gradient_checkpointing_kwargs={"use_reentrant": reentrant})  # fmt: skip
    assert trainer.model.is_gradient_checkpointing
    assert torch.equal(plain.prior.diagonal, anew.prior.diagonal)


class AlwaysAnew(nn.Module):
    """A classifier of one's own that checkpoints in eval mode, too."""

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
def test_reentrant_checkpointing_where_it_makes_input_gradients_impossible(tmp_path):
    model = AlwaysAnew(reentrant=True)
    with pytest.raises(ModelError, match=r"reentrant checkpointing.*use_reentrant=False"):
        trained(model, tmp_path, [AGOPTrainerCallback(only_correct=False)])
    assert not model._forward_pre_hooks
    callback = AGOPTrainerCallback(only_correct=False)
    trained(AlwaysAnew(reentrant=False), tmp_path, [callback])
    assert callback.prior.count == 2 * SAMPLES
    with pytest.raises(ModelError, match="use_reentrant=False"):
        agop.explain(model, Pictures().images, "vanilla")


def test_labels_that_do_not_come_into_the_model(tmp_path):
    with pytest.raises(InputError, match=r"attach\(trainer\)"):
        trained(vit(), tmp_path, [AGOPTrainerCallback()], label_smoothing_factor=0.1)
    plain = everything(trained(vit(), tmp_path, label_smoothing_factor=0.1))
    trainer = trainer_of(vit(), tmp_path, label_smoothing_factor=0.1)
    attached = AGOPTrainerCallback().attach(trainer)
    trainer.train()
    watched = everything(trainer)
    for key in ("history", "optimizer", "torch"):
        assert_same({key: plain[key]}, {key: watched[key]})
    everyone = AGOPTrainerCallback(only_correct=False)
    trained(vit(), tmp_path, [everyone], label_smoothing_factor=0.1)
    assert 0 < attached.prior.count <= everyone.prior.count == 2 * SAMPLES


@pytest.mark.parametrize("name", MODELS)
def test_an_attached_callback_is_the_one_in_the_list(name, tmp_path):
    listed = AGOPTrainerCallback()
    trained(MODELS[name](), tmp_path, [listed])
    trainer = trainer_of(MODELS[name](), tmp_path)
    attached = AGOPTrainerCallback().attach(trainer).attach(trainer)
    trainer.train()
    assert torch.equal(listed.prior.diagonal, attached.prior.diagonal)
    assert listed.prior.count == attached.prior.count


class Stops(TrainerCallback):
    """Another callback, with a bug."""

    def on_step_end(self, *_, **__):
        raise ZeroDivisionError


class BrokenLoss(Trainer):
    def compute_loss(self, model, inputs, *more, **named):
        super().compute_loss(model, inputs, *more, **named)
        raise ZeroDivisionError


class BrokenBefore(Trainer):
    def compute_loss(self, *_, **__):
        raise ZeroDivisionError


class Broken(AlwaysAnew):
    def forward(self, pixel_values, labels=None):
        raise ZeroDivisionError


def test_no_hook_is_left_on_the_model_also_after_an_error(tmp_path):
    for model, callbacks, trainer in [
        (vit(), [], BrokenLoss), (Broken(False), [], Trainer), (vit(), [Stops()], Trainer),
    ]:  # fmt: skip
        with pytest.raises(ZeroDivisionError):
            trained(model, tmp_path, [AGOPTrainerCallback(), *callbacks], trainer=trainer)
        assert not model._forward_pre_hooks
    model = vit()
    with pytest.raises(ZeroDivisionError):
        trained(model, tmp_path, [AGOPTrainerCallback()], trainer=BrokenBefore)
    model.train()(pixel_values=Pictures().images)  # a hook that met no batch goes with the next one
    assert not model._forward_pre_hooks
    with pytest.raises(ZeroDivisionError):
        trained(model, tmp_path, [AGOPTrainerCallback()], trainer=BrokenBefore)
    model.eval()(pixel_values=Pictures().images)  # also if that is an evaluation
    assert not model._forward_pre_hooks
    trained(model, tmp_path, [AGOPTrainerCallback()])
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())


def test_a_training_is_not_lost_for_a_statistic_of_nothing(tmp_path):
    class Wrong(Pictures):
        def __getitem__(self, index):
            return {"pixel_values": self.images[index], "labels": 2}

    torch.manual_seed(0)
    model = transformers.ResNetForImageClassification(
        transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8], depths=[1], num_labels=3)
    )
    with torch.no_grad():
        model.classifier[1].bias.copy_(torch.tensor([9.0, 0.0, -9.0]))
    callback = AGOPTrainerCallback()
    trainer = trainer_of(model, tmp_path, [callback], max_steps=1)
    trainer.train_dataset = Wrong()
    with pytest.warns(AGOPWarning, match="no AGOP file was written: no sample was counted: none of 6"):
        trainer.train()
    with pytest.raises(NoSamplesError, match="none of 6"):
        _ = callback.prior
    assert trainer.state.global_step == 1


def test_a_file_that_cannot_be_written_ends_nothing(tmp_path):
    (tmp_path / "file").write_text("in the way")
    callback = AGOPTrainerCallback(tmp_path / "file" / "agop.safetensors", only_correct=False)
    with pytest.warns(AGOPWarning, match=r"in callback\.prior alone"):
        trained(vit(), tmp_path / "run", [callback])
    assert callback.prior.count == 2 * SAMPLES


def test_before_a_training_there_is_no_prior(tmp_path):
    callback = AGOPTrainerCallback()
    with pytest.raises(NoSamplesError, match=r"there is no AGOP yet: call trainer\.train with this callback"):
        _ = callback.prior
    with pytest.raises(ZeroDivisionError):
        trained(vit(), tmp_path, [callback], trainer=BrokenLoss)
    with pytest.raises(NoSamplesError, match="no AGOP yet"):
        _ = callback.prior


def test_a_training_that_is_done_gives_its_agop_when_it_is_resumed_or_says_why_not(tmp_path):
    whole = AGOPTrainerCallback()
    trained(vit(), tmp_path, [whole], save_strategy="steps", save_steps=2)
    resumed = AGOPTrainerCallback(tmp_path / "resumed.safetensors")
    gone_on("vit", tmp_path, tmp_path / "checkpoint-6", [resumed])
    assert torch.equal(resumed.prior.diagonal, whole.prior.diagonal)
    place = tmp_path / "checkpoint-6"
    state = json.loads((place / "trainer_state.json").read_text())
    del state["stateful_callbacks"]["AGOPTrainerCallback"]
    (place / "trainer_state.json").write_text(json.dumps(state))
    late = AGOPTrainerCallback(tmp_path / "late.safetensors")
    with pytest.warns(AGOPWarning) as told:
        gone_on("vit", tmp_path, place, [late])
    why = "no sample was counted: no batch was trained, are num_train_epochs or max_steps reached?"
    assert f"no AGOP file was written: {why}" in [str(found.message) for found in told]
    with pytest.raises(NoSamplesError, match="no batch was trained"):
        _ = late.prior
    assert not (tmp_path / "late.safetensors").exists()


def test_wrong_options_are_told_before_a_trainer_is_made():
    with pytest.raises(InputError, match="every is 0"):
        AGOPTrainerCallback(every=0)
    with pytest.raises(InputError, match="nan is 'no'"):
        AGOPTrainerCallback(nan="no")


def test_someone_without_transformers_gets_one_plain_line():
    code = """
import sys
sys.modules["transformers"] = None  # what Python takes for a module that is not there
import agop
try:
    import agop.interop.transformers
except agop.AGOPError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "agop.interop.transformers needs transformers: pip install 'agop[transformers]'\n"


class AsksAtTheEnd(TrainerCallback):
    def on_step_end(self, args, state, control, **more):
        control.should_save |= state.global_step == state.max_steps


def test_a_second_training_s_checkpoint_holds_nothing_of_the_first(tmp_path):
    callback = AGOPTrainerCallback(tmp_path / "agop", only_correct=False)
    trained(vit(), tmp_path / "first", [callback], save_strategy="steps", save_steps=2)
    first = callback.prior.diagonal
    trained(resnet(), tmp_path / "second", [callback, AsksAtTheEnd()])
    resumed = AGOPTrainerCallback(tmp_path / "agop", only_correct=False)
    gone_on("resnet", tmp_path / "resumed", tmp_path / "second" / "checkpoint-6", [resumed])
    assert not torch.equal(first, callback.prior.diagonal)
    assert torch.equal(resumed.prior.diagonal, callback.prior.diagonal)
