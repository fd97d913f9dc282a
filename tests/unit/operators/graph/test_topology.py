"""What a Storage knows of the graph: the same, whatever the model makes of it."""

from __future__ import annotations

import numpy as np
import pytest

from freshet.gnn.plan import compile_plan
from freshet.operators.graph.part_rows import PartRows
from freshet.operators.graph.topology import MASTER, SPLIT, Masters
from freshet.operators.storage.epoch_topology import EpochTopology
from freshet.operators.storage.layer import LayerStorage
from freshet.operators.storage.shape import LayerShape
from freshet.operators.storage.vertices import Vertices
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts
from tests.support.graphs.models import Spec, conv, make_model
from tests.support.stages.blocks import sync

ONE = TaskParts.dealt(1, 1)
LISTS = tuple(f"{name}.{table}" for name in ("out", "in") for table in ("head", "pool", "free"))
TABLES = ("key", "flags", "home", *LISTS)
MODELS = {
    "weights and no contexts": conv("graph_conv", 3, 3),
    "no weights, no contexts": conv("graph_conv", 3, 3, edge_weights=False),
    "contexts": conv("sage_conv", 3, 3, aggr="mean"),
    "maxima": conv("graph_conv", 3, 3, aggr="max", edge_weights=False),
    "several": conv("sage_conv", 3, 3, aggr=["mean", "max"]),
}


FIRST = {"m_slot": [0, 1, 2, 3], "m_key": [5, 6, 7, 8]} | {
    "add_src": [0, 1, 2, 0],
    "add_dst": [1, 2, 1, 3],
    "add_w": [0.5, 2, 3, 1],
    "c_slot": [1, 2, 3],
    "c_count": [2, 1, 1],
    "c_degree": [3.5, 2, 1],
    "c_loop": [float("nan")] * 3,
}
SECOND = {"del_src": [2], "del_dst": [1], "del_w": [3], "rew_src": [0], "rew_dst": [1], "rew_old": [0.5]} | {
    "rew_new": [4],
    "c_slot": [1],
    "c_count": [1],
    "c_degree": [4],
    "c_loop": [2],
}


def of_model(spec: Spec) -> LayerStorage:
    """A Storage after two epochs."""
    (layer,) = compile_plan(make_model(0, [spec])).layers
    core = LayerStorage(LayerShape(0, ONE, 1, layer, None))
    for epoch, columns in enumerate((FIRST, SECOND), 1):
        core.apply(epoch, [sync(epoch, **columns)])
    return core


@pytest.mark.parametrize("name", MODELS)
def test_it_is_the_same_for_every_model(name: str) -> None:
    got, want = of_model(MODELS[name]).tables, of_model(conv("graph_conv", 3, 3)).tables
    for table in TABLES:
        assert got[table].data.tobytes() == want[table].data.tobytes(), table


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_contexts_are_kept_for_layers_that_read_them(name: str) -> None:
    core, spec = of_model(MODELS[name]), MODELS[name]
    inn, masters = core.relations[0].lists.inn, core.kinds[0].masters
    assert inn.of(1).tolist() == [0]
    if "no weights" in name or spec["type"] == "sage_conv" or name == "maxima":
        assert inn.weight is None
    else:
        assert inn.weight is not None and inn.weight.data[inn.head.data[1, 0]] == 4.0
    if core.kinds[0].plan.read_degrees:
        context = masters.contexts(np.array([1]))[None]
        assert (context.count[0], context.degree[0], context.loop[0]) == (1, 4.0, 2.0)
    else:
        assert not masters.count.data.size


def test_what_goes_leaves_nothing() -> None:
    (layer,) = compile_plan(make_model(0, [MODELS["contexts"]])).layers
    tables, shape = TableSet(), LayerShape(0, ONE, 1, layer, None)
    known = Vertices(tables, shape, 0, layer.kinds[0], MASTER)
    for block in (
        sync(1, **FIRST, s_slot=[2], r_slot=[4], r_part=[0], r_home=[9]),
        sync(2, d_slot=[2], f_slot=[4]),
    ):
        known.take_over(block)
        known.take_degrees(EpochTopology([{"": block}]))
        if block.header.epoch == 1:
            assert known.masters.flags.data[:4].tolist() == [MASTER, MASTER, MASTER | SPLIT, MASTER]
    known.clear(block)
    for name in ("key", "flags", "count", "degree", "loop", "home"):
        table = tables[name]
        np.testing.assert_array_equal(table.data[4 if name == "home" else 2], table.fill, err_msg=name)


def test_storage_0_does_not_ask_which_vertices_are_split() -> None:
    masters = Masters(TableSet(), at := PartRows(0, ONE), None, None, None)
    at.reserve(sync(1, **FIRST), "m")
    masters.take_over(sync(1, **FIRST, s_slot=[2]))
    assert masters.flags.data[:4].tolist() == [MASTER] * 4
