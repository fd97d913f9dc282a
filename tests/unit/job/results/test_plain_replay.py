"""Epochs of several sources replayed from the input: what is in each is decided by where it ends, and counted."""

import numpy as np
import orjson
import pytest

from freshet.job.errors import UsageError
from freshet.job.results.plain_graph import PlainGraph
from freshet.job.results.plain_reader import Judged, message_records
from freshet.job.results.plain_replay import Given, Lane, PlainReplay
from freshet.job.results.plain_rules import Event, PlainRules
from freshet.operators.sink.change_log_reader import Positions
from freshet.partitioner.config import GraphRules
from freshet.schema import Features

WIDTH = 1
BAD = b"nonsense"


def edge(src, dst, **more):
    return orjson.dumps({"op": "add_edge", "src": src, "dst": dst, **more})


def given(folder, *files, **options):
    for name, lines in files:
        (folder / name).write_bytes(b"\n".join(lines) + b"\n")
    names = [str(folder / name) for name, _ in files]
    options = {"id_kind": "int", "graph": GraphRules()} | options
    return Given(names, None, Features(WIDTH), recorded=[name for name, _ in files], **options)


def positions(*rows):
    """Of (epoch, source, next_offset, events)."""
    epoch, source, ends, events = zip(*rows, strict=True)
    numbers = (np.array(column, np.int64) for column in (epoch, np.zeros(len(rows)), ends, events))
    first, partition, next_offset, count = numbers
    return Positions(first, np.array(source, object), partition, next_offset, count)


def replayed(folder, rows, *files, wanted=(1,), **options):
    replay = PlainReplay(given(folder, *files, **options), positions(*rows), lambda text: None)
    seen = [(epoch, sorted(replay.graph.x)) for epoch in replay.epochs(wanted)]
    return replay, seen


FILES = (("a.jsonl", [edge(1, 2), BAD, edge(3, 4), edge(5, 6)]), ("b.jsonl", [edge(7, 8), BAD, BAD, edge(9, 10)]))
ROWS = [(1, "a.jsonl", 1, 1), (1, "b.jsonl", 1, 1), (3, "a.jsonl", 4, 2), (4, "b.jsonl", 4, 1)]


def test_epochs_are_made_in_order(tmp_path):
    replay, seen = replayed(tmp_path, ROWS, *FILES, wanted={0, 1, 2, 3, 4})
    assert seen == [
        (0, []),
        (1, [1, 2, 7, 8]),
        (2, [1, 2, 7, 8]),
        (3, [1, 2, 3, 4, 5, 6, 7, 8]),
        (4, list(range(1, 11))),
    ]
    assert (replay.faults, replay.accepted, replay.rejected) == ([], 5, 3)
    assert not replay.has_more
    assert replay.finish() == 0


def test_a_count_that_is_wrong_is_told_and_the_place_decides(tmp_path):
    wrong = [(1, "a.jsonl", 3, 1), (2, "a.jsonl", 4, 1), (2, "b.jsonl", 1, 5)]
    replay, seen = replayed(tmp_path, wrong, *FILES, wanted={1, 2})
    assert seen == [(1, [1, 2, 3, 4]), (2, [1, 2, 3, 4, 5, 6, 7, 8])]
    first = "the first: epoch 1 has 1 events of a.jsonl up to 3, where 2 are"
    assert replay.faults == [f"epochs/: 2 counts of events are wrong; {first}"]
    assert replay.has_more
    assert replay.finish() == 1
    assert (replay.accepted, replay.rejected) == (5, 3)


def test_a_source_that_ends_too_soon_or_is_not_given_is_wrong_use(tmp_path):
    with pytest.raises(UsageError, match=r"a\.jsonl ends at 4 after 3 events, the run read up to 5: these are not"):
        replayed(tmp_path, [(1, "a.jsonl", 5, 4)], *FILES)
    with pytest.raises(UsageError, match=r"the run read c\.jsonl; give what it read"):
        replayed(tmp_path, [(1, "c.jsonl", 1, 1)], *FILES)


def test_a_message_may_be_spread_over_epochs():
    messages = [(3, edge(1, 2)), (4, b"\n".join([edge(3, 4), BAD, edge(5, 6), edge(7, 8)])), (5, edge(9, 10))]
    lane = Lane(message_records(messages, PlainRules(Features(WIDTH), "int")))
    taken = [[event.a for event in lane.through(*end)] for end in ((4, 2), (4, 1), (6, 2))]
    assert taken == [[1, 3], [5], [7, 9]]
    assert (lane.accepted, lane.rejected, lane.is_over) == (5, 1, True)
    lane = Lane(message_records(messages, PlainRules(Features(WIDTH), "int")))
    assert [event.a for event in lane.through(5, 2)] == [1, 3, 5, 7], "a message that is covered whole is taken whole"


def test_only_events_count_as_more():
    assert not Lane(iter([Judged(1, None), Judged(2, None)])).has_more
    lane = Lane(iter([Judged(1, None), Judged(2, Event("del_vertex", 1))]))
    assert lane.has_more
    assert lane.rejected == 1
    assert [event.a for event in lane.rest()] == [1]


def test_what_only_the_graph_shows_to_be_wrong_is_refused(tmp_path):
    lines = [
        edge(1, 2, attr=[1.0, 2.0]),
        edge(1, 3, attr=[1.0]),
        edge(1, 4),
        edge(5, 5, type="a"),
        edge(5, 5, type="b"),
    ]
    rows = [(1, "a.jsonl", 5, 5)]
    replay, seen = replayed(tmp_path, rows, ("a.jsonl", lines), graph=GraphRules(forbid_typed_loops=True))
    assert seen == [(1, [1, 2, 4, 5])]
    assert replay.graph.rejected == 2
    assert (replay.faults, replay.accepted, replay.rejected) == ([], 3, 2)


def test_undirected_edges_stand_both_ways():
    graph = PlainGraph(Features(WIDTH), GraphRules(undirected=True))
    for event in (Event("add_edge", 1, 2), Event("add_edge", 2, 2), Event("del_edge", 2, 1), Event("add_edge", 2, 3)):
        graph.take(event)
    arrays = graph.arrays()
    ends = [(arrays.ids[a], arrays.ids[b]) for a, b in zip(arrays.src.tolist(), arrays.dst.tolist(), strict=True)]
    assert sorted(ends) == [(2, 2), (2, 3), (3, 2)]
