"""Units of `ts`: of integers as the job has it, of timestamps by their type, in every format and in `freshet check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.job.results.plain_reader import event_ts_of, file_records, message_records, snapshot_events
from freshet.job.results.plain_rules import PlainRules
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.event_files import list_files
from freshet.operators.parser.messages import RawMessage
from freshet.operators.snapshot.reader import open_snapshot
from freshet.partitioner.events import NO_TS
from freshet.partitioner.times.units import UNITS
from freshet.schema import Features
from tests.support.stages.parsed import ORIGIN

T = 1_700_000_000_123
PARTS = {"s": 1, "ms": 1000, "us": 10**6, "ns": 10**9}  # of a second
MAP = {"op": "`add_edge`", "src": "src", "dst": "dst", "ts": "at"}
NESTED = MAP | {"ts": "a.at"}


def of_unit(ms: int, unit: str) -> int:
    return ms * PARTS[unit] // 1000


def ms_of(number: int, unit: str) -> int:
    return number * 1000 // PARTS[unit]


def lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def taken(events: Any) -> list[int | None]:
    assert len(events)
    return [None] * len(events) if events.ts is None else [None if ts == NO_TS else ts for ts in events.ts.tolist()]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("maps", [None, MAP, NESTED])
@pytest.mark.parametrize("lines_min", [1, 10**6])
def test_integers_are_of_the_jobs_unit(unit: Any, maps: Any, lines_min: int) -> None:
    """Lines by columns and one by one, in files and messages; what is finer is rounded down, also before 1970."""
    given = [of_unit(T, unit), -1, 0, None]
    edge = {"op": "add_edge", "src": 1, "dst": 2}
    rows = [edge | {"ts": ts, "at": ts, "a": {"at": ts}} for ts in given]
    wanted = [None if ts is None else ms_of(ts, unit) for ts in given]
    parser = Parser(Features(2), None, None, maps, lines_min=lines_min, ts_unit=unit)
    events, letters = parser.parse_jsonl(lines(rows), ORIGIN)
    assert not letters
    assert taken(events) == wanted
    messages = [RawMessage(k, lines([row])) for k, row in enumerate(rows)]
    assert taken(parser.parse_messages(messages, Origin(0, "topic"))[0]) == wanted
    plain = message_records(messages, PlainRules(Features(2), None, None, maps, ts_unit=unit))
    assert [one.event and one.event.ts for one in plain] == wanted


@pytest.mark.parametrize("lines_min", [1, 10**6])
def test_seconds_past_int64_in_milliseconds_are_rejected(lines_min: int) -> None:
    most = (2**63 - 1) // 1000
    rows = [{"op": "add_edge", "src": 1, "dst": 2, "ts": ts} for ts in (most, most + 1, -most, -most - 1, 1.5)]
    events, letters = Parser(Features(2), "int", lines_min=lines_min, ts_unit="s").parse_jsonl(lines(rows), ORIGIN)
    assert taken(events) == [most * 1000, -most * 1000]
    assert [letter.error.partition(", got")[0] for letter in letters] == [
        "ts: expected an integer above -2**63 and below 2**63 in milliseconds",
        "ts: expected an integer above -2**63 and below 2**63 in milliseconds",
        "ts: expected an integer (seconds)",
    ]
    rules = PlainRules(Features(2), "int", ts_unit="s")
    judged = [one.event is not None for one in message_records(enumerate(map(orjson.dumps, rows)), rules)]
    assert judged == [True, False, True, False, False]


@pytest.mark.parametrize("own", UNITS)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
@pytest.mark.parametrize("maps", [None, MAP])
def test_timestamps_are_taken_by_their_type(tmp_path: Path, own: str, zone: str | None, maps: Any) -> None:
    """In files of both formats, in messages, and behind a map; the unit of integers says nothing of them."""
    column = pa.array([of_unit(T, own), -1, None], pa.timestamp(own, zone))
    edges = {"op": ["add_edge"] * 3, "src": [1] * 3, "dst": [2] * 3, "ts": column, "at": column}
    table, wanted = pa.table(edges), [ms_of(of_unit(T, own), own), ms_of(-1, own), None]
    with pa.ipc.new_file(tmp_path / "e.arrow", table.schema) as file:
        file.write_table(table)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    message = [RawMessage(3, sink.getvalue().to_pybytes())]
    for unit in ("ms", "us"):
        parser = Parser(Features(2), None, None, maps, ts_unit=unit)
        for found, letters in (parser.parse_table(table, ORIGIN), parser.parse_messages(message, Origin(0, "topic"))):
            assert not letters
            assert taken(found) == wanted
        rules = PlainRules(Features(2), None, None, maps, ts_unit=unit)
        records = [*file_records(list_files([str(tmp_path / "e.arrow")])[0], rules), *message_records(message, rules)]
        assert [one.event and one.event.ts for one in records] == wanted * 2


def test_a_timestamp_is_nothing_but_a_ts() -> None:
    at = pa.array([1], pa.timestamp("ms"))
    table = pa.table({"op": ["add_edge"], "src": [1], "dst": [2], "weight": at, "ts": at})
    (letter,) = Parser(Features(2)).parse_table(table, ORIGIN)[1]
    assert letter.error == "weight: expected a number, got a value of type timestamp[ms]"


def test_a_large_message_with_timestamps_is_taken_by_columns() -> None:
    rows = (1 << 16) + 1
    one = {"op": "add_edge", "src": 1, "dst": 2}
    table = pa.table({name: pa.array([value] * rows) for name, value in one.items()})
    table = table.append_column("ts", pa.array([T] * rows, pa.timestamp("ms")))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    events, letters = Parser(Features(2)).parse_messages([RawMessage(0, sink.getvalue().to_pybytes())], Origin())
    assert (len(events), letters) == (rows, [])
    plain = message_records([(0, sink.getvalue().to_pybytes())], PlainRules(Features(2)))
    assert {one.event and one.event.ts for one in plain} == {T}


@pytest.mark.parametrize("exported", [False, True])
def test_times_in_a_snapshot_are_of_the_unit_unless_a_job_exported_them(tmp_path: Path, exported: bool) -> None:
    pq.write_table(pa.table({"id": [1], "x": [[1.0, 2.0]]}), tmp_path / "vertices.parquet")
    pq.write_table(pa.table({"src": [1], "dst": [2], "ts": [1_700_000_000]}), tmp_path / "edges.parquet")
    if exported:
        (tmp_path / "snapshot.json").write_text('{"event_ts": 1700000000}')
    wanted = 1_700_000_000 if exported else 1_700_000_000_000
    *_, edges = open_snapshot(tmp_path, Features(2), is_timed=True, ts_unit="s").blocks()
    assert taken(edges) == [wanted]
    *_, edge = snapshot_events(tmp_path, PlainRules(Features(2), "int", ts_unit="s"), with_ts=True)
    assert edge.ts == wanted
    assert (event_ts_of(tmp_path) is not None) == exported
