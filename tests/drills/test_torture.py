"""The kill test, short: a TaskManager, the JobManager and the broker die once each (scripts/torture has the rest).

Two subtasks read the topic, then three, of five partitions in place of four.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.operators.sink.epoch_files import EPOCHS_SCHEMA
from tests.drills.torture import BROKER, JOB_MANAGER, TASK_MANAGER, Case, Torture, visible
from tests.support.kafka.topics import require_jars
from tests.support.runs.judge import say

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_nothing_is_lost_or_doubled_under_kills(tmp_path: Path) -> None:
    require_jars()
    torture = Torture(Case(seed=1, kills=3, events=6_000, delivery="exactly-once", readers=2), tmp_path, say)
    outcome = torture.run()
    assert outcome.good, outcome
    assert torture.killed == {TASK_MANAGER: 1, JOB_MANAGER: 1, BROKER: 1}
    assert torture.resumed >= 1


def test_the_digest_of_an_epoch_does_not_depend_on_others(tmp_path: Path) -> None:
    """An epoch without input has no source; alone in its file, its columns had other types of numpy."""
    (tmp_path / "epochs").mkdir()
    nowhere = {"epoch": 1, "source": None, "partition": None, "next_offset": None, "events": 0}
    somewhere = {"epoch": 2, "source": "kafka://h:1/t", "partition": 0, "next_offset": 5, "events": 3}
    found = []
    for rows in ([nowhere], [nowhere, somewhere], [nowhere, {**somewhere, "events": 4}]):
        pq.write_table(pa.Table.from_pylist(rows, EPOCHS_SCHEMA), tmp_path / "epochs" / "epochs-00000000.parquet")
        found.append(visible(tmp_path))
    assert len({each["epochs", 1] for each in found}) == 1
    assert found[1]["epochs", 2] != found[2]["epochs", 2]
