"""Recurrent layers over a fixed number of steps, and products of matrices with rows of several dimensions.

torch computes both for all vertices in one product of matrices, in which the rows of vertices are not told apart any
more. Here they are functions of one vertex: recurrent layers step by step, products as one matrix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from freshet.gnn.pyg.forward.places import place_here
from freshet.gnn.pyg.own.recorder import Operation, Recorder, tensors_in


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


_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_PRODUCTS = ("linear", "matmul", "__matmul__", "__rmatmul__", "einsum", "tensordot")


def by_vertex(recorder: Recorder, func: Any, name: str, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """Return what a function of torch gives that would put the rows of all vertices into one matrix; None for others.

    Raises: ExportError where a product reads more than one vertex.
    """
    if name in _RECURRENT and len(args) == 9:
        states = args[1] if isinstance(args[1], list | tuple) else [args[1]]
        if any(recorder.find(one) is not None for one in (args[0], *states)):
            return recurrent(name, *args)
    if name in _PRODUCTS:
        read = [one for one in tensors_in((args, options)) if recorder.find(one) is not None]
        if len(read) == 1 and read[0].dim() > 2:
            with _disable_current_modes():
                result = func(*args, **options)
                recorder.note_product(Operation(name, func, args, options, result, place_here()))
            return result
        if len(read) == 2 and "matmul" in name and min(one.dim() for one in read) > 3:  # as of heads
            left, right = args[::-1] if name == "__rmatmul__" else args[:2]
            return (left.unsqueeze(-1) * right.unsqueeze(-3)).sum(dim=-2)
        if len(read) == 2 and name == "einsum":
            return _einsum(*args)
    return None


def _einsum(equation: Any, *operands: Any) -> torch.Tensor | None:
    """Return an einsum of two tensors whose rows have several dimensions in common, as by heads; None for others."""
    tensors = operands[0] if len(operands) == 1 else operands
    inputs, _, output = str(equation).replace(" ", "").partition("->")
    names = inputs.split(",")
    if len(tensors) != 2 or len(names) != 2 or not output or "." in inputs:
        return None
    common = set(names[0]) & set(names[1]) & set(output)
    if len(common) < 2 or any(len(set(one)) < len(one) for one in (*names, output)):
        return None
    every = output + "".join(dict.fromkeys(one for one in inputs if one not in {*output, ","}))
    factors = [
        tensor.permute([name.index(one) for one in every if one in name])[
            tuple(slice(None) if one in name else None for one in every)
        ]
        for tensor, name in zip(tensors, names, strict=True)
    ]
    made = factors[0] * factors[1]
    summed = list(range(len(output), len(every)))
    return made.sum(dim=summed) if summed else made
