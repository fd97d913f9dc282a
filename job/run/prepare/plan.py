"""Checks that a job can run a model."""

from __future__ import annotations

from pathlib import Path

from freshet.gnn.any_plan import AnyPlan, aggregated, unmerged
from freshet.gnn.kind_layers.plans import KindsPlan
from freshet.gnn.own.running import no_merge
from freshet.job.errors import UsageError
from freshet.operators.checks.layers import is_own
from freshet.operators.factory import load_plan
from freshet.partitioner.config import SPLITTING_NONE


def plan_to_run(model: Path, *, undirected: bool) -> AnyPlan:
    """Return the plan of a new job's model.

    Raises: KindsError for edges between two kinds that are to be undirected; ModelError.
    """
    plan = load_plan(str(model.absolute()))
    if not isinstance(plan, KindsPlan):
        return plan
    assert plan.features.kinds is not None  # as each such model has them
    plan.features.kinds.mirrors(undirected=undirected)
    return plan


def refuse_splits(plan: AnyPlan, parts: int, strategy: str) -> None:
    """Refuse parts that vertices are split among, where a layer that a user wrote cannot merge what they make.

    Raises: UsageError naming the layer, and what would do.
    """
    if parts > 1 and strategy not in SPLITTING_NONE and (found := unmerged(plan)):
        raise UsageError(no_merge(found[0].synopsis.name))


def unchecked_in_words(plan: AnyPlan) -> list[str]:
    """Return lines about layers of a user's that were not tried when the model was exported, or less than is usual."""
    if not plan.checks and any(map(is_own, aggregated(plan))):
        return [
            "model: its export tried none of its layers of your own, so a wrong declaration makes wrong embeddings; "
            "`freshet layer check` tries them"
        ]
    found = [(layer.place, one) for layer in plan.checks for one in layer.answers if one.is_cut_short]
    return [f"model: {place}, {one.claim}: {one.words} ({one.case})" for place, one in found]
