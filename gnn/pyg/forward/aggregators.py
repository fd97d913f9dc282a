"""The aggregators of PyG's convs, by the names that they have in model.json."""

from __future__ import annotations

from typing import Any

from torch_geometric.nn import aggr

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.steps import ExportError, Step, class_name

AGGREGATORS = ("sum", "mean", "max", "min", "std", "var")
_FUSED_ONCE = ("mean", "std", "var")


def aggr_of(step: Step, allowed: tuple[str, ...], *, several: bool = False) -> Any:
    """Return the name of a conv's aggregator; if `several`, or their names where it has a list of them.

    Raises: ExportError for one that is not allowed.
    """
    conv: Any = step.op
    return kinds_of(step, conv.aggr_module, allowed, several=several)


def kinds_of(step: Step, module: Any, allowed: tuple[str, ...], *, several: bool) -> Any:
    """Return the name of an aggregation, or the names of several.

    Raises: ExportError for one that is not allowed.
    """
    conv: Any = step.op
    kinds: dict[type, str] = {
        aggr.SumAggregation: "sum",
        aggr.MeanAggregation: "mean",
        aggr.MaxAggregation: "max",
        aggr.MinAggregation: "min",
        aggr.StdAggregation: "std",
        aggr.VarAggregation: "var",
        aggr.SoftmaxAggregation: "softmax",
    }
    if several and type(module) is aggr.MultiAggregation and module.mode == "cat":
        found = tuple(kinds.get(type(one)) for one in module.aggrs)
        if set(found) <= set(allowed):
            _refuse_twice(step, found)
            return found
    kind = kinds.get(type(module))
    if kind not in allowed:
        got = type(module).__name__ if conv.aggr is None or isinstance(module, aggr.MultiAggregation) else conv.aggr
        kind_name = class_name(conv).rsplit(".", 1)[1]
        if isinstance(module, aggr.MultiAggregation):
            _refuse_several(step, kind_name, module, kinds, allowed, several=several)
        refuse(f"{step.name}: {kind_name} with aggr={got!r} is not supported yet; supported: {', '.join(allowed)}")
    return kind


def _refuse_several(
    step: Step, kind_name: str, module: Any, kinds: dict[type, str], allowed: tuple[str, ...], *, several: bool
) -> None:
    """Refuse a list of aggregators, naming what of it there is not.

    Raises: ExportError, always.
    """
    names = [type(one).__name__.removesuffix("Aggregation").lower() for one in module.aggrs]
    msg = f"{step.name}: {kind_name} with aggr={names} is not supported"
    if not several:
        msg += f": it has one aggregator here, {' or '.join(allowed)}"
    elif not {kinds.get(type(one)) for one in module.aggrs} <= set(allowed):
        msg += f" yet; supported: {', '.join(allowed)}"
    else:
        msg += f" with mode={module.mode!r}; mode='cat' is, with a linear layer behind it that mixes what they give"
    raise ExportError(msg)


def _refuse_twice(step: Step, kinds: tuple[Any, ...]) -> None:
    """Refuse what PyG's fused aggregation gets wrong: a mean, variance or deviation that it is asked for once more."""
    for kind in _FUSED_ONCE:
        if kinds.count(kind) > 1:
            msg = f"{step.name}: {kind!r} is {kinds.count(kind)} times among the aggregators, "
            msg += "of which PyG itself makes wrong values (it divides twice). Name it once, and train the model again"
            raise ExportError(msg)
