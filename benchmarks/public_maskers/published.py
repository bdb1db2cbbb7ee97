"""Runs a function of an installed package as published, without the package's other requirements.

Many packages that mask tokens need a deep-learning framework, a compiler or a service to be imported at all, for the
sake of code that has nothing to do with masking. Here the source of one function is taken from the installed file and
executed alone, so that `pip install --no-deps` is enough.
"""

import ast
from collections.abc import Callable
from importlib.metadata import distribution
from typing import Any


def published(package: str, path: str, *names: str, **globals: Any) -> list[Callable[..., Any]]:
    """The functions `names` of the file `path` of an installed `package`; "Class.method" is returned as a function
    whose first argument is `self`. `globals` are the names that they use. Decorators are dropped.

    Raises importlib.metadata.PackageNotFoundError without the package, ValueError without the function.
    """
    file = distribution(package).locate_file(path)
    tree = ast.parse(open(str(file), encoding="utf-8").read())  # noqa: SIM115
    namespace = dict(globals)
    return [executed(found(tree, name), str(file), namespace) for name in names]


def found(tree: ast.Module, name: str) -> ast.FunctionDef:
    """The definition of a function or method in a module. Raises ValueError if there is none."""
    *classes, function = name.split(".")
    body: list[ast.stmt] = tree.body
    for part in classes:
        body = next((node.body for node in body if isinstance(node, ast.ClassDef) and node.name == part), [])
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == function:
            return node
    raise ValueError(f"no {name} in the published file: another version is installed")


def executed(definition: ast.FunctionDef, file: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    """The function that a definition defines. Annotations are not evaluated: they may name types that are not there."""
    definition.decorator_list = []
    module = ast.Module([ast.parse("from __future__ import annotations").body[0], definition], type_ignores=[])
    exec(compile(ast.fix_missing_locations(module), file, "exec"), namespace)
    result: Callable[..., Any] = namespace[definition.name]
    return result
