"""Notes of what angles between rows are made of."""

from __future__ import annotations

from freshet.gnn.pyg.own.recorder import Note, Noted, Operation, Recorder


def _cross(rec: Recorder, call: Operation) -> Noted:
    """Note the cross product of two rows of three numbers each, as the products that it is made of."""
    one, other, *given = call.args
    dim = given[0] if given else call.options.get("dim", -1)
    with rec:
        made = one.roll(-1, dim) * other.roll(-2, dim) - one.roll(-2, dim) * other.roll(-1, dim)
    return rec.find(made)


ANGLE_NOTES: dict[str, Note] = {"linalg_cross": _cross}
