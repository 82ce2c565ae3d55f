"""The Trainer's callback in a job of several processes, which torchrun starts."""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="transformers.Trainer needs accelerate")

import agop

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

    class Asks(TrainerCallback):
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
        strategy, callbacks = ("no", [*callbacks, Asks()]) if strategy == "asked" else (strategy, callbacks)
        train(name, strategy, callbacks, out / place if place else None)
"""


def torchrun(folder, count, *parts):
    """Trainings one after the other in a job of `count` processes; what they said."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(TRAINING))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    given = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command, str(script), str(folder), *parts],
        env=os.environ | given, text=True, capture_output=True, check=False, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Two processes, seven pictures each, two epochs of four steps; then the same from a checkpoint on."""
    folder = tmp_path_factory.mktemp("job")
    places = {"steps": "checkpoint-2", "epoch": "checkpoint-4", "best": "checkpoint-2", "asked": "checkpoint-2"}
    parts = [
        part for strategy, place in places.items()
        for part in (f"{strategy},{strategy},", f"{strategy}-resumed,{strategy},{strategy}/{place}")
    ]  # fmt: skip
    return folder, torchrun(folder, 2, *parts)


@pytest.mark.parametrize("strategy", ["steps", "epoch", "best"])
def test_a_job_of_two_goes_on_with_what_both_had(strategy, job):
    folder, _ = job
    whole, resumed = (agop.AGOP.load(folder / f"{strategy}{end}.safetensors") for end in ("", "-resumed"))
    weights = [torch.load(folder / f"{strategy}{end}-rank1.pt") for end in ("", "-resumed")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert whole.count == 28
    assert resumed.count == whole.count
    assert torch.equal(resumed.diagonal, whole.diagonal)


def test_a_checkpoint_out_of_turn_has_one_process_s_part_and_says_so(job):
    folder, told = job
    assert agop.AGOP.load(folder / "asked.safetensors").count == 28
    assert agop.AGOP.load(folder / "asked-resumed.safetensors").count == 28 - 4
    assert told.count("has the AGOP of only one of 2 processes") == 2


def test_one_process_goes_on_with_what_two_had(job):
    """Two had counted fourteen pictures in four steps; the ten steps that are left to one take two each."""
    folder, _ = job
    torchrun(folder, 1, "alone,epoch,epoch/checkpoint-4")
    assert agop.AGOP.load(folder / "alone.safetensors").count == 14 + 20
