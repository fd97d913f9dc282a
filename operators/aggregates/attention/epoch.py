"""Update of softmax sums in an epoch, in two calls: each passes dozens of arrays and waits for the interpreter."""

from __future__ import annotations

import numpy as np

from freshet.kernels.kernel import kernel
from freshet.operators.aggregates.attention.deltas import add_away, add_messages, replace_messages, turn_targets
from freshet.operators.aggregates.attention.kernels import Attention, InEdges
from freshet.operators.aggregates.attention.recomputed import settle
from freshet.operators.aggregates.attention.sides import move_sides
from freshet.operators.graph.edge_messages import Messages, Moves, Turns


@kernel
def leave(
    att: Attention,
    edges: InEdges,
    gone: Messages,
    kept: Messages,
    moves: Moves,
    rows: np.ndarray,
    turns: Turns,
    moves_sides: bool,
    serial: int,
) -> None:
    """Take back the messages that are gone, and have those of moved sources be what they are by `rows`.

    The tables have the old values, and afterwards the new terms of targets that turn where those are moved by their
    sides; `rows` has the new ones in the places of the moves.
    """
    if not moves_sides:
        turn_targets(att, edges, turns, serial)
    add_messages(att, edges, gone, -1, serial)
    add_away(att, edges, kept, -1, serial)
    if moves_sides:
        move_sides(att, edges, moves, rows, turns, serial)
    replace_messages(att, edges, kept, moves, rows, serial)


@kernel
def arrive(att: Attention, edges: InEdges, kept: Messages, come: Messages, serial: int) -> None:
    """Add the messages that come, of moved sources those whose edges change as well, and end the epoch."""
    add_away(att, edges, kept, 1, serial)
    add_messages(att, edges, come, 1, serial)
    settle(att, edges, serial)
