"""The full pass of written layers: their functions on rows of float64, and what an error of their rows does.

What a function sums inside is not known, so the scale of a value is how far it moves when all that the function reads
moves by its own size and error at once, in one direction or the other: by the root of the mean square of a few trials.

Part of gnn/oracles/own_scale.py; shares no code with the plan but what calls the user's functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from freshet.gnn.declarations import OwnLayer
from freshet.gnn.oracles.edges import SortedEdges
from freshet.gnn.oracles.program import summed_up
from freshet.gnn.oracles.scaled import Scaled, exact, known, past_range, rows_at, stacked
from freshet.gnn.own.aggregates import Redone, SoftmaxOf, SumOf
from freshet.gnn.own.loading import layer_class
from freshet.gnn.own.running import RunningLayer

Array = np.ndarray
_TRIALS, _SAFELY = 6, 2.0


def own_layer(
    layer: OwnLayer, weights: dict[str, Array], x: Scaled, own: Scaled, edges: SortedEdges, step: float
) -> Scaled:
    """Return the rows after a written layer; `x` are the rows of sources, `own` those of targets."""
    code, widths = layer_class(layer.code, layer.source), (layer.in_channels, layer.edge_channels)
    running = RunningLayer(code, weights, layer.options, *widths, layer.target_channels)
    found = []
    for vertices, _, part in edges.pieces():
        mine, sources = rows_at(own, vertices), rows_at(x, part.src)
        none = exact(np.empty((len(part.src), 0)))
        source = moved(running.source, [sources], step)
        target = rows_at(moved(running.target, [mine], step), part.dst) if running.widths.target else none
        weight = exact(part.values.weight.astype(np.float64)[:, None])
        attr = exact(part.values.full_attr(layer.edge_channels).astype(np.float64)) if layer.edge_channels else none
        messages = moved(running.message, [source, target, weight, attr], step)
        aggregate = _aggregate(running, messages, part.of_messages(), step)
        read = moved(running.own, [mine], step) if running.widths.own else exact(mine.rows[:, :0])
        found.append(moved(running.update, [aggregate, read], step))
    return stacked(found)


def _aggregate(running: RunningLayer, messages: Scaled, edges: SortedEdges, step: float) -> Scaled:
    aggr = running.aggregate
    if isinstance(aggr, Redone):
        return moved(lambda rows: _redone(running, rows, edges), [messages], step)
    if isinstance(aggr, SoftmaxOf):
        messages = Scaled(*(np.roll(of, aggr.heads, axis=1) for of in messages))  # scores first
        return summed_up("softmax", aggr.heads, messages, edges, step)
    assert isinstance(aggr, SumOf)  # there is no other kind
    return summed_up(aggr.kind, 1, messages, edges, step)


def _redone(running: RunningLayer, messages: Array, edges: SortedEdges) -> Array:
    """Fold the messages of each vertex."""
    out = np.zeros((edges.vertices, running.widths.aggregate))
    ends = np.cumsum(np.bincount(edges.dst, minlength=edges.vertices))
    some = np.flatnonzero(np.diff(ends, prepend=0))
    if some.size:
        states = [running.fold(messages[ends[v - 1] if v else 0 : ends[v]]) for v in some]
        out[some] = running.read(np.stack(states))
    return out


def moved(function: Callable[..., Array], given: Sequence[Scaled], step: float) -> Scaled:
    """Return the rows of a function of rows, and how far they move."""
    rows = function(*(one.rows for one in given))
    total, random = np.zeros(rows.shape), np.random.default_rng(0)
    for _ in range(_TRIALS):
        sizes = [step * (one.scale + np.abs(one.rows)) for one in given]
        away = [one.rows + size * random.choice((-1, 1), size.shape) for one, size in zip(given, sizes, strict=True)]
        total += (function(*away) - rows) ** 2
    change = _SAFELY * np.sqrt(total / _TRIALS) / step
    return Scaled(rows, known(past_range(np.abs(rows)) + change))
