"""Methods of the AGOP: the product of factors, and layer, local, weighted, global, expected, patch and subspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm
from torch.nn import functional

from agop.errors import InputError, LayerError, ModelError, PriorError
from agop.methods.base import Job, Method, SignedMethod, edges, sum_channels
from agop.methods.cam import GradCAM, NormGrad, upsampled
from agop.methods.gradients import ReferenceMethod, Vanilla
from agop.model.layers import (
    COARSE_BELOW,
    FINE,
    FeatureMaps,
    Layer,
    default_layer,
    feature_maps,
    feature_maps_of,
    fine_layer,
    layer_candidates,
    map_size,
    named_layer,
    patch_outputs,
)
from agop.model.outputs import log_odds
from agop.model.probe import Probe, at_least_float32, split_batch
from agop.prior.agop import AGOP
from agop.prior.matrices import square_root

WHAT = ("patch-matrix", "activation-norm", "sobel", "mean-difference")
# Sizes of the image that a network for photographs sees, relative to its own. On cut-outs with two networks, twice the
# size made the map of layers × class map sharper (AP .88 to .92), and both together told two objects apart best.
_SCALES = (1, 2)
# Where the class map is 0, the other factors still order the pixels.
_FLOOR = 1e-6
# A larger exponent of V makes a map of few pixels: all exponents are divided so that V has this one.
_LARGEST = 3.0
# The power of layers × class map × alike, for the same reason: chosen by the IoU of cut-outs.
_POWER = 2 / 3
# The tone's share of a map's mass. Both were chosen by the IoU of XAI-TRIS, seeds 100 and 101.
_MASS = 0.5


@dataclass(frozen=True)
class AGOPMethod(ReferenceMethod):
    """Places, patterns and class evidence that the model relies on, multiplied.

    A network for photographs has a block of feature maps of at least 14×14 at a stride of at least 8. There, the map is
    layers × class map × alike, without a prior:

    - layers: ‖δ_p‖, the norm of the gradient at each position of the block before the last such block.
    - class map: the square root of GradCAM at the last block of feature maps (or `layer`).
    - alike: the cosine of the block's activations at each position with their mean direction, weighted by the other two
      factors; 0 if negative. It completes an object of which the network uses a part.

    Each is the geometric mean of the image's own size and of twice the size, if the model accepts that. Gradients are
    of the log-odds, the logit minus the log-sum-exp of the others: they separate two objects. For other networks, it
    is where × what × which, and needs a prior:

    - where: V^c, with V = sqrt(diag(M) / max), the pixels on which the model relies in the training data. `fit` and the
      hook choose c from 0, 1, 2, 4 and 8 by SRG on training images, without masks. V that is nearly even, as where
      objects move, and V of fewer than 100 samples take no part.
    - what: the mean of ‖S^½ (o_p − mean o)‖ over the patches p that contain the pixel, the patterns of the first layer
      on which it relies. Needs a prior with a patch matrix.
    - which, fine: the square root of the mean of |(x − b) · ∂f/∂x| on paths from reference images b. The references
      are those of the prior (drawn from its mean and standard deviation of each pixel) unless `references` are passed.
    - which, coarse: GradCAM of the last block of feature maps (or `layer`), if its map has at least 7×7 values.

    V and S are half those of the target's class if the prior has enough samples.

    The tone a / (a + t) keeps the order of the pixels and makes a map that can be cut at half of its range: t is the
    value above which half of the map's mass lies. For the same reason, a map with c above 3 is taken to the power 3/c,
    and layers × class map × alike to the power 2/3.

    Args:
        samples: Number of paths.
        seed: Seed of the paths.
        what: The second factor: patch-matrix, or a control: activation-norm (the same without S), sobel, or
            mean-difference, |x − mean of the training|.
        layer: Layer of the class map, by name or module.
        where: The exponent c; by default the prior's.

    Raises:
        InputError: If `samples` isn't positive or `what` is unknown.

    Example:
        prior = agop.fit(model, loader)
        maps = agop.explain(model, images, agop.methods.AGOPMethod(samples=100), prior)
    """

    name: ClassVar[str] = "agop"
    needs_prior: ClassVar[bool] = True
    prior_is_optional: ClassVar[bool] = True
    layer_is_optional: ClassVar[bool] = True
    samples: int = 16
    what: str = "patch-matrix"
    layer: Layer = None
    where: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.what not in WHAT:
            raise InputError(f"{self.name}: what is {self.what!r}: give {', '.join(WHAT)}")

    def prepared(self, job: Job) -> AGOPMethod:
        """The method with its layers, found once for all images."""
        image = job.images[:1]
        fine = fine_layer(job.probe, image)
        if fine is not None:
            layer = named_layer(job.probe.model, self.layer or default_layer(job.probe, image))[1]
            return _LayersAndClassMap(**vars(replace(self, layer=layer)), fine=fine)
        if job.given_prior is None:
            raise PriorError(
                f"{self.name} needs a prior for this model, whose feature maps are smaller than {FINE}×{FINE}: create "
                "one with agop.fit or `agop fit`, and pass prior= or --prior"
            )
        try:
            layer = named_layer(job.probe.model, self.layer or default_layer(job.probe, image))[1]
        except LayerError:
            if self.layer is not None:
                raise
            return _WithoutClassMap(**vars(self))
        if min(map_size(job.probe, image, layer)) < COARSE_BELOW:
            return _WithoutClassMap(**vars(self))
        return replace(self, layer=layer)

    def maps(self, job: Job) -> Tensor:
        return self.combined(self.factors(job))

    def combined(self, factors: dict[str, Tensor]) -> Tensor:
        return toned(super().combined(factors), _MASS)

    def factors(self, job: Job) -> dict[str, Tensor]:
        """The factors that take part, each (N,H,W) with a maximum of 1 in every image."""
        classes = job.classes
        job = replace(job, targets=classes)
        which = sum_channels(self.mean_term(job, torch.abs))
        factors = {
            "where": self._where(job, classes),
            "what": self._what(job, classes),
            "which": which.sqrt(),
            "class map": self._class_map(job),
        }
        power = _LARGEST / max(_LARGEST, self._exponent(job))
        return {name: _scaled(maps.to(which)) ** power for name, maps in factors.items() if maps is not None}

    def _exponent(self, job: Job) -> float:
        """The exponent of V."""
        return job.prior.exponent if self.where is None else self.where

    def _where(self, job: Job, classes: Tensor) -> Tensor | None:
        exponent = self._exponent(job)
        return job.prior.weights_for(classes).mean(dim=1) ** exponent if exponent else None

    def _what(self, job: Job, classes: Tensor) -> Tensor | None:
        if self.what == "sobel":
            return edges(job.images)
        if self.what == "mean-difference":
            return sum_channels(job.images - job.references.mean(dim=0))
        if job.prior.patch_matrix is None:
            return None
        if self.what == "activation-norm":
            return patch_maps(job.probe, job.images, _prior_layer(job), centred=True)
        return _class_patch_maps(job, classes, centred=True)

    def _class_map(self, job: Job) -> Tensor | None:
        """GradCAM's maps; 1 for an image without evidence."""
        return _floored(GradCAM(self.layer).maps(job))


@dataclass(frozen=True)
class _LayersAndClassMap(AGOPMethod):
    """The method for a model with fine feature maps: layers × class map × alike, at two sizes of the image."""

    fine: Layer = None

    def factors(self, job: Job) -> dict[str, Tensor]:
        layers = [named_layer(job.probe.model, layer)[1] for layer in (self.fine, self.layer) if layer is not None]
        classes, has_classes = job.classes, job.probe.output.has_classes
        output = log_odds if has_classes else job.probe.output
        factors: dict[str, list[Tensor]] = {"layers": [], "class map": [], "alike": []}
        for scale in _SCALES if has_classes else (1,):  # a box or a region is in pixels of the image itself
            parts = split_batch(max(1, job.rows // scale**2), enlarged(job.images, scale), classes)
            try:
                both = [feature_maps_of(job.probe, *part, layers, output) for part in parts]
            except (ModelError, ValueError):
                if scale == 1:
                    raise
                break  # a model for images of one size
            norms = _scaled(torch.cat([vector_norm(fine.gradients, dim=1) for fine, _ in both]))
            class_map = _floored(torch.cat([GradCAM().coarse(last) for _, last in both])).sqrt()
            alike = likeness(torch.cat([fine.activations for fine, _ in both]), norms * upsampled(class_map, norms))
            for name, coarse in {"layers": norms, "class map": class_map, "alike": _floored(alike)}.items():
                factors[name].append(_scaled(upsampled(coarse, job.images)))
        return {name: _scaled(torch.stack(maps).prod(dim=0) ** (_POWER / len(maps))) for name, maps in factors.items()}


def likeness(activations: Tensor, weights: Tensor) -> Tensor:
    """Cosine (N,h,w) of the activations (N,D,h,w) at each position with their weighted mean direction; 0 if negative.

    Activations are those minus their mean over the image. Features that are alike refine class maps in Wang et al.,
    "Self-supervised Equivariant Attention Mechanism for Weakly Supervised Semantic Segmentation", 2020.
    """
    units = functional.normalize(activations - activations.mean(dim=(2, 3), keepdim=True), dim=1)
    direction = functional.normalize(torch.einsum("ndhw,nhw->nd", units, weights), dim=1)
    return torch.einsum("ndhw,nd->nhw", units, direction).relu()


def _floored(maps: Tensor) -> Tensor:
    """Maps with a maximum of 1 and no zeros; 1 everywhere for maps of zeros."""
    scaled = _scaled(maps)
    return torch.where(scaled.amax(dim=(1, 2), keepdim=True) == 0, 1, scaled) + _FLOOR


def enlarged(images: Tensor, scale: int) -> Tensor:
    """Images (N,C,H,W) with sides that are `scale` times as long."""
    return images if scale == 1 else functional.interpolate(images, scale_factor=scale, mode="bilinear")


class _WithoutClassMap(AGOPMethod):
    """The method for a model without feature maps, or with coarse ones only."""

    def _class_map(self, job: Job) -> None:
        return None


def toned(maps: Tensor, share: float) -> Tensor:
    """Maps a / (a + t), in the same order, in 0..1: t is the value above which this share of a map's mass lies."""
    values = maps.flatten(1)
    ordered = values.sort(dim=1, descending=True).values
    mass = ordered.cumsum(dim=1)
    place = (mass < share * mass[:, -1:]).sum(dim=1, keepdim=True).clamp_max(values.shape[1] - 1)
    threshold = ordered.gather(1, place)
    toned = values / torch.where(threshold > 0, values + threshold, 1)
    return toned.reshape(maps.shape)


def _scaled(maps: Tensor) -> Tensor:
    """Maps divided by their maximum; maps of zeros as they are."""
    largest = maps.flatten(1).amax(dim=1).reshape(-1, *[1] * (maps.ndim - 1))
    return maps / torch.where(largest > 0, largest, 1)


@dataclass(frozen=True)
class AGOPLayer(NormGrad):
    """Norm of the gradient at each position of a hidden layer, ‖δ_p‖: AGOP-Local of that layer.

    ‖δ_p‖² is the trace of the AGOP of one image at that position of the layer.

    Args:
        layer: The layer, by name or module; by default the block before the last one with a map of at least 14×14 at
            a stride of at least 8, else the last block of feature maps.
        weighted: ‖S^½ δ_p‖ instead, with the patch matrix S of a prior that was made for this layer.

    Example:
        maps = agop.explain(model, images, "agop-layer")
    """

    name: ClassVar[str] = "agop-layer"
    weighted: bool = False

    def maps(self, job: Job) -> Tensor:
        if not self.weighted:
            return super().maps(job)
        job.prior.check_shape(job.images)
        if _prior_layer(job) is not self.layer:
            raise PriorError(
                f"the prior's patch matrix is that of layer {job.prior.layer!r}: pass that layer, or make a prior for "
                "this one with agop.fit(model, loader, layer=…)"
            )
        deltas = feature_maps(job.probe, job.images, job.targets, self.layer).gradients
        root = _root(job.prior, None).to(deltas)
        return upsampled(torch.einsum("de,nehw->ndhw", root, deltas).norm(dim=1), job.images)

    def coarse(self, features: FeatureMaps) -> Tensor:
        norms: Tensor = vector_norm(features.gradients, dim=1)
        return norms


@dataclass(frozen=True)
class AGOPLocal(Vanilla):
    """The absolute gradient. By the paper's definition, the same as vanilla.

    Katakam, "AGOP as Explanation: From Feature Learning to Per-Sample Attribution in Image Classifiers".

    Example:
        maps = agop.explain(model, images, "agop-local")
    """

    name: ClassVar[str] = "agop-local"


@dataclass(frozen=True)
class AGOPWeighted(Method):
    """The gradient times the prior: Σ_channels |∂f/∂x| · sqrt(diag(M) / max diag(M)).

    Katakam, "AGOP as Explanation: From Feature Learning to Per-Sample Attribution in Image Classifiers".

    Args:
        by_class: diag(M) is half that of the target's class, if the prior has enough samples of it.

    Example:
        maps = agop.explain(model, images, "agop-weighted", prior)
    """

    name: ClassVar[str] = "agop-weighted"
    needs_prior: ClassVar[bool] = True
    by_class: bool = False

    def maps(self, job: Job) -> Tensor:
        gradients = job.probe.gradients(job.images, job.targets)
        weights = job.prior.weights_for(gradients.targets) if self.by_class else job.prior.weights
        return sum_channels(gradients.values, weights)


@dataclass(frozen=True)
class AGOPGlobal(Method):
    """The prior itself, Σ_channels diag(M), for every image.

    All N maps share the memory of one map, so writing to them raises.
    Katakam, "AGOP as Explanation: From Feature Learning to Per-Sample Attribution in Image Classifiers".

    Example:
        maps = agop.explain(model, images, "agop-global", prior)
    """

    name: ClassVar[str] = "agop-global"
    needs_prior: ClassVar[bool] = True
    needs_model: ClassVar[bool] = False

    def maps(self, job: Job) -> Tensor:
        saliency, limits = job.prior.map, torch.finfo(torch.float32)
        if not limits.tiny / limits.eps < float(saliency.max()) < limits.max:  # as squares of tiny gradients
            saliency = saliency / saliency.max()
        return saliency.to(torch.float32).expand(len(job.images), *saliency.shape)


@dataclass(frozen=True)
class AGOPExpected(ReferenceMethod):
    """Expected Gradients' absolute terms times the prior: Σ_channels mean |(x − b) · ∂f/∂x| · sqrt(diag(M) / max).

    The mean of absolute values keeps a pixel that speaks for the class beside one reference and against it beside
    another. diag(M) is half that of the target's class, if the prior has enough samples of it.

    Args:
        samples: Number of paths from reference images.
        seed: Seed of the paths.

    Example:
        maps = agop.explain(model, images, "agop-expected", prior, references=training_images)
    """

    name: ClassVar[str] = "agop-expected"
    needs_prior: ClassVar[bool] = True

    def maps(self, job: Job) -> Tensor:
        classes = job.classes
        return sum_channels(self.mean_term(replace(job, targets=classes), torch.abs), job.prior.weights_for(classes))


@dataclass(frozen=True)
class AGOPPatch(Method):
    """The prior's weight of each pixel times how much the model relies on the patches around it.

    V_i times the mean of ‖S^½ o_p‖ over the patches p that contain pixel i. V_i is the mean over channels of
    sqrt(diag(M) / max diag(M)), S the patch matrix, and o_p = W·patch_p the output of its layer without bias. V and S
    are half those of the target's class if the prior has enough samples of it; then the predicted classes are computed
    unless targets are passed. Otherwise the model runs only up to that layer, and the map is the same for every target.

    Example:
        maps = agop.explain(model, images, "agop-patch", agop.fit(model, loader))
    """

    name: ClassVar[str] = "agop-patch"
    needs_images: ClassVar[bool] = True
    needs_prior: ClassVar[bool] = True
    prior_parts: ClassVar[tuple[str, ...]] = ("patch_matrix",)

    def maps(self, job: Job) -> Tensor:
        if job.prior.class_diagonals is None:
            weights = job.prior.weights
            maps = patch_maps(job.probe, job.images, _prior_layer(job), _root(job.prior, None))
        else:
            classes = job.classes
            weights = job.prior.weights_for(classes)
            maps = _class_patch_maps(job, classes)
        return maps * weights.mean(dim=-3).to(maps)


@dataclass(frozen=True)
class AGOPSubspace(Method):
    """The gradient multiplied by the approximation of M from the prior's sketch: Σ_channels |M̂ ∂f/∂x|.

    M̂ = BᵀB/n + diag(r), with the sketch B and r = diag(M) − diag(BᵀB)/n, so that M̂ has the diagonal of M.

    Example:
        maps = agop.explain(model, images, "agop-subspace", agop.fit(model, loader, rank=32))
    """

    name: ClassVar[str] = "agop-subspace"
    needs_prior: ClassVar[bool] = True
    prior_parts: ClassVar[tuple[str, ...]] = ("sketch",)

    def maps(self, job: Job) -> Tensor:
        gradients, projected, scale = _projected(job)
        return sum_channels(projected + (job.prior.residual / scale).to(gradients) * gradients)


@dataclass(frozen=True)
class AGOPIxG(SignedMethod):
    """The image times the gradient multiplied by M's approximation of rank K: Σ_channels |x · (M_K ∂f/∂x)|.

    M_K = BᵀB/n, with the K rows of the prior's sketch B. The map is scaled by max diag(M).
    Katakam, arXiv 2605.15700, where it is for tables.

    Example:
        maps = agop.explain(model, images, "agop-ixg", agop.fit(model, loader, rank=32))
    """

    name: ClassVar[str] = "agop-ixg"
    needs_prior: ClassVar[bool] = True
    prior_parts: ClassVar[tuple[str, ...]] = ("sketch",)

    def attribution(self, job: Job) -> Tensor:
        return job.probe.placed(job.images) * _projected(job)[1]


def _projected(job: Job) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients g (N,C,H,W), BᵀB g / n of the sketch B, divided by max diag(M), and max diag(M)."""
    gradients = job.gradients()
    gradients = gradients.to(at_least_float32(gradients.dtype))
    # Scaled by max diag(M): products of small gradients would underflow in float32.
    scale = job.prior.diagonal.max()
    rows = (job.prior.sketch_rows / (scale * job.prior.count).sqrt()).to(gradients).flatten(1)
    return gradients, ((gradients.flatten(1) @ rows.T) @ rows).reshape(gradients.shape), scale


def patch_maps(
    probe: Probe, images: Tensor, layer: nn.Module, root: Tensor | None = None, *, centred: bool = False
) -> Tensor:
    """Maps (N,H,W): mean of ‖R o_p‖ over the patches p that contain each pixel; of ‖o_p‖ without a root R (D,D).

    o_p is the layer's output without bias, with `centred` minus its mean over the image: else the patches of a flat,
    bright area are as large as those of an object. The model runs only up to the layer.
    """
    outputs, input_shape = patch_outputs(probe, images, layer)
    if centred:
        outputs = outputs - outputs.mean(dim=(2, 3), keepdim=True)
    if root is not None:
        if outputs.shape[1] != len(root):
            raise PriorError(
                f"the prior's patch matrix is {len(root)}×{len(root)}, its layer has {outputs.shape[1]} channels "
                "in this model: compute a prior for it with agop.fit"
            )
        outputs = torch.einsum("de,nehw->ndhw", root.to(outputs), outputs)
    return _pixel_means(outputs.norm(dim=1), layer, input_shape, images.shape[-2:])


def _pixel_means(values: Tensor, layer: nn.Module, input_shape: torch.Size, size: torch.Size) -> Tensor:
    """Maps (N,H,W) of a pixel's mean over the patches that contain it, from values (N,h,w) of a layer's patches.

    The patches of a convolution are those of its input (…,H',W'), scaled bilinearly if the image has another size.
    Other layers have values at points, which are interpolated bilinearly. 0 for a pixel that is in no patch.
    """
    if isinstance(layer, nn.Conv2d) and len(input_shape) == 4:
        sums, counts = (_added(part, layer, input_shape[2:]) for part in (values, torch.ones_like(values[:1])))
        values = torch.where(counts > 0, sums / counts.clamp_min(1), 0.0)
    if values.shape[1:] == size:
        return values
    return functional.interpolate(values[:, None], tuple(size), mode="bilinear", align_corners=False)[:, 0]


def _added(values: Tensor, layer: nn.Conv2d, size: Sequence[int]) -> Tensor:
    """Sum (N,H,W) over the patches that contain each pixel: a transposed convolution with ones."""
    kernel = values.new_ones(1, 1, *layer.kernel_size)
    # Numbers for both axes if the user has set them: conv.stride = 1.
    strides, dilation = ([value] * 2 if isinstance(value, int) else value for value in (layer.stride, layer.dilation))
    spread = functional.conv_transpose2d(values[:, None], kernel, stride=strides, dilation=dilation)[:, 0]
    margins: list[int] = []
    for axis in (1, 0):  # functional.pad starts with the last axis
        side, reach = size[axis], spread.shape[axis + 1]
        before = layer.padding if isinstance(layer.padding, int | str) else layer.padding[axis]
        if isinstance(before, str) or not 0 <= side + 2 * before - reach < strides[axis]:
            # "same", or a subclass that pads in its forward pass: in the middle, as TensorFlow does.
            before = max(0, reach - side) // 2
        margins += [-before, side - (reach - before)]
    return functional.pad(spread, margins)


def _class_patch_maps(job: Job, classes: Tensor, centred: bool = False) -> Tensor:
    """Patch maps (N,H,W), each by the patch matrix for its class (N,)."""
    layer, classes = _prior_layer(job), classes.to(job.images.device)
    if job.prior.class_patch_matrices is None:
        return patch_maps(job.probe, job.images, layer, _root(job.prior, None), centred=centred)
    present: list[int] = sorted(set(classes.tolist()))
    parts = [
        patch_maps(job.probe, job.images[classes == index], layer, _root(job.prior, index), centred=centred)
        for index in present
    ]
    maps = torch.empty(len(classes), *job.images.shape[-2:], dtype=parts[0].dtype, device=parts[0].device)
    for index, own in zip(present, parts, strict=True):
        maps[(classes == index).to(maps.device)] = own
    return maps


def _prior_layer(job: Job) -> nn.Module:
    """The model's layer of the prior's patch matrix."""
    prior, model = job.prior, job.probe.model
    if prior.patch_matrix is None or prior.layer is None:
        if not any(isinstance(module, nn.Conv2d) for module in model.modules()):
            raise LayerError(
                "the model has no convolution, so there is no patch matrix: name a layer that returns maps or tokens, "
                f"agop.fit(model, loader, layer=…); {layer_candidates(model)}"
            )
        raise PriorError("the prior has no patch matrix: make one with agop.fit(model, loader) or `agop fit`")
    try:
        return named_layer(model, prior.layer)[1]
    except LayerError as error:
        raise PriorError(f"the prior's patch matrix is that of layer {prior.layer!r}: {error}") from error


def _root(prior: AGOP, class_index: int | None) -> Tensor:
    """A matrix R (D,D) with RᵀR = S / tr(S): squares of small gradients would underflow in float32."""
    matrix = prior.patch_matrix if class_index is None else prior.patch_matrix_for(class_index)
    if matrix is None or not matrix.trace() > 0:
        raise PriorError(
            f"the patch matrix of layer {prior.layer!r} is zero: the model's output doesn't depend on this layer; "
            "check the model, or name another layer in agop.fit"
        )
    root = square_root((matrix / matrix.trace()).cpu().numpy())
    return torch.from_numpy(root).to(matrix.device)
