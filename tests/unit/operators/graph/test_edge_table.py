"""Attributes of a Storage's edges: found by pair and type, changed where a bit differs, given back with their edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshet.gnn.describe import describe_data
from freshet.gnn.layers.base import LayerPlan
from freshet.gnn.model import save_model
from freshet.gnn.plan import compile_plan
from freshet.operators.graph.edge_lists import EdgeLists
from freshet.operators.graph.edge_table import EdgeTable
from freshet.operators.graph.part_rows import PartRows
from freshet.state.adjacency import append
from freshet.state.memory.list_index import LONG
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts
from tests.support.graphs.attributed import EDGE_WIDTH
from tests.support.graphs.models import all_small_models
from tests.support.stages.blocks import topology

MODEL = all_small_models()["gine_conv-default-narrowing"]
A, B, C, D = [1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [-0.0, 0.0, 0.0], [4.0, 5.0, 6.0]


class Kept:
    """The edges of one part, changed block by block."""

    def __init__(self) -> None:
        (layer,) = compile_plan(MODEL()).layers
        self.layer: LayerPlan = layer
        at, self.tables = PartRows(0, TaskParts.dealt(1, 1)), TableSet()
        self.at, self.edges = at, EdgeLists(self.tables, at, at, layer)
        at.reserve(topology(1, m_slot=[9], m_key=[0]), "m")

    @property
    def table(self) -> EdgeTable:
        assert self.edges.attributes is not None
        return self.edges.attributes

    def apply(self, **columns: Any) -> dict[str, list[list[float]]]:
        """Take a block's edges; the attributes of deleted, changed and added ones before and after."""
        changes = self.edges.changes(topology(1, **columns))
        groups = {"gone": changes.deleted, "changed": changes.changed, "come": changes.added}
        before = {name: self.table.of(group[1], group[2]).tolist() for name, group in groups.items()}
        for u, v, number in zip(*changes.added[:3], strict=True):
            while not append(self.edges.out.view, u, v, number, 0):
                self.edges.grow()
            append(self.edges.inn.view, v, u, number, 0)
        self.edges.settle()
        before["changed"] += self.table.of(changes.changed[1], changes.changed[3]).tolist()
        return {name: rows for name, rows in before.items() if rows}


def added(*edges: tuple[int, int, int, list[float]]) -> dict[str, Any]:
    src, dst, kind, attr = zip(*edges, strict=True)
    return {"add_src": src, "add_dst": dst, "add_type": kind, "add_attr": attr, "add_w": [1.0] * len(src)}


def changed(*edges: tuple[int, int, int, list[float]]) -> dict[str, Any]:
    src, dst, kind, attr = zip(*edges, strict=True)
    weights = {"rew_old": [1.0] * len(src), "rew_new": [1.0] * len(src)}
    return {"rew_src": src, "rew_dst": dst, "rew_type": kind, "rew_attr": attr, **weights}


def test_two_edges_of_a_pair_keep_their_own() -> None:
    kept = Kept()
    assert kept.apply(**added((1, 2, 0, A), (1, 2, 5, D), (2, 1, 5, B))) == {"come": [A, D, B]}
    assert kept.apply(**changed((1, 2, 5, B))) == {"changed": [D, B]}
    assert kept.apply(**changed((1, 2, 0, A))) == {}, "equal bits are no change"
    found = kept.apply(**changed((2, 1, 5, C)))["changed"]
    assert np.signbit(found).tolist() == [[False] * 3, [True, False, False]], "bits are, not values"
    assert kept.apply(del_src=[1], del_dst=[2], del_type=[5], del_w=[1.0]) == {"gone": [B]}


def test_numbers_are_given_again_from_the_next_epoch_on() -> None:
    kept = Kept()
    kept.apply(**added((1, 2, 0, A), (3, 4, 0, A)))
    kept.apply(del_src=[1], del_dst=[2], del_type=[0], del_w=[1.0], **added((5, 6, 0, D)))
    assert kept.table.ends.tolist() == [3], "an old message may still be made of what goes"
    assert not kept.table.attr.data[0].any(), "what is free holds nothing"
    kept.apply(**added((7, 8, 0, D)))
    assert kept.table.ends.tolist() == [3]
    assert kept.table.attr.data[:3].tolist() == [D, A, D]


def test_an_edge_that_is_not_there_is_not_mistaken_for_another() -> None:
    kept = Kept()
    kept.apply(**added((1, 2, 0, A)))
    changes = kept.edges.changes(topology(2, del_src=[1, 1], del_dst=[2, 3], del_type=[1, 0], del_w=[1.0, 1.0]))
    assert changes.deleted[2].tolist() == [0.0, 0.0]


def test_a_hub_is_searched_at_its_other_end() -> None:
    kept = Kept()
    kept.apply(**added(*((k, 9, kind, [k, kind, 0.0]) for k in range(9) for kind in range(60))))
    assert kept.apply(**changed((4, 9, 17, A))) == {"changed": [[4.0, 17.0, 0.0], A]}


@pytest.mark.parametrize("indexed", [False, True])
def test_two_hubs_find_the_edges_between_them_by_type(indexed: bool) -> None:
    """With an index, and by reading the lists through where none was made yet."""
    kept, many = Kept(), 2 * LONG + 50
    kept.at.reserve(topology(1, m_slot=[many + 9], m_key=[0]), "m")
    ends = [(k, 0, 0) for k in range(2, many)] + [(1, k, 0) for k in range(2, many)] + [(1, 0, k) for k in range(3)]
    kept.apply(**added(*((u, v, kind, [float(kind), v, u]) for u, v, kind in ends)))
    if indexed:
        kept.edges.make_index((np.array([1], np.int32), np.array([0], np.int32)))
        assert kept.edges.index_bytes
    found = kept.apply(del_src=[1] * 2, del_dst=[0] * 2, del_type=[2, 0], del_w=[1.0] * 2)["gone"]
    assert found == [[2.0, 0.0, 1.0], [0.0, 0.0, 1.0]]
    changes = kept.edges.changes(topology(2, del_src=[1, 1], del_dst=[0, 0], del_type=[5, 1], del_w=[1.0, 1.0]))
    assert changes.deleted[2].view(np.int32).astype(bool).tolist() == [False, True]


def test_described_bytes_are_those_of_the_tables(tmp_path: Any) -> None:
    save_model(MODEL(), tmp_path)
    (layer,) = describe_data(tmp_path)["layers"]
    kept = Kept()
    held = kept.edges.out.pool, kept.edges.out.weight, kept.edges.inn.pool, kept.edges.inn.weight
    tables = [table for table in (*held, kept.table.type, kept.table.attr) if table is not None]
    row = sum(table.dtype.itemsize * (table.width or 1) for table in tables)
    assert layer["state_bytes_per_edge"] == row == 20 + 4 * EDGE_WIDTH


@pytest.mark.parametrize("name", ["graph_conv-sum-narrowing", "edge_conv-max-narrowing", "gin_conv-default-narrowing"])
def test_layers_that_read_none_have_no_table_of_them(name: str) -> None:
    (layer,) = compile_plan(all_small_models()[name]()).layers
    tables, at = TableSet(), PartRows(0, TaskParts.dealt(1, 1))
    assert EdgeLists(tables, at, at, layer).attributes is None
    assert not [table.name for table in tables if table.name.startswith("edge.")]
    assert ("out.weight" in {table.name for table in tables}) == layer.edge.weighted
