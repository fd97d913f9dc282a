"""A store of synopses beside the edges and values that it should have: what unit tests of folds are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from freshet.gnn.layers.base import LayerPlan
from freshet.gnn.plan import compile_plan
from freshet.operators.aggregates.fold_store import FoldStore
from freshet.operators.aggregates.registry import aggregate_of
from freshet.operators.graph.edge_lists import EdgeLists
from freshet.operators.graph.part_rows import PartRows, frozen
from freshet.operators.graph.sources import SourceRows
from freshet.schema import WEIGHT, EdgeValues
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts
from tests.support.graphs.models import Spec, make_model
from tests.support.stages.blocks import topology

Edge = tuple[int, int]


@dataclass
class Twin:
    """A store, and beside it the edges and values that it should have.

    Where a layer reads attributes, those of an edge are made of its weight.
    """

    layer: LayerPlan
    store: FoldStore
    rows: int
    values: np.ndarray
    epoch: int = 0
    edges: dict[Edge, float] = field(default_factory=dict)

    def apply(self, edges: dict[Edge, float], values: dict[int, list[float]]) -> np.ndarray:
        """Have these edges and these new values in one epoch; the rows whose synopses the store says have changed."""
        self.epoch += 1
        columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        for (u, v), weight in self.edges.items():
            if (u, v) not in edges:
                _note(columns, "del", u, v, w=weight, **self._type)
            elif edges[u, v] != weight:
                _note(columns, "rew", u, v, old=weight, new=edges[u, v], **self._attributes(edges[u, v]))
        for (u, v), weight in edges.items():
            if (u, v) not in self.edges:
                _note(columns, "add", u, v, w=weight, **self._attributes(weight))
        slots = np.array(list(values), np.int32)
        sent = np.array(list(values.values()), np.float32).reshape(-1, self.layer.message_width)
        order = frozen(np.arange(slots.size, dtype=np.int32))
        sources = SourceRows(frozen(slots), order, frozen(sent), [])
        self.store.merge(self.epoch, topology(self.epoch, **columns), sources, None)
        self.edges = dict(edges)
        self.values[slots] = sent
        return self.store.touched()

    def want(self) -> np.ndarray:
        """The synopses, recomputed."""
        src, dst = np.array(list(self.edges) or np.empty((0, 2)), np.int64).T
        weight = np.array(list(self.edges.values()), np.float32)
        attr = [self._attributes(weight).get("attr", []) for weight in self.edges.values()]
        rows = np.array(attr, np.float32).reshape(len(attr), self.layer.edge.attributes)
        with np.errstate(all="ignore"):
            messages = self.layer.edge.messages(self.values[src], EdgeValues(len(src), {WEIGHT: weight}, rows))
            return self.layer.synopsis.whole(messages, dst, self.values)

    @property
    def _type(self) -> dict[str, Any]:
        return {"type": 0} if self.layer.edge.attributes else {}

    def _attributes(self, weight: float) -> dict[str, Any]:
        """What an edge has besides a weight."""
        attr = [(weight - k) * (-1) ** k for k in range(self.layer.edge.attributes)]
        return self._type | ({"attr": attr} if attr else {})

    def read(self) -> np.ndarray:
        return self.store.read(np.arange(self.rows, dtype=np.int32))


_COLUMNS = ("add_src", "add_dst", "add_w", "del_src", "del_dst", "del_w", "rew_src", "rew_dst", "rew_old", "rew_new")


def _note(columns: dict[str, list[Any]], kind: str, u: int, v: int, **more: Any) -> None:
    for name, value in {"src": u, "dst": v, **more}.items():
        columns.setdefault(f"{kind}_{name}", []).append(value)


def store_of(spec: Spec, rows: int, *behind: Spec) -> tuple[LayerPlan, FoldStore]:
    """A store for a conv, perhaps with dense layers behind it, with room for so many vertices."""
    (layer,) = compile_plan(make_model(0, [spec, *behind])).layers
    at, tables = PartRows(0, TaskParts.dealt(1, 1)), TableSet()
    store = aggregate_of(layer.synopsis).store(tables, EdgeLists(tables, at, at, layer), layer, "storage 1 task 0")
    assert isinstance(store, FoldStore)
    at.reserve(topology(1, m_slot=[rows - 1], m_key=[0]), "m")
    return layer, store


def twin_of(spec: Spec, rows: int, *behind: Spec) -> Twin:
    """A store for a conv, and its twin."""
    layer, store = store_of(spec, rows, *behind)
    return Twin(layer, store, rows, values=np.zeros((rows, layer.message_width), np.float32))
