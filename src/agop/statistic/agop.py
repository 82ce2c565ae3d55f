"""AGOP: the finished statistic of one model over one data set, and its file."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch
from torch import Tensor, nn

from agop.errors import InputError, PriorError, warn
from agop.model.fingerprint import fingerprint
from agop.statistic.accumulator import Accumulator
from agop.statistic.agop_file import read_agop_file, write_agop_file
from agop.statistic.moments import consistency, drawn_images
from agop.statistic.provenance import FORMAT, Provenance
from agop.system.versions import package_version

if TYPE_CHECKING:
    from agop.pictures.preprocessing import Preprocessing

# Tensors that an AGOP may lack, in the order of its fields.
_OPTIONAL = ("patch_matrix", "class_patch_matrices", "sketch", "image_moments", "mean_direction", "references")


# Samples from which diag(M) is more signal than chance: of a class for its own part, of all for the method agop.
ENOUGH_SAMPLES = 100


@dataclass(frozen=True, eq=False)
class AGOP:
    """diag(M) (C,H,W) of a model, optionally per class (K,C,H,W), with the sample count and the provenance.

    `patch_matrix` is S (D,D) = mean over samples of Σ_p δ_p δ_pᵀ, where δ_p is the gradient with respect to the output
    of `layer` at position p. `sketch` B (ℓ,C,H,W) approximates M: BᵀB/count plus the diagonal matrix of `residual`.
    `image_moments` (2,C,H,W) are mean and standard deviation of the counted images, `mean_direction` (C,H,W) is the
    mean |g| / ‖g‖, and `references` (M,C,H,W) are some of the images.
    """

    diagonal: Tensor
    count: int
    class_diagonals: Tensor | None = None
    class_counts: Tensor | None = None
    provenance: Provenance = field(default_factory=Provenance)
    patch_matrix: Tensor | None = None
    class_patch_matrices: Tensor | None = None
    sketch: Tensor | None = None
    image_moments: Tensor | None = None
    mean_direction: Tensor | None = None
    references: Tensor | None = None
    _checked: WeakSet[nn.Module] = field(default_factory=WeakSet, init=False, repr=False)

    @classmethod
    def from_sums(cls, sums: Accumulator, model: nn.Module, kind: str, options: dict[str, Any], **more: Any) -> AGOP:
        """The AGOP of an accumulator, with its provenance."""
        diagonal = sums.diagonal().cpu()
        by_class = sums.class_diagonals()
        provenance = Provenance(
            kind=kind,
            model=fingerprint(model),
            input_shape=tuple(diagonal.shape),
            classes=sums.classes,
            count=sums.count,
            skipped=sums.skipped,
            labelled=sums.labelled or None,
            correct=sums.correct if sums.labelled else None,
            options=options,
            layer=None if sums.patches is None else sums.layer,
            versions={"agop": package_version(), "torch": torch.__version__, "python": platform.python_version()},
            **more,
        )
        # A copy: the accumulator keeps counting in its own tensor.
        counts = None if by_class is None or sums.counts is None else sums.counts.clone()
        return cls(
            diagonal,
            sums.count,
            _on_cpu(by_class),
            counts,
            provenance,
            _on_cpu(sums.patch_matrix()),
            _on_cpu(sums.class_patch_matrices()),
            None if sums.sketch is None else sums.sketch.rows().cpu(),
            _on_cpu(sums.image_moments()),
            _on_cpu(sums.mean_direction()),
            sums.reference_images(),
        )

    @property
    def layer(self) -> str | None:
        """Name of the patch matrix's layer."""
        return self.provenance.layer

    @property
    def sketch_rows(self) -> Tensor:
        """The sketch B (ℓ,C,H,W) in float64. Raises PriorError if there is none."""
        if self.sketch is None:
            raise PriorError(
                "the prior has no sketch: make one with agop.fit(model, loader, rank=64) or `agop fit --rank 64`"
            )
        return self.sketch.double()

    @cached_property
    def residual(self) -> Tensor:
        """The part of diag(M) that the sketch lacks, diag(M) − diag(BᵀB)/count (C,H,W), non-negative."""
        return (self.diagonal - self.sketch_rows.square().sum(dim=0) / self.count).clamp_min(0)

    @property
    def residual_share(self) -> float:
        """Sum of the residual as a share of tr(M), in 0..1: 0 for a sketch that has all of M."""
        return float(self.residual.sum() / self.diagonal.sum())

    @property
    def consistency(self) -> float | None:
        """Positional consistency: the mean cosine of |g| between samples, corrected for chance, in −1..1.

        Near 1 if the model looks at the same places in every image, near 0 if they move. None if it isn't known.
        """
        return None if self.mean_direction is None else consistency(self.mean_direction, self.count)

    @property
    def has_references(self) -> bool:
        """True if there are reference images, or moments to draw them from."""
        return self.references is not None or self.image_moments is not None

    @cached_property
    def reference_images(self) -> Tensor | None:
        """Reference images (M,C,H,W): the stored ones, else images drawn from the moments, always the same."""
        if self.references is not None or self.image_moments is None:
            return self.references
        return drawn_images(self.image_moments)

    @cached_property
    def weights(self) -> Tensor:
        """V = sqrt(diag(M) / max diag(M)) (C,H,W), in 0..1: the weights of AGOP-Weighted."""
        return (self.diagonal / self._maximum()).sqrt()

    def weights_for(self, classes: Tensor) -> Tensor:
        """V (N,C,H,W) for maps of these classes (N,), from diag(M) for each class."""
        self._maximum()
        indices: list[int] = classes.tolist()
        weights = {index: self._class_weights(index) for index in set(indices)}
        return torch.stack([weights[index] for index in indices])

    def _class_weights(self, index: int) -> Tensor:
        diagonal = self._halfway(self.diagonal, self.class_diagonals, index)
        return (diagonal / diagonal.max()).sqrt()

    def patch_matrix_for(self, index: int) -> Tensor | None:
        """S (D,D) for maps of this class."""
        matrix = self.patch_matrix
        return None if matrix is None else self._halfway(matrix, self.class_patch_matrices, index)

    def _halfway(self, whole: Tensor, by_class: Tensor | None, index: int) -> Tensor:
        """The mean of a class's own part and that of all samples; that of all samples if the class has few of them.

        Halfway, because a class shares most of its evidence with the others.
        """
        if by_class is None or self.class_counts is None or self.class_counts[index] < ENOUGH_SAMPLES:
            return whole
        return (whole + by_class[index]) / 2

    @cached_property
    def map(self) -> Tensor:
        """diag(M) summed over channels (H,W): the map of AGOP-Global."""
        self._maximum()
        return self.diagonal.sum(dim=0)

    def check_shape(self, images: Tensor) -> None:
        """Raise if the images (N,C,H,W) have another shape."""
        if images.shape[1:] != self.diagonal.shape:
            raise PriorError(
                f"the prior is for images of shape {tuple(self.diagonal.shape)}, these have shape "
                f"{tuple(images.shape[1:])}: resize them, or compute a prior for this shape with agop.fit"
            )

    def check(self, model: nn.Module, images: Tensor) -> None:
        """Raise if the images have another shape. Warn once per model if the prior comes from another model."""
        self.check_shape(images)
        if model in self._checked or not self.provenance.model:
            return
        self._checked.add(model)
        ours, theirs = self.provenance.model, fingerprint(model)
        if ours["architecture"] != theirs["architecture"]:
            warn(
                "the prior comes from another model (its parameters have other names or shapes): "
                "compute one for this model with agop.fit"
            )
        elif ours["weights"] != theirs["weights"]:
            warn(
                "the prior comes from a model with other weights: fine for another checkpoint of the "
                "same training run, else compute one for this model with agop.fit"
            )

    @property
    def class_names(self) -> tuple[str, ...]:
        """The class names if there is one for each class of the model, else ()."""
        names = self.provenance.data.classes
        return names if len(names) == self.provenance.classes else ()

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        preprocessing: Preprocessing | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        """Write one safetensors file. If that fails, an existing file is kept.

        `preprocessing` (as in training) and the class names are stored in the file, so that `agop explain`, `evaluate`
        and `app` don't need these options.
        """
        tensors = {"diagonal": self.diagonal.contiguous()}
        if self.class_diagonals is not None and self.class_counts is not None:
            tensors |= {
                "class_diagonals": self.class_diagonals.contiguous(),
                "class_counts": self.class_counts.contiguous(),
            }
        more = {name: getattr(self, name) for name in _OPTIONAL}
        tensors |= {name: tensor.contiguous() for name, tensor in more.items() if tensor is not None}
        data = self.provenance.data
        if preprocessing is not None:
            self._check_preprocessing(preprocessing)
            data = replace(data, preprocessing=preprocessing.to_dict())
        if classes is not None:
            self._check_classes(classes)
            data = replace(data, classes=tuple(classes))
        provenance = replace(self.provenance, format=FORMAT, count=self.count, data=data)
        write_agop_file(Path(path), tensors, provenance)

    def _check_preprocessing(self, preprocessing: Preprocessing) -> None:
        ours, theirs = tuple(self.diagonal.shape), (1 if preprocessing.gray else 3, *preprocessing.size)
        if ours != theirs:
            shapes = ["×".join(map(str, shape)) for shape in (theirs, ours)]
            raise InputError(
                f"preprocessing gives images of shape {shapes[0]}, the AGOP has shape {shapes[1]}: give size and gray "
                "as in training"
            )

    def _check_classes(self, classes: Sequence[str]) -> None:
        count = len(classes) if self.provenance.classes is None else self.provenance.classes
        if isinstance(classes, str) or len(classes) != count:
            raise InputError(f"there are {len(classes)} class names, the model has {count} classes: give one per class")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AGOP:
        """Read a file that `save` wrote. Raises FileError if it isn't one, or if its content has changed."""
        tensors, provenance = read_agop_file(Path(path))
        by_class, counts = tensors.get("class_diagonals"), tensors.get("class_counts")
        more = {name: tensors.get(name) for name in _OPTIONAL}
        return cls(tensors["diagonal"], provenance.count or 0, by_class, counts, provenance, **more)

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.diagonal.shape))
        by_class = "" if self.class_diagonals is None else f", {len(self.class_diagonals)} classes"
        return f"AGOP({shape}, {self.count:,} samples, {self.provenance.kind or 'made by hand'}{by_class})"

    def _repr_html_(self) -> str:
        from agop.statistic.drawing import html_of  # Pillow is imported only where it's used

        return html_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has no checked models: models aren't pickled with their prior.
        parts = (self.diagonal, self.count, self.class_diagonals, self.class_counts, self.provenance)
        return AGOP, (*parts, *(getattr(self, name) for name in _OPTIONAL))

    def _maximum(self) -> Tensor:
        maximum = self.diagonal.max()
        if not maximum > 0:
            raise PriorError(
                f"max diag(M) is {float(maximum)}: the model's logits don't depend on its input; "
                "check the model, or train it longer"
            )
        return maximum


def _on_cpu(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.cpu()
