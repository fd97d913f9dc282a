"""Vertices that a change of the graph reaches, hop by hop: those whose rows of a layer it may change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from freshet.operators.graph.layer_of_kinds import LayerOfKinds
from freshet.operators.what_if.layer_blocks import numbers_read
from freshet.partitioner.inspection import OUT, Inspection, Touched

Forget = Callable[[int, np.ndarray], np.ndarray]


class LayerReach(NamedTuple):
    """Properties of a layer by which a change goes through it.

    `relations`: numbers of those that it reads, None where there are none; `scaled`: messages depend on their source's
    degrees.
    """

    relations: np.ndarray | None
    scaled: bool

    @staticmethod
    def of(layer: LayerOfKinds) -> LayerReach:
        """Read a layer's plan."""
        return LayerReach(numbers_read(layer), any(one is not None and one.source_scaled for one in layer.kinds))


def reached(
    layers: Sequence[LayerReach], graph: Inspection, touched: Touched, goes_on: Forget = lambda layer, rows: rows
) -> list[np.ndarray]:
    """Return the vertices whose rows may change, of x_0 and then of each of these layers; (k,) int64, ascending.

    `goes_on`: which of those that a layer (from 1 on) reaches are to be followed further.
    """
    _, ends, _ = graph.ends_of(touched.edges)
    contexts = np.unique(np.concatenate([touched.contexts, ends]))
    found = [np.unique(np.concatenate([touched.born, touched.featured]))]
    following = found[0]
    for number, layer in enumerate(layers, 1):
        sending = np.union1d(following, touched.contexts) if layer.scaled else following
        _, targets, types = graph.ends_of(graph.edges_of(sending, OUT).rows)
        if layer.relations is not None:
            targets = targets[np.isin(types, layer.relations)]
        rows = np.unique(np.concatenate([following, contexts, targets]))
        found.append(rows)
        following = goes_on(number, rows)
    return found
