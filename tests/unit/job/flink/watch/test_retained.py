"""What is told of retained checkpoints in a store: to a file beside the cut log, or by trimming its topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from freshet.job.errors import JobFailed
from freshet.job.flink.figures import RetainedNotice
from freshet.job.flink.job_spec import JobSpec
from freshet.job.folder import layout
from freshet.job.kafka import cut_topic


def notice(out: Path, **cuts: Any) -> RetainedNotice:
    stage = {"job_id": "0123456789abcdef", "cuts": cuts}
    spec = JobSpec(out=str(out), layers=1, checkpoint_dir="s3://bucket/jobs", stage=stage)
    spec.checkpoints.mkdir(parents=True)
    return RetainedNotice(spec)


def test_a_cut_log_in_a_folder_gets_a_file(tmp_path: Path) -> None:
    told = notice(tmp_path)
    assert told.is_wanted
    told.tell(4711.0)
    found = orjson.loads((tmp_path / layout.CHECKPOINTS / layout.RETAINED).read_bytes())
    assert found["since_ms"] == 4711.0
    assert not RetainedNotice(JobSpec(out=str(tmp_path), layers=1)).is_wanted


@pytest.mark.parametrize("keeps", [False, True])
def test_a_topic_is_trimmed_now_and_then(tmp_path: Path, keeps: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def trim(_self: object, since_ms: float) -> int:
        asked.append(since_ms)
        msg = "the brokers are away"
        raise JobFailed(msg)  # and nobody is disturbed

    monkeypatch.setattr(cut_topic.CutTrimmer, "trim", trim)
    told = notice(tmp_path, topic="kafka://h:1/cuts", keep_cuts=keeps)
    told.tell(1.0)
    if told.thread is not None:
        told.thread.join(60)
    told.tell(2.0)  # a moment later
    assert asked == ([] if keeps else [1.0])
    assert not (tmp_path / layout.CHECKPOINTS / layout.RETAINED).exists()
