"""`freshet watch` of a job that does something between two looks at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.job.serving.served_job import ServedJob
from freshet.job.serving.watching import Watch
from tests.support.serving.hand_job import HandJob


@pytest.mark.parametrize("after", ["complete_epoch", "is_over"])
def test_the_last_epochs_of_a_job_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str) -> None:
    """It writes them, and ends, after nothing was there for a while."""
    hand = HandJob(tmp_path / "O")
    hand.apply(1, ({2: 1.0}, []), marker=1)
    hand.settle()
    job, missed, ended = ServedJob.read(hand.out), list[int](), list[bool]()
    assert job is not None
    watch, former = Watch(job, lambda first, last: missed.extend((first, last))), getattr(ServedJob, after)

    def ends(one: ServedJob) -> object:
        monkeypatch.setattr(ServedJob, after, former)
        found = former(one)
        hand.apply(2, ({2: 2.0}, []), marker=2)
        hand.close()
        ended.append(True)
        return found

    monkeypatch.setattr(ServedJob, "is_over", lambda _job: bool(ended))
    former = getattr(ServedJob, after)
    monkeypatch.setattr(ServedJob, after, ends)
    assert [epoch for epoch, _ in watch.epochs(lambda: False)] == [2]
    assert missed == []
    watch.close()
