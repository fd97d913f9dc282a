"""Modules with kinds of vertices and relations, exported, give what PyTorch Geometric gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")

from torch import nn  # noqa: E402

from freshet.gnn.kind_layers.compiling import compile_kinds  # noqa: E402
from freshet.gnn.kinds.declarations import ByKind  # noqa: E402
from freshet.gnn.kinds.model import KindsModel, load_any_model  # noqa: E402
from freshet.gnn.oracles import whole_kinds  # noqa: E402
from freshet.gnn.pyg.export import export_model  # noqa: E402
from tests.support.graphs import hetero_modules as of  # noqa: E402
from tests.support.graphs.hetero_modules import CITES, METADATA, WIDTHS, WRITES, WRITTEN, Layers, hetero  # noqa: E402
from tests.support.graphs.kinds import random_kinds_graph  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
NAMES = {"": "vertex"}
NO_LOOPS = {"add_self_loops": False, "residual": True}


def sized(module: Any, *more: Any) -> Any:
    """The module, whose sizes the first rows have said, with drawn weights."""
    relations = METADATA[1]
    edges = {one: torch.zeros((2, 1), dtype=torch.long) for one in relations}
    module({kind: torch.zeros(2, width) for kind, width in WIDTHS.items()}, edges, *more)
    return of.randomised(module)


def inputs(model: KindsModel, seed: int) -> tuple[Any, dict[str, Any], dict[str, dict[Any, Any]]]:
    """A random graph for a model, and what a module takes of it by name."""
    graph = random_kinds_graph(model, seed)
    x = {NAMES.get(kind, kind): torch.from_numpy(x) for kind, x in zip(model.kinds, graph.x, strict=True)}
    given: dict[str, dict[Any, Any]] = {"edge_index": {}, "edge_weight": {}, "edge_attr": {}}
    for relation, edges in zip(model.relations, graph.edges, strict=True):
        ends = (NAMES.get(relation.source, relation.source), relation.type, NAMES.get(relation.target, relation.target))
        given["edge_index"][ends] = torch.from_numpy(np.stack([edges.src, edges.dst]).astype(np.int64))
        given["edge_weight"][ends] = torch.from_numpy(edges.values.weight)
        given["edge_attr"][ends] = torch.from_numpy(edges.values.full_attr(0))
    return graph, x, given


def assert_same(module: Any, folder: Path, *, run: Callable[..., Any] | None = None, **options: Any) -> KindsModel:
    """Export a module, and compare the saved model's plan with it on two graphs; returns the model."""
    export_model(module, folder, **options)
    model = load_any_model(folder)
    assert isinstance(model, KindsModel)
    for seed in (1, 2):
        graph, x, given = inputs(model, seed)
        rows = whole_kinds.forward(compile_kinds(model), graph)[-1]
        with torch.no_grad():
            call = run or (lambda x, **given: module(x, given["edge_index"]))
            out = call(x, **given)
        expected = out if isinstance(out, dict) else {model.out[0]: out}
        assert [NAMES.get(kind, kind) for kind in model.out] == [NAMES.get(one, one) for one in expected]
        for kind, want in zip(model.out, expected.values(), strict=True):
            np.testing.assert_allclose(rows[list(model.kinds).index(kind)], want.numpy(), rtol=2e-4, atol=2e-4)
    return model


@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min", "mul"])
def test_the_sage_of_pygs_example(aggr: str, tmp_path: Path) -> None:
    model = assert_same(sized(of.mag(aggr)), tmp_path)
    assert [layer.type for layer in model.layers] == ["hetero_conv", "by_kind"] * 2
    assert model.layers[0].aggr == aggr
    assert model.kinds == WIDTHS
    assert [relation.mirrors for relation in model.relations] == [None, None, 1]


FORMS: dict[str, Callable[[], Any]] = {
    "gat with skips": lambda: pyg.to_hetero(of.GatWithSkips(), METADATA),
    "gat with skips, means": lambda: pyg.to_hetero(of.GatWithSkips(), METADATA, "mean"),
    "graph sage": lambda: pyg.to_hetero(pyg.GraphSAGE((-1, -1), 8, 2, norm="batch_norm"), METADATA),
    "gat": lambda: pyg.to_hetero(pyg.GAT((-1, -1), 8, 2, 4, add_self_loops=False), METADATA),
    "gat v2": lambda: pyg.to_hetero(pyg.GAT((-1, -1), 8, 2, 4, v2=True, add_self_loops=False), METADATA),
    "jumping knowledge": lambda: pyg.to_hetero(pyg.GraphSAGE((-1, -1), 8, 3, 4, jk="cat"), METADATA),
    "jumping maxima": lambda: pyg.to_hetero(pyg.GraphSAGE((-1, -1), 8, 2, 4, jk="max"), METADATA),
    "inside": lambda: Layers([pyg.to_hetero(pyg.GraphSAGE((-1, -1), 4, 1), METADATA) for _ in range(2)]),
    "different convs": lambda: Layers([of.different(), of.different(6)], nn.Linear(6, 3)),
    "different convs, maxima": lambda: Layers([of.different(aggr="max"), of.different(6, "min")]),
    "side by side": lambda: Layers([hetero(of.sage, "cat")], nn.Linear(4, 2)),
    "gin": lambda: Layers([hetero(of.sage), hetero(lambda one: pyg.GINConv(of.mlp(4, 4)))]),
    "edge conv": lambda: Layers([hetero(of.sage), hetero(lambda one: pyg.EdgeConv(of.mlp(8, 4)))]),
    "own loops": lambda: Layers([hetero(of.sage), hetero(lambda one: pyg.GATConv(4, 4, add_self_loops=one == CITES))]),
    "shared matrix": lambda: Layers([hetero(of.sage), hetero(lambda one: pyg.GATConv(4, 4, **NO_LOOPS))]),
    "without roots": lambda: Layers([hetero(lambda one: pyg.SAGEConv((-1, -1), 4, root_weight=False))]),
    "norms by kind": lambda: sized_relbench(),
    "pygs first example": lambda: Layers([by_degrees(pyg.GCNConv(-1, 4)) for _ in range(2)], nn.Linear(4, 2)),
    "gcn without self-loops": lambda: by_degrees(pyg.GCNConv(-1, 4, add_self_loops=False, bias=False), "cat"),
    "gcn not scaled": lambda: by_degrees(pyg.GCNConv(-1, 4, normalize=False, aggr="max")),
    "hops": lambda: Layers([hetero(of.sage), by_degrees(pyg.LGConv())]),
    "a sequence inside": lambda: InSequence(),
    "hgt": lambda: of.Hgt(6, 2, 2),
    "hgt that widens": lambda: of.Hgt(4, 3, 1),
    "hgt alone": lambda: pyg.HGTConv({"paper": 5, "author": 3}, 5, METADATA),
}


class InSequence(nn.Module):
    """A Sequential that is called with dicts, and reads those of an earlier layer."""

    def __init__(self) -> None:
        super().__init__()
        steps = [
            (hetero(of.sage), "x, edges -> first"),
            (lambda x: {kind: rows.relu() for kind, rows in x.items()}, "first -> second"),
            (hetero(of.sage), "second, edges -> third"),
            (lambda x, y: {kind: torch.cat([x[kind], y[kind]], dim=1) for kind in y}, "first, third -> x"),
        ]
        self.convs, self.lin = pyg.Sequential("x, edges", steps), nn.LazyLinear(3)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        return {kind: self.lin(x) for kind, x in self.convs(x_dict, edge_index_dict).items()}


def by_degrees(conv: Any, aggr: str = "sum") -> Any:
    """A HeteroConv with that conv on the relation within one kind."""
    gat = pyg.GATConv((-1, -1), 4, add_self_loops=False)
    return pyg.HeteroConv({CITES: conv, WRITES: pyg.SAGEConv((-1, -1), 4), WRITTEN: gat}, aggr)


def sized_relbench() -> Any:
    class Widened(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.ModuleDict({kind: pyg.Linear(-1, 5) for kind in WIDTHS})
            self.gnn = of.RelBenchSAGE()

        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            return self.gnn({kind: self.encoder[kind](x) for kind, x in x_dict.items()}, edge_index_dict)

    return Widened()


@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, tmp_path: Path) -> None:
    assert_same(sized(FORMS[form]()), tmp_path)


def test_weights_and_attributes_of_relations(tmp_path: Path) -> None:
    relations = METADATA[1]
    attr = {one: torch.zeros(1, 3) for one in relations}
    module = sized(pyg.to_hetero(of.WeightedAndAttributed(), METADATA), attr, dict.fromkeys(relations, torch.ones(1)))
    run = lambda x, edge_index, edge_weight, edge_attr: module(x, edge_index, edge_attr, edge_weight)  # noqa: E731
    model = assert_same(module, tmp_path, run=run, edge_features=3)
    assert [relation.edge_features for relation in model.relations] == [3, 3, 3]


def test_weights_of_a_relation_within_a_kind(tmp_path: Path) -> None:
    class Weighted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = by_degrees(pyg.GCNConv(-1, 4, improved=True))

        def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any) -> Any:
            return self.conv(x_dict, edge_index_dict, edge_weight_dict={CITES: edge_weight_dict[CITES]})

    module = sized(Weighted(), {one: torch.ones(1) for one in METADATA[1]})
    run = lambda x, edge_index, edge_weight, edge_attr: module(x, edge_index, edge_weight)  # noqa: E731
    conv = assert_same(module, tmp_path, run=run).layers[0].convs[0].conv
    assert (conv.type, conv.edge_weights, conv.improved) == ("gcn_conv", True, True)


def test_numbers_and_columns_of_kinds(tmp_path: Path) -> None:
    class Narrow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first = {CITES: pyg.SAGEConv(5, 4), WRITES: pyg.SAGEConv((3, 5), 4), WRITTEN: pyg.SAGEConv((5, 3), 4)}
            second = {CITES: pyg.SAGEConv(2, 4), WRITES: pyg.SAGEConv((2, 2), 4), WRITTEN: pyg.SAGEConv((2, 2), 4)}
            self.first, self.second, self.lin = pyg.HeteroConv(first), pyg.HeteroConv(second), nn.Linear(4, 2)

        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            h = {kind: rows[:, 1:3] for kind, rows in self.first(x_dict, edge_index_dict).items()}
            return {kind: self.lin(rows).softmax(-1)[:, 1] for kind, rows in self.second(h, edge_index_dict).items()}

    model = export_model(of.randomised(Narrow()), tmp_path, metadata=METADATA, features=WIDTHS)
    assert isinstance(model, KindsModel)
    last = model.layers[-1]
    assert isinstance(last, ByKind)
    assert [of_kind[-1].out_width for of_kind in last.layers.values()] == [1, 1]


def test_attributes_of_one_relation_alone(tmp_path: Path) -> None:
    of_all = {CITES: of.sage(CITES), WRITES: pyg.TransformerConv((-1, -1), 4, edge_dim=2), WRITTEN: of.sage(WRITTEN)}

    class Some(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.HeteroConv(of_all)

        def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Any:
            return self.conv(x_dict, edge_index_dict, edge_attr_dict={WRITES: edge_attr_dict[WRITES]})

    module = sized(Some(), {one: torch.zeros(1, 2) for one in METADATA[1]})
    run = lambda x, edge_index, edge_weight, edge_attr: module(x, edge_index, edge_attr)  # noqa: E731
    model = assert_same(module, tmp_path, run=run)
    assert [relation.edge_features for relation in model.relations] == [0, 2, 2]  # the last one follows the second


def test_a_cg_conv_says_the_widths_of_its_attributes_and_rows(tmp_path: Path) -> None:
    of_all = {CITES: pyg.CGConv(5, dim=2), WRITES: pyg.CGConv((3, 5), dim=2), WRITTEN: pyg.SAGEConv((5, 3), 3)}

    class Some(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.HeteroConv(of_all)

        def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Any:
            given = {one: edge_attr_dict[one] for one in (CITES, WRITES)}
            return self.conv(x_dict, edge_index_dict, edge_attr_dict=given)

    module = of.randomised(Some())
    run = lambda x, edge_index, edge_weight, edge_attr: module(x, edge_index, edge_attr)  # noqa: E731
    model = assert_same(module, tmp_path, run=run)
    assert [relation.edge_features for relation in model.relations] == [2, 2, 2]  # the last one follows the second


def test_attributes_that_results_alone_read_that_are_not_returned(tmp_path: Path) -> None:
    of_all = {WRITES: pyg.SAGEConv((3, 5), 4), WRITTEN: pyg.TransformerConv((5, 3), 4, edge_dim=2)}
    module = of.randomised(pyg.HeteroConv(of_all))
    export_model(module, tmp_path, output="paper")
    model = load_any_model(tmp_path)
    assert isinstance(model, KindsModel)
    assert [relation.edge_features for relation in model.relations] == [0, 0]


def test_attributes_of_all_that_have_some_beside_a_conv_that_takes_none(tmp_path: Path) -> None:
    convs = {WRITES: pyg.SAGEConv((3, 5), 4), CITES: pyg.TransformerConv((5, 5), 4, edge_dim=2)}

    class HandsOn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.HeteroConv(convs)

        def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Any:
            return self.conv(x_dict, edge_index_dict, edge_attr_dict)["paper"]

    module = of.randomised(HandsOn())
    run = lambda x, edge_index, edge_attr, **_: module(x, edge_index, {CITES: edge_attr[CITES]})  # noqa: E731
    model = assert_same(module, tmp_path, run=run)
    assert [relation.edge_features for relation in model.relations] == [0, 2]


def test_a_method_and_one_of_its_results(tmp_path: Path) -> None:
    module = of.randomised(of.Encoded())
    for norm in module.norms.values():
        norm.module.running_var.uniform_(0.5, 2)
    run = lambda x, edge_index, **_: module.embed(x, edge_index)[0]  # noqa: E731
    assert_same(module, tmp_path / "0", run=run, method="embed", output=0)
    run = lambda x, edge_index, **_: module.embed(x, edge_index)[1]  # noqa: E731
    model = assert_same(module, tmp_path / "1", run=run, method="embed", output=1)
    assert model.out == ["paper"]


def test_rows_that_no_relation_reaches_and_rows_of_two_depths(tmp_path: Path) -> None:
    module = sized(of.OneAfterTheOther())
    model = assert_same(module, tmp_path, metadata=METADATA)
    assert [layer.type for layer in model.layers].count("hetero_conv") == 3


def test_one_kind_of_several_and_what_it_reads_alone_is_in_the_model(tmp_path: Path) -> None:
    relations = [("a", "x", "b"), ("b", "y", "c"), ("c", "z", "d")]
    module = pyg.HeteroConv({one: pyg.SAGEConv((-1, -1), 4) for one in relations})
    widths = {"a": 2, "b": 3, "c": 4, "d": 5}
    edges = {one: torch.zeros((2, 1), dtype=torch.long) for one in relations}
    module({kind: torch.zeros(1, width) for kind, width in widths.items()}, edges)
    export_model(module, tmp_path, output="b")
    model = load_any_model(tmp_path)
    assert isinstance(model, KindsModel)
    assert (model.kinds, [relation.ends for relation in model.relations]) == ({"a": 2, "b": 3}, relations[:1])


def test_relations_without_a_conv_stay_in_the_closed_list(tmp_path: Path) -> None:
    module = pyg.HeteroConv({WRITES: pyg.SAGEConv((3, 5), 4), WRITTEN: pyg.SAGEConv((5, 3), 4)})
    export_model(module, tmp_path, metadata=METADATA)
    model = load_any_model(tmp_path)
    assert isinstance(model, KindsModel)
    assert [relation.ends for relation in model.relations] == METADATA[1]


TYPED: dict[str, Callable[[], Any]] = {
    "plain": lambda: of.Typed(pyg.RGCNConv(6, 8, 3), pyg.FastRGCNConv(8, 4, 3)),
    "bases": lambda: of.Typed(pyg.RGCNConv(6, 8, 3, num_bases=2), pyg.FastRGCNConv(8, 4, 3, num_bases=3)),
    "blocks": lambda: of.Typed(pyg.RGCNConv(6, 8, 3, num_blocks=2), pyg.FastRGCNConv(8, 4, 3, num_blocks=4)),
    "sums": lambda: of.Typed(pyg.RGCNConv(6, 8, 3, aggr="sum"), pyg.FastRGCNConv(8, 4, 3, aggr="sum")),
    "maxima": lambda: of.Typed(pyg.RGCNConv(6, 8, 3, aggr="max"), pyg.RGCNConv(8, 4, 3, aggr="max", num_blocks=2)),
    "attention": lambda: of.Typed(pyg.RGATConv(6, 8, 3), pyg.RGATConv(8, 4, 3, num_bases=2, negative_slope=0.1)),
    "attention within types": lambda: of.Typed(within(num_blocks=2), pyg.RGATConv(8, 4, 3, bias=False)),
    "attention of heads": lambda: of.Typed(
        pyg.RGATConv(6, 4, 3, heads=2, num_blocks=2), pyg.RGATConv(8, 4, 3, heads=3, concat=False)
    ),
    "attention of heads within types": lambda: of.Typed(within(heads=2), pyg.RGATConv(16, 4, 3, heads=2, bias=False)),
    "products of scores": lambda: of.Typed(products(3, heads=2, num_bases=2), products(3, 8, heads=3, concat=False)),
    "several products of scores": lambda: of.Typed(products(3, heads=2, dim=2), products(3, 16, dim=3, bias=False)),
    "products of scores within types": lambda: of.Typed(
        within(attention_mode=PRODUCTS), products(3, 8, num_blocks=2, attention_mechanism="within-relation")
    ),
    "bare": lambda: of.Typed(pyg.RGCNConv(6, 8, 3, root_weight=False), pyg.RGCNConv(8, 4, 3, bias=False)),
}


PRODUCTS = "multiplicative-self-attention"


def products(types: int, into: int = 6, **options: Any) -> Any:
    return pyg.RGATConv(into, 4, types, attention_mode=PRODUCTS, **options)


def within(**options: Any) -> Any:
    return pyg.RGATConv(6, 8, 3, attention_mechanism="within-relation", **options)


@pytest.mark.parametrize("form", TYPED)
def test_rgcn(form: str, tmp_path: Path) -> None:
    module = of.randomised(TYPED[form]())

    def run(x: Any, edge_index: Any, **_: Any) -> Any:
        types = torch.cat([torch.full((one.shape[1],), i) for i, one in enumerate(edge_index.values())])
        return module(x["vertex"], torch.cat(list(edge_index.values()), dim=1), types)

    model = assert_same(module, tmp_path, run=run, edge_types=["a", "b", "c"])
    assert model.kinds == {"": 6}
    assert model.edge_types == ["a", "b", "c"]
    assert model.out == [""]


class AttributesFirst(of.TypedAttributes):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any, edge_type: Any) -> Any:
        return super().forward(x, edge_index, edge_type, edge_attr)


class Unread(of.Typed):
    def forward(self, x: Any, edge_index: Any, edge_type: Any, edge_attr: Any, edge_weight: Any) -> Any:  # type: ignore[override]
        return super().forward(x, edge_index, edge_type)


def test_types_and_attributes_have_any_order_and_need_not_be_read(tmp_path: Path) -> None:
    first = of.TypedAttributes(pyg.RGATConv(4, 4, 3, edge_dim=2), pyg.RGCNConv(4, 4, 3))
    other = AttributesFirst(first.first, first.second)
    models = [export_model(one, tmp_path / f"{i}") for i, one in enumerate((first, other))]
    assert models[0].sha256() == models[1].sha256()
    plain = of.Typed(pyg.RGCNConv(4, 4, 3), first.second)
    models = [export_model(one, tmp_path / f"u{i}") for i, one in enumerate((plain, Unread(plain.first, plain.second)))]
    assert models[0].sha256() == models[1].sha256()


def test_relations_within_one_kind(tmp_path: Path) -> None:
    module = pyg.HeteroConv({("p", "a", "p"): pyg.SAGEConv(4, 4), ("p", "b", "p"): pyg.GATConv(4, 4)})
    export_model(module, tmp_path)
    assert load_any_model(tmp_path).kinds == {"": 4}  # type: ignore[union-attr]


def test_a_module_is_sized_when_it_is_exported(tmp_path: Path) -> None:
    module = of.mag()
    model = export_model(module, tmp_path, features=WIDTHS)
    assert isinstance(model, KindsModel)
    assert model.kinds == WIDTHS
    assert any(torch.nn.parameter.is_lazy(one) for one in module.parameters())  # it is left as it is


def test_mirrors_are_given_or_found_by_name(tmp_path: Path) -> None:
    buys, bought, sees, seen = ("u", "buys", "i"), ("i", "rev_buys", "u"), ("u", "sees", "i"), ("i", "seen_by", "u")
    module = pyg.HeteroConv({one: pyg.SAGEConv((3, 3), 3) for one in (buys, bought, sees, seen)})
    given = {
        "by name": (None, [None, 0, None, None]),
        "both": ({"rev_buys": "buys", "seen_by": "sees"}, [None, 0, None, 2]),
        "by ends": ({seen: sees}, [None, None, None, 2]),
        "none": ({}, [None] * 4),
    }
    for what, (mirrors, expected) in given.items():
        model = export_model(module, tmp_path / what, mirrors=mirrors)
        assert isinstance(model, KindsModel)
        assert [relation.mirrors for relation in model.relations] == expected, what


def test_weights_of_many_relations_are_no_types(tmp_path: Path) -> None:
    relations = [("a", f"r{j}", "a") for j in range(6)]
    convs = {one: pyg.GraphConv(2, 2) for one in relations}
    model = export_model(Weighted(convs), tmp_path / "M", metadata=(["a"], relations), features={"a": 2})
    assert isinstance(model, KindsModel)
    assert len(model.relations) == len(relations)


class Weighted(nn.Module):
    def __init__(self, convs: dict[tuple[str, str, str], nn.Module]) -> None:
        super().__init__()
        self.conv = pyg.HeteroConv(convs)

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any) -> Any:
        return self.conv(x_dict, edge_index_dict, edge_weight_dict)["a"]
