"""A small graph of the same shape, taken through the operators of a job, whose tables are counted.

So nothing here knows how tables are made up. The graph is smaller by a power of two, since what grows in powers of two
(indexes, tables of several parts) is then smaller by the same factor.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from freshet.gnn.any_plan import without_kinds
from freshet.gnn.plan import Plan
from freshet.operators.control import control_values
from freshet.operators.dataflow import PARTITIONER, SINK, STORAGE, Place
from freshet.operators.factory import dataflow_of, load_plan, stages_of
from freshet.operators.network import Network
from freshet.operators.outcome import Message
from freshet.operators.settings import Settings
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.events import INT, OP_ADD_EDGE, OP_ADD_VERTEX, Events, Ids
from freshet.schema import EdgeValues, FeatureRows
from freshet.state.table import Table, TableSet
from freshet.state.task_parts import TaskParts

_VERTICES_MAX, EDGES_MAX = 60_000, 250_000
_EPOCHS = 8  # in which the graph comes, so that tables grow as they do in a job
_SKEW = 2.0  # of the sources: a few have many edges; destinations are even
_GROWN = 1.2  # tables of one part grow by half; the size at which one grows next is not that of the small graph
ID_BYTES = 16  # of a string id, where nothing is said


class OperatorBytes(NamedTuple):
    """Bytes that an operator holds: in memory, and of them in tables, which are its state."""

    memory: float
    state: float


class GraphSize(NamedTuple):
    """The graph that a job holds; `edges` with both ways of an undirected one."""

    vertices: int
    edges: int
    parts: int = 1
    id_kind: str = INT


def operators_of(model: Path, shape: GraphSize) -> dict[str, OperatorBytes]:
    """Return what each operator of a job holds, over all parts, in the order of the dataflow."""
    halvings = _halvings(shape)
    n, m = shape.vertices >> halvings, shape.edges >> halvings
    plan = without_kinds(load_plan(str(model)), "`freshet size`")
    flow_settings = Settings(str(model), "", shape.parts, tasks=(shape.parts,))
    settings = replace(flow_settings, partitioning=PartitionerConfig(id_kind=shape.id_kind))
    core = Partitioner(shape.parts, plan.features, settings.partitioning, TaskParts.dealt(shape.parts, 1))
    flow = dataflow_of(settings, plan)
    stages = stages_of(settings, plan, [row for row in flow.staged if row.kind != SINK])
    for stage in stages.values():
        stage.restore(*((),) * len(stage.parts))
    network = Network(flow, stages)
    for epoch, events in enumerate(_epochs(plan, n, m, shape.id_kind), 1):
        change = core.partition(events)
        ctl = control_values(events=len(events), vertices=core.vertices)
        blocks = core.split(change, ctl, epoch)
        network.send(Place(PARTITIONER, 0), [Message(STORAGE, k, epoch, block) for k, block in enumerate(blocks)])
        while not network.idle:
            network.step()
    larger = 1 << halvings
    found = {PARTITIONER: _held(core.tables, core.index_bytes, larger)}
    for place, stage in stages.items():
        found[place.operator] = _held(stage.core.tables, 0, larger)
        stage.close()
    return found


def _halvings(shape: GraphSize) -> int:
    most = max(shape.vertices / _VERTICES_MAX, shape.edges / EDGES_MAX, 1.0)
    return int(np.ceil(np.log2(most)))


def _held(tables: TableSet, beside: int, larger: int) -> OperatorBytes:
    used = sum(map(_used, tables))
    one_part = all(table.parts == 1 for table in tables)
    memory = _GROWN * used if one_part else sum(table.nbytes for table in tables)
    return OperatorBytes(float((memory + beside) * larger), float(used * larger))


def _used(table: Table) -> int:
    """Return the bytes of the rows in use; the kernel has given memory for no others, unless they hold a fill."""
    whole = int(table.data.nbytes)
    row = table.dtype.itemsize * (1 if table.width is None else table.width)
    return whole if table.fill else min(whole, int(table.part_rows.sum()) * row)


def _epochs(plan: Plan, n: int, m: int, id_kind: str) -> list[Events]:
    """Return the graph as events: vertices with features, and edges between them, an equal share an epoch."""
    rng = np.random.default_rng(7)
    ends = np.linspace(0, n, _EPOCHS + 1).astype(np.int64)
    per_epoch = np.diff(np.linspace(0, m, _EPOCHS + 1).astype(np.int64))
    name = rng.permutation(n).astype(np.int64)  # ids come in any order
    made = []
    for k, edges in enumerate(per_epoch.tolist()):
        fresh, known = name[ends[k] : ends[k + 1]], int(ends[k + 1])
        src = name[(known * rng.random(edges) ** _SKEW).astype(np.int64)] if known else np.empty(0, np.int64)
        dst = name[rng.integers(0, max(known, 1), edges)] if known else np.empty(0, np.int64)
        made.append(_events(plan, fresh, src, dst, id_kind, rng))
    return made


def _events(
    plan: Plan, fresh: np.ndarray, src: np.ndarray, dst: np.ndarray, id_kind: str, rng: np.random.Generator
) -> Events:
    n, m = fresh.size, src.size
    x = rng.random((n, plan.features.width), np.float32)
    width = plan.features.edge_width
    attr = np.concatenate([np.zeros((n, width), np.float32), rng.random((m, width), np.float32)]) if width else None
    return Events(
        op=np.repeat(np.array([OP_ADD_VERTEX, OP_ADD_EDGE], np.uint8), [n, m]),
        a=_ids(np.concatenate([fresh, src]), id_kind),
        b=_ids(np.concatenate([np.zeros(n, np.int64), dst]), id_kind),
        values=EdgeValues(n + m, {}, attr),
        etype=np.zeros(n + m, np.int32),
        x_row=np.concatenate([np.arange(n, dtype=np.int32), np.full(m, -1, np.int32)]),
        x=FeatureRows(x),
        position=np.arange(1, n + m + 1),
        source=np.zeros(n + m, np.int16),
        partition=np.zeros(n + m, np.int16),
        types=tuple(plan.edge_types) or Events.empty(plan.features).types,
    )


def _ids(numbers: np.ndarray, id_kind: str) -> Ids:
    return Ids.of_ints(numbers) if id_kind == INT else Ids.of_strings([f"{k:0{ID_BYTES}}" for k in numbers.tolist()])
