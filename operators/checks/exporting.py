"""Export of a module with checks of its layers, whose answers stand in model.json."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial, wraps
from threading import Timer
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np

from freshet.errors import InputError
from freshet.gnn.answers import ClaimAnswer, LayerAnswers, is_refuted
from freshet.gnn.any_plan import aggregated, compile_any
from freshet.gnn.declarations import Quantile
from freshet.gnn.edge_reads import EdgeReads
from freshet.gnn.kind_layers.plans import KindsLayer, RelationPlan
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.layers.base import LayerPlan
from freshet.gnn.model import Model
from freshet.gnn.numerics.dense import Rows
from freshet.gnn.synopses.edge_network import EdgeNetwork, NetworkSynopsis
from freshet.gnn.synopses.of_messages import (
    ColumnsSynopsis,
    GatedSynopsis,
    InvertibleSynopsis,
    MomentsSynopsis,
    MonotonicSynopsis,
    ProductSynopsis,
)
from freshet.gnn.synopses.quantiles import MulSynopsis, QuantileSynopsis
from freshet.gnn.synopses.softmax import EdgeSoftmaxSynopsis, Score, SoftmaxSynopsis
from freshet.kinds import some_names
from freshet.log_lines import log
from freshet.operators.checks.aggregates import ORDER, check_aggregate
from freshet.operators.checks.between import Related
from freshet.operators.checks.kept import KeptAggregate
from freshet.operators.checks.layers import by_form, check_layer, check_streams, is_own, related

_PER_SIZE, _STREAMS = 16, 20  # cases of each number of messages, streams: somebody waits
_SLOW_S = 3.0  # before a line says why it takes longer
Given = ParamSpec("Given")
Made = TypeVar("Made", bound=Model | KindsModel)


class RefutedLayerError(InputError, ValueError):
    """A layer that does not do what it declares; the message has the smallest case."""


def with_answers(export: Callable[Given, Made]) -> Callable[Given, Made]:
    """Return the export with the answers of `answers_at_export` in model.json, and refused where one is refuted."""
    return wraps(export)(partial(cast(Any, export), checks=answers_at_export))


def answers_at_export(model: Model | KindsModel) -> list[LayerAnswers]:
    """Return what was found about each aggregate of a model, and about one with layers of a user's on streams.

    Layers of Freshet's are checked by their kind of aggregate, with narrow messages, once in a process; layers of a
    user's as `freshet layer check` does it, with fewer cases. Messages are some small integers, with a fixed seed.

    Raises: RefutedLayerError with the smallest case, where a layer does not do what it declares.
    """
    note = Timer(_SLOW_S, log, ["checking what the layers declare; the first time this compiles kernels"])
    note.daemon = True
    note.start()
    try:
        found = answers_of(model)
    finally:
        note.cancel()
    if refuted := [one for one in found if is_refuted(one.answers)]:
        raise RefutedLayerError("\n".join(_of_refuted(refuted)))
    return found


def answers_of(model: Model | KindsModel) -> list[LayerAnswers]:
    """Return the answers of `answers_at_export`, those that refute a claim among them."""
    found = answers_by_layer(model)
    if any(map(is_own, aggregated(compile_any(model)))) and not any(is_refuted(one.answers) for one in found):
        found.append(check_streams(model, streams=_STREAMS))
    return found


def answers_by_layer(model: Model | KindsModel, *, facts: bool = False) -> list[LayerAnswers]:
    """Return what was found about each aggregate of a model, by itself; `facts` is that of `check_layer`."""
    layers: Sequence[LayerPlan | KindsLayer] = compile_any(model).layers
    return [
        LayerAnswers(_place(number, one, model), list(_answers(one, facts=facts)))
        for number, layer in enumerate(layers, 1)
        for one in layer.relations
    ]


def _place(number: int, one: LayerPlan | RelationPlan, model: Model | KindsModel) -> str:
    if isinstance(one, RelationPlan):
        return f"layer {number} {one.name} of {some_names([model.edge_types[k] for k in one.numbers])}"
    return f"layer {number} {one.name}"


def _answers(one: LayerPlan | RelationPlan, *, facts: bool) -> Iterator[ClaimAnswer]:
    """Yield what was found about an aggregate.

    One of a relation that `builtin_relations` does not have is skipped: columns beside others, scores of a network.
    """
    if is_own(one):
        yield from check_layer(one, per_size=_PER_SIZE, facts=facts)
        return
    found = _of_builtin(re.sub(r" of \d+ heads", "", one.synopsis.name))
    if not found and isinstance(one, LayerPlan):
        found = tuple(check_aggregate(KeptAggregate.of(related(one)), per_size=_PER_SIZE))
    if not found:
        yield ClaimAnswer(ORDER.claim, "skipped", case=f"no case of messages for {one.synopsis.name} of a relation")
    yield from [*found, *by_form(one.synopsis)]


@cache
def _of_builtin(name: str) -> tuple[ClaimAnswer, ...]:
    """Return what was found about an aggregate of Freshet's of one head; nothing for a name that is not there."""
    relation = builtin_relations().get(name)
    return () if relation is None else tuple(check_aggregate(KeptAggregate.of(relation), per_size=_PER_SIZE))


def _of_refuted(found: list[LayerAnswers]) -> Iterator[str]:
    for layer in found:
        for one in layer.answers:
            if one.answer == "refuted":
                yield f"{layer.place}: {one}"
    yield "`freshet layer check` says more. Nothing was written"


def __getattr__(name: str) -> Any:
    """Return `export_model`, freshet.gnn.pyg.export.export_model with these checks; it brings torch along."""
    if name != "export_model":
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from freshet.gnn.pyg.export import export_model

    return with_answers(export_model)


_EDGE_WIDTH = 1


def builtin_relations() -> dict[str, Related]:
    """Return a relation for each built-in aggregate, by its name for people; those of one name differ in no kernel."""
    return {**_of_rows(), **_of_both_ends()}


def _of_rows() -> dict[str, Related]:
    plain: list[InvertibleSynopsis | MonotonicSynopsis | MomentsSynopsis] = [
        InvertibleSynopsis("sum"),
        InvertibleSynopsis("sum", weighted=True),
        InvertibleSynopsis("mean"),
        InvertibleSynopsis("mean", weighted=True),
        MonotonicSynopsis("max"),
        MonotonicSynopsis("max", weighted=True),
        MonotonicSynopsis("min"),
        MomentsSynopsis("std"),
        MomentsSynopsis("var", weighted=True),
    ]
    found = {one.name: Related(1, 0, one, EdgeReads(one.weighted)) for one in plain}
    several = ProductSynopsis((InvertibleSynopsis("mean"), MonotonicSynopsis("max"), MomentsSynopsis("std")))
    beside = ProductSynopsis(
        (ColumnsSynopsis(InvertibleSynopsis("sum"), 0, 1), ColumnsSynopsis(MonotonicSynopsis("min"), 1, 2))
    )
    return {**found, several.name: Related(1, 0, several), beside.name: Related(2, 0, beside)}


def _of_both_ends() -> dict[str, Related]:
    one_head = [
        Score("additive", 1, 1, 1, 2, 3),
        Score("joint", 1, 1, 1, 2, 3, a=np.ones((1, 1), np.float32)),
        Score("dot", 1, 1, 1, 2, 3),
        Score("leaky_dot", 1, 1, 1, 2, 3),
        Score("mixed", 1, 1, 2, 1, 3),
    ]
    found = {(one := SoftmaxSynopsis(score)).name: Related(3, 3, one) for score in one_head}
    ones = np.ones((_EDGE_WIDTH, 1), np.float32)
    for means in (False, True):
        with_edge = EdgeSoftmaxSynopsis(one_head[0], ones, means)
        name = with_edge.name + (" and its mean" if means else "")
        found[name] = Related(3, 3, with_edge, EdgeReads(attributes=_EDGE_WIDTH))
    gated = GatedSynopsis(1)
    found[gated.name] = Related(3, 3, gated)
    of_sum = NetworkSynopsis(MonotonicSynopsis("max"), EdgeNetwork(0, 1, 1, "sum", 1, _relu, 0))
    of_difference = NetworkSynopsis(InvertibleSynopsis("sum"), EdgeNetwork(0, 0, 1, "difference", 2, _relu, 0))
    of_edge = NetworkSynopsis(MonotonicSynopsis("min"), EdgeNetwork(0, -1, 1, "sum", 1, _relu, 0, edge=np.negative))
    quantiles = [QuantileSynopsis(one) for one in (Quantile(q=0.5, interpolation="lower"), Quantile(q=0.25))]
    of_both_ends = EdgeNetwork(0, 1, 1, "sum", 1, _relu, 0)
    of_all = [NetworkSynopsis(one, of_both_ends) for one in (MulSynopsis(), *quantiles)]
    return {
        **found,
        **{one.name: Related(2, 2, one) for one in of_all},
        of_sum.name: Related(2, 2, of_sum),
        of_difference.name: Related(1, 1, of_difference),
        f"{of_edge.name} with attributes": Related(1, 0, of_edge, EdgeReads(attributes=_EDGE_WIDTH)),
    }


def _relu(rows: Rows) -> Rows:
    return np.maximum(rows, np.float32(0))
