"""Recurrent layers over a fixed number of steps.

torch multiplies the rows of all vertices by a matrix at once. Here a layer is a function of one vertex, step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


def _lstm_step(gates: Tensor, state: list[Tensor]) -> list[Tensor]:
    into, forget, cell, out = gates.chunk(4, -1)
    held = torch.sigmoid(forget) * state[1] + torch.sigmoid(into) * torch.tanh(cell)
    return [torch.sigmoid(out) * torch.tanh(held), held]


def _gru_step(given: Tensor, kept: Tensor, state: list[Tensor]) -> list[Tensor]:
    (reset, update, new), (of_reset, of_update, of_new) = given.chunk(3, -1), kept.chunk(3, -1)
    update = torch.sigmoid(update + of_update)
    new = torch.tanh(new + torch.sigmoid(reset + of_reset) * of_new)
    return [new + update * (state[0] - new)]


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.mm(x, weight.t()) if bias is None else torch.addmm(bias, x, weight.t())


def _layer(kind: str, steps: Sequence[Tensor], state: list[Tensor], weights: Sequence[Any]) -> tuple[Any, list[Tensor]]:
    """Return the rows of one direction of a layer, step by step, and its last state."""
    from_input, from_state, *biases = weights
    one, other = biases or (None, None)
    made = list[Tensor]()
    for x in steps:
        given, kept = _linear(x, from_input, one), _linear(state[0], from_state, other)
        if kind == "lstm":
            state = _lstm_step(given + kept, state)
        elif kind == "gru":
            state = _gru_step(given, kept, state)
        else:
            state = [torch.tanh(given + kept) if kind == "rnn_tanh" else torch.relu(given + kept)]
        made.append(state[0])
    return made, state


def recurrent(
    kind: str, x: Tensor, states: Any, weights: Sequence[Any], biased: bool, layers: int, dropout: float, train: bool,
    both_ways: bool, batch_first: bool,
) -> tuple[Tensor, ...] | None:  # fmt: skip
    """Return what torch.lstm, gru, rnn_tanh or rnn_relu gives; None for what is not read here.

    x: (steps, n, width), or (n, steps, width) if batch_first. The arguments are those of torch's function.
    """
    first = list(states) if kind == "lstm" else [states]
    per_layer, directions = (4 if biased else 2), 2 if both_ways else 1
    if x.dim() != 3 or len(weights) != per_layer * layers * directions:  # the latter: with projections
        return None
    steps, last = list(x.unbind(1 if batch_first else 0)), list[list[Tensor]]()
    for layer in range(layers):
        ways = list[list[Tensor]]()
        for way in range(directions):
            at = layer * directions + way
            given = steps[::-1] if way else steps
            start = [one[at] for one in first]
            made, state = _layer(kind, given, start, weights[at * per_layer : (at + 1) * per_layer])
            ways.append(made[::-1] if way else made)
            last.append(state)
        steps = [torch.cat(pair, -1) if both_ways else pair[0] for pair in zip(*ways, strict=True)]
    return torch.stack(steps, 1 if batch_first else 0), *(torch.stack(one) for one in zip(*last, strict=True))
