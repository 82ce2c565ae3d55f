"""Outputs: what is explained, one number per image of what a model returns. Targets, labels and probabilities."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn
from torch.nn import functional

from agop.errors import InputError, ModelError
from agop.model.logits import described, tensor_in
from agop.registry import unknown_name_error

__all__ = ["Output", "detection", "log_odds", "logit", "probability", "segment", "similarity", "value"]

Target = SupportsIndex | Sequence[int] | Tensor | None
Forward = Callable[[nn.Module, Tensor], Any]


@dataclass(frozen=True, eq=False, repr=False)
class Output:
    """One number per image of what a model returns: what gradients, maps and scores are about.

    Args:
        label: Its name, without options.
        function: From what the model returns, and the options, to numbers (N,). It must be differentiable.
        options: Arguments of the function that are the same for all images.
        each: Arguments of the function with one item per image: tensors (N,…).
        has_classes: One number per class: `target=` chooses it. Only logit, log_odds and probability.
        is_probability: Deletion, insertion and SRG take the number as it is, not as a share of that of the whole image.
        forward: A function from model and images to what the model returns; by default model(images).

    Example:
        depth = agop.outputs.Output("depth", lambda returned: returned["depth"].mean(dim=(1, 2)))
        maps = agop.explain(model, images, "integrated-gradients", output=depth)
    """

    label: str
    function: Callable[..., Tensor] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    each: Mapping[str, Tensor] = field(default_factory=dict)
    has_classes: bool = False
    is_probability: bool = False
    forward: Forward | None = None

    @property
    def name(self) -> str:
        """The label with the options, as an AGOP file records it: "segment(class_index=3)"."""
        options = ", ".join(f"{name}={_short(value)}" for name, value in self.options.items() if value is not None)
        return f"{self.label}({options})" if options else self.label

    def __repr__(self) -> str:
        return self.name

    def rows(self, index: Tensor | slice) -> Output:
        """The output for some of the images of a call."""
        each = {name: values[index.to(values.device) if isinstance(index, Tensor) else index]
                for name, values in self.each.items()}  # fmt: skip
        return replace(self, each=each) if each else self

    def targets(self, target: Target, samples: int) -> Tensor | None:
        """What goes with each image: its class (None: the predicted one), or its number (N,) without classes."""
        if self.has_classes:
            return target_indices(target, samples)
        if target is not None:
            raise InputError(f"target= is for outputs with classes, not for {self.name}: omit it")
        for name, values in self.each.items():
            if len(values) != samples:
                raise InputError(
                    f"{self.label} has {name} for {len(values)} images, these are {samples}: give one each"
                )
        return torch.arange(samples)

    def column(self, returned: Any, index: Tensor | None, samples: int) -> Tensor:
        """The numbers (N,1) of the images with this index, from what the model returns for them."""
        own = self.rows(slice(samples) if index is None else index)
        numbers = own.function(returned, **own.options, **own.each) if own.function is not None else None
        if not isinstance(numbers, Tensor):
            raise ModelError(f"output {self.name} is a {type(numbers).__name__}: return a tensor, one number per image")
        if samples == 1 and numbers.numel() == 1:
            numbers = numbers.reshape(1)
        if numbers.shape != (samples,):
            raise ModelError(
                f"output {self.name} has shape {tuple(numbers.shape)} for {samples} images: return one number per "
                f"image, ({samples},), for example .flatten(1).mean(dim=1)"
            )
        return numbers[:, None]


OutputLike = str | Output | Callable[[Any], Tensor]
logit = Output("logit", has_classes=True)
log_odds = Output("log_odds", has_classes=True)
probability = Output("probability", has_classes=True, is_probability=True)
_NAMED = {each.label: each for each in (logit, log_odds, probability)}


def output_for(output: OutputLike, forward: Forward | None = None) -> Output:
    """The output of a name or a function, with `forward` if there is one."""
    if isinstance(output, str):
        if output not in _NAMED:
            raise InputError(f"{unknown_name_error('output', output, list(_NAMED))}; or pass it itself: a function")
        output = _NAMED[output]
    elif not isinstance(output, Output):
        shown = getattr(output, "__name__", repr(output))
        if not callable(output) or (getattr(output, "__module__", "") == __name__ and shown in __all__):
            raise InputError(f"output is {shown}: give a name, a function, or for example agop.outputs.value(index=0)")
        output = Output(getattr(output, "__name__", type(output).__name__), output)
    return output if forward is None else replace(output, forward=forward)


def value(index: int | None = None) -> Output:
    """A number (N,) of a regression network that returns (N,), (N,1) or, with an index, (N,D).

    Example:
        maps = agop.explain(model, images, "integrated-gradients", output=agop.outputs.value(index=2))
    """
    return Output("value", _value, {"index": index})


def _value(returned: Any, index: int | None) -> Tensor:
    numbers = _tensor(returned, "value", "logits", "predictions")
    if numbers.ndim <= 1 and index is None:
        return numbers
    count = numbers.shape[-1]
    if numbers.ndim != 2 or (index is None and count > 1) or not 0 <= (index or 0) < count:
        raise ModelError(
            f"value(index={index}) of a tensor {tuple(numbers.shape)}: give an index from 0 to {count - 1}"
        )
    return numbers[:, index or 0]


def segment(class_index: int, region: Any = None) -> Output:
    """Mean logit (N,) of a class over the pixels where it is predicted, or over a region, of a segmentation network.

    For what returns logits (N,K,h,w), alone, as "out" or as "logits". 0, without a gradient, for an image where the
    class is predicted nowhere. The predicted pixels change along the path of integrated gradients: for completeness
    pass a region.

    Args:
        class_index: The class.
        region: Pixels to average over: (h,w) for all images, or (N,h,w), such as the mask of one object. It is scaled
            to the size of the logits.

    Example:
        maps = agop.explain(unet, images, "expected-gradients", output=agop.outputs.segment(2), references=others)
    """
    masks = None if region is None else torch.as_tensor(region)
    return _with("segment", _segment, "region", masks, 2, class_index=class_index)


def _segment(returned: Any, class_index: int, region: Tensor | None = None) -> Tensor:
    logits = _tensor(returned, "segment", "out", "logits")
    if logits.ndim < 4 or not 0 <= class_index < logits.shape[1]:
        raise ModelError(
            f"segment(class_index={class_index}) of logits {tuple(logits.shape)}: it needs (N,classes,h,w)"
        )
    own = logits[:, class_index]
    if region is None:
        inside = own > 0 if logits.shape[1] == 1 else logits.argmax(dim=1) == class_index
    else:
        masks = (region if region.ndim == own.ndim else region[None]).to(own)
        inside = functional.interpolate(masks[:, None], own.shape[1:], mode="area")[:, 0]
    weights = inside.to(own).expand_as(own).flatten(1)
    return (own.flatten(1) * weights).sum(dim=1) / weights.sum(dim=1).clamp_min(torch.finfo(own.dtype).tiny)


def detection(class_index: int | None = None, box: Any = None) -> Output:
    """Score (N,) of a detector: the best one of a class, or that of the prediction that overlaps a box most.

    For what returns logits (N,Q,K+1) with "no object" last and pred_boxes (N,Q,4), as DETR; a list of one dict per
    image with boxes, scores and labels, as torchvision's detectors in eval mode; or (N,4+K,Q) with centre, size and
    class scores, as YOLO. 0, without a gradient, for an image without such a prediction.

    Args:
        class_index: The class; by default the best one.
        box: Left, top, right and bottom in the units of the model's boxes (DETR: shares of width and height): (4,) for
            all images, or (N,4).

    Example:
        maps = agop.explain(detector, images, "smoothgrad", output=agop.outputs.detection(box=boxes))
    """
    corners = None if box is None else torch.as_tensor(box, dtype=torch.float32)
    return replace(_with("detection", _detection, "box", corners, 1, class_index=class_index), is_probability=True)


def _detection(returned: Any, class_index: int | None, box: Tensor | None = None) -> Tensor:
    if isinstance(returned, (list, tuple)) and returned and all(isinstance(part, Mapping) for part in returned):
        numbers = []
        for number, part in enumerate(returned):
            own = part["labels"] == (part["labels"] if class_index is None else class_index)
            corners = box[number] if box is not None and box.ndim > 1 else box
            numbers.append(_best(part["scores"][own][None], part["boxes"][own][None], corners))
        return torch.cat(numbers)
    logits, boxes = tensor_in(returned, "logits", "pred_logits"), tensor_in(returned, "pred_boxes")
    if isinstance(returned, tuple) and len(returned) > 1 and logits is not None:  # DETR's without a dict
        second = returned[1]
        boxes = second if isinstance(second, Tensor) and second.shape == (*logits.shape[:2], 4) else logits
    if logits is None or boxes is None or logits.ndim != 3 or boxes.ndim != 3:
        raise ModelError(f"no detections in the model's output, {described(returned)}")
    boxes, scores = (logits[:, :4].mT, logits[:, 4:].mT) if logits is boxes else (boxes, logits.softmax(-1)[..., :-1])
    if not 0 <= (class_index or 0) < scores.shape[-1]:
        raise ModelError(f"detection(class_index={class_index}): the model has classes 0 to {scores.shape[-1] - 1}")
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    best = scores.amax(dim=-1) if class_index is None else scores[..., class_index]
    return _best(best, torch.cat([centre - half, centre + half], dim=-1), box)


def _best(scores: Tensor, boxes: Tensor, box: Tensor | None) -> Tensor:
    """The best of the scores (N,Q), or that of the box (N,Q,4) with the largest intersection over union."""
    if not scores.shape[1]:
        return scores.sum(dim=1)
    if box is None:
        return scores.amax(dim=1)
    boxes, box = boxes.detach(), box.to(boxes).reshape(-1, 1, 4)
    sides = torch.minimum(boxes[..., 2:], box[..., 2:]) - torch.maximum(boxes[..., :2], box[..., :2])
    shared, (own, given) = sides.clamp_min(0).prod(-1), ((b[..., 2:] - b[..., :2]).prod(-1) for b in (boxes, box))
    overlap, place = (shared / (own + given - shared)).nan_to_num().max(dim=1, keepdim=True)
    return (scores.gather(1, place) * (overlap > 0))[:, 0]


def similarity(embedding: Any) -> Output:
    """Cosine (N,) of an image encoder's embedding (N,D) with one embedding (D,), or with one per image (N,D).

    For what returns a tensor (N,D), alone, as "image_embeds" or as "pooler_output".

    Example:
        text = clip.get_text_features(**tokens).pooler_output[0].detach()
        maps = agop.explain(vision, images, "smoothgrad", output=agop.outputs.similarity(text))
    """
    return _with("similarity", _similarity, "embedding", torch.as_tensor(embedding).detach(), 1)


def _similarity(returned: Any, embedding: Tensor) -> Tensor:
    own = _tensor(returned, "similarity", "image_embeds", "pooler_output")
    if own.ndim != 2 or own.shape[1] != embedding.shape[-1]:
        shapes = f"the model's embeddings are {tuple(own.shape)}, the given one {tuple(embedding.shape)}"
        raise ModelError(f"similarity: {shapes}: give (D,) or (N,D) with the same D")
    return functional.cosine_similarity(own, embedding.to(own), dim=1)


def _with(
    label: str, function: Callable[..., Tensor], name: str, values: Tensor | None, sides: int, **options: Any
) -> Output:
    """An output with an option that is a tensor: with one dimension more than these, it has one item per image."""
    if values is not None and values.ndim > sides:
        return Output(label, function, options, {name: values})
    return Output(label, function, options | {name: values})


def _tensor(returned: Any, label: str, *names: str) -> Tensor:
    """The tensor that an output uses."""
    tensor = tensor_in(returned, *names)
    if tensor is None:
        raise ModelError(f"no tensor for {label} in the model's output, {described(returned)}")
    return tensor


def _short(option: Any) -> str:
    """An option in a name: a tensor as a digest."""
    if not isinstance(option, Tensor):
        return repr(option)
    content = option.detach().cpu().flatten().view(torch.uint8).numpy()
    return f"tensor {hashlib.sha256(content.data).hexdigest()[:6]}"


def probabilities(logits: Tensor) -> Tensor:
    """Class probabilities (N,K) from logits (N,K). A single logit z counts as the logits (0, z)."""
    return (torch.cat([torch.zeros_like(logits), logits], dim=1) if logits.shape[1] == 1 else logits).softmax(dim=1)


def class_count(logits: Tensor) -> int:
    """Number of classes: a single logit means two."""
    return max(2, logits.shape[1])


def predicted(logits: Tensor) -> Tensor:
    """Predicted classes (N,)."""
    if logits.shape[1] == 1:
        return (logits[:, 0] > 0).long()
    return logits.argmax(dim=1)


def numbers(scores: Tensor, targets: Tensor, output: Output) -> Tensor:
    """The output (N,) from logits (N,K) and targets (N,), or from numbers (N,1) without classes.

    The log-odds are f_c − log Σ_{j≠c} exp f_j. A single logit z counts as −z for class 0, and is its own log-odds.
    """
    if not output.has_classes:
        return scores[:, 0]
    if output.label == probability.label:
        return probabilities(scores).gather(1, targets[:, None])[:, 0]
    if scores.shape[1] == 1:
        return (2 * targets - 1) * scores[:, 0]
    own = scores.gather(1, targets[:, None])[:, 0]
    if output.label == logit.label:
        return own
    return own - scores.scatter(1, targets[:, None], -torch.inf).logsumexp(dim=1)


def selection(scores: Tensor, targets: Tensor, output: Output = logit) -> Tensor:
    """Derivatives (N,K) of each sample's output with respect to its logits; 1 for numbers (N,1) without classes."""
    if not output.has_classes:
        return torch.ones_like(scores)
    if output.label == logit.label:
        if scores.shape[1] == 1:
            return (2 * targets - 1)[:, None].to(scores.dtype)
        return torch.zeros_like(scores).scatter_(1, targets[:, None], 1)
    with torch.enable_grad():
        leaf = scores.detach().clone().requires_grad_()
        return torch.autograd.grad(numbers(leaf, targets, output).sum(), leaf)[0]


def target_indices(target: Target, samples: int) -> Tensor | None:
    """Targets (N,) as int64, from one class for all samples or one per sample. None stays None (predicted class)."""
    if target is None:
        return None
    classes = _class_indices(target, "target")
    if classes.ndim == 0:
        classes = classes.expand(samples)
    if classes.shape != (samples,):
        raise InputError(
            f"target has shape {tuple(classes.shape)} for {samples} images: give one class, or one per image"
        )
    return classes


def labels_for(labels: Any, samples: int) -> Tensor:
    """Labels (N,) as int64. Accepts (N,1) and integer-valued floats, as binary losses take them."""
    classes = _class_indices(labels, "labels")
    if classes.shape == (samples, 1):
        classes = classes[:, 0]
    if classes.shape != (samples,):
        raise InputError(
            f"labels have shape {tuple(classes.shape)} for {samples} images: give one class index per "
            "image (for one-hot or mixed labels, labels.argmax(1))"
        )
    return classes


def check_range(classes: Tensor, count: int, what: str) -> None:
    """Raise unless every class lies in 0 .. count-1."""
    wrong = (classes < 0) | (classes >= count)
    if bool(wrong.any()):
        sample = int(wrong.nonzero()[0])
        raise InputError(
            f"{what} {int(classes[sample])} of sample {sample} is out of range: "
            f"the model has {count} classes, 0 to {count - 1}"
        )


def _class_indices(values: Any, what: str) -> Tensor:
    try:
        classes = torch.as_tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{what} {values!r} can't be converted to class indices: {error}") from error
    if classes.dtype == torch.bool or classes.is_complex():
        raise InputError(f"{what} has dtype {classes.dtype}: give class indices as integers")
    if classes.is_floating_point() and not bool((classes == classes.floor()).all()):
        raise InputError(f"{what} contains fractions or NaN, which aren't class indices: give integers")
    return classes.detach().long()
