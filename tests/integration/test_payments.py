"""The scripts of payments at a small size, as a user runs them: each payment of two accounts is an edge of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq

from tests.support.runs.jobs import DEADLINE_S, ROOT


def script(name: str, *words: object) -> dict[str, Any]:
    """The JSON line of a script that ends well."""
    command = [sys.executable, ROOT / "scripts" / "payments" / name, *words]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = orjson.loads(done.stdout.splitlines()[-1])
    return found


def test_rows_are_those_of_the_users_own_model(tmp_path: Path) -> None:
    found = script("parallel.py", "--folder", tmp_path, "--accounts", 300, "--payments", 700)
    assert (found["rows"], found["missing"], found["payments"]) == (300, 0, 700)
    assert found["max_difference"] < 1e-6 * found["max_value"]
    assert found["pairs_repeated"] >= found["pairs"] / 5 and found["rows_wrong_without_keys"] > 50


def test_payments_of_a_pair_stay_apart(tmp_path: Path) -> None:
    made = script("stream.py", tmp_path, "--accounts", 60, "--payments", 3000)
    edges = pq.read_table(tmp_path / "snapshot" / "edges.parquet").to_pylist()
    events = [orjson.loads(line) for line in (tmp_path / "events.jsonl").read_bytes().splitlines()]
    added = [one for one in events if one["op"] == "add_edge"]
    keyed = {(one["src"], one["dst"], one["type"], one["key"]) for one in [*edges, *added]}
    assert len(keyed) == len(edges) + len(added) == 2 * made["payments"]
    assert len({one[:3] for one in keyed}) < len(keyed)
    deleted = {(one["src"], one["dst"], one["type"], one["key"]) for one in events if one["op"] == "del_edge"}
    assert deleted and deleted < keyed
