"""Tests and scripts seldom reach for private names of the product: each ties a test to how a thing is done."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.unit.test_imports import ROOT, package_files

REACHES_MAX = 195  # it may only fall
_PUBLIC = {"_asdict", "_fields", "_make", "_replace", "_repr_html_"}  # in spite of their names: of tuples, and IPython


def is_private(name: object) -> bool:
    return isinstance(name, str) and name.startswith("_") and not name.startswith("__") and name not in _PUBLIC


def is_own(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def defined(tree: ast.AST) -> set[str]:
    """The private names that a module defines: of functions, classes, variables and attributes."""
    found: set[object] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            found.add(node.attr)
    return {str(name) for name in found if is_private(name)}


def reached(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The private names of others that a module imports, takes as attributes, or sets by `monkeypatch.setattr`."""
    for node in ast.walk(tree):
        names: list[object] = []
        if isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and not is_own(node.value):
            names = [node.attr]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "setattr":
            names = [one.value for one in node.args[1:2] if isinstance(one, ast.Constant)]
        yield from ((node.lineno, str(name)) for name in names if is_private(name))


def reaches() -> list[str]:
    ours = set().union(*(defined(ast.parse(file.read_text())) for file in package_files()))
    assert len(ours) > 500
    found = []
    for file in sorted(path for top in ("tests", "scripts") for path in (ROOT / top).rglob("*.py")):
        tree = ast.parse(file.read_text())
        own = defined(tree)
        where = Path(file).relative_to(ROOT)
        found += [f"{where}:{line} {name}" for line, name in reached(tree) if name in ours - own]
    return found


def test_reaches_are_few() -> None:
    found = reaches()
    assert len(found) <= REACHES_MAX, "\n".join(found)
