"""Models with kinds of several layers: the plan against the oracle, and both against PyG's to_hetero and HeteroConv."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshet.gnn.kind_layers.compiling import compile_kinds
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import build_model
from freshet.gnn.oracles import kinds as oracle
from freshet.gnn.oracles import own_scale, whole_kinds
from freshet.gnn.plan import compile_plan
from freshet.kinds_graph import KindsGraph
from freshet.schema import Graph
from tests.support.graphs.kinds import (
    KINDS,
    RELATIONS,
    Spec,
    by_kind,
    hetero,
    kinds_model,
    random_kinds_graph,
    random_model_of_kinds,
    relation,
    sage,
    sage_everywhere,
)

TOLERANCE = 1e-4


def embeddings(model: KindsModel, graph: KindsGraph) -> dict[str, np.ndarray]:
    last = whole_kinds.forward(compile_kinds(model), graph)[-1]
    numbers = {kind: i for i, kind in enumerate(model.kinds)}
    return {kind: last[numbers[kind]] for kind in model.out}


def assert_within_its_scale(model: KindsModel, graph: KindsGraph) -> None:
    got, expected = embeddings(model, graph), oracle.forward(model, graph, tolerance=TOLERANCE)
    assert got.keys() == expected.keys() == set(model.out)
    for kind, rows in got.items():
        far = np.abs(rows - expected[kind].rows)
        assert rows.shape == expected[kind].rows.shape
        assert (far <= 2e-6 * expected[kind].scale + 1e-7).all(), (kind, (far / expected[kind].scale).max())


@pytest.mark.parametrize("seed", range(40))
def test_random_models_equal_the_oracle(seed: int) -> None:
    model = random_model_of_kinds(seed)
    assert_within_its_scale(model, random_kinds_graph(model, seed))


def test_a_conv_of_one_kind_is_the_same_with_relations_and_without() -> None:
    spec = {"type": "sage_conv", "in_channels": 5, "out_channels": 4}
    model = kinds_model([hetero({0: spec})], [""], {"": 5}, [relation("", "cites", "")])
    graph = random_kinds_graph(model, 0)
    weights = {name.replace("convs.0.", ""): w for name, w in model.weights.items()}
    plain = build_model(layers=[spec], weights=weights)
    one = Graph(graph.x[0], *graph.edges[0])
    with_kinds, without = oracle.forward(model, graph)[""], own_scale.forward(plain, one)
    np.testing.assert_array_equal(with_kinds.rows, without.rows)
    np.testing.assert_array_equal(with_kinds.scale, without.scale)
    from freshet.gnn.oracles import whole_graph

    np.testing.assert_array_equal(embeddings(model, graph)[""], whole_graph.forward(compile_plan(plain), one)[-1])


TWO = [sage_everywhere(KINDS, 8), by_kind(**{kind: [{"type": "relu"}] for kind in KINDS})]
TWO += [sage_everywhere(dict.fromkeys(KINDS, 8), 3)]


def test_what_nobody_needs_is_left_out() -> None:
    """user alone is returned: of the last layer two relations are needed, of the one before all into user and item."""
    whole, some = kinds_model(TWO, list(KINDS)), kinds_model(TWO, ["user"])
    plan = compile_kinds(some)
    assert [[one.number for one in layer.relations] for layer in plan.layers] == [[0, 1, 2, 4], [1, 4]]
    first, last = ([kind and (kind.sends, kind.updates) for kind in layer.kinds] for layer in plan.layers)
    assert first == [(True, True), (True, True), (True, False)]
    assert last == [(True, True), (True, False), None]
    graph = random_kinds_graph(whole, 3)
    np.testing.assert_array_equal(embeddings(some, graph)["user"], embeddings(whole, graph)["user"])


def test_relations_that_send_the_same_rows_share_columns() -> None:
    """max needs rows as they are, twice; the sum of narrower rows is made of multiplied ones."""
    kinds = {"user": 16, "item": 4, "shop": 4}
    relations = [relation("user", name, target) for name, target in (("a", "item"), ("b", "shop"), ("c", "item"))]
    given = {0: sage(16, 4, 8, aggr="max"), 1: sage(16, 4, 8, aggr="max"), 2: sage(16, 4, 8, aggr="sum")}
    layer = compile_kinds(kinds_model([hetero(given)], ["item", "shop"], kinds, relations)).layers[0]
    assert [one.source_columns for one in layer.relations] == [slice(0, 16), slice(0, 16), slice(16, 24)]
    user = layer.kinds[0]
    assert user is not None
    assert (user.message_width, user.self_width, user.updates) == (24, 0, False)


def test_terms_of_the_row_itself_are_one_where_relations_are_added() -> None:
    for aggr, width in (("sum", 3), ("mean", 3), ("max", 9), ("cat", 9)):
        into = [relation("item", f"r{i}", "user") for i in range(3)]
        convs = {i: sage(20, 10, 3) for i in range(3)}
        model = kinds_model([hetero(convs, aggr)], ["user"], {"user": 10, "item": 20}, into)
        user = compile_kinds(model).layers[0].kinds[0]
        assert user is not None
        assert (user.message_width, user.self_width) == (0, width), aggr
        assert_within_its_scale(model, random_kinds_graph(model, 0))


def test_a_kind_that_is_gone_comes_back_from_rows_that_were_kept() -> None:
    first = hetero({0: sage(6, 4, 8), 1: sage(4, 6, 8), 4: sage(6, 6, 8)})
    kept = by_kind(shop=[{"type": "relu"}, {"type": "keep", "name": "a"}])
    back = by_kind(shop=[{"type": "join", "of": ["a"]}, {"type": "elu"}], user=[{"type": "keep", "name": "of no use"}])
    model = kinds_model([kept, first, back, hetero({2: sage(5, 8, 3), 3: sage(8, 5, 3)})], ["item", "shop"])
    assert_within_its_scale(model, random_kinds_graph(model, 0))
    shop = compile_kinds(model).layers[0].kinds[2]
    assert shop is not None
    assert (shop.relations, shop.carried_width, shop.out_width) == ([], 5, 5)


def test_targets_that_are_gone_are_made_of_their_sources_alone() -> None:
    first = hetero({0: sage(6, 4, 8), 4: sage(6, 6, 8)})
    last = hetero({3: sage(8, 5, 3, root_weight=False), 4: sage(8, 8, 3)})
    model = kinds_model([first, last], ["shop", "user"])
    assert_within_its_scale(model, random_kinds_graph(model, 0))


def test_a_tolerance_has_a_scale_for_every_way_to_add_relations_up() -> None:
    """Values of sum and mean differ by their number alone, and so do their scales."""
    found = {}
    for aggr in ("sum", "mean", "min", "max", "mul", "cat"):
        model = kinds_model([sage_everywhere(KINDS, 3, group=aggr)], ["user"])
        graph = random_kinds_graph(model, 2)
        found[aggr] = oracle.forward(model, graph)["user"]
        assert_within_its_scale(model, graph)
        assert (found[aggr].scale > 0).any() and np.isfinite(found[aggr].scale).all()
    np.testing.assert_allclose(found["sum"].rows, 2 * found["mean"].rows)
    np.testing.assert_allclose(found["sum"].scale, 2 * found["mean"].scale, rtol=2)


torch = pytest.importorskip("torch")
pyg = pytest.importorskip("torch_geometric.nn")


class TwoLayers(torch.nn.Module):
    def __init__(self, conv: Any, more: Spec, skip: bool) -> None:
        super().__init__()
        self.conv1, self.conv2 = conv((-1, -1), 8, **more), conv((-1, -1), 3, **more)
        self.lin1, self.skip = (pyg.Linear(-1, 8), skip)

    def forward(self, x: Any, edge_index: Any) -> Any:
        first = self.conv1(x, edge_index)
        if self.skip:
            first = first + self.lin1(x)
        return self.conv2(first.relu(), edge_index)


SKIP: list[Spec] = [
    {"type": "keep", "name": "conv"}, {"type": "join", "of": ["x"]}, {"type": "linear", "out_channels": 8},
    {"type": "keep", "name": "lin"}, {"type": "join", "operation": "sum", "of": ["conv", "lin"]},
]  # fmt: skip


def skipping(width: int) -> list[Spec]:
    return [one | ({"in_channels": width} if one["type"] == "linear" else {}) for one in SKIP]


@pytest.mark.parametrize(
    ("name", "aggr", "skip"),
    [
        ("sage_conv", "sum", False), ("sage_conv", "mean", True), ("sage_conv", "mul", False),
        ("gat_conv", "sum", True), ("gat_conv", "mean", False), ("gat_conv", "max", True),
    ],
)  # fmt: skip
def test_to_hetero_is_what_the_model_makes(name: str, skip: bool, aggr: str) -> None:
    """The models of PyG's OGB-MAG example and of its page on heterogeneous graphs, the second one with skips."""
    is_gat = name == "gat_conv"
    torch.manual_seed(0)
    module = TwoLayers(pyg.GATConv if is_gat else pyg.SAGEConv, {"add_self_loops": False} if is_gat else {}, skip)
    metadata = list(KINDS), [(one["source"], one["type"], one["target"]) for one in RELATIONS]
    module = pyg.to_hetero(module, metadata, aggr=aggr)

    def conv(source: int, target: int, out: int) -> Spec:
        more = {"add_self_loops": False} if is_gat else {}
        return {"type": name, "in_channels": source, "target_channels": target, "out_channels": out, **more}

    def layer(widths: dict[str, int], out: int) -> Spec:
        listed = {i: conv(widths[one["source"]], widths[one["target"]], out) for i, one in enumerate(RELATIONS)}
        return hetero(listed, aggr)

    between = {kind: [*(skipping(width) if skip else []), {"type": "relu"}] for kind, width in KINDS.items()}
    first = [by_kind(**{kind: [{"type": "keep", "name": "x"}] for kind in KINDS})] if skip else []
    eight = dict.fromkeys(KINDS, 8)
    layers = [*first, layer(KINDS, 8), by_kind(**between), layer(eight, 3)]
    model = kinds_model(layers, list(KINDS))
    graph = random_kinds_graph(model, 4)
    x = {kind: torch.from_numpy(rows) for kind, rows in zip(KINDS, graph.x, strict=True)}
    edges = {one: torch.tensor([found.src, found.dst]) for one, found in zip(metadata[1], graph.edges, strict=True)}
    with torch.no_grad():
        module(x, edges)  # its lazy weights get their widths
    hand_over(module.state_dict(), model, len(first))
    with torch.no_grad():
        expected = module.double()({kind: rows.double() for kind, rows in x.items()}, edges)
    got = embeddings(model, graph)
    exact = oracle.forward(model, graph)
    for kind in KINDS:
        wanted = expected[kind].numpy()
        np.testing.assert_allclose(exact[kind].rows, wanted, rtol=0, atol=1e-12 * np.abs(wanted).max())
        np.testing.assert_allclose(got[kind], wanted, rtol=0, atol=2e-5 * max(1, np.abs(wanted).max()))


def hand_over(state: dict[str, Any], model: KindsModel, first: int) -> None:
    """Take a module's weights by its names: conv1.user__buys__item.lin_l.weight, lin1.user.weight."""
    for name in model.weights:
        _, index, what, place, rest = name.split(".", 4)
        if what == "layers":
            their = f"lin1.{place}.{rest.split('.')[-1]}"
        else:
            ends = "__".join(RELATIONS[int(place)][end] for end in ("source", "type", "target"))
            rest = {"lin.weight": "lin_src.weight"}.get(rest, rest)
            their = f"conv{1 if int(index) == first else 2}.{ends}.{rest}"
        model.weights[name] = state[their].numpy().reshape(model.weights[name].shape)


def hgt_weights(conv: Any, model: KindsModel, heads: int) -> None:
    """Take the weights of an HGTConv: W_k and W_v by kind times those by relation and head, and p in the keys."""
    size = 6 // heads
    state = {name: w.detach().double().numpy() for name, w in conv.state_dict().items()}
    for c, one in enumerate(RELATIONS):
        source, target = one["source"], one["target"]
        for ours, third, by_relation in (("key", 0, "k_rel"), ("query", 1, ""), ("value", 2, "v_rel")):
            kind = target if ours == "query" else source
            parts = {}
            for name in ("weight", "bias"):
                whole = np.split(state[f"kqv_lin.lins.{kind}.{name}"], 3)[third]
                turned = []
                for h, rows in enumerate(np.split(whole, heads)):
                    if by_relation:
                        rows = state[f"{by_relation}.weight"][h * len(RELATIONS) + c].T @ rows
                    if ours == "key":
                        rows = rows * state["p_rel." + "__".join((source, one["type"], target))][0, h]
                    turned.append(rows)
                parts[name] = np.concatenate(turned)
            for name, values in parts.items():
                model.weights[f"layers.1.convs.{c}.lin_{ours}.{name}"] = values.astype(np.float32)
    for kind in KINDS:
        for name in ("weight", "bias"):
            ours = f"layers.2.layers.{kind}.1.{name}"
            model.weights[ours] = state[f"out_lin.lins.{kind}.{name}"].astype(np.float32)
    assert size * heads == 6


@pytest.mark.parametrize("heads", [1, 2])
def test_hgt_is_a_softmax_over_relations_with_layers_of_rows_behind(heads: int) -> None:
    """user is as wide as the result, so that its row is mixed in by a learned gate; the others are not."""
    metadata = list(KINDS), [(one["source"], one["type"], one["target"]) for one in RELATIONS]
    torch.manual_seed(1)
    module = pyg.HGTConv(dict(KINDS), 6, metadata, heads)
    for name, parameter in module.named_parameters():
        if name.startswith(("p_rel", "skip")):
            torch.nn.init.uniform_(parameter)
    gate = float(torch.sigmoid(module.skip["user"]))
    convs = {}
    for number, one in enumerate(RELATIONS):
        convs[number] = {"type": "transformer_conv", "in_channels": KINDS[one["source"]], "out_channels": 6}
        convs[number] |= {"target_channels": KINDS[one["target"]], "heads": heads, "root_weight": False}
    behind = [{"type": "gelu"}, {"type": "linear", "in_channels": 6, "out_channels": 6}]
    mixed = [{"type": "scale", "factor": gate}, {"type": "keep", "name": "a"}, {"type": "join", "of": ["x"]}]
    mixed += [{"type": "scale", "factor": 1 - gate}, {"type": "join", "operation": "sum", "of": ["a", "."]}]
    layers = [by_kind(user=[{"type": "keep", "name": "x"}]), hetero(convs, "softmax")]
    layers.append(by_kind(user=[*behind, *mixed], item=behind, shop=behind))
    model = kinds_model(layers, list(KINDS))
    hgt_weights(module, model, heads)
    graph = random_kinds_graph(model, 5)
    x = {kind: torch.from_numpy(rows).double() for kind, rows in zip(KINDS, graph.x, strict=True)}
    edges = {one: torch.tensor([found.src, found.dst]) for one, found in zip(metadata[1], graph.edges, strict=True)}
    with torch.no_grad():
        expected = module.double()(x, edges)
    got = embeddings(model, graph)
    for kind in KINDS:
        np.testing.assert_allclose(got[kind], expected[kind].numpy(), rtol=0, atol=2e-5)
    assert_within_its_scale(model, graph)
    item = compile_kinds(model).layers[0].kinds[1]
    assert item is not None
    assert item.message_width == 2 * 12 + 6, "keys and values of two relations, one query for both"


def test_rgat_is_a_softmax_over_the_relations_of_one_kind() -> None:
    relations = [relation("", f"r{number}", "") for number in range(3)]
    gat = {"type": "gat_conv", "in_channels": 5, "out_channels": 4, "add_self_loops": False, "bias": False}
    model = kinds_model([hetero({0: gat | {"bias": True}, 1: gat, 2: gat}, "softmax")], [""], {"": 5}, relations)
    graph = random_kinds_graph(model, 6)
    module = pyg.RGATConv(5, 4, 3).double()
    att = [model.weights[f"layers.0.convs.0.att_{end}"] for end in ("dst", "src")]
    for number in range(3):
        begin = f"layers.0.convs.{number}"
        model.weights[f"{begin}.att_dst"], model.weights[f"{begin}.att_src"] = att
    with torch.no_grad():
        weights = [model.weights[f"layers.0.convs.{number}.lin.weight"].T for number in range(3)]
        module.weight.copy_(torch.from_numpy(np.stack(weights)))
        module.q.copy_(torch.from_numpy(att[0].T))
        module.k.copy_(torch.from_numpy(att[1].T))
        module.bias.copy_(torch.from_numpy(model.weights["layers.0.convs.0.bias"]))
        ends = [np.concatenate([getattr(one, end) for one in graph.edges]) for end in ("src", "dst")]
        types = np.repeat(np.arange(3), [len(one.src) for one in graph.edges])
        x = torch.from_numpy(graph.x[0]).double()
        expected = module(x, torch.from_numpy(np.stack(ends)), torch.from_numpy(types)).numpy()
    np.testing.assert_allclose(embeddings(model, graph)[""], expected, rtol=0, atol=2e-5)
    np.testing.assert_allclose(oracle.forward(model, graph)[""].rows, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("reading", [0, 2])
@pytest.mark.parametrize("kind", ["gat_conv", "gatv2_conv", "transformer_conv"])
def test_a_softmax_over_relations_equals_the_oracle(kind: str, reading: int) -> None:
    relations = [relation("b", f"r{number}", "a", edge_features=reading) for number in range(3)]
    spec = {"type": kind, "in_channels": 3, "target_channels": 5, "out_channels": 4, "heads": 2}
    if kind == "transformer_conv":
        relations = [one | {"edge_features": 0} for one in relations]
    else:
        spec |= {"add_self_loops": False, "residual": True, "edge_channels": reading}
    model = kinds_model([hetero(dict.fromkeys(range(3), spec), "softmax")], ["a"], {"a": 5, "b": 3}, relations)
    for edges in (0, 3, 100):
        assert_within_its_scale(model, random_kinds_graph(model, 7, edges=edges))
