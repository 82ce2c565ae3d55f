"""The scoring loop: methods × metrics on images with masks, for users and benches. Finished methods can be kept."""

import hashlib
import inspect
import io
import sys
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from agop.errors import AGOPWarning
from agop.explanation import explain
from agop.io import write_atomically
from agop.methods import Method
from agop.metrics.base import Metric, reasons
from agop.model.layers import Layer, named_layer
from agop.model.outputs import Output, Target, logit, predicted
from agop.model.probe import probing, rows_for, split_batch
from agop.model.state import fingerprint, unwrapped
from agop.prior.agop import AGOP
from agop.processes import track
from agop.report.folder import versions
from agop.stats import finite


@dataclass(frozen=True)
class Entry:
    """A configured method with the prior and the layer that it uses.

    Its reference images are those of the scoring, unless they come from its prior, as for a user who passes none.
    """

    method: Method
    prior: AGOP | None = None
    layer: Layer = None
    references_from_prior: bool = False


@dataclass(frozen=True)
class MethodScores:
    """Scores (N,) of one method by kind of mask and metric, and the reason why each sample's score is undefined.

    `milliseconds` is per sample; `maps` (S,H,W) is for the samples that a report shows.
    """

    method: str
    scores: dict[str, dict[str, Tensor]]
    undefined: dict[str, list[str | None]]
    milliseconds: float
    maps: Tensor


def score(
    model: nn.Module,
    images: Tensor,
    masks: Mapping[str, Tensor],
    entries: Iterable[tuple[str, Entry]],
    metrics: Sequence[Metric],
    shown: Sequence[int],
    *,
    target: Target = None,
    batch_size: int | None = None,
    signed: bool = False,
    steps: int | None = None,
    scorer: nn.Module | None = None,
    references: Tensor | None = None,
    output: Output = logit,
    nan: str = "skip",
    keep: Path | None = None,
    progress: bool = False,
) -> Iterator[MethodScores]:
    """Score each entry on images (N,C,H,W) with one or more kinds of masks (N,H,W); keep the maps at `shown`.

    Metrics query `scorer`, by default the model itself. `references` (M,C,H,W) are other images, for methods and
    metrics that take some. `output` is what the maps' gradients are of. Times are measured after a warm-up on the first
    image. The folder `keep` has the scores of earlier calls, which come first, and gets those of this one.
    """
    targets, waiting, paths = output.targets(target, len(images)), dict(entries), dict[str, Path]()
    if keep is not None:
        # The outputs change with the model's code, not with the batches.
        outputs = all_logits(model, images[list(shown)], 1, output.rows(torch.tensor(shown)))
        data = [fingerprint(model), outputs, images, targets, references, *masks, *masks.values(), [*shown]]
        sources = [_source(item) for item in (*(m.function for m in metrics), output.function, output.forward)]
        explained = (output.name, *output.each.values())
        shared = _digest(*data, *sources, signed, steps, explained, nan, versions())
        for name, entry in waiting.items():
            layer = entry.layer and named_layer(unwrapped(model), entry.layer)[0]
            own = [_source(type(entry.method)), *vars(entry.method).items(), entry.references_from_prior, layer]
            paths[name] = keep / _digest(shared, name, *own, entry.prior, [metric.name for metric in metrics])
    for name in [name for name, path in paths.items() if path.exists()]:
        del waiting[name]
        yield MethodScores(**torch.load(paths[name], weights_only=True))
    for name, entry in track(waiting.items(), lambda item: f"evaluating {item[0]}", show=progress):
        options: dict[str, Any] = {"layer": entry.layer, "batch_size": batch_size, "nan": nan, "output": output}
        options["references"] = None if entry.references_from_prior else references
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AGOPWarning)  # the timed call warns about all images
            first = targets[:1] if targets is not None and output.has_classes else None
            few = options | {"output": output.rows(slice(1))}
            explain(model, images[:1], entry.method, entry.prior, first, **few)
        start = time.perf_counter()
        maps = explain(model, images, entry.method, entry.prior, target, **options)
        milliseconds = (time.perf_counter() - start) * 1e3 / len(images)
        undefined = {kind: reasons(maps, truth) for kind, truth in masks.items()}
        scores: dict[str, dict[str, Tensor]] = {kind: {} for kind in masks}
        for metric in metrics:
            if metric.needs_model:  # it doesn't use the masks: once, beside the first kind
                extra = {"references": references, "output": output}
                more = {name: value for name, value in extra.items() if metric.takes(name)}
                values = metric(
                    scorer or model, images, maps, target=target, steps=steps, batch_size=batch_size, **more
                )
                scores[next(iter(masks))][metric.name] = values.cpu()
            else:
                for kind, truth in masks.items():
                    scores[kind][metric.name] = metric(maps, truth, **{"signed": True} if signed else {}).cpu()
        result = MethodScores(name, scores, undefined, milliseconds, maps[list(shown)].cpu())
        if keep is not None:
            torch.save(vars(result), content := io.BytesIO())
            write_atomically(paths[name], content.getvalue())
        yield result


def _digest(*values: Any) -> str:
    """Digest of tensors, of a prior's tensors, and of values that print alike in every process."""
    digest, waiting = hashlib.sha256(), [*values]
    while waiting:
        value = waiting.pop()
        if isinstance(value, AGOP):
            value = tuple(getattr(value, field.name) for field in fields(value) if field.init)
        if isinstance(value, tuple) and not isinstance(value, torch.Size):
            waiting += value
            continue
        if isinstance(value, Tensor):
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
            value = f"{value.dtype} {value.shape}"
        digest.update(f"{value!r};".encode())
    return digest.hexdigest()


def _source(item: Any) -> str:
    """The module that defines a user's class or function. That of agop is known by its version."""
    if item is None or item.__module__.startswith("agop."):
        return ""
    try:
        return inspect.getsource(sys.modules[item.__module__])
    except (OSError, TypeError):  # typed at a prompt: always computed again
        return uuid.uuid4().hex


def all_logits(model: nn.Module, images: Tensor, batch_size: int | None = None, output: Output = logit) -> Tensor:
    """Logits (N,K), or the output (N,1), of images (N,C,H,W), on the CPU, at most `batch_size` images per pass."""
    targets = output.targets(None, len(images))
    with probing(model, output) as probe:
        parts = split_batch(rows_for(images, batch_size, model), images, targets)
        return torch.cat([probe.logits(*part) for part in parts]).cpu()


def accuracy(model: nn.Module, images: Tensor, labels: Tensor, output: Output = logit) -> float:
    """Share of images (N,C,H,W) for which the model predicts the label."""
    return float(correct(model, images, labels, output).cpu().double().mean())


def correct(model: nn.Module, images: Tensor, labels: Tensor, output: Output = logit) -> Tensor:
    """True (N,) for each image (N,C,H,W) for which the model predicts the label: never if a logit is NaN."""
    logits = all_logits(model, images, output=output)
    return (predicted(logits) == labels.cpu()) & ~logits.isnan().any(dim=1)


def summary(values: Tensor, undefined: Sequence[str | None]) -> dict[str, Any]:
    """Mean of the defined scores (None without any), their number, and the reasons for the undefined ones."""
    missing = values.isnan()
    mean = finite(float(values[~missing].double().mean()))
    pairs = zip(undefined, missing.tolist(), strict=False)
    causes = Counter(reason or "undefined for this metric" for reason, without in pairs if without)
    return {"value": mean, "n": int((~missing).sum()), "undefined": dict(causes)}
