"""The position of a Storage or a Tail among the layers and tasks of a job."""

from __future__ import annotations

from typing import NamedTuple

from freshet.operators.graph.layer_of_kinds import LayerOfKinds, VertexPlan
from freshet.state.task_parts import TaskParts


class LayerShape(NamedTuple):
    """Position of a Storage or Tail: its task, the parts of each task, its layer's number and plans, the next one's.

    `receivers` are the tasks of the next layer, or of the Sink; None: the same.
    """

    task: int
    tasks: TaskParts
    number: int
    layer: LayerOfKinds
    following: LayerOfKinds | None
    receivers: TaskParts | None = None
    is_keyed: bool = False  # edges have keys
    seed: int = 0  # of the job, for what nobody is to predict

    def __str__(self) -> str:
        return f"storage {self.number} task {self.task}"


def sending(layer: LayerOfKinds | None, kind: int) -> VertexPlan | None:
    """Return the plan by which vertices of a kind send rows to a layer; None where they send none."""
    plan = None if layer is None else layer.kinds[kind]
    return plan if plan is not None and plan.sends else None
