"""The plan of models with kinds against PyG's HeteroConv, for every conv, option and grouping."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric.nn")

from freshet.gnn.declarations import Aggregator  # noqa: E402
from freshet.gnn.kind_layers.compiling import compile_kinds  # noqa: E402
from freshet.gnn.kinds.model import KindsModel  # noqa: E402
from freshet.gnn.layers.base import Context  # noqa: E402
from freshet.gnn.oracles import kinds as oracle  # noqa: E402
from freshet.gnn.oracles import whole_kinds  # noqa: E402
from freshet.kinds_graph import KindsGraph  # noqa: E402
from tests.support.graphs.kinds import (  # noqa: E402
    KINDS,
    Spec,
    hetero,
    kinds_model,
    random_kinds_graph,
    relation,
    sage,
    sage_everywhere,
)
from tests.support.graphs.messages import (  # noqa: E402
    RELATION_LAYERS,
    RELATION_MESSAGES,
    relation_layer,
    relation_message,
)
from tests.support.graphs.pyg_kinds import call_hetero, hetero_module  # noqa: E402

EDGE = 3
RATED = [relation("user", "rates", "item", edge_features=EDGE), relation("user", "trusts", "user", edge_features=EDGE)]
RATED += [relation("item", "rev_rates", "user", edge_features=EDGE, mirrors=0)]
EQUAL = {"user": 6, "item": 6}
EIGHT = {"user": 8, "item": 8}


def mlp(width: int, out: int) -> list[Spec]:
    lines = [{"type": "linear", "in_channels": width, "out_channels": out}, {"type": "relu"}]
    return [*lines, {"type": "linear", "in_channels": out, "out_channels": out}]


def one(kinds: dict[str, int], make: Callable[[int, int, bool], Spec], aggr: str = "sum") -> KindsModel:
    """Return one layer with that conv in three relations, made of the widths of both ends and whether they are one."""
    convs = {i: make(kinds[r["source"]], kinds[r["target"]], r["source"] == r["target"]) for i, r in enumerate(RATED)}
    for rel in RATED:
        rel["edge_features"] = EDGE if any(conv.get("edge_channels") for conv in convs.values()) else 0
    return kinds_model([hetero(convs, aggr)], ["user", "item"], kinds, [dict(r) for r in RATED], seed=3)


def attention(kind: str, **more: Any) -> Callable[[int, int, bool], Spec]:
    loops: Spec = {} if kind == "transformer_conv" else {"add_self_loops": False}

    def make(width: int, target: int, same: bool) -> Spec:
        given = {"type": kind, "in_channels": width, "target_channels": target, "out_channels": 8, "heads": 2}
        return given | loops | more

    return make


def with_loops(kind: str, **more: Any) -> Callable[[int, int, bool], Spec]:
    """Attention with self-loops in the relation within one kind; there without a width of targets."""

    def make(width: int, target: int, same: bool) -> Spec:
        spec = attention(kind, **more)(width, target, same)
        return spec | ({"add_self_loops": True, "target_channels": None} if same else {})

    return make


def chained(kind: str, **more: Any) -> Callable[[int, int, bool], Spec]:
    def make(width: int, target: int, same: bool) -> Spec:
        read = 2 * width if kind == "edge_conv" else width
        return {"type": kind, "in_channels": width, "out_channels": 8, "nn": mlp(read, 8)} | more

    return make


def sums(**more: Any) -> Callable[[int, int, bool], Spec]:
    return lambda width, target, same: sage(width, target, 8, **more)


ENDS = {"user": 6, "item": 4}
WIDE = {"user": 24, "item": 20}
ATTR = {"edge_channels": EDGE}


def graph_conv(**more: Any) -> Callable[[int, int, bool], Spec]:
    return lambda width, target, same: sage(width, target, 8) | {"type": "graph_conv"} | more


def scaled(kind: str = "gcn_conv", **more: Any) -> Callable[[int, int, bool], Spec]:
    """A conv that scales by degrees in the relation within one kind."""

    def make(width: int, target: int, same: bool) -> Spec:
        out = width if kind == "propagation" else 8
        spec = {"type": kind, "in_channels": width, "out_channels": out} | more
        return spec if same else sage(width, target, out)

    return make


MODELS: dict[str, Callable[[], KindsModel]] = {
    **{f"sage {aggr}": partial(one, ENDS, sums(aggr=aggr)) for aggr in get_args(Aggregator)},
    **{f"wide sage {aggr}": partial(one, WIDE, sums(aggr=aggr)) for aggr in ("sum", "mean", "max")},
    **{f"gcn {aggr}": partial(one, ENDS, scaled(aggr=aggr)) for aggr in ("sum", "mean", "max", "std")},
    "wide gcn, improved": lambda: one(WIDE, scaled(improved=True, bias=False)),
    "gcn without edge weights": lambda: one(ENDS, scaled(edge_weights=False)),
    "gcn without self-loops": lambda: one(ENDS, scaled(add_self_loops=False)),
    "gcn without normalize": lambda: one(WIDE, scaled(add_self_loops=False, normalize=False)),
    "propagation": lambda: one(EIGHT, scaled("propagation", add_self_loops=False)),
    "propagation without edge weights": lambda: one(
        EIGHT, scaled("propagation", add_self_loops=False, edge_weights=False)
    ),
    "sage, two aggregators": lambda: one(ENDS, sums(aggr=["mean", "max"])),
    "sage, normalize": lambda: one(ENDS, sums(normalize=True)),
    "sage, normalize, no root": lambda: one(WIDE, sums(normalize=True, root_weight=False)),
    "sage, project": lambda: one(ENDS, sums(project=True)),
    "wide sage, project": lambda: one(WIDE, sums(project=True, aggr="sum")),
    "sage, project, max": lambda: one(WIDE, sums(project=True, aggr="max")),
    "sage, no root": lambda: one(ENDS, sums(root_weight=False)),
    "sage, no bias": lambda: one(ENDS, sums(bias=False)),
    **{f"graph_conv {aggr}": partial(one, ENDS, graph_conv(aggr=aggr)) for aggr in ("sum", "mean", "max")},
    "wide graph_conv": lambda: one(WIDE, graph_conv(bias=False)),
    "graph_conv without weights": lambda: one(ENDS, graph_conv(edge_weights=False)),
    **{f"gin {aggr}": partial(one, EQUAL, chained("gin_conv", aggr=aggr, eps=0.5)) for aggr in ("sum", "mean", "max")},
    "wide gin": lambda: one({"user": 16, "item": 16}, chained("gin_conv", eps=0.5)),
    "gine": lambda: one(EQUAL, chained("gine_conv", **ATTR)),
    "gine, attributes as they are": lambda: one(
        {"user": EDGE, "item": EDGE}, chained("gine_conv", edge_linear=False, eps=0.25, **ATTR)
    ),
    "edge_conv": lambda: one(EQUAL, chained("edge_conv")),
    "edge_conv mean": lambda: one(EQUAL, chained("edge_conv", aggr="mean")),
    "edge_conv, widening": lambda: one({"user": 3, "item": 3}, chained("edge_conv")),
    "edge_conv, two aggregators": lambda: one(EQUAL, chained("edge_conv", aggr=["mean", "max"], out_channels=16)),
    "gat": lambda: one(ENDS, attention("gat_conv")),
    "gat, residual": lambda: one(ENDS, attention("gat_conv", residual=True)),
    "gat, mean of heads": lambda: one(ENDS, attention("gat_conv", concat=False, negative_slope=0.1, bias=False)),
    "gat, one width": lambda: one(EQUAL, attention("gat_conv", target_channels=None)),
    "gat with self-loops": lambda: one(ENDS, with_loops("gat_conv")),
    "gat with self-loops, residual": lambda: one(ENDS, with_loops("gat_conv", residual=True)),
    "gat, two ends of one kind": lambda: one(
        ENDS, lambda w, t, same: attention("gat_conv")(w, t, same) | {"add_self_loops": same}
    ),
    "gat, attributes": lambda: one(ENDS, attention("gat_conv", **ATTR)),
    "gat, attributes, self-loops": lambda: one(ENDS, with_loops("gat_conv", **ATTR)),
    "gat, attributes, self-loops of zeros": lambda: one(ENDS, with_loops("gat_conv", fill_value=0.5, **ATTR)),
    "gatv2": lambda: one(ENDS, attention("gatv2_conv")),
    "gatv2, residual": lambda: one(ENDS, attention("gatv2_conv", residual=True, bias=False)),
    "gatv2, shared": lambda: one(EQUAL, attention("gatv2_conv", share_weights=True)),
    "gatv2 with self-loops": lambda: one(ENDS, with_loops("gatv2_conv")),
    "gatv2 with self-loops, shared": lambda: one(EQUAL, with_loops("gatv2_conv", share_weights=True)),
    "gatv2, attributes": lambda: one(ENDS, attention("gatv2_conv", **ATTR)),
    "gatv2, attributes, self-loops": lambda: one(ENDS, with_loops("gatv2_conv", **ATTR)),
    "transformer": lambda: one(ENDS, attention("transformer_conv")),
    "transformer, beta": lambda: one(ENDS, attention("transformer_conv", beta=True)),
    "transformer, no root": lambda: one(ENDS, attention("transformer_conv", root_weight=False, concat=False)),
    "transformer, attributes": lambda: one(ENDS, attention("transformer_conv", **ATTR)),
}  # fmt: skip


def rows_of(model: KindsModel, graph: KindsGraph) -> dict[str, np.ndarray]:
    plan = compile_kinds(model)
    last = whole_kinds.forward(plan, graph)[-1]
    numbers = {kind: i for i, kind in enumerate(model.kinds)}
    assert plan.out == {kind: last[numbers[kind]].shape[1] for kind in model.out}
    return {kind: last[numbers[kind]] for kind in model.out}


def tensors(model: KindsModel, graph: KindsGraph) -> dict[str, Any]:
    return {kind: torch.from_numpy(x.astype("f8")) for kind, x in zip(model.kinds, graph.x, strict=True)}


def assert_close(got: dict[str, np.ndarray], expected: dict[str, Any]) -> None:
    assert got
    for kind, rows in got.items():
        wanted = expected[kind] if isinstance(expected[kind], np.ndarray) else expected[kind].detach().numpy()
        assert rows.dtype == np.float32 and rows.flags.c_contiguous
        np.testing.assert_allclose(rows, wanted, rtol=0, atol=2e-5 * max(1.0, np.abs(wanted).max(initial=0)))


@pytest.mark.parametrize("name", MODELS)
def test_every_conv_and_option_equals_pyg(name: str) -> None:
    model = MODELS[name]()
    module = hetero_module(model, 0)
    for seed in range(2):
        graph = random_kinds_graph(model, seed)
        assert_close(rows_of(model, graph), call_hetero(module, model, 0, tensors(model, graph), graph))


@pytest.mark.parametrize("aggr", ["sum", "mean", "min", "max", "cat"])
@pytest.mark.parametrize("options", [{}, {"aggr": "max"}, {"normalize": True}, {"root_weight": False}], ids=str)
def test_every_grouping_of_relations_equals_pyg(aggr: str, options: Spec) -> None:
    model = kinds_model([sage_everywhere(KINDS, 3, group=aggr, **options)], list(KINDS))
    graph = random_kinds_graph(model, 1)
    expected = call_hetero(hetero_module(model, 0), model, 0, tensors(model, graph), graph)
    assert_close(rows_of(model, graph), expected)


def messages(name: str) -> Callable[[int, int, bool], Spec]:
    return lambda width, target, same: relation_message(name, width, target, 8, EDGE)


def written(name: str, width: int, target: int, same: bool) -> Spec:
    return relation_layer(name, width, target, 8, EDGE)


BY_PROGRAMS = {
    f"message_conv, {name}": partial(one, ENDS, messages(name))
    for name in (*RELATION_MESSAGES, "weight and attributes")
}
BY_PROGRAMS |= {f"written layer, {name}": partial(one, ENDS, partial(written, name)) for name in RELATION_LAYERS}
BY_PROGRAMS |= {f"wide message_conv, {name}": partial(one, WIDE, messages(name)) for name in ("sum", "gate")}

# A softmax over relations is none of HeteroConv's groupings; test_kinds_layers.py compares it with HGT and RGAT.
ALL = (
    MODELS
    | BY_PROGRAMS
    | {f"one softmax, {kind}": partial(one, ENDS, attention(kind), "softmax") for kind in ("gat_conv", "gatv2_conv")}
)


@pytest.mark.parametrize("name", BY_PROGRAMS)
@pytest.mark.parametrize("edges", [0, 120])
def test_messages_of_programs_equal_the_oracle(name: str, edges: int) -> None:
    """test_own_relations.py compares those that are read of PyG's modules with these."""
    model = BY_PROGRAMS[name]()
    graph = random_kinds_graph(model, 1, edges=edges)
    assert_close(rows_of(model, graph), {kind: at.rows for kind, at in oracle.forward(model, graph).items()})


def random_context(vertices: int, rng: np.random.Generator) -> Context:
    loop = np.where(rng.random(vertices) < 0.5, np.nan, rng.random(vertices)).astype(np.float32)
    count = rng.integers(0, 4, vertices).astype(np.int32) + ~np.isnan(loop)
    return Context(count.astype(np.int32), rng.random(vertices) * 3, loop)


@pytest.mark.parametrize("name", ALL)
def test_rows_have_bits_of_their_own_and_inputs_stay(name: str) -> None:
    model = ALL[name]()
    plan, graph, rng = compile_kinds(model), random_kinds_graph(model, 2), np.random.default_rng(0)
    for layer in plan.layers:
        for number, kind in enumerate(layer.kinds):
            assert kind is not None
            x = graph.x[number]
            into = [layer.relations[place] for place in kind.relations]
            aggregates = [rng.standard_normal((len(x), one.synopsis_width)).astype(np.float32) for one in into]
            counts: list[Any] = [rng.integers(0, 4, len(x)).astype(np.int32) for _ in into]
            degrees = {one: random_context(len(x), rng) for one in {*kind.read_degrees, *kind.sent_degrees}}
            reads = [one.number in kind.read_degrees for one in into]
            counts = [degrees[at.number] if is_read else n for at, is_read, n in zip(into, reads, counts, strict=True)]
            width = kind.message_width if kind.self_is_message else kind.self_width
            own = rng.standard_normal((len(x), width)).astype(np.float32)
            given = x.copy(), own.copy(), [agg.copy() for agg in aggregates]
            sent, made = kind.send(x, degrees), kind.update(aggregates, own, counts)
            for before, after in zip((*given[:2], *given[2]), (x, own, *aggregates), strict=True):
                np.testing.assert_array_equal(before, after)
            assert sent.shape[1] == kind.message_width + kind.self_width
            for pick in (np.array([0]), np.array([len(x) - 1]), rng.permutation(len(x))[:20]):
                those = [n.at(pick) if isinstance(n, Context) else n[pick] for n in counts]
                some = kind.update([agg[pick] for agg in aggregates], own[pick], those)
                sent_some = kind.send(x[pick], {one: context.at(pick) for one, context in degrees.items()})
                np.testing.assert_array_equal(sent_some.view(np.uint32), sent[pick].view(np.uint32))
                np.testing.assert_array_equal(some.view(np.uint32), made[pick].view(np.uint32))


@pytest.mark.parametrize("name", ALL)
def test_no_rows_in_no_rows_out(name: str) -> None:
    plan = compile_kinds(ALL[name]())
    plan.warm_up()
    for layer in plan.layers:
        for kind in layer.kinds:
            assert kind is not None
            none = dict.fromkeys((*kind.read_degrees, *kind.sent_degrees), random_context(0, np.random.default_rng(0)))
            sent = kind.send(np.empty((0, kind.in_width), np.float32), none)
            assert sent.shape == (0, kind.message_width + kind.self_width)
            into = [layer.relations[place] for place in kind.relations]
            aggregates = [np.empty((0, one.synopsis_width), np.float32) for one in into]
            own = np.empty((0, kind.message_width if kind.self_is_message else kind.self_width), np.float32)
            counts = [none[one.number] if one.number in kind.read_degrees else np.empty(0, np.int32) for one in into]
            assert kind.update(aggregates, own, counts).shape == (0, kind.out_width)


@pytest.mark.parametrize("name", MODELS)
def test_a_graph_without_edges(name: str) -> None:
    model = MODELS[name]()
    graph = random_kinds_graph(model, 0, edges=0)
    expected = call_hetero(hetero_module(model, 0), model, 0, tensors(model, graph), graph)
    assert_close(rows_of(model, graph), expected)
