from __future__ import annotations

import json
import random
import zlib
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafka.partitioner.default import murmur2 as one_by_one

from freshet.job.kafka.produce_messages import (
    MESSAGE_BYTES,
    Line,
    NoArrowError,
    Packer,
    ProducedMessage,
    Router,
    murmur2,
    read_lines,
    to_arrow,
)
from freshet.operators.parser.files import ChunkReader, plan_chunks

EDGE = b'{"op":"add_edge","src":1,"dst":2}'
GONE = b'{"op":"del_edge","src":1,"dst":2,"type":"cites"}'
MALFORMED = (
    b"not json",
    b"\xff\xfe",
    b"[]",
    b"7",
    b"null",
    b'"op"',
    b"{}",
    b'{"op":"add_edge","src":1}',
    b'{"op":["add_edge"],"id":1}',
    b'{"op":"add_vertex","id":1.0}',
    b'{"op":"add_vertex","id":true}',
)


def partition(by: str, data: bytes, count: int = 64) -> int:
    return Router(by, count).route([data])[0].partition  # type: ignore[arg-type]


def test_what_stays_together() -> None:
    two, one = b'{"op":"del_vertex","id":2}', b'{"op":"set_features","id":1,"x":[1]}'
    assert partition("dst", EDGE) == partition("dst", GONE) == partition("dst", two)
    assert partition("src", EDGE) == partition("src", GONE) == partition("src", one)
    assert partition("dst", EDGE) != partition("src", EDGE), "1 and 2 are apart among 64"
    assert {partition("one", data) for data in (EDGE, one, two, *MALFORMED)} == {0}


def test_the_partition_is_the_one_of_kafkas_own_producers() -> None:
    # org.apache.kafka.common.utils.Utils.murmur2 of "21" and "foobar", from Kafka's own tests
    for key, number in ((21, -973932308), ("foobar", -790332482)):
        line = json.dumps({"op": "add_vertex", "id": key}).encode()
        assert Router("dst", 1000).route([line])[0] == Line((number & 0x7FFFFFFF) % 1000, str(key).encode(), line)


def test_all_keys_at_once_hash_as_one_by_one() -> None:
    rng = random.Random(5)
    keys = [rng.randbytes(length) for length in (*range(70), 1000, 30_001) for _ in range(3)]
    rng.shuffle(keys)
    expected = [one_by_one(key) & 0xFFFFFFFF for key in keys]
    assert murmur2(keys).tolist() == expected
    assert murmur2([]).tolist() == []
    assert murmur2([b""]).tolist() == [one_by_one(b"") & 0xFFFFFFFF]


@pytest.mark.parametrize("data", MALFORMED)
def test_a_malformed_line_goes_by_its_bytes(data: bytes) -> None:
    assert Router("dst", 7).route([data]) == [Line(zlib.crc32(data) % 7, None, data)]


def lines(*places: int) -> list[Line]:
    return [Line(place, b"%d" % k, b"line %d" % k) for k, place in enumerate(places)]


def pack(packer: Packer, *given: Line) -> list[ProducedMessage]:
    return [*packer.add(given), *packer.rest()]


def test_messages_keep_the_order_of_their_partition() -> None:
    assert pack(Packer(2, "jsonl"), *lines(0, 1, 0, 0)) == [
        ProducedMessage(0, None, b"line 0\nline 2", 2),
        ProducedMessage(0, b"3", b"line 3", 1),
        ProducedMessage(1, b"1", b"line 1", 1),
    ]


def test_a_message_stays_small_and_a_huge_line_travels_alone() -> None:
    huge, small = Line(0, None, b"x" * (2 * MESSAGE_BYTES)), Line(0, None, b"y" * (MESSAGE_BYTES // 2))
    got = pack(Packer(100, "jsonl"), small, huge, small, small)
    assert [message.events for message in got] == [1, 1, 1, 1]
    assert [message.value for message in got][1] == huge.data
    assert pack(Packer(100, "jsonl")) == []


def test_lines_of_a_file_stand_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_bytes(b'{"op": "add_vertex" ,"id":1}\r\n\n  \n\xff\x00bad\n{"a":"no end of line"}')
    (chunk,) = plan_chunks([str(path)])
    assert read_lines(chunk, ChunkReader()) == [
        b'{"op": "add_vertex" ,"id":1}\r',
        b"\xff\x00bad",
        b'{"a":"no end of line"}',
    ]


def test_rows_of_a_table_become_lines(tmp_path: Path) -> None:
    path = tmp_path / "events.arrow"
    table = pa.table({"op": ["add_vertex", "add_edge"], "id": [1, None], "src": [None, 1], "dst": [None, 2]})
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    (chunk,) = plan_chunks([str(path)])
    assert read_lines(chunk, ChunkReader()) == [b'{"op":"add_vertex","id":1}', EDGE]


def test_a_timestamp_becomes_milliseconds_in_lines(tmp_path: Path) -> None:
    at = pa.array([1_700_000_000_123_999], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"op": ["del_vertex"], "id": [1], "ts": at}), tmp_path / "t.parquet")
    (chunk,) = plan_chunks([str(tmp_path)])
    assert json.loads(read_lines(chunk, ChunkReader())[0])["ts"] == 1_700_000_000_123


def test_lines_become_an_arrow_stream() -> None:
    rows = [
        {"op": "add_vertex", "id": 7, "x": [0.5, 1]},
        {"op": "add_edge", "src": 7, "dst": 9, "weight": 2, "type": "cites", "ts": 5, "other": 1},
    ]
    table = pa.ipc.open_stream(to_arrow(json.dumps(row).encode() for row in rows)).read_all()
    given = [{key: value for key, value in row.items() if value is not None} for row in table.to_pylist()]
    assert given == [rows[0], {key: value for key, value in rows[1].items() if key != "other"}]
    names = pa.ipc.open_stream(to_arrow([b'{"op":"del_vertex","id":"a"}'])).read_all()
    assert names.to_pylist() == [{"op": "del_vertex", "id": "a"}]


@pytest.mark.parametrize("data", [b"no json", b"[1]", b'{"op":"add_vertex","id":1,"x":"wide"}', b'{"op":7}'])
def test_what_no_table_can_hold(data: bytes) -> None:
    with pytest.raises(NoArrowError, match="use --format jsonl"):
        to_arrow([EDGE, data])


def test_whole_floats_and_decimals_of_tables_are_ids_in_lines_too(tmp_path: Path) -> None:
    columns = {
        "op": ["add_edge"],
        "src": [7.0],
        "dst": pa.array([Decimal("8.00")]),
        "weight": pa.array([Decimal("0.5")]),
    }
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    (tmp_path / "b.jsonl").write_bytes(b'\xef\xbb\xbf{"op":"del_vertex","id":1}\r\n\n')
    table, text = plan_chunks([str(tmp_path)])
    assert read_lines(table, ChunkReader()) == [b'{"op":"add_edge","src":7,"dst":8,"weight":0.5}']
    assert read_lines(text, ChunkReader()) == [b'{"op":"del_vertex","id":1}\r']


def test_rows_of_text_are_sent_as_the_events_that_they_are(tmp_path: Path) -> None:
    rows = b'op,id,src,dst,x_0,x_1,weight,ts,note\nadd_vertex,7,,,0.5,1,,,"a ""b""\nc"\n'
    rows += b"add_edge,,007,8,,,0.25,2024-01-01,\n"
    (tmp_path / "day=3").mkdir()
    (tmp_path / "day=3" / "a.csv").write_bytes(rows + b"add_edge,1\nadd_edge,,1,2,,,heavy,,\n")
    (chunk,) = plan_chunks([str(tmp_path)])
    found = [json.loads(line) for line in read_lines(chunk, ChunkReader(every_column=True))]
    assert found == [
        {"op": "add_vertex", "id": 7, "x": [0.5, 1.0], "note": 'a "b"\nc', "day": "3"},
        {"op": "add_edge", "src": "007", "dst": "8", "weight": 0.25, "ts": 1_704_067_200_000, "day": "3"},
        "add_edge,1",
        {"op": "add_edge", "src": 1, "dst": 2, "weight": "heavy", "day": "3"},
    ]
