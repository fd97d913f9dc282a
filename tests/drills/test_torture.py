"""The kill test, short: a TaskManager, the JobManager and the broker die once each (scripts/torture has the rest).

Two subtasks read the topic, then three, of five partitions in place of four.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drills.torture import BROKER, JOB_MANAGER, TASK_MANAGER, Case, Torture
from tests.support.kafka.topics import require_jars
from tests.support.runs.judge import say

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_nothing_is_lost_or_doubled_under_kills(tmp_path: Path) -> None:
    require_jars()
    torture = Torture(Case(seed=1, kills=3, events=6_000, delivery="exactly-once", readers=2), tmp_path, say)
    outcome = torture.run()
    assert outcome.good, outcome
    assert torture.killed == {TASK_MANAGER: 1, JOB_MANAGER: 1, BROKER: 1}
    assert torture.resumed >= 1
