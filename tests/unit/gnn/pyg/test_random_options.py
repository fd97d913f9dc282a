"""Convs that read attributes, with any options and called in any way: refused by an error, or equal to the module."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")
from torch import nn  # noqa: E402

from freshet.gnn.oracles import whole_graph  # noqa: E402
from freshet.gnn.plan import compile_plan  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.schema import Graph  # noqa: E402
from tests.support.graphs.random_graphs import weighted  # noqa: E402

W = 4
BOTH = [True, False]
AGGR = ["add", "mean", "max", "min", "std", "var", "median"]
OUT = [3, 4]
HEADS = {"heads": [1, 2], "concat": BOTH, "dropout": [0.0, 0.5], "bias": BOTH, "edge_dim": [None, 1, 3, 4]}
LOOPS = {"add_self_loops": BOTH, "fill_value": ["mean", 0.5, "max", torch.ones(1)], "residual": BOTH}
NORMS = {"norm": ["batch", "layer", None], "num_layers": [1, 2, 3], "eps": [1e-7, 0.5], "bias": BOTH}
DEGREES = torch.tensor([1, 4, 2, 0, 3])
SCALERS = [["identity"], ["amplification", "linear"], ["attenuation"]]


def linear(read: int, out: int) -> Any:
    return nn.Sequential(nn.Linear(read, 5), nn.ReLU(), nn.Linear(5, out))


CONVS: list[tuple[Any, dict[str, list[Any]]]] = [
    (lambda **o: pyg.GATConv(W, 3, **o), HEADS | LOOPS),
    (lambda **o: pyg.GATv2Conv(W, 3, **o), HEADS | LOOPS | {"share_weights": BOTH}),
    (lambda **o: pyg.TransformerConv(W, 3, **o), HEADS | {"beta": BOTH, "root_weight": BOTH}),
    (lambda **o: pyg.GINEConv(linear(W, 3), **o), {"eps": [0.0, -1.0], "edge_dim": [None, 1, 3], "aggr": AGGR}),
    (lambda **o: pyg.NNConv(W, 3, linear(2, 3 * W), **o), {"aggr": AGGR, "root_weight": BOTH, "bias": BOTH}),
    (
        lambda **o: pyg.GMMConv(W, 3, **o),
        {"dim": [1, 3], "kernel_size": [1, 2], "aggr": AGGR, "bias": BOTH, "separate_gaussians": BOTH},
    ),
    (lambda **o: pyg.CGConv(W, **o), {"dim": [0, 1, 3], "aggr": AGGR, "batch_norm": BOTH, "bias": BOTH}),
    (
        lambda **o: pyg.GENConv(W, **o),
        NORMS | {"out_channels": OUT, "edge_dim": [None, 3, 4], "aggr": AGGR, "msg_norm": BOTH},
    ),
    (
        lambda **o: pyg.PNAConv(W, 4, deg=DEGREES, **o),
        {"aggregators": [["mean", "std"], ["max"]], "scalers": SCALERS, "edge_dim": [None, 1, 3], "towers": [1, 2]}
        | {"pre_layers": [1, 2], "post_layers": [1, 2], "divide_input": BOTH, "act": ["relu", "tanh", None]},
    ),
    (
        lambda **o: pyg.ResGatedGraphConv(W, 3, **o),
        {"edge_dim": [None, 1, 3], "root_weight": BOTH, "bias": BOTH, "act": [nn.Sigmoid(), nn.Tanh()], "aggr": AGGR},
    ),
]  # fmt: skip
REQUIRED = {"out_channels", "aggregators", "scalers", "dim", "kernel_size"}


class Way(nn.Module):
    """A conv that is called in one of these ways."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv, self.first = conv, pyg.GCNConv(W, W)


class ByPlace(Way):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.conv(x, edge_index, edge_attr)


class ByName(Way):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any = None) -> Any:
        return self.conv(x, edge_index=edge_index, edge_attr=edge_attr)


class OfWeights(Way):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.conv(x, edge_index, edge_weight)


class OfNone(Way):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any = None) -> Any:
        return self.conv(x, edge_index, None)


class Beside(Way):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any, edge_attr: Any) -> Any:
        return self.conv(self.first(x, edge_index, edge_weight).tanh(), edge_index, edge_attr)


class Twice(Way):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.conv(self.first(x, edge_index, edge_attr).tanh(), edge_index, edge_attr)


class AsColumn(Way):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.conv((x, x), edge_index, edge_attr.view(-1, 1))


WAYS = [*[ByPlace, ByName, Beside] * 3, OfWeights, OfNone, Twice, AsColumn]


def drawn(seed: int) -> Way:
    """Return a module with weights and statistics drawn at random."""
    torch.manual_seed(seed)
    rng, (make, options) = random.Random(seed), CONVS[seed % len(CONVS)]
    given = {name: rng.choice(of) for name, of in options.items() if name in REQUIRED or rng.random() < 0.6}
    module = rng.choice(WAYS)(make(**given))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
        for part in module.modules():
            if getattr(part, "running_mean", None) is not None:
                part.running_mean.normal_()
                part.running_var.uniform_(0.5, 2.0)
    return module.eval()


def drawn_graph(seed: int, edge_width: int) -> Graph:
    """Return a graph with isolated vertices, self-loops, and several edges of one pair, as of several types."""
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, 12, (60, 2)), axis=0)
    src, dst = np.concatenate([pairs, pairs[pairs[:, 0] != pairs[:, 1]][::3]]).T
    attr = rng.standard_normal((len(src), edge_width)).astype(np.float32) if edge_width else None
    x = rng.standard_normal((14, W)).astype(np.float32)
    return weighted(x, src, dst, rng.uniform(0.3, 1.7, len(src)).astype(np.float32), attr)


def called(module: Any, graph: Graph, *, attributes: bool) -> np.ndarray:
    """Return what a module gives in float64: a parameter edge_attr holds weights where no conv reads attributes.

    One with a default is left out there, as in a job: a conv without edge_dim fails with it.
    """
    weight = torch.tensor(graph.values.weight).double()
    attr = torch.tensor(graph.values.full_attr(0)).double() if attributes else weight
    code = type(module).forward.__code__
    given = {"edge_weight": weight, "edge_attr": attr}
    names = code.co_varnames[: code.co_argcount]
    needed = names if attributes else names[: len(names) - len(type(module).forward.__defaults__ or ())]
    given = {name: value for name, value in given.items() if name in needed}
    edges = torch.tensor(np.stack([graph.src, graph.dst]))
    with torch.no_grad():
        result: np.ndarray = module.double()(torch.tensor(graph.x).double(), edges, **given).numpy()
    return result


@pytest.mark.parametrize("seeds", [range(40), pytest.param(range(40, 160), marks=pytest.mark.long)], ids=len)
def test_what_is_taken_equals_the_module(seeds: range, tmp_path: Path) -> None:
    outcomes = Counter[str]()
    for seed in seeds:
        module = drawn(seed)
        kind = type(module.conv).__name__
        try:
            model = export_model(module, tmp_path / str(seed), features=W)
        except ExportError as error:
            assert re.search(r"conv|first|edge_attr", str(error)), (seed, str(error))
            outcomes["refused"] += 1
            continue
        graph = drawn_graph(seed, model.edge_features)
        want = called(module, graph, attributes=model.edge_features > 0)
        got = whole_graph.forward(compile_plan(model), graph)[-1]
        np.testing.assert_allclose(
            got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max(), err_msg=f"seed {seed}: {module}"
        )
        outcomes[kind] += 1
    assert len(outcomes) == len(CONVS) + 1, outcomes
    assert outcomes["refused"] < 0.7 * len(seeds), outcomes
