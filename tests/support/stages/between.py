"""A store of synopses between two sets of rows, in several parts, beside the edges and values that it should have."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from freshet.gnn.plan import compile_plan
from freshet.gnn.synopses.edge_network import NetworkSynopsis
from freshet.gnn.synopses.of_messages import GatedSynopsis, Synopsis
from freshet.gnn.synopses.softmax import SoftmaxSynopsis
from freshet.kernels.kernel_calls import encode, noted_calls
from freshet.operators.aggregates.aggregate import SynopsisStore
from freshet.operators.aggregates.registry import aggregate_of
from freshet.operators.graph.edge_lists import EdgeLists
from freshet.operators.graph.part_rows import PartRows, frozen
from freshet.operators.graph.relation import RelationMessages
from freshet.operators.graph.sources import SourceRows
from freshet.schema import WEIGHT
from freshet.state.block_columns import DTYPES, TOPOLOGY
from freshet.state.codec import Header, seal
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts
from tests.support.graphs.attributed import EDGE_WIDTH
from tests.support.graphs.models import Spec, conv, linear, make_model
from tests.support.stages.blocks import topology

Edge = tuple[int, int, int, int]  # part, slots of source and target there, type
Carried = tuple[float, tuple[float, ...]]  # weight, attributes


@dataclass(frozen=True)
class Related:
    """A relation: what a plan says of it."""

    message_width: int
    target_width: int | None
    synopsis: Synopsis
    weighted: bool = False
    edge_width: int = 0
    edge_value: str = WEIGHT
    skip_loops: bool = False

    @property
    def synopsis_width(self) -> int:
        return self.synopsis.width(self.message_width)


@dataclass
class Between:
    """A store between sources and targets of the parts of one task, and beside it what it should have."""

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
    def of(relation: RelationMessages, whole: Synopsis, parts: int, slots: tuple[int, int]) -> Between:
        """A store with room for so many slots of sources and of targets in each part."""
        tasks, tables = TaskParts.of([parts]), TableSet(parts)
        sources, targets = PartRows(0, tasks), PartRows(0, tasks)
        store = aggregate_of(relation.synopsis).store(
            tables, EdgeLists(tables, sources, targets, relation), relation, "storage 1 task 0"
        )
        for at, many in zip((sources, targets), slots, strict=True):
            columns: dict[str, Any] = {"m_slot": [many - 1] * parts, "m_key": [0] * parts}
            at.reserve(topology(1, **columns, **({} if parts == 1 else {"m_to": list(range(parts))})), "m")
        z = np.zeros((parts, slots[0], relation.message_width), np.float32)
        q = np.zeros((parts, slots[1], relation.target_width or 0), np.float32)
        return Between(relation, whole, sources, targets, store, z, q)

    @property
    def parts(self) -> int:
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
        """Have these edges and these new rows of both ends; the targets that the store says have changed."""
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
        arrays = {name: np.array(values, DTYPES[name]) for name, values in columns.items()}
        arrays = {name: column for name, column in arrays.items() if self._has(name)}
        block = seal(Header(TOPOLOGY, self.epoch), arrays)
        sent = self._sent(self.sources, self.z, sources)
        turned = self._sent(self.targets, self.q, targets)
        self.store.merge(self.epoch, block, sent, None, turned)
        self.edges = dict(edges)
        return self.store.touched()

    def _has(self, name: str) -> bool:
        if name.endswith("_to"):
            return self.parts > 1
        return self.relation.edge_width > 0 or not name.endswith(("_type", "_attr"))

    def every(self) -> np.ndarray:
        """The rows of all targets, part by part."""
        parts, slots = np.indices(self.q.shape[:2]).reshape(2, -1)
        return self._rows(self.targets, parts, slots)

    def read(self) -> np.ndarray:
        return self.store.read(self.every())

    def in_edges(self) -> np.ndarray:
        return self.store.in_edges(self.every())

    def ends(self) -> np.ndarray:
        """(4, n) int64: parts, sources and targets of all edges, and their types."""
        return np.array(list(self.edges) or np.empty((0, 4)), np.int64).T

    def want(self) -> np.ndarray:
        """The synopses, recomputed."""
        part, src, dst, _ = self.ends()
        messages, targets = self.z[part, src], np.concatenate(list(self.q))
        if not self.relation.target_width:
            targets = np.zeros((len(targets), self.z.shape[2]), np.float32)
        elif self.whole is not self.relation.synopsis:
            messages = np.concatenate([messages, np.zeros((len(messages), self.q.shape[2]), np.float32)], axis=1)
            targets = np.concatenate([np.zeros((len(targets), self.z.shape[2]), np.float32), targets], axis=1)
        if self.relation.weighted:
            weight = np.array([weight for weight, _ in self.edges.values()], np.float32)
            messages = messages * weight[:, None]
        if self.relation.edge_width:
            attr = np.array([attr for _, attr in self.edges.values()], np.float32)
            messages = np.concatenate([messages, attr.reshape(-1, self.relation.edge_width)], axis=1)
        return self.whole.whole(messages, part * self.q.shape[1] + dst, targets)


def _note(columns: dict[str, list[Any]], group: str, edge: Edge, carried: dict[str, Any]) -> None:
    part, src, dst, kind = edge
    for name, value in {"to": part, "src": src, "dst": dst, "type": kind, **carried}.items():
        columns.setdefault(f"{group}_{name}", []).append(value)


def _columns_of(synopsis: Synopsis) -> tuple[int, int]:
    """The first column that messages read of a target, and how many; none: 0."""
    if isinstance(synopsis, SoftmaxSynopsis):
        return synopsis.score.reads
    if isinstance(synopsis, GatedSynopsis):
        return 2 * synopsis.channels, synopsis.channels
    if isinstance(synopsis, NetworkSynopsis) and synopsis.reads_targets:
        return synopsis.network.target, synopsis.network.turning
    return 0, 0


def _from_first(synopsis: Synopsis) -> Synopsis:
    """The synopsis, where the columns of a target are a row of their own."""
    if isinstance(synopsis, SoftmaxSynopsis):
        return replace(synopsis, score=replace(synopsis.score, target=0))
    if isinstance(synopsis, NetworkSynopsis):
        return replace(synopsis, network=replace(synopsis.network, target=0))
    assert isinstance(synopsis, GatedSynopsis)
    return replace(synopsis)  # which takes the last columns


def related(spec: Spec) -> dict[str, tuple[Related, Synopsis]]:
    """A conv as a relation: with whole rows at both ends, and with a target's columns alone where they are the last."""
    (layer,) = compile_plan(make_model(0, [spec])).layers
    first, width = _columns_of(layer.synopsis)
    sent, reads = layer.message_width, layer.weighted
    whole_rows = Related(sent, sent if width else 0, layer.synopsis, reads, layer.edge_width)
    found: dict[str, tuple[Related, Synopsis]] = {"rows": (whole_rows, layer.synopsis)}
    if width and first and first + width == sent:
        own = Related(first, width, _from_first(layer.synopsis), reads, layer.edge_width)
        found["columns"] = own, layer.synopsis
    return found


def specs() -> dict[str, Spec]:
    """Convs that between them have every aggregate."""
    attributed: Spec = {"edge_channels": EDGE_WIDTH}
    return {
        "sum": conv("graph_conv", 3, 4),
        "mean": conv("sage_conv", 3, 4),
        "max": conv("graph_conv", 3, 4, aggr="max"),
        "std": conv("graph_conv", 3, 4, aggr="std"),
        "product": conv("sage_conv", 3, 4, aggr=["max", "std", "sum"]),
        "gates": conv("res_gated_graph_conv", 3, 4),
        **{kind: conv(f"{kind}_conv", 3, 4, heads=2) for kind in ("gat", "gatv2", "transformer")},
        "network": conv("edge_conv", 3, 3, nn=[linear(6, 3), linear(3, 3)], aggr="max"),
        "difference": conv("edge_conv", 3, 3, nn=[linear(6, 9), linear(9, 1)], aggr=["max", "std", "sum"]),
        "gine": conv("gine_conv", 3, 3, nn=[], **attributed),
        "cg": conv("cg_conv", 3, 3, **attributed),
        **{f"{kind}-attr": conv(f"{kind}_conv", 3, 4, **attributed) for kind in ("gat", "gatv2", "transformer")},
    }


def play(kept: Between, seed: int, epochs: int, check: Callable[[np.ndarray], None]) -> None:
    """Have edges of all parts come, change and go at random, and rows of both ends change; `check` what changed."""
    rng, relation = np.random.default_rng(seed), kept.relation
    ends = kept.z.shape[1], kept.q.shape[1]
    weights = [1.0, 2.0, 0.5, -1.0]

    def carried() -> Carried:
        return float(rng.choice(weights)), tuple(rng.integers(-2, 3, relation.edge_width).astype(float).tolist())

    def rows(many: int, slots: int, width: int) -> dict[tuple[int, int], np.ndarray]:
        chosen = {(int(rng.integers(kept.parts)), int(rng.integers(slots))) for _ in range(many)}
        return {one: rng.standard_normal(width).astype(np.float32) for one in sorted(chosen)}

    for epoch in range(epochs):
        edges = dict(kept.edges)
        for edge in list(edges):
            if (chance := rng.random()) < 0.25:
                del edges[edge]
            elif chance < 0.4:
                edges[edge] = carried()
        for _ in range(0 if epoch % 5 == 4 else 4 * kept.parts):
            part, kind = int(rng.integers(kept.parts)), int(rng.integers(2 if relation.edge_width else 1))
            edges[part, int(rng.integers(ends[0])), int(rng.integers(ends[1])), kind] = carried()
        moved = rows(6 * kept.parts if epoch == 0 else 2, ends[0], kept.z.shape[2])
        turned = rows(4 * kept.parts if epoch == 0 else epoch % 3, ends[1], kept.q.shape[2])
        check(kept.apply(edges, moved, turned))


def main() -> None:
    """Print the kernels that such stores call, one encoded call a line."""
    np.seterr(all="ignore")
    for spec in specs().values():
        for relation, whole in related(spec).values():
            for parts in (1, 2):
                play(Between.of(relation, whole, parts, (9, 5)), 0, 3, lambda _: None)
    for call in noted_calls():
        sys.stdout.buffer.write(encode(call))


if __name__ == "__main__":
    main()
