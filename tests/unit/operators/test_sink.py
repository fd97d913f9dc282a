"""The Sink: what it writes is a function of the epochs alone, whatever happens to the process in between."""

import hashlib
import json
import threading
import time

import numpy as np
import pyarrow.parquet as pq
import pytest

from operators.change_log import ChangeLog, ChangeLogError
from operators.sink import BadEpochError, Sink
from operators.stage import Stage
from state.codec import ROWS, Block, Header, encode

WIDTH = 3
SOURCES = ["events.jsonl", "kafka://host:9092/topic"]


def vector(key, epoch):
    return np.array([key, epoch, key * epoch], np.float32)


def block(epoch, rows=(), dead=(), control=None, names=None, positions=None, source=0):
    """rows: keys that changed; names: {key: id}; positions: (source, partition, next, events) tuples."""
    columns = {
        "key": np.array(rows, np.int64),
        "row": np.array([vector(key, epoch) for key in rows], np.float32).reshape(-1, WIDTH),
        "del_key": np.array(dead, np.int64),
    }
    if control is not None:
        columns["ctl"] = np.array(control, np.int64)
    if names:
        texts = [text.encode() for text in names.values()]
        columns["m_key"] = np.array(list(names), np.int64)
        columns["m_off"] = np.cumsum([0] + [len(text) for text in texts]).astype(np.int64)
        columns["m_name"] = np.frombuffer(b"".join(texts), np.uint8)
    if positions:
        dtypes = {"pos_source": "i2", "pos_partition": "i4", "pos_next": "i8", "pos_events": "i8"}
        for (name, dtype), values in zip(dtypes.items(), zip(*positions, strict=True), strict=True):
            columns[name] = np.array(values, dtype)
    return Block(Header(ROWS, epoch, 2, source), {name: column for name, column in columns.items() if column.size})


def control(marker=-1, events=1, arrival=0, flags=0, rejected=0, accepted=0, vertices=0, streamed=0):
    return (marker, events, arrival, flags, rejected, accepted, vertices, streamed)


def sink_of(out, part=0, parts=1, kind="int", **options):
    return Sink(part, parts, out, WIDTH, kind, SOURCES, **{"clock_ms": lambda: 0.0} | options)


def rows_in(path):
    table = pq.read_table(path)
    return [(r["id"], r["epoch"], r["embedding"], r["deleted"]) for r in table.to_pylist()]


def files(out, folder="embeddings"):
    return sorted(path.name for path in (out / folder).iterdir())


def digest(out):
    """Every visible file of the change log with the hash of its bytes."""
    paths = [*(out / "embeddings").glob("*.parquet"), *(out / "epochs").glob("*.parquet")]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


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
    assert pq.read_table(tmp_path / "epochs/epochs-00000000.parquet").to_pylist() == [
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
    sink = sink_of(tmp_path, rows_per_file=3, epochs_per_file=4)
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
    assert list(epochs.values()) == [[0], [1, 2], [3], [4, 5, 6, 7], [8]]
    before = digest(tmp_path)
    sink.close()
    assert digest(tmp_path) == before


def test_an_epoch_without_input_has_its_row_too(tmp_path):
    sink = sink_of(tmp_path)
    sink.apply(1, [block(1, [1], control=control(flags=2))])
    sink.close()
    assert pq.read_table(tmp_path / "epochs/epochs-00000000.parquet").to_pylist() == [
        {"epoch": 1, "source": "", "partition": 0, "next_offset": 0, "events": 0}
    ]


def test_only_part_0_writes_epochs(tmp_path):
    sink = sink_of(tmp_path, part=1, parts=2)
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
    sink = Sink(0, 1, tmp_path, WIDTH + 1, "int", SOURCES)
    with pytest.raises(BadEpochError, match=r"2 keys for rows \[\(2, 3\)\], width 4"):
        sink.apply(1, [block(1, [7, 9], control=control())])
    sink.close(write=False)


# ---- a story with random epochs: markers every 7 epochs, births, deaths ----


def story(epochs, kind, seed=3):
    rng = np.random.default_rng(seed)
    live, blocks = set(), {}
    for epoch in range(epochs + 1):
        dead = [key for key in sorted(live) if rng.random() < 0.1]
        live -= set(dead)
        born = [
            int(key) for key in np.unique(rng.integers(0, 60, 6 if epoch else 0)) if key not in live and key not in dead
        ]
        changed = [key for key in sorted(live) if rng.random() < 0.3] + born
        live |= set(born)
        marker = epoch // 7 if epoch and epoch % 7 == 0 else -1
        names = {key: f"name {key}" for key in born} if kind == "string" else None
        flags = 2 if epoch == epochs else 0
        blocks[epoch] = block(
            epoch, changed, dead, control(marker, arrival=epoch, flags=flags), names, [(0, 0, 5 * epoch, 5)]
        )
    return blocks


def encoded(block_):
    return encode(block_.header, block_.columns)


class Life:
    """A sink in its stage, with the keyed state that survives it."""

    def __init__(self, out, kind):
        self.out, self.kind, self.entries = out, kind, {}

    def start(self):
        self.sink = sink_of(self.out, kind=self.kind, rows_per_file=40)
        self.stage = Stage("sink", self.sink, 1)
        self.stage.restore(self.checkpoint.items() if hasattr(self, "checkpoint") else ())
        return self.stage.epoch + 1

    def act(self, data):
        outcome = self.stage.act(self.stage.offer(encoded(data)))
        self.entries |= dict(outcome.puts)
        for key in outcome.deletes:
            self.entries.pop(key, None)

    def take_checkpoint(self):
        self.checkpoint = dict(self.entries)

    def restore(self):
        self.entries = dict(self.checkpoint)
        return self.start()


@pytest.mark.parametrize("kind", ["int", "string"])
def test_any_crash_and_replay_gives_the_same_files(tmp_path, kind):
    blocks = story(45, kind)
    plain = Life(tmp_path / "plain", kind)
    begin = plain.start()
    for epoch in range(begin, 46):
        plain.act(blocks[epoch])
    plain.sink.close()
    expected = digest(tmp_path / "plain")
    assert len(expected) > 10

    for stop_at in range(8, 45, 3):
        out = tmp_path / f"stop-{stop_at}"
        life = Life(out, kind)
        life.start()
        for epoch in range(begin, stop_at + 1):
            life.act(blocks[epoch])
            if epoch == stop_at - 2:
                life.take_checkpoint()
        # Stopped in one of three ways: killed, failed, or stopped with its last rows written.
        if stop_at % 3 == 0:
            life.sink._writer.wait()
        else:
            life.sink.close(write=stop_at % 3 == 1)
        visible = {name: pq.read_table(next(out.glob(f"*/{name}"))) for name in digest(out)}
        first = life.restore()
        assert first <= stop_at - 1
        for epoch in range(first, 46):
            life.act(blocks[epoch])
            for name, table in visible.items():  # what was seen is seen for good
                path = next(out.glob(f"*/{name}"))
                assert pq.read_table(path).slice(0, table.num_rows).equals(table), (stop_at, epoch, name)
        life.sink.close()
        assert digest(out) == expected
        assert (
            json.loads((out / "status/sink-0.json").read_text())["rows"]
            == json.loads((tmp_path / "plain/status/sink-0.json").read_text())["rows"]
        )


def test_a_replay_that_is_stopped_early_does_not_take_back_what_was_seen(tmp_path):
    sink = sink_of(tmp_path, rows_per_file=4)
    for epoch in (1, 2):
        sink.apply(epoch, [block(epoch, [1, 2], control=control())])
    sink.close()
    assert len(rows_in(tmp_path / "embeddings/part-0-00000000.parquet")) == 4
    replay = sink_of(tmp_path, rows_per_file=4)
    replay.apply(1, [block(1, [1, 2], control=control(flags=1))])
    replay.close()
    assert len(rows_in(tmp_path / "embeddings/part-0-00000000.parquet")) == 4
    assert pq.read_table(tmp_path / "epochs/epochs-00000000.parquet").num_rows == 2


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
    sink = sink_of(tmp_path, rows_per_file=1)
    (tmp_path / "embeddings/.part-0-00000000.parquet.tmp").mkdir()
    sink.apply(1, [block(1, [1], control=control())])
    with pytest.raises(ChangeLogError, match="could not be written"):
        sink._writer.wait()
    with pytest.raises(ChangeLogError):
        sink.apply(2, [block(2, [1], control=control())])
    with pytest.raises(ChangeLogError):
        sink.close()
    assert not list((tmp_path / "embeddings").glob("part-*"))


def test_a_marker_waits_for_the_files_of_the_marker_before(tmp_path):
    sink = sink_of(tmp_path)
    gate, write = threading.Event(), sink._writer._write
    sink._writer._write = lambda file: (gate.wait(10), write(file))
    sink.apply(1, [block(1, [1], control=control(marker=1))])  # does not wait for its own file
    done = threading.Event()

    def second():
        sink.apply(2, [block(2, [1], control=control(marker=2))])
        done.set()

    thread = threading.Thread(target=second)
    thread.start()
    assert not done.wait(0.1)
    gate.set()
    assert done.wait(10)
    assert "part-0-00000000.parquet" in files(tmp_path)
    thread.join()
    sink.close()


def test_the_status_catches_up_when_the_stream_pauses(tmp_path):
    sink = sink_of(tmp_path, clock_ms=lambda: time.time() * 1e3)
    path = tmp_path / "status/sink-0.json"
    for epoch in range(3):
        sink.apply(epoch, [block(epoch, [1, 2, 3], control=control(arrival=1000, accepted=8))])
    deadline = time.monotonic() + 10
    while json.loads(path.read_text())["epoch"] < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert json.loads(path.read_text())["visible"] == 0
    sink.close()
    assert json.loads(path.read_text())["visible"] == 2


def test_status_counts_across_replays_and_leaves_replayed_latencies_out(tmp_path):
    sink = sink_of(tmp_path)
    sink.apply(0, [block(0, [1, 2, 3])], now_ms=900.0)
    path = tmp_path / "status/sink-0.json"
    assert json.loads(path.read_text())["rows"] == 0  # epoch 0 is not of the stream
    sink.apply(1, [block(1, [1, 2], control=control(arrival=1000, accepted=8, rejected=1))], now_ms=1010.0)
    assert json.loads(path.read_text())["epoch"] == 0  # not twice within half a second
    sink.apply(2, [block(2, [1], control=control(arrival=3000, accepted=18, rejected=2, vertices=3))], now_ms=3040.0)
    sink.apply(
        3, [block(3, [1], control=control(arrival=3500, accepted=20, rejected=2, flags=1, streamed=2500))], now_ms=9e9
    )
    status = json.loads(path.read_text())
    assert (status["rows"], status["events"], status["rejected"], status["epoch"]) == (4, 22, 2, 3)
    assert sum(status["latency_counts"][1]) == 2
    assert status["latency_ms_p50"] == pytest.approx(10, rel=0.05)
    assert status["latency_ms_p99"] == pytest.approx(40, rel=0.05)
    assert status["seconds"] == 2.5
    sink.close()


# -- what waits -------------------------------------------------------------------------------------------------------


def test_rows_wait_for_a_slow_disk_within_their_bound(tmp_path, monkeypatch):
    goes_on, write = threading.Event(), ChangeLog.write

    def slow(self, file):
        goes_on.wait(20)
        write(self, file)

    monkeypatch.setattr(ChangeLog, "write", slow)
    sink = sink_of(tmp_path, rows_per_file=2)
    level, row = sink.levels["rows_bytes"], 4 * WIDTH + 16

    def feed():
        for epoch in range(1, 21):
            sink.apply(epoch, [block(epoch, [7], control=control(flags=2 * (epoch == 20)))])

    feeding = threading.Thread(target=feed)
    feeding.start()
    deadline = time.monotonic() + 20
    while level.now < 4 * 2 * row and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    assert level.now == 4 * 2 * row, "one file is written, two wait, and nobody takes the full one"
    assert level.bound == 4 * (2 * row + row)
    goes_on.set()
    feeding.join(20)
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
