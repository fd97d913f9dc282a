"""The job's table of edge types: what is refused, and what is forgotten."""

import numpy as np
import pytest

from freshet.partitioner import graph_tables as t
from freshet.partitioner.config import TYPES_MAX, PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import Events
from freshet.schema import Features
from freshet.state.sweep import Sweeper


def partitioner(**config) -> Partitioner:
    return Partitioner(1, Features(1), PartitionerConfig(**config))


def edges(core: Partitioner) -> set[tuple]:
    graph = core.live_graph()
    ids = graph.ids.to_list()
    ends = zip(graph.src.tolist(), graph.dst.tolist(), graph.etype.tolist(), strict=True)
    return {(ids[src], ids[dst], graph.types[etype]) for src, dst, etype in ends}


def flood(begin: int, count: int, op: str = "add_edge") -> list[tuple]:
    return [(op, 0, k, 1.0, f"t{k}") if op == "add_edge" else (op, 0, k, f"t{k}") for k in range(begin, begin + count)]


@pytest.mark.parametrize("cuts", [[40_000], [20_000, 20_000], [1, 32_766, 7_233], [10_000] * 4])
def test_one_bound_for_the_job_whatever_the_blocks_and_epochs(cuts):
    core, rejected, begin = partitioner(), 0, 0
    for count in cuts:
        found = core.partition(events_of(flood(begin, count), Features(1))).rejected
        rejected += len(found)
        begin += count
    assert rejected == 40_000 - TYPES_MAX
    assert edges(core) == {(0, k, f"t{k}") for k in range(TYPES_MAX)}
    assert found[-1][1] == f"type: expected at most {TYPES_MAX} edge types at a time in a job, got 't39999' as one more"


def test_blocks_of_many_types_join_in_one_epoch():
    blocks = [events_of(flood(begin, 20_000), Features(1)) for begin in (0, 20_000)]
    both = Events.concatenate([Events.decode(block.encode()) for block in blocks])
    assert [both.types[code] for code in both.etype] == [f"t{k}" for k in range(40_000)]
    assert len(partitioner().partition(both).rejected) == 40_000 - TYPES_MAX


def test_a_type_that_no_edge_has_makes_room_at_once():
    core = partitioner(types_max=2)
    rows = [("add_edge", 1, 2, 1.0, "a"), ("add_edge", 1, 2, 1.0, "b"), ("add_edge", 1, 2, 1.0, "c")]
    more = [("del_edge", 1, 2, "a"), ("add_edge", 1, 2, 1.0, "d"), ("add_edge", 1, 2, 1.0, "a")]
    assert [event for event, _ in core.partition(events_of(rows + more, Features(1))).rejected] == [2, 5]
    assert edges(core) == {(1, 2, "b"), (1, 2, "d")}
    assert core.partition(events_of([("del_vertex", 1), *rows[:2]], Features(1))).rejected == []
    assert edges(core) == {(1, 2, "a"), (1, 2, "b")}


def test_a_code_keeps_its_meaning_within_an_epoch():
    core = partitioner(types_max=1)
    core.partition(events_of([("add_edge", 1, 2, 1.0, "a")], Features(1)))
    core.partition(
        events_of([("del_edge", 1, 2, "a"), ("add_edge", 1, 2, 2.0, "b"), ("del_edge", 1, 2, "a")], Features(1))
    )
    assert edges(core) == {(1, 2, "b")}
    core.partition(events_of([("add_edge", 3, 4, 1.0, "b"), ("del_edge", 1, 2, "b")], Features(1)))
    assert edges(core) == {(3, 4, "b")}


def test_names_that_nothing_uses_are_not_kept():
    core = partitioner()
    for epoch in range(30):
        core.partition(events_of(flood(1000 * epoch, 1000), Features(1)))
        core.partition(events_of(flood(1000 * epoch, 1000, "del_edge"), Features(1)))
        core.partition(events_of([("del_edge", 0, 1, f"unknown {epoch} {k}") for k in range(1000)], Features(1)))
    assert core.tables["types"].rows <= 1 + 1000
    assert core.tables["words"].rows <= 2 * 1000
    assert core.live_graph().types == ("",)


def test_types_come_back_from_the_tables():
    core = partitioner(types_max=3)
    core.partition(events_of([("add_edge", 1, 2, 1.0, name) for name in ("a", "bb" * 9, "c")], Features(1)))
    core.partition(events_of([("del_edge", 1, 2, "a")], Features(1)))
    entries = dict(Sweeper(core.tables).mark(1)[0].puts)
    sweeper = Sweeper(core.tables)
    for changes in (sweeper.mark(1), sweeper.mark(2), sweeper.step()):
        entries.update(changes[0].puts if changes else {})
    other = partitioner(types_max=3)
    Sweeper(other.tables).restore(entries.items())
    other.after_restore()
    for rows in ([("add_edge", 5, 6, 1.0, "d"), ("add_edge", 5, 6, 1.0, "e")], [("add_edge", 1, 2, 1.0, "bb" * 9)]):
        assert (
            core.partition(events_of(rows, Features(1))).rejected
            == other.partition(events_of(rows, Features(1))).rejected
        )
        assert edges(core) == edges(other)
        assert (core.tables["types"].data == other.tables["types"].data[: len(core.tables["types"].data)]).all()
    assert edges(core) == {(1, 2, "bb" * 9), (1, 2, "c"), (5, 6, "d")}


def test_the_first_attr_of_an_accepted_edge_decides_its_width():
    core = partitioner(types_max=1)
    rows = [("add_edge", 1, 2, 1.0, "", 3), ("add_edge", 1, 3, 1.0, "", 4), ("add_edge", 1, 4, 1.0)]
    ((event, reason),) = core.partition(events_of(rows, Features(1))).rejected
    assert (event, reason) == (1, "attr: expected 3 numbers, as the job's first edge with attr has, got 4")
    assert [event for event, _ in core.partition(events_of(rows, Features(1))).rejected] == [1], "in a later epoch too"
    other = partitioner(types_max=1)
    rows = [("add_edge", 1, 2, 1.0, "a"), ("add_edge", 1, 2, 1.0, "b", 4), ("add_edge", 1, 2, 1.0, "a", 3)]
    assert [event for event, _ in other.partition(events_of(rows, Features(1))).rejected] == [1], (
        "what is refused decides nothing"
    )
    assert other.tables["scalars"].data[t.ATTR_WIDTH] == 4


def test_a_loop_among_many_types_is_found():
    core = partitioner()
    change = core.partition(
        events_of([*flood(1, 50), ("add_edge", 7, 7, 5.0, "loop"), ("add_edge", 9, 7)], Features(1))
    )
    block = core.split(change, np.zeros(8, np.int64), 1)[0]
    loops = block.columns["c_loop"]
    assert loops[~np.isnan(loops)].tolist() == [5.0]


def test_slices_of_a_block_leave_out_the_names_of_others():
    block = events_of(flood(0, 8000), Features(1))
    piece = block.slice(4000, 5000)
    assert len(piece.types) == 1001 and piece.types[0] == ""
    assert [piece.types[code] for code in piece.etype] == [f"t{k}" for k in range(4000, 5000)]
