"""A forward picks edges by their types, and hands those of each to a conv: a relation each.

`export_model` compares each model with the module itself in float64, also where types have no edges.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402
from torch_geometric import utils  # noqa: E402
from torch_geometric.nn.conv.rgcn_conv import masked_edge_index  # noqa: E402

from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402

Pick = Callable[[Any, Any, int], Any]
TYPES = 3


class Picking(nn.Module):
    """A conv for each of three types of edges, whose edges a function picks."""

    def __init__(self, function: Callable[..., Any], make: Callable[[], Any] = lambda: pyg.SAGEConv(4, 4)) -> None:
        super().__init__()
        self.function, self.num_relations = function, TYPES
        self.convs = nn.ModuleList(make() for _ in range(TYPES))
        self.all, self.encoder, self.of_types = pyg.RGCNConv(4, 4, TYPES), nn.Linear(2, 4), nn.Embedding(TYPES, 4)
        self.attended = pyg.RGATConv(4, 4, TYPES, edge_dim=4)

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        return self.function(self, x, edge_index, edge_type)


class Weighing(Picking):
    def forward(self, x: Any, edge_index: Any, edge_type: Any, edge_weight: Any = None) -> Any:  # type: ignore[override]
        return self.function(self, x, edge_index, edge_type, edge_weight)


class Attributed(Picking):
    def forward(self, x: Any, edge_index: Any, edge_type: Any, edge_attr: Any) -> Any:  # type: ignore[override]
        return self.function(self, x, edge_index, edge_type, edge_attr)


def added(pick: Pick) -> Callable[..., Any]:
    def function(s: Any, x: Any, e: Any, t: Any) -> Any:
        out = 0
        for number, conv in enumerate(s.convs):
            out = out + conv(x, pick(e, t, number))
        return out.relu()

    return function


PICKS: dict[str, Pick] = {
    "a mask": lambda e, t, k: e[:, t == k],
    "a mask of a constant": lambda e, t, k: e[..., t.view(-1).eq(torch.tensor(k))],
    "numbers from 1": lambda e, t, k: e[:, t + 1 == k + 1],
    "places": lambda e, t, k: e[:, (t == k).nonzero().view(-1)],
    "places as a tuple": lambda e, t, k: e[:, (t == k).nonzero(as_tuple=True)[0]],
    "where": lambda e, t, k: e.index_select(1, torch.where(t == k)[0]),
    "both ends": lambda e, t, k: torch.stack([e[0][t == k], e[1][t == k]]),
    "turned": lambda e, t, k: e.t()[t == k].t().contiguous(),
    "by two masks": lambda e, t, k: e[:, ~(t > k) & (t >= k)],
    "PyG's own": lambda e, t, k: masked_edge_index(e, t == k),
}


def shared(s: Any, x: Any, e: Any, t: Any, a: Any) -> Any:
    made = s.encoder(a).relu()
    return s.convs[0](x, e[:, t == 0], made[t == 0]) + s.convs[1](x, e[:, t == 1], made[t == 1, :].tanh())


def of_degrees(s: Any, x: Any, e: Any, t: Any, a: Any) -> Any:
    one = e[:, t == 1]
    return s.convs[0](x, one, s.encoder(a[t == 1]) * utils.degree(one[1], len(x))[one[1]].view(-1, 1))


def gine() -> Any:
    return pyg.GINEConv(nn.Linear(4, 4))


TAKEN: dict[str, Callable[[], Any]] = {
    **{name: lambda pick=pick: Picking(added(pick)) for name, pick in PICKS.items()},
    "convs with loops": lambda: Picking(added(PICKS["a mask"]), lambda: pyg.GCNConv(4, 4)),
    "one type in the next layer": lambda: Picking(
        lambda s, x, e, t: s.convs[1](s.convs[0](x, e[:, t == 0]).relu(), e[:, t == 2])
    ),
    "beside a conv of all types": lambda: Picking(lambda s, x, e, t: s.all(x, e, t) + s.convs[0](x, e[:, t == 1])),
    "weights": lambda: Weighing(
        lambda s, x, e, t, w: s.convs[0](x, e[:, t == 0], w[t == 0]) - s.convs[1](x, e[:, t == 1]),
        lambda: pyg.GraphConv(4, 4),
    ),
    "weights if any": lambda: Weighing(
        lambda s, x, e, t, w: s.convs[0](x, e[:, t == 0], None if w is None else w[t == 0]),
        lambda: pyg.GCNConv(4, 4),
    ),
    "attributes of some": lambda: Attributed(
        lambda s, x, e, t, a: s.convs[0](x, e[:, t == 0], s.encoder(a[t == 0])), gine
    ),
    "attributes encoded before": lambda: Attributed(shared, gine),
    "degrees of a type": lambda: Attributed(of_degrees, gine),
}  # fmt: skip


@pytest.mark.parametrize("name", TAKEN)
def test_is_the_module(name: str, tmp_path: Path) -> None:
    model: Any = export_model(TAKEN[name](), tmp_path / "M", edge_types=["a", "b", "c"])
    assert [one.type for one in model.relations] == ["a", "b", "c"]


def test_weights_and_attributes_of_types_that_read_them(tmp_path: Path) -> None:
    model: Any = export_model(TAKEN["weights if any"](), tmp_path / "M")
    assert [one.conv.edge_weights for layer in model.layers for one in layer.convs] == [True]
    model = export_model(TAKEN["attributes of some"](), tmp_path / "N")
    assert [one.edge_features for one in model.relations] == [2, 0, 0]


OTHERS = "reads other edges than those of one type"
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "weights of another type": (
        lambda: Weighing(
            lambda s, x, e, t, w: s.convs[0](x, e[:, t == 0], w[t == 1]), lambda: pyg.GraphConv(4, 4)
        ),
        "'0', 'vertex'. and .'vertex', '1', 'vertex'. at once",
    ),
    "two types": (lambda: Picking(lambda s, x, e, t: s.convs[0](x, e[:, t < 2])), OTHERS),
    "no type": (lambda: Picking(lambda s, x, e, t: s.convs[0](x, e[:, t == 7])), OTHERS),
    "all types": (lambda: Picking(lambda s, x, e, t: s.convs[0](x, e)), OTHERS),
    "types as places": (lambda: Picking(added(lambda e, t, k: e[:, t])), OTHERS),
    "the other way round": (lambda: Picking(added(lambda e, t, k: e[:, t == k].flip(0))), OTHERS),
    "edges by a count": (lambda: Picking(added(lambda e, t, k: e[:, : (t == k).sum()])), "it changes edges"),
    "types that are written over": (
        lambda: Picking(lambda s, x, e, t: s.all(x, e, t.sub_(1)) + s.convs[0](x, e[:, t == 0])), "sub_ .* writes over"
    ),
    "self-loops": (lambda: Picking(added(lambda e, t, k: e[:, e[0] == e[1]])), "it changes edges"),
    "as many as of another type": (
        lambda: Picking(added(lambda e, t, k: e[:, t == 0].view(2, e[:, t == 1].size(1)))), "a size of the graph",
    ),
    "whether there are some": (
        lambda: Picking(lambda s, x, e, t: s.convs[0](x, e[:, t == 0]) if (t == 0).any() else x),
        r"branches on edges at test_edges_of_types.py:\d+, as on which types there are",
    ),
    "the types that there are": (
        lambda: Picking(lambda s, x, e, t: sum(s.convs[int(k)](x, e[:, t == k]) for k in t.unique())),
        "branches on edges .* range.num_relations.",
    ),
    "the type of the first edge": (
        lambda: Picking(lambda s, x, e, t: s.convs[0](x, e[:, t == t[0]]) + s.convs[1](x, e[:, t == t[[0]]])),
        "eq .* something other than rows",
    ),
    "a mask as weights": (
        lambda: Picking(lambda s, x, e, t: s.convs[0](x, e, (t == 0).float()), lambda: pyg.GraphConv(4, 4)),
        "types of edges become numbers of a message. Nearest: a conv for each type",
    ),
    "rows by types": (
        lambda: Picking(lambda s, x, e, t: s.convs[0](x, e, s.of_types(t)), gine), "looks up rows by the types of edges"
    ),
    "attributes less their mean": (
        lambda: Attributed(
            lambda s, x, e, t, a: s.convs[0](x, e[:, t == 0], s.encoder(a - a.mean(0))[t == 0]), gine
        ),
        "mean reads more than one vertex or edge at once",
    ),
    "degrees of another type": (
        lambda: Attributed(
            lambda s, x, e, t, a: s.convs[0](
                x, e[:, t == 0], s.encoder(a[t == 0]) * utils.degree(e[1, t == 1], len(x))[e[1, t == 0]].view(-1, 1)
            ),
            gine,
        ),
        "at once, and what these have",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str, tmp_path: Path) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ExportError, match=message):
        export_model(make(), tmp_path / "M")


def test_many_types_are_not_picked(tmp_path: Path) -> None:
    module = Picking(lambda s, x, e, t: s.all(x, e[:, t != 0], t[t != 0]))
    module.num_relations, module.all = 41, pyg.RGCNConv(4, 4, 41)
    with pytest.raises(ExportError, match=r"ne .* something other than rows|is to be called with x, edge_index"):
        export_model(module, tmp_path / "M")
    module.num_relations, module.all = 3, pyg.RGCNConv(4, 4, 3)
    with pytest.raises(ExportError, match="is to be called with x, edge_index and edge_type as they came"):
        export_model(module, tmp_path / "M")


def test_how_many_types_there_are_is_asked_for(tmp_path: Path) -> None:
    module = Picking(lambda s, x, e, t: s.convs[0](x, e[:, t == 0]))
    del module.all, module.attended, module.num_relations
    with pytest.raises(ExportError, match=r"says how many types edge_type has .* say edge_types="):
        export_model(module, tmp_path / "M")
    export_model(module, tmp_path / "M", edge_types=["a", "b"])
