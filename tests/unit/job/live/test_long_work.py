"""Progress of a LiveGraph: nothing of short work, the lines of long work."""

from __future__ import annotations

import pytest

from freshet.job.live.long_work import LongWork


@pytest.mark.parametrize(("seconds", "is_said"), [(4.0, False), (6.0, True)])
def test_only_long_work_is_said(seconds: float, is_said: bool, capsys: pytest.CaptureFixture[str]) -> None:
    now = [100.0]
    with LongWork("freshet live graph", lambda: now[0]) as work:
        work.report("200,000 events replayed")
        now[0] += seconds
        work.report("400,000 events replayed")
    said = capsys.readouterr().err
    assert ("freshet live graph  400,000 events replayed" in said) == is_said
    assert "200,000" not in said
