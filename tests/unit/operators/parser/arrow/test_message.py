"""Kafka messages that are Arrow IPC streams: what Arrow can hold and no event can must not stop the job."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from freshet.operators.parser.arrow import bounds
from freshet.operators.parser.arrow.bounds import ROWS_MAX, VALUES_MAX, read_arrow
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.messages import RawMessage
from freshet.schema import Features
from tests.support.malformed.arrow import to_ipc

ORIGIN = Origin(1, "kafka://localhost:9092/events", 2)


def nulls(count: int) -> pa.Array:
    """Nulls, which take no bytes."""
    return pa.Array.from_buffers(pa.null(), count, [None])


def _struct_of_twins() -> pa.Array:
    return pa.StructArray.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["a", "a"])


# Types that Arrow can't take rows of, and values that Python can't show.
RARE_COLUMNS: dict[str, Callable[[], pa.Array]] = {
    "a year past 9999": lambda: pa.array([10**8, 1], pa.int32()).cast(pa.date32()),
    "years in a dictionary": lambda: pa.array([10**8, 1], pa.int32()).cast(pa.date32()).dictionary_encode(),
    "years in lists": lambda: pa.ListArray.from_arrays([0, 1, 2], pa.array([10**8, 1], pa.int32()).cast(pa.date32())),
    "a time past all calendars": lambda: pa.array([2**62, 1], pa.timestamp("s")),
    "no such time zone": lambda: pa.array([1, 2], pa.timestamp("s", tz="Mars/Phobos")),
    "a long duration": lambda: pa.array([2**62, 1], pa.duration("s")),
    "interval": lambda: pa.array([(1, 2, 3), (4, 5, 6)], pa.month_day_nano_interval()),
    "string view": lambda: pa.array(["add_edge", "b"], pa.string_view()),
    "binary view": lambda: pa.array([b"add_edge", b"\xff"], pa.binary_view()),
    "list view": lambda: pa.array([[1.0, 2.0], [3.0]], pa.list_view(pa.float32())),
    "large list view": lambda: pa.array([[1.0, 2.0], [3.0]], pa.large_list_view(pa.float32())),
    "run ends": lambda: pa.RunEndEncodedArray.from_arrays([1, 2], ["add_edge", "b"]),
    "sparse union": lambda: pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2])] * 2),
    "dense union": lambda: pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["a"])]
    ),
    "twin fields": _struct_of_twins,
    "twin fields in lists": lambda: pa.ListArray.from_arrays([0, 1, 2], _struct_of_twins()),
    "empty fixed lists": lambda: pa.array([[], []], pa.list_(pa.float32(), 0)),
    "a type with a long name": lambda: pa.array([{f"field{k}": b"" for k in range(1000)}] * 2),
}


@pytest.mark.parametrize("name", ["op", "id", "x", "weight", "other"])
@pytest.mark.parametrize("rare", RARE_COLUMNS)
@pytest.mark.parametrize("mapping", [None, {"op": "op", "id": "id"}])
def test_no_type_of_column_stops_the_parser(name: str, rare: str, mapping: dict[str, str] | None) -> None:
    """They failed the job: whoever wrote such a message had stopped it for good."""
    columns = {"op": pa.array(["set_features"] * 2), "id": pa.array([1, 2]), "x": pa.array([[1.0, 2.0]] * 2)}
    batch = pa.table(columns | {name: RARE_COLUMNS[rare]()})
    for kind in (None, "int", "string"):
        parser = Parser(Features(2), kind, None, mapping)
        events, letters = parser.parse_messages([RawMessage(0, to_ipc(batch))], ORIGIN)
        assert len(events) + len(letters) == 2
        for letter in letters:
            assert 0 < len(letter.error) < 200
            assert "op" in json.loads(letter.raw)


MANY = 2**31 - 2
HOLLOW: dict[str, tuple[Callable[[], pa.Array], str]] = {
    "nulls": (lambda: nulls(2**40), "rows"),
    "empty binaries": (lambda: pa.Array.from_buffers(pa.binary(0), 2**40, [None, pa.py_buffer(b"")]), "rows"),
    "run ends": (lambda: pa.RunEndEncodedArray.from_arrays([2**40], [7]), "rows"),
    "nulls in a struct": (lambda: pa.StructArray.from_arrays([nulls(ROWS_MAX + 1)], ["a"]), "rows"),
    "a list of nulls": (lambda: pa.ListArray.from_arrays(pa.array([0, MANY], pa.int32()), nulls(MANY)), "values"),
    "a large list": (lambda: pa.LargeListArray.from_arrays(pa.array([0, 2**40], pa.int64()), nulls(2**40)), "values"),
    "a fixed list": (lambda: pa.FixedSizeListArray.from_arrays(nulls(MANY), MANY), "values"),
    "a list of structs": (
        lambda: pa.ListArray.from_arrays([0, MANY], pa.StructArray.from_arrays([nulls(MANY)], ["a"])),
        "values",
    ),
    "a list of run ends": (
        lambda: pa.ListArray.from_arrays([0, MANY], pa.RunEndEncodedArray.from_arrays([MANY], [7])),
        "values",
    ),
    "a dictionary": (
        lambda: pa.DictionaryArray.from_arrays(
            [0], pa.ListArray.from_arrays([0, VALUES_MAX + 1], nulls(VALUES_MAX + 1))
        ),
        "values",
    ),
}


@pytest.mark.parametrize("name", HOLLOW)
def test_a_short_message_that_holds_too_much_is_set_aside_as_a_whole(name: str) -> None:
    """Each would ask for gigabytes when its rows are looked at."""
    make, what = HOLLOW[name]
    value = to_ipc(pa.table({"x": make()}))
    assert len(value) < 1000
    events, letters = Parser(Features(2)).parse_messages([RawMessage(5, value), RawMessage(6, b'{"op":"fly"}')], ORIGIN)
    assert len(events) == 0
    assert [(letter.offset, letter.raw) for letter in letters] == [(5, value), (6, b'{"op":"fly"}')]
    assert letters[0].error.startswith(f"too many {what} in an Arrow IPC stream: expected at most ")


@pytest.mark.parametrize("name", ["id", "other"])
def test_texts_by_views_count_for_every_row(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of all rows may be of the same bytes; as texts they are not."""
    monkeypatch.setattr(bounds, "BYTES_MAX", 1 << 20)
    texts = pa.array([None, *["x" * 5_000] * 300], pa.string_view())
    for column in (texts.slice(150), texts, pa.DictionaryArray.from_arrays([1] * 301, texts.slice(0, 2))):
        value = to_ipc(pa.table({"op": ["fly"] * len(column), name: column}))
        _, letters = Parser(Features(2)).parse_messages([RawMessage(5, value)], ORIGIN)
        too_much = letters[0].error.endswith("expected at most 1 MiB of texts by dictionaries and views")
        assert too_much == (len(column) > 200)
        assert len(letters) == (1 if too_much else len(column))


def test_rows_are_counted_over_all_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ROWS_MAX", 10)
    table = pa.table({"id": np.arange(11)})
    batches = table.to_batches(max_chunksize=4)
    assert "too many rows" in read_arrow(to_ipc(pa.Table.from_batches(batches)))
    assert read_arrow(to_ipc(table[:10])).equals(table[:10])


def test_a_stream_that_is_cut_is_set_aside_and_one_without_an_end_is_taken() -> None:
    value = to_ipc(pa.table({"op": ["del_vertex"], "id": [7]}))
    events, letters = Parser(Features(2)).parse_messages(
        [RawMessage(3, value[:-20]), RawMessage(4, value[:-8])], ORIGIN
    )
    assert [(letter.offset, letter.raw) for letter in letters] == [(3, value[:-20])]
    assert letters[0].error.startswith("not an Arrow IPC stream: ")
    assert events.position.tolist() == [5]
