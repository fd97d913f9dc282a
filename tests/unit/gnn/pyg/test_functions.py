"""Functions of rows in a forward become layers that give the same numbers, wherever people write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from freshet.gnn.model import Model, load_model  # noqa: E402
from freshet.gnn.oracles import whole_graph  # noqa: E402
from freshet.gnn.plan import compile_plan  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from freshet.schema import Graph  # noqa: E402
from tests.support import oracle  # noqa: E402
from tests.support.graphs.random_graphs import random_graph  # noqa: E402

IN, HIDDEN = 6, 5


class Between(nn.Module):
    """A function between two convs, and once more behind the last."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.first, self.second = pyg.SAGEConv(IN, HIDDEN), pyg.GCNConv(HIDDEN, HIDDEN)
        self.row = nn.Parameter(torch.linspace(-1, 2, HIDDEN))
        self.number = nn.Parameter(torch.tensor([0.7]))
        self.register_buffer("flat", torch.full((1, HIDDEN), 0.25))
        self.matrix = nn.Parameter(torch.linspace(-1, 1, HIDDEN * HIDDEN).reshape(HIDDEN, HIDDEN))
        self.factor, self.function = 0.5, function

    def forward(self, x: Any, edge_index: Any) -> Any:
        h = self.function(self, self.first(x, edge_index))
        return self.function(self, self.second(h, edge_index))


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "log_softmax": lambda m, h: F.log_softmax(h, dim=1),
    "log_softmax method": lambda m, h: h.log_softmax(-1),
    "softmax": lambda m, h: torch.softmax(h, -1),
    "softmax in float32": lambda m, h: F.softmax(h, dim=-1, dtype=None),
    "normalize": lambda m, h: F.normalize(h, p=2.0, dim=-1),
    "normalize eps": lambda m, h: F.normalize(h, eps=2.0),
    "elu": lambda m, h: F.elu(h, 0.3),
    "celu": lambda m, h: F.celu(h, alpha=0.3),
    "relu6": lambda m, h: F.relu6(4 * h),
    "hardtanh": lambda m, h: F.hardtanh(h, -0.1, 0.4),
    "clamp": lambda m, h: h.clamp(min=0),
    "torch clamp": lambda m, h: torch.clamp(h, -0.2, 0.2),
    "softplus": lambda m, h: F.softplus(h, beta=2, threshold=1),
    "mish": lambda m, h: F.mish(h),
    "logsigmoid": lambda m, h: F.logsigmoid(h),
    "prelu": lambda m, h: F.prelu(h, m.row),
    "prelu of one slope": lambda m, h: torch.prelu(h, m.number),
    "layer_norm": lambda m, h: F.layer_norm(h, (HIDDEN,), m.row, m.row * 2, 1e-3),
    "layer_norm without weights": lambda m, h: F.layer_norm(h, (HIDDEN,)),
    "rms_norm": lambda m, h: F.rms_norm(h, (HIDDEN,), m.row),
    "rms_norm without weights": lambda m, h: F.rms_norm(h, [HIDDEN], eps=0.1),
    "linear": lambda m, h: F.linear(h, m.matrix, m.row),
    "matrix": lambda m, h: h @ m.matrix + m.row,
    "torch.mm": lambda m, h: torch.mm(torch.matmul(input=h, other=m.matrix), mat2=m.matrix.t()),
    "square": lambda m, h: torch.square(h) - h**2 * 0.5 + h * h,
    "torch.pow": lambda m, h: torch.pow(h, exponent=2.0, out=None) + h.pow(2),
    "clip": lambda m, h: h.clip(-0.2, 0.2) + h.clamp_min(0.1) - torch.clamp_max(h, 0.3),
    "true_divide": lambda m, h: torch.true_divide(h, m.number),
    "to": lambda m, h: (
        h.to(torch.float32).to("cpu").type(torch.float32).to(m.row.device).to(m.row).cpu().type_as(m.row)
    ),
    "type by its name": lambda m, h: h.type("torch.FloatTensor"),
    "alpha_dropout": lambda m, h: F.alpha_dropout(h, 0.3, training=m.training),
    "number": lambda m, h: 2 * h - 1,
    "attribute": lambda m, h: (1 - h) * m.factor / 3,
    "negative": lambda m, h: -h + 0.5,
    "parameters": lambda m, h: torch.sigmoid(m.row) * h + m.number,
    "buffer": lambda m, h: (h - m.flat) / m.row.abs().clamp(min=0.5),
    "torch.add": lambda m, h: torch.mul(torch.add(h, m.row), other=m.number),
    "in place": lambda m, h: h.mul_(2).add_(m.row),
    "chain": lambda m, h: F.dropout(F.silu(h * 2 + 1), 0.5, m.training).float().contiguous(),
}


def exported(module: Any, folder: Path, **options: Any) -> Model:
    model = export_model(module, folder, **options)
    saved = load_model(folder)
    assert saved.sha256() == model.sha256()
    return saved


def assert_same(model: Model, module: Any) -> None:
    graph = random_graph(11, width=IN)
    with torch.no_grad():
        truth = module.eval()(torch.from_numpy(graph.x), torch.from_numpy(np.stack([graph.src, graph.dst]))).numpy()
    plain = Graph.plain(*graph[:3])
    atol = 3e-5 * max(1, np.abs(truth).max())
    for rows in (whole_graph.forward(compile_plan(model), plain)[-1], oracle.forward(model, plain)[-1]):
        np.testing.assert_allclose(rows, truth, rtol=0, atol=atol)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_between_and_behind_convs(name: str, tmp_path: Path) -> None:
    module = Between(FUNCTIONS[name])
    model = exported(module, tmp_path)
    assert not model.is_approximate
    assert_same(model, module)


class Narrow(nn.Module):
    """Whatever is made of the rows of a head."""

    def __init__(self, function: Callable[[Any, Any], Any], width: int) -> None:
        super().__init__()
        self.conv, self.head, self.function = pyg.SAGEConv(IN, HIDDEN), nn.Linear(HIDDEN, width), function
        self.flatten = nn.Flatten(0)
        self.register_buffer("places", torch.tensor([2, 0]))

    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.function(self, self.head(self.conv(x, edge_index).relu()))


NARROW: dict[str, tuple[Callable[[Any, Any], Any], int, int]] = {
    "squeeze": (lambda m, h: h.squeeze(), 1, 1),
    "squeeze of a dimension": (lambda m, h: torch.squeeze(h, dim=-1), 1, 1),
    "squeeze of what is wider": (lambda m, h: h.squeeze(1), 3, 3),
    "view": (lambda m, h: h.view(-1), 1, 1),
    "reshape": (lambda m, h: torch.reshape(h, (-1,)).sigmoid(), 1, 1),
    "flatten": (lambda m, h: m.flatten(torch.sigmoid(h.flatten())), 1, 1),
    "and back": (lambda m, h: h.squeeze(-1).unsqueeze(-1).view(-1, 1), 1, 1),
    "a column": (lambda m, h: h[:, 0], 3, 1),
    "a column of all": (lambda m, h: h[..., -1].tanh(), 3, 1),
    "a probability": (lambda m, h: h.softmax(-1)[:, 1], 2, 1),
    "a selected one": (lambda m, h: h.select(-1, 2), 3, 1),
    "some columns": (lambda m, h: torch.cat([h[:, 1:].relu(), h[:, [2, 0]], h[:, m.places], h[:, ::2]], -1), 3, 8),
    "a sum of numbers": (lambda m, h: h.squeeze(-1) + 2 * h[:, 0], 1, 1),
}


@pytest.mark.parametrize("name", NARROW)
def test_columns_and_numbers(name: str, tmp_path: Path) -> None:
    function, width, result = NARROW[name]
    module = Narrow(function, width)
    model = exported(module, tmp_path)
    assert model.out_width == result
    graph = random_graph(12, width=IN)
    with torch.no_grad():
        truth = module(torch.from_numpy(graph.x), torch.from_numpy(np.stack([graph.src, graph.dst]))).numpy()
    [*_, rows] = whole_graph.forward(compile_plan(model), Graph.plain(*graph[:3]))
    np.testing.assert_allclose(rows, truth.reshape(len(rows), -1), rtol=0, atol=3e-6)


@pytest.mark.parametrize(
    ("function", "width", "message"),
    [
        (
            lambda m, h: h.view(-1),
            3,
            r"gives rows of shape \(\d+, 3\), the module .* numbers of all vertices into one row",
        ),
        (lambda m, h: h.squeeze(-1).softmax(-1), 1, "the exported full pass differs from the module"),
        (lambda m, h: h.squeeze(-1) * h, 1, r"gives rows of shape \(\d+, 1\), the module \(\d+, \d+\)"),
    ],
)
def test_numbers_of_all_vertices_in_one_row(
    function: Callable[[Any, Any], Any], width: int, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message):
        export_model(Narrow(function, width), tmp_path / "M")


def test_a_head_may_give_a_number(tmp_path: Path) -> None:
    model = exported(Narrow(lambda m, h: h.squeeze(-1), 1), tmp_path, head="head")
    assert (model.out_width, [layer.type for layer in model.head]) == (HIDDEN, ["linear"])


MODULES = {
    "relu6": nn.ReLU6,
    "hardtanh": lambda: nn.Hardtanh(-0.3, 0.3),
    "celu": lambda: nn.CELU(0.2),
    "softplus": lambda: nn.Softplus(3, 1),
    "mish": nn.Mish,
    "logsigmoid": nn.LogSigmoid,
    "softmax": lambda: nn.Softmax(dim=1),
    "log_softmax": lambda: nn.LogSoftmax(dim=-1),
    "identity": nn.Identity,
    "dropout2d": nn.Dropout2d,
}


@pytest.mark.parametrize("name", MODULES)
def test_modules_of_rows(name: str, tmp_path: Path) -> None:
    module = pyg.Sequential(
        "x, edge_index",
        [
            (pyg.SAGEConv(IN, HIDDEN), "x, edge_index -> x"),
            MODULES[name](),
            (pyg.GINConv(nn.Sequential(nn.Linear(HIDDEN, 4), MODULES[name]())), "x, edge_index -> x"),
        ],
    )
    assert_same(exported(module, tmp_path), module)


def test_a_head_with_log_softmax_gives_logits(tmp_path: Path) -> None:
    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GCNConv(IN, HIDDEN)
            self.head = nn.Sequential(nn.Linear(HIDDEN, 3), nn.LogSoftmax(dim=1))

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.head(self.conv(x, edge_index).relu())

    model = exported(Classifier(), tmp_path, head="head")
    assert [layer.type for layer in model.head] == ["linear", "log_softmax"] and model.out_width == HIDDEN


class Weighing(Between):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.first(x, edge_index) * edge_weight


class OwnWeights(Between):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.second(self.first(x, edge_index), edge_index, self.row)


class Early(Between):
    def forward(self, x: Any, edge_index: Any) -> Any:
        h = self.first(x, edge_index)
        self.second(h, edge_index)
        return h


class WithoutEdges(Between):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.first(x)


class PairOfRows(Between):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.first((x, None), edge_index)


def of(function: Callable[[Any, Any], Any]) -> Callable[[], Any]:
    return lambda: Between(function)


class Waves(OwnWeights):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.first((x * 3).sin(), edge_index)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "rows by weights": (lambda: Weighing(torch.relu), r"^mul \(test_functions.py:\d+\) reads something other than"),
    "own weights": (lambda: OwnWeights(torch.relu), r"^second \(test_functions.py:\d+\) reads something other than"),
    "typed conv": (
        lambda: nn.ModuleList([pyg.RGCNConv(IN, 4, 3)]),
        "^0: torch_geometric.nn.RGCNConv is not supported: it reads the type of each edge. Nearest: RGCNConv in a ",
    ),
    "softmax over the graph": (of(lambda m, h: h.softmax(0)), "softmax over dim=0 reads all vertices of the graph"),
    "normalize of channels": (of(lambda m, h: F.normalize(h, dim=0)), "normalize over dim=0 reads all vertices"),
    "manhattan": (of(lambda m, h: F.normalize(h, p=1.0)), "normalize with p=1.0 is not supported, only the Euclidean"),
    "matrix": (of(lambda m, h: h * m.matrix), r"constant of shape \(5, 5\) is neither a number nor one value per"),
    "waves of features of unknown width": (
        lambda: Waves(torch.relu),
        "function sin is not supported: the width of the",
    ),
    "powers of a row": (of(lambda m, h: h**m.row), r"pow.*function pow is not supported: a power by several exponents"),
    "integers": (of(lambda m, h: h.to(torch.ones(3, dtype=torch.int64))), "rows of torch.int64 are not supported"),
    "a name": (of(lambda m, h: h.type()), "the module itself fails on a small graph on the CPU .*'str' object has no"),
    "a device that is not there": (of(lambda m, h: h.to("xla:0")), "the module itself fails on a small graph on the"),
    "without edges": (
        lambda: WithoutEdges(torch.relu),
        r"^first \(.*\): SAGEConv.forward: missing a required argument",
    ),
    "pair of rows": (lambda: PairOfRows(torch.relu), r"^first \(.*\) is called with two kinds of rows, as on a bip"),
    "by a row": (of(lambda m, h: h @ m.row), "multiplied by something other than a matrix"),
    "half": (of(lambda m, h: h.to(torch.float16)), "rows of torch.float16 are not supported: Freshet computes in"),
    "mean": (of(lambda m, h: h.mean(dim=0)), r"function mean is not supported \(it reads more than the vertex's own"),
    "view": (of(lambda m, h: h.view(-1, 5, 1)), r"rows as \(-1, 5, 1\) are not supported: a row has one dimension"),
    "some rows": (of(lambda m, h: h[:3]), "getitem keeps some of the rows. Taken are all"),
    "a row": (of(lambda m, h: h[0]), "getitem keeps some of the rows. Taken are all"),
    "rows of a mask": (of(lambda m, h: h[:, m.row > 0]), r"columns \[False.* are not supported: expected a number"),
    "no such column": (of(lambda m, h: h[:, 7]), "getitem: columns 7 of rows of width 5"),
    "no column": (of(lambda m, h: h[:, 5:]), r"getitem: columns slice\(5, None, None\) of rows of width 5 are none"),
    "a vertex selected": (of(lambda m, h: h.select(0, 1)), "select over dim=0 reads all vertices of the graph"),
    "jumping module": (
        lambda: nn.ModuleList([pyg.SAGEConv(IN, 3), pyg.JumpingKnowledge("cat")]),
        "^1: torch_geometric.nn.JumpingKnowledge reads the rows of several layers, and is called with those of one",
    ),
    "message norm": (
        lambda: nn.ModuleList([pyg.SAGEConv(IN, 3), pyg.MessageNorm()]),
        "^1: torch_geometric.nn.MessageNorm reads the rows of several layers, and is called with those of one",
    ),
    "pooling": (
        lambda: nn.ModuleList([pyg.SAGEConv(IN, 3), pyg.TopKPooling(3)]),
        "^1: torch_geometric.nn.TopKPooling is not supported: Freshet keeps a row per vertex, not one per graph",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals_name_the_line_and_the_nearest_thing(what: str, tmp_path: Path) -> None:
    make, message = REFUSED[what]
    with pytest.raises(ExportError, match=message):
        export_model(make(), tmp_path / "m")
    assert not (tmp_path / "m").exists()


def test_what_comes_after_the_returned_rows_does_not_count(tmp_path: Path) -> None:
    model = exported(Early(torch.relu), tmp_path)
    assert [layer.type for layer in model.layers] == ["sage_conv"]
