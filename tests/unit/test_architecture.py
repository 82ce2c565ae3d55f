"""Package structure: who imports whom."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import agop
from agop import interventions, methods, metrics

SOURCE = Path(agop.__file__).parent
# A package may import from its own line and the lines above.
LAYERS = [
    ["errors"],
    ["registry", "system", "web"],
    ["model", "runs"],
    ["statistic", "networks"],
    ["methods", "metrics"],
    ["explaining"],
    ["pictures"],
    ["evaluating", "interventions", "report", "scenarios"],
    ["auditing"],
    ["bench", "plot", "app", "interop"],
    ["cli", "__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def imports(path: Path) -> set[str]:
    """Names that a file imports, also inside functions, but not under TYPE_CHECKING."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(node) for block in ast.walk(tree) if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }  # fmt: skip
    names = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{alias.name}" for alias in node.names} | {str(node.module)}
    return names


def files() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def package(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_package_has_a_level():
    assert {package(path) for path in files()} == set(LEVEL)


def test_at_most_eight_top_level_modules():
    assert len(list(SOURCE.glob("*.py"))) <= 8


def dotted(path: Path) -> str:
    return ".".join(("agop", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


def test_packages_import_only_from_their_level_or_below():
    for path in files():
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "agop" and len(parts) > 1 and parts[1] in LEVEL:
                assert LEVEL[parts[1]] <= LEVEL[package(path)], f"{path} imports {name}"


def test_no_import_cycles_including_lazy_imports():
    modules = {dotted(path): imports(path) for path in files()}
    sorter = TopologicalSorter({name: (needed & modules.keys()) - {name} for name, needed in modules.items()})
    sorter.prepare()  # raises CycleError, which names the cycle


@pytest.mark.parametrize("kind", [interventions, methods, metrics])
def test_plugins_never_import_one_another(kind):
    """A plug-in is a module that registers something."""
    modules = {dotted(path): imports(path) for path in Path(kind.__file__).parent.glob("*.py")}
    registered = [kind.get(name) for name in kind.names()]
    plugins = {getattr(plugin, "function", plugin).__module__ for plugin in registered} & modules.keys()
    assert plugins
    for plugin in plugins:
        assert not modules[plugin] & (plugins - {plugin}), plugin


@pytest.mark.parametrize(
    ("code", "package"),
    [
        ("import agop; agop.__version__, dir(agop)", "torch"),
        ("import agop.report.formats, agop.report.terminal", "torch"),
        ("import agop.statistic.provenance", "torch"),
        ("import agop; agop.plot, agop.explain, agop.evaluate", "matplotlib"),
    ],
)
def test_large_packages_are_imported_only_when_needed(code, package):
    """Neither directly nor through other modules."""
    code = f"{code}; import sys; assert {package!r} not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_only_interop_imports_torchvision_or_an_extra():
    for path in (path for path in files() if package(path) != "interop"):
        roots = {name.split(".")[0] for name in imports(path)}
        assert not roots & {"torchvision", "timm", "transformers", "captum", "lightning", "quantus"}
        assert "matplotlib" not in roots or package(path) == "plot"
        assert "gradio" not in roots or package(path) == "app"


def test_public_names_exist_and_unknown_names_raise():
    assert all(getattr(agop, name) is not None for name in agop.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        agop.nothing  # noqa: B018
