"""Records that the Parser rejects and why, and records of all kinds, as JSON Lines and as tables."""

from __future__ import annotations

import random
from typing import Any

import orjson
import pyarrow as pa

from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.letter_box import DeadLetter
from freshet.partitioner.events import NO_TS, OP_NAMES, Events
from freshet.schema import Features

ORIGIN = Origin(source=3, name="stream.jsonl", partition=2)
REJECTED: list[tuple[dict[str, Any], str]] = [
    ({}, "op: missing"),
    ({"op": None, "id": 1}, "op: missing"),
    ({"op": "add", "id": 1}, "op: expected one of add_vertex, del_vertex, set_features, add_edge, del_edge, got the "),
    ({"op": 3, "id": 1}, "op: expected a string, got the integer 3"),
    ({"op": ["add_vertex"], "id": 1}, "op: expected a string, got a list"),
    ({"op": "add_vertex"}, "id: missing"),
    ({"op": "del_vertex", "id": None}, "id: missing"),
    ({"op": "del_vertex", "id": True}, "id: expected an integer, got the boolean true"),
    ({"op": "del_vertex", "id": 7.0}, "id: expected an integer, got the number 7.0"),
    ({"op": "del_vertex", "id": [7]}, "id: expected an integer, got a list"),
    ({"op": "del_vertex", "id": {"a": 7}}, "id: expected an integer, got an object"),
    ({"op": "del_vertex", "id": 2**63}, "id: expected an integer within int64, got 9223372036854775808"),
    ({"op": "del_vertex", "id": "7"}, "id: expected an integer like the job's other ids, got the string '7'"),
    ({"op": "set_features", "id": 1}, "x: missing, set_features needs it"),
    ({"op": "set_features", "id": 1, "x": None}, "x: missing"),
    ({"op": "set_features", "id": 1, "x": []}, "x: expected 2 numbers, got 0"),
    ({"op": "set_features", "id": 1, "x": [1.0]}, "x: expected 2 numbers, got 1"),
    ({"op": "add_vertex", "id": 1, "x": [1.0, 2.0, 3.0]}, "x: expected 2 numbers, got 3"),
    ({"op": "add_vertex", "id": 1, "x": 1.5}, "x: expected a list of numbers, got the number 1.5"),
    ({"op": "add_vertex", "id": 1, "x": "12"}, "x: expected a list of numbers, got the string '12'"),
    ({"op": "add_vertex", "id": 1, "x": [True, False]}, "x: expected numbers, got the boolean true at index 0"),
    ({"op": "add_vertex", "id": 1, "x": [1.0, None]}, "x: expected numbers, got null at index 1"),
    ({"op": "add_vertex", "id": 1, "x": ["1", "2"]}, "x: expected numbers, got the string '1' at index 0"),
    ({"op": "add_vertex", "id": 1, "x": [[1], [2]]}, "x: expected numbers, got a list at index 0"),
    ({"op": "add_vertex", "id": 1, "x": [0.5, 1e39]}, "x: not finite in float32 at index 1, got the number 1e+39"),
    ({"op": "add_vertex", "id": 1, "x": [-3.4028236e38, 0]}, "x: not finite in float32 at index 0"),
    ({"op": "add_edge", "src": 1}, "dst: missing"),
    ({"op": "add_edge", "dst": 1}, "src: missing"),
    ({"op": "del_edge", "src": 1, "dst": None}, "dst: missing"),
    ({"op": "add_edge", "src": 1, "dst": "1"}, "dst: expected an integer like the job's other ids, got the string"),
    ({"op": "add_edge", "src": False, "dst": 1}, "src: expected an integer, got the boolean false"),
    ({"op": "add_edge", "src": 1, "dst": 2**64 - 1}, "dst: expected an integer within int64"),
    ({"op": "add_edge", "src": 1, "dst": 1e300}, "dst: expected an integer within int64, got 1e+300"),
    ({"op": "del_vertex", "id": -(2.0**63)}, "id: expected an integer within int64, got -9.223372036854776e+18"),
    ({"op": "add_edge", "src": 1, "dst": 2, "weight": "1"}, "weight: expected a number, got the string '1'"),
    ({"op": "add_edge", "src": 1, "dst": 2, "weight": True}, "weight: expected a number, got the boolean true"),
    ({"op": "add_edge", "src": 1, "dst": 2, "weight": [1]}, "weight: expected a number, got a list"),
    ({"op": "add_edge", "src": 1, "dst": 2, "weight": 1e39}, "weight: not finite in float32, got the number 1e+39"),
    ({"op": "add_edge", "src": 1, "dst": 2, "type": 5}, "type: expected a string, got the integer 5"),
    ({"op": "del_edge", "src": 1, "dst": 2, "type": ["a"]}, "type: expected a string, got a list"),
    ({"op": "add_edge", "src": 1, "dst": 2, "attr": 1}, "attr: expected a list of numbers, got the integer 1"),
    ({"op": "add_edge", "src": 1, "dst": 2, "attr": [True]}, "attr: expected numbers, got the boolean true"),
    ({"op": "add_edge", "src": 1, "dst": 2, "attr": [0.0, 1e39]}, "attr: not finite in float32 at index 1"),
    ({"op": "del_vertex", "id": 7.5}, "id: expected an integer, got the number 7.5"),
    ({"op": "add_edge", "src": 1, "dst": 1e17}, "dst: expected an integer, got the number 1e+17"),
    ({"op": "add_vertex", "id": 1, "ts": "2024-01-01"}, "ts: expected an integer (milliseconds), got the string"),
    ({"op": "del_vertex", "id": 1, "ts": True}, "ts: expected an integer (milliseconds), got the boolean true"),
    ({"op": "set_features", "id": 1, "x": [1, 2], "ts": 1.5}, "ts: expected an integer (milliseconds), got the n"),
    ({"op": "add_edge", "src": 1, "dst": 2, "ts": [1]}, "ts: expected an integer (milliseconds), got a list"),
    ({"op": "del_edge", "src": 1, "dst": 2, "ts": {}}, "ts: expected an integer (milliseconds), got an object"),
    ({"op": "add_edge", "src": 1, "dst": 2, "ts": 2**63}, "ts: expected an integer above -2**63 and below 2**63, got"),
    ({"op": "add_edge", "src": 1, "dst": 2, "ts": -(2**63)}, "ts: expected an integer above -2**63 and below 2**63"),
    ({"op": "add_edge", "src": 1, "dst": 2, "ts": 1e30}, "ts: expected an integer above -2**63 and below 2**63, got"),
]


def as_rows(events: Events) -> list[tuple[Any, ...]]:
    return [
        (
            OP_NAMES[op],
            a,
            b,
            weight,
            events.types[etype],
            events.x.matrix[row].tolist() if row >= 0 else None,
            position,
            None if ts == NO_TS else ts,
        )
        for op, a, b, weight, etype, row, position, ts in zip(
            events.op,
            events.a.to_list(),
            events.b.to_list(),
            events.values.weight.tolist(),
            events.etype,
            events.x_row,
            events.position.tolist(),
            [NO_TS] * len(events) if events.ts is None else events.ts.tolist(),
            strict=True,
        )
    ]


def jsonl(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(row) + b"\n" for row in rows)


def table(rows: list[dict[str, Any]], **types: pa.DataType) -> pa.Table:
    """The rows as a table; a column that holds several Python types is left to fail."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {}
    for name in names:
        values = [row.get(name) for row in rows]
        integers = [value for value in values if type(value) is int]
        inferred = pa.uint64() if integers and max(integers) >= 2**63 else None
        kind = types.get(name, inferred)
        if kind is not None and pa.types.is_dictionary(kind):  # pyarrow makes few kinds of these by itself
            encoded = pa.array(values, kind.value_type).dictionary_encode()
            columns[name] = pa.DictionaryArray.from_arrays(encoded.indices.cast(kind.index_type), encoded.dictionary)
        else:
            columns[name] = pa.array(values, kind)
    return pa.table(columns)


def the_same_as_jsonl(rows: list[dict[str, Any]], batch: pa.Table, **options: Any) -> list[DeadLetter]:
    plain, plain_letters = Parser(Features(2), **options).parse_jsonl(jsonl(rows), ORIGIN, 100)
    parsed, letters = Parser(Features(2), **options).parse_table(batch, ORIGIN, 100)
    assert as_rows(parsed) == as_rows(plain)
    assert [letter[:4] for letter in letters] == [letter[:4] for letter in plain_letters]
    assert parsed.reject_rows.tolist() == plain.reject_rows.tolist()
    assert parsed.end_position == plain.end_position == 100 + len(rows)
    assert parsed.types == plain.types
    assert [
        None
        if one.values.attr_sizes is None or max(one.values.attr_sizes, default=-1) < 0
        else one.values.attr_sizes.tolist()
        for one in (parsed,)
    ] == [None if plain.values.attr_sizes is None else plain.values.attr_sizes.tolist()]
    assert parsed.a.kind == plain.a.kind
    assert len(parsed) + len(letters) == len(rows)
    return letters


def random_rows(rng: random.Random, kind: str, n: int, fixed: bool = False) -> list[dict[str, Any]]:
    """Events of all kinds, a tenth of them bad in some way that a typed table can hold."""

    def vertex() -> Any:
        number = rng.randrange(30)
        return number - 15 if kind == "int" else f"{'ü' * (number % 3)}{number}"

    rows: list[dict[str, Any]] = []
    for _ in range(n):
        op = rng.choice(OP_NAMES)
        if op.endswith("edge"):
            row = {"op": op, "src": vertex(), "dst": vertex()}
            row |= {} if rng.random() < 0.5 else {"weight": rng.choice([0.5, 2.0, 1e-3])}
            row |= {} if rng.random() < 0.5 else {"type": rng.choice(["a", "b", None, "c"])}
            row |= {} if rng.random() < 0.7 else {"attr": [1.0] * rng.randrange(3)}
        else:
            row = {"op": op, "id": vertex()}
            if op != "del_vertex" or rng.random() < 0.2:
                row["x"] = [rng.random(), rng.randrange(5) * 1.0]
        if rng.random() < 0.1:
            bad: dict[str, Any] = rng.choice(
                [{"op": "x"}, {"op": None}, {"id": None}, {"src": None}, {"dst": None}, {"weight": 1e300}]
                + [{"x": [1e39, 0.0]}, {"x": None}, {"attr": [1.0, 1e200]}]
                + ([] if fixed else [{"x": [1.0]}, {"x": []}, {"x": [1.0, 2.0, 3.0]}])
            )
            row |= {name: value for name, value in bad.items() if name in row}
        if "x" in row and row["x"] and max(row["x"]) > 1e38 and not fixed:
            row["x"] = [0.0, 1.0]  # float32 columns cannot hold it; the fixed ones below can
        rows.append({name: value for name, value in row.items() if value is not None})
    if fixed:
        rows = [{**row, "x": [0.0, 1.0]} if max(row.get("x") or [0]) > 1e38 else row for row in rows]
    return rows
