"""Models whose messages are programs, and written layers of examples/."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.layers.own.own_layer import declared
from freshet.gnn.model import Model, build_model
from freshet.gnn.own.loading import load_layers, sha256_of
from tests.support.graphs.attributed import EDGE_WIDTH, linear
from tests.support.graphs.kinds import Spec, hetero, kinds_model, relation, sage

_EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
_RELU: Spec = {"type": "relu"}


def message_conv(in_channels: int, out_channels: int, *program: Spec, **options: Any) -> Spec:
    widths = {"in_channels": in_channels, "out_channels": out_channels}
    return {"type": "message_conv", **widths, "program": list(program), **options}


def step(op: str, *of: str, **options: Any) -> Spec:
    return {"op": op, "of": list(of), **options}


def columns(of: str, begin: int, end: int) -> Spec:
    return step("columns", of, begin=begin, end=end)


def rows(of: str, kind: str, **options: Any) -> Spec:
    return step("rows", of, layer={"type": kind, **options})


def through(of: str, in_channels: int, out_channels: int, *, bias: bool = True) -> Spec:
    return step("rows", of, layer={**linear(in_channels, out_channels), "bias": bias})


def message_layers(width: int) -> dict[str, list[Spec]]:
    """A gate of both ends, a linear message, one with weights, attention, attributes, and each other step."""
    gate = [columns("source", 0, 3), columns("source", 3, 6), columns("target", 6, 9), step("add", "1", "2")]
    gate += [rows("3", "sigmoid"), step("mul", "0", "4")]
    scores = [columns("source", 0, 4), columns("source", 4, 8), columns("target", 8, 12), step("mul", "1", "2")]
    scores += [step("mean_columns", "3", heads=2), step("cat", "4", "0")]
    others = [step("exp", "source"), step("abs", "target"), step("sqrt", "1"), step("constant", width=4)]
    others += [step("add", "2", "3"), step("mul", "4", "4"), step("constant", width=1), step("add", "5", "6")]
    others += [step("div", "0", "7"), step("sum_columns", "8", heads=2), step("repeat", "9", times=2)]
    others += [step("neg", "10"), step("min", "11", "source"), step("max", "1", "6"), step("log", "13")]
    others += [step("sub", "14", "12"), step("mul", "15", "weight")]
    attributed = [through("attr", EDGE_WIDTH, 4), step("sub", "source", "target"), step("add", "0", "1")]
    looped = [through("source", 4, 4), rows("0", "tanh"), step("mul", "weight", "1")]
    beside, drop = ({"add_self_loops": True, "existing_loops": there} for there in ("beside", "drop"))
    return {
        "message_conv-gate": [linear(width, 9), message_conv(9, 3, *gate)],
        "message_conv-linear": [
            *(message_conv(width, 9, through("source", width, 9, bias=False), aggr="mean"), _RELU),
            message_conv(9, 4, through("source", 9, 4), step("mul", "weight", "0")),
        ],
        "message_conv-softmax": [linear(width, 12), message_conv(12, 4, *scores, aggr="softmax", heads=2)],
        "message_conv-all-steps": [
            *(linear(width, 4), message_conv(4, 8, *others, aggr=["max", "mean"]), _RELU, linear(8, 4)),
            message_conv(4, 4, rows("source", "tanh"), aggr="min"),
        ],
        "message_conv-attributes": [
            *(linear(width, 4), message_conv(4, 4, *attributed, aggr="max", edge_channels=EDGE_WIDTH)),
        ],
        "message_conv-loops": [
            *(linear(width, 12), message_conv(12, 4, *scores, aggr="softmax", heads=2, **drop)),
            *(message_conv(4, 8, *looped, aggr=["max", "mean"], add_self_loops=True, self_value=0.5), linear(8, 4)),
            message_conv(4, 4, through("source", 4, 4), step("sub", "0", "target"), aggr="std", **beside),
        ],
    }


def weighed_attributes(width: int) -> dict[str, list[Spec]]:
    """Messages of weights and attributes of edges, with a self-loop for each vertex or without."""
    maximum = [through("attr", EDGE_WIDTH, 4), step("mul", "0", "weight"), step("sub", "source", "target")]
    mean = [*maximum[:2], rows("1", "tanh"), step("add", "2", "source")]
    loops = {"add_self_loops": True, "existing_loops": "drop", "self_value": 0.5}
    scores = [through("attr", EDGE_WIDTH, 4), columns("source", 0, 4), step("mul", "0", "1")]
    scores += [step("sum_columns", "2", heads=2), step("cat", "3", "1")]
    no_attributes = {"add_self_loops": True, "existing_loops": "drop"}
    of_loops = {**no_attributes, "edge_channels": EDGE_WIDTH}
    return {
        "message_conv-messages-of-loops": [
            linear(width, 10),
            message_conv(10, 4, *scores, aggr="softmax", heads=2, self_messages=4, **of_loops),
            linear(4, 8),
            message_conv(8, 4, *scores[:3], aggr="max", self_messages=3, **of_loops),
            linear(4, 7),
            message_conv(7, 4, columns("source", 0, 4), step("mul", "0", "weight"), self_messages=3, **no_attributes),
        ],
        "message_conv-weights-and-attributes": [
            linear(width, 4),
            message_conv(4, 4, *maximum, step("add", "1", "2"), aggr="max", edge_channels=EDGE_WIDTH),
            message_conv(4, 4, *mean, aggr="mean", edge_channels=EDGE_WIDTH, **loops),
        ],
    }


def gated_sum(in_channels: int, out_channels: int, target: int | None = None) -> Spec:
    """The written layer of examples/gated_sum.py, whose module is not loaded; on a relation, of rows of two widths."""
    names = ("lin_value", "lin_query", "lin_key", "lin_skip")
    reads = dict(zip(names, [in_channels] * 2 + [target or in_channels] * 2, strict=True))
    shapes: dict[str, tuple[int, ...]] = {f"{name}.weight": (out_channels, width) for name, width in reads.items()}
    shapes |= {f"{name}.bias": (out_channels,) for name in names[:3]} | {"bias": (out_channels,)}
    code = {"code": "examples.gated_sum:GatedSum", "source": sha256_of((_EXAMPLES / "gated_sum.py").read_text())}
    widths = {"in_channels": in_channels, "out_channels": out_channels}
    return {"type": "own_layer", **widths, **code, "shapes": shapes, "target_channels": target}


def gates_on_relations() -> KindsModel:
    """Return a model of two kinds whose relations have such layers, beside a built-in conv."""
    relations = [relation("user", "buys", "item"), relation("item", "rev_buys", "user", mirrors=0)]
    relations.append(relation("user", "follows", "user"))
    first = hetero({0: gated_sum(4, 5, 3), 1: gated_sum(3, 5, 4), 2: sage(4, 4, 5)})
    return kinds_model(
        [first, hetero({1: gated_sum(5, 3), 2: sage(5, 5, 3)})], ["user"], {"user": 4, "item": 3}, relations
    )


def written_models(width: int) -> dict[str, Callable[[], Model]]:
    """Return makers of models of one written layer each, and of one behind another."""
    names = ("lin_value", "lin_query", "lin_key", "lin_skip")
    weights: dict[str, tuple[int, ...]] = {f"{name}.weight": (4, width) for name in names}
    biases: dict[str, tuple[int, ...]] = {f"{name}.bias": (4,) for name in names}
    of = _Written(width)
    return {
        "gated_sum": lambda: of.model("gated_sum:GatedSum", gated_sum(width, 4)["shapes"]),
        "transformer": lambda: of.model("transformer:Transformer", weights | biases, heads=2),
        "power_mean": lambda: of.model("power_mean:PowerMean", {"weight": (5, width)}, p=2),
        "top_k": lambda: of.model("top_k:TopK", {"weight": (5, width)}, k=2),
    }


class _Written:
    """Makes models of the written layers of examples/, with a linear layer and a built-in conv behind."""

    def __init__(self, width: int) -> None:
        self._width = width

    def model(self, name: str, shapes: dict[str, tuple[int, ...]], **options: Any) -> Model:
        rng = np.random.default_rng(len(name))
        weights = {of: rng.standard_normal(shape).astype(np.float32) / np.float32(2) for of, shape in shapes.items()}
        load_layers([f"examples.{name.partition(':')[0]}"])
        spec = declared(f"examples.{name}", weights, self._width, **options)
        behind = {"type": "sage_conv", "in_channels": spec.out_channels, "out_channels": 3}
        layers = [spec.model_dump(mode="json"), _RELU, behind]
        tensors = {f"layers.0.{of}": weight for of, weight in weights.items()}
        tensors |= {f"layers.2.{of}.weight": np.ones((3, spec.out_channels), np.float32) for of in ("lin_l", "lin_r")}
        return build_model(layers=layers, weights=tensors | {"layers.2.lin_l.bias": np.zeros(3, np.float32)})


def relation_message(name: str, width: int, target: int, out: int, edge: int = 0) -> Spec:
    """A message_conv for a relation whose ends have rows of these widths."""
    both = [through("source", width, out), through("target", target, out, bias=False)]
    updated = [through("own", target, out), step("add", "0", "aggregate"), rows("1", "relu")]
    spec: dict[str, Spec] = {
        "sum": message_conv(width, out, through("source", width, out, bias=False)),
        "weighted max": message_conv(width, out, *both[:1], step("mul", "0", "weight"), aggr="max", update=updated),
        "weight": message_conv(width, out, *both[:1], step("add", "0", "weight"), rows("1", "tanh"), aggr="min"),
        "gate": message_conv(
            width, out, *both, step("add", "0", "1"), rows("2", "sigmoid"), step("mul", "3", "0"), aggr="mean",
            update=updated,
        ),
        "difference": message_conv(
            width, out, *both, step("sub", "0", "1"), aggr=["max", "std"],
            update=[through("aggregate", 2 * out, out)],
        ),
        "attributes": message_conv(
            width, out, *both[:1], through("attr", edge or 1, out), step("add", "0", "1"), aggr="max",
            edge_channels=edge or 1,
        ),
        "weight and attributes": message_conv(
            width, out, *both[:1], through("attr", edge or 1, out), step("mul", "1", "weight"), step("add", "0", "2"),
            aggr="max", edge_channels=edge or 1,
        ),
        "attention": message_conv(
            width, out, *both, step("mul", "0", "1"), step("sum_columns", "2", heads=2), step("cat", "3", "0"),
            aggr="softmax", heads=2, update=updated,
        ),
    }  # fmt: skip
    return spec[name] | {"target_channels": target}


RELATION_MESSAGES = ("sum", "weighted max", "weight", "gate", "difference", "attributes", "attention")


WRITTEN = "tests.support.graphs.own.written_layers"
RELATION_LAYERS = ("Gate", "Attention", "Attributed", "Weighted", "Plain", "Median", "Largest")


def relation_layer(name: str, width: int, target: int, out: int, edge: int) -> Spec:
    """A written layer for a relation whose ends have rows of these widths."""
    pairs: dict[str, dict[str, tuple[int, int]]] = {
        "Gate": {"key": (out, target), "query": (out, width), "value": (out, width), "skip": (out, target)},
        "Attention": {"left": (2 * out, width), "right": (2 * out, target), "lin": (out, 2 * out)},
        "Attributed": {"lin": (out, width + edge), "upd": (out, target + out)},
        "Weighted": {"lin_rel": (out, width), "lin_root": (out, target)},
    }
    shapes = {f"{of}.weight": shape for of, shape in pairs.get(name, {"lin": (out, width)}).items()}
    biases = {of.replace("weight", "bias"): shape[:1] for of, shape in shapes.items() if of != "lin_root.weight"}
    more = {"att": (1, 2, out)} if name == "Attention" else {}
    load_layers([WRITTEN])
    weights = {of: np.zeros(shape, np.float32) for of, shape in (shapes | biases | more).items()}
    reads_target = name in ("Gate", "Attention", "Attributed", "Weighted")
    ends = {"target_channels": target if reads_target else 0, "edge_channels": edge if name == "Attributed" else 0}
    options: dict[str, Any] = ends | ({"aggr": "mean"} if name == "Gate" else {})
    return declared(f"{WRITTEN}:{name}", weights, width, **options).model_dump(mode="json")


def messages_by_kind(seed: int) -> KindsModel:
    """Return a model of two layers, whose relations have convs with messages of programs beside built-in ones."""
    of_edges = ("attributes", "weight and attributes")[seed % 2]
    return _by_kind(seed, RELATION_MESSAGES, relation_message, of_edges)


def written_by_kind(seed: int) -> KindsModel:
    """Return the same of written layers; those whose aggregate does not merge are there in every third one."""
    names = RELATION_LAYERS if seed % 3 == 0 else [name for name in RELATION_LAYERS if name != "Median"]
    return _by_kind(seed, names, relation_layer, "Attributed")


def _by_kind(
    seed: int, names: Sequence[str], make: Callable[[str, int, int, int, int], Spec], of_edges: str
) -> KindsModel:
    rng, kinds, edge = np.random.default_rng(seed), {"user": 4, "item": 3}, EDGE_WIDTH
    relations = [relation("user", "buys", "item", edge_features=edge), relation("user", "follows", "user")]
    relations += [relation("item", "rev_buys", "user", mirrors=0, edge_features=edge), relation("item", "like", "item")]
    layers, widths, drawn = list[Spec](), dict(kinds), rng.permutation(names).tolist()
    for number, out in enumerate((6, 4)):
        convs = dict[int, Spec]()
        for k, one in enumerate(relations):
            ends = widths[one["source"]], widths[one["target"]]
            taken = [name for name in drawn if name not in ("attributes", "Attributed") or one.get("edge_features")]
            name = of_edges if (number, k) == (0, 0) else taken[(number * len(relations) + k) % len(taken)]
            convs[k] = sage(*ends, out) if k == 3 - number else make(name, *ends, out, edge)
        layers.append(hetero(convs, str(rng.choice(["sum", "mean", "max"]))))
        widths = dict.fromkeys(kinds, out)
    return kinds_model(layers, ["user"], kinds, relations, seed)
