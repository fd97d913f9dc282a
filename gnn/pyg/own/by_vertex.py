"""Functions of torch that would put the rows of all vertices into one matrix, done for each vertex by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.forward.places import place_here
from freshet.gnn.pyg.own.recorder import Operation, Recorder, tensors_in
from freshet.gnn.pyg.own.recurrent import recurrent

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
    if name == "scaled_dot_product_attention" and any(recorder.find(one) is not None for one in args):
        return _attention(*args, **options)
    return None


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Return torch's scaled_dot_product_attention; None for one with a mask, or with groups of heads.

    Raises: ExportError where it draws at random.
    """
    if dropout_p:
        refuse(f"{place_here()}: dropout_p={dropout_p} draws at random at inference, too; give 0 unless self.training")
    if attn_mask is not None or is_causal or enable_gqa:
        return None
    scores = (query.unsqueeze(-2) * key.unsqueeze(-3)).sum(-1) * (query.size(-1) ** -0.5 if scale is None else scale)
    return (torch.softmax(scores, -1).unsqueeze(-1) * value.unsqueeze(-3)).sum(-2)


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
