"""A store of synopses between two sets of rows, in several parts, beside the edges and values that it should have."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from freshet.gnn.edge_reads import NOTHING, EdgeReads
from freshet.gnn.synopses.of_messages import Synopsis
from freshet.operators.aggregates.aggregate import Aggregate, SynopsisStore
from freshet.operators.aggregates.registry import aggregate_of
from freshet.operators.graph.edge_lists import EdgeLists
from freshet.operators.graph.part_rows import PartRows, frozen
from freshet.operators.graph.relation import RelationMessages
from freshet.operators.graph.sources import SourceRows
from freshet.schema import WEIGHT, EdgeValues
from freshet.state.block_columns import DTYPES, TOPOLOGY
from freshet.state.codec import Block, Header, seal
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts

Edge = tuple[int, int, int, int]  # part, slots of source and target there, type
Carried = tuple[float, tuple[float, ...]]  # weight, attributes


@dataclass(frozen=True)
class Related:
    """A relation by what a plan says of it; see RelationMessages."""

    message_width: int
    target_width: int | None
    synopsis: Synopsis
    edge: EdgeReads = NOTHING

    @property
    def synopsis_width(self) -> int:
        """Width of a synopsis row."""
        return self.synopsis.width(self.message_width)


@dataclass
class Between:
    """A store between sources and targets of the parts of one task, and beside it what it should have.

    Shapes: z (parts, slots of sources, message width), q (parts, slots of targets, target width) float32.
    """

    relation: RelationMessages
    whole: Synopsis
    """The relation's synopsis, or where that reads a row of a target, the one of rows with the columns of both ends."""
    sources: PartRows
    targets: PartRows
    store: SynopsisStore
    z: np.ndarray
    q: np.ndarray
    epoch: int = 0
    edges: dict[Edge, Carried] = field(default_factory=dict)

    @staticmethod
    def of(
        relation: RelationMessages,
        whole: Synopsis,
        parts: int,
        slots: tuple[int, int],
        aggregate: Aggregate[Any] | None = None,
    ) -> Between:
        """Return a store with room for that many slots of sources and of targets in each part.

        `aggregate` keeps the synopses; None: that of the registry.
        """
        tasks, tables = TaskParts.of([parts]), TableSet(parts)
        sources, targets = PartRows(0, tasks), PartRows(0, tasks)
        lists = EdgeLists(tables, sources, targets, relation)
        store = (aggregate or aggregate_of(relation.synopsis)).store(tables, lists, relation, "storage 1 task 0")
        for at, many in zip((sources, targets), slots, strict=True):
            columns: dict[str, Any] = {"m_slot": [many - 1] * parts, "m_key": [0] * parts}
            at.reserve(_block(1, columns | ({} if parts == 1 else {"m_to": list(range(parts))})), "m")
        z = np.zeros((parts, slots[0], relation.message_width), np.float32)
        q = np.zeros((parts, slots[1], relation.target_width or 0), np.float32)
        return Between(relation, whole, sources, targets, store, z, q)

    @property
    def parts(self) -> int:
        """Number of parts."""
        return len(self.z)

    def _rows(self, at: PartRows, parts: np.ndarray, slots: np.ndarray) -> np.ndarray:
        return frozen(((parts << at.shift) + slots).astype(np.int32))

    def _sent(self, at: PartRows, kept: np.ndarray, values: dict[tuple[int, int], np.ndarray]) -> SourceRows:
        """New rows of one end, by part and slot; their places are not in the order of slots."""
        parts, slots = np.array(sorted(values) or np.empty((0, 2)), np.int64).T
        rows = np.array([values[int(p), int(s)] for p, s in zip(parts, slots, strict=True)], np.float32)
        rows = rows.reshape(parts.size, kept.shape[2])
        kept[parts, slots] = rows
        places = np.arange(parts.size)[::-1]
        return SourceRows(self._rows(at, parts, slots), frozen(places.astype(np.int32)), frozen(rows[::-1].copy()), [])

    def apply(
        self,
        edges: dict[Edge, Carried],
        sources: dict[tuple[int, int], np.ndarray],
        targets: dict[tuple[int, int], np.ndarray],
    ) -> np.ndarray:
        """Have these edges and these new rows of both ends; returns the targets that the store says have changed."""
        self.epoch += 1
        columns: dict[str, list[Any]] = {}
        for edge, (weight, attr) in self.edges.items():
            if edge not in edges:
                _note(columns, "del", edge, {"w": weight})
            elif edges[edge] != (weight, attr):
                _note(columns, "rew", edge, {"old": weight, "new": edges[edge][0], "attr": edges[edge][1]})
        for edge, (weight, attr) in edges.items():
            if edge not in self.edges:
                _note(columns, "add", edge, {"w": weight, "attr": attr})
        block = _block(self.epoch, {name: values for name, values in columns.items() if self._has(name)})
        sent = self._sent(self.sources, self.z, sources)
        turned = self._sent(self.targets, self.q, targets)
        self.store.merge(self.epoch, block, sent, None, turned)
        self.edges = dict(edges)
        return self.store.touched()

    def _has(self, name: str) -> bool:
        if name.endswith("_to"):
            return self.parts > 1
        return self.relation.edge.attributes > 0 or not name.endswith(("_type", "_attr"))

    def every(self) -> np.ndarray:
        """Return the rows of all targets, part by part."""
        parts, slots = np.indices(self.q.shape[:2]).reshape(2, -1)
        return self._rows(self.targets, parts, slots)

    def read(self) -> np.ndarray:
        """Return the synopses of all targets, part by part."""
        return self.store.read(self.every())

    def in_edges(self) -> np.ndarray:
        """Return the number of in-edges of all targets, part by part."""
        return self.store.in_edges(self.every())

    def ends(self) -> np.ndarray:
        """Return parts, sources and targets of all edges, and their types; (4, n) int64."""
        return np.array(list(self.edges) or np.empty((0, 4)), np.int64).T

    def want(self) -> np.ndarray:
        """Return the synopses of all targets, recomputed part by part."""
        part, src, dst, _ = self.ends()
        messages, targets = self.z[part, src], np.concatenate(list(self.q))
        if not self.relation.target_width:
            targets = np.zeros((len(targets), self.z.shape[2]), np.float32)
        elif self.whole is not self.relation.synopsis:
            messages = np.concatenate([messages, np.zeros((len(messages), self.q.shape[2]), np.float32)], axis=1)
            targets = np.concatenate([np.zeros((len(targets), self.z.shape[2]), np.float32), targets], axis=1)
        messages = self.relation.edge.messages(messages, carried_by(self.edges.values(), self.relation.edge))
        return self.whole.whole(messages, part * self.q.shape[1] + dst, targets)


def carried_by(edges: Collection[Carried], reads: EdgeReads) -> EdgeValues:
    """Return the values that single edges carry as those of all."""
    weight, attr = np.array([one[0] for one in edges], np.float32), np.array([one[1] for one in edges], np.float32)
    return EdgeValues(len(edges), {WEIGHT: weight}, attr.reshape(len(edges), reads.attributes))


def _block(epoch: int, columns: dict[str, list[Any]]) -> Block:
    return seal(Header(TOPOLOGY, epoch), {name: np.array(values, DTYPES[name]) for name, values in columns.items()})


def _note(columns: dict[str, list[Any]], group: str, edge: Edge, carried: dict[str, Any]) -> None:
    part, src, dst, kind = edge
    for name, value in {"to": part, "src": src, "dst": dst, "type": kind, **carried}.items():
        columns.setdefault(f"{group}_{name}", []).append(value)
