"""Self-loops that a conv adds by hand: torch.cat of edges, or of what these have, with one more for each vertex."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from freshet.gnn.pyg.own.recorder import NotedValue, Operation, Recorder
from freshet.gnn.pyg.own.values import Over

_LOOPED: dict[Over, Over] = {"edges": "doubled", "unlooped": "relooped"}


def with_loops_by_hand(rec: Recorder, call: Operation) -> NotedValue | None:
    """Note edges and a self-loop for each vertex behind them, or the weights of both; None for anything else."""
    if call.name != "cat" or len(call.args[0]) != 2 or "sources" in rec.sizes:
        return None
    (given, added), dim = call.args[0], [*call.args[1:], call.options.get("dim", 0)][0]
    noted = rec.find(given)
    if noted is None or rec.find(added) is not None or noted.axis != dim % given.dim():
        return None
    over = _LOOPED.get(noted.value.over)
    if over is None or added.shape[noted.axis] != (vertices := rec.sizes["vertices"]):
        return None
    value = replace(noted.value, over=over, place=call.place)
    if value.op == "edges":
        is_loop = added.dim() == 2 and torch.equal(added, torch.arange(vertices).expand(2, -1))
        return NotedValue(value, 1) if is_loop else None
    if value.op not in ("weight", "attr") or value.of:
        return None
    fill = rec.shared(call, added, noted.axis).arrays["value"]
    if len(set(fill.tolist())) != 1:
        return None
    return NotedValue(replace(value, arrays={"fill": np.array([float(fill[0])])}), noted.axis)
