"""The plan of any model, with kinds of vertices or without."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from freshet.gnn.kind_layers.compiling import compile_kinds
from freshet.gnn.kind_layers.plans import KindsLayer, KindsPlan, RelationPlan
from freshet.gnn.kinds.learned import LearnedRows
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


def aggregated(plan: AnyPlan) -> list[LayerPlan | RelationPlan]:
    """Return all of a model that has synopses of messages: the layers, or the relations of all layers."""
    return [one for layer in plan.layers for one in layer.relations]


def unmerged(plan: AnyPlan) -> list[LayerPlan | RelationPlan]:
    """Return what keeps aggregates that parts cannot merge, so that no vertex may be split among these."""
    return [one for one in aggregated(plan) if not one.synopsis.merges]


class Returned(NamedTuple):
    """A kind that a model returns, its number, and the width of its embeddings.

    The name is empty where the model returns one kind alone, or has none; the number is 0 where it has none.
    """

    kind: str
    number: int
    width: int


def returned_of(plan: AnyPlan) -> list[Returned]:
    """Return the kinds that a model returns, in its order."""
    kinds, several = plan.features.kinds, len(plan.out) > 1
    codes = {"": 0} if kinds is None else kinds.kind_codes
    return [Returned(kind if several else "", codes[kind], width) for kind, width in plan.out.items()]


def names_of_returned(plan: AnyPlan) -> tuple[str, ...]:
    """Return the names of the kinds that a model returns; empty where it has none, or one without a name."""
    return tuple(filter(None, plan.out))


def widths_of(plan: AnyPlan) -> dict[str, int]:
    """Return the widths of the embeddings by kind; of a model that returns one, under an empty name."""
    return {one.kind: one.width for one in returned_of(plan)}


def inner_plan(plan: AnyPlan) -> AnyPlan:
    """Return the plan without its last layer: it returns the rows of all kinds that this layer reads.

    Raises: ModelError for a plan of one layer, or whose last layer reads attributes of edges that no other one does.
    """
    if len(plan.layers) < 2:
        msg = "the model has one layer, so there are no rows of inner layers; leave `asked` out"
        raise ModelError(msg)
    kept = _attributes_read(plan.layers[:-1])
    if any(relation not in kept or kept[relation] > skips for relation, skips in _attributes_read(plan.layers).items()):
        msg = (
            "the last layer reads attributes of edges that no layer before it does, and the job keeps attributes with "
            "the layers that read them; leave `asked` out"
        )
        raise ModelError(msg)
    if not isinstance(plan, KindsPlan):
        layers = plan.layers[:-1]
        return replace(plan, layers=layers, out_width=layers[-1].out_width, head=replace(plan.head, width=0))
    kinds, inner = plan.features.kinds, plan.layers[:-1]
    assert kinds is not None  # as each such model has them
    made = {name: inner[-1].kinds[code] for name, code in kinds.kind_codes.items()}
    out = {name: one.out_width for name, one in made.items() if one is not None and one.updates}
    return replace(plan, layers=inner, out=out, heads={})


def _attributes_read(layers: Sequence[LayerPlan | KindsLayer]) -> dict[int | None, bool]:
    """Return the relations whose edges have attributes that layers read, and whether none reads those of self-loops."""
    found: dict[int | None, bool] = {}
    for one in (relation for layer in layers for relation in layer.relations):
        if one.edge.attributes:
            found[one.number] = found.get(one.number, True) and one.edge.skip_loops
    return found


def last_of(plan: AnyPlan) -> AnyPlan:
    """Return the plan of the last layer alone, whose x_0 are the rows of the layer before."""
    if isinstance(plan, KindsPlan):
        return replace(plan, layers=plan.layers[-1:])
    return replace(plan, layers=plan.layers[-1:])


def learned_rows_of(plan: AnyPlan) -> list[LearnedRows]:
    """Return the learned rows of the kinds that have such."""
    return [one for one in plan.learned if one is not None]


def without_kinds(plan: AnyPlan, what: str) -> Plan:
    """Return a plan that has no kinds; `what` names who takes no other.

    Raises: ModelError for one with kinds.
    """
    if isinstance(plan, KindsPlan):
        msg = f"{what} takes no models with kinds of vertices yet; `freshet run` does"
        raise ModelError(msg)
    return plan
