"""The systems of scripts/bench/peers.py give exact rows where they say so, on a stream with deletions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from freshet.gnn.model import Model  # noqa: E402
from freshet.gnn.pyg.export import export_model  # noqa: E402
from scripts.bench.arxiv_stream import WIDTH  # noqa: E402
from scripts.bench.layer_work import Watch  # noqa: E402
from scripts.bench.papers import ripple_pp  # noqa: E402
from scripts.bench.papers.beside import Beside, export_of, measured  # noqa: E402
from scripts.bench.papers.neutronrt import KINDS, full_pass  # noqa: E402
from scripts.bench.peer_graph import (  # noqa: E402
    ADD,
    ADD_VERTEX,
    DELETE,
    DELETE_VERTEX,
    FEATURES,
    LINKBENCH,
    Graph,
    Workload,
)
from scripts.bench.peer_systems import Affected, Net, OfFreshet, TypedNet, WeightedNet, sage_net  # noqa: E402
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
    "types": lambda a, b: pyg.RGCNConv(a, b, 3),
    "vertices": lambda a, b: pyg.SAGEConv(a, b, aggr="max"),
}
NETS = {"weights": WeightedNet, "types": TypedNet}


@pytest.mark.parametrize("name", MODELS)
def test_models_of_papers_are_exact_beside_a_recomputation(name: str) -> None:
    net, more = (
        NETS.get(name, Net)(MODELS[name], (12, 8, 5, 3)).eval(),
        {"mix": LINKBENCH if name == "vertices" else ()},
    )
    more |= {"weights": name == "weights", "types": 3 * (name == "types"), "only_edges": name == "gat"}
    workload = Workload(VERTICES, EDGES, EVENTS, 12, **more)
    with torch.no_grad():
        found = measured(workload, net, (100, 10), 0.01)
        recomputed = Stream(Affected(workload, net), EVENTS)
        for size in (100, 1):
            recomputed.epoch(size)
        exact = Stream(Affected(workload, net), EVENTS)
        exact.epoch(101)
    assert found.error <= TOLERANCE
    assert 0 < found.affected[10] <= found.affected[100] <= 1
    there = recomputed.system.graph.alive  # type: ignore[attr-defined]
    assert abs(recomputed.system.rows() - exact.system.rows())[there].max() <= TOLERANCE
    assert there.all() == (name != "vertices")


def test_a_stream_in_which_vertices_come_and_go_fits_the_graph() -> None:
    workload = Workload(VERTICES, EDGES, EVENTS, 12, mix=LINKBENCH)
    alive, edges = set(np.flatnonzero(workload.alive).tolist()), set(range(workload.m0))
    ends = list(zip(workload.src.tolist(), workload.dst.tolist(), strict=True))
    assert all(alive.issuperset(ends[one]) for one in edges)
    graph, counts = Graph(workload), np.zeros(5)
    for number, (op, arg) in enumerate(zip(workload.op.tolist(), workload.arg.tolist(), strict=True)):
        counts[op] += 1
        of = edges if op in (ADD, DELETE) else alive
        assert (arg in of) == (op not in (ADD, ADD_VERTEX))
        if op in (ADD, ADD_VERTEX):
            of.add(arg)
            assert op == ADD_VERTEX or alive.issuperset(ends[arg])
        elif op != FEATURES:
            of.remove(arg)
            edges -= {one for one in edges if arg in ends[one]} if op == DELETE_VERTEX else set()
        if number % 50 == 49:
            graph.apply(number - 49, number + 1)
            assert set(np.flatnonzero(graph.present).tolist()) == edges
            assert set(np.flatnonzero(graph.alive).tolist()) == alive
    assert abs(counts / EVENTS - LINKBENCH).max() < 0.05


@pytest.mark.parametrize("name", ["gcn", "rgcn"])
def test_messages_of_an_epoch_are_some_of_a_recomputations(name: str) -> None:
    kind = KINDS[name]
    net = kind.net()
    workload = Workload(VERTICES, EDGES, EVENTS, types=kind.types, only_edges=True)
    engine = OfFreshet(workload, export_of(net, workload)).engine
    engine.batch(0, 10)
    watch = Watch(engine.layers)
    engine.batch(10, 12)
    watch.end()
    with torch.no_grad():
        taken, rows = full_pass(net, workload, 10)
        made, full = (Affected(workload, net, rows=one).x for one in ([], rows))
    assert taken["cpu_us"] > 0
    assert len(made) == len(full) == 3
    assert all(abs(one - other).max() <= TOLERANCE for one, other in zip(made, full, strict=True))
    graph = Graph(workload)
    graph.apply(0, 10)
    for work, reached in zip(watch.works, graph.affected(graph.apply(10, 12), 2), strict=True):
        assert 0 < work.messages <= work.khop_messages
        if name == "rgcn":  # whose sources do not change with their degrees
            assert (work.khop, work.khop_messages) == (len(reached), len(graph.in_edges(reached)))


def test_a_graph_that_does_not_fit_in_memory_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As the model that takes most asks for it."""
    shape = ripple_pp.Shape(VERTICES, EDGES, 12, 3)
    folders = [tmp_path / name for name in ("GC-S", "GA-A")]
    for folder in folders:
        export_model(Net(ripple_pp.MODELS[folder.name], (12, 8, 3)).eval(), folder, features=12)
    few, needs = (ripple_pp.needed(shape, folder) for folder in folders)
    assert few < needs
    for there in (needs, needs - 1):
        monkeypatch.setattr(ripple_pp, "available_memory", lambda there=there: there)
        if there == needs:
            ripple_pp.check_memory("reddit", shape, folders)
        else:
            with pytest.raises(SystemExit, match=r"9,000 edges .* give a larger --scale"):
                ripple_pp.check_memory("reddit", shape, folders)


def test_figures_are_those_of_the_processor() -> None:
    found = {batch: {"events_per_s": 1.0, "cpu_us": 8.0, "p50_ms": 1e6} for batch in ripple_pp.BATCHES}
    one = Beside(found, {1000: {**found[1000], "cpu_us": 240.0}}, {1000: 0.5}, 0.0)
    table = ripple_pp.table_of("arxiv", ripple_pp.SHAPES["arxiv"], {"GC-S": one})
    cells = [next(iter(column.cells)) for column in table.columns]
    assert cells[2:7] == ["125.0 K"] * 4 + ["8 / 0.8 / 0.08 / 0.008 ms"]
    assert cells[8:10] == ["4.2 K", "30 x"]
