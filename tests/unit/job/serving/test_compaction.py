"""One compaction of a folder at a time; what it leaves is tested where servers read it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.job.errors import EXIT_USAGE, UsageError
from freshet.job.folder import layout
from freshet.job.serving.protocol import columns
from freshet.job.serving.tables import compaction
from freshet.job.serving.tables.change_log_rows import rows_between
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.change_log_reader import ChangeLogReader
from tests.support.runs.jobs import ROOT
from tests.support.serving.hand_job import WIDTH, HandJob


def test_string_ids_are_compacted_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after a base of an earlier version, whose ids have 32-bit offsets, and with text for several columns."""
    hand = HandJob(tmp_path / "O", "string")
    expected: dict[str, tuple[int, float]] = {}
    for epoch in (1, 2, 3, 4):
        hand.apply(epoch, ({epoch: 1.0 * epoch, 10: 2.0 * epoch}, []), ({20 + epoch: 1.0}, []), marker=epoch)
        hand.settle()
        expected |= {f"v{epoch}": (epoch, 1.0 * epoch), "v10": (epoch, 2.0 * epoch), f"v{20 + epoch}": (epoch, 1.0)}
        if epoch == 3:
            monkeypatch.setattr(columns, "TEXT_BYTES", 5)
        done = compaction.compact_log(hand.out, keep_s=0.0, now_s=time.time() + 10_000 * (epoch == 2))
        assert done.rows == len(expected)
        found = rows_between(LogFolders(hand.out), -1, epoch, True, WIDTH)
        told = zip(found.ids.decode(), found.epochs.tolist(), found.rows[:, 0].tolist(), strict=True)
        assert {id_: rest for id_, *rest in told} == {id_: [*row] for id_, row in expected.items()}
        state = ChangeLogReader(hand.out).final()
        assert {id_: row[0] for id_, row in zip(state.ids, state.vectors, strict=True)} == {
            id_: value for id_, (_, value) in expected.items()
        }
        [base] = (hand.out / "embeddings").glob("base-*.parquet")
        kinds = {pq.read_schema(path).field("id").type for path in (hand.out / "embeddings").glob("*.parquet")}
        assert kinds == {pa.large_string()}, "one schema of all"
        table = pq.read_table(base)
        earlier = table.schema.set(0, pa.field("id", pa.string()))
        pq.write_table(table.cast(earlier), base)
    hand.close()


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
        command = [sys.executable, "-m", "freshet.job.cli", "compact", str(hand.out)]
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


def test_a_job_that_is_prepared_just_then_is_there_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand = HandJob(tmp_path / "O")
    hand.close()
    monkeypatch.setattr(ServedJob, "read", lambda *_: None)
    with pytest.raises(UsageError, match=f"there is no {layout.IMAGE_DONE}"):
        compaction.compact_log(hand.out)
