"""docs/guide/runbook.md: thirteen failures, each with a message of the product, a command that exists, and a cure."""

from __future__ import annotations

import ast
import re
from functools import lru_cache

import pytest
import yaml

from tests.unit.docs.test_commands import ROOT, blocks
from tests.unit.test_imports import package_files

ALERTS = ROOT / "deploy" / "alerts.yml"
PAGE = ROOT / "docs" / "guide" / "runbook.md"
ANY = "…"
OTHERS = {"No space left on device"}  # of the operating system


@lru_cache
def templates() -> list[str]:
    """Every text of the product, with … for what is inserted."""
    found = []
    for file in package_files():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(one.value if isinstance(one, ast.Constant) else ANY for one in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    assert len(found) > 3000
    return found


def quoted() -> list[str]:
    return [line for block in blocks(PAGE, "says") for line in block.splitlines()]


@pytest.mark.parametrize("line", quoted())
def test_what_is_quoted_is_said(line: str) -> None:
    if line in OTHERS:
        return
    pattern = ".*".join(re.escape(part) for part in line.split(ANY))
    assert any(re.fullmatch(pattern, text) or re.match(f"{pattern}$", text) for text in templates()), line


def test_a_message_that_nobody_has_is_found() -> None:
    pattern = re.compile(".*".join(map(re.escape, "cluster has … slots, and … are wanted".split(ANY))))
    assert not any(pattern.fullmatch(text) for text in templates())


def test_there_are_thirteen_each_with_all_that_it_takes() -> None:
    sections = re.split(r"^## \d+\. ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    assert len(sections) == 13
    for section in sections:
        assert "```says\n" in section
        assert re.search(r"^- Alert: `Freshet", section, flags=re.MULTILINE), section[:40]
        assert re.search(r"^- Look: .*`", section, flags=re.MULTILINE), section[:40]
        assert re.search(r"^- Cure: ", section, flags=re.MULTILINE), section[:40]


def test_every_alert_has_a_case() -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    assert {rule["alert"] for rule in rules} == set(re.findall(r"`(Freshet[A-Z]\w+)`", PAGE.read_text()))
