"""A local job with little memory: tables in files, given up, read again, killed and resumed; the rows are the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.unit.test_imports import ROOT

BENCH = ROOT / "scripts" / "bench" / "paging.py"


@pytest.mark.timeout(600)
def test_rows_do_not_depend_on_memory_nor_on_kills(disk_path: Path) -> None:
    """Of 64 MiB the process alone takes several times as much, so that all pages are given up again and again."""
    sizes = ["--vertices", "20000", "--edges", "100000", "--events", "6000"]
    command = [sys.executable, str(BENCH), *sizes, "--memory", "64MiB", "--kills", "2", "--stream", "skewed"]
    ended = subprocess.run([*command, "--work", str(disk_path)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    result = orjson.loads(ended.stdout.splitlines()[-1])
    assert result["differing"] == 0
    everything, little = result["runs"]
    assert everything["memory"] == "all"
    assert little["written_GB"] > everything["written_GB"]  # pages of tables went to the disk
