"""A model of one class alone, before there is a torch module: weights and options that nobody gave are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from freshet.gnn.layers.own.own_layer import declared
from freshet.gnn.model import Model, build_model
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.own.loading import layer_class
from freshet.gnn.own.running import WrittenLayerError

_OPTION = 2  # heads, the k of a top-k, an exponent
_MOST = 64  # names that a class reads


def drawn_weight(shape: tuple[int, ...], rng: np.random.Generator) -> Rows:
    """Return a weight of small integers."""
    return np.asarray(rng.integers(-2, 3, shape), np.float32)


def model_of_class(
    name: str, weights: Mapping[str, Rows], options: Mapping[str, Any], widths: tuple[int, int], seed: int
) -> tuple[Model, list[str]]:
    """Return a model of one written layer, and what was drawn for it, for people.

    `widths` are those of rows and of attributes of edges. A weight that is not given is as wide as rows, and square
    unless it is a bias; an option is 2, and attributes are as wide as rows where the message reads them.

    Raises: LayersError, WrittenLayerError.
    """
    width, edge_width = widths
    given, chosen, drawn = dict(weights), dict(options), list[str]()
    if not edge_width and "attr" in layer_class(name, None).reads_of("message"):
        edge_width = width
        drawn.append(f"--edge-width {width}")
    rng = np.random.default_rng(seed)
    while True:
        try:
            spec = declared(name, given, width, edge_channels=edge_width, **chosen)
            break
        except WrittenLayerError as error:
            cause = error.__cause__
            missing = cause.args[0] if isinstance(cause, KeyError) and cause.args else None
            if not isinstance(missing, str) or missing in chosen or len(drawn) > _MOST:
                said = " ".join(drawn)
                raise (WrittenLayerError(f"{error}. Drawn for it: {said}") if drawn else error) from error
        if missing not in given:
            shape = (width,) if missing.split(".")[-1].startswith("b") else (width, width)
            given[missing] = drawn_weight(shape, rng)
            drawn.append(f"--shape {missing}={'x'.join(map(str, shape))}")
        else:
            del given[missing]
            chosen[missing] = _OPTION
            drawn[-1] = f"--options '{{\"{missing}\": {_OPTION}}}'"
    tensors = {f"layers.0.{of}": weight for of, weight in given.items()}
    return build_model(layers=[spec.model_dump(mode="json")], edge_features=edge_width, weights=tensors), drawn
