"""Storage and Tail on graphs that one can draw: rows of width 1, weights of the model 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshet.gnn.model import build_model
from freshet.gnn.plan import LayerPlan, compile_plan
from freshet.operators.graph.edge_lists import LostUpdateError
from freshet.operators.storage.features import FeatureStorage
from freshet.operators.storage.layer import LayerStorage
from freshet.operators.storage.shape import LayerShape
from freshet.operators.storage.tail import LayerTail
from freshet.operators.telemetry.figures import FEATURED
from freshet.schema import Features
from freshet.state.table import DIRTY
from freshet.state.task_parts import TaskParts
from tests.support.stages.blocks import partial, replica_sync, sent, sync, topology

SUM = {"type": "graph_conv", "in_channels": 1, "out_channels": 1}


def plan(*layers: dict[str, Any], root: float = 0.0) -> list[LayerPlan]:
    """Layers that add up their neighbours' rows, and `root` times their own."""
    weights = {}
    for number, layer in enumerate(layers):
        if layer["type"] == "graph_conv":
            weights[f"layers.{number}.lin_rel.weight"] = np.ones((1, 1), np.float32)
            weights[f"layers.{number}.lin_rel.bias"] = np.zeros(1, np.float32)
            weights[f"layers.{number}.lin_root.weight"] = np.full((1, 1), root, np.float32)
        else:
            weights[f"layers.{number}.lin.weight"] = np.ones((1, 1), np.float32)
            weights[f"layers.{number}.bias"] = np.zeros(1, np.float32)
    return compile_plan(build_model(layers=list(layers), head=[], edge_types=[], weights=weights)).layers


def storage(layer: LayerPlan, following: LayerPlan | None = None, *, part: int = 0, parts: int = 1) -> LayerStorage:
    return LayerStorage(LayerShape(part, TaskParts.dealt(parts, parts), 1, layer, following))


def own(rows: dict[int, float], root: float = 0.0) -> dict[str, Any]:
    """Columns of the masters' rows: message and self input."""
    return {"o_slot": list(rows), "zo": [[value, root * value] for value in rows.values()]}


def published(messages: Any) -> dict[int, float]:
    """Key -> embedding, from the blocks for the sinks."""
    found = {}
    for columns in sent(messages, "sink").values():
        found |= {key: row[0] for key, row in zip(columns.get("key", []), columns.get("row", []), strict=True)}
    return found


STAR = {"m_slot": [0, 1, 2, 3], "m_key": [10, 11, 12, 13]}  # masters 10 to 13 in slots 0 to 3


# -- Storage 0 --------------------------------------------------------------------------------------------------------


def test_features_go_to_the_own_part_and_to_the_replicas() -> None:
    core = FeatureStorage(0, TaskParts.dealt(2, 2), Features(1), plan(SUM)[0])
    messages = core.apply(
        1, [topology(1, **STAR, x0_slot=[1, 2], x0=[[5], [7]], ra_slot=[2], ra_part=[1], ra_rslot=[40])]
    )
    assert sent(messages, "storage")[0]["o_slot"] == [1, 2, 0, 3], "new vertices count as changed"
    assert [row[0] for row in sent(messages, "storage")[0]["zo"]] == [5, 7, 0, 0]
    assert sent(messages, "storage")[1] == {"z_slot": [40], "z": [[7]]}
    assert core.touched == 4
    messages = core.apply(2, [topology(2, x0_slot=[1, 2, 3], x0=[[5], [8], [0]])])
    assert sent(messages, "storage")[0]["o_slot"] == [2], "the others are what they were"
    assert sent(messages, "storage")[1] == {"z_slot": [40], "z": [[8]]}
    assert core.touched == 1


def test_a_new_replica_is_told_the_value_though_it_has_not_changed() -> None:
    core = FeatureStorage(0, TaskParts.dealt(3, 3), Features(1), plan(SUM)[0])
    core.apply(1, [topology(1, **STAR, x0_slot=[1], x0=[[5]])])
    messages = core.apply(2, [topology(2, ra_slot=[1], ra_part=[2], ra_rslot=[9])])
    assert sent(messages, "storage")[2] == {"z_slot": [9], "z": [[5]]}
    assert sent(messages, "storage")[1] == {}
    assert "o_slot" not in sent(messages, "storage")[0]
    messages = core.apply(3, [topology(3, x0_slot=[1], x0=[[6]], rd_slot=[1], rd_part=[2])])
    assert sent(messages, "storage")[2] == {}, "no replica, no row"


def test_a_slot_that_is_used_again_holds_nothing_of_its_former_vertex() -> None:
    core = FeatureStorage(0, TaskParts.dealt(1, 1), Features(1), plan(SUM)[0])
    core.apply(1, [topology(1, **STAR, x0_slot=[1], x0=[[5]])])
    messages = core.apply(2, [topology(2, d_slot=[1], d_key=[11])])
    assert sent(messages, "storage")[0]["d_key"] == [11], "travels down the chain"
    messages = core.apply(3, [topology(3, m_slot=[1], m_key=[99])])
    assert sent(messages, "storage")[0]["zo"][0][0] == 0


def test_a_task_knows_whether_any_vertex_has_features() -> None:
    core = FeatureStorage(0, TaskParts.dealt(1, 1), Features(1), plan(SUM)[0])
    for epoch, x, featured in ((1, 0, 0), (2, 5, 1), (3, 0, 1)):
        core.apply(epoch, [topology(epoch, **(STAR if epoch == 1 else {}), x0_slot=[1], x0=[[x]])])
        assert core.figures.gauges == {FEATURED: featured}
    restored = FeatureStorage(0, TaskParts.dealt(1, 1), Features(1), plan(SUM)[0])
    restored.owners[0].x.reserve(4)
    restored.owners[0].x.data[2] = 7
    assert restored.figures.gauges == {FEATURED: 1}, "those of a snapshot, or of an earlier run"


# -- Storage 1 in one part --------------------------------------------------------------------------------------------


def started(root: float = 0.0) -> LayerStorage:
    """Edges 1 -> 0 (weight 2) and 2 -> 0 (weight 3); rows 1, 10, 100, 1000."""
    core = storage(plan(SUM, root=root)[0])
    edges = {"add_src": [1, 2], "add_dst": [0, 0], "add_w": [2, 3]}
    rows = own({0: 1, 1: 10, 2: 100, 3: 1000}, root)
    assert published(core.apply(1, [sync(1, **STAR, **edges, **rows)])) == {
        10: 320 + root, 11: 10 * root, 12: 100 * root, 13: 1000 * root,
    }  # fmt: skip
    return core


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        ({"add_src": [3], "add_dst": [0], "add_w": [1]}, 1320),
        ({"add_src": [0], "add_dst": [0], "add_w": [1]}, 321),
        ({"del_src": [1], "del_dst": [0], "del_w": [2]}, 300),
        ({"del_src": [1, 2], "del_dst": [0, 0], "del_w": [2, 3]}, 0),
        ({"rew_src": [1], "rew_dst": [0], "rew_old": [2], "rew_new": [-1]}, 290),
        ({"o_slot": [1], "zo": [[11, 0]]}, 322),
        ({"del_src": [1], "del_dst": [0], "del_w": [2], "o_slot": [1], "zo": [[11, 0]]}, 300),
        ({"rew_src": [1], "rew_dst": [0], "rew_old": [2], "rew_new": [5], "o_slot": [1], "zo": [[11, 0]]}, 355),
        ({"add_src": [3], "add_dst": [0], "add_w": [1], "o_slot": [3], "zo": [[4, 0]]}, 324),
    ],
)
def test_one_message_per_edge_and_epoch(epoch: dict[str, Any], expected: float) -> None:
    core = started()
    assert published(core.apply(2, [sync(2, **epoch)]))[10] == expected
    assert core.touched == 1 + len(epoch.get("o_slot", [])), "it, and the vertex whose own row has changed"


def test_nothing_changed_and_nothing_is_touched() -> None:
    core = started()
    assert published(core.apply(2, [sync(2, o_slot=[1, 2], zo=[[10, 0], [100, 0]])])) == {}
    assert published(core.apply(3, [sync(3)])) == {}


def test_an_epoch_that_changes_and_changes_back_publishes_nothing() -> None:
    core = started()
    back = {"rew_src": [1, 2], "rew_dst": [0, 0], "rew_old": [2, 3], "rew_new": [12, 2]}
    assert published(core.apply(2, [sync(2, **back)])) == {}, "100 more and 100 less"
    assert core.touched == 1, "it was looked at"


def test_a_vertex_without_in_edges_is_updated_when_its_own_row_is_read() -> None:
    assert published(started(root=1.0).apply(2, [sync(2, **own({3: 7}, 1.0))])) == {13: 7}


def test_an_edge_that_is_not_here_is_a_lost_update() -> None:
    for wrong in (
        {"del_src": [3], "del_dst": [0], "del_w": [1]},
        {"del_src": [1], "del_dst": [0], "del_w": [9]},
        {"rew_src": [1], "rew_dst": [0], "rew_old": [9], "rew_new": [1]},
    ):
        with pytest.raises(LostUpdateError, match="storage 1 task 0: epoch 2 changes an edge that is not here"):
            started().apply(2, [sync(2, **wrong)])


def test_a_sum_that_has_lost_bits_is_recomputed() -> None:
    core = started()
    core.apply(2, [sync(2, **own({2: 1e20}))])
    assert core.relations[0].store.recomputed == 0
    assert published(core.apply(3, [sync(3, **own({2: 0.1}))]))[10] == np.float32(20) + np.float32(3) * np.float32(0.1)
    assert core.relations[0].store.recomputed == 1


def test_rows_that_are_not_finite_are_recomputed() -> None:
    core = started()
    assert published(core.apply(2, [sync(2, **own({2: np.inf}))]))[10] == np.inf
    assert published(core.apply(3, [sync(3, **own({2: 100}))]))[10] == 320


def test_a_dropped_vertex_leaves_nothing_behind() -> None:
    core = started()
    gone = {"del_src": [1, 2], "del_dst": [0, 0], "del_w": [2, 3], "d_slot": [0, 1], "d_key": [10, 11]}
    messages = core.apply(2, [sync(2, **gone)])
    assert sent(messages, "sink")[0] == {"del_key": [10, 11]}
    assert not core.relations[0].store.s.data[[0, 1]].any()
    assert not core.relations[0].store.z.data[[0, 1]].any()
    messages = core.apply(3, [sync(3, m_slot=[0], m_key=[77], o_slot=[0], zo=[[1, 0]])])
    assert published(messages) == {77: 0}


def test_only_changed_pages_become_dirty() -> None:
    core = started()
    for table in core.tables:
        table.freeze()
        list(table.take_owed(1000))
    core.apply(2, [sync(2, rew_src=[1], rew_dst=[0], rew_old=[2], rew_new=[3])])
    dirty = {table.name for table in core.tables if (table.view.flags == DIRTY).any()}
    assert dirty == {"s", "note", "print", "out.weight", "in.weight"}


def test_gcn_reads_the_loop_from_the_context_and_not_from_an_edge() -> None:
    layer = plan({"type": "gcn_conv", "in_channels": 1, "out_channels": 1})[0]
    core = storage(layer)
    context = {"c_slot": [0, 1], "c_count": [2, 0], "c_degree": [3, 0], "c_loop": [float("nan")] * 2}
    # dis(0) = (3 + 1)^-1/2 = 1/2, dis(1) = 1; rows of 4 and 6: messages 2 and 6
    born = {"m_slot": [0, 1], "m_key": [10, 11], **context}
    edges = {"add_src": [1, 0], "add_dst": [0, 0], "add_w": [3, 50]}
    rows = published(core.apply(1, [sync(1, **born, **edges, o_slot=[0, 1], zo=[[2], [6]])]))
    assert rows == {10: 0.5 * (3 * 6 + 2), 11: 6}
    loop = {"c_slot": [0], "c_count": [2], "c_degree": [3], "c_loop": [6.0]}  # now dis(0) = 1/3
    rows = published(core.apply(2, [sync(2, **loop, o_slot=[0], zo=[[4 / 3]])]))
    assert rows[10] == pytest.approx((3 * 6 + 6 * 4 / 3) / 3)


# -- whole and split, two parts ---------------------------------------------------------------------------------------


def parts_of_a_split_vertex() -> tuple[LayerStorage, LayerStorage, LayerTail]:
    """Vertex 10 is mastered in part 0 (slot 0) and has a replica in part 1 (slot 5), where an in-edge lives."""
    layer = plan(SUM, root=1.0)[0]
    home, away = storage(layer, parts=2), storage(layer, part=1, parts=2)
    tail = LayerTail(LayerShape(0, TaskParts.dealt(2, 2), 1, layer, None))
    split = {"s_slot": [0]}
    first = home.apply(
        1,
        [sync(1, **STAR, **split, add_src=[1], add_dst=[0], add_w=[2], **own({0: 1, 1: 10, 2: 100, 3: 0}, 1.0))],
    )
    second = away.apply(
        1,
        [
            sync(
                1, 1, m_slot=[0], m_key=[20], r_slot=[5], r_part=[0], r_home=[0],
                add_src=[0], add_dst=[5], add_w=[1], **own({0: 30}, 1.0),
            ),
            replica_sync(1, 0, z_slot=[5], z=[[1]]),
        ],
    )  # fmt: skip
    assert published(first) == {11: 10, 12: 100, 13: 0}, "the split vertex is the tail's"
    from_home, from_away = sent(first, "tail")[0], sent(second, "tail")[0]
    assert (from_home["p_slot"], from_home["p"], from_home["p_count"]) == ([0], [[20]], [1])
    assert (from_home["t_slot"], from_home["t"]) == ([0], [[1]])
    assert from_away == {"p_slot": [0], "p": [[30]], "p_count": [1]}
    blocks = [partial(1, 0, own=True, **{**STAR, **split, **from_home}), partial(1, 1, **from_away)]
    assert published(tail.apply(1, blocks)) == {10: 20 + 30 + 1}
    assert tail.touched == 1
    return home, away, tail


def test_the_tail_merges_the_partials_of_a_split_vertex() -> None:
    home, away, tail = parts_of_a_split_vertex()
    messages = away.apply(2, [sync(2, 1, **own({0: 31}, 1.0)), replica_sync(2, 0)])
    assert sent(messages, "tail")[0] == {"p_slot": [0], "p": [[31]], "p_count": [1]}
    assert sent(home.apply(2, [sync(2), replica_sync(2, 1)]), "tail")[0] == {}
    blocks = [partial(2, 0, own=True), partial(2, 1, p_slot=[0], p=[[31]], p_count=[1])]
    assert published(tail.apply(2, blocks)) == {10: 52}


def test_the_tail_reads_the_own_row_too() -> None:
    home, _, tail = parts_of_a_split_vertex()
    messages = home.apply(2, [sync(2, **own({0: 3}, 1.0)), replica_sync(2, 1)])
    assert sent(messages, "tail")[0] == {"t_slot": [0], "t": [[3]]}
    assert published(tail.apply(2, [partial(2, 0, own=True, t_slot=[0], t=[[3]]), partial(2, 1)])) == {10: 53}


def test_the_vertex_becomes_whole_and_split_again() -> None:
    home, away, tail = parts_of_a_split_vertex()
    gone = away.apply(2, [sync(2, 1, del_src=[0], del_dst=[5], del_w=[1], f_slot=[5]), replica_sync(2, 0)])
    assert sent(gone, "tail")[0] == {"p_slot": [0], "p": [[0]], "p_count": [0]}
    messages = home.apply(2, [sync(2, u_slot=[0]), replica_sync(2, 1)])
    assert published(messages) == {10: 21}, "from the storage's own partial, which was always kept"
    blocks = [partial(2, 0, own=True, u_slot=[0]), partial(2, 1, p_slot=[0], p=[[0]], p_count=[0])]
    assert published(tail.apply(2, blocks)) == {}, "only the new owner says so"
    assert not tail.kinds[0][2][0].index.held(np.zeros(1, np.int32))[0].size
    messages = home.apply(3, [sync(3, s_slot=[0]), replica_sync(3, 1)])
    assert published(messages) == {}
    assert sent(messages, "tail")[0]["p"] == [[20]]
    from_home = sent(messages, "tail")[0]
    blocks = [partial(3, 0, own=True, **from_home), partial(3, 1, p_slot=[0], p=[[5]], p_count=[1])]
    assert published(tail.apply(3, blocks)) == {10: 26}


def test_partials_are_added_in_the_order_of_the_parts() -> None:
    """So that the bits do not depend on who sent first: 1e8 + 4 + 4 is another float32 than 4 + 4 + 1e8."""
    layer = plan(SUM)[0]
    tail = LayerTail(LayerShape(0, TaskParts.dealt(3, 3), 1, layer, None))
    rows = [1e8, 4.0, 4.0]
    expected = np.float32(np.float32(1e8) + np.float32(4)) + np.float32(4)
    assert expected != np.float32(1e8) + np.float32(8)
    born = {"m_slot": [0], "m_key": [10], "s_slot": [0], "t_slot": [0], "t": [[0]]}
    blocks = [
        partial(1, 0, own=True, **born, p_slot=[0], p=[[rows[0]]], p_count=[1]),
        *(partial(1, part, p_slot=[0], p=[[rows[part]]], p_count=[1]) for part in (1, 2)),
    ]
    assert published(tail.apply(1, blocks)) == {10: expected}
    blocks = [partial(2, 0, own=True), partial(2, 1, p_slot=[0], p=[[20.0]], p_count=[1]), partial(2, 2)]
    assert published(tail.apply(2, blocks)) == {10: np.float32(1e8) + np.float32(20) + np.float32(4)}


def test_rows_of_partials_are_used_again() -> None:
    tail = LayerTail(LayerShape(0, TaskParts.dealt(2, 2), 1, plan(SUM)[0], None))
    born = {"m_slot": list(range(20)), "m_key": list(range(20))}
    tail.apply(1, [partial(1, 0, own=True, **born), partial(1, 1)])
    for epoch in range(2, 60, 2):
        slot = epoch % 20
        tail.apply(epoch, [
            partial(epoch, 0, own=True, s_slot=[slot], t_slot=[slot], t=[[0]], p_slot=[slot], p=[[1]], p_count=[1]),
            partial(epoch, 1, p_slot=[slot], p=[[epoch]], p_count=[1]),
        ])  # fmt: skip
        assert tail.tables["x"].data[slot, 0] == 1 + epoch
        tail.apply(epoch + 1, [partial(epoch + 1, 0, own=True, u_slot=[slot]), partial(epoch + 1, 1)])
    assert tail.tables["scalars"].data[0] == 2, "two rows served them all"


def test_a_vertex_that_dies_split_takes_its_partials_along() -> None:
    _, _, tail = parts_of_a_split_vertex()
    away = partial(2, 1, p_slot=[0], p=[[0]], p_count=[0])
    assert published(tail.apply(2, [partial(2, 0, own=True, d_slot=[0], d_key=[10]), away])) == {}
    assert not tail.kinds[0][2][0].index.held(np.zeros(1, np.int32))[0].size
    assert tail.tables["flags"].data[0] == 0


def test_a_part_without_masters_keeps_synopses_for_others() -> None:
    core = storage(plan(SUM, root=1.0)[0], part=1, parts=2)
    replicas = {"r_slot": [0, 1], "r_part": [0, 0], "r_home": [7, 8]}
    epoch = sync(1, 1, **replicas, add_src=[0], add_dst=[1], add_w=[2])
    messages = core.apply(1, [epoch, replica_sync(1, 0, z_slot=[0, 1], z=[[5], [6]])])
    assert sent(messages, "tail")[0] == {"p_slot": [8], "p": [[10]], "p_count": [1]}
    assert core.touched == 0


# -- the end of the chain ---------------------------------------------------------------------------------------------


def test_rows_go_to_the_sink_part_of_their_key() -> None:
    core = storage(plan(SUM, root=1.0)[0], parts=2)
    masters = {"m_slot": [0, 1, 2], "m_key": [-3, 8, 5]}
    messages = core.apply(1, [sync(1, **masters, **own({0: 1, 1: 2, 2: 3}, 1.0)), replica_sync(1, 1)])
    found = sent(messages, "sink")
    assert (found[0]["key"], found[1]["key"]) == ([8], [-3, 5])
    messages = core.apply(2, [sync(2, d_slot=[0, 1], d_key=[-3, 8]), replica_sync(2, 1)])
    assert [sent(messages, "sink")[part].get("del_key") for part in (0, 1)] == [[8], [-3]]


def test_names_of_new_vertices_go_with_them() -> None:
    core = storage(plan(SUM, root=1.0)[0], parts=2)
    text = np.frombuffer("eins€zwei".encode(), np.uint8)
    masters = {"m_slot": [0, 1], "m_key": [4, 7], "m_off": np.array([0, 7, 11], "i8"), "m_name": text}
    epoch = sync(1, **{**masters, "m_off": [0, 7, 11]}, **own({0: 1, 1: 2}, 1.0))
    columns = {name: column for name, column in epoch.columns.items() if name not in ("m_off", "m_name")}
    columns |= {"m_off": masters["m_off"], "m_name": text}
    messages = core.apply(1, [type(epoch)(epoch.header, columns), replica_sync(1, 1)])
    found = sent(messages, "sink")
    assert bytes(found[0]["m_name"]).decode() == "eins€"
    assert (found[1]["m_key"], found[1]["m_off"], bytes(found[1]["m_name"])) == ([7], [0, 4], b"zwei")
