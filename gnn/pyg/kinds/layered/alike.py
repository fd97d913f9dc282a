"""Operations of a forward that give what others give: those that do nothing, and those that are done twice."""

from __future__ import annotations

from typing import Any

from freshet.gnn.declarations import Identity
from freshet.gnn.pyg.forward.in_place import gives_its_input
from freshet.gnn.pyg.kinds.operations import JoinedRows, KindsOperations, Made, OnRelation, OnRows
from freshet.gnn.pyg.steps import Hop, Step
from freshet.gnn.rows.layer import Layer


def distinct(ops: KindsOperations, results: list[str]) -> tuple[dict[str, Made], list[str]]:
    """Return the operations that do something, each once, reading each other; and the names of the results there."""
    same, first, made = dict[str, str](), dict[Any, str](), dict[str, Made]()
    for name, op in ops.made.items():
        op = _renamed(op, same)
        if isinstance(op, OnRows) and _does_nothing(op.step):
            same[name] = op.rows
        elif isinstance(op, JoinedRows) and len(op.rows) == 1 and op.operation != "softmax":
            same[name] = op.rows[0]
        else:
            same[name] = first.setdefault(_key(op), name)
            if same[name] == name:
                made[name] = op
    return made, [same.get(name, name) for name in results]


def _renamed(op: Made, same: dict[str, str]) -> Made:
    if isinstance(op, OnRelation):
        target = None if op.target is None else same.get(op.target, op.target)
        return op._replace(source=same.get(op.source, op.source), target=target)
    if isinstance(op, OnRows):
        return op._replace(rows=same.get(op.rows, op.rows))
    return op._replace(rows=tuple(same.get(one, one) for one in op.rows))


def _key(op: Made) -> Any:
    if isinstance(op, JoinedRows):
        return op
    identity = (_identity(op.step), op.step.edge_weights, op.step.attributes, str(op.step.given))
    return (*op[:-1], *identity)


def _does_nothing(step: Step) -> bool:
    if isinstance(step.op, Layer | Hop):
        return isinstance(step.op, Identity)
    return gives_its_input(step.op)


def _identity(step: Step) -> Any:
    """A key that equal steps share."""
    if isinstance(step.op, Layer):
        weights = step.weights or {}
        return type(step.op), step.op.model_dump_json(), tuple((name, w.tobytes()) for name, w in weights.items())
    return id(step.op)
