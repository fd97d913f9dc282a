"""Jumping knowledge that ends in a linear layer, as a sum that goes along: [x_1 | x_2] W is x_1 W_1 + x_2 W_2.

Side by side the rows of all layers are carried across every conv behind them; of their products only one row is, as
wide as the result. A partial sum is made of its vertex's rows whenever one of them changes, never
added to over time, so its bits depend on those rows alone. They are other bits than those of one long product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from freshet.gnn.declarations import Layer, Linear
from freshet.gnn.layers.carrying import carries_of
from freshet.gnn.pyg.steps import Weights
from freshet.gnn.rows.chains import chain_widths
from freshet.gnn.rows.jumps import CURRENT, Join, Keep


class _Piece(NamedTuple):
    """A layer and its weights, by their names in it."""

    layer: Layer
    weights: Weights


def with_running_sums(layers: Sequence[Layer], weights: Weights, prefix: str) -> tuple[list[Layer], Weights]:
    """Return layers that give the same rows and carry no more: sums instead of rows side by side, where that is less.

    Layers and weights are those of a model, named `prefix.index.name`; ones that do not fit each other come back as
    they are, for whoever checks that.
    """
    pieces = []
    for i, layer in enumerate(layers):
        start = f"{prefix}.{i}."
        pieces.append(_Piece(layer, {n[len(start) :]: w for n, w in weights.items() if n.startswith(start)}))
    at = 0
    while at + 1 < len(pieces):
        summed = _summed(pieces, at)
        if summed is not None and _carried(summed) < _carried(pieces):
            pieces, at = summed, 0
        at += 1
    named = {f"{prefix}.{i}.{n}": w for i, piece in enumerate(pieces) for n, w in piece.weights.items()}
    return [piece.layer for piece in pieces], named


def _carried(pieces: list[_Piece]) -> int:
    """Return the number of columns carried across all convs together."""
    layers = [piece.layer for piece in pieces]
    found = carries_of(layers, _in_width(layers))  # type: ignore[arg-type]  # they are those of a model
    return sum(carry.across.width for carry in found if carry is not None)


def _in_width(layers: Sequence[Layer]) -> int:
    return next((layer.in_width for layer in layers if layer.in_width is not None), 1)


def _summed(pieces: list[_Piece], at: int) -> list[_Piece] | None:
    """The pieces with the `cat` at this place, and the linear layer behind it, as a running sum; None for others."""
    join, linear = pieces[at].layer, pieces[at + 1].layer
    if not isinstance(join, Join) or not isinstance(linear, Linear) or join.operation != "cat" or len(join.of) < 2:
        return None
    widths = _widths_of(join, [piece.layer for piece in pieces[:at]])
    if widths is None or sum(widths) != linear.in_channels:
        return None
    keeps = {piece.layer.name: i for i, piece in enumerate(pieces[:at]) if isinstance(piece.layer, Keep)}
    places = {keeps.get(name, at): i for i, name in enumerate(join.of)}
    shares = np.split(pieces[at + 1].weights["weight"], np.cumsum(widths)[:-1], axis=1)
    name, made = _free_name(keeps), list[_Piece]()
    for i, piece in enumerate(pieces):
        if i in places:
            first, last = i == min(places), i == max(places)
            share = {"weight": np.ascontiguousarray(shares[places[i]])}
            bias = first and "bias" in pieces[at + 1].weights
            of_share = Linear(in_channels=widths[places[i]], out_channels=linear.out_channels, bias=bias)
            made += [piece] if i != at else []
            made.append(_Piece(of_share, share | ({"bias": pieces[at + 1].weights["bias"]} if bias else {})))
            made += [] if first else [_Piece(Join(operation="sum", of=(name, CURRENT)), {})]
            made += [] if last and i == at else [_Piece(Keep(name=name), {})]
            made += [] if i == at else [_Piece(Join(of=(piece.layer.name,)), {})]  # type: ignore[attr-defined]
        elif i == at:
            made.append(_Piece(Join(of=(name,)), {}))  # what it puts together was all kept before
        elif i != at + 1:
            made.append(piece)
    return made


def _widths_of(join: Join, before: Sequence[Layer]) -> list[int] | None:
    """The widths of what it puts together; None where a name stands for several rows, or widths do not fit."""
    names = [layer.name for layer in before if isinstance(layer, Keep)]
    if len(set(join.of)) < len(join.of) or any(names.count(name) != 1 for name in join.of if name != CURRENT):
        return None
    width = _in_width(before)
    try:
        behind = [width, *chain_widths(before, width, "layers")]
    except ValueError:
        return None
    known = {layer.name: behind[i] for i, layer in enumerate(before) if isinstance(layer, Keep)}
    return [{**known, CURRENT: behind[-1]}[name] for name in join.of]


def _free_name(taken: dict[str, int]) -> str:
    number = 1
    while f"sum{number}" in taken:
        number += 1
    return f"sum{number}"
