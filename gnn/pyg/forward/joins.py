"""Functions that join the rows of several layers into one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch.nn import Module

from freshet.gnn.declarations import Layer
from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.line import Operations
from freshet.gnn.pyg.refusals import several_rows
from freshet.gnn.pyg.steps import Step
from freshet.gnn.rows.functions import Scale
from freshet.gnn.rows.jumps import Operation

_BESIDE = ("cat", "concat", "concatenate", "hstack", "column_stack")
_PAIRS: dict[str, Operation] = {"maximum": "max", "minimum": "min", "max": "max", "min": "min"}
_ARITHMETIC: dict[str, Operation] = {"add": "sum", "mul": "product", "div": "quotient"}
_REDUCED: dict[str, Operation] = {
    **{"sum": "sum", "mean": "sum", "prod": "product"},
    **{"max": "max", "min": "min", "amax": "max", "amin": "min"},
}


class Stack(NamedTuple):
    """Rows of several layers stacked along a new dimension, which is to be reduced again."""

    rows: list[str]
    dim: int


def joined_rows(
    ops: Operations, where: str, name: str, label: str, rows: list[str], options: Mapping[str, Any]
) -> str | Stack:
    """Note a function that is called with the rows of several layers, in their order; returns its rows' name.

    `label` is the function's name, of arithmetic add, sub, mul or div; `options` are its other arguments, by name, and
    "dim" in whatever form it was given. Raises: ExportError for a function that is none of these.
    """
    more = sorted(key for key, value in options.items() if key != "dim" and value not in (None, False))
    if more:
        refuse(f"{where}: {label} with {', '.join(more)} is not supported")
    if label == "stack":
        return Stack(rows, options.get("dim", 0) % 3)
    if label in _BESIDE:
        dim = options.get("dim", 1 if label in ("hstack", "column_stack") else 0)
        if dim not in (1, -1):
            refuse(f"{where}: {label} over dim={dim} puts vertices together; dim=-1 puts channels side by side")
        return rows[0] if len(rows) == 1 else ops.join(name, "cat", rows)
    if len(rows) == 2 and label in _PAIRS and "dim" not in options:
        return ops.join(name, _PAIRS[label], rows)
    if len(rows) == 2 and label == "sub":
        rows, label = [rows[0], _scaled(ops, f"{name}.negative", rows[1], -1.0)], "add"
    if len(rows) == 2 and label in _ARITHMETIC:
        return ops.join(name, _ARITHMETIC[label], rows)
    raise ExportError(several_rows(where, label, rows))


class JumpsInOrder(Module):
    """A module that is called with a list of rows, such as JumpingKnowledge("lstm"), as a function of them."""

    def __init__(self, module: Module) -> None:
        """Take the module."""
        super().__init__()
        self.module = module

    def forward(self, **rows: Any) -> Any:
        """Return what it makes of rows0, rows1 and so on."""
        return self.module(list(rows.values()))


def jumped(ops: Operations, where: str, name: str, module: Any, rows: list[str]) -> str:
    """Note jumping knowledge, which makes one row of several; returns its name.

    Raises: ExportError for a mode that is none of PyG's.
    """
    if module.mode in ("cat", "max"):
        return ops.join(name, module.mode, rows)
    if module.mode == "lstm":
        return ops.function(name, JumpsInOrder(module), rows)
    refuse(f"{where}: jumping knowledge with {module.mode!r} is not supported; expected 'cat', 'max' or 'lstm'")


def reduced(ops: Operations, where: str, name: str, label: str, stack: Stack, dim: Any) -> str:
    """Note that stacked rows are reduced to one row, or put side by side by flatten(1); returns its name.

    Raises: ExportError for another function, or one over another dimension.
    """
    if label == "flatten" and dim == stack.dim == 1:
        return stack.rows[0] if len(stack.rows) == 1 else ops.join(name, "cat", stack.rows)
    if label not in _REDUCED or not isinstance(dim, int) or dim % 3 != stack.dim:
        msg = f"{where}: stacked rows must be reduced over the dimension that stacks them, by {', '.join(_REDUCED)}, "
        raise ExportError(msg + "or be put side by side by flatten(1) behind stack(dim=1)")
    if len(stack.rows) == 1:
        return stack.rows[0]
    rows = ops.join(name, _REDUCED[label], stack.rows)
    return _scaled(ops, f"{name}.share", rows, 1 / len(stack.rows)) if label == "mean" else rows


def _scaled(ops: Operations, name: str, rows: str, factor: float) -> str:
    layer: Layer = Scale(factor=factor)
    return ops.add(rows, Step(name, layer))
