"""One compaction of a folder at a time; what it leaves is tested where servers read it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from job.errors import EXIT_USAGE, UsageError
from job.serving import compaction
from tests.support.hand_job import HandJob
from tests.support.jobs import ROOT


def test_two_compactions_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one may remove the base that the first one is about to rely on: it says who is at work, and ends."""
    hand = HandJob(tmp_path / "O")
    hand.apply(1, ({2: 1.0}, []), marker=1)
    hand.settle()
    write, told = compaction._write, list[str]()

    def write_beside_a_second(*args):
        with pytest.raises(UsageError) as error:
            compaction.compact_log(hand.out)
        told.append(str(error.value))
        command = [sys.executable, "-m", "job.cli", "compact", str(hand.out)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
        told.append(done.stderr)
        return write(*args)

    monkeypatch.setattr(compaction, "_write", write_beside_a_second)
    assert compaction.compact_log(hand.out).rows == 1
    assert len(told) == 2
    assert all(f"process {os.getpid()} on " in one and "try again when that has ended" in one for one in told)
    monkeypatch.undo()
    hand.apply(2, ({3: 1.0}, []), marker=2)
    hand.settle()
    assert compaction.compact_log(hand.out).rows == 2, "the first one has let go"
    hand.close()
