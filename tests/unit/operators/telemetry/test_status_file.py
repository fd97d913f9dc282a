"""What parts tell of themselves, and when they have told it all."""

from __future__ import annotations

import threading
from pathlib import Path

from freshet.operators.telemetry.status_file import LAST_STATUS, StatusFile, await_last


def write(out: Path, part: int, time_s: float, last: bool) -> None:
    StatusFile(out, f"sink-{part}").write({"time": time_s, LAST_STATUS: last}, 0.0)


def test_all_parts_that_have_written_since_are_waited_for(tmp_path: Path) -> None:
    assert await_last(tmp_path, 100_000.0, 0.0), "nobody has written"
    write(tmp_path, 0, 99.0, last=False)  # a former attempt was killed
    assert await_last(tmp_path, 100_000.0, 0.0)
    write(tmp_path, 1, 101.0, last=True)
    write(tmp_path, 2, 101.0, last=False)
    assert not await_last(tmp_path, 100_000.0, 0.05), "the third may write more"
    later = threading.Timer(0.1, write, (tmp_path, 2, 102.0, True))
    later.start()
    assert await_last(tmp_path, 100_000.0, 20.0)
    later.join()
