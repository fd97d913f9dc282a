"""The Flink body of the backend contract, in a job of one process (`tests/support/flink/contract.py`)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.state.backend_contract import BackendContract

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["rocksdb", "hashmap"])
def test_the_flink_backend_keeps_the_contract(tmp_path: Path, backend: str) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "tests.support.flink.contract", str(out), backend]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads((out / "results.json").read_text())
    assert set(results) == {name for name in vars(BackendContract) if name.startswith("test_")}
    failed = {name: error for name, error in results.items() if error}
    assert not failed, "\n".join(failed.values())
