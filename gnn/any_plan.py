"""The plan of any model, with kinds of vertices or without."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from freshet.gnn.kind_layers.compiling import compile_kinds
from freshet.gnn.kind_layers.plans import KindsLayer, KindsPlan, RelationPlan
from freshet.gnn.kinds.model import KindsModel, load_any_model
from freshet.gnn.layers.base import LayerPlan
from freshet.gnn.model import Model, ModelError
from freshet.gnn.plan import Plan, compile_plan

AnyPlan: TypeAlias = Plan | KindsPlan


def compile_any(model: Model | KindsModel) -> AnyPlan:
    """Return the plan of a model.

    Raises: ModelError for a conv that has no incremental form.
    """
    return compile_kinds(model) if isinstance(model, KindsModel) else compile_plan(model)


def load_any_plan(folder: str | Path) -> AnyPlan:
    """Read a model folder, and return the plan of its model.

    Raises: ModelError as `load_any_model`.
    """
    return compile_any(load_any_model(folder))


def aggregates_of(layer: LayerPlan | KindsLayer) -> Sequence[LayerPlan | RelationPlan]:
    """Return all of a layer that has synopses of messages: itself, or its relations."""
    return layer.relations if isinstance(layer, KindsLayer) else [layer]


def aggregated(plan: AnyPlan) -> list[LayerPlan | RelationPlan]:
    """Return all of a model that has synopses of messages: the layers, or the relations of all layers."""
    return [one for layer in plan.layers for one in aggregates_of(layer)]


def without_kinds(plan: AnyPlan, what: str) -> Plan:
    """Return a plan that has no kinds; `what` names who takes no other.

    Raises: ModelError for one with kinds.
    """
    if isinstance(plan, KindsPlan):
        msg = f"{what} takes no models with kinds of vertices yet; `freshet run` does"
        raise ModelError(msg)
    return plan
