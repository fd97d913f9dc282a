"""What Arrow messages announce is looked at before they are decoded."""

from __future__ import annotations

import resource
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from freshet.operators.parser.arrow.bounds import (
    BYTES_MAX,
    ROWS_MAX,
    Bounds,
    PastBoundError,
    messages_of_file,
    messages_of_stream,
    read_arrow,
)
from freshet.operators.parser.core import Parser
from freshet.operators.parser.files import EventFileError, plan_chunks
from freshet.operators.parser.messages import RawMessage
from freshet.schema import Features
from tests.support.stages.parsed import ORIGIN

MEGABYTE = 1 << 20
TABLE = pa.table(
    {
        "op": ["del_vertex"] * 1000,
        "id": np.arange(1000),
        "x": pa.array([[1.0, 2.0, 3.0]] * 1000),
        "d": pa.array(["a", "b"] * 500).dictionary_encode(),
    }
)


def as_stream(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=300)
    return sink.getvalue().to_pybytes()


def as_file(table: pa.Table, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=300)
    return sink.getvalue().to_pybytes()


def announced(data: bytes, file: bool, rows: int = 2**62, values: int = 2**62, size: int = 2**62) -> None:
    bounds = Bounds(rows, values, size)
    for message in messages_of_file(pa.py_buffer(data)) if file else messages_of_stream(data):
        bounds.add(message)


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("file", [False, True])
def test_rows_values_and_bytes_are_those_of_the_table(compression: str | None, file: bool) -> None:
    data = (as_file if file else as_stream)(TABLE, compression)
    announced(data, file, 1000, 3000)
    for rows, values, words in ((999, 3000, "rows"), (1000, 2999, "values")):
        with pytest.raises(PastBoundError, match=f"too many {words}"):
            announced(data, file, rows, values)
    size = sum(column.nbytes for column in TABLE.columns[:3])
    if compression is None:
        announced(data, file, size=0)
        return
    announced(data, file, size=size + 8 * 1000)
    with pytest.raises(PastBoundError, match="too much"):
        announced(data, file, size=size // 2)


def bomb(size: int, columns: int = 100) -> bytes:
    """A message of a few kilobytes, of columns that nobody reads."""
    zeros = pa.array(np.zeros(size // columns // 8, np.int64))
    table = pa.table({"op": pa.nulls(len(zeros))} | {f"c{k}": zeros for k in range(columns)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def test_a_bomb_is_set_aside_before_it_goes_off() -> None:
    value = bomb(400 * MEGABYTE)
    assert len(value) < 100_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    events, (letter,) = Parser(Features(2)).parse_messages([RawMessage(5, value)], ORIGIN)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert (len(events), events.rejected, letter.raw, letter.records) == (0, 1, value, 1)
    assert letter.error == "too much in an Arrow IPC stream: expected at most 64 MiB once it is decompressed"
    assert grown < 40_000, "kilobytes"
    assert isinstance(read_arrow(bomb(BYTES_MAX // 2)), pa.Table)


def test_a_size_that_is_a_lie_is_set_aside() -> None:
    value = bytearray(as_stream(pa.table({"id": np.zeros(100_000, np.int64)}), "zstd"))
    at = bytes(value).index(struct.pack("<q", 300 * 8))
    for size in (8, 0, 2**62, -2, -(2**63), -1):
        value[at : at + 8] = struct.pack("<q", size)
        assert isinstance(read_arrow(bytes(value)), str)


def test_damaged_messages_never_stop_the_parser() -> None:
    whole, rng = as_stream(TABLE, "zstd"), np.random.default_rng(3)
    for _ in range(1500):
        value = bytearray(whole)
        for place in rng.integers(0, len(value), rng.integers(1, 6)):
            value[place] = rng.integers(0, 256)
        events, letters = Parser(Features(2), "int").parse_messages(
            [RawMessage(0, b"\xff\xff\xff\xff" + bytes(value[4:]))], ORIGIN
        )
        assert events.rejected == sum(letter.records for letter in letters)


NULLS = pa.table({"op": pa.nulls(ROWS_MAX)})
BAD_ROWS = {
    "nulls": NULLS,
    "no ends": pa.table({"op": pa.DictionaryArray.from_arrays(np.zeros(ROWS_MAX, np.int8), ["add_edge"])}),
    "features of another width": pa.table(
        {
            "op": pa.DictionaryArray.from_arrays(np.zeros(ROWS_MAX, np.int8), ["add_vertex"]),
            "id": np.zeros(ROWS_MAX, np.int64),
            "x": pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(3 * ROWS_MAX, np.float32)), 3),
        }
    ),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_million_bad_rows_are_counted_and_have_a_thousand_letters(name: str) -> None:
    for kind in ("int", None) if name == "nulls" else ("int",):
        value = as_stream(BAD_ROWS[name], "zstd")
        began = time.process_time()
        events, letters = Parser(Features(2), kind).parse_messages([RawMessage(5, value)], ORIGIN)
        assert time.process_time() - began < 60
        assert (len(events), events.rejected, len(letters)) == (0, ROWS_MAX, 1001)
        assert sum(letter.records for letter in letters) == ROWS_MAX
        assert letters[-1].error.startswith("the rest of a message with more than 1,000 bad records, got ")


def test_many_rows_that_only_the_rules_can_judge_are_set_aside() -> None:
    value = as_stream(pa.table({"op": pa.RunEndEncodedArray.from_arrays([ROWS_MAX], ["add_edge"])}))
    events, (letter,) = Parser(Features(2), "int").parse_messages([RawMessage(5, value)], ORIGIN)
    assert (events.rejected, letter.error.split(":")[0]) == (
        1,
        "too many rows in an Arrow IPC stream that is read row by row",
    )
    events, (letter,) = Parser(Features(2), "int", None, {"op": "op"}).parse_messages(
        [RawMessage(5, as_stream(NULLS))], ORIGIN
    )
    assert "row by row" in letter.error


def test_texts_and_lists_that_rows_share_are_bounded() -> None:
    indices = np.zeros(100_000, np.int32)
    long = pa.table({"op": pa.nulls(100_000), "id": pa.DictionaryArray.from_arrays(indices, ["x" * 1000])})
    assert "MiB of texts by dictionaries" in str(read_arrow(as_stream(long)))
    lists = pa.table({"x": pa.DictionaryArray.from_arrays(indices, pa.array([[1.0]]))})
    assert "expected plain values, got a dictionary of list" in str(read_arrow(as_stream(lists)))
    raws = pa.table({"op": pa.DictionaryArray.from_arrays(np.zeros(60, np.int32), ["x" * MEGABYTE])})
    _, letters = Parser(Features(2), "int").parse_messages([RawMessage(5, as_stream(raws))], ORIGIN)
    assert sum(len(letter.raw) for letter in letters) < 10 * MEGABYTE
    assert sum(letter.records for letter in letters) == 60


@pytest.mark.parametrize("file", [False, True])
def test_a_file_with_a_bomb_is_refused_by_name(tmp_path: Path, file: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "events.arrow"
    path.write_bytes((as_file if file else as_stream)(TABLE, "zstd"))
    assert sum(chunk.count for chunk in plan_chunks([str(path)])) == 1000
    monkeypatch.setattr("freshet.operators.parser.tables.arrow.BATCH_BYTES", 1000)
    with pytest.raises(EventFileError, match=r"events\.arrow: cannot be read as .*: too much in a record"):
        plan_chunks([str(path)])


def test_a_file_with_a_false_footer_is_refused(tmp_path: Path) -> None:
    path, whole = tmp_path / "events.arrow", as_file(TABLE)
    for damage in (b"\xff" * 40, b"\0" * 40, bytes(range(40))):
        path.write_bytes(whole[:-60] + damage + whole[-20:])
        with pytest.raises(EventFileError, match=r"events\.arrow"):
            plan_chunks([str(path)])


def test_memory_stays_flat_in_a_process_of_its_own() -> None:
    """The figures of the review: 224 bytes were 445 MB."""
    code = (
        "import resource; from tests.unit.operators.parser.arrow.test_bounds import *; value = as_stream(NULLS);"
        "small = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss; before = small();"
        "Parser(Features(2), 'int').parse_messages([RawMessage(0, value)], ORIGIN); print(small() - before)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 150_000, "kilobytes"
