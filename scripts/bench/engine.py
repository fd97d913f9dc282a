"""The engine alone: the cores of one part in one thread, arrays in and nothing written.

Workloads are those of the peers (graphs.py in their folder), with `attr`, (edges, width) float32, where edges have
attributes, `weight`, (edges,) float32, where they have weights, and `types`, (edges,) int64, where they have types.
`alive`, (vertices,) bool, says which vertices are there at the begin, where these change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet.gnn.any_plan import compile_any
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.operators.aggregates.attention.fold import AttentionFold
from freshet.operators.control import control_values
from freshet.operators.core import Core
from freshet.operators.dataflow import PARTITIONER, SINK, STORAGE, Place
from freshet.operators.epochs.config import SealingConfig
from freshet.operators.factory import dataflow_of, make_core
from freshet.operators.network import Network
from freshet.operators.outcome import Message
from freshet.operators.settings import Settings
from freshet.operators.stage import Stage
from freshet.operators.storage.layer import LayerStorage
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.events import (
    DEFAULT_TYPE,
    OP_ADD_EDGE,
    OP_ADD_VERTEX,
    OP_DEL_EDGE,
    OP_DEL_VERTEX,
    OP_SET_FEATURES,
    Events,
)
from freshet.partitioner.ids import Ids
from freshet.schema import EdgeValues, FeatureRows
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts
from scripts.bench.layer_work import counts_of, folds_of

_OPS = np.array([OP_ADD_EDGE, OP_DEL_EDGE, OP_SET_FEATURES, OP_ADD_VERTEX, OP_DEL_VERTEX], np.uint8)
_EDGES_AT_ONCE = 2_000_000  # of those at the begin: their events and rows are in memory together


class Nowhere(Core):
    """Takes rows and writes nothing."""

    def __init__(self, parts: int = 1) -> None:
        self.tables = TableSet(parts)

    def after_restore(self) -> None:
        """There is nothing to restore."""

    def apply(self, epoch: int, blocks: list[Any]) -> list[Message]:
        """Rows go nowhere."""
        return []


class Cores:
    """The cores of a task that has all parts; `take` has them apply an epoch."""

    def __init__(self, model: Model | KindsModel, parts: int = 1, config: PartitionerConfig | None = None) -> None:
        plan = compile_any(model)
        self.epoch, self.edge_types = 1, tuple(plan.edge_types)
        settings = Settings("", "", parts, config or PartitionerConfig(), sealing=SealingConfig(), tasks=(parts,))
        self.partitioner = Partitioner(parts, plan.features, settings.partitioning, TaskParts.dealt(parts, 1))
        flow = dataflow_of(settings, plan)
        cores = {
            row.name: Nowhere(parts) if row.kind == SINK else make_core(settings, plan, row, 0) for row in flow.staged
        }
        self.stages = {
            Place(name, 0): Stage(name, core, flow.blocks_per_epoch(name), parts=range(parts))
            for name, core in cores.items()
        }
        for stage in self.stages.values():
            stage.restore(*([] for _ in range(parts)))
        self.network = Network(flow, self.stages)
        self.layers = [stage.core for stage in self.stages.values() if isinstance(stage.core, LayerStorage)]
        self.touched = [0] * len(self.layers)

    def take(self, events: Events) -> None:
        """Apply an epoch."""
        change = self.partitioner.partition(events)
        sent = self.partitioner.split(change, control_values(vertices=self.partitioner.vertices), self.epoch)
        blocks = [Message(STORAGE, task, self.epoch, block) for task, block in enumerate(sent)]
        self.network.send(Place(PARTITIONER, 0), blocks)
        while not self.network.idle:
            self.network.step()
        for number, layer in enumerate(self.layers):
            self.touched[number] += layer.touched
        self.epoch += 1

    @staticmethod
    def edge_bytes(layer: LayerStorage) -> float:
        """Return the bytes that a layer's lists and tables of edges hold for each of its edges."""
        held = sum(table.nbytes for table in layer.tables if table.name.split(".")[0] in ("out", "in", "edge"))
        return held / max(1, len(layer.relations[0].lists.inn.entries()[0]))


class Engine(Cores):
    """The cores of one part on a workload of the peers: `batch(first, end)` takes these of its events as an epoch."""

    def __init__(self, workload: Any, model: Model | KindsModel) -> None:
        super().__init__(model)
        self.workload = workload
        self._begin()

    def _begin(self) -> None:
        w = self.workload
        there = np.flatnonzero(getattr(w, "alive", np.ones(w.n, bool)))
        self.take(events_of(np.full(there.size, OP_ADD_VERTEX), there, there, np.arange(there.size), w.x0[there]))
        for first in range(0, w.m0, _EDGES_AT_ONCE):
            new = np.arange(first, min(first + _EDGES_AT_ONCE, w.m0))
            op, none = np.full(new.size, OP_ADD_EDGE), np.full(new.size, -1)
            self.take(events_of(op, w.src[new], w.dst[new], none, w.x0[:0], self._values(new), **self._types(new)))
        self.touched = [0] * len(self.layers)

    def batch(self, first: int, end: int) -> None:
        """Apply these events of the workload as an epoch.

        Raises: ValueError if there are not enough.
        """
        w = self.workload
        if end > len(w.op):
            msg = f"the stream has {len(w.op):,} events, which are not enough: give fewer --events"
            raise ValueError(msg)
        op, places, arg = _OPS[w.op[first:end]], w.b[first:end], w.arg[first:end]
        rows = np.flatnonzero((op == OP_SET_FEATURES) | (op == OP_ADD_VERTEX))
        x_row = np.full(op.size, -1)
        x_row[rows] = np.arange(rows.size)
        is_edge = (op == OP_ADD_EDGE) | (op == OP_DEL_EDGE)
        values, types = self._values(np.where(op == OP_ADD_EDGE, arg, -1)), self._types(np.where(is_edge, arg, -1))
        self.take(events_of(op, w.a[first:end], places, x_row, w.pool[places[rows]], values, **types))

    def _values(self, edges: np.ndarray) -> EdgeValues:
        """The values of the edges with these numbers; -1: the event adds none."""
        attr, weight = getattr(self.workload, "attr", None), getattr(self.workload, "weight", None)
        given = {} if weight is None else {"weight": np.where(edges < 0, np.float32(1), weight[edges])}
        if attr is None:
            return EdgeValues(edges.size, given)
        found = attr[edges]
        found[edges < 0] = 0
        return EdgeValues(edges.size, given, found)

    def _types(self, edges: np.ndarray) -> dict[str, Any]:
        """The types of the edges with these numbers, as columns of events; -1: the event is about none."""
        types = getattr(self.workload, "types", None)
        return {} if types is None else {"etype": np.where(edges < 0, 0, types[edges]), "types": self.edge_types}

    def take_away(self, src: np.ndarray, dst: np.ndarray) -> None:
        """Delete these edges, in epochs of a hundred."""
        for first in range(0, src.size, 100):
            a, b = src[first : first + 100], dst[first : first + 100]
            none = np.full(a.size, -1)
            self.take(events_of(np.full(a.size, OP_DEL_EDGE), a, b, none, self.workload.pool[:0]))

    def embeddings(self) -> np.ndarray:
        """The last layer's rows, by vertex."""
        owner = self.layers[-1].kinds[0].owner
        assert owner is not None
        rows = owner.masters.key.data.size
        live = np.flatnonzero(owner.masters.flags.data[:rows])
        out = np.empty((self.workload.n, owner.width), np.float32)
        out[owner.masters.key.data[live]] = owner.rows(live.astype(np.int32))
        return out

    def counts(self) -> dict[str, int]:
        """Return the counters of the folds of all layers."""
        found: dict[str, int] = {}
        for layer in self.layers:
            for name, value in counts_of(layer).items():
                found[name] = found.get(name, 0) + value
        return found

    def redo_targets(self) -> bool:
        """Sum rows again whose targets' terms change, instead of moving edges between sides; return if any do."""
        folds = [fold for layer in self.layers for fold in folds_of(layer)]
        movers = [fold for fold in folds if isinstance(fold, AttentionFold) and fold.moves_sides]
        for fold in movers:
            fold.moves_sides = False
        return bool(movers)


def events_of(
    op: np.ndarray, a: np.ndarray, b: np.ndarray, x_row: np.ndarray, x: np.ndarray, values: EdgeValues | None = None,
    keys: Ids | None = None, etype: np.ndarray | None = None, types: tuple[str, ...] = (DEFAULT_TYPE,),
) -> Events:  # fmt: skip
    """Events of these columns; `x_row` says which row of x is an event's, -1: none."""
    n = op.size
    return Events(
        op=op.astype(np.uint8),
        a=Ids.of_ints(a.astype(np.int64)),
        b=Ids.of_ints(b.astype(np.int64)),
        values=EdgeValues.default(n) if values is None else values,
        etype=np.zeros(n, np.int32) if etype is None else etype.astype(np.int32),
        types=types,
        x_row=x_row.astype(np.int32),
        x=FeatureRows(x),
        position=np.arange(1, n + 1),
        source=np.zeros(n, np.int16),
        partition=np.zeros(n, np.int16),
        keys=keys,
    )
