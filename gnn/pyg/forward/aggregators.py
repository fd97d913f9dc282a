"""The aggregators of PyG's convs, by the names that they have in model.json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from torch_geometric.nn import aggr

from freshet.gnn.declarations import Quantile
from freshet.gnn.pyg.aggregations import FUSED_ONCE, name_of
from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.steps import ExportError, Step, class_name


def aggr_of(step: Step, allowed: tuple[str, ...], *, several: bool = False) -> Any:
    """Return the name of a conv's aggregator; if `several`, or their names where it has a list of them.

    Raises: ExportError for one that is not allowed.
    """
    conv: Any = step.op
    return kinds_of(step, conv.aggr_module, allowed, several=several)


def kinds_of(step: Step, module: Any, allowed: tuple[str, ...], *, several: bool) -> Any:
    """Return an aggregator as model.json has it, or several: of a list, and of quantiles.

    Raises: ExportError for one that is not allowed.
    """
    conv: Any = step.op
    if several and type(module) is aggr.MultiAggregation and module.mode == "cat":
        names = tuple(map(name_of, module.aggrs))
        if set(names) <= set(allowed):
            _refuse_twice(step, names)
            found = [_as_declared(step, one) for one in module.aggrs]
            return tuple(kind for kinds in found for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
    if name_of(module) not in allowed:
        got = (
            type(module).__name__
            if getattr(conv, "aggr", None) is None or isinstance(module, aggr.MultiAggregation)
            else conv.aggr
        )
        kind_name = class_name(conv).rsplit(".", 1)[1]
        if isinstance(module, aggr.MultiAggregation):
            _refuse_several(step, kind_name, module, allowed, several=several)
        msg = f"{step.name}: {kind_name} with aggr={got!r} is not supported{_why_not([module])}; supported: "
        raise ExportError(msg + ", ".join(allowed))
    return _as_declared(step, module)


def _as_declared(step: Step, module: Any) -> Any:
    """Return an aggregator as model.json has it; a tuple of several quantiles.

    Raises: ExportError for quantiles that PyG makes in float32 of other messages than in float64.
    """
    if not isinstance(module, aggr.QuantileAggregation):
        return name_of(module)
    if not np.isfinite(module.fill_value):
        refuse(f"{step.name}: quantiles with fill_value={module.fill_value}, expected a finite number")
    if module.interpolation == "nearest":
        msg = f"{step.name}: quantiles with interpolation='nearest': between two messages PyG itself takes one by how "
        raise ExportError(msg + "many edges are before them. Nearest: 'linear', 'lower' or 'higher'")
    found = list[Quantile]()
    for q in module.q.flatten().double().tolist():
        if module.interpolation != "linear" and q * _EXACT % 1:
            msg = f"{step.name}: the {q:.6g}-quantile with interpolation={module.interpolation!r} jumps where the "
            msg += "place of a message is a whole number, of which float32 and float64 make two. Nearest: 'linear', or "
            raise ExportError(msg + "a q of halves, quarters or eighths")
        number = float(str(np.float32(q)))  # the shortest of those that are this one in float32
        found.append(Quantile(q=number, interpolation=module.interpolation, fill_value=module.fill_value))
    return found[0] if len(found) == 1 else tuple(found)


_IN_ORDER = aggr.LSTMAggregation, aggr.GRUAggregation, aggr.MLPAggregation, aggr.PatchTransformerAggregation


def _why_not(modules: Iterable[Any]) -> str:
    if any(isinstance(one, _IN_ORDER) for one in modules):
        return ": it reads messages in the order of edges, which a stream has not"
    return " yet"


_EXACT = 1 << 8  # times a fraction with so many parts, float32 has the place of each of many messages


def _refuse_several(step: Step, kind_name: str, module: Any, allowed: tuple[str, ...], *, several: bool) -> None:
    """Refuse a list of aggregators, naming what of it there is not.

    Raises: ExportError, always.
    """
    names = [type(one).__name__.removesuffix("Aggregation").lower() for one in module.aggrs]
    msg = f"{step.name}: {kind_name} with aggr={names} is not supported"
    if not several:
        msg += f": it has one aggregator here, {' or '.join(allowed)}"
    elif not set(map(name_of, module.aggrs)) <= set(allowed):
        msg += f"{_why_not(module.aggrs)}; supported: {', '.join(allowed)}"
    else:
        msg += f" with mode={module.mode!r}; mode='cat' is, with a linear layer behind it that mixes what they give"
    raise ExportError(msg)


def _refuse_twice(step: Step, kinds: tuple[Any, ...]) -> None:
    """Refuse what PyG's fused aggregation gets wrong: a mean, variance or deviation that it is asked for once more."""
    for kind in FUSED_ONCE:
        if kinds.count(kind) > 1:
            msg = f"{step.name}: {kind!r} is {kinds.count(kind)} times among the aggregators, "
            msg += "of which PyG itself makes wrong values (it divides twice). Name it once, and train the model again"
            raise ExportError(msg)
