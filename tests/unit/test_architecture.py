"""Who may import whom, read from the imports."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import agop

SOURCE = Path(agop.__file__).parent
# A package may import from its own line and from the lines above it.
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
NOT_PLUGINS = {"__init__", "base", "channels", "layer_method", "own", "curves"}


def imports(path: Path) -> set[str]:
    """Modules that a file imports, also inside functions, but not for type checkers alone."""
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


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_every_package_has_its_place():
    assert {room(path) for path in files()} == set(LEVEL)


def test_few_modules_at_the_top():
    assert len(list(SOURCE.glob("*.py"))) <= 8


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_downwards(path):
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "agop" and len(parts) > 1 and parts[1] in LEVEL:
            assert LEVEL[parts[1]] <= LEVEL[room(path)], f"{path.name} imports {name}"


def test_no_import_cycle_lazy_imports_counted():
    modules = {dotted(path): imports(path) for path in files()}
    sorter = TopologicalSorter({name: (needed & modules.keys()) - {name} for name, needed in modules.items()})
    sorter.prepare()  # raises CycleError, which names the cycle


def dotted(path: Path) -> str:
    return ".".join(("agop", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


@pytest.mark.parametrize("package", ["methods", "metrics"])
def test_plugins_never_import_one_another(package):
    plugins = {path.stem for path in (SOURCE / package).glob("*.py")} - NOT_PLUGINS
    for path in (SOURCE / package).glob("*.py"):
        if path.stem in plugins:
            assert not {name.split(".")[2] for name in imports(path) if name.startswith(f"agop.{package}.")} & plugins


def test_reports_never_import_torch():
    """Neither themselves nor through what they import."""
    code = "import sys, agop.report.formats, agop.report.terminal; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_core_never_imports_torchvision_or_an_extra():
    for path in (path for path in files() if room(path) != "interop"):
        roots = {name.split(".")[0] for name in imports(path)}
        assert not roots & {"torchvision", "timm", "transformers", "captum", "lightning", "quantus"}
        assert "matplotlib" not in roots or room(path) == "plot"
        assert "gradio" not in roots or room(path) == "app"


def test_matplotlib_is_imported_when_a_figure_is_made():
    code = "import sys, agop; agop.plot, agop.explain, agop.evaluate; print('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_importing_agop_alone_does_not_import_torch():
    code = "import sys, agop; print('torch' in sys.modules, agop.__version__, sorted(dir(agop))[:2])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("False 0.")


def test_the_public_names_are_there_and_others_are_not():
    assert all(getattr(agop, name) is not None for name in agop.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        agop.nothing  # noqa: B018
