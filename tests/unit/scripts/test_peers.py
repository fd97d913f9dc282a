"""The systems of scripts/bench/peers.py give exact rows where they say so, on a stream with deletions."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from freshet.gnn.model import Model  # noqa: E402
from freshet.gnn.pyg.export import export_model  # noqa: E402
from scripts.bench.arxiv_stream import WIDTH  # noqa: E402
from scripts.bench.papers.beside import measured  # noqa: E402
from scripts.bench.peer_graph import Workload  # noqa: E402
from scripts.bench.peer_systems import Affected, Net, WeightedNet, sage_net  # noqa: E402
from scripts.bench.peers import ENTRIES, TOLERANCE, Stream, errors  # noqa: E402

VERTICES, EDGES, EVENTS = 300, 9_000, 900


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> tuple[Workload, Net, Model]:
    torch.manual_seed(3)
    net = sage_net().eval()
    model = export_model(net, tmp_path_factory.mktemp("model"), features=WIDTH)
    assert isinstance(model, Model)
    return Workload(VERTICES, EDGES, EVENTS), net, model


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda one: one.name)
def test_it_is_exact_if_it_says_so(entry: Any, given: tuple[Workload, Net, Model]) -> None:
    workload, net, model = given
    with torch.no_grad():
        try:
            stream = Stream(entry.make(workload, net, model), EVENTS)
        except ImportError as error:
            pytest.skip(str(error))
        for size in (300, 1, 99, 400, 7):
            stream.epoch(size)
        found = errors(stream.system, workload, net, stream.at)
    assert (found["max_error"] <= TOLERANCE) == entry.is_exact
    assert (found["mean_error"] <= TOLERANCE) == entry.is_exact
    with pytest.raises(EOFError):
        stream.epoch(EVENTS)


MODELS: dict[str, Any] = {
    "gcn, max": lambda a, b: pyg.GCNConv(a, b, normalize=False, add_self_loops=False, aggr="max"),
    "gat": lambda a, b: pyg.GATConv(a, b, add_self_loops=False),
    "weights": lambda a, b: pyg.GraphConv(a, b),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_papers_are_exact_beside_a_recomputation(name: str) -> None:
    is_weighted = name == "weights"
    net = (WeightedNet if is_weighted else Net)(MODELS[name], (12, 8, 5, 3)).eval()
    workload = Workload(VERTICES, EDGES, EVENTS, 12, weights=is_weighted, only_edges=name == "gat")
    with torch.no_grad():
        found = measured(workload, net, (100, 10), 0.01)
        recomputed = Stream(Affected(workload, net), EVENTS)
        for size in (100, 1):
            recomputed.epoch(size)
        exact = Stream(Affected(workload, net), EVENTS)
        exact.epoch(101)
    assert found.error <= TOLERANCE
    assert 0 < found.affected[10] <= found.affected[100] <= 1
    assert abs(recomputed.system.rows() - exact.system.rows()).max() <= TOLERANCE
