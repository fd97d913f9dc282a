"""The bad-input test, short: every way to be wrong, through Kafka and Flink (scripts/drills/bad_input.py has more)."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.partitioner.config import TYPES_MAX
from tests.drills.bad_input import BadInput, Case
from tests.support.kafka.topics import require_jars
from tests.support.malformed.records import all_ways
from tests.support.runs.judge import say

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _jars() -> None:
    """The jars come over the network once; without it there is nothing to test."""
    require_jars()


@pytest.mark.long
def test_a_tenth_of_the_stream_is_malformed_in_all_ways(tmp_path: Path) -> None:
    outcome = BadInput(Case(events=12_000, seed=1), tmp_path, say).run()
    assert outcome.good, outcome.notes
    assert len(outcome.by_way) == len(all_ways()) + 1 >= 30
    assert all(found["letters"] == found["sent"] > 0 for found in outcome.by_way.values())
    assert outcome.figures["letters"] == outcome.figures["rejected"] > 1_200
    assert outcome.figures["without_parser"]["events"] == 10_800 + TYPES_MAX
