"""What `make demo` shows, on the local runtime: a stream of all five kinds of events, exact embeddings at its end."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import orjson
import pytest

from freshet.partitioner.events import OP_NAMES
from tests.support.runs.jobs import DEADLINE_S, ROOT

pytestmark = pytest.mark.slow


def test_the_demo_is_exact_over_all_kinds_of_events(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    command = [sys.executable, "scripts/demo.py", "--runtime", "local", "--no-picture", "--out", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    kinds = Counter(orjson.loads(line)["op"] for line in (folder / "events.jsonl").read_bytes().splitlines())
    assert kinds.keys() == set(OP_NAMES)
    assert min(kinds.values()) > 100
    assert kinds.total() >= 5_000
    summary, check = (orjson.loads(line) for line in done.stdout.splitlines() if line.startswith("{"))
    assert (summary["events"], summary["rejected"]) == (kinds.total(), 0)
    assert check["vertices"] == summary["vertices"] > 2_000
    assert check["max_rel_error"] <= 1e-4
    assert check["missing"] == check["extra"] == 0
