"""Reads a snapshot folder with kinds of vertices as arrays by kind and by relation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from freshet.kinds import NO_MIRROR, Kinds
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.operators.snapshot.arrays import last_of_equal
from freshet.operators.snapshot.reader import SnapshotError, open_snapshot
from freshet.partitioner.events import OP_ADD_VERTEX, Events
from freshet.partitioner.ids import KeyNumbers
from freshet.schema import ATTR, EdgeValues, Features


class SnapshotOfKinds(NamedTuple):
    """A graph with kinds, and the ids of its vertices by kind, ascending where they are integers."""

    ids: list[list[int] | list[str]]
    graph: KindsGraph


def read_kinds(folder: Path, kinds: Kinds) -> SnapshotOfKinds:
    """Return the snapshot's graph; of equal vertices, and of equal edges of a relation, the last row holds.

    Features and attributes are as wide as the snapshot has them, whatever `kinds` says; a kind without features has
    width 0, and so have attributes that are not equally wide in a relation. Mirrors have the edges that they follow.

    Raises:
        SnapshotError: the folder is no snapshot of these kinds and relations.
    """
    features = Features.of_kinds(_as_wide_as(Path(folder), kinds))
    found = _Found(features)
    for block in open_snapshot(folder, features, edge_types=kinds.relation_names).blocks():
        if block.op[0] == OP_ADD_VERTEX:
            found.add_vertices(block)
        else:
            found.add_edges(block)
    return found.arrays()


def widths_by_kind(folder: Path) -> dict[str, int]:
    """Return how wide the features of each kind of a snapshot are; nothing where vertices have no kinds.

    Raises:
        SnapshotError: the vertices cannot be read.
    """
    path = Path(folder) / "vertices.parquet"
    try:
        if "kind" not in pq.read_schema(path).names:
            return {}
        return {str(kind): max(widths) for (kind,), widths in _lengths(path, ["kind"], "x").items()}
    except (OSError, pa.ArrowException) as error:
        msg = f"{path}: expected a snapshot's vertices with columns kind and x: {error}"
        raise SnapshotError(msg) from error


def _as_wide_as(folder: Path, kinds: Kinds) -> Kinds:
    """The kinds and relations with the widths that a snapshot has; its rows are checked as they are read."""
    vertices, edges = (folder / f"{name}.parquet" for name in ("vertices", "edges"))
    relations = list(kinds.relations)
    try:
        keys = ["kind"] if kinds.are_named else []
        found = {keys[0] if keys else "": widths for keys, widths in _lengths(vertices, keys, "x").items()}
        attrs = _lengths(edges, ["type", *(("src_kind", "dst_kind") if kinds.are_named else ())], ATTR)
    except (OSError, pa.ArrowException):  # `open_snapshot` says what is wrong
        found, attrs = {}, {}
    seen: dict[int, set[int]] = {}
    for (name, *ends), widths in attrs.items():
        source, target = (kinds.kind_codes.get(end or "") for end in ends or (None, None))
        untyped = [] if name is not None or kinds.untyped is None else [kinds.untyped]
        for number in untyped or kinds.matching(name or "", source, target):
            seen.setdefault(number, set()).update(widths)
    for number, one in enumerate(relations):
        of = seen.get(number if one.mirrors == NO_MIRROR else one.mirrors, set())
        relations[number] = replace(one, edge_width=min(of) if len(of) == 1 else 0)
    widths_of = [max(found.get(name, {0})) for name in kinds.names]
    return Kinds(kinds.names, tuple(widths_of), tuple(relations))


def _lengths(path: Path, keys: Sequence[str], lists: str) -> dict[tuple[str | None, ...], set[int]]:
    """Return the lengths that lists of a column have, by the texts of others; nothing where it has no lists."""
    schema = pq.read_schema(path)
    there = [key for key in keys if key in schema.names]
    if lists not in schema.names or not hasattr(schema.field(lists).type, "value_type"):
        return {}
    table = pq.read_table(path, columns=[*there, lists])
    columns = {key: pc.cast(table[key], pa.string()) for key in there}
    columns["length"] = pc.list_value_length(table[lists])
    rows = pa.table(columns).group_by([*columns]).aggregate([]).to_pylist()
    found: dict[tuple[str | None, ...], set[int]] = {}
    for row in rows:
        if row["length"] is not None:
            found.setdefault(tuple(row.get(key) for key in keys), set()).add(row["length"])
    return found


class _Found:
    """Vertices by kind and edges by relation, as blocks bring them."""

    def __init__(self, features: Features) -> None:
        assert features.kinds is not None
        self._features, self._kinds = features, features.kinds
        self._rows: list[dict[int | str, int]] = [{} for _ in features.kinds.names]
        self._given: list[list[tuple[list[int], np.ndarray]]] = [[] for _ in features.kinds.names]
        self._edges: list[list[np.ndarray]] = [[np.empty((0, 3), np.int64)] for _ in features.kinds.relations]
        self._keys = KeyNumbers()
        self._values = [[EdgeValues.default(0)] for _ in features.kinds.relations]

    def add_vertices(self, block: Events) -> None:
        """Add the vertices of a block with their features."""
        ids = block.a.to_list()
        kind = np.zeros(len(block), np.uint8) if block.kind is None else block.kind
        for code, rows in enumerate(self._rows):
            at = np.flatnonzero(kind == code)
            numbers = [rows.setdefault(ids[k], len(rows)) for k in at.tolist()]
            self._given[code].append((numbers, block.x.of_kind(code, block.x_row[at]).matrix))

    def add_edges(self, block: Events) -> None:
        """Add the edges of a block, and the ends that are not known yet."""
        sources, targets, keys = block.a.to_list(), block.b.to_list(), self._keys.of(block.keys, len(block))
        for number in np.unique(block.etype).tolist():
            at = np.flatnonzero(block.etype == number)
            one = self._kinds.relations[number]
            ends = [
                [rows.setdefault(ids[k], len(rows)) for k in at.tolist()]
                for rows, ids in ((self._rows[one.source], sources), (self._rows[one.target], targets))
            ]
            self._edges[number].append(np.array([*ends, keys[at]], np.int64).T)
            self._values[number].append(block.values[at])

    def arrays(self) -> SnapshotOfKinds:
        """Return all of them."""
        ids, places, x = list[list[int] | list[str]](), list[np.ndarray](), list[np.ndarray]()
        for rows, given, width in zip(self._rows, self._given, self._features.widths, strict=True):
            every, matrix = list(rows), np.zeros((len(rows), width), np.float32)
            for numbers, found in given:
                matrix[numbers] = found
            order = np.argsort(every, kind="stable") if every and isinstance(every[0], int) else np.arange(len(every))
            ids.append([every[k] for k in order.tolist()])
            places.append(np.argsort(order))
            x.append(matrix[order])
        edges = [self._edges_of(number, places) for number in range(len(self._edges))]
        return SnapshotOfKinds(ids, KindsGraph(x, edges))

    def _edges_of(self, number: int, places: Sequence[np.ndarray]) -> RelationEdges:
        one = self._kinds.relations[number]
        if one.mirrors != NO_MIRROR:
            src, dst, values = self._edges_of(one.mirrors, places)
            return RelationEdges(dst, src, values)
        every, carried = np.concatenate(self._edges[number]), EdgeValues.concatenate(self._values[number])
        kept = last_of_equal(every)
        src, dst, _ = every[kept].T
        values = carried[kept]
        attr = values.full_attr(self._kinds.edge_width)[:, : one.edge_width] if one.edge_width else None
        return RelationEdges(places[one.source][src], places[one.target][dst], replace(values, attr=attr))
