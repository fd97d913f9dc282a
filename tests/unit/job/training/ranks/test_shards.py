"""Shards have each vertex once, all in-edges of it, and the rows that these need of other ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from freshet.errors import InputError
from freshet.gnn.torch_modules.errors import ModuleInputError
from freshet.job.training.ranks.shards import Shard, shards_of
from freshet.job.training.ranks.whole import WholeGraph, owners_of, whole_graph
from tests.support.graphs.attributed import EDGE_WIDTH, gine
from tests.support.graphs.kinds import hetero, kinds_model, relation, sage
from tests.support.graphs.models import conv, make_model
from tests.support.training.ranks import dealt

PLAIN = make_model(0, [conv("gcn_conv", 3, 2)])
BUYS = relation("user", "buys", "item"), relation("item", "rev_buys", "user")
KINDS = kinds_model([hetero({0: sage(3, 2, 4), 1: sage(2, 3, 4)})], ("user", "item"), {"user": 3, "item": 2}, BUYS)


def community(seed: int, side: int) -> Data:
    """Two communities, few edges between them, and 5 vertices without neighbours."""
    rng = np.random.default_rng(seed)
    src, dst = rng.integers(0, side, (2, 12 * side))
    second = rng.random(len(src)) < 0.5
    src, dst = src + side * second, dst + side * second
    src[:6] = (src[:6] + side) % (2 * side)
    count = 2 * side + 5
    return Data(
        x=torch.arange(3 * count, dtype=torch.float32).view(count, 3),
        edge_index=torch.from_numpy(np.stack([src, dst])),
        edge_weight=torch.rand(len(src), generator=torch.Generator().manual_seed(seed)),
        y=torch.arange(count),
        id=torch.arange(count) * 10,
        train_mask=torch.arange(count) % 3 == 0,
        epoch=4,
    )


def check(graph: WholeGraph, shards: list[Shard], given: list[list[tuple[int, int, float]]]) -> None:
    """Put the shards together again; `given` are the edges of each relation with their weights."""
    ranks = len(shards)
    for kind, count in enumerate(graph.counts):
        assert sorted(torch.cat([one.numbers[kind] for one in shards]).tolist()) == list(range(count))
    halos = [[far(shards, one, kind) for kind in range(len(graph.kinds))] for one in shards]
    for r, (source, target) in enumerate(graph.ends):
        found = []
        for rank, one in enumerate(shards):
            edges = one.edges[r]
            assert edges.targets == len(one.numbers[target])
            sources = torch.cat([one.numbers[source], halos[rank][source]])
            ends = sources[edges.src].tolist(), one.numbers[target][edges.dst].tolist()
            found += list(zip(*ends, edges.weight.tolist(), strict=True))
        assert sorted(found) == sorted(given[r])
    for rank, one in enumerate(shards):
        for kind, halo in enumerate(halos[rank]):
            assert not set(halo.tolist()) & set(one.numbers[kind].tolist()) and len(set(halo.tolist())) == len(halo)
            assert one.halos[kind].sends[rank] == one.halos[kind].takes[rank] == 0
            assert [other.halos[kind].sends[rank] for other in shards] == one.halos[kind].takes
    assert ranks == shards[0].ranks


def far(shards: list[Shard], one: Shard, kind: int) -> torch.Tensor:
    """The numbers of the vertices whose rows a rank takes, by what the others send."""
    parts = []
    for other in shards:
        sends = other.halos[kind].sends
        begin = sum(sends[: one.rank])
        parts.append(other.numbers[kind][other.halos[kind].places[begin : begin + sends[one.rank]]])
    return torch.cat(parts)


def edges_in(data: Any) -> list[tuple[int, int, float]]:
    return list(zip(*data.edge_index.tolist(), data.edge_weight.tolist(), strict=True))


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("owners", [dealt, owners_of])
def test_shards_are_the_graph(ranks: int, owners: Any) -> None:
    data = community(0, 60)
    graph = whole_graph(data, PLAIN)
    shards = list(shards_of(graph, owners(graph, ranks), ranks))
    assert len(shards) == ranks
    check(graph, shards, [edges_in(data)])
    for one in shards:
        assert set(one.rows[0]) == {"x", "y", "id", "train_mask"}
        for name, value in one.rows[0].items():
            assert torch.equal(value, data[name][one.numbers[0]])
    if owners is dealt and ranks > 1:
        assert sum(len(far(shards, one, 0)) for one in shards) > 0


def test_metis_cuts_few_edges() -> None:
    data = community(1, 100)
    graph = whole_graph(data, PLAIN)
    [owners] = owners_of(graph, 2)
    src, dst = data.edge_index.numpy()
    assert (owners[src] != owners[dst]).sum() <= 12
    assert abs(int((owners == 0).sum()) - int((owners == 1).sum())) < 20
    assert set(owners[-5:].tolist()) == {0, 1}, "vertices without neighbours are dealt"


def test_few_vertices_are_dealt() -> None:
    graph = whole_graph(community(1, 3), PLAIN)
    assert owners_of(graph, 4)[0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]


def kinds_graph() -> HeteroData:
    rng = torch.Generator().manual_seed(1)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(40, 3, generator=rng), torch.randn(20, 2, generator=rng)
    data["user"].id = np.array([f"u{number}" for number in range(40)], object)
    pairs = torch.stack([torch.randint(0, 40, (150,), generator=rng), torch.randint(0, 20, (150,), generator=rng)])
    for ends, index in ((("user", "buys", "item"), pairs), (("item", "rev_buys", "user"), pairs.flip(0))):
        data[ends].edge_index, data[ends].edge_weight = index, torch.rand(150, generator=rng)
    return data


def test_kinds_have_halos_of_their_own(tmp_path: Path) -> None:
    data = kinds_graph()
    graph = whole_graph(data, KINDS)
    shards = list(shards_of(graph, dealt(graph, 3), 3))
    check(graph, shards, [edges_in(data[ends]) for ends in (("user", "buys", "item"), ("item", "rev_buys", "user"))])
    assert shards[1].names == [[f"u{number}" for number in range(1, 40, 3)], None]
    assert shards[2].kinds == ("user", "item") and shards[2].sources == [0, 1]
    for one in shards:
        one.save(tmp_path / str(one.rank))
        back = Shard.load(tmp_path / str(one.rank))
        assert (back.rank, back.ranks, back.kinds, back.sources, back.names) == (
            one.rank, one.ranks, one.kinds, one.sources, one.names
        )  # fmt: skip
        for mine, found in zip(one.edges + one.halos, back.edges + back.halos, strict=True):
            assert all(
                torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(mine, found, strict=True)
            )
        assert all(torch.equal(a, b) for a, b in zip(one.numbers, back.numbers, strict=True))
        for mine, found in zip(one.rows, back.rows, strict=True):
            assert mine.keys() == found.keys() and all(torch.equal(mine[name], found[name]) for name in mine)


def test_edges_of_types_are_relations() -> None:
    typed = kinds_model(
        [hetero({0: sage(3, 3, 2), 1: sage(3, 3, 2)})], ("",), {"": 3}, (relation("", "a", ""), relation("", "b", ""))
    )
    data = community(2, 20)
    data.edge_type = torch.arange(data.edge_index.shape[1]) % 2
    graph = whole_graph(data, typed)
    every = edges_in(data)
    check(graph, list(shards_of(graph, dealt(graph, 2), 2)), [every[0::2], every[1::2]])


def test_graphs_that_do_not_fit_the_model() -> None:
    data, kinds = community(0, 5), kinds_graph()
    with pytest.raises(InputError, match=r"^data: the model has no kinds of vertices; expected Data, got HeteroData"):
        whole_graph(kinds, PLAIN)
    with pytest.raises(InputError, match=r"^data: the model has kinds of vertices, user, item; expected HeteroData"):
        whole_graph(data, KINDS)
    data.edge_index[0, 3] = 99
    with pytest.raises(ModuleInputError, match=r"^data\.edge_index: the source 99 is no vertex; there are 15"):
        whole_graph(data, PLAIN)
    of_categories = make_model(0, [gine(3, 2)]).model_copy(update={"edge_categories": [0] * (EDGE_WIDTH - 1) + [5]})
    data.edge_index[0, 3], data.edge_attr = 1, torch.full((data.num_edges, EDGE_WIDTH), 4.0)
    whole_graph(data, of_categories)
    data.edge_attr[7, -1] = 5.0
    with pytest.raises(
        ModuleInputError, match=rf"^data\.edge_attr: got 5 in column {EDGE_WIDTH - 1}, expected a whole"
    ):
        whole_graph(data, of_categories)
    del kinds["item", "rev_buys", "user"]
    with pytest.raises(InputError, match=r"^data: no edges of \('item', 'rev_buys', 'user'\), which the model has"):
        whole_graph(kinds, KINDS)
    del kinds["item"]
    with pytest.raises(InputError, match=r"^data: no kind 'item', which the model has; there is user"):
        whole_graph(kinds, KINDS)
