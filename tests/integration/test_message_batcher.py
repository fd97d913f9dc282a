"""Messages gathered in Java before Python is called (`tests/support/kafka/batcher_job.py`)."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from tests.support.kafka.batcher_job import LARGE, SLOW_ROWS, many_messages

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def batches(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("batcher") / "out"
    command = [sys.executable, "-m", "tests.support.kafka.batcher_job", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((out / "batches.json").read_text())


def test_messages_come_as_they_are_and_in_their_order(batches: Any) -> None:
    found = [
        (p, o, *(None if one is None else base64.b64decode(one) for one in both))
        for p, o, *both in chain(*batches["many"])
    ]
    assert found == [(p, o, value, key if value is None else None) for p, o, value, key in many_messages()]


def test_a_batch_is_sent_when_it_is_full(batches: Any) -> None:
    first, *others, last = batches["many"]
    assert len(first) == 1, "nothing came before it, so it does not wait"
    values = [[value if value is not None else key for _, _, value, key in one] for one in others]
    sizes = [[16 + (value is not None) + len(base64.b64decode(value or "")) for value in one] for one in values]
    assert all(8 + sum(batch) >= 1000 or len(batch) == 50 for batch in sizes)
    assert all(8 + sum(batch[:-1]) < 1000 for batch in sizes), "not later, either"
    assert any(batch[-1] > LARGE for batch in sizes)
    assert len(last) <= 50


def test_what_waits_is_sent_before_a_barrier(batches: Any) -> None:
    """The limits are never reached, and the wait is a day: only checkpoints send anything, one every fifth second."""
    assert len(batches["by barriers"]) == 3
    assert_begins_the_stream(batches["by barriers"])


def test_what_waits_long_enough_is_sent(batches: Any) -> None:
    """Without checkpoints, and with a wait of 100 ms: the first message of a later burst comes after a pause."""
    assert len(batches["by time"]) >= 3
    assert len(batches["by time"][-1]) == 1
    assert_begins_the_stream(batches["by time"])


def assert_begins_the_stream(found: Any) -> None:
    assert len(found[0]) == 1, "nothing came before it, so it does not wait"
    offsets = [offset for _, offset, *_ in chain(*found)]
    assert offsets == list(range(len(offsets)))
    assert len(offsets) < SLOW_ROWS, "long before the end"
