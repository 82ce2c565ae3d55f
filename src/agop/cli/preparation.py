"""What the commands print about their model's input: how images are prepared, and whether weights are random."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from agop.cli.printing import plain_console
from agop.errors import warn
from agop.system.distributed import torchrun_rank

if TYPE_CHECKING:
    from torch import nn

    from agop.pictures.preprocessing import Preprocessing
    from agop.statistic.agop import AGOP

ASSUMED = "assumed"


def report_preprocessing(preprocessing: Preprocessing, sources: Mapping[str, str], prior: AGOP | None) -> None:
    """Print how images are prepared, and warn about what is assumed. Under torchrun, only rank 0 does.

    `sources` say where size, mean and std come from: "from options", "from the prior" …, or ASSUMED.
    """
    from agop.statistic.description import preprocessing_text

    if torchrun_rank()[0] != 0:
        return
    fields = preprocessing.to_dict()
    plain_console().print(f"images: {preprocessing_text(fields)} ({_in_words(sources)})")
    assumed = [name for name, source in sources.items() if source == ASSUMED]
    if assumed:
        reason = "nothing specifies the preprocessing"
        if prior is not None:
            reason = "the prior doesn't record its preprocessing"
        values = ", ".join(f"{name} {_value(fields[name])}" for name in assumed)
        *options, last = (f"--{name}" for name in assumed)
        warn(
            f"{reason} (assuming {values}): pass {', '.join(options)}{' and ' if options else ''}{last} as in training"
        )


def warn_if_random(spec: str, model: nn.Module, again: nn.Module) -> None:
    """Warn if parameters of the model are random: they differ when it is built again."""
    import torch
    from torch.nn.parameter import is_lazy

    names = [
        name
        for (name, ours), theirs in zip(model.named_parameters(), again.parameters(), strict=True)
        if not is_lazy(ours) and not torch.equal(ours, theirs)
    ]
    if names and torchrun_rank()[0] == 0:
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        warn(f"{spec} isn't trained, it has random weights ({names[0]}{more}): pass trained ones with --weights")


def _value(values: Sequence[float]) -> str:
    return "×".join(f"{value:g}" for value in values)


def _in_words(sources: Mapping[str, str]) -> str:
    """The sources, each once: "from options", or "size from options; mean, std assumed"."""
    names: dict[str, list[str]] = {}
    for name, source in sources.items():
        names.setdefault(source, []).append(name)
    if len(names) == 1:
        return next(iter(names))
    return "; ".join(f"{', '.join(fields)} {source}" for source, fields in names.items())
