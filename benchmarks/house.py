"""How large the code is, and how many files a reader opens to follow one call: `make house`."""

from __future__ import annotations

import ast
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
# Modules that users import. A test that imports another one depends on the layout.
PUBLIC = {
    "agop", "agop.bench", "agop.bench.scenarios", "agop.errors", "agop.integrations", "agop.integrations.captum",
    "agop.integrations.lightning", "agop.integrations.quantus", "agop.integrations.transformers", "agop.methods",
    "agop.metrics", "agop.plot",
}  # fmt: skip
_BELOW_THE_AUDIT = tuple(f"agop/{name}" for name in ("model", "prior", "methods", "metrics", "registry", "errors"))
BARS = {
    "files in src": 130,
    "lines in src": 22_500,
    "lines in tests": 21_000,
    "modules with one importer": 15,
    "functions of at most 6 lines with one call": 80,
    "files below 60 lines": 20,
    "test files that import a non-public module, %": 40,
    "files opened by explain": 12,
    "files opened by a hook step to the file": 9,
    "files opened by an audit": 14,
}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def lines(paths: list[Path]) -> int:
    return sum(path.read_text().count("\n") for path in paths)


def imported(tree: ast.AST, modules: set[str]) -> set[str]:
    """The modules of agop that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules
        elif isinstance(node, ast.ImportFrom) and node.module in modules:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & modules
            if names - modules:
                found.add(node.module)
    return found


def sizes(wanted: list[str]) -> dict[str, float]:
    """Counts over the files of src and tests. Names in `wanted` are also listed."""
    files = sorted(SOURCE.rglob("*.py"))
    trees = {module_of(path): ast.parse(path.read_text()) for path in files}
    importers: dict[str, set[str]] = defaultdict(set)
    functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = defaultdict(list)
    uses: Counter[str] = Counter()
    for module, tree in trees.items():
        for needed in imported(tree, set(trees)) - {module}:
            importers[needed].add(module)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list:
                functions[node.name].append(node)
            elif isinstance(node, ast.Name | ast.Attribute):
                uses[node.id if isinstance(node, ast.Name) else node.attr] += 1
    packages = {module_of(path) for path in files if path.name == "__init__.py"}
    single = sorted(module for module, who in importers.items() if len(who) == 1 and module not in packages)
    once = sorted(
        name
        for name, found in functions.items()
        if len(found) == 1 and uses[name] == 1 and not name.startswith("__")
        and (found[0].end_lineno or 0) - found[0].lineno < 6
    )  # fmt: skip
    small = sorted(module_of(path) for path in files if path.name != "__init__.py" and lines([path]) < 60)
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    private = sorted(
        str(path.relative_to(ROOT)) for path in tests if imported(ast.parse(path.read_text()), set(trees)) - PUBLIC
    )
    for title, names in (("single", single), ("once", once), ("small", small), ("private", private)):
        if title in wanted:
            print(f"{title}:", *names, sep="\n  ")
    counts = [
        len(files),
        lines(files),
        lines(sorted((ROOT / "tests").rglob("*.py"))),
        len(single),
        len(once),
        len(small),
    ]
    return dict(zip(BARS, [*counts, round(100 * len(private) / len(tests))], strict=False))


def opened(call: Callable[[], Any]) -> set[str]:
    """The files of agop whose functions run during a call, without imports."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name not in ("<module>", "__getattr__") and str(SOURCE) in code.co_filename:
            files.add(str(Path(code.co_filename).relative_to(SOURCE)))

    call()  # imports first
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return files


def walks() -> dict[str, set[str]]:
    """Files opened by one explanation, by one step of the hook and its file, and by one audit."""
    import torch

    import agop

    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(256, 2)
    )
    images, labels = torch.rand(80, 1, 8, 8), torch.arange(80) % 2
    images[labels == 1, :, :3, :3] += 2
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(30):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
    prior = agop.fit(model, [(images, labels)], progress=False)

    def step() -> None:
        hook = agop.AGOPTrainingHook(model)
        hook.step(images, labels)
        with tempfile.TemporaryDirectory() as folder:
            hook.finalize().save(Path(folder) / "agop.safetensors")

    audited = opened(lambda: agop.audit(model, images, labels, progress=False))
    return {
        "files opened by explain": opened(lambda: agop.explain(model, images[:4], prior=prior)),
        "files opened by a hook step to the file": opened(step),
        # Without what it asks for maps, scores and priors, which the lines above count, and without lookups of names.
        "files opened by an audit": {path for path in audited if not path.startswith(_BELOW_THE_AUDIT)},
    }


def main() -> None:
    wanted = sys.argv[1:]
    values: dict[str, float] = sizes(wanted)
    for name, files in walks().items():
        values[name] = len(files)
        if "walks" in wanted:
            print(f"{name}:", *sorted(files), sep="\n  ")
    print(f"{'':50}{'now':>8}{'bar':>8}")
    for name, value in values.items():
        mark = "" if value <= BARS[name] else "  above"
        print(f"{name:50}{value:>8,.0f}{BARS[name]:>8,}{mark}")


if __name__ == "__main__":
    main()
