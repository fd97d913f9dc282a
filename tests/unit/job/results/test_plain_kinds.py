"""The rules of `freshet check` for kinds and relations, held against the Parser's, and its graph against a slow one."""

from __future__ import annotations

import random
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pytest

from freshet.job.results.plain_kinds import PlainKindsGraph, PlainKindsRules
from freshet.job.results.plain_reader import snapshot_events
from freshet.job.results.plain_snapshot import read_snapshot
from freshet.kinds import Kinds, Relation
from freshet.operators.parser.core import Origin, Parser
from freshet.partitioner.config import GraphRules
from freshet.partitioner.events import OP_ADD_EDGE, OP_NAMES
from freshet.schema import Features
from tests.support.graphs.kind_reference import KindGraph
from tests.support.graphs.kind_streams import arrays_of, random_records, random_rows, record_of, save_records
from tests.support.graphs.kinds import text_id
from tests.support.graphs.shop_kinds import KINDS

ONE = Kinds(("",), (2,), (Relation(0, "cites", 0), Relation(0, "writes", 0)))
SOLE = Kinds(("",), (2,), (Relation(0, "cites", 0),))
VALUES: dict[str, list[Any]] = {
    "op": [*OP_NAMES, *OP_NAMES, "add", None],
    "id": [1, 2, -5, 2**63, True, "a", None],
    "src": [1, 2, 3, 1.0, None],
    "dst": [1, 2, 3, "a"],
    "kind": ["user", "item", "shop", "users", "", 0, None],
    "src_kind": [None, None, "user", "shop", "users", 3],
    "dst_kind": [None, None, "item", "user", "shop", True],
    "type": ["buys", "rates", "knows", "near", "near_too", "rev_buys", "cites", "x", "", None, 4],
    "x": [None, [1, 2], [1.0, 2.0, 3.0], [1e39, 1], [True, 1], "12", []],
    "attr": [None, [1.0], [1.0, 2.0], [None], [1.0, 2.0, 3.0]],
    "weight": [None, 0.5, "1", 1e300],
    "ts": [None, 5, 1.5],
}


@lru_cache
def good_records(kinds: Kinds, seed: int) -> list[dict[str, Any]]:
    return random_records(kinds, seed, 1)


def drawn(rng: random.Random, kinds: Kinds) -> dict[str, Any]:
    """A record whose fields are good or bad; most often only one of them is."""
    good = rng.choice(good_records(kinds, rng.randrange(50)) if rng.random() < 0.3 else [{}])
    bad = {name: rng.choice(values) for name, values in VALUES.items() if rng.random() < (0.15 if good else 0.6)}
    return good | bad


@pytest.mark.parametrize("kinds", [KINDS, ONE, SOLE], ids=["several", "one", "one relation"])
def test_the_parser_and_the_rules_of_the_check_take_the_same_records(kinds: Kinds) -> None:
    features, rng = Features.of_kinds(kinds), random.Random(4)
    taken = 0
    for _ in range(3000):
        record = drawn(rng, kinds)
        events, letters = Parser(features, "int", kinds.relation_names).parse_jsonl(
            orjson.dumps(record), Origin(name="e")
        )
        event = PlainKindsRules(features, "int", kinds.relation_names).judge(orjson.loads(orjson.dumps(record)))
        assert (event is None) == bool(letters), f"{record}: {letters}, {event}"
        if event is None:
            continue
        taken += 1
        assert OP_NAMES[events.op[0]] == event.op
        if event.b is None:
            kind = 0 if events.kind is None else events.kind[0]
            assert event.a == (kinds.names[kind], events.a.to_list()[0])
            assert (event.x is None) == (not len(events.x))
        else:
            assert event.type == events.types[events.etype[0]]
            assert (event.a[1], event.b[1]) == (events.a.to_list()[0], events.b.to_list()[0])
            assert events.op[0] != OP_ADD_EDGE or event.values[0] == events.values.weight[0]
    assert taken > 300


def test_the_graph_of_the_check_is_that_of_the_events_one_by_one() -> None:
    features, rng = Features.of_kinds(KINDS), np.random.default_rng(1)
    rules, slow = PlainKindsRules(features, "int", KINDS.relation_names), KindGraph(KINDS)
    graph = PlainKindsGraph(features, GraphRules(edge_types=KINDS.relation_names))
    for _ in range(30):
        rows = random_rows(slow, rng, 20)
        slow.apply(rows, [])
        events = [rules.judge(record_of(KINDS, row)) for row in rows]
        graph.take_epoch([event for event in events if event is not None])
        assert None not in events
        ids, want = arrays_of(slow)
        got = graph.kind_arrays()
        assert {name: sorted(found) for name, found in got.ids.items()} == dict(zip(KINDS.names, ids, strict=True))
        for relation, ours, theirs in zip(KINDS.relations, got.graph.edges, want.edges, strict=True):
            ends = got.ids[KINDS.names[relation.source]], got.ids[KINDS.names[relation.target]]
            named = sorted((ends[0][s], ends[1][d]) for s, d in zip(ours.src, ours.dst, strict=True))
            places = ids[relation.source], ids[relation.target]
            assert named == sorted((places[0][s], places[1][d]) for s, d in zip(theirs.src, theirs.dst, strict=True))
        assert graph.count_of("user") == len(ids[0])


def content(graph: PlainKindsGraph) -> tuple[Any, Any]:
    """What is in it, whatever the order."""
    ids, (x, edges) = graph.kind_arrays()
    vertices = {
        (kind, one): row.tolist() for (kind, every), rows in zip(ids.items(), x, strict=True)
        for one, row in zip(every, rows, strict=True)
    }  # fmt: skip
    found = []
    for relation, name, one in zip(graph.kinds.relations, graph.kinds.relation_names, edges, strict=True):
        ends = [ids[graph.kinds.names[kind]] for kind in (relation.source, relation.target)]
        attr = one.values.full_attr(relation.edge_width).tolist()
        carried = zip(one.src, one.dst, one.values.weight.tolist(), attr, strict=True)
        found += [(name, ends[0][src], ends[1][dst], weight, attr) for src, dst, weight, attr in carried]
    assert len(set(map(str, found))) == len(found) > 0
    assert all(graph.count_of(kind) == len(every) for kind, every in ids.items())
    return vertices, sorted(found, key=str)


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("id_of", [int, text_id])
@pytest.mark.parametrize("kinds", [KINDS, ONE], ids=["several", "one"])
def test_columns_and_rows_of_a_snapshot_make_the_same_graph(
    tmp_path: Path, kinds: Kinds, id_of: Any, undirected: bool
) -> None:
    if undirected and kinds is KINDS:
        kinds = Kinds(KINDS.names, KINDS.widths, (*KINDS.relations[:2], *KINDS.relations[5:6]))
    features, graph = Features.of_kinds(kinds), GraphRules(undirected, edge_types=kinds.relation_names)
    save_records(tmp_path, random_records(kinds, 3, 300, id_of))
    both = [PlainKindsRules(features, None, kinds.relation_names) for _ in range(2)]
    read = read_snapshot(tmp_path, both[0], graph)
    assert read is not None
    fast, slow = PlainKindsGraph(features, graph, read), PlainKindsGraph(features, graph)
    for event in snapshot_events(tmp_path, both[1]):
        slow.take(event)
    assert content(fast) == content(slow)
    for number, record in enumerate(random_records(kinds, 4, 300, id_of)):
        event = both[number % 2].judge(record)
        assert event is not None
        fast.take(event)
        slow.take(event)
        if number % 40 == 0:
            assert content(fast) == content(slow)
    assert content(fast) == content(slow)


ODD: dict[str, Any] = {
    "a kind that is none of the model's": {"kind": ["user", "car"]},
    "a kind that is missing": {"kind": ["user", None]},
    "a feature too many": {"x": pa.array([[1.0, 2.0], [1.0, 2.0, 3.0]])},
    "a type of no relation": {"type": ["buys", "sells"]},
    "a type whose ends are others": {"src_kind": [None, "shop"]},
    "a mirror": {"type": ["buys", "rev_buys"]},
    "attributes of another width": {"attr": pa.array([[1.0], [1.0, 2.0]])},
    "attributes that are not finite": {"type": ["buys", "knows"], "attr": pa.array([None, [float("inf")]])},
}


@pytest.mark.parametrize("name", [None, *ODD])
def test_odd_rows_are_left_to_the_reader_of_rows(tmp_path: Path, name: str | None) -> None:
    vertices = [{"op": "add_vertex", "kind": "user", "id": one, "x": [1.0, 2.0]} for one in (1, 2)]
    edges = [{"op": "add_edge", "src": one, "dst": 1, "type": "buys", "attr": [1.0, 2.0]} for one in (1, 2)]
    save_records(tmp_path, vertices + edges, **({} if name is None else ODD[name]))
    rules = PlainKindsRules(Features.of_kinds(KINDS), "int", KINDS.relation_names)
    assert (read_snapshot(tmp_path, rules, GraphRules(edge_types=KINDS.relation_names)) is None) == (name is not None)
