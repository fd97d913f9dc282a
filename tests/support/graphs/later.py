"""Models that came later than others: they stand behind them, since the weights of a model depend on its place."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.support.graphs.jumping import Spec, join, keep, propagation

_RELU: Spec = {"type": "relu"}
_PLAIN: Spec = {"normalize": False, "add_self_loops": False}


def later_layers(width: int) -> dict[str, list[Spec]]:
    """Return the layers of named models on features of that width."""
    return _of_other_aggregators(width) | _composed(width) | {"20-layers": _deep(width)}


def looped_layers(width: int) -> dict[str, list[Spec]]:
    """Return the layers of a model with self-loops beside those of the graph, or without these, and of a quotient."""
    of_loops: list[Spec] = [
        *(propagation(width, existing_loops="beside", self_weight=0.5), _sized("linear", width, 4)),
        propagation(4, existing_loops="drop", self_weight=2.0),
        propagation(4, aggr="mean", edge_weights=False, existing_loops="drop", **_PLAIN),
    ]
    gated: list[Spec] = [
        *(_sized("linear", width, 4), {"type": "sigmoid"}, keep("x"), propagation(4, **_PLAIN)),
        *({"type": "scale", "offset": 0.125}, keep("sum"), join("cat", "x"), propagation(4, aggr="max", **_PLAIN)),
        join("quotient", ".", "sum"),
    ]
    return {"propagation-of-loops": of_loops, "quotient": gated}


def _of_other_aggregators(width: int) -> dict[str, list[Spec]]:
    """Convs and hops that were sums alone once."""
    gcn, hop = partial(_sized, "gcn_conv"), propagation
    return {
        "gcn_conv-max": [gcn(width, 4, aggr="max"), _RELU, gcn(4, 7, aggr="max", improved=True)],
        "gcn_conv-min": [gcn(width, 9, aggr="min", bias=False, edge_weights=False)],
        "gcn_conv-mean": [gcn(width, 4, aggr="mean"), _RELU, gcn(4, 5, aggr="mean", add_self_loops=False)],
        "gcn_conv-std": [gcn(width, 4, aggr="std"), _RELU, gcn(4, 5, aggr="std", add_self_loops=False)],
        "gcn_conv-var": [gcn(width, 4, aggr="var", edge_weights=False)],
        "gcn_conv-max-plain": [gcn(width, 4, aggr="max", **_PLAIN), _RELU, gcn(4, 5, aggr="min", **_PLAIN)],
        "gcn_conv-mean-plain": [gcn(width, 9, aggr="mean", **_PLAIN)],
        "gcn_conv-both": [
            gcn(width, 4, degrees="both", add_self_loops=False),
            *(_RELU, gcn(4, 5, degrees="both", add_self_loops=False, aggr="max", edge_weights=False)),
        ],
        "gin_conv-max": [_gin(width, 4, aggr="max"), _RELU, _gin(4, 5, aggr="min", eps=0.5)],
        "gin_conv-mean": [_gin(width, 4, aggr="mean"), _RELU, _gin(4, 7, aggr="mean", eps=-0.25)],
        "gin_conv-std": [_gin(width, 9, aggr="std"), _RELU, _gin(9, 5, aggr="var")],
        "gcn_conv-degrees-of-out-edges": [
            gcn(width, 4, degrees="out"),
            *(_RELU, hop(4, degrees="out", existing_loops="beside", self_weight=0.5)),
            *(_RELU, gcn(4, 5, degrees="out", add_self_loops=False, aggr="max", edge_weights=False)),
        ],
        "propagation-both-degrees-of-loops": [
            *(_sized("linear", width, 4), hop(4, degrees="both", existing_loops="beside")),
            *(_RELU, hop(4, degrees="both", edge_weights=False), _RELU),
            *(_sized("linear", 4, 3), hop(3, degrees="out", add_self_loops=False, existing_loops="drop")),
        ],
        "propagation-weighted_mean": [
            *(hop(width, aggr="weighted_mean", normalize=False), _sized("linear", width, 4)),
            hop(4, aggr="weighted_mean", edge_weights=False, **_PLAIN),
        ],
        "propagation-of-own-weight": [
            hop(width, aggr="mean", normalize=False, edge_weights=False, self_weight=1.5),
            *(_sized("linear", width, 4), hop(4, self_weight=0.25)),
        ],
        "propagation-max-loops": [
            *(hop(width, aggr="max", normalize=False), _sized("linear", width, 4)),
            hop(4, aggr="min", normalize=False, edge_weights=False, self_weight=-2.0),
        ],
    }


def _composed(width: int) -> dict[str, list[Spec]]:
    """Convs of PyG as their export makes them: hops with linear layers, products and sums around."""
    lin = partial(_sized, "linear")
    arma = partial(_sized, "gcn_conv", add_self_loops=False)
    hops = [propagation(4, edge_weights=False), *_kept("x", propagation(4, aggr="max", **_PLAIN))]
    return {
        "le_conv": [
            *(keep("x"), lin(width, 3), keep("own"), join("cat", "x"), lin(width, 4), propagation(4, **_PLAIN)),
            *(keep("sums"), lin(4, 3), keep("count"), join("cat", "x"), lin(width, 3), join("product", "count", ".")),
            *(keep("target"), join("cat", "sums"), lin(4, 3), join("sum", ".", "target", "own")),
        ],
        "cluster_gcn_conv": [
            keep("x"),
            propagation(width, aggr="mean", normalize=False, edge_weights=False, self_weight=1.5),
            *(lin(width, 5), keep("out"), join("cat", "x"), lin(width, 5), join("sum", "out", ".")),
        ],
        "cheb_conv": [
            *(keep("x"), lin(width, 4), keep("out"), join("cat", "x")),
            *(_sized("laplacian", width, width), keep("x"), lin(width, 4), join("sum", "out", ".")),
            *(_RELU, _sized("laplacian", 4, 4, edge_weights=False, lambda_max=1.5)),
        ],
        "laplacian-rw": [
            *(_sized("laplacian", width, width, normalization="rw"), lin(width, 4), _RELU),
            *(_sized("laplacian", 4, 4, normalization="rw", lambda_max=4.0, edge_weights=False), lin(4, 3)),
        ],
        "laplacian-none": [
            *(_sized("laplacian", width, width, normalization="none", lambda_max=4.0), lin(width, 4), _RELU),
            _sized("laplacian", 4, 4, normalization="none", edge_weights=False),
        ],
        "film_conv": [
            *(keep("x"), lin(width, 9), _sized("film_conv", 9, 3, act=[_RELU]), keep("sum"), join("cat", "x")),
            *(lin(width, 3), join("sum", "sum", "."), lin(3, 12), _sized("film_conv", 12, 4, aggr="sum")),
        ],
        "film_conv-max": [lin(width, 12), _sized("film_conv", 12, 4, aggr="max", act=[{"type": "elu"}])],
        "wl_conv_continuous": [
            *(keep("x"), propagation(width, aggr="weighted_mean", **_PLAIN), join("sum", "x", ".")),
            {"type": "scale", "factor": 0.5},
        ],
        "arma_conv": [
            *(keep("x"), arma(width, 8), *_kept("x", lin(width, 8)), _RELU),
            *(arma(8, 8), *_kept("x", lin(width, 8)), _RELU, lin(8, 4)),
        ],
        "anti_symmetric_conv": [
            *(keep("x"), lin(width, width), keep("w"), join("cat", "x"), _sized("gcn_conv", width, width)),
            *(join("sum", "w", "."), {"type": "tanh"}, {"type": "scale", "factor": 0.25}, join("sum", "x", ".")),
        ],
        "eg_conv": [
            *(keep("h"), lin(width, 4), keep("x"), *hops, lin(8, 16), keep("every"), join("cat", "h")),
            *(lin(width, 16), join("product", "every", "."), lin(16, 4)),
        ],
    }


def _deep(width: int) -> list[Spec]:
    """GCN2 of more layers than models had once."""
    share: Spec = {"type": "scale", "factor": 0.125}
    layer = [propagation(4), {"type": "scale", "factor": 0.875}, join("sum", ".", "first"), _RELU]
    return [_sized("linear", width, 4), keep("h"), share, keep("first"), join("cat", "h"), *(layer * 20)]


def _kept(name: str, *layers: Spec) -> list[Spec]:
    """Return layers that read other rows than those before, and put both together."""
    both = join("cat" if layers[0]["type"] == "propagation" else "sum", "before", ".")
    return [keep("before"), join("cat", name), *layers, both]


def _sized(kind: str, in_channels: int, out_channels: int, **options: Any) -> Spec:
    return {"type": kind, "in_channels": in_channels, "out_channels": out_channels, **options}


def _gin(in_channels: int, out_channels: int, **options: Any) -> Spec:
    nn = [_sized("linear", in_channels, out_channels), _RELU, _sized("linear", out_channels, out_channels)]
    return _sized("gin_conv", in_channels, out_channels, nn=nn, **options)
