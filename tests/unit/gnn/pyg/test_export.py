"""Modules become models that give the same numbers, and what cannot is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from freshet.gnn.declarations import GCNConv, GraphConv  # noqa: E402
from freshet.gnn.model import Model, load_model  # noqa: E402
from freshet.gnn.oracles import whole_graph  # noqa: E402
from freshet.gnn.plan import compile_plan  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.schema import Graph  # noqa: E402
from tests.support import oracle  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402

IN = 6


def trained(module: Any) -> Any:
    """Give norms statistics and biases values, as training would."""
    generator = torch.Generator().manual_seed(3)
    for part in module.modules():
        if isinstance(part, nn.BatchNorm1d):
            part.running_mean.normal_(generator=generator)
            part.running_var.uniform_(0.5, 2, generator=generator)
        for parameter in part.parameters(recurse=False):
            if parameter.dim() == 1:
                parameter.data.normal_(0.5, 1, generator=generator)
    return module.train()


def exported(module: Any, folder: Path, **options: Any) -> Model:
    """Export, and hold what was written against the module once more, on another graph than the export's own."""
    model = export_model(trained(module), folder, **options)
    assert module.training, "export must leave the module as it was"
    saved = load_model(folder)
    assert saved.sha256() == model.sha256()
    return saved


def assert_same(model: Model, expected: torch.Tensor, graph: Any) -> None:
    plan_rows = whole_graph.forward(compile_plan(model), graph)[-1]
    oracle_rows = oracle.forward(model, graph)[-1]
    truth = expected.detach().numpy()
    atol = 3e-5 * max(1, np.abs(truth).max())
    np.testing.assert_allclose(plan_rows, truth, rtol=0, atol=atol)
    np.testing.assert_allclose(oracle_rows, truth, rtol=0, atol=atol)


def inputs(seed: int = 11) -> tuple[Any, Any, Any, Any]:
    graph = random_graph(seed, width=IN)
    return (
        graph,
        torch.from_numpy(graph.x),
        torch.from_numpy(np.stack([graph.src, graph.dst])),
        torch.from_numpy(graph.values.weight),
    )


BASIC = {
    "gcn": lambda: pyg.GCN(IN, 8, 2, 3),
    "gcn-4-layers-norm": lambda: pyg.GCN(IN, 5, 4, norm="batch_norm", dropout=0.5),
    "gcn-7-layers": lambda: pyg.GCN(IN, 5, 7, act="elu"),
    "gcn-improved-cached": lambda: pyg.GCN(IN, 8, 2, 3, improved=True, cached=True),
    "gcn-no-loops": lambda: pyg.GCN(IN, 8, 2, 3, add_self_loops=False, bias=False),
    "gcn-plain": lambda: pyg.GCN(IN, 8, 1, 3, normalize=False),
    "sage": lambda: pyg.GraphSAGE(IN, 8, 2, 3, dropout=0.3),
    "sage-sum": lambda: pyg.GraphSAGE(IN, 8, 3, 3, aggr="sum", act="elu", act_kwargs={"alpha": 0.7}),
    "sage-max": lambda: pyg.GraphSAGE(IN, 8, 2, 3, aggr="max"),
    "sage-min": lambda: pyg.GraphSAGE(IN, 8, 2, 3, aggr="min", project=True),
    "sage-several": lambda: pyg.GraphSAGE(IN, 8, 2, 3, aggr=["mean", "max", "min", "sum"]),
    "sage-moments": lambda: pyg.GraphSAGE(IN, 8, 2, 3, aggr=["std", "var", "mean"]),
    "sage-project-normalize": lambda: pyg.GraphSAGE(IN, 8, 2, 3, project=True, normalize=True, act="gelu"),
    "sage-no-root": lambda: pyg.GraphSAGE(IN, 8, 2, root_weight=False, act_first=True, norm="BatchNorm"),
    "sage-no-act": lambda: pyg.GraphSAGE(IN, 8, 2, 3, act=None),
    "sage-prelu": lambda: pyg.GraphSAGE(IN, 8, 2, 3, act="prelu"),
    "sage-swish": lambda: pyg.GraphSAGE(IN, 8, 2, 3, act="swish"),
    "sage-function": lambda: pyg.GraphSAGE(IN, 8, 2, 3, act=torch.tanh),
    "sage-jk-last": lambda: pyg.GraphSAGE(IN, 8, 2, 3, jk="last"),
    "gat": lambda: pyg.GAT(IN, 8, 2, 3, heads=4),
    "gat-mean-of-heads": lambda: pyg.GAT(IN, 8, 2, 3, heads=2, concat=False, negative_slope=0.1),
    "gat-residual-no-loops": lambda: pyg.GAT(IN, 8, 3, 3, heads=2, residual=True, add_self_loops=False),
    "gat-v2": lambda: pyg.GAT(IN, 8, 2, 3, heads=2, v2=True),
    "gat-v2-shared": lambda: pyg.GAT(IN, 8, 3, 3, v2=True, share_weights=True, residual=True, concat=False, heads=3),
    "gin": lambda: pyg.GIN(IN, 8, 2, 3),
    "gin-norm-eps": lambda: pyg.GIN(IN, 8, 3, 3, norm="batch_norm", eps=0.25, act="leaky_relu"),
    "gin-train-eps": lambda: pyg.GIN(IN, 8, 2, train_eps=True, act="selu"),
}


@pytest.mark.parametrize("name", BASIC)
def test_basic_models(name: str, tmp_path: Path) -> None:
    module = BASIC[name]()
    model = exported(module, tmp_path)
    graph, x, edge_index, weight = inputs()
    module.eval()
    for conv in module.convs:
        conv._cached_edge_index = None
    assert_same(model, module(x, edge_index, edge_weight=weight if module.supports_edge_weight else None), graph)


def test_a_list_of_layers_in_order(tmp_path: Path) -> None:
    layers = nn.ModuleList(
        [
            nn.Linear(IN, 5),
            nn.SiLU(),
            pyg.GraphConv(5, 7, aggr="mean"),
            pyg.BatchNorm(7),
            nn.Sequential(nn.ReLU(), nn.Dropout(0.5), pyg.Linear(7, 4)),
            pyg.GINConv(nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)), eps=0.1),
            nn.Sigmoid(),
        ]
    )
    model = exported(layers, tmp_path, edge_types=["cites", "likes"])
    assert model.edge_types == ["cites", "likes"]
    graph, x, edge_index, weight = inputs()
    for layer in layers.eval():
        if isinstance(layer, pyg.GraphConv):
            x = layer(x, edge_index, weight)
        else:
            x = layer(x, edge_index) if isinstance(layer, pyg.GINConv) else layer(x)
    assert_same(model, x, graph)


def test_sequential_with_and_without_weights(tmp_path: Path) -> None:
    graph, x, edge_index, weight = inputs()
    with_weights = pyg.Sequential(
        "x, edge_index, w",
        [
            (nn.Dropout(0.5), "x -> x"),
            (pyg.GCNConv(IN, 8), "x, edge_index, w -> h"),
            nn.LeakyReLU(0.2),
            (pyg.GraphConv(8, 4), "h, edge_index -> h"),
            F.elu,
            nn.Linear(4, 3),
        ],
    )
    model = exported(with_weights, tmp_path / "a")
    assert [layer.edge_weights for layer in model.layers if isinstance(layer, GCNConv | GraphConv)] == [True, False]
    assert_same(model, with_weights.eval()(x, edge_index, weight), graph)
    without = pyg.Sequential("x, edge_index", [(pyg.GCNConv(IN, 8, improved=True), "x, edge_index -> x")])
    model = exported(without, tmp_path / "b")
    assert_same(model, without.eval()(x, edge_index), graph)
    assert_same(model, without(x, edge_index), Graph.plain(*graph[:3]))


class Net(nn.Module):
    """As people write them: attributes, functional activations, a part that nobody calls."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(IN, 8, cached=True)
        self.bn = nn.BatchNorm1d(8)
        self.rest = nn.ModuleList([pyg.GraphConv(8, 8), pyg.SAGEConv(8, 5)])
        self.sage = pyg.GraphSAGE(5, 4, 1)
        self.mlp = pyg.MLP([4, 6, 3], norm="batch_norm")
        self.head = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
        self.unused = nn.Bilinear(2, 2, 2)

    def forward(self, x: Any, edge_index: Any, edge_weight: Any = None, batch: Any = None) -> Any:
        if batch is not None:
            raise NotImplementedError
        x = self.conv1(x, edge_index, edge_weight=edge_weight)
        x = F.leaky_relu(self.bn(x), negative_slope=0.3)
        for conv in self.rest:
            x = F.dropout(conv(x, edge_index).relu(), p=0.5, training=self.training)
        x = self.mlp(self.sage(x, edge_index))
        return self.head(torch.sigmoid(x))


def test_a_traced_module_with_a_head(tmp_path: Path) -> None:
    module = Net()
    model = exported(module, tmp_path, head="head")
    graph, x, edge_index, weight = inputs()
    seen: list[Any] = []
    module.eval().head.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    logits = module(x, edge_index, weight).detach().numpy()
    assert_same(model, seen[-1], graph)
    np.testing.assert_allclose(compile_plan(model).logits(seen[-1].detach().numpy()), logits, atol=1e-5)


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, rows: Any) -> Any:
        return self.second(F.relu(self.first(rows)))


def test_a_head_that_forward_does_not_use_and_one_of_ones_own(tmp_path: Path) -> None:
    class Encoder(nn.Module):
        def __init__(self, *, called: bool) -> None:
            super().__init__()
            self.conv, self.decoder, self.called = pyg.SAGEConv(IN, 3), Decoder(), called

        def forward(self, x: Any, edge_index: Any) -> Any:
            x = self.conv(x, edge_index)
            return self.decoder(x) if self.called else x

    for called in (False, True):
        model = exported(Encoder(called=called), tmp_path / str(called), head="decoder")
        assert [layer.type for layer in model.head] == ["linear", "relu", "linear"]
        assert model.out_width == 3


def test_a_head_in_a_list_and_in_a_sequential(tmp_path: Path) -> None:
    model = exported(nn.ModuleList([pyg.SAGEConv(IN, 4), nn.ReLU(), nn.Linear(4, 2)]), tmp_path / "a", head="2")
    assert model.out_width == 4 and len(model.head) == 1
    layers = [(pyg.SAGEConv(IN, 4), "x, edge_index -> x"), nn.ReLU(), Decoder4()]
    model = exported(pyg.Sequential("x, edge_index", layers), tmp_path / "b", head="module_2")
    assert model.out_width == 4 and len(model.head) == 2


class Decoder4(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(4, 2)

    def forward(self, rows: Any) -> Any:
        return F.gelu(self.last(rows), approximate="tanh")


def test_a_double_precision_module_and_one_already_in_eval_mode(tmp_path: Path) -> None:
    module = pyg.GCN(IN, 8, 2, 3).double().eval()
    export_model(module, tmp_path)
    assert not module.training and module.convs[0].bias.dtype == torch.float64


class OneConv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.GraphConv(IN, IN)


class Branching(OneConv):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv(x, edge_index) if x.sum() > 0 else x


class Rewiring(OneConv):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv(x, edge_index.flip(1)[:, 1:])


class Softmax(OneConv):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return F.log_softmax(self.conv(x, edge_index), dim=0)


class Tuple(OneConv):
    def forward(self, x: Any, edge_index: Any) -> Any:
        x = self.conv(x, edge_index)
        return x, x


class AlwaysDropping(OneConv):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return F.dropout(self.conv(x, edge_index), 0.5)


class Unseen(OneConv):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv(x, edge_index) + (0.5 if type(x) is torch.Tensor else 0)


class UnseenGelu(OneConv):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return F.gelu(self.conv(x, edge_index), approximate="tanh" if type(x) is torch.Tensor else "none")


REFUSED = {
    "gat with other loops": (
        lambda: pyg.GATConv(IN, 8, edge_dim=4, fill_value=torch.ones(4)),
        r"GATConv with fill_value=tensor\(.*\) is not supported; expected 'mean' or a number",
    ),
    "order of neighbours": (
        lambda: pyg.GraphSAGE(IN, 8, 2, aggr="lstm", aggr_kwargs={"in_channels": IN, "out_channels": IN}),
        "convs.0: SAGEConv with aggr='lstm' is not supported: it reads messages in the order of edges",
    ),
    "aggr list": (
        lambda: pyg.SAGEConv(IN, 8, aggr=["mean", "mean", "mul"]),
        "with aggr=.'mean', 'mean', 'mul'. is not supported",
    ),
    "gat median": (
        lambda: pyg.GATConv(IN, 8, aggr="median"),
        "GATConv with aggr='median' is not supported yet; supported: sum",
    ),
    "layer norm": (
        lambda: pyg.GCN(IN, 8, 2, norm="layer_norm"),
        r"^norms.0: LayerNorm\(mode='graph'\), PyG's default, depends on the whole graph.*stats_from=\(x, edge_index\)",
    ),
    "batch norm without statistics": (
        lambda: pyg.GCN(IN, 8, 2, norm="batch_norm", norm_kwargs={"track_running_stats": False}),
        "norms.0: BatchNorm without running statistics",
    ),
    "flow": (lambda: pyg.GCN(IN, 8, 1, flow="target_to_source"), "flow='target_to_source' is not supported"),
    "decomposed": (lambda: pyg.GraphSAGE(IN, 8, 1, decomposed_layers=2), "decomposed_layers=2 is not supported"),
    "bipartite": (lambda: nn.ModuleList([pyg.SAGEConv((4, 5), 3)]), r"bipartite layers are not supported.*\(4, 5\)"),
    "lazy": (lambda: nn.ModuleList([pyg.SAGEConv(-1, 3)]), "its size is not known yet"),
    "softmax over the graph": (
        lambda: nn.ModuleList([pyg.SAGEConv(IN, 3), nn.Softmax(0)]),
        "1: softmax over dim=0 reads all vertices of the graph; dim=-1",
    ),
    "no conv": (lambda: nn.ModuleList([nn.Linear(IN, 3)]), "needs 1 to 64 convs, got 0"),
    "many convs": (lambda: pyg.GCN(IN, 8, 65), "needs 1 to 64 convs, got 65"),
    "widths": (lambda: nn.ModuleList([pyg.SAGEConv(IN, 3), nn.Linear(4, 2)]), "reads rows of width 4, got 3"),
    "branch": (Branching, "cannot be traced"),
    "rewiring": (Rewiring, "reads something other than rows of layers, edges and constants"),
    "log_softmax": (Softmax, "log_softmax over dim=0 reads all vertices"),
    "tuple": (Tuple, "returns something other"),
    "always dropping": (AlwaysDropping, "random at inference too"),
    "lambda": (
        lambda: pyg.Sequential(
            "x, edge_index", [(pyg.SAGEConv(IN, 3), "x, edge_index -> x"), (lambda x: x.mean(0), "x -> x")]
        ),
        r"^module_1.mean \(test_export.py:\d+\): function mean is not supported",
    ),
    "no module": (lambda: {"weights": 1}, "takes a torch.nn.Module, got dict"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_freshet_does_not_have_is_refused_by_name(what: str, tmp_path: Path) -> None:
    make, message = REFUSED[what]
    with pytest.raises(ExportError, match=message):
        export_model(make(), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_wrong_heads_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="head='classifier' is no submodule; there are conv1, bn, rest"):
        export_model(Net(), tmp_path / "m", head="classifier")
    with pytest.raises(ExportError, match="head='mlp' is not the end of the module: sigmoid comes after it"):
        export_model(Net(), tmp_path / "m", head="mlp")
    with pytest.raises(ExportError, match=r"stats_from: got object, expected .x, edge_index. or"):
        export_model(Net(), tmp_path / "m", stats_from=object())


@pytest.mark.parametrize("module", [Unseen, UnseenGelu])
def test_a_module_that_does_something_unseen_is_refused_with_the_difference(
    module: type[nn.Module], tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=r"full pass differs from the module: largest difference \d+\.\d+"):
        export_model(module(), tmp_path / "m")
    assert not (tmp_path / "m").exists()
