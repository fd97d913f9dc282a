"""The first line of a docstring is an imperative verb or a noun phrase, not a clause, and the words are plain ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("freshet", "kernels", "gnn", "state", "partitioner", "operators", "job", "scripts")
CLAUSE = re.compile(r"(What|How|Whether|That|Who|Where|When|Which|Why|If|As|It|Is|Of|By|Those)\b")
DIALECT = re.compile(r"\b(so many|afresh|anew|as \w+ has it|held against)\b")
DEFINES = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(package: str) -> Iterator[tuple[str, str]]:
    """Each docstring of a package, with its place; folders that are links to other packages are left out."""
    for file in sorted((ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, DEFINES) and (text := ast.get_docstring(node)):
                yield f"{file.relative_to(ROOT)}:{node.body[0].lineno}", text


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_begin_with_a_verb_or_a_noun_phrase(package: str) -> None:
    found = dict(docstrings(package))
    assert found
    assert not {place: text.splitlines()[0] for place, text in found.items() if CLAUSE.match(text)}


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_have_plain_words(package: str) -> None:
    assert not {
        place: match[0] for place, text in docstrings(package) if (match := DIALECT.search(" ".join(text.split())))
    }
