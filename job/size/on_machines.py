"""A job on several machines: its miniature is measured, and what that says is dealt to them."""

from __future__ import annotations

from pathlib import Path

from freshet.gnn.any_plan import AnyPlan
from freshet.job.errors import UsageError
from freshet.job.size.machines import Cluster, Rates, cluster_of, with_replicas
from freshet.job.size.miniature import GraphSize, operators_of
from freshet.job.size.traffic import traffic_of


def on_machines(
    model: Path, plan: AnyPlan, shape: GraphSize, division: tuple[int, int], rates: Rates, replicas: float | None = None
) -> Cluster:
    """Return what a job with one process on each machine takes.

    `division`: how many groups share the layers, and the tasks of each layer. `replicas`: rows of a vertex, over all
    parts; None: those of a graph whose edges end anywhere.

    Raises: UsageError for numbers that do not fit the model or the parts.
    """
    layers = len(plan.layers)
    groups, tasks = division
    if replicas is not None and replicas > shape.parts:
        msg = f"--replicas {replicas:g}: a vertex has at most one row in each of {shape.parts} parts"
        raise UsageError(msg)
    found = traffic_of(model, shape, tasks)
    if replicas is not None and shape.parts > 1:
        found = with_replicas(found, operators_of(model, shape._replace(parts=1)), replicas)
    return cluster_of(found, shape, layers, groups, tasks, rates)
