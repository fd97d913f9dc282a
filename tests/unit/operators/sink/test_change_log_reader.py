import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.job.serving.tables.change_log_rows import positions_at
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.change_log import ChangeLog
from freshet.operators.sink.change_log_reader import ChangeLogReader, NoChangeLogError
from freshet.operators.sink.epoch_files import TIMES
from freshet.operators.sink.epoch_rows import EpochRows, LogFile

WIDTH = 2


def vectors(keys, epoch):
    return np.array([[key, epoch] for key in keys], np.float32).reshape(-1, WIDTH)


def packed(texts):
    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0] + [len(text) for text in encoded]).astype(np.int32)
    return offsets, np.frombuffer(b"".join(encoded), np.uint8)


def epoch_of(number, rows=(), dead=(), kind="int", positions=None):
    every = [*rows, *dead]
    ids = [np.array(every, np.int64)] if kind == "int" else [packed([f"v{key}" for key in every])]
    where = None if positions is None else np.array(positions, np.int64)
    return EpochRows(number, ids, [vectors(rows, number)], len(rows), len(dead), where)


def write(out, files, kind="int"):
    """files: {part: [[epoch rows of a file], …]}"""
    for part, numbered in files.items():
        log = ChangeLog(LogFolders(out), part, WIDTH, kind, ["a.jsonl", "b.jsonl"])
        for number, epochs in enumerate(numbered):
            log.write(LogFile(number, epochs))
    return ChangeLogReader(out)


def state_of(state):
    return dict(zip(state.ids.tolist(), state.vectors.tolist(), strict=True))


def test_the_newest_row_of_an_id_holds_and_the_deleted_have_none(tmp_path):
    reader = write(
        tmp_path,
        {
            0: [[epoch_of(0, [4, 2])], [epoch_of(1, [2]), epoch_of(2, [], [4])], [epoch_of(3, [4, 6])]],
            1: [[epoch_of(1, [5, 3])], [epoch_of(3, [], [3])]],
        },
    )
    final = reader.final()
    assert final.ids.tolist() == [2, 4, 5, 6]
    assert final.epochs.tolist() == [1, 3, 1, 3]
    assert state_of(final) == {2: [2, 1], 4: [4, 3], 5: [5, 1], 6: [6, 3]}
    assert final.duplicates == 0
    assert state_of(reader.state_at(2)) == {2: [2, 1], 5: [5, 1], 3: [3, 1]}
    assert state_of(reader.state_at(0)) == {4: [4, 0], 2: [2, 0]}
    assert reader.final(vectors=False).vectors.shape == (4, 0)


def test_string_ids(tmp_path):
    files = {0: [[epoch_of(1, [10, 9], kind="string")], [epoch_of(2, [9], [10], kind="string")]]}
    reader = write(tmp_path, files, "string")
    assert state_of(reader.final()) == {"v9": [9, 2]}
    assert state_of(reader.state_at(1)) == {"v10": [10, 1], "v9": [9, 1]}


def test_unfinished_files_are_not_seen_and_an_empty_log_is_an_empty_state(tmp_path):
    reader = write(tmp_path, {0: [[epoch_of(1)]]})
    (tmp_path / "embeddings/.part-0-1.parquet.tmp").write_bytes(b"half")
    (tmp_path / "embeddings/_part-0-1.parquet").write_bytes(b"half")
    assert reader.files == []
    final = ChangeLogReader(tmp_path).final()
    assert len(final.ids) == len(final.epochs) == len(final.vectors) == 0
    with pytest.raises(NoChangeLogError, match="holds no folder embeddings"):
        ChangeLogReader(tmp_path / "elsewhere")


def test_two_rows_of_an_id_in_an_epoch_are_counted(tmp_path):
    reader = write(tmp_path, {0: [[epoch_of(1, [4, 5])]], 1: [[epoch_of(1, [5]), epoch_of(2, [4])]]})
    assert reader.final().duplicates == 1


def test_positions_are_in_order_of_epochs_without_those_that_read_nothing(tmp_path):
    files = [
        [epoch_of(0), epoch_of(1, positions=[(0, 0, 5, 5), (1, 3, 2, 2)])],
        [epoch_of(2, positions=[(1, 3, 9, 7)]), epoch_of(3)],
    ]
    reader = write(tmp_path, {0: files})
    positions = reader.positions()
    assert positions.epoch.tolist() == [1, 1, 2]
    assert positions.source.tolist() == ["a.jsonl", "b.jsonl", "b.jsonl"]
    assert positions.partition.tolist() == [0, 3, 3]
    assert positions.next_offset.tolist() == [5, 2, 9]
    assert positions.events.tolist() == [5, 2, 7]
    assert reader.last_epoch() == 3


def test_random_logs_over_many_row_groups_against_a_dict(tmp_path, monkeypatch):
    monkeypatch.setattr("freshet.operators.sink.parquet_writer.ROW_GROUP_ROWS", 7)
    rng = np.random.default_rng(5)
    live, files = {}, {0: [[]], 1: [[]]}
    for epoch in range(60):
        keys = rng.choice(40, 12, replace=False)
        for part in (0, 1):
            mine = [int(key) for key in keys if key % 2 == part]
            dead = [key for key in mine[:2] if key in live]
            rows = [key for key in mine if key not in dead]
            live |= {key: [key, epoch] for key in rows}
            for key in dead:
                del live[key]
            files[part][-1].append(epoch_of(epoch, rows, dead))
            if rng.random() < 0.1:
                files[part].append([])
    reader = write(tmp_path, files)
    assert len(reader.files) > 4
    assert state_of(reader.final()) == live


def test_rows_without_input_of_any_version_are_no_positions(tmp_path):
    """Null, and formerly a partition 0 with an offset of 0; the numbers beside nulls stay whole ones."""
    large = 2**60 + 1
    write(tmp_path, {0: [[epoch_of(0), epoch_of(1, positions=[(1, 0, large, 2)]), epoch_of(2)]]})
    (path,) = (tmp_path / "epochs").glob("*.parquet")
    table = pq.read_table(path).drop_columns(TIMES)
    assert table.slice(2).to_pylist() == [
        {"epoch": 2, "source": None, "partition": None, "next_offset": None, "events": 0}
    ]
    former = pa.table(
        [[3, 4], ["", "b.jsonl"], pa.array([0, 0], pa.int32()), [0, large + 1], [0, 1]], schema=table.schema
    )
    pq.write_table(former, tmp_path / "epochs" / "epochs-00000003.parquet")
    found = ChangeLogReader(tmp_path).positions()
    assert (found.epoch.tolist(), found.next_offset.tolist()) == ([1, 4], [large, large + 1])
    assert ChangeLogReader(tmp_path).last_epoch() == 4
    sources = ("a.jsonl", "b.jsonl")
    assert positions_at(LogFolders(tmp_path), 2, sources).tolist() == [[1, 0, large, 1]]
    assert positions_at(LogFolders(tmp_path), 4, sources).tolist() == [[1, 0, large + 1, 4]]
