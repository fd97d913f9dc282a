"""Every conv may stand in a relation within one kind: against PyTorch Geometric, and as edges come and go."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from freshet.gnn.declarations import Conv, Laplacian  # noqa: E402
from freshet.gnn.kind_layers.compiling import compile_kinds  # noqa: E402
from freshet.gnn.kind_layers.registry import relation_plan  # noqa: E402
from freshet.gnn.kind_layers.within import WithinKind  # noqa: E402
from freshet.gnn.kinds.flow import BETWEEN_KINDS  # noqa: E402
from freshet.gnn.kinds.model import KindsModel  # noqa: E402
from freshet.gnn.layers.registry import names  # noqa: E402
from freshet.gnn.oracles import whole_kinds  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.gnn.pyg.kinds import oracle  # noqa: E402
from freshet.state.task_parts import TaskParts  # noqa: E402
from tests.support.graphs.attributed import EDGE_WIDTH  # noqa: E402
from tests.support.graphs.kind_streams import random_rows  # noqa: E402
from tests.support.graphs.kinds import hetero, kinds_model, random_kinds_graph, relation, sage  # noqa: E402
from tests.support.graphs.models import all_small_models  # noqa: E402
from tests.support.stages.kind_cores import KindCores  # noqa: E402


def is_taken(conv: Conv) -> bool:
    return (
        type(conv).__name__ not in ("MessageConv", "OwnLayer", "Laplacian") and getattr(conv, "degrees", "in") == "in"
    )


def convs() -> dict[str, Conv]:
    """Return the convs of all small models, each once, that have no other form in a relation."""
    found = dict[str, Conv]()
    for make in all_small_models().values():
        for layer in make().layers:
            if isinstance(layer, Conv) and is_taken(layer) and not layer.BETWEEN_KINDS:
                found.setdefault(layer.model_dump_json(), layer)
    numbers = dict.fromkeys(names(), 0)
    named = {}
    for conv in found.values():
        numbers[conv.type] += 1  # type: ignore[attr-defined]
        named[f"{conv.type} {numbers[conv.type]}"] = conv  # type: ignore[attr-defined]
    return named


CONVS = convs()


def model_of(conv: Conv) -> KindsModel:
    """Return a layer of that conv among users, beside a sum of what items send them, and another behind it."""
    kinds = {"user": conv.in_channels, "item": 3}
    edge = conv.edge.attributes
    relations = [relation("user", "knows", "user", edge_features=edge), relation("item", "of", "user")]
    first = hetero({0: conv.model_dump(), 1: sage(3, conv.in_channels, conv.out_channels)})
    last = hetero({0: sage(conv.out_channels, conv.out_channels, 2, aggr="max")})
    model = kinds_model([first, last], ["user"], kinds, relations, seed=3)
    for name, weight in model.weights.items():
        if "average_" in name:  # degrees, of pna_conv
            weight[:] = 1.5
    return model


def test_all_convs_are_there() -> None:
    one = {name.split()[0] for name in CONVS}
    assert one | set(BETWEEN_KINDS) == set(names()) - {Laplacian.model_fields["type"].default}
    assert CONVS["pna_conv 1"].edge.attributes in (0, EDGE_WIDTH)


@pytest.mark.parametrize("name", CONVS)
def test_it_equals_pyg(name: str) -> None:
    model = model_of(CONVS[name])
    assert isinstance(relation_plan(CONVS[name], model, "layers.0.convs.0", first=False), WithinKind)
    for seed, edges in ((0, 120), (1, 0)):
        graph = random_kinds_graph(model, seed, edges=edges)
        got = whole_kinds.forward(compile_kinds(model), graph)[-1][0]
        want = oracle.forward(model, graph)["user"]
        np.testing.assert_allclose(got, want, rtol=0, atol=5e-5 * max(1.0, np.abs(want).max(initial=0)))


@pytest.mark.parametrize("name", [name for name in CONVS if name.endswith(" 1")])
def test_it_follows_a_stream(name: str) -> None:
    cores = KindCores(model_of(CONVS[name]), [TaskParts.of([2, 1])])
    rng = np.random.default_rng(2)
    for epoch in range(6):
        cores.run(random_rows(cores.graph, rng, 12 if epoch else 40))
        cores.assert_right()


DEGREES = torch.tensor([1, 2, 3, 1])
READ: dict[str, Callable[[bool], Any]] = {
    "agnn": lambda loops: pyg.AGNNConv(add_self_loops=loops),
    "super gat": lambda loops: pyg.SuperGATConv(4, 4, heads=2, concat=False, add_self_loops=loops),
    "pna": lambda loops: pyg.PNAConv(4, 4, ["mean", "max"], ["identity", "amplification"], DEGREES),
}


class Net(torch.nn.Module):
    def __init__(self, name: str, source: str) -> None:
        super().__init__()
        read = READ[name](source == "user")
        self.conv = pyg.HeteroConv({(source, "knows", "user"): read, ("item", "of", "user"): pyg.SAGEConv(4, 4)})

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return self.conv(x_dict, edge_index_dict)


@pytest.mark.parametrize("name", READ)
def test_it_is_read_in_a_hetero_conv(name: str, tmp_path: Path) -> None:
    """The export compares the module with what was read."""
    widths, of = {"user": 4, "item": 4}, ("item", "of", "user")
    metadata = ["user", "item"], [("user", "knows", "user"), of]
    model = export_model(Net(name, "user").eval(), tmp_path, metadata=metadata, features=widths)
    assert isinstance(model, KindsModel)
    metadata = ["user", "item"], [("item", "knows", "user"), of]
    with pytest.raises(ExportError, match=r"is not supported between two kinds\. Nearest: "):
        export_model(Net(name, "item").eval(), tmp_path, metadata=metadata, features=widths, overwrite=True)
