"""Name → plug-in, with "did you mean"."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, Generic, TypeVar

from agop.errors import InputError, UnknownNameError

P = TypeVar("P")
# Of more names than this, an error lists only those close to the unknown one.
_MOST_LISTED = 40


class Registry(Generic[P]):
    """Plug-ins of one kind by name. The names in `first` are listed first."""

    def __init__(self, kind: str, first: Sequence[str] = ()) -> None:
        self.kind, self._first = kind, first
        self.plugins: dict[str, P] = {}

    def add(self, name: str, plugin: P) -> None:
        """Register a plug-in. Raises if the name belongs to another one; the same one may be defined again."""
        if _origin(self.plugins.get(name, plugin)) != _origin(plugin):
            raise InputError(f"there is already a {self.kind} named {name!r}: choose another name")
        self.plugins[name] = plugin

    def names(self) -> list[str]:
        """All names: those of `first`, then the others in order of registration."""
        first = [name for name in self._first if name in self.plugins]
        return first + [name for name in self.plugins if name not in first]

    def get(self, name: str) -> P:
        """The plug-in of that name."""
        if name not in self.plugins:
            raise unknown_name_error(self.kind, name, self.names())
        return self.plugins[name]


def _origin(plugin: object) -> tuple[str, str]:
    """Module and name of a class, or of a metric's function."""
    source: Any = getattr(plugin, "function", plugin)
    return getattr(source, "__module__", ""), getattr(source, "__qualname__", repr(plugin))


def unknown_name_error(kind: str, name: str, known: Sequence[str]) -> UnknownNameError:
    """The error for an unknown name, with the closest known name."""
    library = str(name)[: str(name).find(":") + 1]
    # A prefix that all names share doesn't make two names similar.
    shared = library if all(candidate.startswith(library) for candidate in known) else ""
    plain = {_plain(candidate.removeprefix(shared)): candidate for candidate in known}
    close = [plain[near] for near in get_close_matches(_plain(str(name).removeprefix(shared)), plain, n=5, cutoff=0.5)]
    hint = f"did you mean {close[0]!r}? " if close else ""
    listed = known if len(known) <= _MOST_LISTED else [*close, f"{len(known) - len(close)} more"]
    return UnknownNameError(f"no {kind} is named {name!r}: {hint}known: {', '.join(listed)}")


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
