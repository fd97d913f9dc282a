"""Small models of all layer kinds, numpy only, for tests that need some model rather than a trained one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from freshet.gnn.declarations import (
    AnyLayer,
    BatchNorm,
    DegreeScaledConv,
    DenseLayer,
    EdgeConv,
    GINConv,
    GINEConv,
    Identity,
    Laplacian,
    LeakyRelu,
    Linear,
    PRelu,
    Relu,
    RootedConv,
    SAGEConv,
)
from freshet.gnn.model import Model, build_model
from freshet.gnn.rows.chains import chain_tensors
from freshet.gnn.rows.functions import Affine, Clamp, Scale
from freshet.gnn.rows.jumps import Join, Keep
from tests.support.graphs import attributed, messages
from tests.support.graphs.jumping import Jumps, join, jumping_layers, keep
from tests.support.graphs.later import later_layers, looped_layers

Spec = dict[str, Any]
_BODY, _HEAD = TypeAdapter(list[AnyLayer]), TypeAdapter(list[DenseLayer])  # slow to make
IN_WIDTH = 6
ACTIVATIONS: list[Spec] = [
    {"type": "relu"},
    {"type": "leaky_relu", "slope": 0.25},
    {"type": "elu", "alpha": 0.5},
    {"type": "selu"},
    {"type": "gelu"},
    {"type": "gelu", "approximate": "tanh"},
    {"type": "tanh"},
    {"type": "sigmoid"},
    {"type": "silu"},
    {"type": "prelu", "channels": 1},
    {"type": "identity"},
    {"type": "clamp", "low": 0.0, "high": 6.0},
    {"type": "clamp", "high": 0.25},
    {"type": "softplus"},
    {"type": "softplus", "beta": 2.0, "threshold": 1.5},
    {"type": "celu", "alpha": 0.5},
    {"type": "mish"},
    {"type": "log_sigmoid"},
    {"type": "scale", "factor": -0.5},
    {"type": "scale", "factor": 2.0, "offset": 1.0},
    {"type": "softmax"},
    {"type": "log_softmax"},
    {"type": "normalize"},
    {"type": "normalize", "eps": 0.5},
]
ROW_NORMS: list[Spec] = [
    {"type": "affine"},
    {"type": "layer_norm"},
    {"type": "layer_norm", "eps": 0.1, "weight": False, "bias": False},
    {"type": "rms_norm", "eps": 1e-6},
    {"type": "rms_norm", "eps": 0.1, "weight": False},
    {"type": "frozen_norm", "of": "graph_norm"},
    {"type": "frozen_norm", "of": "pair_norm", "length": 2.0},
]


def conv(kind: str, in_channels: int, out_channels: int, **options: Any) -> Spec:
    """Return the spec of a conv; for gin_conv, gine_conv and edge_conv without `nn` an MLP of two linear layers."""
    spec = {"type": kind, "in_channels": in_channels, "out_channels": out_channels, **options}
    if kind in ("gin_conv", "gine_conv", "edge_conv") and "nn" not in spec:
        read = 2 * in_channels if kind == "edge_conv" else in_channels
        spec["nn"] = [linear(read, out_channels), {"type": "relu"}, linear(out_channels, out_channels)]
    return spec


def linear(in_channels: int, out_channels: int, *, bias: bool = True) -> Spec:
    """Return the spec of a linear layer."""
    return {"type": "linear", "in_channels": in_channels, "out_channels": out_channels, "bias": bias}


def make_model(
    seed: int,
    layers: Sequence[Spec],
    *,
    integer: bool = False,
    edge_types: Sequence[str] = (),
    head: Sequence[Spec] = (),
) -> Model:
    """Return a model of these layers with random weights; integers in -2..2, at most three a row, if `integer`."""
    rng = np.random.default_rng(seed)
    weights = {name: _weight(rng, shape, integer=integer) for name, shape in weight_shapes(layers, head).items()}
    widths = (layer.get("edge_channels", 0) if isinstance(layer, dict) else layer.edge.attributes for layer in layers)
    return build_model(
        layers=list(layers),
        head=list(head),
        edge_types=list(edge_types),
        edge_features=max(widths, default=0),
        weights=weights,
    )


def weight_shapes(layers: Sequence[Spec], head: Sequence[Spec] = ()) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of the weights that layers and head need."""
    return chain_tensors(_BODY.validate_python(layers), "layers") | chain_tensors(_HEAD.validate_python(head), "head")


def random_model(seed: int, *, integer: bool = False, convs: int | None = None) -> Model:
    """Return a model drawn at random: 1 to 4 convs of any kind and option, dense layers around them.

    If `integer`, only layers whose sums are exact for integers (`is_exact` holds).
    """
    rng = np.random.default_rng(seed)
    count = convs or int(rng.integers(1, 5))
    jumps = Jumps(seed, integer=integer)
    width = IN_WIDTH
    layers: list[Spec] = []
    if rng.random() < 0.3:
        layers += [linear(width, width := int(rng.integers(2, 8))), {"type": "relu"}]
        more, width = jumps.behind(width)
        layers += more
    for i in range(count):
        layers.append(_random_conv(rng, width, width := int(rng.integers(1, 8)), integer=integer))
        if rng.random() < 0.3:
            norms = [{"type": "batch_norm"}] if integer else [{"type": "batch_norm"}, *ROW_NORMS]
            layers.append({**norms[int(rng.integers(len(norms)))], "channels": width})
        if i + 1 < count:
            layers.append({"type": "relu"} if integer else ACTIVATIONS[int(rng.integers(len(ACTIVATIONS)))])
        if rng.random() < 0.2:
            layers.append(linear(width, width := int(rng.integers(1, 8))))
        more, width = jumps.behind(width)
        layers += more
    return make_model(seed, layers, integer=integer)


def is_exact(model: Model) -> bool:
    """Say whether integer weights and features give integers (up to powers of 2), whatever the order of the sums."""
    return all(_exact_layer(layer) for layer in model.layers)


def all_small_models(*, integer: bool = False) -> dict[str, Callable[[], Model]]:
    """Return makers of named models: every conv with every option, every activation, 1 to 4 layers."""
    found: dict[str, list[Spec]] = {}
    for name, options in _CONV_OPTIONS.items():
        kind = name.split("-")[0]
        found[f"{name}-narrowing"] = [conv(kind, IN_WIDTH, 3, **options)]
        found[f"{name}-widening"] = [conv(kind, IN_WIDTH, 9, **options)]
        found[f"{name}-2-layers"] = [conv(kind, IN_WIDTH, 4, **options), {"type": "relu"}, conv(kind, 4, 5, **options)]
    for activation in ACTIVATIONS:
        name = "-".join(str(v) for v in activation.values())
        found[f"graph_conv-then-{name}"] = [conv("graph_conv", IN_WIDTH, 5), activation, conv("sage_conv", 5, 3)]
    for norm in ROW_NORMS:
        name, norm = "-".join(str(v) for v in norm.values()), {**norm, "channels": 5}
        found[f"gcn_conv-then-{name}"] = [conv("gcn_conv", IN_WIDTH, 5), norm, conv("sage_conv", 5, 3)]
    found |= _longer() | jumping_layers(IN_WIDTH) | later_layers(IN_WIDTH) | attributed.attributed_layers(IN_WIDTH)
    found |= messages.message_layers(IN_WIDTH) | looped_layers(IN_WIDTH) | messages.weighed_attributes(IN_WIDTH)
    return {
        name: partial(make_model, seed, layers, integer=integer) for seed, (name, layers) in enumerate(found.items())
    }


def models_without_attributes() -> dict[str, Callable[[], Model]]:
    """Return those of `all_small_models` whose layers read no attributes of edges."""
    return {name: make for name, make in all_small_models().items() if not make().edge_features}


def seeds_of(name: str, names: Collection[str]) -> Sequence[int]:
    """Of the seeds 0 to 3, which also choose parts: all where few models have the layer, else one or two in turn."""
    same = sorted(one for one in names if one.partition("-")[0] == name.partition("-")[0])
    each = 4 if len(same) < 4 else 2 if len(same) < 8 else 1
    return [seed for seed in range(4) if (seed - each * same.index(name)) % 4 < each]


@cache
def exact_small_models() -> dict[str, Callable[[], Model]]:
    """Return those of `all_small_models` whose results are exact for integer features, with integer weights."""
    makers = all_small_models(integer=True)
    return {name: make for name, make in makers.items() if is_exact(make())}


_CONV_OPTIONS: dict[str, Spec] = {
    "graph_conv-sum": {"aggr": "sum"},
    "graph_conv-mean": {"aggr": "mean"},
    "graph_conv-max": {"aggr": "max"},
    "graph_conv-min": {"aggr": "min", "edge_weights": False},
    "graph_conv-std": {"aggr": "std"},
    "graph_conv-unweighted": {"edge_weights": False},
    "graph_conv-no_bias": {"bias": False},
    "comm_net_conv-default": {},
    "pin_sage_conv-default": {"hidden_channels": 4},
    "pin_sage_conv-unweighted": {"hidden_channels": 7, "edge_weights": False},
    "sage_conv-mean": {"aggr": "mean"},
    "sage_conv-sum": {"aggr": "sum"},
    "sage_conv-max": {"aggr": "max"},
    "sage_conv-min-project": {"aggr": "min", "project": True},
    "sage_conv-max-no_root": {"aggr": "max", "root_weight": False, "normalize": True},
    "sage_conv-several": {"aggr": ["mean", "max", "min"]},
    "sage_conv-several-sums": {"aggr": ["max", "sum"], "project": True},
    "sage_conv-several-moments": {"aggr": ["std", "max", "var", "sum"]},
    "sage_conv-normalize": {"normalize": True},
    "sage_conv-no_root": {"root_weight": False},
    "sage_conv-project": {"project": True},
    "sage_conv-project-no_root": {"project": True, "root_weight": False, "aggr": "sum"},
    "sage_conv-no_bias": {"bias": False, "aggr": "sum"},
    "gcn_conv-default": {},
    "gcn_conv-improved": {"improved": True},
    "gcn_conv-no_loops": {"add_self_loops": False},
    "gcn_conv-plain": {"normalize": False, "add_self_loops": False},
    "gcn_conv-unweighted": {"edge_weights": False, "improved": True},
    "gcn_conv-no_bias": {"bias": False},
    "gat_conv-default": {},
    "gat_conv-no_loops": {"add_self_loops": False, "negative_slope": 0.5},
    "gat_conv-mean_of_heads": {"heads": 3, "concat": False, "bias": False},
    "gat_conv-residual": {"heads": 2, "concat": False, "residual": True},
    "gat_conv-residual-no_loops": {"residual": True, "add_self_loops": False},
    "gatv2_conv-default": {},
    "gatv2_conv-no_loops": {"add_self_loops": False, "bias": False},
    "gatv2_conv-shared": {"share_weights": True, "heads": 2, "concat": False, "residual": True},
    "super_gat_conv-default": {},
    "super_gat_conv-dots": {"attention_type": "SD", "heads": 2, "concat": False, "negative_slope": 0.4},
    "super_gat_conv-no_loops": {"add_self_loops": False, "bias": False, "heads": 3, "concat": False},
    "transformer_conv-default": {},
    "transformer_conv-beta": {"beta": True, "heads": 2, "concat": False},
    "transformer_conv-no_root": {"root_weight": False, "bias": False},
    "res_gated_graph_conv-default": {},
    "res_gated_graph_conv-no_root": {"root_weight": False, "bias": False},
    "edge_conv-max": {},
    "edge_conv-mean": {"aggr": "mean"},
    "edge_conv-sum": {"aggr": "sum"},
    "gin_conv-default": {},
    "gin_conv-eps": {"eps": 0.5},
    **attributed.OPTIONS,
}


_PNA: Spec = {
    "aggregators": ["mean", "min", "max", "std"],
    "scalers": ["identity", "amplification", "attenuation"],
}
_EXACT_AGGREGATORS = {"sum", "max", "min"}


def _longer() -> dict[str, list[Spec]]:
    width, relu = IN_WIDTH, {"type": "relu"}
    normed = {"type": "layer_norm", "channels": 4}
    return {
        "linear-before-and-after": [
            linear(width, 4),
            relu,
            conv("graph_conv", 4, 4),
            {"type": "batch_norm", "channels": 4},
            relu,
            linear(4, 7),
            conv("sage_conv", 7, 3, aggr="sum"),
            relu,
            linear(3, 2, bias=False),
        ],
        "gin_conv-norm-first": [
            conv("gin_conv", width, 3, nn=[{"type": "batch_norm", "channels": width}, relu, linear(width, 3)]),
        ],
        "gin_conv-empty-mlp": [conv("gin_conv", width, width, nn=[])],
        "width-1": _stack(conv("graph_conv", width, 1), conv("gcn_conv", 1, 1), conv("sage_conv", 1, 4)),
        "log_softmax-last": [
            conv("gcn_conv", width, 5),
            {"type": "elu"},
            conv("gcn_conv", 5, 3),
            {"type": "log_softmax"},
        ],
        "layer_norm-first": [
            {"type": "layer_norm", "channels": width},
            conv("sage_conv", width, 4),
            {"type": "normalize"},
        ],
        "activation-first": [{"type": "relu"}, conv("graph_conv", width, 9)],
        "prelu-per-channel": [conv("graph_conv", width, 4), {"type": "prelu", "channels": 4}, conv("sage_conv", 4, 4)],
        "3-layers-sum": _stack(
            conv("graph_conv", width, 5), conv("sage_conv", 5, 4, aggr="sum"), conv("gin_conv", 4, 4)
        ),
        "4-layers-mixed": _stack(
            conv("gcn_conv", width, 5),
            conv("sage_conv", 5, 4, normalize=True),
            conv("graph_conv", 4, 6, aggr="mean"),
            conv("gin_conv", 6, 3, eps=-0.5),
            act={"type": "elu"},
        ),
        "6-layers-gcn-norms": _stack(*(conv("gcn_conv", width if k == 0 else 4, 4) for k in range(6)), act=normed),
        "gat_conv-4-heads": _stack(conv("gat_conv", width, 8, heads=4), conv("gat_conv", 8, 6, heads=2)),
        "gatv2_conv-4-heads": _stack(conv("gatv2_conv", width, 8, heads=4), conv("gatv2_conv", 8, 6, heads=2)),
        "transformer_conv-4-heads": _stack(
            conv("transformer_conv", width, 8, heads=4), conv("transformer_conv", 8, 6, heads=2, beta=True)
        ),
        **_pna_models(),
        **_edge_networks(),
        **_published(),
        "super_gat_conv-4-heads": _stack(
            conv("super_gat_conv", width, 8, heads=4), conv("super_gat_conv", 8, 6, heads=2, attention_type="SD")
        ),
        "agnn_conv": [linear(width, 4), relu, conv("agnn_conv", 4, 4), conv("agnn_conv", 4, 4, add_self_loops=False)],
        "4-layers-gcn": _stack(*(conv("gcn_conv", a, b) for a, b in [(width, 4), (4, 4), (4, 5), (5, 3)])),
    }


def _pna_models() -> dict[str, list[Spec]]:
    width, relu = IN_WIDTH, {"type": "relu"}
    return {
        "pna_conv": [conv("pna_conv", width, 4, **_PNA)],
        "pna_conv-residual": [keep("x"), conv("pna_conv", width, width, **_PNA), relu, join("sum", "x", ".")],
        "pna_conv-towers": _stack(
            conv("pna_conv", width, 6, **_PNA, towers=3, divide_input=True, post=[relu, linear(2, 2)]),
            conv("pna_conv", 6, 4, aggregators=["var", "sum"], scalers=["linear", "inverse_linear"], towers=2),
        ),
    }


def _published() -> dict[str, list[Spec]]:
    width, behind = IN_WIDTH, [{"type": "relu"}, {"type": "normalize"}]
    first, second = conv("pin_sage_conv", width, 4, hidden_channels=9), conv("pin_sage_conv", 4, 5, hidden_channels=3)
    return {"pin_sage_conv-as-published": [first, *behind, second, *behind]}


def _edge_networks() -> dict[str, list[Spec]]:
    """Messages of both ends: by a network that begins with a wide linear layer, with none, or is one alone."""
    width, relu = IN_WIDTH, {"type": "relu"}
    wide, normed = [linear(2 * width, 20), {"type": "elu"}, linear(20, 3)], {"type": "layer_norm", "channels": 8}
    return {
        "edge_conv-wide": _stack(
            conv("edge_conv", width, 9, aggr=["max", "mean", "std"], nn=wide), conv("edge_conv", 9, 4, aggr="min")
        ),
        "edge_conv-one-linear": [conv("edge_conv", width, 4, nn=[linear(2 * width, 4, bias=False)])],
        "edge_conv-no-linear": [linear(width, 4), conv("edge_conv", 4, 8, aggr="max", nn=[normed, {"type": "tanh"}])],
        "edge_conv-jumps": [
            *(conv("edge_conv", width, 4), keep("1"), conv("edge_conv", 4, 4, aggr="mean"), join("cat", "1", "."))
        ],
        "pna_conv-pre_layers": [conv("pna_conv", width, 4, **_PNA, pre=[relu, linear(width, width)])],
        "pna_conv-pre_layers-towers": [
            conv(
                "pna_conv", width, 6, aggregators=["max", "sum", "var"], scalers=["amplification", "linear"],
                towers=2, divide_input=True, pre=[relu, linear(3, 3)], post=[relu, linear(3, 3)],
            ),
        ],
    }  # fmt: skip


def _stack(*convs: Spec, act: Spec | None = None) -> list[Spec]:
    """Return the convs with an activation (relu, unless another is given) between them."""
    return [spec for one in convs for spec in (one, act or {"type": "relu"})][:-1]


def _random_conv(rng: np.random.Generator, in_width: int, out_width: int, *, integer: bool) -> Spec:
    names = [name for name, options in _CONV_OPTIONS.items() if not integer or _exact_options(name, options)]
    name = names[int(rng.integers(len(names)))]
    return conv(name.split("-")[0], in_width, out_width, **_CONV_OPTIONS[name])


def _exact_options(name: str, options: Spec) -> bool:
    return is_exact(make_model(0, [conv(name.split("-")[0], 2, 2, **options)]))


def _exact_layer(layer: Any) -> bool:
    if isinstance(layer, GINConv):
        return layer.aggr in _EXACT_AGGREGATORS and all(_exact_layer(inner) for inner in layer.nn)
    if isinstance(layer, GINEConv):
        return all(_exact_layer(inner) for inner in layer.nn)
    if isinstance(layer, EdgeConv):
        kinds = (layer.aggr,) if isinstance(layer.aggr, str) else layer.aggr
        return set(kinds) <= _EXACT_AGGREGATORS and all(_exact_layer(inner) for inner in layer.nn)
    if isinstance(layer, RootedConv):
        return layer.aggr in _EXACT_AGGREGATORS
    if isinstance(layer, SAGEConv):
        kinds = (layer.aggr,) if isinstance(layer.aggr, str) else layer.aggr
        return set(kinds) <= _EXACT_AGGREGATORS and not layer.normalize
    if isinstance(layer, DegreeScaledConv):
        return layer.aggr in _EXACT_AGGREGATORS and not layer.normalize
    if isinstance(layer, Laplacian):
        return layer.normalization == "none" and bool(np.log2(layer.lambda_max) % 1 == 0)
    if isinstance(layer, Join):
        return layer.operation not in ("product", "times_length", "quotient")
    if isinstance(layer, LeakyRelu):
        return bool(np.log2(layer.slope) % 1 == 0)
    if isinstance(layer, Scale):
        return bool(np.log2(abs(layer.factor)) % 1 == 0 and layer.offset % 1 == 0)
    return isinstance(layer, Linear | Relu | PRelu | Identity | BatchNorm | Affine | Clamp | Keep)


def _weight(rng: np.random.Generator, shape: tuple[int, ...], *, integer: bool) -> np.ndarray:
    if not integer:
        return (rng.standard_normal(shape) / np.sqrt(shape[-1] if len(shape) > 1 else 2)).astype(np.float32)
    values = rng.integers(-2, 3, shape).astype(np.float32)
    if len(shape) > 1:  # few terms a row keep sums over several layers far below 2^24
        values *= rng.random(shape) < 3.0 / max(3, shape[-1])
    return values
