"""Status of a job whose processes do not see its folder: made of Flink's metrics, in the files that all read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from freshet.job.flink.figures import figures_of, is_wanted, look
from freshet.job.flink.rest import FlinkRestError
from freshet.job.lifecycle.summary import complete_epoch, progress, sink_statuses
from freshet.operators.output_folders import STATUS
from freshet.operators.parser.letter_box import read_noted, read_reasons
from freshet.operators.telemetry.positions import read_positions
from freshet.operators.telemetry.profile import Profile
from freshet.operators.telemetry.status_file import await_last

# As a job has them, and some that nobody asks for.
METRICS = {
    "0.partitioner.freshet.events": 3002,
    "0.partitioner.freshet.rejected": 2,
    "0.partitioner.freshet.epochs": 41,
    "0.partitioner.freshet.vertices": 275,
    "0.partitioner.freshet.replaced": 7,
    "0.partitioner.freshet.deletions": 5,
    "0.partitioner.freshet.reason.x__expected_6_numbers.rejected": 2,
    "0.sink.freshet.rows_changed": 900,
    "1.sink.freshet.rows_changed": 100,
    "0.sink.freshet.le.0_01024.applied_seconds_bucket": 10,
    "0.sink.freshet.le.0_02048.applied_seconds_bucket": 40,
    "0.sink.freshet.le.+Inf.applied_seconds_bucket": 41,
    "0.Source__events_(Kafka).KafkaSourceReader.topic.my_events.partition.1.currentOffset": 1674,
    "0.Source__events_(Kafka).KafkaSourceReader.topic.my_events.partition.0.currentOffset": -1,
}
SOURCE = "kafka://h:1/my.events"


class Rest:
    """Answers as Flink would."""

    def __init__(self, values: dict[str, float] | None) -> None:
        self.values = values

    def metrics(self, wanted: Any) -> dict[str, float]:
        if self.values is None:
            msg = "silent"
            raise FlinkRestError(msg)
        return {name: value for name, value in self.values.items() if wanted(name)}


def looked(out: Path, values: dict[str, float] | None = None) -> bool:
    return look(out, Rest(METRICS if values is None else values), 2, [SOURCE])  # type: ignore[arg-type]


def test_what_others_read_is_there(tmp_path: Path) -> None:
    assert looked(tmp_path)
    found = progress(tmp_path)
    assert [found[name] for name in ("events", "rejected", "epoch", "vertices", "rows")] == [3002, 2, 41, 275, 1000]
    assert 10 < found["applied_ms_p50"] < 21
    assert found["latency_ms_p50"] is None
    assert read_reasons(tmp_path) == {"x  expected 6 numbers": 2}
    assert {name: n for name, n in read_noted(tmp_path).items() if n} == {"replaced": 7, "deletions": 5}
    assert read_positions(tmp_path) == {SOURCE: {1: 1675}}
    assert complete_epoch(tmp_path) == 41
    assert await_last(tmp_path, 0.0, 0.0), "nobody waits for more"
    assert looked(tmp_path, {**METRICS, "0.partitioner.freshet.events": 4000})
    assert progress(tmp_path)["events"] == 4000
    assert len(sink_statuses(tmp_path)) == 2


def test_processes_that_see_the_folder_are_not_disturbed(tmp_path: Path) -> None:
    Profile(tmp_path, "sink", 0).write()
    assert not looked(tmp_path)
    assert sink_statuses(tmp_path) == []


@pytest.mark.parametrize("values", [{}, {"0.sink.freshet.rows_changed": 1}])
def test_nothing_is_written_before_the_job_tells(tmp_path: Path, values: dict[str, float]) -> None:
    assert not looked(tmp_path, values)
    assert not look(tmp_path, Rest(None), 1, [SOURCE])  # type: ignore[arg-type]
    assert not list((tmp_path / STATUS).glob("*")) if (tmp_path / STATUS).is_dir() else True


def test_only_these_are_asked_for() -> None:
    assert all(map(is_wanted, METRICS))
    others = ("0.partitioner.freshet.edges", "0.storage1.freshet.vertices", "0.sink.numRecordsIn", "Shuffle.x.y")
    assert not any(map(is_wanted, others))
    assert figures_of({})["counts"] == {}
