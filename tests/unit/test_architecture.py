"""Package structure: imports go downwards, and the public names are complete."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import agop

SOURCE = Path(agop.__file__).parent
# A module or package imports only from lines above and from its own line.
LAYERS = [
    ["errors"],
    ["registry", "io", "processes", "stats", "tables", "web"],
    ["model"],
    ["prior"],
    ["methods", "metrics"],
    ["explanation"],
    ["collect"],
    ["images"],
    ["report", "evaluation"],
    ["auditing"],
    ["plot", "integrations", "app", "bench"],
    ["cli", "__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# Large or optional libraries, and the only package that imports them.
OWNERS = {
    "matplotlib": "plot", "gradio": "app", "captum": "integrations", "lightning": "integrations",
    "quantus": "integrations", "timm": "integrations", "torchvision": "integrations", "transformers": "integrations",
}  # fmt: skip


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


FILES = {
    ".".join(("agop", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__"): imports(path)
    for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"
}  # fmt: skip


def package(module: str) -> str:
    return module.split(".")[1]


def test_every_package_has_a_layer():
    assert {package(module) for module in FILES} == set(LEVEL)


@pytest.mark.parametrize("module", FILES)
def test_imports_go_downwards(module):
    own = [name for name in FILES[module] if name.startswith("agop.") and package(name) in LEVEL]
    assert [name for name in own if LEVEL[package(name)] > LEVEL[package(module)]] == []
    for library, owner in OWNERS.items():
        assert package(module) == owner or library not in {name.split(".")[0] for name in FILES[module]}


def test_no_import_cycles_including_lazy_imports():
    sorter = TopologicalSorter({name: (needed & FILES.keys()) - {name} for name, needed in FILES.items()})
    sorter.prepare()  # raises CycleError, which names the cycle


@pytest.mark.parametrize(
    ("code", "libraries"),
    [
        ("import agop; agop.__version__, dir(agop), agop.AGOPError", {"torch", "numpy", "scipy", "pandas"}),
        ("import agop.report.formats", {"torch"}),
        ("import agop; agop.explain, agop.evaluate, agop.audit", {"matplotlib", "gradio"}),
    ],
)
def test_large_libraries_are_imported_only_when_needed(code, libraries):
    """Neither directly nor through other modules."""
    subprocess.run([sys.executable, "-c", f"{code}; import sys; assert not {libraries} & set(sys.modules)"], check=True)


def test_public_names_exist_and_unknown_names_raise():
    assert all(getattr(agop, name) is not None for name in agop.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        agop.nothing  # noqa: B018


def test_the_reference_lists_the_public_names():
    page = (Path(__file__).parents[2] / "docs/api.md").read_text()
    assert set(re.findall(r"^::: agop\.(\w+)$", page, re.MULTILINE)) - {"bench", "errors", "integrations"} == set(
        agop.__all__
    )
