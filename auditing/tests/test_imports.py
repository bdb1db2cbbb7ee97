"""The audit imports NumPy, PyTorch, the standard library and itself only.

It runs in the process of another project, which may have modules of any other name.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1]
ALLOWED = {"numpy", "torch", "auditing"} | sys.stdlib_module_names
MODULES = [
    path
    for path in FOLDER.rglob("*.py")
    if "tests" not in path.parts and "build" not in path.parts
]


def imported(source: str) -> Iterator[str]:
    """The top-level packages that a module imports anywhere in it."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


@pytest.mark.parametrize(
    "path", MODULES, ids=lambda path: path.relative_to(FOLDER).as_posix()
)
def test_modules_import_few_packages(path: Path) -> None:
    assert set(imported(path.read_text(encoding="utf-8"))) - ALLOWED == set()


def test_a_module_of_another_package_is_noticed() -> None:
    assert set(imported("def main():\n    from data.play import floor")) - ALLOWED == {
        "data"
    }
