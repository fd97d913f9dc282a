"""Taking a cut log over while others make it, or the machine stands still."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from freshet.operators.epochs.cut_log import CutLog


def test_a_log_that_was_made_as_the_machine_stood_still_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: now.__setitem__(0, now[0] + 60.0))
    monkeypatch.setattr("freshet.operators.epochs.cut_segments.time", clock)
    assert CutLog(tmp_path / "cuts").attempt == 1
    assert now == [60.0]
