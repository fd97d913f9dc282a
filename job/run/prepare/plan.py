"""Checks that a job can run a model, and that there is room for its snapshot."""

from __future__ import annotations

from pathlib import Path

from freshet.gnn.any_plan import AnyPlan
from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.job.errors import UsageError
from freshet.job.units import readable
from freshet.kinds import NO_MIRROR
from freshet.operators.factory import load_plan
from freshet.operators.settings import state_bytes_by_kind
from freshet.operators.snapshot.reader import Snapshot, count_by_kind
from freshet.state.memory.machine_memory import available_memory

_AT_ONCE = 2  # times the tables, with the snapshot's events and all blocks of epoch 0: measured 1.9


def plan_to_run(model: Path, *, undirected: bool) -> AnyPlan:
    """Return the plan of a new job's model.

    Raises: UsageError for one that returns several kinds of vertices; KindsError for edges between two kinds that are
    to be undirected; ModelError.
    """
    plan = load_plan(str(model.absolute()))
    if not isinstance(plan, KindsPlan):
        return plan
    if len(plan.out) > 1:
        msg = f"--model {model}: it returns {len(plan.out)} kinds ({', '.join(plan.out)}), and a job writes one"
        msg += f' yet; export it with output="{next(iter(plan.out))}", say'
        raise UsageError(msg)
    assert plan.features.kinds is not None  # as each such model has them
    plan.features.kinds.mirrors(undirected=undirected)
    return plan


def check_room(graph: Snapshot, plan: AnyPlan) -> None:
    """Refuse a snapshot with kinds that is too large for this machine's memory, where all of its state is made at once.

    Raises: UsageError, with what would fit; SnapshotError.
    """
    if not isinstance(plan, KindsPlan):
        return
    vertices, edges = state_bytes_by_kind(plan)
    kinds = plan.features.kinds
    assert kinds is not None  # as each such model has them
    of_edge = max(edges) * (2 if any(one.mirrors != NO_MIRROR for one in kinds.relations) else 1)
    tables = graph.edges * of_edge
    tables += sum(size * count for size, count in zip(vertices, count_by_kind(graph), strict=True))
    needed, free = _AT_ONCE * tables, available_memory()
    if needed > free:
        msg = (
            f"--snapshot {graph.folder}: with kinds of vertices it is taken in as a whole, for which about "
            f"{readable(needed)} of memory are needed and {readable(free)} are free; start on a larger machine, or "
            "without it, with the graph as events"
        )
        raise UsageError(msg)
