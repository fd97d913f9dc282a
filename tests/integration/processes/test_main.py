"""The job as a program that Flink's client starts by the path of its file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_imports import ROOT


@pytest.mark.parametrize(
    ("content", "told"), [(None, "there is no such file"), ("no json", "damaged"), ('{"name": 1}', "damaged")]
)
def test_a_wrong_spec_is_one_line_and_exit_code_2(tmp_path: Path, content: str | None, told: str) -> None:
    spec = tmp_path / "job.json"
    if content is not None:
        spec.write_text(content)
    command = [sys.executable, str(ROOT / "job" / "main.py"), "--spec", str(spec)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 2
    assert str(spec) in done.stderr and told in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_copy_of_the_file_finds_the_package_that_is_installed(tmp_path: Path) -> None:
    copy = tmp_path / "main.py"
    copy.write_bytes((ROOT / "job" / "main.py").read_bytes())
    command = [sys.executable, str(copy), "--spec", str(tmp_path / "job.json")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, "there is no such file" in done.stderr) == (2, True)
