"""Written layers that stand in the places of torch modules: their declarations and weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from freshet.gnn.layers.own.own_layer import declared
from freshet.gnn.own.loading import LayersError, layer_class
from freshet.gnn.own.running import WrittenLayerError
from freshet.gnn.pyg.own.conv import input_width, run_widths
from freshet.gnn.pyg.refusals import HOW_WIDE
from freshet.gnn.pyg.steps import Converted, ExportError, Step, edge_width_of, reads_targets


def convert_written(step: Step, code: str, width: int | None) -> Converted:
    """Return the declaration of the written layer that stands for a module, and its weights.

    Raises: ExportError naming what is missing, or what the layer's functions say.
    """
    module = step.op
    channels = getattr(module, "in_channels", width)
    if channels is None:
        channels = input_width(step)
    if not isinstance(channels, int) or channels < 1:
        msg = f"{step.name}: {code} reads rows of unknown width; give the module in_channels, or {HOW_WIDE}"
        raise ExportError(msg)
    edges = 0
    if "attr" in _reads(step.name, step, code):
        edges = edge_width_of(module) or 0
        if not edges:
            msg = f"{step.name}: {code}.message reads attributes of unknown width; give the module edge_dim"
            raise ExportError(msg)
    return _declared(step.name, step, code, in_channels=channels, edge_channels=edges)


def written_relation(where: str, step: Step, code: str, source: int | None, target: int | None) -> Converted:
    """Return the declaration of the written layer that stands for a conv on a relation, and its weights.

    `source` and `target` are the widths of the rows that it reads, where known; `where` names conv and relation.

    Raises: ExportError naming what is missing, or what the layer's functions say.
    """
    reads = _reads(where, step, code)
    try:
        rows, attributes, of_target = run_widths(step, source, target)
    except ExportError as error:
        msg = f"{where}, in whose place {code} stands: {error}"
        raise ExportError(msg) from error
    attributes = attributes if "attr" in reads else 0
    if "attr" in reads and not attributes:
        msg = f"{where}: {code}.message reads attributes of edges, and the module is handed none"
        raise ExportError(msg)
    other = None if of_target in (0, rows) else of_target
    sizes = {"in_channels": rows, "target_channels": other if reads_targets(code) else 0}
    return _declared(where, step, code, **sizes, edge_channels=attributes)


def _reads(where: str, step: Step, code: str) -> tuple[str, ...]:
    """Return the names of what messages read.

    Raises: ExportError where that is a weight, of which the module is handed none.
    """
    reads = layer_class(code, None).reads_of("message")
    if "weight" in reads and not step.edge_weights:
        msg = f"{where}: {code}.message reads the weight of an edge, and the module is handed none"
        raise ExportError(msg)
    return reads


def _declared(where: str, step: Step, code: str, **widths: Any) -> Converted:
    layer = layer_class(code, None)
    try:
        weights = {name: np.array(weight, np.float32) for name, weight in layer.weights_of(step.op).items()}
        spec = declared(code, weights, **widths, **layer.options_of(step.op))
    except (LayersError, WrittenLayerError, ValueError) as error:
        msg = f"{where}: {error}"
        raise ExportError(msg) from error
    return spec, weights
