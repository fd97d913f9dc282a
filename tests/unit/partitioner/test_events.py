"""Blocks of events: bytes and back, slices, concatenation."""

from __future__ import annotations

import numpy as np
import pytest

from freshet.partitioner.event_builder import EventBuilder, events_of
from freshet.partitioner.events import DEFAULT_TYPE, NO_TS, OP_ADD_EDGE, OP_ADD_VERTEX, Events, largest_ts
from freshet.partitioner.ids import Ids
from freshet.schema import PLAIN_EDGE, Features
from freshet.state.block_columns import SYNC
from freshet.state.codec import Header, decode, encode

TYPES = "types_off", "types_utf8"
ROWS = {
    "int": [
        ("add_vertex", 7, [1, 2]),
        ("add_edge", 7, 9, 0.5, "cites"),
        ("add_vertex", 8),
        ("set_features", 9, [3, 4]),
        ("add_edge", 9, 7),
        ("del_edge", 7, 9, "cites"),
        ("del_vertex", -(2**63)),
        ("set_features", 2**63 - 1, [5, 6]),
    ],
    "string": [
        ("add_vertex", "ä", [1, 2]),
        ("add_edge", "ä", "", 0.5, "cites"),
        ("add_vertex", "long name"),
        ("set_features", "b", [3, 4]),
        ("add_edge", "b", "ä"),
        ("del_edge", "ä", "", "cites"),
        ("del_vertex", "\0"),
        ("set_features", "z", [5, 6]),
    ],
}


def as_rows(events: Events) -> list[tuple[object, ...]]:
    """The events as comparable rows, the edge type by name and the features as a tuple."""
    return [
        (
            op,
            a,
            b,
            float(weight),
            events.types[etype],
            tuple(events.x.matrix[row].tolist()) if row >= 0 else None,
            int(position),
            int(source),
            int(partition),
        )
        for op, a, b, weight, etype, row, position, source, partition in zip(
            events.op.tolist(),
            events.a.to_list(),
            events.b.to_list(),
            events.values.weight,
            events.etype,
            events.x_row,
            events.position,
            events.source,
            events.partition,
            strict=True,
        )
    ]


@pytest.mark.parametrize("kind", ["int", "string"])
def test_decode_is_the_inverse_of_encode(kind: str) -> None:
    events = events_of(ROWS[kind], Features(2), kind, arrival_ms=12.5)
    back = Events.decode(events.encode())
    assert as_rows(back) == as_rows(events)
    assert len(as_rows(back)) == 8
    assert back.types == (DEFAULT_TYPE, "cites")
    assert (back.end_position, back.arrival_ms, back.features) == (8, 12.5, Features(2))


def test_plain_edges_travel_without_default_columns() -> None:
    events = events_of([("add_edge", k, k + 1) for k in range(1000)], Features(4))
    data = events.encode()
    assert len(data) < 1000 * 18
    assert as_rows(Events.decode(data)) == as_rows(events)


def test_columns_stand_where_journals_have_them() -> None:
    events = events_of([("add_edge", 1, 2, 0.5, "cites", 3), ("set_features", 1, [1.0])])
    block = decode(events.encode())
    assert list(block.columns) == ["ctl", "arrival", "op", "a", "b", "x_row", "x", "weight", "etype", "attr", *TYPES]
    assert block.get("attr").tolist() == [3, -1]


def test_gaps_in_positions_and_other_partitions_survive() -> None:
    events = events_of(ROWS["int"], Features(2))
    events.position[3:] += 10
    events.partition[5:] = 3
    assert as_rows(Events.decode(events.encode())) == as_rows(events)


def test_times_travel_with_their_events() -> None:
    times = [5, None, -3, None, 2**63 - 1, None, 0, None]
    events = events_of(ROWS["int"], Features(2), ts=times)
    plain = events_of(ROWS["int"], Features(2))
    assert events.ts is not None
    assert (largest_ts(events.ts, []), plain.ts) == (2**63 - 1, None)
    assert largest_ts(events.ts, [(4, "")]) == 5
    assert largest_ts(events.ts[7:8], []) is None
    for size in (1, 3, 8):
        slices = [Events.decode(events.slice(k, k + size).encode()) for k in range(0, 8, size)]
        found = Events.concatenate([*slices, plain]).ts
        assert found is not None
        assert [None if one == NO_TS else one for one in found.tolist()] == [*times, *[None] * 8]
    assert "ts" not in decode(plain.encode()).columns
    assert events.slice(1, 2).encode() == plain.slice(1, 2).encode(), "without a ts nothing says so"


def test_an_empty_block_keeps_its_end_and_its_rejects() -> None:
    builder = EventBuilder(Features(3), "string")
    builder.reject()
    back = Events.decode(builder.build(17, source=2, partition=5).encode())
    assert (len(back), back.rejected, back.end_position, back.end_source, back.end_partition) == (0, 1, 17, 2, 5)
    assert back.features == Features(3)


def test_a_block_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="kind 2"):
        Events.decode(encode(Header(SYNC), {}))


@pytest.mark.parametrize("kind", ["int", "string"])
@pytest.mark.parametrize("size", [1, 3, 5, 8])
def test_slices_concatenate_to_the_block(kind: str, size: int) -> None:
    events = events_of(ROWS[kind], Features(2), kind)
    slices = [events.slice(k, k + size) for k in range(0, len(events), size)]
    assert sum(len(part.x) for part in slices) == 3
    assert [row for part in slices for row in as_rows(part)] == as_rows(events)
    assert as_rows(Events.concatenate(slices)) == as_rows(events)
    decoded = [Events.decode(part.encode()) for part in slices]
    assert as_rows(Events.concatenate(decoded)) == as_rows(events)


def test_concatenation_merges_type_tables() -> None:
    left = events_of([("add_edge", 1, 2, 1, "a"), ("add_edge", 1, 2, 1, "b")])
    right = events_of([("add_edge", 1, 2, 1, "c"), ("add_edge", 1, 2), ("add_edge", 1, 2, 1, "a")], first=2)
    both = Events.concatenate([left, right])
    assert [both.types[k] for k in both.etype] == ["a", "b", "c", DEFAULT_TYPE, "a"]


def test_rejected_records_go_with_the_event_after_them() -> None:
    builder = EventBuilder(Features(1), "int")
    builder.reject()
    for k in range(3):
        builder.edge(OP_ADD_EDGE, k, k, PLAIN_EDGE, 0, 2 * k + 2)
        builder.reject()
    events = builder.build(7)
    slices = [events.slice(0, 1), events.slice(1, 2), events.slice(2, 3)]
    assert [part.rejected for part in slices] == [1, 1, 2]
    assert [part.end_position for part in slices] == [2, 4, 7]
    assert Events.concatenate(slices).reject_rows.tolist() == events.reject_rows.tolist() == [0, 1, 2, 3]


def test_take_copies_rows() -> None:
    ids = Ids.of_strings(["a", "", "bcd", "ee"])
    assert ids.take(np.array([3, 0, 2])).to_list() == ["ee", "a", "bcd"]
    assert ids.slice(2, 4).take(np.array([1])).to_list() == ["ee"]
    assert Ids.of_ints([5, 6, 7]).take(np.array([2, 0])).to_list() == [7, 5]


def test_ids_of_two_kinds_do_not_mix() -> None:
    with pytest.raises(ValueError, match="one kind"):
        Ids.concatenate([Ids.of_ints([1]), Ids.of_strings(["1"])])


def test_vertex_events_have_an_empty_second_id() -> None:
    events = events_of([("add_vertex", "a"), ("add_edge", "a", "b")], id_kind="string")
    assert events.op.tolist() == [OP_ADD_VERTEX, OP_ADD_EDGE]
    assert events.b.to_list() == ["", "b"]
