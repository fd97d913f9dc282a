"""Modules with kinds that cannot be taken over, each refused by name, with its place and what would do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.pyg.errors import ExportError  # noqa: E402
from freshet.gnn.pyg.export import export_model  # noqa: E402
from tests.support.graphs import hetero_modules as of  # noqa: E402
from tests.support.graphs.hetero_modules import CITES, METADATA, WIDTHS, WRITES, WRITTEN, hetero  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
Function = Callable[[Any, Any, Any], Any]


class Two(nn.Module):
    """Whatever a function makes of two convs into papers, rows and edges."""

    def __init__(self, function: Function, first: Any = None) -> None:
        super().__init__()
        self.function = function
        self.writes = pyg.SAGEConv((3, 5), 5) if first is None else first
        self.cites, self.written = pyg.SAGEConv(5, 5), pyg.SAGEConv((5, 3), 3)
        self.other = pyg.SAGEConv((3, 5), 5)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return self.function(self, x_dict, edge_index_dict)


class Given(nn.Module):
    """Hands weights and attributes on as a function says."""

    def __init__(self, function: Callable[..., Any], conv: Any) -> None:
        super().__init__()
        self.function, self.conv = function, conv

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any, edge_attr_dict: Any) -> Any:
        pair = (x_dict["author"], x_dict["paper"])
        return self.function(self.conv, pair, edge_index_dict, edge_weight_dict, edge_attr_dict)


class OnTypes(pyg.MessagePassing):
    """A conv of one's own that reads types and attributes of edges."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.by_type = nn.Linear(2, 4), nn.Parameter(torch.ones(3, 4))

    def forward(self, x: Any, edge_index: Any, edge_type: Any, edge_attr: Any) -> Any:
        return self.propagate(edge_index, x=x, edge_type=edge_type, edge_attr=edge_attr)

    def message(self, x_j: Any, edge_type: Any, edge_attr: Any) -> Any:
        return x_j * self.by_type[edge_type] + self.lin(edge_attr)


class Alike(nn.Module):
    """A conv on all edges beside one that reads types."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.typed, self.plain, self.emb = pyg.RGCNConv(4, 4, 3), pyg.GCNConv(4, 4), nn.Embedding(9, 4)

    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        return self.function(self, x, edge_index, edge_type)


def pair(x: Any) -> tuple[Any, Any]:
    return x["author"], x["paper"]


def with_conv(conv: Any) -> Any:
    return Two(lambda m, x, e: m.writes(pair(x), e[WRITES]), conv)


def with_loops() -> Any:
    return with_conv(pyg.GATConv((3, 5), 5))


def by_data(m: Any, x: Any, e: Any) -> Any:
    return m.cites(x["paper"], e[CITES]) if e[CITES].shape[1] > 3 else x["paper"]


def two_on_one_relation(m: Any, x: Any, e: Any) -> Any:
    return {"paper": m.writes(pair(x), e[WRITES]), "Paper": m.other(pair(x), e[WRITES])}


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "edges of another relation": (
        lambda: Two(lambda m, x, e: m.writes(pair(x), e[CITES])),
        r"writes \(test_kinds_.*:\d+\): \('paper', 'cites', 'paper'\) has 'paper' as its source, got rows of 'author'",
    ),
    "edges the other way": (
        lambda: Two(lambda m, x, e: m.writes(pair(x), e[WRITTEN].flip(0))),
        r"writes \(test_kinds_.*:\d+\) reads something other than rows .*: it gets flip of shape \(2, edges\)",
    ),
    "one kind for two": (
        lambda: Two(lambda m, x, e: m.cites(x["paper"], e[WRITES])),
        r"reads \('author', 'writes', 'paper'\) with rows of one kind: give it a pair",
    ),
    "two kinds added": (lambda: Two(lambda m, x, e: x["paper"] + x["author"]), "rows of 'paper' and 'author' are put"),
    "two rows of one kind": (
        lambda: Two(lambda m, x, e: m.cites((x["paper"], x["paper"].relu()), e[CITES])),
        "cites reads two rows of one kind, x of paper and relu of 'paper'",
    ),
    "some rows": (lambda: Two(lambda m, x, e: m.writes(pair(x), e[WRITES])[:3]), "getitem keeps some of the rows"),
    "a branch": (lambda: Two(by_data), r"cannot be traced at test_kinds_refusals.py:\d+"),
    "all vertices": (lambda: Two(lambda m, x, e: m.cites(x["paper"], e[CITES]).softmax(0)), "softmax over dim=0"),
    "no conv": (lambda: Two(lambda m, x, e: x["paper"].relu()), "the module has no conv on a relation"),
    "another name": (lambda: Two(two_on_one_relation), "returns rows of kind 'paper' as 'Paper'"),
    "sources that are gone": (
        lambda: of.Layers([pyg.HeteroConv({WRITES: pyg.SAGEConv((3, 5), 5)}) for _ in range(2)]),
        r"^convs.1.convs.*writes.* has no rows of its sources: no relation of the layer before reaches them",
    ),
    "several things": (
        lambda: Two(lambda m, x, e: (x["paper"], {"paper": x["paper"]})),
        r"returns tuple, expected rows of one kind.*output=\.\.\.\): output=0, output=1",
    ),
    "an unknown kind": (lambda: Two(lambda m, x, e: x["venue"]), "there are no rows or edges of 'venue'"),
    "gcn": (lambda: with_conv(pyg.GCNConv(5, 5)), "GCNConv is not supported: it scales by degrees"),
    "hops": (
        lambda: Two(lambda m, x, e: m.writes(x["paper"], e[CITES]), pyg.ChebConv(5, 5, K=2)),
        r"ChebConv is not supported on a relation: it scales by degrees of out-edges. Nearest: TAGConv",
    ),
    "convs inside a module between kinds": (
        lambda: Two(lambda m, x, e: m.writes(x["author"], e[WRITES]), pyg.GCN(3, 4, 2)),
        r"GCN is called with edges and holds convs, which is supported with edges of one relation within one kind",
    ),
    "hops between kinds": (lambda: with_conv(pyg.LGConv()), "LGConv is not supported: it scales by degrees"),
    "another conv": (
        lambda: with_conv(pyg.GENConv((3, 5), 5, aggr=pyg.aggr.QuantileAggregation(0.5, "nearest"))),
        "interpolation='nearest': between two messages PyG itself takes one by how many edges are before them",
    ),
    "relations in another order": (
        lambda: Two(lambda m, x, e: m.writes(x, e), pyg.HGTConv(WIDTHS, 4, (METADATA[0], METADATA[1][::-1]), 2)),
        r"made for the relations in the order \[\('paper', 'rev_writes'.*Give the graph and metadata the order of",
    ),
    "a product of relations": (
        lambda: of.Layers([pyg.HeteroConv({CITES: pyg.SAGEConv(5, 5), WRITES: pyg.SAGEConv((3, 5), 5)}, "mul")]),
        r"^convs.0 \(.*\): aggr='mul' of HeteroConv is not supported. Nearest: aggr='sum'",
    ),
    "self-loops between kinds": (with_loops, "adds self-loops, from vertex i of one kind to vertex i of another"),
    "several aggregators": (
        lambda: with_conv(pyg.TransformerConv((3, 5), 5, aggr="max")),
        "TransformerConv with aggr='max' is not supported yet",
    ),
    "no target": (
        lambda: Two(lambda m, x, e: m.writes((x["author"], None), e[WRITES]), pyg.GraphConv((3, 5), 5)),
        "is called without rows of 'paper': give it those of both ends",
    ),
    "stacked": (lambda: Stacked(), "returns something other than the rows of a layer"),
    "weights of another relation": (
        lambda: Given(lambda conv, x, e, w, a: conv(x, e[WRITES], w[CITES]), pyg.GraphConv((3, 5), 4)),
        r"gets edges of \('paper', 'cites', 'paper'\) and \('author', 'writes', 'paper'\) at once",
    ),
    "attributes as weights": (
        lambda: Given(lambda conv, x, e, w, a: conv(x, e[WRITES], a[WRITES]), pyg.GraphConv((3, 5), 4)),
        "GraphConv is given attributes of edges, and reads none here",
    ),
    "no attributes": (
        lambda: Given(lambda conv, x, e, w, a: conv(x, e[WRITES]), pyg.TransformerConv((3, 5), 4, edge_dim=2)),
        "TransformerConv is called without attributes of edges: hand it edge_attr",
    ),
    "normed over all": (lambda: of.Layers([hetero(of.sage)], pyg.GraphNorm(4)), "GraphNorm"),
    "typed beside all": (
        lambda: Alike(lambda m, x, e, t: m.plain(m.typed(x, e, t), e)),
        r"plain \(.*\): GCNConv reads other edges than those of one type",
    ),
    "types by hand": (
        lambda: Alike(lambda m, x, e, t: m.typed(x, e[:, t > 0], t[t > 0])),
        r"typed \(test_kinds_.*:\d+\) is to be called with x, edge_index and edge_type as they came: it changes edges",
    ),
    "no rows": (lambda: ByIds(pyg.RGATConv(9, 4, 3)), "is called without rows of vertices. Nearest: "),
    "rows by types": (lambda: Alike(lambda m, x, e, t: m.typed(m.emb(t), e, t)), "looks up rows by the types of edges"),
    "many types": (lambda: pyg.RGATConv(2, 2, 257), "RGATConv with 257 types of edges: past 256 it is not supported"),
    "products of heads": (
        lambda: pyg.RGATConv(4, 4, 3, attention_mode="multiplicative-self-attention", dim=2, concat=False),
        "^RGATConv: RGATConv with dim=2 and concat=False is not supported yet. Nearest: concat=True, with a linear lay",
    ),
    "products with attributes": (
        lambda: of.TypedAttributes(
            pyg.RGATConv(4, 4, 3, attention_mode="multiplicative-self-attention", edge_dim=2), pyg.RGATConv(4, 4, 3)
        ),
        r"^first: RGATConv with attention_mode=.* and edge_attr is not supported: its score is a product.* Nearest: ",
    ),
    "attributes without edge_dim": (
        lambda: of.TypedAttributes(pyg.RGATConv(4, 4, 3), pyg.RGATConv(4, 4, 3)),
        r"first \(.*\): torch_geometric.nn.RGATConv is given attributes of edges, and reads none \(no edge_dim\)",
    ),
    "a conv of one's own on types": (
        lambda: of.TypedAttributes(OnTypes(), pyg.RGCNConv(4, 4, 3)),
        r"first \(.*\): .*OnTypes reads types of edges, which is not supported. Nearest: RGCNConv, RGATConv",
    ),
    "han": (
        lambda: of.Layers([pyg.HANConv(WIDTHS, 4, METADATA)]),
        r"^convs.0 \(.*HANConv weighs the 2 relations into .* stats_from=data, a HeteroData",
    ),
    "hgt on some edges": (
        lambda: Two(lambda m, x, e: m.writes(x, {WRITES: e[WRITTEN]}), pyg.HGTConv(WIDTHS, 4, METADATA)),
        r"^writes \(test_kinds_.*:\d+\) is to be called with rows by kind, and edges by relation as they came",
    ),
    "hgt without edges": (
        lambda: Two(lambda m, x, e: m.writes(x, {WRITES: e[WRITES]}), pyg.HGTConv(WIDTHS, 4, METADATA)),
        "HGTConv gets no edges into 'author', of which it makes rows all the same",
    ),
    "deviations": (lambda: pyg.RGCNConv(4, 4, 3, aggr="std"), "RGCNConv with aggr='std' is not supported yet"),
    "with bases": (lambda: with_bases(), "is made by to_hetero_with_bases, which is not supported"),
    "pairs": (lambda: Links(), r"needs edge_label_index, .*If its .encoder makes .*\(model.encoder, folder"),
    "blocks of ids": (lambda: ByIds(pyg.RGCNConv(9, 6, 3, num_blocks=3)), "num_blocks=3 is called without rows of ver"),
    "ids of many types": (
        lambda: ByIds(pyg.FastRGCNConv(9, 16, 129)),
        "its weights have 2064 columns for each vertex, 16 for each type of edges: past 2048 .* an nn.Embedding whose",
    ),
    "ids of many bases": (lambda: ByIds(pyg.RGCNConv(9, 16, 200, num_bases=130)), "2080 .* for each basis: past"),
    "other ids": (lambda: ByIds(pyg.RGCNConv(9, 4, 3), torch.arange(8)), "called with numbers that are not those of"),
    "a batch": (lambda: OfBatch(), r"takes \(rows\), expected \(x_dict, edge_index_dict"),
    "more than that": (lambda: OfMore(), "needs time_dict, expected"),
}  # fmt: skip


class Stacked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.HeteroConv({CITES: pyg.SAGEConv(5, 4), WRITES: pyg.SAGEConv((3, 5), 4)}, aggr=None)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return self.conv(x_dict, edge_index_dict)


class OfBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = hetero(of.sage)

    def forward(self, rows: Any) -> Any:
        return self.conv(rows.x_dict, rows.edge_index_dict)


class Links(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = of.Layers([hetero(of.sage)]), nn.Linear(8, 1)

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_label_index: Any) -> Any:
        x_dict = self.encoder(x_dict, edge_index_dict)
        ends = [x_dict[kind][at] for kind, at in zip(x_dict, edge_label_index, strict=True)]
        return self.decoder(torch.cat(ends, dim=-1))


class ByIds(nn.Module):
    def __init__(self, conv: Any, ids: Any = None) -> None:
        super().__init__()
        self.conv = conv
        self.register_buffer("ids", ids)

    def forward(self, edge_index: Any, edge_type: Any) -> Any:
        return self.conv(self.ids, edge_index, edge_type)


class OfMore(OfBatch):
    def forward(self, x_dict: Any, edge_index_dict: Any, time_dict: Any) -> Any:  # type: ignore[override]
        return self.conv({kind: x + time_dict[kind] for kind, x in x_dict.items()}, edge_index_dict)


def with_bases() -> Any:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.SAGEConv(5, 4)

        def forward(self, x: Any, edge_index: Any) -> Any:
            return self.conv(x, edge_index)

    return pyg.to_hetero_with_bases(Plain(), METADATA, num_bases=2, in_channels={"x": 5})


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what: str, tmp_path: Path) -> None:
    make, message = REFUSED[what]
    module = make()
    typed = "edge_type" in module.forward.__code__.co_varnames
    said: dict[str, Any] = {} if typed else {"metadata": METADATA, "features": WIDTHS}
    with pytest.raises(ExportError, match=message):
        export_model(module, tmp_path / "M", **said)
    assert not (tmp_path / "M").exists()


METADATA_OF_ONE = (["v"], [("v", "a", "v"), ("v", "b", "v")])
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no pair": ({"metadata": 3}, r"metadata is 3, expected \(kinds, relations\)"),
    "no triple": ({"metadata": (["a"], ["ab"])}, r"relation \('a', 'b'\), expected \(source kind, type, target kind\)"),
    "unknown end": ({"metadata": (["a"], [("a", "b", "c")])}, "has an end that is none of the kinds a"),
    "twice": ({"metadata": (["a", "a"], [("a", "b", "a")])}, r"kinds are \['a', 'a'\], expected each once"),
    "kinds missing": ({"metadata": (["paper"], [CITES])}, "metadata has no relation .*writes.*, which the mod"),
    "no such mirror": ({"mirrors": {"rev_writes": "wrote"}}, "mirrors: there is no relation 'wrote'; there are"),
    "other ends": ({"mirrors": {"rev_writes": "cites"}}, "does not run between the ends of 'cites' the other"),
    "itself": ({"mirrors": {"cites": "cites"}}, "mirrors: 'cites' follows itself, which is what the job's"),
    "each other": ({"mirrors": {"rev_writes": "writes", "writes": "rev_writes"}}, "which follows another one itself"),
    "one number": ({"features": 5}, "features=5: there are several kinds, so give the width of each"),
    "unknown kind": ({"features": {"venue": 5}}, "features has the kind 'venue'; kinds are paper, author"),
    "another width": ({"features": {"author": 4}}, "reads rows of width 3 of the kind 'author'.* got 4"),
    "statistics": ({"stats_from": (0, 0)}, "stats_from: got tuple, expected a HeteroData, or "),
    "statistics without a kind": ({"stats_from": ({"paper": [[0.0] * 5]}, {})}, "has no vertices of kind 'author'"),
    "statistics without edges": (
        {"stats_from": ({"paper": [[0.0] * 5], "author": [[0.0] * 3]}, {})}, "stats_from has no edges of .*cites"
    ),
    "head": ({"head": "convs"}, "head=.convs. is not the end of the module"),
    "types": ({"edge_types": ["a"]}, "edge_types are those of metadata here"),
    "attributes": ({"edge_features": 3}, "edge_features are 3, but the module reads attributes of width 0"),
    "no mirrors": ({"mirrors": ["rev_writes"]}, r"mirrors is \['rev_writes'\], expected the type of a relation"),
    "a number for a mirror": ({"mirrors": {1: 2}}, "mirrors: there is no relation 1; there are"),
    "no width": ({"features": {"paper": "5"}}, "features: the width of kind 'paper' is '5', expected a whole number"),
    "no such method": ({"method": "embed", "metadata": METADATA}, "method='embed' is no method of Layers; it has"),
    "no such result": ({"output": "venue"}, "output='venue': Layers.forward returns 'paper', 'author'"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_is_said_of_a_module_must_fit_it(what: str, tmp_path: Path) -> None:
    options, message = WRONG[what]
    relations = {CITES: pyg.SAGEConv(5, 4), WRITES: pyg.SAGEConv((3, 5), 4), WRITTEN: pyg.SAGEConv((5, 3), 4)}
    with pytest.raises(ExportError, match=message):
        export_model(of.Layers([pyg.HeteroConv(relations)]), tmp_path / "M", **options)


TYPES: dict[str, tuple[dict[str, Any], str]] = {
    "too few types": ({"edge_types": ["a"]}, "RGCNConv has num_relations=2, but there are 1 types of edges"),
    "several kinds": ({"metadata": METADATA}, "metadata names 2 kinds, .* that all lead from one kind to another"),
    "another width": ({"features": 5}, "reads rows of width 4 of the kind '', .* got 5"),
}


@pytest.mark.parametrize("what", TYPES)
def test_what_is_said_of_types_must_fit_the_module(what: str, tmp_path: Path) -> None:
    options, message = TYPES[what]
    with pytest.raises(ExportError, match=message):
        export_model(pyg.RGCNConv(4, 4, 2), tmp_path / "M", **options)
    export_model(pyg.RGCNConv(4, 4, 2), tmp_path / "M", metadata=METADATA_OF_ONE, features=4)


def test_a_module_that_does_not_say_its_kinds_is_told_to(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"does not say its kinds of vertices and edges: .* metadata=\(kinds"):
        export_model(of.OneAfterTheOther(), tmp_path / "M")
    with pytest.raises(ExportError, match=r"size is not known yet .*features=\{'paper': N"):
        export_model(of.OneAfterTheOther(), tmp_path / "M", metadata=METADATA)
    with pytest.raises(ExportError, match=r"features=\{'a': 3\}: the module has no kinds of vertices, so"):
        export_model(pyg.GCN(3, 4, 2), tmp_path / "M", features={"a": 3})


def test_a_module_that_differs_from_what_was_read_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from freshet.gnn.pyg.kinds import levels

    monkeypatch.setattr(levels.Scheduler, "aggr", lambda self, layer: "max")
    relations = {CITES: pyg.SAGEConv(5, 4), WRITES: pyg.SAGEConv((3, 5), 4), WRITTEN: pyg.SAGEConv((5, 3), 4)}
    with pytest.raises(ExportError, match="the exported full pass differs from the module: largest difference"):
        export_model(of.Layers([pyg.HeteroConv(relations)]), tmp_path / "M")


class Counts(nn.Module):
    """A module whose rows depend on the dict of edges itself."""

    def __init__(self, factor: Callable[[Any], int]) -> None:
        super().__init__()
        self.conv, self.factor = hetero(of.sage), factor

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        factor = self.factor(edge_index_dict)
        return {kind: factor * x for kind, x in self.conv(x_dict, edge_index_dict).items()}


@pytest.mark.parametrize("factor", [len, lambda edges: 1 + list(edges).index(METADATA[1][0])])
def test_relations_are_counted_where_metadata_says_them(factor: Callable[[Any], int], tmp_path: Path) -> None:
    export_model(Counts(lambda edges: 2), tmp_path / "L", features=WIDTHS)
    export_model(Counts(factor), tmp_path / "M", features=WIDTHS, metadata=METADATA)
    with pytest.raises(ExportError, match=r"depend on how many relations the data has, .* give metadata="):
        export_model(Counts(factor), tmp_path / "N", features=WIDTHS)


class AsksForAnother(Counts):
    """A module whose rows depend on a relation that no conv has."""

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        factor = 2 if edge_index_dict.get(("paper", "sells", "author")) is None else 3
        return {kind: factor * x for kind, x in self.conv(x_dict, edge_index_dict).items()}


def test_whether_a_relation_is_there_is_read_where_metadata_says_it(tmp_path: Path) -> None:
    export_model(AsksForAnother(len), tmp_path / "M", features=WIDTHS, metadata=METADATA)
    with pytest.raises(ExportError, match="depend on how many relations the data has"):
        export_model(AsksForAnother(len), tmp_path / "N", features=WIDTHS)
