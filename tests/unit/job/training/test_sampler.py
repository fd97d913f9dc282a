"""`freshet.NeighborSampler` behind PyTorch Geometric's loaders: batches from which models compute the same rows."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader, NodeLoader
from torch_geometric.nn import GATConv, GraphConv, GraphSAGE, HeteroConv, SAGEConv
from torch_geometric.sampler import NodeSamplerInput

import freshet
from freshet import InputError


def graph(seed: int = 0, vertices: int = 80, edges: int = 400) -> Data:
    """A graph with parallel edges, loops, a hub and vertices without in-edges, that has all values of edges."""
    rng = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, vertices - 10, (2, edges), generator=rng)
    edge_index[1, :60] = 5
    return Data(
        x=torch.randn(vertices, 6, generator=rng),
        edge_index=edge_index,
        edge_weight=torch.rand(edges, generator=rng),
        edge_attr=torch.randn(edges, 3, generator=rng),
        edge_type=torch.randint(0, 4, (edges,), generator=rng),
        y=torch.arange(vertices),
        id=torch.arange(vertices) * 10,
        positions={"a": 1},
        epoch=7,
    )


def hetero(seed: int = 0) -> HeteroData:
    rng = torch.Generator().manual_seed(seed)
    data = HeteroData()
    data["user"].x, data["item"].x = torch.randn(40, 5, generator=rng), torch.randn(30, 4, generator=rng)
    for src, name, dst in (("user", "buys", "item"), ("item", "rev_buys", "user"), ("user", "knows", "user")):
        ends = [torch.randint(0, len(data[kind].x), (150,), generator=rng) for kind in (src, dst)]
        data[src, name, dst].edge_index = torch.stack(ends)
        data[src, name, dst].edge_weight = torch.rand(150, generator=rng)
    return data


def batches(data: Any, fanouts: Any, seeds: Any, size: int, seed: int | None = 1, **options: Any) -> list[Any]:
    sampler = freshet.NeighborSampler(data, fanouts, seed=seed)
    found = list(NodeLoader(data, node_sampler=sampler, input_nodes=seeds, batch_size=size, **options))
    assert found
    return found


def test_a_batch_has_the_values_of_its_vertices_and_edges() -> None:
    data = graph()
    for batch in batches(data, [4, 3], None, 16):
        assert batch.batch_size == 16 and torch.equal(batch.n_id[:16], batch.input_id)
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        for name in ("edge_weight", "edge_attr", "edge_type"):
            assert torch.equal(batch[name], data[name][batch.e_id])
        for name in ("x", "y", "id"):
            assert torch.equal(batch[name], data[name][batch.n_id])
        assert (batch.positions, batch.epoch) == ({"a": 1}, 7)
        degrees = torch.bincount(data.edge_index[1], minlength=80)[batch.input_id]
        taken = torch.bincount(batch.edge_index[1], minlength=16)[:16]
        assert torch.equal(taken, degrees.clamp(max=4))


def test_rows_of_whole_neighbourhoods_are_those_of_the_whole_graph() -> None:
    data = graph()
    torch.manual_seed(0)
    sage = GraphSAGE(6, 8, num_layers=3, out_channels=4).double().eval()
    weighted = GraphConv(6, 4).double()
    attention = GATConv(6, 4, edge_dim=3, add_self_loops=False).double()

    def rows(part: Data) -> Tensor:
        x, attr = part.x.double(), part.edge_attr.double()
        once = weighted(x, part.edge_index, part.edge_weight.double())
        return torch.cat([sage(x, part.edge_index), once, attention(x, part.edge_index, attr)], 1)

    expected = rows(data)
    for batch in batches(data, [-1, -1, -1], torch.randperm(80)[:48], 16):
        torch.testing.assert_close(rows(batch)[:16], expected[batch.n_id[:16]], rtol=1e-12, atol=1e-12)


def test_kinds_have_the_rows_of_the_whole_graph_too() -> None:
    data = hetero()
    torch.manual_seed(0)
    layers = [
        HeteroConv({one: SAGEConv((-1, -1), 4) for one in data.edge_types}).double(),
        HeteroConv({one: SAGEConv((-1, -1), 3) for one in data.edge_types}).double(),
    ]

    def rows(part: HeteroData) -> Tensor:
        x = {kind: one.double() for kind, one in part.x_dict.items()}
        for layer in layers:
            x = layer(x, part.edge_index_dict)
        return x["item"]

    with torch.no_grad():
        expected = rows(data)
        for batch in batches(data, [-1, -1], ("item", torch.arange(5, 25)), 10):
            assert batch["item"].batch_size == 10
            torch.testing.assert_close(rows(batch)[:10], expected[batch["item"].n_id[:10]], rtol=1e-12, atol=1e-12)


def test_each_relation_has_its_fanout() -> None:
    data = hetero()
    fanouts = {
        ("user", "buys", "item"): [2, 1],
        ("item", "rev_buys", "user"): [0, 3],
        ("user", "knows", "user"): [1, -1],
    }
    for batch in batches(data, fanouts, ("item", None), 15):
        for one in data.edge_types:
            part = batch[one]
            ends = torch.stack([batch[one[0]].n_id[part.edge_index[0]], batch[one[2]].n_id[part.edge_index[1]]])
            assert torch.equal(ends, data[one].edge_index[:, part.e_id])
            assert torch.equal(part.edge_weight, data[one].edge_weight[part.e_id])
            assert len(part.num_sampled_edges) == 2
        taken = torch.bincount(batch["user", "buys", "item"].edge_index[1], minlength=15)[:15]
        degrees = torch.bincount(data["user", "buys", "item"].edge_index[1], minlength=30)
        assert torch.equal(taken, degrees[batch["item"].n_id[:15]].clamp(max=2))
        assert batch["item", "rev_buys", "user"].num_sampled_edges[0] == 0
        assert batch["user"].num_sampled_nodes[0] == 0 and batch["item"].num_sampled_nodes[0] == 15


def same(one: list[Any], other: list[Any]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(torch.equal(a.n_id, b.n_id) and torch.equal(a.e_id, b.e_id) for a, b in pairs)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_a_seed_gives_the_same_batches_with_any_number_of_workers(context: str) -> None:
    data = graph()
    alone = batches(data, [3, 3], None, 20)
    apart = batches(data, [3, 3], None, 20, num_workers=2, multiprocessing_context=context)
    assert same(alone, apart) and same(alone, batches(data, [3, 3], None, 20))
    assert not same(alone, batches(data, [3, 3], None, 20, seed=2))


def test_without_a_seed_samples_follow_torch() -> None:
    data = graph()
    torch.manual_seed(5)
    first, second = (batches(data, [3, 3], None, 20, seed=None) for _ in range(2))
    torch.manual_seed(5)
    assert same(first, batches(data, [3, 3], None, 20, seed=None)) and not same(first, second)


def test_a_copy_samples_alike() -> None:
    sampler = freshet.NeighborSampler(graph(), [3], seed=1)
    given = NodeSamplerInput(None, torch.arange(9))
    first = sampler.sample_from_nodes(given)
    assert torch.equal(first.edge, copy.deepcopy(sampler).sample_from_nodes(given).edge)
    assert torch.equal(first.edge, sampler.sample_from_nodes(given).edge)


def test_both_ends_of_edges_have_neighbourhoods() -> None:
    data = graph()
    sampler = freshet.NeighborSampler(data, [2], seed=1)
    found = LinkNeighborLoader(
        data, [2], neighbor_sampler=sampler, edge_label_index=data.edge_index, neg_sampling_ratio=1, batch_size=50
    )
    batch = next(iter(found))
    pairs = batch.n_id[batch.edge_label_index]
    assert pairs.shape == (2, 100) and torch.equal(pairs[:, :50], data.edge_index[:, batch.input_id])
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    kinds = hetero()
    one = ("user", "buys", "item")
    sampler = freshet.NeighborSampler(kinds, [2], seed=1)
    found = LinkNeighborLoader(kinds, [2], neighbor_sampler=sampler, edge_label_index=one, batch_size=50)
    batch = next(iter(found))
    user, item = batch[one].edge_label_index
    ends = torch.stack([batch["user"].n_id[user], batch["item"].n_id[item]])
    assert torch.equal(ends, kinds[one].edge_index[:, batch[one].input_id])


def test_what_can_not_be_sampled_is_refused() -> None:
    data, kinds = graph(), hetero()
    for given in ([], [-2], [1.5], 3, [True], "12"):
        with pytest.raises(InputError, match=r"^num_neighbors: expected a list of integers of hops"):
            freshet.NeighborSampler(data, given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"^num_neighbors: no edge type \('a', 'b', 'c'\); the data has \('user',"):
        freshet.NeighborSampler(kinds, {("a", "b", "c"): [1]})
    with pytest.raises(InputError, match=r"^num_neighbors: edge type \('item', 'rev_buys', 'user'\) is missing"):
        freshet.NeighborSampler(kinds, {("user", "buys", "item"): [1]})
    uneven: dict[Any, list[int]] = {one: [1] * (1 + k) for k, one in enumerate(kinds.edge_types)}
    with pytest.raises(InputError, match=r"^num_neighbors: expected as many hops for each edge type, got \[1, 2, 3\]"):
        freshet.NeighborSampler(kinds, uneven)
    with pytest.raises(InputError, match=r"^data\.edge_index: expected integers of the shape \(2, edges\), got none"):
        freshet.NeighborSampler(Data(x=data.x), [1])
    with pytest.raises(InputError, match=r"got \(2, 3\) torch\.float32"):
        freshet.NeighborSampler(Data(x=data.x, edge_index=torch.zeros(2, 3)), [1])
    wrong = torch.tensor([[0, 1], [1, 80]])
    with pytest.raises(InputError, match=r"^data\.edge_index: column 1: expected a target from 0 to 79, got 80"):
        freshet.NeighborSampler(Data(x=data.x, edge_index=wrong), [1])
    kinds["user", "buys", "item"].edge_index[0, 3] = -1
    with pytest.raises(InputError, match=r"^data\['user', 'buys', 'item'\]\.edge_index: column 3: expected a source"):
        freshet.NeighborSampler(kinds, [1])
    with pytest.raises(InputError, match=r"^data: expected Data or HeteroData of PyTorch Geometric, got list"):
        freshet.NeighborSampler([1], [1])  # type: ignore[arg-type]
    sampler = freshet.NeighborSampler(data, [1])
    with pytest.raises(InputError, match=r"^input_time: samples have no times"):
        sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(2), torch.arange(2)))


def test_vertices_alone_are_batches() -> None:
    data = Data(x=torch.zeros(5, 1), edge_index=torch.empty(2, 0, dtype=torch.int64))
    found = batches(data, [2, 2], torch.tensor([4, 1, 4]), 2)
    assert [one.n_id.tolist() for one in found] == [[4, 1], [4]] and found[0].edge_index.shape == (2, 0)
    assert np.asarray(found[0].num_sampled_nodes).tolist() == [2, 0, 0]
