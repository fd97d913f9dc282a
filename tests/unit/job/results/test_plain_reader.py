"""The plain reader: it knows by itself what is an event, and where the Parser is right the two agree."""

import random
from decimal import Decimal

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet.job.errors import UsageError
from freshet.job.results.plain_reader import READERS, Judged, file_records, message_records, snapshot_events
from freshet.job.results.plain_rules import Event, PlainRules
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.event_files import list_files
from freshet.operators.parser.formats import TABLES
from freshet.operators.parser.messages import RawMessage
from freshet.operators.snapshot.writer import write_snapshot
from freshet.partitioner.events import NO_TS, OP_NAMES
from freshet.schema import Features, edge_row
from tests.support.graphs.attributed import EDGE_WIDTH
from tests.support.graphs.models import IN_WIDTH
from tests.support.graphs.streams import random_records
from tests.support.malformed.arrow import rows_to_ipc, to_ipc
from tests.support.malformed.records import FLOOD, ROW, all_ways, edge_event, vertex_event

GOOD = b'{"op":"del_vertex","id":1}'
TYPES = ("cites", "writes")


def test_every_format_of_tables_is_read_here_by_other_code():
    assert READERS.keys() == TABLES.keys()
    assert not any("operators.parser.tables" in reader.__module__ for reader in READERS.values())


def as_rows(events):
    """What the Parser made, in the words of the plain reader."""
    rows = zip(
        events.op.tolist(), events.a.to_list(), events.b.to_list(), events.values.weight.tolist(),
        events.etype.tolist(), events.x_row.tolist(), stamps(events), strict=True,
    )  # fmt: skip
    found = []
    for (op, a, b, weight, etype, row, ts), position in zip(rows, events.position.tolist(), strict=True):
        x = tuple(events.x.matrix[row].tolist()) if row >= 0 else None
        edge = OP_NAMES[op].endswith("edge")
        named = events.types[etype] if edge else ""
        found.append((position, OP_NAMES[op], a, b if edge else None, x, weight, named, ts))
    return found


def stamps(events):
    """The `ts` of each event, None without."""
    return [None] * len(events) if events.ts is None else [None if ts == NO_TS else ts for ts in events.ts.tolist()]


def shown(records):
    """Accepted records alone, comparable."""
    events = [(record.position, record.event) for record in records if record.event is not None]
    return [
        (
            position,
            one.op,
            one.a,
            one.b,
            None if one.x is None else tuple(one.x.tolist()),
            one.values[0],
            one.type,
            one.ts,
        )
        for position, one in events
    ]


@pytest.mark.parametrize("way", all_ways(), ids=lambda way: way.name)
def test_a_malformed_record_is_rejected_alone(way):
    for seed in range(1 if way.heavy else 20):
        rng = random.Random(seed)
        made = way.make(rng)
        value, bad = made if way.kind == FLOOD else (made, 1)
        if way.kind == ROW:
            value = rows_to_ipc([edge_event(rng), made, vertex_event(rng)])
        records = message_records([(3, GOOD), (4, value), (5, GOOD)], PlainRules(Features(IN_WIDTH, EDGE_WIDTH), "int"))
        found = [(record.position, record.event is not None) for record in records]
        around = [(5, True), (5, False), (5, True)] if way.kind == ROW else [(5, False)] * bad
        assert found == [(4, True), *around, (6, True)], f"seed {seed}"


def column_of(records, name):
    return [record.get(name) for record in records]


def to_table(records, strings):
    ids = pa.string() if strings else pa.int64()
    kinds = {"op": pa.string(), "id": ids, "src": ids, "dst": ids, "x": pa.list_(pa.float32()), "weight": pa.float64()}
    kinds["type"] = pa.dictionary(pa.int32(), pa.string())
    return pa.table({name: pa.array(column_of(records, name), kind) for name, kind in kinds.items()})


@pytest.mark.parametrize("strings", [False, True])
@pytest.mark.parametrize("types", [(), TYPES])
def test_every_format_holds_the_same_events(tmp_path, strings, types):
    records = random_records(random.Random(7), 3_000, 3, strings=strings, types=types)
    for record in records:
        if "x" in record:
            record["x"] = np.array(record["x"], np.float32).tolist()
    table = to_table(records, strings)
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(map(orjson.dumps, records)))
    pq.write_table(table, tmp_path / "b.parquet", row_group_size=700)
    with pa.ipc.new_file(tmp_path / "c.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=900)
    with pa.OSFile(str(tmp_path / "d.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    rules = lambda: PlainRules(Features(3), None, types or None)  # noqa: E731
    parser = Parser(Features(3), None, types or None)
    expected = as_rows(parser.parse_jsonl((tmp_path / "a.jsonl").read_bytes(), Origin())[0])
    for file in list_files([str(tmp_path)]):
        found = list(file_records(file, rules()))
        assert shown(found) == expected, file.name
        assert shown(file_records(file, rules(), first=1_234)) == expected[1_234:], file.name
    at_once = message_records([(7, to_ipc(table)), (8, (tmp_path / "a.jsonl").read_bytes())], rules())
    assert [row[1:] for row in shown(at_once)] == [row[1:] for row in expected] * 2


def test_lines_are_numbered_with_the_blank_ones(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\n" + GOOD + b"\r\n \t\nnonsense\n" + GOOD)
    (file,) = list_files([str(tmp_path / "a.jsonl")])
    event = Event("del_vertex", 1)
    assert list(file_records(file, PlainRules(Features(1)))) == [Judged(2, event), Judged(4, None), Judged(5, event)]
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and nothing else")
    (file,) = list_files([str(tmp_path / "b.parquet")])
    with pytest.raises(UsageError, match=r"b\.parquet: can't be read"):
        list(file_records(file, PlainRules(Features(1))))


VALUES = [
    None, True, False, 0, 1, -1, 2, 7.0, 0.5, -0.0, 2**63, -(2**63), 2**63 - 1, 1e39, 3.4028235677973366e38, 3.4e38, "",
    "1", "é", "cites", [], [1], [1, 2.5], [None], [True], ["1"], [1e39, 0], [[1]], {}, {"a": 1}, "add_edge", "del_edge",
    "add_vertex", "set_features", "del_vertex",
]  # fmt: skip


@pytest.mark.parametrize("types", [(), TYPES])
@pytest.mark.parametrize("kind", ["int", "string", None])
def test_it_judges_as_the_parser_does(kind, types):
    rng = random.Random(f"{kind} {types}")
    lines = []
    for record in random_records(rng, 4_000, 2, types=types, strings=kind == "string"):
        for _ in range(rng.choice([0, 1, 1, 2])):
            field = rng.choice(["op", "id", "src", "dst", "x", "weight", "type", "attr", "ts", "other"])
            record[field] = rng.choice(VALUES)
        if record.get("type") == "":
            del record["type"]
        lines.append(orjson.dumps(record))
    events, letters = Parser(Features(2), kind, types or None).parse_jsonl(b"\n".join(lines), Origin())
    found = list(message_records(enumerate(lines), PlainRules(Features(2), kind, types or None)))
    assert shown(found) == as_rows(events)
    assert sum(record.event is None for record in found) == len(letters) > 500
    assert len(events) > 500


def odd_columns():
    """Columns as no schema asks for them, some good and some not."""
    ids = pa.array([1, 2, 3])
    vectors = pa.array([[1.0, 2.0], [3.0, None], None])
    return {
        "nothing": {},
        "dictionary": {"op": pa.array(["del_vertex"] * 3).dictionary_encode()},
        "large strings": {"op": pa.array(["del_vertex"] * 3, pa.large_string())},
        "views": {"op": pa.array(["del_vertex"] * 3).cast(pa.string()).cast(pa.binary()).view(pa.binary())},
        "small integers": {"id": ids.cast(pa.int8())},
        "unsigned": {"id": pa.array([1, 2**63, 2**63 - 1], pa.uint64())},
        "floats": {"id": ids.cast(pa.float64())},
        "floats, not all whole": {"id": pa.array([1.0, 2.5, None])},
        "floats that may have been rounded": {"id": pa.array([2.0**53, 2.0**53 + 2, float("inf")])},
        "small floats": {"id": pa.array([1, 2048, None], pa.float32()).cast(pa.float16())},
        "decimals": {"id": pa.array([Decimal("1.00"), Decimal("2.50"), Decimal("9223372036854775808")])},
        "wide decimals": {"id": pa.array([Decimal(3), None, Decimal(-(2**63))], pa.decimal256(50, 2))},
        "dictionary of floats": {"id": pa.array([1.0, 7.0, 1.5]).dictionary_encode()},
        "views of text": {"op": pa.array(["del_vertex", "fly", "del_vertex"], pa.string_view())},
        "dictionary of views": {
            "op": pa.DictionaryArray.from_arrays([0, 1, 0], pa.array(["del_vertex", "fly"], pa.string_view()))
        },
        "dates as times": {"ts": pa.array([1, None, 3], pa.int32()).cast(pa.date32())},
        "texts as times": {"ts": pa.array(["2024-01-01", None, ""])},
        "booleans": {"id": pa.array([True, False, None])},
        "dates": {"id": ids.cast(pa.int32()).cast(pa.date32())},
        "texts": {"id": pa.array(["1", "2", "3"])},
        "dictionary of integers": {"id": ids.dictionary_encode()},
        "run ends": {"id": pa.RunEndEncodedArray.from_arrays([2, 3], [1, 2])},
        "times": {"ts": pa.array([1, 2, 3], pa.timestamp("ms"))},
        "small times": {"ts": pa.array([1, None, 3], pa.int16())},
        "times of floats": {"ts": pa.array([1.0, None, 3.0])},
        "no text": {"op": pa.array([b"\xff\xfe", b"del_vertex", None]).cast(pa.string(), safe=False)},
        "features": {"op": pa.array(["set_features"] * 3), "x": vectors},
        "fixed features": {"op": pa.array(["add_vertex"] * 3), "x": vectors.cast(pa.list_(pa.float32(), 2))},
        "integer features": {"op": pa.array(["set_features"] * 3), "x": pa.array([[1, 2], [3], [4, 2**62]])},
        "half features": {"op": pa.array(["set_features"]), "id": pa.array([1]), "x": halves()},
        "map of nothing": {"op": pa.array(["add_vertex"]), "id": pa.array([1]), "x": empty_map()},
        "weights": edges(weight=pa.array([0.1, None, float("nan")])),
        "integer weights": edges(weight=pa.array([1, 2**40, None])),
        "weights in a dictionary": edges(weight=pa.array([0.5, 0.5, None]).dictionary_encode()),
        "decimal weights": edges(weight=pa.array([Decimal("0.10"), None, Decimal("1e30")])),
        "wide decimal weights": edges(weight=pa.array([Decimal("0.1"), Decimal(10) ** 40, None], pa.decimal256(60, 5))),
        "half weights": edges(weight=pa.array([0.5, None, 2], pa.float32()).cast(pa.float16())),
        "decimal features": {
            "op": pa.array(["add_vertex"] * 3),
            "x": pa.array([[Decimal("0.5"), Decimal("1")], [None, Decimal("1")], None]),
        },
        "weights as text": edges(weight=pa.array(["1", None, "x"])),
        "types": edges(type=pa.array(["a", None, "b"]).dictionary_encode()),
        "types of numbers": edges(type=pa.array([1, None, 2])),
        "attributes": edges(attr=pa.array([[1.0, 2.0], None, [float("inf"), 0.0]])),
        "attributes of text": edges(attr=pa.array([["1"], None, []])),
    }


def halves():
    return pa.array([np.array([1, 2], np.float16)], pa.list_(pa.float16()))


def empty_map():
    return pa.array([[]], pa.map_(pa.string(), pa.int64()))


def edges(**columns):
    return {"op": pa.array(["add_edge"] * 3), "src": pa.array([1, 2, 3]), "dst": pa.array([4, 5, 6]), **columns}


@pytest.mark.parametrize("name", odd_columns())
def test_it_takes_odd_columns_as_the_parser_does(tmp_path, name):
    columns = odd_columns()[name]
    if "src" not in columns and "x" not in columns:
        columns = {"op": pa.array(["del_vertex"] * 3), "id": pa.array([1, 2, 3])} | columns
    elif "src" not in columns:
        columns = {"id": pa.array([1, 2, 3])} | columns
    table = pa.table(columns)
    events, letters = Parser(Features(2), "int").parse_table(table, Origin())
    (tmp_path / "a.arrow").write_bytes(to_ipc(table))
    (file,) = list_files([str(tmp_path / "a.arrow")])
    found = list(file_records(file, PlainRules(Features(2), "int")))
    assert shown(found) == as_rows(events)
    assert sum(record.event is None for record in found) == len(letters)
    assert len(found) == table.num_rows


EVENTS_MAP = {"op": "`add_edge`", "src": "user.id", "dst": "to[0]", "weight": "abs(w)", "ts": "at"}


def test_foreign_records_are_mapped(tmp_path):
    records = [
        {"user": {"id": 1}, "to": [2, 3], "w": -0.5, "at": None},
        {"user": {"id": 1}, "to": [2, 3], "w": "heavy"},
        {"user": 1, "to": [2]},
        {"user": {"id": 1}, "to": [4], "w": 2, "at": 3, "op": "del_edge"},
        [1],
        {"user": {"id": 1}, "to": [4], "at": "noon"},
    ]
    lines = [orjson.dumps(record) for record in records]
    found = list(message_records(enumerate(lines), PlainRules(Features(2), "int", None, EVENTS_MAP)))
    assert [record.event is not None for record in found] == [True, False, False, True, False, False]
    assert found[0].event == Event("add_edge", 1, 2, values=edge_row({"weight": 0.5}))
    messages = [RawMessage(k, line) for k, line in enumerate(lines)]
    events, letters = Parser(Features(2), "int", None, EVENTS_MAP).parse_messages(messages, Origin())
    assert shown(found) == as_rows(events)
    assert found[3].event.ts == 3
    assert len(letters) == 4
    pq.write_table(pa.Table.from_pylist([records[0], records[3]]), tmp_path / "a.parquet")
    (file,) = list_files([str(tmp_path / "a.parquet")])
    assert [row[1:] for row in shown(file_records(file, PlainRules(Features(2), "int", None, EVENTS_MAP)))] == [
        row[1:] for row in shown(found)
    ]


def test_the_rules_that_the_parser_has_besides():
    def accepts(record, *given):
        return PlainRules(Features(2), *given).judge(record) is not None

    edge = {"op": "add_edge", "src": "a", "dst": "b"}
    assert accepts(edge)
    assert accepts({**edge, "dst": "é" * 512})
    assert not accepts({**edge, "dst": "é" * 512 + "a"})
    assert not accepts({**edge, "type": ""})
    assert not accepts({**edge, "type": ""}, None, TYPES)
    assert accepts({**edge, "type": ""}, None, ("", "cites"))
    assert not accepts({**edge, "dst": 1})
    undecided = PlainRules(Features(2))
    assert undecided.judge({"op": "del_vertex"}) is None
    assert undecided.judge({"op": "del_vertex", "id": "a"}) is not None
    assert undecided.judge({"op": "del_vertex", "id": 1}) is None, "the first event decides"


@pytest.mark.parametrize("typed", [False, True])
def test_a_snapshot_is_read_as_events(tmp_path, typed):
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    names = ["cites", None] if typed else None
    write_snapshot(tmp_path, ["a", "b", "c"], x, ["a", "c"], ["b", "b"], np.array([0.5, 2], np.float32), names)
    events = list(snapshot_events(tmp_path, PlainRules(Features(2), None, TYPES if typed else None)))
    assert [event[:3] for event in events[:3]] == [("add_vertex", name, None) for name in "abc"]
    assert np.array_equal([event.x for event in events[:3]], x)
    default = "cites" if typed else ""
    assert events[3:] == [
        Event("add_edge", "a", "b", values=edge_row({"weight": 0.5}), type=default),
        Event("add_edge", "c", "b", values=edge_row({"weight": 2.0}), type=default),
    ]
    with pytest.raises(UsageError, match=r"vertices\.parquet: row 0 is no add_vertex"):
        list(snapshot_events(tmp_path, PlainRules(Features(3))))


@pytest.mark.parametrize("kind", [pa.list_(pa.float16()), pa.large_list(pa.float16()), pa.list_(pa.float16(), 2)])
def test_a_snapshot_may_have_halves(tmp_path, kind):
    x = np.array([[0.1, -2], [65504, 2**-24]], np.float16)
    pq.write_table(pa.table({"id": [1, 2], "x": pa.array(list(x), kind)}), tmp_path / "vertices.parquet")
    weight = pa.array(np.array([0.3], np.float16))
    pq.write_table(pa.table({"src": [1], "dst": [2], "weight": weight}), tmp_path / "edges.parquet")
    events = list(snapshot_events(tmp_path, PlainRules(Features(2))))
    assert np.array_equal([event.x for event in events[:2]], x.astype(np.float32))
    assert events[2].values[0] == np.float32(np.float16(0.3))
