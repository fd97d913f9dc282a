"""A new job is prepared in steps; the options of `freshet run` go to the first of them, and not further."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.unit.test_house import modules
from tests.unit.test_imports import ROOT

# Who is handed all options: what checks and words them, a run's own code, and the first three steps of a new job.
SEES_OPTIONS = {
    "job/application/checks.py",
    "job/application/manifest.py",
    "job/options/run_config.py",
    "job/python/options.py",
    "job/run/outputs.py",
    "job/run/model.py",
    "job/run/new_job.py",
    "job/run/preflight.py",
    "job/run/resume.py",
    "job/run/runner.py",
    "job/run/session.py",
    "job/run/settings.py",
}
STOPS_MAX = 31


def stops(file: Path) -> int:
    """Return how many parameters, attributes and variables are annotated as all options."""
    found = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.arg | ast.AnnAssign)]
    return sum("RunConfig" in ast.unparse(one.annotation) for one in found if one.annotation is not None)


def test_all_options_go_to_the_first_steps_alone() -> None:
    files = [file for file in modules() if not file.is_relative_to(ROOT / "tests")]
    found = {file.relative_to(ROOT).as_posix(): count for file in files if (count := stops(file))}
    assert set(found) == SEES_OPTIONS
    assert sum(found.values()) <= STOPS_MAX
