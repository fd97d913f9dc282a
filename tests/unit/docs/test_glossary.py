"""The glossary and the tables of README and CONTRIBUTING: every term once, and every module that they name exists."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
GLOSSARY = ROOT / "docs" / "glossary.md"
PACKAGES = ("freshet", "kernels", "gnn", "state", "partitioner", "operators", "job", "tests", "scripts", "docs")
PATH = re.compile(rf"`((?:{'|'.join(PACKAGES)})/[\w/.]*)`")


def rows(page: Path) -> list[list[str]]:
    """The cells of all tables of a page, without headings and rules."""
    lines = page.read_text(encoding="utf-8").splitlines()
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line, after in zip(lines, [*lines[1:], ""], strict=True)
        if line.startswith("| ") and not after.startswith("|---")
    ]


def terms() -> list[str]:
    return [term for row in rows(GLOSSARY) for term in re.findall(r"\*\*([^*]+)\*\*", row[0])]


@pytest.mark.parametrize("page", [GLOSSARY, ROOT / "CONTRIBUTING.md", ROOT / "README.md"], ids=lambda page: page.name)
def test_paths_of_tables_and_text_exist(page: Path) -> None:
    named = PATH.findall(page.read_text(encoding="utf-8"))
    assert named or page.name == "README.md"
    assert not [name for name in named if not (ROOT / name).exists()]


def test_each_term_has_one_line_a_meaning_and_a_module() -> None:
    assert len(terms()) > 40
    assert not [term for term, count in Counter(terms()).items() if count > 1]
    assert all(len(row) == 3 and row[1] and PATH.fullmatch(row[2]) for row in rows(GLOSSARY))


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_bold_terms_of_tables_are_in_the_glossary(page: str) -> None:
    bold = {term for row in rows(ROOT / page) for cell in row for term in re.findall(r"\*\*([^*]+)\*\*", cell)}
    assert bold <= set(terms())


@pytest.mark.parametrize("package", ["operators", "job"])
def test_rooms_of_contributing_exist(package: str) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text.split(f"ooms of `{package}/`", 1)[1].split("\n\n", 2)[1]
    rooms = re.findall(r"^\| `(\w+)/` \|", table, flags=re.MULTILINE)
    assert len(rooms) > 8
    assert not [room for room in rooms if not (ROOT / package / room).is_dir()]
