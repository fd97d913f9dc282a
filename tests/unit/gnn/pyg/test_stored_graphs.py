"""Snapshots with kinds as the graph of statistics: models are those of the same graph as a HeteroData."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.gnn.pyg.kinds.looking_up import StoredGraph  # noqa: E402
from freshet.operators.snapshot.arrays import read_arrays  # noqa: E402
from freshet.operators.snapshot.kind_arrays import read_kinds, widths_by_kind  # noqa: E402
from freshet.operators.snapshot.reader import SnapshotError  # noqa: E402
from freshet.operators.snapshot.writer import write_snapshot  # noqa: E402
from tests.support.graphs import hetero_modules as of  # noqa: E402
from tests.support.graphs.hetero_modules import CITES, METADATA, WIDTHS, WRITES, WRITTEN  # noqa: E402
from tests.unit.gnn.pyg.test_kinds_export import sized  # noqa: E402
from tests.unit.gnn.pyg.test_kinds_statistics import FORMS, data_of  # noqa: E402

IN_KINDS: dict[str, Any] = {"metadata": METADATA}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def stored(folder: Path) -> StoredGraph:
    return StoredGraph(lambda: tuple(read_arrays(folder)), partial(read_kinds, folder))


def write(folder: Path, data: Any, **ids: Sequence[Any]) -> StoredGraph:
    """Write a HeteroData as a snapshot; its ids are numbers of rows, in any order, or those that are given."""
    rng = np.random.default_rng(1)
    named = {kind: list(ids.get(kind, range(data[kind].num_nodes))) for kind in data.node_types}
    rows = [(kind, k) for kind in data.node_types for k in range(data[kind].num_nodes)]
    rng.shuffle(rows)
    rows = [(str(kind), int(k)) for kind, k in rows]
    src, dst, types, weight, attr = list[Any](), list[Any](), list[str](), list[float](), list[Any]()
    for source, name, target in data.edge_types:
        edges = data[source, name, target]
        for number, (a, b) in enumerate(edges.edge_index.T.tolist()):
            src, dst, types = [*src, named[source][a]], [*dst, named[target][b]], [*types, name]
            weight.append(float(edges.edge_weight[number]) if "edge_weight" in edges else 1.0)
            attr.append(edges.edge_attr[number].tolist() if "edge_attr" in edges else None)
    x = [data[kind].x[k].numpy() if "x" in data[kind] else np.empty(0, np.float32) for kind, k in rows]
    vertices = [named[kind][k] for kind, k in rows]
    write_snapshot(folder, vertices, x, src, dst, np.array(weight), types, attr=attr, kinds=[kind for kind, _ in rows])
    return stored(folder)


def same(module: Any, folder: Path, data: Any, given: Any, **options: Any) -> None:
    found = [export_model(module, folder / str(k), stats_from=one, **options) for k, one in enumerate((data, given))]
    assert found[0].is_approximate
    for name, weights in found[0].weights.items():
        np.testing.assert_allclose(found[1].weights[name], weights, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_a_snapshot_is_the_same_graph_as_a_heterodata(form: str, tmp_path: Path) -> None:
    data = data_of([CITES, WRITES], WIDTHS)
    same(sized(FORMS[form]()), tmp_path, data, write(tmp_path / "S", data))
    assert widths_by_kind(tmp_path / "S") == WIDTHS


class Weighted(nn.Module):
    """Reads weights, and attributes of two widths, of relations and of a mirror."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = pyg.HeteroConv(
            {
                CITES: pyg.GATConv(5, 4, edge_dim=3, add_self_loops=False),
                WRITES: pyg.GATConv((3, 5), 4, edge_dim=2, add_self_loops=False),
                WRITTEN: pyg.GATConv((5, 3), 4, edge_dim=2, add_self_loops=False),
            }
        )
        self.norm = nn.ModuleDict({"paper": pyg.GraphNorm(4), "author": pyg.GraphNorm(4)})
        self.last = pyg.HeteroConv({relation: pyg.GraphConv((4, 4), 3) for relation in METADATA[1]})

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any, edge_attr_dict: Any) -> Any:
        x_dict = self.convs(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)
        x_dict = {kind: self.norm[kind](x) for kind, x in x_dict.items()}
        return self.last(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)


def test_attributes_of_a_mirror_are_those_of_the_edges_that_it_follows(tmp_path: Path) -> None:
    data, some = data_of([CITES, WRITES], WIDTHS), torch.Generator().manual_seed(1)
    for relation, width in ((CITES, 3), (WRITES, 2)):
        edges = data[relation]
        edges.edge_attr = torch.randn(edges.num_edges, width, generator=some)
        edges.edge_weight = torch.rand(edges.num_edges, generator=some)
    module, both = of.randomised(Weighted()), data.clone()
    both[WRITTEN].edge_index = data[WRITES].edge_index.flip(0)
    both[WRITTEN].edge_attr, both[WRITTEN].edge_weight = data[WRITES].edge_attr, data[WRITES].edge_weight
    same(module, tmp_path / "a", both, data)
    same(module, tmp_path / "b", both, write(tmp_path / "S", data))


class ById(of.IdsAsFeatures):
    """Rows of authors that are there, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = pyg.GraphNorm(4)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return self.norm(super().forward(x_dict, edge_index_dict))


class OfAll(of.AllRows):
    """Rows of all vertices, and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = pyg.GraphNorm(4)

    def forward(self, edge_index_dict: Any) -> Any:
        return self.norm(super().forward(edge_index_dict)["author"])


def test_learned_rows_are_those_of_the_ids_of_the_snapshot(tmp_path: Path) -> None:
    data = data_of([CITES, WRITES], {"paper": 5, "author": 1})
    some = list(range(1, of.IDS, 2))[: data["author"].num_nodes]
    del data["author"].x
    data["author"].num_nodes, data["author"].node_id = len(some), torch.tensor(some)
    ends = data[WRITES].edge_index
    data[WRITES].edge_index = torch.unique(torch.stack([ends[0] % len(some), ends[1]]), dim=1)
    same(of.randomised(ById()), tmp_path, data, write(tmp_path / "S", data, author=some), **IN_KINDS)
    strings = write(tmp_path / "T", data, author=[str(one) for one in some], paper=[f"p{k}" for k in range(30)])
    with pytest.raises(ExportError, match="has no vertices of kind 'author'"):
        export_model(of.randomised(ById()), tmp_path / "M", stats_from=strings, **IN_KINDS)
    del data["author"].node_id
    del data["paper"].x
    for kind in WIDTHS:
        data[kind].num_nodes = of.IDS
    for relation in (CITES, WRITES):
        data[relation].edge_index = torch.unique(data[relation].edge_index % of.IDS, dim=1)
    every = write(tmp_path / "U", data)
    same(of.randomised(OfAll()), tmp_path / "of all", data, every, **IN_KINDS)
    fewer = write(tmp_path / "V", data, author=range(1, of.IDS + 1))
    with pytest.raises(ExportError, match=f"ids of kind 'author' are not the numbers of its {of.IDS} learned rows"):
        export_model(of.randomised(OfAll()), tmp_path / "M", stats_from=fewer, **IN_KINDS)


def test_types_within_a_kind(tmp_path: Path) -> None:
    class Between(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm, self.second = pyg.RGCNConv(4, 4, 2), pyg.GraphNorm(4), pyg.RGCNConv(4, 4, 2)

        def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
            return self.second(self.norm(self.first(x, edge_index, edge_type)), edge_index, edge_type)

    x, ends, types = torch.randn(9, 4), torch.randint(0, 9, (2, 20)), torch.randint(0, 2, (20,))
    every = torch.unique(torch.cat([ends, types[None]]), dim=1)
    ends, types = every[:2], every[2]
    names = [["a", "b"][k] for k in types.tolist()]
    ids = [f"v{k}" for k in range(9)]
    src, dst = ([ids[k] for k in one] for one in ends.tolist())
    write_snapshot(tmp_path / "S", ids, x.numpy(), src, dst, edge_type=names)
    module = of.randomised(Between())
    same(module, tmp_path, (x, ends, types), stored(tmp_path / "S"), edge_types=["a", "b"])


def test_what_does_not_fit_the_module_is_refused(tmp_path: Path) -> None:
    data = data_of([CITES, WRITES], WIDTHS)
    given = write(tmp_path / "S", data)
    with pytest.raises(SnapshotError, match="has kind, but the model has no kinds"):
        export_model(pyg.GCN(5, 4, 2, norm="GraphNorm"), tmp_path / "M", stats_from=given)
    other = pyg.HANConv({"paper": 5}, 6, (["paper"], [CITES]), 2)
    with pytest.raises(SnapshotError, match="has kind, but the model has no kinds"):
        export_model(of.randomised(other), tmp_path / "M", stats_from=given)
    other = pyg.HANConv({**WIDTHS, "venue": 2}, 6, (["paper", "venue"], [("venue", "has", "paper")]), 2)
    with pytest.raises(SnapshotError, match="kind: expected one of the model's kinds paper, venue"):
        export_model(of.randomised(other), tmp_path / "M", stats_from=given)
    with pytest.raises(SnapshotError, match="expected a snapshot folder"):
        export_model(sized(FORMS["han"]()), tmp_path / "M", stats_from=stored(tmp_path / "none"))
    assert not (tmp_path / "M").exists()
