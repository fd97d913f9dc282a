"""What modules with kinds read of all vertices, frozen: on the graph of the export they give what PyG gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric.data import Data, HeteroData  # noqa: E402

from freshet.gnn.describe import describe_data  # noqa: E402
from freshet.gnn.kind_layers.compiling import compile_kinds  # noqa: E402
from freshet.gnn.kinds.model import KindsModel, load_any_model  # noqa: E402
from freshet.gnn.oracles import whole_kinds  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.kinds_graph import KindsGraph, RelationEdges  # noqa: E402
from freshet.schema import EdgeValues  # noqa: E402
from tests.support.graphs import hetero_modules as of  # noqa: E402
from tests.support.graphs.hetero_modules import CITES, METADATA, WIDTHS, WRITES, WRITTEN, hetero  # noqa: E402
from tests.unit.gnn.pyg.test_kinds_export import sized  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
SIZES = {"paper": 30, "author": 20, "venue": 6}


def data_of(relations: list[tuple[str, str, str]], widths: dict[str, int]) -> Any:
    data, some = HeteroData(), torch.Generator().manual_seed(2)
    for kind, width in widths.items():
        data[kind].x = 1 + torch.randn(SIZES[kind], width, generator=some)
    for source, name, target in relations:
        ends = [torch.randint(0, SIZES[kind], (50,), generator=some) for kind in (source, target)]
        data[source, name, target].edge_index = torch.unique(torch.stack(ends), dim=1)
    return data


class Normed(nn.Module):
    """Norms over all vertices of a kind between two layers; with `shared` one norm for all kinds."""

    def __init__(self, *, shared: bool = False, returned: str = "") -> None:
        super().__init__()
        self.first, self.second = hetero(of.sage), hetero(of.sage)
        self.by_kind = nn.ModuleDict({"paper": pyg.GraphNorm(4), "author": pyg.PairNorm(scale=2.0)})
        self.one, self.shared, self.returned = pyg.LayerNorm(4), shared, returned

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        x_dict = self.first(x_dict, edge_index_dict)
        x_dict = {kind: (self.one if self.shared else self.by_kind[kind])(x).relu() for kind, x in x_dict.items()}
        made = self.second(x_dict, edge_index_dict)
        return x_dict[self.returned] if self.returned else made


HEADS = {"heads": 3, "negative_slope": 0.1}
FORMS: dict[str, Callable[[], Any]] = {
    "norms by kind": Normed,
    "one norm for all kinds": lambda: Normed(shared=True),
    "han": lambda: pyg.HANConv(-1, 6, METADATA, **HEADS),
    "one han twice": lambda: of.Layers([hetero(of.sage), *[pyg.HANConv(4, 4, METADATA)] * 2]),
}


def on_its_graph(module: Any, folder: Path, data: Any, **options: Any) -> KindsModel:
    """Export a module, and compare its rows with those of the saved model on the graph of the export."""
    export_model(module, folder, stats_from=data, **options)
    model = cast(KindsModel, load_any_model(folder))
    edges = []
    for one in model.relations:
        src, dst = data[one.ends].edge_index.numpy()
        edges.append(RelationEdges(src, dst, EdgeValues.default(len(src))))
    graph = KindsGraph([data[kind].x.numpy() for kind in model.kinds], edges)
    rows = whole_kinds.forward(compile_kinds(model), graph)[-1]
    with torch.no_grad():
        out = module(data.x_dict, data.edge_index_dict)
    for kind in model.out:
        np.testing.assert_allclose(rows[list(model.kinds).index(kind)], out[kind].numpy(), rtol=1e-5, atol=1e-5)
    return model


@pytest.mark.parametrize("form", FORMS)
def test_rows_on_the_graph_of_the_export(form: str, tmp_path: Path) -> None:
    model = on_its_graph(sized(FORMS[form]()), tmp_path, data_of(METADATA[1], WIDTHS))
    assert model.is_approximate and describe_data(tmp_path)["approximate"]


def test_kinds_that_no_relation_of_a_han_reaches_are_not_returned(tmp_path: Path) -> None:
    relations = [CITES, WRITES, ("venue", "has", "paper")]
    widths = {**WIDTHS, "venue": 2}
    module = of.randomised(pyg.HANConv(widths, 6, (list(widths), relations), 2))
    model = on_its_graph(module, tmp_path, data_of(relations, widths))
    assert model.out == ["paper"]


def test_the_weight_of_a_relation_alone_is_one_so_that_no_graph_is_needed(tmp_path: Path) -> None:
    module = of.randomised(pyg.HANConv(WIDTHS, 6, METADATA, 2))
    model = export_model(module, tmp_path / "author", output="author")
    assert isinstance(model, KindsModel)
    assert not model.is_approximate
    with pytest.raises(ExportError, match="HANConv weighs the 2 relations into 'paper' by means over all its vertices"):
        export_model(module, tmp_path / "paper", output="paper")


def test_mirrors_are_found_where_the_graph_has_them_not(tmp_path: Path) -> None:
    module = of.randomised(pyg.HANConv(WIDTHS, 6, METADATA, 2))
    data, lacking = data_of(METADATA[1], WIDTHS), data_of(METADATA[1][:2], WIDTHS)
    data[WRITTEN].edge_index = lacking[WRITES].edge_index.flip(0)
    models = [export_model(module, tmp_path / str(i), stats_from=one) for i, one in enumerate((data, lacking))]
    assert models[0].sha256() == models[1].sha256()


def test_types_within_a_kind(tmp_path: Path) -> None:
    class Between(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first, self.norm, self.second = pyg.RGCNConv(width, 4, 3), pyg.GraphNorm(4), pyg.RGCNConv(4, 4, 3)

        def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
            x = self.norm(self.first(x, edge_index, edge_type))
            return self.second(x, edge_index, edge_type)

    module = of.randomised(Between(4))
    given = torch.randn(9, 4), torch.randint(0, 9, (2, 20)), torch.randint(0, 3, (20,))
    data = Data(x=given[0], edge_index=given[1], edge_type=given[2])
    models = [export_model(module, tmp_path / str(i), stats_from=one) for i, one in enumerate((given, data))]
    assert models[0].is_approximate and models[0].sha256() == models[1].sha256()
    with pytest.raises(ExportError, match=r"stats_from: got tuple, expected a Data with edge_type, or \(x, edge_index"):
        export_model(module, tmp_path / "2", stats_from=given[:2])
    attributed = of.TypedAttributes(pyg.RGATConv(4, 4, 3, edge_dim=2), pyg.RGATConv(4, 4, 3))
    with pytest.raises(ExportError, match="stats_from: a module that reads attributes of edges and their types is not"):
        export_model(attributed, tmp_path / "2", stats_from=data)
    by_ids, bare = of.randomised(Between(9)), Data(edge_index=given[1], edge_type=given[2], num_nodes=9)
    graphs = bare, (torch.arange(9), *given[1:])
    models = [export_model(by_ids, tmp_path / f"ids {i}", stats_from=one, ids=range(9)) for i, one in enumerate(graphs)]
    assert models[0].is_approximate and models[0].sha256() == models[1].sha256()


def test_a_norm_of_which_calls_are_left_out_is_refused(tmp_path: Path) -> None:
    module = sized(Normed(shared=True, returned="author"))
    with pytest.raises(ExportError, match="one: the module calls it 2 times, of which the returned rows read 1"):
        export_model(module, tmp_path, stats_from=data_of(METADATA[1], WIDTHS))
