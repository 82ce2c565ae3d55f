"""The callback of transformers.Trainer under torchrun."""

import textwrap

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")

import agop
from tests.interop.torchrun import finish, start

pytestmark = pytest.mark.slow

TRAINING = """
    import sys
    from pathlib import Path
    import torch
    from transformers import TrainerCallback
    from agop.interop.transformers import AGOPTrainerCallback
    from tests.interop.hugging_face import resnet, trainer_of

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
"""


def torchrun(folder, count, *parts):
    """Standard error of a torchrun job of `count` processes that runs these trainings one after the other."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(TRAINING))
    result = finish(start(count, script, folder, *parts, folder=folder))
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
