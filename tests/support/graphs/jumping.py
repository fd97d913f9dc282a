"""Models whose layers read rows of earlier ones: residuals, jumping knowledge, several hops of one conv."""

from __future__ import annotations

from typing import Any

import numpy as np

Spec = dict[str, Any]

_RELU: Spec = {"type": "relu"}


def keep(name: str) -> Spec:
    return {"type": "keep", "name": name}


def join(operation: str, *of: str) -> Spec:
    return {"type": "join", "operation": operation, "of": list(of)}


def propagation(width: int, **options: Any) -> Spec:
    return {"type": "propagation", "in_channels": width, "out_channels": width, **options}


class Jumps:
    """Draws what stands between the layers of a random model: rows kept, joined with earlier ones, propagated."""

    def __init__(self, seed: int, *, integer: bool) -> None:
        self._rng = np.random.default_rng([seed, 1])
        self._integer = integer
        self._kept: dict[str, int] = {}

    def behind(self, width: int) -> tuple[list[Spec], int]:
        """Return layers behind one whose rows are that wide, and the width of the last one's."""
        rng, made = self._rng, list[Spec]()
        if rng.random() < 0.15:
            plain = self._integer or rng.random() < 0.3
            loops = not plain and bool(rng.random() < 0.5)
            made.append(propagation(width, normalize=not plain, add_self_loops=loops))
        if self._kept and rng.random() < 0.4:
            same = [name for name, kept in self._kept.items() if kept == width]
            operations = ["sum", "max", "min"] if self._integer else ["sum", "max", "min", "product", "times_length"]
            if same and rng.random() < 0.6:
                operation = str(rng.choice(operations))
                several = min(len(same), 1 if operation == "times_length" else 2)
                made.append(join(operation, ".", *rng.choice(same, several, replace=False)))
            elif rng.random() < 0.5:
                name = str(rng.choice(list(self._kept)))
                made.append(join("cat", name, "."))
                width += self._kept[name]
            else:
                name = str(rng.choice(list(self._kept)))
                made.append(join("cat", name))
                width = self._kept[name]
        if rng.random() < 0.4:
            name = f"rows{int(rng.integers(3))}"
            made.append(keep(name))
            self._kept[name] = width
        return made, width


def jumping_layers(width: int) -> dict[str, list[Spec]]:
    """Return the layers of named models on features of that width."""
    linear = _linear(width, 4)
    jumps = [_conv("gcn_conv", width, 4), _RELU, keep("1"), _conv("sage_conv", 4, 4, aggr="max"), _RELU, keep("2")]
    return _hopping_layers(width) | {
        "residual": [
            *(linear, keep("x"), _conv("graph_conv", 4, 4), _RELU, join("sum", "x", "."), keep("h")),
            *(_conv("gat_conv", 4, 4), join("sum", ".", "h")),
        ],
        "message-norm": [
            *(linear, keep("x"), _conv("gcn_conv", 4, 4), {"type": "normalize"}),
            join("times_length", ".", "x"),
        ],
        "residual-of-features": [keep("x"), _conv("gcn_conv", width, width), join("product", "x", ".")],
        "jumping-cat": [
            *(*jumps, _conv("gin_conv", 4, 3, nn=[_linear(4, 3)])),
            *(join("cat", "1", "2", "."), _linear(11, 4)),
        ],
        "jumping-max": [*jumps, _conv("gatv2_conv", 4, 4), _RELU, join("max", "1", "2", ".")],
        "two-convs-of-one-row": [
            *(keep("x"), _conv("graph_conv", width, 3), keep("a"), join("cat", "x")),
            *(_conv("transformer_conv", width, 4), join("cat", "a", ".", "x")),
        ],
        "kept-and-dropped": [
            *(keep("x"), keep("x"), _conv("sage_conv", width, 5), keep("y"), _RELU),
            _conv("gcn_conv", 5, 2),
        ],
    }


def _hopping_layers(width: int) -> dict[str, list[Spec]]:
    """Convs that are several hops."""
    linear = _linear(width, 4)
    hop = [propagation(4), {"type": "scale", "factor": 0.75}, join("sum", ".", "share")]
    tag: list[Spec] = [keep("x"), linear, keep("out")]
    for _ in range(2):
        tag += [join("cat", "x"), propagation(width, add_self_loops=False), keep("x"), linear]
        tag += [join("sum", "out", "."), keep("out")]
    return {
        "appnp": [
            *(linear, keep("h"), {"type": "scale", "factor": 0.25}, keep("share"), join("cat", "h")),
            *(*hop, *hop, *hop),
        ],
        "tag_conv": tag,
        "sgc": [propagation(width), propagation(width), linear],
        "plain-sum": [
            propagation(width, normalize=False, add_self_loops=False),
            propagation(width, edge_weights=False),
        ],
    }


def _conv(kind: str, in_channels: int, out_channels: int, **options: Any) -> Spec:
    return {"type": kind, "in_channels": in_channels, "out_channels": out_channels, **options}


def _linear(in_channels: int, out_channels: int) -> Spec:
    return {"type": "linear", "in_channels": in_channels, "out_channels": out_channels}
