"""A feature store of PyTorch Geometric over a server that runs: indexing, loaders, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from torch_geometric.data import Data, TensorAttr  # noqa: E402
from torch_geometric.loader import NodeLoader  # noqa: E402
from torch_geometric.sampler import BaseSampler, NodeSamplerInput, SamplerOutput  # noqa: E402

from freshet import EmbeddingClient, EmbeddingFeatureStore  # noqa: E402
from freshet.gnn.pyg.feature_store import MissingVertexError  # noqa: E402
from tests.support.serving.hand_job import WIDTH  # noqa: E402
from tests.support.serving.served import Served, key  # noqa: E402


@pytest.fixture(scope="module", params=["int", "string"])
def served(request, tmp_path_factory) -> Iterator[Served]:
    """Vertices 2, 3, 4 with rows of 1, -2, 3."""
    one = Served(tmp_path_factory.mktemp("served") / "O", request.param)
    yield one
    one.close()


@pytest.fixture(params=["flight", "mapped"])
def client(served, request) -> Iterator[EmbeddingClient]:
    with served.client(request.param, timeout=120) as found:
        yield found


def nodes(served: Served) -> list[int | str]:
    """The vertices of nodes 0, 1, 2."""
    return [key(served, number) for number in (4, 2, 3)]


def row(value: float) -> list[float]:
    return [value] * WIDTH


def test_indexing(served, client):
    store = EmbeddingFeatureStore(client, nodes(served), group_name="paper")
    assert store["paper", "x", torch.tensor([2, 0, 2])].tolist() == [row(-2), row(3), row(-2)]
    assert store["paper"].x[np.array([1])].tolist() == [row(1)]
    assert store["paper", "x", 0:2].tolist() == [row(3), row(1)]
    assert store["paper", "x", torch.tensor([False, True, True])].tolist() == [row(1), row(-2)]
    for one in (1, np.int64(1), torch.tensor(1)):
        assert store["paper", "x", one].tolist() == row(1)
    assert store["paper", "x"]().tolist() == store["paper", "x", None].tolist() == [row(3), row(1), row(-2)]
    assert store.get_tensor("paper", "x", torch.tensor([], dtype=torch.long)).shape == (0, WIDTH)
    assert store.get_tensor_size("paper", "x") == (3, WIDTH)
    assert store.get_tensor_size("paper", "x", torch.tensor([1, 1])) == (2, WIDTH)
    assert store.get_all_tensor_attrs() == [TensorAttr("paper", "x")]
    assert store["paper", "x", 1].dtype == torch.float32


def test_ids_as_indices(served, client):
    if served.hand.kind == "string":
        pytest.skip("names are no indices")
    store = EmbeddingFeatureStore(client, missing=0.0)
    assert store.get_tensor_size(None, "x") == (5, WIDTH)
    assert store[None, "x", None].tolist() == [row(0), row(0), row(1), row(-2), row(3)]
    assert store[None, "x", torch.tensor([4, 2])].tolist() == [row(3), row(1)]


def test_more_than_embeddings(served, client):
    attrs = {"x": "embedding", "logits": "logits", "y": "class", "epoch": "epoch"}
    store = EmbeddingFeatureStore(client, nodes(served), attrs=attrs)
    assert store.get_tensor_size(None, "y") == (3,)
    assert store.get_tensor_size(None, "logits") == (3, 3)
    index = torch.tensor([1, 0])
    found = store.multi_get_tensor([TensorAttr(None, name, index) for name in attrs])
    expected = served.hand.plan.logits(np.array([row(1), row(3)], np.float32))
    assert np.array_equal(found[1], expected)
    assert found[2].tolist() == expected.argmax(1).tolist()
    assert found[3].dtype == torch.int64
    assert found[3].tolist() == [1, 1]


def test_very_many_at_once(served, client, monkeypatch):
    monkeypatch.setattr(EmbeddingClient, "ids_max", 1)
    store = EmbeddingFeatureStore(client, nodes(served))
    assert store[None, "x", torch.tensor([2, 0, 2])].tolist() == [row(-2), row(3), row(-2)]


def test_what_is_refused(served, client):
    gone = key(served, 99)
    store = EmbeddingFeatureStore(client, [*nodes(served), gone])
    with pytest.raises(MissingVertexError, match=f"1 vertices have no row now: {gone}; give missing"):
        store[None, "x", torch.tensor([0, 3])]
    patient = EmbeddingFeatureStore(client, [*nodes(served), gone], missing=float("nan"), attrs={"x": "embedding"})
    assert torch.isnan(patient[None, "x", torch.tensor([0, 3])]).tolist() == [[False] * WIDTH, [True] * WIDTH]
    for write in (
        lambda: store.put_tensor(torch.zeros(1, WIDTH), None, "x", torch.tensor([0])),
        lambda: store.remove_tensor(None, "x", None),
        lambda: store.update_tensor(torch.zeros(1, WIDTH), None, "x", torch.tensor([0])),
    ):
        with pytest.raises(NotImplementedError, match="send it events"):
            write()
    for group, name in (("paper", "x"), (None, "y")):
        with pytest.raises(KeyError, match=r"there is \(None, 'x'\)"):
            store.get_tensor(group, name, None)
    with pytest.raises(ValueError, match="expected embedding, epoch"):
        EmbeddingFeatureStore(client, attrs={"x": "features"})
    with pytest.raises(IndexError):
        store[None, "x", torch.tensor([4])]


class Neighbours(BaseSampler):
    """Of each node itself and the next one."""

    def sample_from_edges(self, *_: object, **__: object) -> None:
        raise NotImplementedError

    def sample_from_nodes(self, index: NodeSamplerInput, **_: object) -> SamplerOutput:
        seeds = index.node
        found = torch.unique(torch.cat([seeds, (seeds + 1) % 3]))
        node = torch.cat([seeds, found[~torch.isin(found, seeds)]])
        row = torch.tensor([(node == (one + 1) % 3).nonzero().item() for one in seeds])
        col = torch.arange(len(seeds))
        return SamplerOutput(node=node, row=row, col=col, edge=None, batch=None, metadata=(index.input_id, None))


def test_a_loader(served):
    """As PyG's loaders ask: the client is made in the process that reads."""
    make = partial(EmbeddingClient, f"127.0.0.1:{served.port}", timeout=120)
    store = EmbeddingFeatureStore(make, nodes(served), attrs={"x": "embedding", "epoch": "epoch"})
    loader = NodeLoader((store, None), Neighbours(), input_nodes=torch.arange(3), batch_size=2)
    expected = torch.tensor([row(3), row(1), row(-2)])
    batches = list(loader)
    assert [batch.batch_size for batch in batches] == [2, 1]
    for batch in batches:
        assert isinstance(batch, Data)
        assert torch.equal(batch.x, expected[batch.n_id])
        assert batch.epoch.tolist() == [1] * len(batch.n_id)
        assert batch.num_nodes == len(batch.n_id) > batch.batch_size - 1
    served.hand.apply(served.lookup.table.epoch + 1, ({2: 1.0, 3: -2.0}, []), ({4: 3.0}, []))
    served.until(2)
    assert {epoch for batch in loader for epoch in batch.epoch.tolist()} == {2}, "what is fresh is read"
    store.close()
