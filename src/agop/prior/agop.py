"""AGOP: the finished statistic of one model over one data set, its provenance, and its file."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as bytes_from_tensors
from torch import Tensor, nn

from agop.errors import FileError, InputError, PriorError, warn
from agop.io import package_version, read_bytes, safetensors_metadata, write_atomically
from agop.model.state import fingerprint
from agop.prior.accumulator import Accumulator
from agop.stats import at_chance

if TYPE_CHECKING:
    from agop.images.preprocessing import Preprocessing

FORMAT = 2
TRAINING = "training-accumulated"
CHECKPOINT = "one checkpoint"
# Samples from which diag(M) is more signal than chance: of a class for its own part, of all for the method agop.
ENOUGH_SAMPLES = 100
# Unevenness of V below which it names no places. XAI-TRIS, seeds 100 to 104: .07 to .12 where shapes move, else from
# .19 on.
_EVEN_BELOW = 0.15
# The exponent of V without tuning.
_UNTUNED = 2.0
# Number of reference images to draw.
_DRAWN = 200
_KEY, _CHECKSUM = "agop", "checksum"

Tensors = dict[str, Tensor]
T = TypeVar("T")


@dataclass(frozen=True)
class ImagesDigest:
    """A set of image files: their number, and a digest of their names."""

    count: int
    names: str


@dataclass(frozen=True)
class DataProvenance:
    """The images behind an AGOP: class names, preprocessing (fields of `Preprocessing`) and the files."""

    classes: tuple[str, ...] = ()
    preprocessing: dict[str, Any] = field(default_factory=dict)
    pictures: ImagesDigest | None = None


@dataclass(frozen=True)
class MergedPart:
    """One of the AGOPs that `merge` joined. `images` is the digest of its images' names."""

    name: str
    count: int
    rank: int | None = None
    training: str | None = None
    images: str | None = None


@dataclass(frozen=True)
class Provenance:
    """Where an AGOP comes from. A field is empty if it isn't known or doesn't apply.

    `kind` is TRAINING or CHECKPOINT, `model` the fingerprint, `classes` the number of classes, and `skipped` the number
    of samples without finite gradients. Of the `labelled` samples, counted or not, the model classified `correct`
    correctly, and `majority` are in the largest class. `layer` is the layer of the patch matrix. `rank`, `ranks`,
    `parameters` (a digest) and `training` (a random id of the hook, kept when the training is resumed) are set in
    snapshots only. `tuned` is the exponent of V in the method agop, and the SRG of each exponent.
    """

    format: int = FORMAT
    kind: str | None = None
    model: dict[str, str] = field(default_factory=dict)
    input_shape: tuple[int, ...] = ()
    classes: int | None = None
    count: int | None = None
    skipped: int = 0
    labelled: int | None = None
    correct: int | None = None
    majority: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    layer: str | None = None
    steps: int | None = None
    rank: int | None = None
    ranks: int | None = None
    parameters: str | None = None
    training: str | None = None
    data: DataProvenance = field(default_factory=DataProvenance)
    merged: tuple[MergedPart, ...] = ()
    tuned: dict[str, Any] = field(default_factory=dict)

    @property
    def accuracy(self) -> float | None:
        """Share of the labelled samples that the model classified correctly; None without labels."""
        return self.correct / self.labelled if self.labelled and self.correct is not None else None

    @property
    def at_chance(self) -> bool:
        """True if the model classified its samples about as by chance.

        False if that isn't known: the accuracy during training says little about that of the model now.
        """
        if self.kind == TRAINING or not self.labelled or self.correct is None or self.classes is None:
            return False
        return at_chance(self.correct, self.labelled, self.majority, self.classes)

    @property
    def output(self) -> str:
        """The name of what the gradients are of: "logit", "segment(class_index=3)"."""
        return str(self.options.get("output", "logit"))

    def to_dict(self) -> dict[str, Any]:
        """Values for JSON by field name, without empty fields."""
        return asdict(self, dict_factory=lambda pairs: {k: v for k, v in pairs if v is not None and v not in ((), {})})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Provenance:
        """Read what `to_dict` returned, also after JSON. Unknown keys are ignored."""
        data = dict(values.get("data", {}))
        if "pictures" in data:
            data["pictures"] = _record(ImagesDigest, data["pictures"])
        merged = [_record(MergedPart, part) for part in values.get("merged", ())]
        return _record(cls, {**values, "data": _record(DataProvenance, data), "merged": merged})


def _record(kind: type[T], values: Mapping[str, Any]) -> T:
    """A dataclass from its fields by name, with lists as tuples."""
    names = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    known = {name: value for name, value in values.items() if name in names}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in known.items()})


@dataclass(frozen=True, eq=False)
class AGOP:
    """The prior: diag(M) (C,H,W) of a model over a data set, with more statistics, the count and the provenance.

    Made by `agop.fit`, `AGOPTrainingHook`, `agop.merge` and `AGOP.load`.

    Attributes:
        diagonal: diag(M) (C,H,W), float64: the mean squared gradient of each input value.
        count: Number of samples in the mean.
        class_diagonals: diag(M) per class (K,C,H,W), NaN for a class without samples. None without per_class.
        class_counts: Number of samples per class (K,).
        provenance: The model, data and options behind the AGOP.
        patch_matrix: S (D,D) = mean over samples of Σ_p δ_p δ_pᵀ, where δ_p is the gradient with respect to the output
            of `layer` at position p.
        class_patch_matrices: S per class (K,D,D).
        sketch: B (ℓ,C,H,W), which approximates M: BᵀB/count plus the diagonal matrix of `residual`.
        image_moments: Mean and standard deviation (2,C,H,W) of the counted images.

    Example:
        >>> prior = agop.fit(model, loader)
        >>> prior.save("prior.safetensors")
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
    _checked: WeakSet[nn.Module] = field(default_factory=WeakSet, init=False, repr=False)

    @classmethod
    def from_sums(cls, sums: Accumulator, model: nn.Module, kind: str, options: dict[str, Any], **more: Any) -> AGOP:
        """The AGOP of an accumulator, with its provenance."""
        diagonal = sums.diagonal().cpu()
        provenance = Provenance(
            kind=kind,
            model=fingerprint(model),
            input_shape=tuple(diagonal.shape),
            classes=sums.classes or None,
            count=sums.count,
            skipped=sums.skipped,
            labelled=sums.labelled or None,
            correct=sums.correct if sums.labelled else None,
            majority=int(sums.labels.max()) if sums.labelled else None,
            options=options,
            layer=None if sums.patches is None else sums.layer,
            versions={"agop": package_version(), "torch": torch.__version__, "python": platform.python_version()},
            **more,
        )
        return cls(diagonal, sums.count, provenance=provenance, **sums.parts())

    @property
    def layer(self) -> str | None:
        """Name of the patch matrix's layer."""
        return self.provenance.layer

    @property
    def class_names(self) -> tuple[str, ...]:
        """The class names if there is one for each class of the model, else ()."""
        names = self.provenance.data.classes
        return names if len(names) == self.provenance.classes else ()

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

    @cached_property
    def reference_images(self) -> Tensor | None:
        """Images (200,C,H,W) of independent normal values with the image moments, always the same. None without."""
        if self.image_moments is None:
            return None
        mean, deviation = self.image_moments
        generator = torch.Generator("cpu").manual_seed(0)
        noise = torch.randn((_DRAWN, *mean.shape), generator=generator, dtype=torch.float32, device="cpu")
        return noise.mul_(deviation).add_(mean)

    @property
    def is_even(self) -> bool:
        """True if V names no places: 1 − mean(V)² / mean(V²) is below 0.15, as where objects move."""
        places = self.weights.mean(dim=0)
        return bool(1 - places.mean().square() / places.square().mean() < _EVEN_BELOW)

    @property
    def exponent(self) -> float:
        """Exponent of V in the method agop: the tuned one; else 0 if V is even or of few samples, and 2 if not."""
        if self.is_even or self.count < ENOUGH_SAMPLES:
            return 0.0
        return float(self.provenance.tuned.get("where", _UNTUNED))

    @cached_property
    def weights(self) -> Tensor:
        """V = sqrt(diag(M) / max diag(M)) (C,H,W), in 0..1: the weights of AGOP-Weighted."""
        return (self.diagonal / self._maximum()).sqrt()

    def weights_for(self, classes: Tensor) -> Tensor:
        """V (N,C,H,W) for maps of these classes (N,), from diag(M) for each class."""
        if self.class_diagonals is None:
            return self.weights.expand(len(classes), *self.diagonal.shape)
        self._maximum()
        indices: list[int] = classes.tolist()
        diagonals = {index: self._halfway(self.diagonal, self.class_diagonals, index) for index in set(indices)}
        weights = {index: (diagonal / diagonal.max()).sqrt() for index, diagonal in diagonals.items()}
        return torch.stack([weights[index] for index in indices])

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

    def _maximum(self) -> Tensor:
        maximum = self.diagonal.max()
        if not maximum > 0:
            raise PriorError(
                f"max diag(M) is {float(maximum)}: the model's logits don't depend on its input; "
                "check the model, or train it longer"
            )
        return maximum

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

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        preprocessing: Preprocessing | None = None,
        classes: Sequence[str] | None = None,
    ) -> None:
        """Write one safetensors file. If that fails, an existing file is kept.

        Args:
            path: The file.
            preprocessing: As in training. Stored in the file, so that `agop explain`, `evaluate` and `app` don't need
                these options.
            classes: The class names, stored in the file as well.

        Raises:
            InputError: The preprocessing gives images of another shape, or there isn't one name per class.
            FileError: The file can't be written.

        Example:
            >>> prior.save("prior.safetensors", preprocessing=agop.Preprocessing((224, 224)), classes=["cat", "dog"])
        """
        data = self.provenance.data
        if preprocessing is not None:
            ours, theirs = tuple(self.diagonal.shape), (1 if preprocessing.gray else 3, *preprocessing.size)
            if ours != theirs:
                shapes = ["×".join(map(str, shape)) for shape in (theirs, ours)]
                raise InputError(
                    f"preprocessing gives images of shape {shapes[0]}, the AGOP has shape {shapes[1]}: give size and "
                    "gray as in training"
                )
            data = replace(data, preprocessing=preprocessing.to_dict())
        if classes is not None:
            count = len(classes) if self.provenance.classes is None else self.provenance.classes
            if isinstance(classes, str) or len(classes) != count:
                raise InputError(
                    f"there are {len(classes)} class names, the model has {count} classes: give one per class"
                )
            data = replace(data, classes=tuple(classes))
        values = replace(self.provenance, format=FORMAT, count=self.count, data=data).to_dict()
        tensors = {name: getattr(self, name) for name in _TENSORS}
        tensors = {name: tensor.contiguous() for name, tensor in tensors.items() if tensor is not None}
        metadata = json.dumps(values | {_CHECKSUM: _checksum(tensors, values)})
        write_atomically(Path(path), bytes_from_tensors(tensors, {_KEY: metadata}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> AGOP:
        """Read a file that `save` wrote. No code from the file is run.

        Args:
            path: The file.

        Returns:
            The AGOP, on the CPU.

        Raises:
            FileError: It isn't an AGOP file, or its content has changed since.

        Example:
            >>> prior = agop.AGOP.load("prior.safetensors")
            >>> maps = agop.explain(model, images, prior=prior)
        """
        path = Path(path)
        content = read_bytes(path)
        try:
            tensors = tensors_from_bytes(content)
            values = json.loads(safetensors_metadata(content)[_KEY])
            file_format = values["format"]
        except (SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
            raise FileError(
                f"{path} is not an AGOP file, or is truncated ({type(error).__name__}: {error}): "
                "create one with agop.fit or AGOPTrainingHook"
            ) from error
        if file_format != FORMAT:
            raise FileError(
                f"{path} has format {file_format}, this agop reads format {FORMAT}: upgrade agop, or make it again"
            )
        if values.pop(_CHECKSUM, None) != _checksum(tensors, values):
            raise FileError(f"{path} is a corrupt AGOP file (its content doesn't match its checksum): make it again")
        provenance = Provenance.from_dict(values)
        known: dict[str, Any] = {name: tensors.get(name) for name in _TENSORS}
        return cls(count=provenance.count or 0, provenance=provenance, **known)

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.diagonal.shape))
        by_class = "" if self.class_diagonals is None else f", {len(self.class_diagonals)} classes"
        return f"AGOP({shape}, {self.count:,} samples, {self.provenance.kind or 'made by hand'}{by_class})"

    def _repr_html_(self) -> str:
        from agop.prior.show import html_of  # Pillow is imported only where it's used

        return html_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy has no checked models: models aren't pickled with their prior.
        return AGOP, tuple(getattr(self, item.name) for item in fields(self) if item.init)


_TENSORS = (
    "diagonal", "class_diagonals", "class_counts", "patch_matrix", "class_patch_matrices", "sketch", "image_moments",
)  # fmt: skip


def is_agop_file(path: Path) -> bool:
    """True if the file's header is that of an AGOP file."""
    try:
        with safe_open(path, "pt") as file:
            return _KEY in (file.metadata() or {})
    except (SafetensorError, OSError):
        return False


def _checksum(tensors: Tensors, values: dict[str, Any]) -> str:
    """Digest of the metadata and of all tensors with their names, dtypes and shapes."""
    digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        # As bytes, because NumPy doesn't have all of torch's dtypes.
        digest.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
