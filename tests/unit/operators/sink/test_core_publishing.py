"""When rows become readable by others, and how long events take until then."""

import json
import threading
import time

import pyarrow.parquet as pq
import pytest

from freshet.operators.control import LAST, PUBLISH, REPLAY
from freshet.operators.sink.change_log import ChangeLog, ChangeLogError
from tests.support.stages.sunk import block, control, files, log_of, rows_in, sink_of


def until(seen, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def epochs_in(out):
    paths = sorted((out / "epochs").glob("epochs-*.parquet"))
    return [epoch for path in paths for epoch in pq.read_table(path)["epoch"].to_pylist()]


class Clock:
    def __init__(self, now_ms=1_000_000.0):
        self.now_ms = now_ms

    def __call__(self):
        return self.now_ms


def test_an_epoch_that_publishes_closes_the_file_and_is_no_marker(tmp_path):
    sink = sink_of(tmp_path)
    sink.apply(1, [block(1, [1], control=control())])
    sink.apply(2, [block(2, control=control(events=0, flags=PUBLISH))])
    log_of(sink).writer.wait()
    assert files(tmp_path) == ["part-0-00000000.parquet"]
    assert epochs_in(tmp_path) == [1, 2], "an empty epoch has its row"
    assert sink.status(0.0)["visible"] == 2
    sink.apply(3, [block(3, [1], control=control())])
    sink.close()
    assert [row[1] for row in rows_in(tmp_path / "embeddings/part-0-00000001.parquet")] == [3]


def test_the_latency_ends_when_others_can_read_the_row(tmp_path, monkeypatch):
    goes_on, write = threading.Event(), ChangeLog.write
    monkeypatch.setattr(ChangeLog, "write", lambda self, file: (goes_on.wait(60), write(self, file)))
    clock = Clock(1_000_000.0)
    sink = sink_of(tmp_path, clock_ms=clock)
    sink.apply(1, [block(1, [1], control=control(arrival=999_990))])
    clock.now_ms += 100
    sink.apply(2, [block(2, [1], control=control(arrival=1_000_080, flags=PUBLISH))])
    status = sink.status(clock.now_ms)
    assert status["applied_ms_p50"] == pytest.approx(10, rel=0.1)
    assert status["applied_ms_p99"] == pytest.approx(20, rel=0.1)
    assert status["latency_ms_p50"] is None, "nobody has seen a row"
    clock.now_ms += 4_900
    goes_on.set()
    log_of(sink).writer.wait()
    status = sink.status(clock.now_ms)
    assert sum(status["latency_counts"][1]) == 2
    assert status["latency_ms_p50"] == pytest.approx(4_920, rel=0.05)
    assert status["latency_ms_p99"] == pytest.approx(5_010, rel=0.05)
    sink.apply(3, [block(3, control=control(arrival=1_004_000, flags=REPLAY | LAST, marker=1))])
    assert sum(sink._latencies._tables["readable"].data) == 2, "durable with the marker"
    sink.close()
    status = json.loads((tmp_path / "status/sink-0.json").read_text())
    assert sum(status["latency_counts"][1]) == 2, "neither twice, nor those of a replay"


def test_the_status_tells_in_a_pause_that_the_last_file_is_visible(tmp_path, monkeypatch):
    """The status of the last epoch was written before its file was."""
    goes_on, write = threading.Event(), ChangeLog.write
    monkeypatch.setattr(ChangeLog, "write", lambda self, file: (goes_on.wait(60), write(self, file)))
    sink = sink_of(tmp_path, clock_ms=lambda: time.time() * 1e3)
    path = tmp_path / "status/sink-0.json"
    sink.apply(1, [block(1, [1], control=control(arrival=1000, flags=PUBLISH))])
    assert json.loads(path.read_text())["visible"] == 0
    goes_on.set()
    until(lambda: json.loads(path.read_text())["visible"] == 1)
    assert sum(json.loads(path.read_text())["latency_counts"][1]) == 1
    sink.close()


def test_a_stop_counts_the_latencies_of_its_last_rows(tmp_path):
    clock = Clock()
    sink = sink_of(tmp_path, clock_ms=clock)
    sink.apply(1, [block(1, [1], control=control(arrival=clock.now_ms - 50))])
    sink.close()
    assert json.loads((tmp_path / "status/sink-0.json").read_text())["latency_ms_p50"] == pytest.approx(50, rel=0.05)


# -- epochs by count alone: nobody seals an empty one in a pause ------------------------------------------------------


def test_a_pause_shows_what_is_done_and_the_whole_file_takes_its_place(tmp_path):
    clock = Clock()
    sink = sink_of(tmp_path, clock_ms=clock, publish_ms=9_000)
    path = tmp_path / "embeddings/part-0-00000000.parquet"
    sink.apply(1, [block(1, [1, 2], control=control(arrival=clock.now_ms - 1))])
    clock.now_ms += 8_999
    sink.apply(2, [block(2, [1], control=control(arrival=clock.now_ms - 1))])
    time.sleep(1.2)
    assert not path.exists()
    clock.now_ms += 1
    until(lambda: epochs_in(tmp_path) == [1, 2])
    assert len(rows_in(path)) == 3
    until(lambda: sink.status(clock.now_ms)["visible"] == 2)
    assert sum(sink.status(clock.now_ms)["latency_counts"][1]) == 2
    assert sink.levels["rows_bytes"].now > 0, "they are written once more, with what comes"
    first = path.stat().st_ino
    clock.now_ms += 100_000
    time.sleep(1.2)
    assert path.stat().st_ino == first, "once is enough"
    sink.apply(3, [block(3, [2], control=control(flags=PUBLISH))])
    log_of(sink).writer.wait()
    assert [row[1] for row in rows_in(path)] == [1, 1, 2, 3]
    assert epochs_in(tmp_path) == [1, 2, 3]
    assert sink.levels["rows_bytes"].now == 0
    assert sum(sink.status(clock.now_ms)["latency_counts"][1]) == 2
    sink.close()
    assert files(tmp_path) == ["part-0-00000000.parquet"]


def test_a_crash_in_the_pause_takes_nothing_back(tmp_path):
    clock = Clock()
    sink = sink_of(tmp_path, clock_ms=clock, publish_ms=9_000)
    for epoch in (1, 2, 3):
        sink.apply(epoch, [block(epoch, [1], control=control())])
    clock.now_ms += 9_000
    until(lambda: epochs_in(tmp_path) == [1, 2, 3])
    sink.close(write=False)
    again = sink_of(tmp_path, clock_ms=clock, publish_ms=9_000)
    for epoch in (1, 2):
        again.apply(epoch, [block(epoch, [1], control=control(flags=REPLAY))])
    clock.now_ms += 9_000
    time.sleep(1.2)
    assert epochs_in(tmp_path) == [1, 2, 3]
    assert len(rows_in(tmp_path / "embeddings/part-0-00000000.parquet")) == 3
    again.close()
    assert epochs_in(tmp_path) == [1, 2, 3]


def test_a_failure_in_the_pause_ends_the_job_at_the_next_epoch(tmp_path):
    clock = Clock()
    sink = sink_of(tmp_path, clock_ms=clock, publish_ms=9_000)
    (tmp_path / "embeddings/part-0-00000000.parquet").mkdir()
    sink.apply(1, [block(1, [1], control=control())])
    clock.now_ms += 9_000
    until(lambda: log_of(sink).writer._error is not None)
    with pytest.raises(ChangeLogError):
        sink.apply(2, [block(2, [1], control=control())])
    with pytest.raises(ChangeLogError):
        sink.close()
