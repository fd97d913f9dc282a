"""Rows learned by id, as users meet them: ids of another type, and vertices without such rows."""

from __future__ import annotations

from collections.abc import Mapping

from freshet.gnn.any_plan import AnyPlan, learned_rows_of
from freshet.job.errors import UsageError
from freshet.operators.telemetry.figures import LEARNED, UNLEARNED
from freshet.partitioner.events import INT, STRING

_SAID_ABOVE = 0.01  # share of vertices without learned rows


def learned_ids(plan: AnyPlan, found: Mapping[str, str | None]) -> str | None:
    """Return the kind of ids that a model has learned rows of; None where it has none.

    `found`: the kinds of ids that a job has, by the option that says so.
    Raises: UsageError where the job has others, none of which would be found.
    """
    rows = learned_rows_of(plan)
    if not rows:
        return None
    kind = STRING if rows[0].of_strings else INT
    for what, other in found.items():
        if other not in (None, kind):
            msg = f"{what}: {other} ids, but the model has learned rows of {kind} ids; export it with ids= of the job's"
            raise UsageError(msg)
    return kind


def unlearned_in_words(gauges: Mapping[str, int]) -> str:
    """Say that many vertices have no learned row; empty where they are few, or the model has no such rows."""
    count, vertices = gauges.get(UNLEARNED, 0), gauges.get(LEARNED, 0)
    if count <= _SAID_ABOVE * vertices:
        return ""
    return (
        f"{count:,} of {vertices:,} vertices ({count / vertices:.1%}) have ids that the model has no learned rows of: "
        "zeros stand in their place. If these are others than at training, see `ids` of export_model; if they are new, "
        "train and export the model again"
    )
