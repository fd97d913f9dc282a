"""The full-graph forward pass, slow and obvious: every incremental path is compared with it.

It reads the model as it is declared and shares no code with the plan.
"""

from __future__ import annotations

import numpy as np

from freshet.gnn.declarations import Conv, Layer
from freshet.gnn.model import Model
from freshet.gnn.oracles import own_scale
from freshet.gnn.oracles.scaled import Scaled, exact
from freshet.schema import Graph

Array = np.ndarray


def forward(model: Model, graph: Graph) -> list[Array]:
    """Return the rows after each conv and what follows it; the last ones are the embeddings.

    Shapes: results (n, width of the layer) float64.
    """
    outputs: list[Array] = []

    def keep(layer: Layer, at: Scaled) -> None:
        rows = np.array(at.rows, np.float64)  # a copy: the next layer may write over them
        if isinstance(layer, Conv):
            outputs.append(rows)
        elif outputs:
            outputs[-1] = rows

    own_scale.forward(model, graph, after=keep)
    return outputs


def logits(model: Model, embedding: Array) -> Array:
    """Return the head's output for embeddings, in float64."""
    return own_scale.logits(model, exact(embedding.astype(np.float64))).rows
