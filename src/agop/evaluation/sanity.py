"""sanity(): do a method's maps depend on what the model has learned?"""

import copy
import itertools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import AGOPWarning, InputError, ModelError
from agop.evaluation.scoring import all_logits
from agop.explanation import explain, resolve_method
from agop.methods import Method
from agop.methods.base import takes_layer
from agop.model.layers import Layer, named_layer
from agop.model.outputs import Forward, Output, OutputLike, Target, logit, output_for, predicted
from agop.model.probe import check_images, probing
from agop.model.state import seeded, unwrapped
from agop.prior.agop import AGOP
from agop.processes import track
from agop.stats import Estimate, estimate, spearman
from agop.tables import Table, counted

# Maps of a network without any trained weight that correlate this much with those of the trained one.
THRESHOLD = 0.95


@dataclass(frozen=True, repr=False)
class Sanity:
    """Rank correlations (S,N) of maps with those of the trained model, after each step of randomising its weights.

    `layers` (S) are the names of the layers that each step adds. The last step has randomised all of them.
    """

    method: str
    layers: tuple[tuple[str, ...], ...]
    correlations: Tensor
    unchanged: bool
    with_prior: bool = False

    @property
    def model_independent(self) -> bool:
        """True if the maps don't change when all weights are random, or have a mean correlation of at least 0.95.

        The correlation counts if it's defined for at least half of the images.
        """
        last, images = self._estimates()[-1], self.correlations.shape[1]
        enough = last is not None and 2 * len(last.values) >= images and last.mean >= THRESHOLD
        return self.unchanged or enough

    def _estimates(self) -> list[Estimate | None]:
        """Mean correlation of each step with its interval; None if it's undefined for every image."""
        return [estimate(row, (-1.0, 1.0)) for row in self.correlations]

    def __repr__(self) -> str:
        """A table of the steps, and a verdict."""
        lowest = [layers[-1] or "the model's own parameters" for layers in self.layers]
        names = [*(f"down to {name}" for name in lowest[:-1]), f"all layers, down to {lowest[-1]}"]
        images = counted(self.correlations.shape[1], "image")
        rows = [("nothing", "1.000")]
        for name, step, correlations in zip(names, self._estimates(), self.correlations, strict=True):
            few = f" ({int((~correlations.isnan()).sum())} of {images})" if correlations.isnan().any() else ""
            rows.append((name, str(step or "–") + few))
        lines = [
            f"rank correlation of {self.method} maps with those of the trained model: means over {images} with 95 % "
            "intervals",
            *Table(("randomised", "correlation"), rows).text(),
        ]
        if self.correlations.isnan().any():
            lines.append("an image isn't counted if one of its maps is constant")
        given = " given the prior, which is that of the trained model in every step" if self.with_prior else ""
        how = "don't change at all" if self.unchanged else f"hardly change (correlation of at least {THRESHOLD})"
        independent = f"model-independent{given}: the maps {how} when all weights are random"
        lines.append(independent if self.model_independent else "the maps depend on the model's weights")
        return "\n".join(lines)


def sanity(
    model: nn.Module,
    images: Tensor,
    method: str | Method = "agop",
    prior: AGOP | None = None,
    target: Target = None,
    layer: Layer = None,
    batch_size: int | None = None,
    *,
    references: Tensor | None = None,
    steps: int | None = 8,
    seed: int = 0,
    output: OutputLike = logit,
    forward: Forward | None = None,
) -> Sanity:
    """Rank correlations (S,N) of a method's maps with those of the same model with random weights, from the top down.

    A copy of the model loses the weights of its last layer, then of the layer before it as well, and so on, until all
    weights are random. The class explained is always that of the trained model. The prior is kept.
    Adebayo et al., "Sanity Checks for Saliency Maps", 2018.

    Args:
        model: A torch.nn.Module.
        images: Images (N,C,H,W).
        method: A name or an agop.methods object.
        prior: The AGOP of the model, for methods that need one.
        target: As in `explain`.
        layer: As in `explain`.
        batch_size: As in `explain`.
        references: As in `explain`.
        output: As in `explain`.
        forward: As in `explain`.
        steps: The most steps, of several layers in a deep model; None: one per layer.
        seed: Seed of the random weights.

    Returns:
        A `Sanity`, which prints as a table with a verdict.

    Raises:
        InputError: For wrong arguments, and for a model without parameters.
        ModelError: If the model can't be copied.

    Example:
        print(agop.sanity(model, images, "gradcam"))
    """
    check_images(images, volumes=True)
    if steps is not None and steps < 1:
        raise InputError(f"steps is {steps}: give a positive number, or None for one step per layer")
    model, output = unwrapped(model), output_for(output, forward)
    configured: Any = resolve_method(method, layer)
    if takes_layer(configured) and isinstance(configured.layer, nn.Module):
        # By name: the copy of the model has another module.
        configured = replace(configured, layer=named_layer(model, configured.layer)[0])
    if target is None and output.has_classes:
        target = predicted(all_logits(model, images, batch_size, output))

    def maps_of(network: nn.Module) -> Tensor:
        return explain(
            network, images, configured, prior, target, batch_size=batch_size, references=references, nan="skip",
            output=output,
        )  # fmt: skip

    trained = maps_of(model)
    groups = _groups(layers_from_the_top(model, images[:1], output), steps)
    correlations, maps = [], trained
    for network in track(randomised(model, groups, seed), "randomising", total=len(groups)):
        with warnings.catch_warnings():
            # The prior comes from other weights on purpose; other warnings were issued for the trained model.
            warnings.simplefilter("ignore", AGOPWarning)
            maps = maps_of(network)
        correlations.append(rank_correlation(trained, maps))
    name = method if isinstance(method, str) else configured.name
    return Sanity(name, tuple(groups), torch.stack(correlations), torch.equal(trained, maps), configured.needs_prior)


def rank_correlation(maps: Tensor, others: Tensor) -> Tensor:
    """Spearman's correlation (N,) of each map with the other one of the image, both (N,H,W); NaN if one is constant."""
    pairs = zip(*(batch.flatten(1).cpu().numpy() for batch in (maps, others)), strict=True)
    return torch.tensor([spearman(*pair) for pair in pairs], dtype=torch.float64)


def layers_from_the_top(model: nn.Module, image: Tensor, output: Output = logit) -> list[str]:
    """Names of the modules with parameters of their own, the one that is called last for an image (1,C,H,W) first.

    A module that isn't called, such as a part of an attention, is beside the module that contains it.
    """
    calls: dict[nn.Module, int] = {}

    def note(module: nn.Module, _: Any) -> None:
        calls.setdefault(module, len(calls))

    with probing(model, output) as probe, torch.no_grad(), ExitStack() as handles:
        modules: dict[str, nn.Module] = dict(probe.model.named_modules())
        for module in modules.values():
            if not isinstance(module, torch.jit.ScriptModule):  # takes no hooks
                handles.callback(module.register_forward_pre_hook(note).remove)
        probe.forward(probe.placed(image))

    def place(name: str) -> int:
        while name and modules[name] not in calls:
            name = name.rpartition(".")[0]
        return calls.get(modules[name], 0)

    names = [name for name, module in modules.items() if any(True for _ in module.parameters(recurse=False))]
    if not names:
        raise InputError("the model has no parameters, so there is nothing to randomise")
    return sorted(names, key=place)[::-1]


def _randomise(module: nn.Module, seed: int) -> None:
    """Initialise a module's own parameters again. Values that reset_parameters() doesn't change are permuted."""
    own = list(module.parameters(recurse=False))
    before = [parameter.detach().clone() for parameter in own]
    with seeded(seed, own), torch.no_grad():
        reset = getattr(module, "reset_parameters", None)
        if callable(reset):
            reset()
        for parameter in (new for new, old in zip(own, before, strict=True) if torch.equal(new, old)):
            order = torch.randperm(parameter.numel(), device="cpu").to(parameter.device)
            parameter.copy_(parameter.flatten()[order].reshape(parameter.shape))


def randomised(model: nn.Module, groups: Sequence[Sequence[str]], seed: int) -> Iterator[nn.Module]:
    """One copy of the model, with the layers of one more group randomised each time."""
    try:
        network = copy.deepcopy(unwrapped(model))
    except Exception as error:  # the model's own code
        raise ModelError(f"the model can't be copied, so its weights can't be randomised: {error}") from error
    seeds = itertools.count(seed)  # one per layer, so that the weights don't depend on the number of steps
    for group in groups:
        for name in group:
            _randomise(network.get_submodule(name), next(seeds))
        yield network


def _groups(names: Sequence[str], steps: int | None) -> list[tuple[str, ...]]:
    """The layers of each step: the first one alone, then as even as possible."""
    count = len(names) if steps is None else min(steps, len(names))
    ends = [1 + (len(names) - 1) * number // max(1, count - 1) for number in range(count)]
    ends[-1] = len(names)
    return [tuple(names[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
