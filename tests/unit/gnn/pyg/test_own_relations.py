"""Convs of the user's own on relations are read as they run; export_model itself compares them with the module."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pyg = pytest.importorskip("torch_geometric.nn")

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch_geometric.utils import add_remaining_self_loops, degree, softmax  # noqa: E402

from freshet.gnn.kinds.declarations import HeteroConv  # noqa: E402
from freshet.gnn.own.loading import load_layers  # noqa: E402
from freshet.gnn.pyg.export import ExportError, export_model  # noqa: E402
from tests.support.graphs import read_convs as of  # noqa: E402
from tests.support.graphs.hetero_modules import CITES, METADATA, WIDTHS, WRITES, Layers, randomised  # noqa: E402
from tests.support.graphs.own import pooled_convs as pooled  # noqa: E402
from tests.support.simulation.module_cases import hold  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
ALIKE, SAME = {"paper": 4, "author": 4}, ["message_conv"] * 3
EXPORTED: dict[str, tuple[Callable[[], Any], list[str], dict[str, int] | None]] = {
    "gate": (lambda: of.on_relations(of.GatedRelation), SAME, None),
    "attention": (lambda: of.on_relations(of.AttentionRelation), SAME, None),
    "attributes": (lambda: of.on_relations(lambda *widths: of.AttributedRelation(*widths, 3)), SAME, None),
    "several aggregates": (lambda: of.on_relations(of.WeightedRelation), SAME, WIDTHS),
    "degrees of the relation": (lambda: of.on_relations(of.DegreesRelation), SAME, None),
    "a class of PyG's": (lambda: of.on_relations(lambda s, t, out: of.DoubledSAGE((s, t), out)), SAME, None),
    "own and built in": (
        of.own_and_built_in,
        ["message_conv", "sage_conv", "message_conv", "message_conv"],  # nothing reads papers behind the second
        None,
    ),
    "to_hetero": (lambda: pyg.to_hetero(of.GatedTwice(4), METADATA), SAME * 2, ALIKE),
    "to_hetero with values of edges": (lambda: pyg.to_hetero(of.OfEdges(4, 3), METADATA), SAME * 2, ALIKE),
    "to_hetero with both in one": (lambda: pyg.to_hetero(of.OfEdges(4, 3, both=True), METADATA), SAME * 2, ALIKE),
    "ResGatedGraphConv": (lambda: of.on_relations(lambda s, t, out: pyg.ResGatedGraphConv((s, t), out)), SAME, None),
    "FiLMConv": (lambda: of.on_relations(lambda s, t, out: pyg.FiLMConv((s, t), out)), SAME, None),
    "GENConv": (lambda: of.on_relations(lambda s, t, out: pyg.GENConv((s, t), out, learn_t=True)), SAME, None),
    "GeneralConv": (
        lambda: of.on_relations(lambda s, t, out: pyg.GeneralConv((s, t), out, attention=True, heads=2)), SAME, None,
    ),
    "NNConv": (
        lambda: of.on_relations(lambda s, t, out: pyg.NNConv((s, t), out, nn.Linear(3, s * out))), SAME, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTED)
def test_convs_of_ones_own_on_relations(name: str, tmp_path: Path) -> None:
    make, expected, features = EXPORTED[name]
    torch.manual_seed(3)
    model: Any = export_model(make().eval(), tmp_path / "M", metadata=METADATA, features=features)
    assert [one.conv.type for layer in model.layers if isinstance(layer, HeteroConv) for one in layer.convs] == expected
    assert model.declaration() == type(model)(**model.declaration(), weights=model.weights).declaration()


class Halves(pyg.MessagePassing):
    """A conv that fails with rows of another width than 4, and of which nothing says so."""

    def forward(self, x: Any, edge_index: Any) -> Any:
        x = of.both(x)
        return self.propagate(edge_index, x=x, size=(len(x[0]), len(x[1]))) + x[1]

    def message(self, x_j: Any) -> Any:
        return x_j.view(-1, 2, 2).sum(dim=1).repeat(1, 2)


def test_a_conv_that_is_one_conv_stays_one_whatever_says_how_wide_its_rows_are(tmp_path: Path) -> None:
    module = of.on_relations(lambda s, t, out: Halves()).eval()
    model: Any = export_model(module, tmp_path / "M", metadata=METADATA, features=ALIKE)
    assert [len(layer.convs) for layer in model.layers] == [3]


def test_a_conv_is_read_a_few_times_however_many_convs_stand_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The widths of its rows are those that all these make."""
    from freshet.gnn.pyg.own import conv

    times, read = list[str](), conv.read
    monkeypatch.setattr(conv, "read", lambda step, *more: [times.append(step.name), read(step, *more)][1])
    relations = [("user", f"r{i}", "user") for i in range(3)]
    layers = [pyg.HeteroConv({one: pyg.ResGatedGraphConv(4, 4) for one in relations}) for _ in range(4)]
    export_model(Layers(layers).eval(), tmp_path / "M", metadata=(["user"], relations), features={"user": 4})
    assert len(set(times)) == 12 and len(times) < 6 * 12


class Signed(pyg.MessagePassing):
    """A conv with a further parameter."""

    def forward(self, x: Any, edge_index: Any, sign: float = 1.0) -> Any:
        return sign * self.propagate(edge_index, x=x)


class CalledTwice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = Signed()

    def forward(self, x: Any, edges: Any) -> Any:
        pair, of_edges = (x["author"], x["paper"]), edges[WRITES]
        return self.conv(pair, of_edges).tanh() + self.conv(pair, of_edges, sign=-0.5)


def test_a_conv_is_called_twice_with_other_constants_by_a_forward(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"width of the features of kind 'paper' is unknown.*features={'paper': N}"):
        export_model(CalledTwice(), tmp_path / "M", metadata=METADATA)
    model: Any = export_model(CalledTwice(), tmp_path / "M", metadata=METADATA, features=WIDTHS)
    assert sum(isinstance(layer, HeteroConv) for layer in model.layers) == 2


class Refused(pyg.MessagePassing):
    """A conv that does something else with messages, or before them."""

    def __init__(self, source: int, target: int, out: int) -> None:
        super().__init__(aggr="add")
        self.value, self.key = nn.Linear(source, out), nn.Linear(target, out)

    def forward(self, x: Any, edge_index: Any, what: Any = None) -> Any:
        x = of.both(x)
        return self.propagate(edge_index, v=self.value(x[0]), k=self.key(x[1]), size=(len(x[0]), len(x[1])))

    def message(self, v_j: Any, k_i: Any, index: Any, size_i: Any) -> Any:
        return v_j


class Sorted(Refused):
    def message(self, v_j: Any, k_i: Any, index: Any, size_i: Any) -> Any:
        return v_j.sort(dim=0).values


class ByHand(Refused):
    def forward(self, x: Any, edge_index: Any, what: Any = None) -> Any:
        x = of.both(x)
        scaled = 1 / degree(edge_index[1], len(x[1]), dtype=x[1].dtype).clamp(min=1).unsqueeze(1)
        return self.propagate(edge_index, v=self.value(x[0]), k=scaled, size=(len(x[0]), len(x[1])))

    def message(self, v_j: Any, k_i: Any, index: Any, size_i: Any) -> Any:
        return k_i * v_j


class TwoSums(Refused):
    def message(self, v_j: Any, k_i: Any, index: Any, size_i: Any) -> Any:
        return v_j + v_j * softmax(v_j + k_i, index, None, size_i)


class WithLoops(Refused):
    def forward(self, x: Any, edge_index: Any, what: Any = None) -> Any:
        return super().forward(x, add_remaining_self_loops(edge_index)[0])


class NoEdges(Refused):
    def forward(self, x: Any, edge_index: Any, what: Any = None) -> Any:
        return self.key(of.both(x)[1])


REFUSED: dict[str, tuple[Any, str]] = {
    "sort": (Sorted, r"Sorted is not supported: test_own_relations.py:\d+: sort is no function of rows.*own_layers.md"),
    "degrees in messages": (ByHand, "its messages read an aggregate of edges.*Nearest: aggr='mean' for degrees"),
    "self-loops": (
        WithLoops,
        r"cannot be run on a small graph \(with rows of width 3 and 5 it raises IndexError: Found indices",
    ),
    "no edges": (NoEdges, "it aggregates nothing"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_read_is_named(name: str, tmp_path: Path) -> None:
    make, message = REFUSED[name]
    with pytest.raises(ExportError, match=message):
        export_model(of.on_relations(make), tmp_path / "M", metadata=METADATA)
    assert not (tmp_path / "M").exists()


OF_SEVERAL: dict[str, tuple[Callable[..., Any], int]] = {
    "two sums": (TwoSums, 2),
    "sums and degrees in one": (lambda s, t, out: pyg.MFConv((s, t), out, max_degree=3), 1),
    "softmax beside a maximum": (lambda s, t, out: pyg.SAGEConv((s, t), out, aggr=["softmax", "max", "powermean"]), 3),
    "attention between aggregates": (
        lambda s, t, out: pyg.SAGEConv(
            (s, t),
            out,
            aggr=["mean", "softmax"],
            aggr_kwargs={"mode": "attn", "mode_kwargs": {"in_channels": s, "out_channels": 4, "num_heads": 2}},
        ),
        2,
    ),
}


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_a_conv_of_several_aggregates_is_a_conv_for_each(name: str, tmp_path: Path) -> None:
    make, many = OF_SEVERAL[name]
    module = randomised(pyg.HeteroConv({WRITES: make(3, 5, 4)}))
    model: Any = export_model(module, tmp_path / "M", metadata=METADATA, features=WIDTHS)
    assert len([layer for layer in model.layers if isinstance(layer, HeteroConv)]) == many
    module = module.double()
    hold(model, lambda given: module(given.x, given.edges)["paper"], (1,))


class WithPositions(nn.Module):
    """Convs that are called with pairs of rows, of positions and of others, between two kinds and within one."""

    def __init__(self) -> None:
        super().__init__()
        self.lins = pyg.HeteroDictLinear(WIDTHS, 4)
        self.cloud = pyg.PointNetConv(nn.Linear(6, 4), nn.Linear(4, 4), add_self_loops=False)
        self.conv = pyg.HeteroConv({WRITES: Sided(), CITES: Sided()})

    def forward(self, x_dict: Any, edges: Any, edge_attr_dict: Any) -> Any:
        x, pos = self.lins(x_dict), {kind: x[:, -2:] for kind, x in x_dict.items()}
        ends = "author", "paper"
        cloud = self.cloud(tuple(x[one] for one in ends), tuple(pos[one] for one in ends), edges[WRITES])
        return self.conv(x, pos, edges, z_dict=x_dict | {"paper": cloud}, edge_attr_dict=edge_attr_dict)["paper"]


class Sided(pyg.MessagePassing):
    """A conv of three pairs of rows, one of them by name, and of attributes."""

    def __init__(self) -> None:
        super().__init__(aggr="max")
        self.lin = nn.Linear(3, 4)

    def forward(self, x: Any, pos: Any, edge_index: Any, z: Any, edge_attr: Any) -> Any:
        x, z = (x, x) if isinstance(x, torch.Tensor) else x, z if isinstance(z, torch.Tensor) else z[1]
        size = len(x[0]), len(x[1])
        return self.propagate(edge_index, x=x, pos=pos, edge_attr=edge_attr, size=size) - z.sum(1, keepdim=True)

    def message(self, x_j: Any, x_i: Any, pos_j: Any, pos_i: Any, edge_attr: Any) -> Any:
        return x_j * (pos_j - pos_i).norm(dim=1, keepdim=True) + x_i * self.lin(edge_attr)


def test_a_conv_is_called_with_several_pairs_of_rows(tmp_path: Path) -> None:
    module = randomised(WithPositions())
    model: Any = export_model(module, tmp_path / "M", metadata=METADATA, features=WIDTHS)
    exact = module.double()
    hold(model, lambda given: exact(given.x, given.edges, given.attributes), (1, 2))


class OtherEnds(WithPositions):
    """The same pair of rows is not the same at both ends of a relation within a kind."""

    def forward(self, x_dict: Any, edges: Any) -> Any:  # type: ignore[override]
        x = self.lins(x_dict)["paper"]
        return self.cloud((x, x.relu()), (x[:, :2], x[:, :2]), edges[CITES])


def test_pairs_of_other_rows_within_a_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="within one kind, where both ends have the same: give it x and pos"):
        export_model(OtherEnds(), tmp_path / "M", metadata=METADATA, features=WIDTHS)


WRITTEN: dict[str, tuple[Callable[[], Any], dict[str, int] | None]] = {
    "Gate": (lambda: of.on_relations(of.GatedRelation), None),
    "Attention": (lambda: of.on_relations(of.AttentionRelation), None),
    "Attributed": (lambda: of.on_relations(lambda *widths: of.AttributedRelation(*widths, 3)), None),
    "Weighted": (lambda: of.on_relations(lambda s, t, out: pyg.GraphConv((s, t), out)), None),
    "Plain": (lambda: of.on_relations(pooled.PlainRelation), None),
    "Median": (lambda: of.on_relations(pooled.MedianRelation), None),
    "Largest": (lambda: of.on_relations(lambda *widths: pooled.LargestRelation(*widths, "max")), None),
    "to_hetero": (lambda: pyg.to_hetero(of.GatedTwice(4), METADATA), ALIKE),
}


class Weighing(nn.Module):
    """Hands weights of edges to a HeteroConv."""

    def __init__(self, conv: Any) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x: Any, edges: Any, edge_weight_dict: Any) -> Any:
        return self.conv(x, edges, edge_weight_dict)


@pytest.mark.parametrize("name", WRITTEN)
def test_written_layers_stand_in_the_places_of_convs_on_relations(name: str, tmp_path: Path) -> None:
    """With widths of both ends, and none of targets where no function reads them."""
    make, features = WRITTEN[name]
    load_layers(["tests.support.graphs.own.written_layers"])
    torch.manual_seed(3)
    module = Weighing(make()) if name == "Weighted" else make()
    model: Any = export_model(module.eval(), tmp_path / "M", metadata=METADATA, features=features)
    convs = [one.conv for layer in model.layers if isinstance(layer, HeteroConv) for one in layer.convs]
    assert {conv.type for conv in convs} == {"own_layer"} and len(convs) in (3, 6)
    if name not in ("Plain", "Median", "Largest"):
        assert [conv.target_width for conv in convs[:3]] == ([5, 5, 3] if features is None else [4, 4, 4])
    else:
        assert not any(conv.reads_own for conv in convs)
    assert model.declaration() == type(model)(**model.declaration(), weights=model.weights).declaration()


def test_what_a_written_layer_on_a_relation_lacks_is_named(tmp_path: Path) -> None:
    load_layers(["tests.support.graphs.own.written_layers"])
    unweighed = of.on_relations(lambda s, t, out: pyg.GraphConv((s, t), out))
    named = r"cites.*written_layers:Weighted.message reads the weight of an edge, and the module is handed none"
    with pytest.raises(ExportError, match=named):
        export_model(unweighed, tmp_path / "M", metadata=METADATA)
    failing = of.on_relations(lambda s, t, out: of.GatedRelation(s, 7, out))
    with pytest.raises(ExportError, match=r"in whose place .*:Gate stands: .* with rows of width 5 it raises"):
        export_model(failing, tmp_path / "M", metadata=METADATA, features=WIDTHS)


def test_a_written_layer_that_is_not_its_module_is_shown_on_the_smallest_graph_of_kinds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A maximum that is doubled: one edge of a relation tells them apart."""
    from tests.support.graphs.own import written_layers

    load_layers([written_layers.__name__])
    monkeypatch.setattr(written_layers.Highest, "fold", lambda self, rows: 2 * rows.max(axis=0))
    module = of.on_relations(lambda *widths: pooled.LargestRelation(*widths, "max"))
    with pytest.raises(ExportError, match=r"written_layers:Largest is not the module in whose place .*\n") as refused:
        export_model(module.eval(), tmp_path / "M", metadata=METADATA)
    *case, rows, _ = str(refused.value).splitlines()[1:]
    assert [line.split()[:4] for line in case if line.startswith("edge ")] == [["edge", case[-1].split()[1], "->", "0"]]
    assert case[-1].split()[5] in ("cites", "writes", "rev_writes")
    assert rows.startswith("vertex 0 of ") and "but the module makes [" in rows
    assert not (tmp_path / "M").exists()
