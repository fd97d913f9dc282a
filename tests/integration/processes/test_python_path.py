"""PYTHONPATH may name other versions of what we need: they come last, and what users bring themselves is found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from freshet.job.machine.python_path import own_folders, python_environ
from tests.support.runs.elsewhere import other_flink

FRESHET = Path(sys.executable).with_name("freshet")


def test_own_folders_come_first() -> None:
    given = ["/spark/python", own_folders()[0], "/layers"]
    found = python_environ({"PYTHONPATH": os.pathsep.join(given), "A": "1"})
    assert found["PYTHONPATH"].split(os.pathsep) == [*own_folders(), "/spark/python", "/layers"]
    assert found["A"] == "1"
    assert python_environ({})["PYTHONPATH"] == os.pathsep.join(own_folders())


def test_other_packages_are_not_taken_for_ours_and_modules_of_users_are_found_before_folders_of_the_checkout(
    tmp_path: Path,
) -> None:
    users = tmp_path / "users"
    users.mkdir()
    for name in ("gnn", "job", "state"):
        (users / f"{name}.py").write_text(f"HERE = {name!r}\n")
    (users / "mine.py").write_text("import gnn, job, state\nraise ValueError(gnn.HERE + job.HERE + state.HERE)\n")
    environ = os.environ | other_flink(tmp_path)
    environ["PYTHONPATH"] = os.pathsep.join([str(users), environ["PYTHONPATH"]])
    weights = tmp_path / "weights.pt"
    weights.touch()
    command = [FRESHET, "model", "import", "mine:Net", "--weights", str(weights), "--out", str(tmp_path / "M")]
    done = subprocess.run(command, env=environ, cwd="/", capture_output=True, text=True, timeout=600, check=False)
    assert "another" not in done.stderr
    assert "gnnjobstate" in done.stderr
