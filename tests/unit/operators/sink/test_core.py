"""The Sink: what it writes is a function of the epochs alone, whatever happens to the process in between."""

import json
import threading
import time

import pyarrow.parquet as pq
import pytest

from freshet.operators.control import LAST, REPLAY
from freshet.operators.sink import background_writer
from freshet.operators.sink.change_log import ChangeLog, ChangeLogError
from freshet.operators.sink.dealing import BadEpochError
from freshet.operators.sink.epoch_files import TIMES
from tests.support.stages.sunk import WIDTH, block, control, digest, files, log_of, rows_in, sink_of


def test_rows_come_out_with_their_epoch_and_a_deleted_row_is_zero(tmp_path):
    sink = sink_of(tmp_path)
    sink.apply(1, [block(1, [7, 9], control=control(), positions=[(0, 0, 2, 2)])])
    sink.apply(2, [block(2, [9], dead=[7], control=control(), positions=[(0, 0, 3, 1), (1, 4, 10, 5)])])
    sink.close()
    assert files(tmp_path) == ["part-0-00000000.parquet"]
    schema = pq.read_schema(tmp_path / "embeddings/part-0-00000000.parquet")
    assert [str(schema.field(name).type) for name in ("id", "epoch", "deleted")] == ["int64", "int64", "bool"]
    assert str(schema.field("embedding").type) == "fixed_size_list<element: float>[3]"
    assert rows_in(tmp_path / "embeddings/part-0-00000000.parquet") == [
        (7, 1, [7, 1, 7], False),
        (9, 1, [9, 1, 9], False),
        (9, 2, [9, 2, 18], False),
        (7, 2, [0, 0, 0], True),
    ]
    table = pq.read_table(tmp_path / "epochs/epochs-00000000.parquet")
    assert table.drop_columns(TIMES).to_pylist() == [
        {"epoch": 1, "source": "events.jsonl", "partition": 0, "next_offset": 2, "events": 2},
        {"epoch": 2, "source": "events.jsonl", "partition": 0, "next_offset": 3, "events": 1},
        {"epoch": 2, "source": "kafka://host:9092/topic", "partition": 4, "next_offset": 10, "events": 5},
    ]


def test_string_ids_are_told_once_and_forgotten_with_the_vertex(tmp_path):
    sink = sink_of(tmp_path, kind="string")
    sink.apply(1, [block(1, [7, 9], control=control(), names={7: "anna", 9: ""})])
    sink.apply(2, [block(2, [9], dead=[7], control=control())])
    # The key is free again: another id may have it.
    sink.apply(3, [block(3, [7], control=control(), names={7: "zoë"})])
    sink.close()
    rows = rows_in(tmp_path / "embeddings/part-0-00000000.parquet")
    assert [row[0] for row in rows] == ["anna", "", "", "anna", "zoë"]
    assert [row[3] for row in rows] == [False, False, False, True, False]


def test_files_close_at_rows_at_markers_by_epochs_after_the_snapshot_and_at_the_end(tmp_path):
    sink = sink_of(tmp_path, rows=3, epochs=4, group_rows=3)
    sink.apply(0, [block(0, [1, 2, 3, 4, 5])])  # the snapshot: a file of its own
    sink.apply(1, [block(1, [1, 2], control=control())])
    sink.apply(2, [block(2, [1, 2], control=control())])  # 4 rows: full, and the epoch stays whole
    sink.apply(3, [block(3, [1], control=control(marker=1))])  # a marker
    for epoch in (4, 5, 6, 7):  # four epochs without a row: what they read becomes visible
        sink.apply(epoch, [block(epoch, control=control(), positions=[(0, 0, epoch, 1)])])
    sink.apply(8, [block(8, [1], control=control(flags=2))])  # the end of the input
    seen = {name: [row[1] for row in rows_in(tmp_path / "embeddings" / name)] for name in files(tmp_path)}
    assert seen == {
        "part-0-00000000.parquet": [0] * 5,
        "part-0-00000001.parquet": [1, 1, 2, 2],
        "part-0-00000002.parquet": [3],
        "part-0-00000004.parquet": [8],
    }
    epochs = {
        name: pq.read_table(tmp_path / "epochs" / name)["epoch"].to_pylist() for name in files(tmp_path, "epochs")
    }
    assert epochs == {
        "epochs-00000000.parquet": [0, 1, 2],
        "epochs-00000002.parquet": [3, 4, 5, 6, 7],
        "epochs-00000004.parquet": [8],
    }
    before = digest(tmp_path)
    sink.close()
    assert digest(tmp_path) == before


def test_an_epoch_without_input_has_its_row_too(tmp_path):
    sink = sink_of(tmp_path)
    sink.apply(1, [block(1, [1], control=control(flags=2))])
    sink.close()
    assert pq.read_table(tmp_path / "epochs/epochs-00000000.parquet").drop_columns(TIMES).to_pylist() == [
        {"epoch": 1, "source": None, "partition": None, "next_offset": None, "events": 0}
    ]


def test_an_epoch_says_when_its_last_event_came_and_when_others_could_read_it(tmp_path):
    sink = sink_of(tmp_path, clock_ms=lambda: 2_000.9)
    values = control(arrival=900.0, last_arrival_ms=1_000)
    sink.apply(0, [block(0, [1], control=control(events=0))])
    sink.apply(1, [block(1, [1], control=values, positions=[(0, 0, 2, 1), (1, 0, 5, 1)])])
    sink.apply(2, [block(2, control=control(events=0, flags=2))])
    sink.close()
    table = pq.read_table(tmp_path / "epochs/epochs-00000000.parquet", columns=["epoch", *TIMES])
    assert [str(kind) for kind in table.schema.types] == ["int64"] * 4
    assert [tuple(row.values()) for row in table.to_pylist()] == [
        (0, None, None, None),
        (1, 1_000, 2_000, None),
        (1, 1_000, 2_000, None),
        (2, None, 2_000, None),
    ]


def test_only_part_0_writes_epochs(tmp_path):
    sink = sink_of(tmp_path, part=1)
    sink.apply(1, [block(1, [1], control=control(flags=2))])
    sink.close()
    assert files(tmp_path) == ["part-1-00000000.parquet"]
    assert files(tmp_path, "epochs") == []


def test_an_id_deleted_in_one_part_and_alive_in_another_has_one_row(tmp_path):
    sink = sink_of(tmp_path)
    sink.apply(1, [block(1, dead=[7, 8], control=control()), block(1, [7], control=control(), source=1)])
    sink.close()
    assert [(row[0], row[3]) for row in rows_in(tmp_path / "embeddings/part-0-00000000.parquet")] == [
        (7, False),
        (8, True),
    ]


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (block(1, [7], control=control()), block(1, [8, 7], control=control()), "key 7 comes twice in epoch 1"),
        (block(1, dead=[5], control=control()), block(1, dead=[5], control=control()), "key 5 comes twice"),
        (block(1, [7], control=control(marker=1)), block(1, [8], control=control(marker=2)), "control values"),
        (block(1, [7]), block(1, [8]), "no block of epoch 1 carries its control values"),
    ],
)
def test_blocks_that_contradict_each_other_are_errors(tmp_path, first, second, says):
    sink = sink_of(tmp_path)
    with pytest.raises(BadEpochError, match=says):
        sink.apply(1, [first, second])
    sink.close(write=False)
    assert files(tmp_path) == []


def test_rows_of_another_width_are_an_error(tmp_path):
    sink = sink_of(tmp_path, width=WIDTH + 1)
    with pytest.raises(BadEpochError, match=r"2 keys for rows of shape \(2, 3\), width 4"):
        sink.apply(1, [block(1, [7, 9], control=control())])
    sink.close(write=False)


def test_leftovers_of_a_killed_writer_go_and_a_damaged_file_is_replaced(tmp_path):
    (tmp_path / "embeddings").mkdir(parents=True)
    (tmp_path / "embeddings/.part-0-00000003.parquet.tmp").write_bytes(b"half")
    (tmp_path / "embeddings/.part-1-00000003.parquet.tmp").write_bytes(b"another part's")
    (tmp_path / "embeddings/part-0-00000000.parquet").write_bytes(b"")
    sink = sink_of(tmp_path)
    sink.apply(1, [block(1, [1], control=control())])
    sink.close()
    assert files(tmp_path) == [".part-1-00000003.parquet.tmp", "part-0-00000000.parquet"]
    assert len(rows_in(tmp_path / "embeddings/part-0-00000000.parquet")) == 1


def test_an_error_of_the_writer_surfaces_and_nothing_later_is_written(tmp_path):
    sink = sink_of(tmp_path, rows=1)
    (tmp_path / "embeddings/part-0-00000000.parquet").mkdir()  # in the way
    sink.apply(1, [block(1, [1], control=control())])
    with pytest.raises(ChangeLogError, match="could not be written"):
        log_of(sink).writer.wait()
    with pytest.raises(ChangeLogError):
        sink.apply(2, [block(2, [1], control=control())])
    with pytest.raises(ChangeLogError):
        sink.close()
    assert not [path for path in (tmp_path / "embeddings").glob("part-*") if path.is_file()]


def test_a_marker_waits_for_the_files_of_the_marker_before(tmp_path):
    sink = sink_of(tmp_path)
    gate, write = threading.Event(), log_of(sink).writer._write
    log_of(sink).writer._write = lambda file: (gate.wait(60), write(file))
    sink.apply(1, [block(1, [1], control=control(marker=1))])  # does not wait for its own file
    done = threading.Event()

    def second():
        sink.apply(2, [block(2, [1], control=control(marker=2))])
        done.set()

    thread = threading.Thread(target=second)
    thread.start()
    assert not done.wait(0.1)
    gate.set()
    assert done.wait(60)
    assert "part-0-00000000.parquet" in files(tmp_path)
    thread.join()
    sink.close()


def test_the_status_catches_up_when_the_stream_pauses(tmp_path):
    sink = sink_of(tmp_path, clock_ms=lambda: time.time() * 1e3)
    path = tmp_path / "status/sink-0.json"
    for epoch in range(3):
        sink.apply(epoch, [block(epoch, [1, 2, 3], control=control(arrival=1000, accepted=8))])
    deadline = time.monotonic() + 60
    while json.loads(path.read_text())["epoch"] < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert json.loads(path.read_text())["visible"] == 0
    sink.close()
    assert json.loads(path.read_text())["visible"] == 2


def test_status_counts_across_replays_and_leaves_replayed_latencies_out(tmp_path, monkeypatch):
    monkeypatch.setattr(background_writer, "IDLE_S", 600.0)  # its thread would write the status by a clock of its own
    sink = sink_of(tmp_path)
    sink.apply(0, [block(0, [1, 2, 3])], now_ms=900.0)
    path = tmp_path / "status/sink-0.json"
    assert json.loads(path.read_text())["rows"] == 0  # epoch 0 is not of the stream
    sink.apply(1, [block(1, [1, 2], control=control(arrival=1000, accepted=8, rejected=1))], now_ms=1010.0)
    assert json.loads(path.read_text())["epoch"] == 0  # not twice within half a second
    sink.apply(2, [block(2, [1], control=control(arrival=3000, accepted=18, rejected=2, vertices=3))], now_ms=3040.0)
    sink.apply(3, [block(3, [1], control=control(arrival=3500, accepted=20, rejected=2, flags=1))], now_ms=9e9)
    status = json.loads(path.read_text())
    assert (status["rows"], status["events"], status["rejected"], status["epoch"]) == (4, 22, 2, 3)
    assert sum(status["applied_counts"][1]) == 2
    assert status["applied_ms_p50"] == pytest.approx(10, rel=0.05)
    assert status["applied_ms_p99"] == pytest.approx(40, rel=0.05)
    sink.close()


def test_streaming_time_has_the_work_on_a_backlog_and_nothing_between_attempts(tmp_path):
    now = [0.0]
    sink = sink_of(tmp_path, clock_ms=lambda: now[0])

    def take(epoch, arrival, at_ms, **values):
        now[0] = at_ms
        sink.apply(epoch, [block(epoch, [1], control=control(arrival=arrival, **values))])
        return sink.status(at_ms)["seconds"]

    assert take(0, 400, 900.0) == 0, "a snapshot is not streamed"
    assert take(1, 1000, 2000.0) == 1.0
    assert take(2, 1010, 3000.0) == 2.0, "its events had waited all the time"
    assert take(3, 0, 8000.0, marker=1) == 2.0, "an idle job's markers"
    now[0] = 60_000.0
    sink.after_restore()
    assert take(4, 1020, 60_500.0, flags=REPLAY) == 2.5
    assert take(5, 63_500, 63_510.0) == 5.51
    assert take(6, 0, 63_610.0, flags=LAST) == 5.61, "the last files, too"
    sink.close()


# -- what waits -------------------------------------------------------------------------------------------------------


def test_rows_wait_for_a_slow_disk_within_their_bound(tmp_path, monkeypatch):
    goes_on, write = threading.Event(), ChangeLog.write

    def slow(self, file):
        goes_on.wait(60)
        write(self, file)

    monkeypatch.setattr(ChangeLog, "write", slow)
    sink = sink_of(tmp_path, rows=2)
    level, row = sink.levels["rows_bytes"], 4 * WIDTH + 16

    def feed():
        for epoch in range(1, 21):
            sink.apply(epoch, [block(epoch, [7], control=control(flags=2 * (epoch == 20)))])

    feeding = threading.Thread(target=feed)
    feeding.start()
    deadline = time.monotonic() + 40
    while level.now < 4 * 2 * row and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    assert level.now == 4 * 2 * row, "one file is written, two wait, and nobody takes the full one"
    assert level.bound == 4 * (2 * row + row)
    goes_on.set()
    feeding.join(60)
    sink.close()
    assert level.now == 0
    assert 4 * 2 * row <= level.peak <= level.bound
    assert sum(len(rows_in(path)) for path in (tmp_path / "embeddings").iterdir()) == 20


def test_rows_that_are_dropped_wait_no_more(tmp_path):
    sink = sink_of(tmp_path)
    sink.apply(1, [block(1, [1, 2], control=control())])
    assert sink.levels["rows_bytes"].now == 2 * (4 * WIDTH + 16)
    sink.close(write=False)
    assert sink.levels["rows_bytes"].now == 0
