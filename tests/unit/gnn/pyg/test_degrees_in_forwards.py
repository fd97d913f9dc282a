"""A forward scales edges by degrees, or by what it makes of attributes, and hands its factors to convs.

`export_model` compares each model with the module itself in float64, on graphs of several sizes, with self-loops.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric import utils  # noqa: E402
from torch_geometric.nn.conv.gcn_conv import gcn_norm  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from tests.support.graphs import degrees_in_forwards as of  # noqa: E402
from tests.support.graphs.degrees_in_forwards import Forward, OfAttributes, OfWeights, sym  # noqa: E402

WIDTH, EDGE = 4, 3
MODULES = of.modules(WIDTH, EDGE)
ONE: dict[str, tuple[list[str], dict[str, Any]]] = {  # its layers, and what the last one of hops has
    "in place": (["linear", "propagation"], {"normalize": True}),
    "with loops": (
        ["linear", "propagation", "relu", "linear", "propagation"],
        {"normalize": True, "add_self_loops": True, "existing_loops": "beside"},
    ),
    "both ways": (["linear", "propagation"], {"normalize": True, "degrees": "both"}),
    "by sources": (["linear", "propagation"], {"normalize": True, "degrees": "out"}),
    "counted": (["linear", "propagation"], {"normalize": True}),
    "neighbours by hand": (["linear", "propagation", "relu"] * 2, {}),
}


@pytest.mark.parametrize("name", ONE)
def test_a_known_norm_becomes_one_propagation(name: str, tmp_path: Path) -> None:
    model = export_model(MODULES[name](), tmp_path / "M")
    types, options = ONE[name]
    found = [layer for layer in model.layers if layer.type not in ("affine", "scale", "keep", "join")]
    assert [layer.type for layer in found] == types
    assert options.items() <= found[-1].model_dump().items()


def test_widths_are_those_with_which_a_function_runs(tmp_path: Path) -> None:
    """Its parts may read other numbers than rows."""
    module = Forward(lambda s, x, e: x * s.lin(utils.degree(e[1], x.size(0)).view(-1, 1)), lin=nn.Linear(1, 1))
    with pytest.raises(ExportError, match="width of the rows"):
        export_model(module, tmp_path / "M")
    assert export_model(module, tmp_path / "M", features=WIDTH).features.width == WIDTH


def scaled_twice() -> dict[str, Any]:
    return {"first": of.Scaled(4, 4), "second": of.Scaled(4, 3)}


def attention(s: Any, x: Any, e: Any) -> Any:
    """Queries, keys and values are made by layers of their own."""
    scores = utils.softmax((s.query(x)[e[1]] * s.key(x)[e[0]]).sum(-1) / 2, e[1], num_nodes=len(x))
    return s.skip(x) + utils.scatter(s.value(x)[e[0]] * scores.view(-1, 1), e[1], dim=0, dim_size=len(x))


def of_heads(s: Any, x: Any, e: Any) -> Any:
    query, key, value = s.query(x).view(-1, 2, 2), s.key(x).view(-1, 2, 2), s.value(x).view(x.size(0), 2, 2)
    scores = utils.softmax((query[e[1]] * key[e[0]]).sum(-1) / 2, e[1], num_nodes=len(x))
    return s.skip(x) + utils.scatter(value[e[0]] * scores.unsqueeze(-1), e[1], dim=0, dim_size=len(x)).view(-1, 4)


def added_scores(s: Any, x: Any, e: Any) -> Any:
    h = s.value(x).view(-1, 2, 2)
    source, target = (h * h.new_ones(1, 2, 2)).sum(-1), s.key(x)[:, :2]
    scores = utils.softmax((source[e[0]] + target[e[1]]).tanh(), e[1], num_nodes=len(x))
    return utils.scatter(h[e[0]] * scores.unsqueeze(-1), e[1], dim=0, dim_size=len(x)).mean(1)


def softmax_by_hand(s: Any, x: Any, e: Any) -> Any:
    scores = (s.query(x)[e[1]] * s.key(x)[e[0]]).sum(-1)
    most = torch.full((x.size(0),), -torch.inf).scatter_reduce(0, e[1], scores, reduce="amax")
    made = torch.exp(scores - most[e[1]])
    total = torch.zeros(x.size(0)).scatter_add(0, e[1], made)
    return torch.zeros_like(x).index_add(0, e[1], (made / total[e[1]]).unsqueeze(-1) * s.value(x)[e[0]])


def of_attention() -> dict[str, Any]:
    return {name: nn.Linear(WIDTH, WIDTH) for name in ("query", "key", "value", "skip")}


TAKEN: dict[str, Any] = {
    "attention of several layers": lambda: Forward(attention, **of_attention()),
    "attention of heads": lambda: Forward(of_heads, **of_attention()),
    "a softmax by hand": lambda: Forward(softmax_by_hand, **of_attention()),
    "scores that are added": lambda: Forward(added_scores, **of_attention()),
    "attention behind a conv": lambda: Forward(
        lambda s, x, e: attention(s, s.conv(x, e).tanh(), e), conv=pyg.GraphConv(4, 4), **of_attention()
    ),
    "weights of weights": lambda: OfWeights(lambda s, x, e, w: s.conv(x, e, w * 2), conv=pyg.GCNConv(4, 4)),
    "edges without loops": lambda: Forward(
        lambda s, x, e: s.conv(x, utils.remove_self_loops(e)[0]), conv=pyg.GCNConv(4, 4)
    ),
    "edges the other way round": lambda: Forward(lambda s, x, e: of.by_hand(s, x, e.flip(0)), **scaled_twice()),
    "a mean of all but loops": lambda: Forward(
        lambda s, x, e: s.conv(x, utils.remove_self_loops(e)[0]), conv=pyg.SAGEConv(4, 4)
    ),
    "a sum of softmax and loops": lambda: Forward(
        lambda s, x, e: s.conv(x, utils.add_remaining_self_loops(e, num_nodes=x.size(0))[0]),
        conv=pyg.GATConv(4, 4, add_self_loops=False),
    ),
    "loops with a number beside what is made": lambda: OfAttributes(
        lambda s, x, e, a: s.conv(x, *utils.add_self_loops(e, s.score(a), 0.5, num_nodes=len(x))),
        conv=pyg.GINEConv(nn.Linear(4, 4)),
        score=nn.Linear(EDGE, 4),
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_is_the_module(name: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    export_model(TAKEN[name](), tmp_path / "M", features=WIDTH)


def unmasked(s: Any, x: Any, e: Any) -> Any:
    """Infinity times 0 is no number where a vertex without in-edges sends."""
    root = utils.degree(e[1], x.size(0)).pow(-0.5)
    return s.conv(x, e, root[e[0]] * root[e[1]])


def viewed(s: Any, x: Any, e: Any) -> Any:
    """Writes through another name of the same memory."""
    deg = utils.degree(e[1], x.size(0))
    other = deg.view(-1)
    other[other == 0] = 1
    return s.conv(x, e, 1 / deg[e[1]])


def unset(s: Any, x: Any, e: Any) -> Any:
    """Norms by hand, and adds a weight without a value."""
    root = utils.degree(e[1], x.size(0)).clamp(min=1).pow(-0.5)
    return utils.scatter((root[e[0]] * root[e[1]]).view(-1, 1) * x[e[0]], e[1], 0, x.size(0)) + s.bias


REFUSED: dict[str, tuple[Any, str]] = {
    "a weight without a value": (
        lambda: Forward(unset, bias=nn.Parameter(torch.full((4,), torch.nan))),
        r"^weights are NaN, infinite or past float32: bias \(4 of 4",
    ),
    "degrees of sources at one end": (
        lambda: Forward(
            lambda s, x, e: s.conv(x, e, utils.degree(e[0], x.size(0)).clamp(min=1).pow(-1)[e[0]]), conv=sym(4, 4)
        ),
        r"degrees_in_forwards.py:\d+: the number of out-edges by itself",
    ),
    "infinity that stays": (lambda: Forward(unmasked, conv=sym(4, 4)), "the module itself gives NaN or infinity"),
    "another view": (lambda: Forward(viewed, conv=sym(4, 4)), "setitem .* writes over what is read again"),
    "a mask of rows": (
        lambda: Forward(
            lambda s, x, e: s.conv(x, e, utils.degree(e[1], x.size(0)).masked_fill(x[:, 0] > 0, 1.0)[e[1]]),
            conv=sym(4, 4),
        ),
        "counts or normalises over edges by hand",
    ),
    "rows of edges": (
        lambda: Forward(lambda s, x, e: x[e[0]]),
        "is a row for each edge, and Freshet keeps one per vertex",
    ),
    "a mean of all vertices": (
        lambda: Forward(lambda s, x, e: x - (x * utils.degree(e[1], x.size(0)).view(-1, 1)).mean(0)),
        "mean reads more than one vertex or edge at once|reads something other",
    ),
    "a mask of what is no divisor": (
        lambda: Forward(
            lambda s, x, e: s.conv(
                x, e, (utils.degree(e[1], len(x)) + 1).masked_fill(utils.degree(e[1], len(x)) == 0, 0)[e[0]]
            ),
            conv=sym(4, 4),
        ),
        "it changes those rows that a mask picks",
    ),
    "no number of vertices": (
        lambda: Forward(lambda s, x, e: s.conv(x, e, utils.degree(e[1])[e[1]]), conv=sym(4, 4)),
        "max reads all vertices or edges at once",
    ),
    "counts without their number": (
        lambda: Forward(lambda s, x, e: s.conv(x, e, torch.bincount(e[1]).float()[e[1]]), conv=sym(4, 4)),
        "bincount without a number of vertices counts none behind the last one",
    ),
    "loops without it": (
        lambda: Forward(lambda s, x, e: s.conv(x, *gcn_norm(e, None)), conv=sym(4, 4)),
        "add_remaining_self_loops|gcn_norm without num_nodes adds none",
    ),
    "loops twice": (
        lambda: Forward(lambda s, x, e: s.conv(x, *gcn_norm(e, None, x.size(0))), conv=pyg.GCNConv(4, 4)),
        "gcn_norm adds self-loops to edges that have such already",
    ),
    "factors of other edges": (
        lambda: Forward(lambda s, x, e: s.conv(x, e, gcn_norm(e, None, x.size(0))[1]), conv=sym(4, 4)),
        "fails on a random graph|of other edges|The size of tensor",
    ),
    "a size of the graph": (
        lambda: Forward(lambda s, x, e: s.conv(x, e, torch.ones(e.size(1)) / e.size(1)), conv=sym(4, 4)),
        "number of edges|size of the graph",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str, tmp_path: Path) -> None:
    make, message = REFUSED[name]
    torch.manual_seed(1)
    with pytest.raises(ExportError, match=message):
        export_model(make(), tmp_path / "M", features=WIDTH)
