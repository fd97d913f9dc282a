"""Random events of vertices of several kinds: as rows of KindGraph, as records, and the graph that they make."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.oracles import kinds as scales_by_kind
from freshet.gnn.oracles.scaled import Scaled
from freshet.job.results.plain_kinds import with_learned
from freshet.kinds import NO_MIRROR, Kinds
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.partitioner.reference.kinds import KindsArrays
from freshet.schema import NO_ATTR, WEIGHT, EdgeValues
from tests.support.graphs.kind_reference import KindGraph
from tests.support.graphs.kinds import VERTICES

Row = tuple[Any, ...]


def arrays_with_learned(model: KindsModel, graph: KindGraph, id_of: Any = int) -> tuple[list[list[Any]], KindsGraph]:
    """The ids of each kind, in the order of the rows, and the graph with learned rows, by ids that `id_of` makes."""
    ids, arrays = arrays_of(graph)
    named = {kind: [id_of(one) for one in of] for kind, of in zip(model.kinds, ids, strict=True)}
    return ids, with_learned(model, KindsArrays(named, arrays)).graph


def arrays_of(graph: KindGraph) -> tuple[list[list[Any]], KindsGraph]:
    """The ids of each kind, in the order of the rows, and the graph."""
    ids = [sorted(v for k, v in graph.x if k == kind) for kind in range(len(graph.kinds))]
    places = [{v: i for i, v in enumerate(every)} for every in ids]
    x = [
        np.array([graph.x[kind, v] for v in every], np.float32).reshape(len(every), width)
        for kind, (every, width) in enumerate(zip(ids, graph.kinds.widths, strict=True))
    ]
    edges = []
    for number, one in enumerate(graph.kinds.relations):
        of = [(src, dst, values) for (r, src, dst, *_), values in graph.edges.items() if r == number]
        src = np.array([places[one.source][src] for src, _, _ in of], np.int64)
        dst = np.array([places[one.target][dst] for _, dst, _ in of], np.int64)
        weight = np.array([weight for _, _, (weight, _) in of], np.float32)
        attr = np.array([attr for _, _, (_, attr) in of], np.float32).reshape(len(of), one.edge_width)
        edges.append(RelationEdges(src, dst, EdgeValues(len(of), {WEIGHT: weight}, attr if one.edge_width else None)))
    return ids, KindsGraph(x, edges)


def embeddings_of(model: KindsModel, graph: KindGraph, kind: str) -> dict[Any, np.ndarray]:
    """The embeddings of the vertices of a kind by their ids, by the full pass in float64."""
    ids, arrays = arrays_with_learned(model, graph, lambda one: one)
    rows = scales_by_kind.forward(model, arrays)[kind].rows
    return dict(zip(ids[list(model.kinds).index(kind)], rows, strict=True))


def scaled_embeddings(model: KindsModel, graph: KindGraph, id_of: Any = int) -> tuple[list[Any], Scaled]:
    """The ids of the returned kind, and their embeddings by the full pass in float64."""
    ids, arrays = arrays_with_learned(model, graph, id_of)
    (kind,) = model.out
    return ids[list(model.kinds).index(kind)], scales_by_kind.forward(model, arrays, tolerance=1e-5)[kind]


def event_row(kinds: Kinds, row: Row, id_of: Any = int) -> Row:
    """A row as `events_of` takes it."""
    op, first, *more = row
    if isinstance(first, tuple):
        kind, vertex = first[0], id_of(first[1])
        return op, ((kinds.names[kind], vertex) if kinds.are_named else vertex), *more
    src, dst, *values = more
    name = kinds.relation_names[first]
    if op == "del_edge":
        return op, id_of(src), id_of(dst), name
    weight, attr, *_ = [*values, 1.0, None] if len(values) != 1 else [*values, None]
    padded = () if attr is None else ((*attr, *[0.0] * (kinds.edge_width - len(attr))),)
    return op, id_of(src), id_of(dst), weight, name, NO_ATTR, *padded


def record_of(kinds: Kinds, row: Row, id_of: Any = int) -> dict[str, Any]:
    """A row as an event in JSON; `id_of` makes an id of a number. Some edges have no type, where they need none."""
    op, first, *more = row
    if isinstance(first, tuple):
        kind, vertex = first
        named = {"kind": kinds.names[kind]} if kinds.are_named else {}
        return {"op": op, "id": id_of(vertex), **named, **({"x": list(more[0])} if more else {})}
    src, dst, *values = more
    fields = {} if first == kinds.untyped and src % 3 == 0 else kinds.fields_of(first)
    record = {"op": op, "src": id_of(src), "dst": id_of(dst), **fields}
    carried = dict(zip(("weight", "attr"), (values[0:1] + [list(one) for one in values[1:]]), strict=False))
    return record | carried


def random_records(kinds: Kinds, seed: int, many: int, id_of: Any = int) -> list[dict[str, Any]]:
    """Events of all kinds and relations, as JSON has them."""
    graph, rng, records = KindGraph(kinds), np.random.default_rng(seed), list[dict[str, Any]]()
    while len(records) < many:
        rows = random_rows(graph, rng, 40)
        graph.apply(rows, [])
        records += [record_of(kinds, row, id_of) for row in rows]
    return records


def save_records(folder: Path, records: list[dict[str, Any]], **columns: pa.Array) -> None:
    """The vertices and edges that the records add as a snapshot; some of them come twice."""
    added = {
        name: [{key: value for key, value in one.items() if key != "op"} for one in records if one["op"] == op]
        for name, op in (("vertices", "add_vertex"), ("edges", "add_edge"))
    }
    numbers = pa.list_(pa.float32())
    ends = {name: pa.array([one.get(name) for one in added["edges"]]) for name in ("src", "dst")}
    named = {name: [one.get(name) for one in added["edges"]] for name in ("type", "src_kind", "dst_kind", "weight")}
    edges = ends | named | {"attr": pa.array([one.get("attr") for one in added["edges"]], numbers)}
    vertices = {name: [one.get(name) for one in added["vertices"]] for name in ("id", "kind")}
    vertices |= {"x": pa.array([one.get("x", []) for one in added["vertices"]], numbers)}
    for name, table in (("vertices", vertices), ("edges", edges)):
        found = pa.table(table | {key: value for key, value in columns.items() if key in table})
        pq.write_table(found, folder / f"{name}.parquet")


def graph_of(kinds: Kinds, records: Sequence[dict[str, Any]], graph: KindGraph | None = None) -> KindGraph:
    """The graph of such records, whose edges name their kinds where a type does not; `graph` takes them, if given."""
    graph = KindGraph(kinds) if graph is None else graph
    for one in records:
        if "id" in one:
            vertex = kinds.kind_codes[one.get("kind", "")], one["id"]
            graph.apply([(one["op"], vertex, *([tuple(one["x"])] if "x" in one else []))], [])
            continue
        ends = [one.get(name) for name in ("src_kind", "dst_kind")]
        name = one.get("type", kinds.types[0])
        (number,) = kinds.matching(name, *(None if end is None else kinds.kind_codes[end] for end in ends))
        values = [one.get("weight", 1.0), *([one["attr"]] if "attr" in one else [])] if one["op"] == "add_edge" else []
        op = one["op"] if one.get("key") is None else f"{one['op']}#{one['key']}"
        graph.apply([(op, number, one["src"], one["dst"], *values)], [])
    return graph


def random_rows(graph: KindGraph, rng: np.random.Generator, many: int) -> list[Row]:
    """Events of vertices and edges of all kinds and relations, which come, change and go."""
    kinds, live, edges = graph.kinds, list(graph.x), list(graph.edges)
    given = [k for k, one in enumerate(kinds.relations) if one.mirrors == NO_MIRROR]
    rows: list[Row] = []
    for _ in range(many):
        chance, kind = rng.random(), int(rng.integers(len(kinds)))
        x = tuple(float(v) for v in rng.standard_normal(kinds.widths[kind]).astype(np.float32))
        if chance < 0.1:
            rows.append(("add_vertex", (kind, int(rng.integers(VERTICES))), *([x] if x else [])))
        elif chance < 0.25 and live:
            kind, vertex = live[rng.integers(len(live))]
            x = tuple(float(v) for v in rng.standard_normal(kinds.widths[kind]).astype(np.float32))
            rows += [("set_features", (kind, vertex), x)] if x else []
        elif chance < 0.3 and live:
            rows.append(("del_vertex", live[rng.integers(len(live))]))
        elif chance < 0.45 and edges and (edge := edges[rng.integers(len(edges))])[0] in given:
            rows.append(("del_edge", *edge))
        else:
            relation = given[rng.integers(len(given))]
            width = kinds.relations[relation].edge_width
            attr = tuple(float(v) for v in rng.integers(-2, 3, width)) if width and rng.random() < 0.8 else None
            ends = int(rng.integers(7)), int(rng.integers(7))
            values = [float(rng.choice([0.5, 1.0, 2.0]))] + ([] if attr is None else [attr])
            rows.append(("add_edge", relation, *ends, *values))
    return rows
