"""Names, descriptions and options of the methods and metrics, read from their source: importing them imports torch."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import agop

_PACKAGES = Path(agop.__file__).parent


@dataclass(frozen=True)
class MethodSource:
    """What `agop list` shows of a method. `options` are texts such as "steps=50"."""

    name: str
    description: str
    needs: tuple[str, ...]
    options: tuple[str, ...]


@dataclass(frozen=True)
class MetricSource:
    """What `agop list` shows of a metric."""

    name: str
    description: str
    higher_is_better: bool


S = TypeVar("S", MethodSource, MetricSource)


def method_sources() -> list[MethodSource]:
    """All methods, in the order of `agop.methods.names()`: every class of the package with a `name`."""
    trees = _trees("methods")
    classes = {node.name: node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)}
    named = (node for node in classes.values() if "name" in dict(_assigned(node)))
    return _ordered([_method(node, classes) for node in named], trees)


def metric_sources() -> list[MetricSource]:
    """All metrics, in the order of `agop.metrics.names()`: every function of the package decorated with @metric()."""
    trees = _trees("metrics")
    functions = (node for tree in trees for node in tree.body if isinstance(node, ast.FunctionDef))
    decorated = ((node, call) for node in functions for call in node.decorator_list if isinstance(call, ast.Call))
    metrics = [
        MetricSource(node.name, _first_line(node), _keyword(call, "higher_is_better", True))
        for node, call in decorated
        if ast.unparse(call.func) == "metric"
    ]
    return _ordered(metrics, trees)


def _trees(package: str) -> list[ast.Module]:
    """The package's modules, in the order in which they are imported."""
    return [ast.parse(path.read_text(encoding="utf-8")) for path in sorted((_PACKAGES / package).glob("*.py"))]


def _ordered(sources: list[S], trees: Sequence[ast.Module]) -> list[S]:
    """The sources in the order of the package's constant FIRST, then the others."""
    constants = (node for tree in trees for node in tree.body if isinstance(node, ast.Assign))
    first = next(ast.literal_eval(node.value) for node in constants if ast.unparse(node.targets[0]) == "FIRST")
    return sorted(sources, key=lambda source: first.index(source.name) if source.name in first else len(first))


def _method(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> MethodSource:
    ancestors = list(_ancestors(node, classes))
    values = {name: value for each in ancestors for name, value in _assigned(each)}
    options = {
        statement.target.id: ast.unparse(statement.value)
        for each in ancestors
        for statement in each.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value
        if not ast.unparse(statement.annotation).startswith("ClassVar")
    }
    return MethodSource(
        ast.literal_eval(values["name"]),
        _first_line(node),
        tuple(word for word in ("model", "prior", "references") if ast.literal_eval(values[f"needs_{word}"])),
        tuple(f"{name}={default}" for name, default in options.items()),
    )


def _ancestors(node: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Iterator[ast.ClassDef]:
    """The class's bases in the package, the most basic one first, then the class."""
    for base in node.bases:
        name = ast.unparse(base).rpartition(".")[2]
        if name in classes:
            yield from _ancestors(classes[name], classes)
    yield node


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """Name and value of each assignment in the class."""
    for statement in node.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else getattr(statement, "target", None)
        value = getattr(statement, "value", None)
        if isinstance(target, ast.Name) and value is not None:
            yield target.id, value


def _keyword(call: ast.Call, name: str, default: bool) -> bool:
    return next((ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg == name), default)


def _first_line(node: ast.ClassDef | ast.FunctionDef) -> str:
    return (ast.get_docstring(node) or node.name).splitlines()[0]
