"""Aggregations of convs that are read as they run, the result of each noted as one operation."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import Module, ModuleList
from torch.utils._python_dispatch import _disable_current_modes
from torch_geometric.nn import MessagePassing, aggr

from freshet.gnn.pyg.aggregations import OF_MESSAGES
from freshet.gnn.pyg.forward.aggregators import kinds_of
from freshet.gnn.pyg.forward.places import place_here
from freshet.gnn.pyg.own.edges import aggregated
from freshet.gnn.pyg.own.recorder import Operation, Recorder
from freshet.gnn.pyg.own.sizes import plain
from freshet.gnn.pyg.read_convs import is_opened
from freshet.gnn.pyg.steps import Step


def record_aggregations(recorder: Recorder, step: Step, module: Module) -> list[type]:
    """Have the aggregations of all convs in a module, one's own copy, noted; returns the classes of both.

    So are lists of aggregators and quantiles that a conv calls by itself, as in `aggregate`.
    """
    classes, known = list[type](), set[Module]()
    for conv in [part for part in module.modules() if isinstance(part, MessagePassing)]:
        parts = [] if conv.aggr_module is None else list(conv.aggr_module.modules())
        classes += [type(conv), *map(type, parts)]
        known.update(parts)
        if parts:
            conv.aggr_module = _recorded(recorder, step, conv.aggr_module)
    for parent, name, part in _further(module, known):
        setattr(parent, name, _recorded(recorder, step, part))
    return classes


def _recorded(recorder: Recorder, step: Step, aggregation: Any) -> Module:
    """Return an aggregation whose result is noted, of one that is read as it runs those that it is made of."""
    if is_opened(aggregation) or isinstance(aggregation, aggr.DegreeScalerAggregation):
        if isinstance(aggregation, aggr.DegreeScalerAggregation):
            aggregation.aggr = _recorded(recorder, step, aggregation.aggr)
        if isinstance(aggregation, aggr.MultiAggregation):
            aggregation.fused_aggr = None
            aggregation.aggrs = ModuleList(_recorded(recorder, step, one) for one in aggregation.aggrs)
        return aggregation
    return _Recorded(recorder, step, aggregation)


def _further(conv: Module, known: set[Module]) -> list[tuple[Module, str, Module]]:
    """Return lists of aggregators and quantiles beside those in `known`, by parent and name."""
    kinds = (aggr.MultiAggregation, aggr.QuantileAggregation)
    found = list[tuple[Module, str, Module]]()
    for parent in conv.modules():
        for name, part in parent.named_children():
            if isinstance(part, kinds) and part not in known:
                found.append((parent, name, part))
                known |= set(part.modules())
    return found


class _Recorded(Module):
    """An aggregation whose result is noted as one operation."""

    def __init__(self, recorder: Recorder, step: Step, aggregation: Any) -> None:
        """Take the aggregation of a conv, or one of several."""
        super().__init__()
        kinds = kinds_of(step, aggregation, OF_MESSAGES, several=True)
        self._kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        self._recorder, self._aggregation = recorder, aggregation

    def forward(
        self, x: Any, index: Any = None, ptr: Any = None, dim_size: Any = None, dim: int = -2, **more: Any
    ) -> torch.Tensor:
        """Return the aggregate of messages, or several side by side."""
        call = Operation("aggregate", self._aggregation, (x, index), {}, None, place_here())
        if ptr is not None or any(one is not None for one in more.values()):
            call.refuse("its aggregate is called with more than messages and index")
        if isinstance(self._aggregation, aggr.QuantileAggregation) and len(self._kinds) > 1 and x.dim() > 2:
            call.refuse("several quantiles of messages with heads are not read. Nearest: a list of aggregators")
        with torch._C.DisableTorchFunction():
            with _disable_current_modes():
                whole = self._aggregation(x, index=index, dim_size=plain(dim_size), dim=dim)
                parts = [one.contiguous() for one in whole.chunk(len(self._kinds), dim=-1)]
            for part, kind in zip(parts, self._kinds, strict=True):
                self._recorder.note(part, aggregated(self._recorder, call, x, index, dim, kind))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
