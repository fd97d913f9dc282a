"""A small graph of the same shape, taken through the operators of a job, whose tables are counted.

So nothing here knows how tables are made up. The graph is smaller by a power of two, since what grows in powers of two
(indexes, tables of several parts) is then smaller by the same factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from freshet.gnn.any_plan import AnyPlan, inner_plan
from freshet.kinds import NO_MIRROR
from freshet.operators.control import control_values
from freshet.operators.dataflow import PARTITIONER, STORAGE, Place
from freshet.operators.factory import load_plan, open_network, plan_of
from freshet.operators.graph.rules import graph_rules
from freshet.operators.network import Network
from freshet.operators.outcome import Message
from freshet.operators.settings import Settings
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.events import OP_ADD_EDGE, OP_ADD_VERTEX, Events
from freshet.partitioner.ids import INT, NO_KEY, Ids
from freshet.schema import EdgeValues, FeatureRows
from freshet.state.table import Table, TableSet
from freshet.state.task_parts import TaskParts

_VERTICES_MAX, EDGES_MAX = 60_000, 250_000
_EPOCHS = 8  # in which the graph comes, so that tables grow as they do in a job
_SKEW = 2.0  # of the sources: a few have many edges; destinations are even
_KIND_MIN = 64  # vertices of a kind that are not divided: among fewer there are too few pairs for their edges
_GROWN = 1.2  # tables of one part grow by half; the size at which one grows next is not that of the small graph
ID_BYTES = 16  # of a string id, where nothing is said


class OperatorBytes(NamedTuple):
    """Bytes that an operator holds: in memory, and of them in tables, which are its state."""

    memory: float
    state: float


class GraphSize(NamedTuple):
    """The graph that a job holds: vertices of each kind, and edges of each relation, 0 of those that follow others.

    Without kinds of either there is one.
    """

    vertices: tuple[int, ...]
    edges: tuple[int, ...]
    parts: int = 1
    id_kind: str = INT
    undirected: bool = False
    edge_keys: str = ""
    """Kind of the keys of edges, of which then more may be than pairs; empty: they have none."""
    is_asked: bool = False
    """True if the server computes the last layer, as with `--embeddings asked`."""


def settings_of(model: Path, shape: GraphSize, tasks: tuple[int, ...]) -> Settings:
    """Return the settings of a job that holds such a graph, with the parts of each task of a layer."""
    plan = load_plan(str(model))
    rules = graph_rules(plan, undirected=shape.undirected)
    partitioning = PartitionerConfig.of(rules, id_kind=shape.id_kind, edge_keys=shape.edge_keys)
    inner = dict(inner_plan(plan).out) if shape.is_asked else {}
    return Settings(str(model), "", shape.parts, tasks=tasks, partitioning=partitioning, inner_widths=inner)


def operators_of(model: Path, shape: GraphSize) -> dict[str, OperatorBytes]:
    """Return what each operator of a job holds, over all parts, in the order of the dataflow."""
    halvings = halvings_of(load_plan(str(model)), shape)
    tables, index_bytes = tables_of(model, smaller(shape, halvings))
    beside = {PARTITIONER: index_bytes}
    return {name: held_of(found, beside.get(name, 0), 1 << halvings) for name, found in tables.items()}


def tables_of(model: Path, shape: GraphSize) -> tuple[dict[str, TableSet], int]:
    """Return the tables of each operator that holds such a graph, and the bytes of the Partitioner's indexes."""
    settings = settings_of(model, shape, (shape.parts,))
    plan = plan_of(settings)
    core = Partitioner(shape.parts, plan.features, settings.partitioning, TaskParts.dealt(shape.parts, 1))
    network = open_network(settings, plan, sinks=False)
    for epoch, events in enumerate(epochs_of(plan, shape), 1):
        take(core, network, events, epoch)
    found = {PARTITIONER: core.tables}
    found |= {place.operator: stage.core.tables for place, stage in network.stages.items()}
    network.close()
    return found, core.index_bytes


def take(core: Partitioner, network: Network, events: Events, epoch: int) -> None:
    """Have an epoch go through the operators."""
    change = core.partition(events)
    ctl = control_values(events=len(events), vertices=core.vertices)
    messages = (Message(STORAGE, k, epoch, block) for k, block in enumerate(core.split(change, ctl, epoch)))
    network.run(Place(PARTITIONER, 0), messages)


def halvings_of(plan: AnyPlan, shape: GraphSize) -> int:
    """Return by which power of two the graph is to be divided."""
    edges = sum(shape.edges) * (1 + shape.undirected)
    if plan.features.kinds is not None:
        followed = plan.features.kinds.mirrors(undirected=shape.undirected) != NO_MIRROR
        edges = int(np.dot(shape.edges, 1 + followed))
    most = max(sum(shape.vertices) / _VERTICES_MAX, edges / EDGES_MAX, 1.0)
    return int(np.ceil(np.log2(most)))


def smaller(shape: GraphSize, halvings: int) -> GraphSize:
    """Return the graph divided that often."""
    vertices = tuple(max(n >> halvings, min(n, _KIND_MIN)) for n in shape.vertices)
    return shape._replace(vertices=vertices, edges=tuple(m >> halvings for m in shape.edges))


def held_of(tables: TableSet, beside: int, larger: int) -> OperatorBytes:
    """Return the bytes of these tables, and of what is beside them, in a graph that is larger that many times."""
    used = sum(map(used_bytes, tables))
    one_part = all(table.parts == 1 for table in tables)
    memory = _GROWN * used if one_part else sum(table.nbytes for table in tables)
    return OperatorBytes(float((memory + beside) * larger), float(used * larger))


def used_bytes(table: Table) -> int:
    """Return the bytes of the rows in use; the kernel has given memory for no others, unless they hold a fill."""
    whole = int(table.data.nbytes)
    row = table.dtype.itemsize * (1 if table.width is None else table.width)
    return whole if table.fill else min(whole, int(table.part_rows.sum()) * row)


def epochs_of(plan: AnyPlan, shape: GraphSize) -> Iterator[Events]:
    """Yield the graph as events: vertices with features, and edges between them, an equal share an epoch."""
    rng = np.random.default_rng(7)
    names = [rng.permutation(n).astype(np.int64) for n in shape.vertices]  # ids come in any order
    ends = [np.linspace(0, n, _EPOCHS + 1).astype(np.int64).tolist() for n in shape.vertices]
    kinds = plan.features.kinds
    between = [(0, 0)] if kinds is None else [(one.source, one.target) for one in kinds.relations]
    drawn = [_Pairs(rng, len(names[target]), may_repeat=bool(shape.edge_keys)) for _, target in between]
    keys = count()
    for k in range(1, _EPOCHS + 1):
        known = [end[k] for end in ends]
        edges = list[tuple[np.ndarray, np.ndarray]]()
        for (source, target), pairs, m in zip(between, drawn, shape.edges, strict=True):
            src, dst = pairs.up_to(m * k // _EPOCHS, known[source], known[target])
            edges.append((names[source][src], names[target][dst]))
        fresh = [name[end[k - 1] : end[k]] for name, end in zip(names, ends, strict=True)]
        events = _events(plan, fresh, edges, shape.id_kind, rng)
        yield events.with_keys(_keys(events, keys, shape.edge_keys)) if shape.edge_keys else events


def _keys(events: Events, numbers: Iterator[int], kind: str) -> Ids:
    """Return a key for each edge, and none for a vertex; texts are as long as those of ids."""
    found = [next(numbers) if op == OP_ADD_EDGE else NO_KEY for op in events.op.tolist()]
    if kind == INT:
        return Ids.of_ints(found)
    return Ids.of_strings(["" if key == NO_KEY else f"{key:0{ID_BYTES}}" for key in found])


class _Pairs:
    """Edges of a relation: pairs of places of a source and a target, each of which comes once.

    Where they may repeat, they do once all have come.
    """

    def __init__(self, rng: np.random.Generator, targets: int, *, may_repeat: bool) -> None:
        self._rng, self._targets, self._drawn = rng, max(targets, 1), np.empty(0, np.int64)
        self._may_repeat, self._repeated = may_repeat, 0

    def up_to(self, many: int, sources: int, targets: int) -> tuple[np.ndarray, np.ndarray]:
        """Return further pairs of the first sources and targets, of which there are so `many` then, or all."""
        asked, many = many, min(many - self._repeated, sources * targets)
        fresh = np.empty(0, np.int64)
        while (wanted := many - len(self._drawn)) > 0:
            src = (sources * self._rng.random(wanted) ** _SKEW).astype(np.int64)
            codes = src * self._targets + self._rng.integers(0, targets, wanted)
            codes = np.setdiff1d(codes, self._drawn)
            if 2 * len(codes) < wanted:  # too few are left to meet them by chance
                every = np.arange(sources)[:, None] * self._targets + np.arange(targets)
                free = np.setdiff1d(every, self._drawn)
                codes = self._rng.choice(free, wanted, replace=False)
            fresh = np.concatenate([fresh, codes])
            self._drawn = np.concatenate([self._drawn, codes])
        if self._may_repeat and (more := asked - len(self._drawn) - self._repeated) > 0 and len(self._drawn):
            fresh = np.concatenate([fresh, self._rng.choice(self._drawn, more)])
            self._repeated += more
        fresh = self._rng.permutation(fresh)
        return fresh // self._targets, fresh % self._targets


def _events(
    plan: AnyPlan,
    fresh: list[np.ndarray],
    edges: list[tuple[np.ndarray, np.ndarray]],
    id_kind: str,
    rng: np.random.Generator,
) -> Events:
    """Return new vertices by kind, and edges by relation, as events."""
    features = plan.features
    born, added = [len(one) for one in fresh], [len(src) for src, _ in edges]
    n, m, width = sum(born), sum(added), features.edge_width
    kind = np.repeat(np.arange(len(born), dtype=np.uint8), born)
    x = [rng.random((many, wide), np.float32) for many, wide in zip(born, features.widths, strict=True)]
    attr = np.concatenate([np.zeros((n, width), np.float32), rng.random((m, width), np.float32)]) if width else None
    if attr is not None and features.kinds is not None:
        relation = np.repeat(np.arange(len(added)), added)
        attr[n:][np.arange(width) >= features.kinds.edge_widths[relation][:, None]] = 0.0
    return Events(
        op=np.repeat(np.array([OP_ADD_VERTEX, OP_ADD_EDGE], np.uint8), [n, m]),
        a=_ids(np.concatenate([*fresh, *(src for src, _ in edges)]), id_kind),
        b=_ids(np.concatenate([np.zeros(n, np.int64), *(dst for _, dst in edges)]), id_kind),
        values=EdgeValues(n + m, {}, attr),
        etype=np.repeat(np.arange(-1, len(added), dtype=np.int32).clip(0), [n, *added]),
        x_row=np.concatenate([np.arange(n, dtype=np.int32), np.full(m, -1, np.int32)]),
        x=FeatureRows.of_kinds(kind, x, features),
        position=np.arange(1, n + m + 1),
        source=np.zeros(n + m, np.int16),
        partition=np.zeros(n + m, np.int16),
        types=tuple(plan.edge_types) or Events.empty(features).types,
        kind=None if features.kinds is None else np.concatenate([kind, np.zeros(m, np.uint8)]),
    )


def _ids(numbers: np.ndarray, id_kind: str) -> Ids:
    return Ids.of_ints(numbers) if id_kind == INT else Ids.of_strings([f"{k:0{ID_BYTES}}" for k in numbers.tolist()])
