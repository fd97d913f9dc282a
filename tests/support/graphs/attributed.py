"""Models whose layers read attributes of edges."""

from __future__ import annotations

from typing import Any

from tests.support.graphs.jumping import join, keep

Spec = dict[str, Any]

EDGE_WIDTH = 3  # of the attributes of models that read any
_RELU: Spec = {"type": "relu"}

OPTIONS: dict[str, Spec] = {
    "gine_conv-default": {"edge_channels": EDGE_WIDTH},
    "res_gated_graph_conv-attributes": {"edge_channels": EDGE_WIDTH},
    "res_gated_graph_conv-attributes-no_root": {"edge_channels": EDGE_WIDTH, "root_weight": False, "bias": False},
    "gat_conv-attributes": {"edge_channels": EDGE_WIDTH, "heads": 2, "concat": False},
    "gine_conv-eps": {"edge_channels": EDGE_WIDTH, "eps": -0.5},
}


def linear(in_channels: int, out_channels: int) -> Spec:
    return {"type": "linear", "in_channels": in_channels, "out_channels": out_channels}


def gine(in_channels: int, out_channels: int, **options: Any) -> Spec:
    nn = [linear(in_channels, out_channels), _RELU, linear(out_channels, out_channels)]
    widths = {"in_channels": in_channels, "out_channels": out_channels, "edge_channels": EDGE_WIDTH}
    return {"type": "gine_conv", **widths, "nn": nn, **options}


def matrices(in_channels: int, out_channels: int, **options: Any) -> Spec:
    nn = [linear(EDGE_WIDTH, 4), {"type": "tanh"}, linear(4, in_channels * out_channels)]
    widths = {"in_channels": in_channels, "out_channels": out_channels, "edge_channels": EDGE_WIDTH}
    return {"type": "nn_conv", **widths, "nn": nn, **options}


def attending(kind: str, in_channels: int, out_channels: int, **options: Any) -> Spec:
    widths = {"in_channels": in_channels, "out_channels": out_channels, "edge_channels": EDGE_WIDTH}
    return {"type": f"{kind}_conv", **widths, **options}


def attributed_layers(width: int) -> dict[str, list[Spec]]:
    """Layers beside others that read no attributes, with rows kept across them, and attributes added as they are."""
    gcn: Spec = {"type": "gcn_conv", "in_channels": width, "out_channels": 4}
    last: Spec = {"type": "gcn_conv", "in_channels": 4, "out_channels": 3}
    pna: Spec = {
        "type": "pna_conv", "in_channels": width, "out_channels": 4, "edge_channels": EDGE_WIDTH,
        "aggregators": ["mean", "min", "max", "std"], "scalers": ["identity", "amplification"],
    }  # fmt: skip
    towers: Spec = {**pna, "aggregators": ["sum", "var"], "towers": 2, "divide_input": True}
    nn: list[Spec] = [_RELU, linear(width, width)]
    cg: Spec = {"type": "cg_conv", "in_channels": width, "out_channels": width}
    wide_cg: Spec = {**cg, "edge_channels": EDGE_WIDTH}
    gen: Spec = {"type": "gen_conv", "in_channels": 3, "out_channels": 3, "aggr": "mean", "nn": [linear(3, 3), _RELU]}
    narrowing: Spec = {**gen, "in_channels": width}
    return {
        "pna_conv-attributes": [pna, _RELU, {**towers, "in_channels": 4, "out_channels": 6}],
        "pna_conv-attributes-pre_layers": [{**pna, "pre": nn}],
        "gine_conv-attributes-as-they-are": [
            linear(width, EDGE_WIDTH), gine(EDGE_WIDTH, 4, edge_linear=False), _RELU, last,
        ],
        "gat_conv-attributes-heads": [
            attending("gat", width, 4, heads=2, fill_value=0.5, residual=True), _RELU,
            attending("gat", 4, 3, heads=2, concat=False, add_self_loops=False),
        ],
        "gatv2_conv-attributes": [
            attending("gatv2", width, 4, heads=2), _RELU,
            attending("gatv2", 4, 3, heads=2, concat=False, share_weights=True, fill_value=-1.5), _RELU, gen,
        ],
        "transformer_conv-attributes": [
            attending("transformer", width, 4, heads=2), {"type": "elu"},
            attending("transformer", 4, 3, heads=2, concat=False, beta=True), _RELU, {**gen, "aggr": "max"},
        ],
        "gmm_conv-attributes": [
            attending("gmm", width, 4, kernels=3), _RELU, attending("gmm", 4, 3, kernels=2, aggr="sum", bias=False),
        ],
        "nn_conv-attributes": [
            matrices(width, 4), _RELU, matrices(4, 3, aggr="mean", bias=False), _RELU,
            {**gen, "aggr": "softmax", "t": -0.5},
        ],
        "cg_conv-attributes-mean": [
            {**wide_cg, "aggr": "mean", "bias": False}, _RELU,
            {**narrowing, "aggr": "softmax", "t": 2.0, "edge_channels": EDGE_WIDTH},
        ],
        "cg_conv-attributes": [{**wide_cg, "batch_norm": True}, _RELU, narrowing],
        "cg_conv-none": [cg, _RELU, {**narrowing, "edge_channels": EDGE_WIDTH, "bias": True}, _RELU, gen],
        "gine_conv-last": [gcn, _RELU, gine(4, 4, nn=[]), _RELU, gine(4, 3)],
        "gine_conv-jumps": [gine(width, 4), keep("1"), gine(4, 4), join("cat", "1", ".")],
    }  # fmt: skip
