"""A new job is prepared in steps; the options of `freshet run` go to the first of them, and not further."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.unit.test_house import modules
from tests.unit.test_imports import ROOT

# Who is handed all options: what checks and words them, a run's own code, and the first three steps of a new job.
SEES_OPTIONS = {
    "job/application/checks.py",
    "job/application/manifest.py",
    "job/options/run_config.py",
    "job/run/outputs.py",
    "job/run/preflight.py",
    "job/run/prepare/ends.py",
    "job/run/prepare/job.py",
    "job/run/prepare/model.py",
    "job/run/prepare/settings.py",
    "job/run/resume.py",
    "job/run/runner.py",
}
STOPS_MAX = 32
ROOMS_MAX = 12


def stops(file: Path) -> int:
    """Return how many parameters, attributes and variables are annotated as all options."""
    found = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.arg | ast.AnnAssign)]
    return sum("RunConfig" in ast.unparse(one.annotation) for one in found if one.annotation is not None)


def test_all_options_go_to_the_first_steps_alone() -> None:
    files = [file for file in modules() if not file.is_relative_to(ROOT / "tests")]
    found = {file.relative_to(ROOT).as_posix(): count for file in files if (count := stops(file))}
    assert set(found) == SEES_OPTIONS
    assert sum(found.values()) <= STOPS_MAX


def rooms_of(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("freshet."):
            yield ".".join((node.module or "").split(".")[1:3])


def test_a_step_knows_few_rooms() -> None:
    rooms = {file.name: len(set(rooms_of(file))) for file in (ROOT / "job/run/prepare").glob("*.py")}
    assert len(rooms) > 5
    assert max(rooms.values()) <= ROOMS_MAX, rooms
