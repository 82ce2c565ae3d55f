"""Package structure: who imports whom."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import agop
from agop import methods, metrics

SOURCE = Path(agop.__file__).parent
# A package may import from its own line and the lines above.
LAYERS = [
    ["errors"],
    ["registry", "system"],
    ["model", "runs"],
    ["statistic", "networks"],
    ["methods", "metrics"],
    ["explaining"],
    ["pictures"],
    ["evaluating", "scenarios"],
    ["bench", "report", "plot", "app", "interop"],
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


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_packages_import_only_from_their_level_or_below(path):
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "agop" and len(parts) > 1 and parts[1] in LEVEL:
            assert LEVEL[parts[1]] <= LEVEL[package(path)], f"{path.name} imports {name}"


def test_no_import_cycles_including_lazy_imports():
    modules = {dotted(path): imports(path) for path in files()}
    sorter = TopologicalSorter({name: (needed & modules.keys()) - {name} for name, needed in modules.items()})
    sorter.prepare()  # raises CycleError, which names the cycle


def dotted(path: Path) -> str:
    return ".".join(("agop", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


PLUGINS = {
    "methods": {methods.get(name).__module__ for name in methods.names()},
    "metrics": {metrics.get(name).function.__module__ for name in metrics.names()},
}


@pytest.mark.parametrize("kind", PLUGINS)
def test_plugins_never_import_one_another(kind):
    """A plug-in is a module that registers something."""
    modules = {dotted(path): imports(path) for path in (SOURCE / kind).glob("*.py")}
    plugins = PLUGINS[kind] & modules.keys()
    assert plugins
    for plugin in plugins:
        assert not modules[plugin] & (plugins - {plugin}), plugin


def test_reports_never_import_torch():
    """Neither directly nor through other modules."""
    code = "import sys, agop.report.formats, agop.report.terminal; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_only_interop_imports_torchvision_or_an_extra():
    for path in (path for path in files() if package(path) != "interop"):
        roots = {name.split(".")[0] for name in imports(path)}
        assert not roots & {"torchvision", "timm", "transformers", "captum", "lightning", "quantus"}
        assert "matplotlib" not in roots or package(path) == "plot"
        assert "gradio" not in roots or package(path) == "app"


def test_matplotlib_is_imported_only_for_a_figure():
    code = "import sys, agop; agop.plot, agop.explain, agop.evaluate; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_importing_agop_alone_does_not_import_torch():
    code = "import sys, agop; print('torch' in sys.modules, agop.__version__, sorted(dir(agop))[:2])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("False 0.")


def test_public_names_exist_and_unknown_names_raise():
    assert all(getattr(agop, name) is not None for name in agop.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        agop.nothing  # noqa: B018
