"""Modules that read kinds of vertices and relations become models with kinds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import ValidationError

from freshet.gnn.kinds.model import KindsModel, build_kinds_model
from freshet.gnn.model import ModelError
from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.finite import naming_weights, refuse_weights
from freshet.gnn.pyg.forward.fx import Asked
from freshet.gnn.pyg.forward.trace import refuse_no_method, refuse_wrapped
from freshet.gnn.pyg.forward.untouched import plain_copy
from freshet.gnn.pyg.forward.whole import encoder_hint, made_with_bases
from freshet.gnn.pyg.kinds.alike import distinct
from freshet.gnn.pyg.kinds.building import Built, build
from freshet.gnn.pyg.kinds.calling import ModuleCall, call_of
from freshet.gnn.pyg.kinds.check import Parts, check
from freshet.gnn.pyg.kinds.grouping import grouped
from freshet.gnn.pyg.kinds.lazy import initialised
from freshet.gnn.pyg.kinds.levels import levels_of
from freshet.gnn.pyg.kinds.metadata import Metadata, kinds_of
from freshet.gnn.pyg.kinds.operations import KindsOperations
from freshet.gnn.pyg.kinds.reading import read
from freshet.gnn.pyg.kinds.running import Run
from freshet.gnn.pyg.kinds.tracing import graph_of
from freshet.gnn.pyg.kinds.typed import MOST_RELATIONS
from freshet.gnn.pyg.kinds.widths import Widths, kinds_there, widths_of

if TYPE_CHECKING:
    from torch.nn import Module


class KindsAsked(NamedTuple):
    """Options for a module with kinds that does not say them itself."""

    metadata: Any = None
    features: Mapping[str, int] | int | None = None
    mirrors: Mapping[Any, Any] | None = None
    edge_types: Sequence[str] | None = None
    edge_features: int | None = None
    stats_from: Any = None
    head: str | None = None


def kinds_model(module: Module, asked: Asked, more: KindsAsked) -> KindsModel:
    """Return the model that a module with kinds is, which gives what the module gives.

    Raises: ExportError naming the layer or option that is not supported, or the difference on random graphs.
    """
    try:
        return _checked(module, asked, more)
    except ExportError as error:
        hint = encoder_hint(module, str(error), asked.method)
        if not hint:
            raise
        msg = f"{error}. {hint}"
        raise ExportError(msg) from error


def _checked(module: Module, asked: Asked, more: KindsAsked) -> KindsModel:
    _refuse_later(more)
    refuse_wrapped(module)
    refuse_no_method(module, asked.method)
    if reason := made_with_bases(module):
        raise ExportError(reason)
    module = plain_copy(module)
    call = call_of(module, asked.method, f"{type(module).__name__}.{asked.method}")
    kinds = _kinds(module, call, more)
    features = _features(kinds, more.features)
    module = initialised(module, call, kinds, features)
    with naming_weights(module):
        found = read(*graph_of(module, f"{type(module).__name__}.{asked.method}", call, kinds), kinds, asked)
        ops = found.operations
        made, results = distinct(ops, found.results)
        levels = levels_of(grouped(made, results, kinds, ops.kind), ops.inputs, results, ops.kind)
        widths = widths_of(ops, found.unread, kinds, features)
        built = build(made, levels, kinds, widths.features)
    refuse_weights(module, built.weights)
    there = _there(ops, kinds)
    model = _model(kinds, widths, built, there, [ops.kind[name] for name in results])
    read_edges = {width for j, width in enumerate(widths.edges) if width and j in there.relations}
    if more.edge_features is not None and read_edges != {more.edge_features}:
        msg = f"edge_features are {more.edge_features}, but the module reads attributes of width "
        raise ExportError(msg + ", ".join(map(str, sorted(read_edges) or [0])))
    check(module, Run(call, kinds, asked), widths, model, there)
    return model


def _there(ops: KindsOperations, kinds: Metadata) -> Parts:
    """The kinds that convs send from and to, and the relations between these."""
    there = kinds_there(ops, kinds)
    if not there:
        msg = "the module has no conv on a relation, so that no row reads those of neighbours"
        raise ExportError(msg)
    relations = [j for j in range(len(kinds.relations)) if set(kinds.ends(j)) <= there]
    return Parts(sorted(there), relations)


def _refuse_later(more: KindsAsked) -> None:
    """Refuse what there is for modules without kinds alone.

    Raises: ExportError
    """
    if more.stats_from is not None:
        msg = "stats_from is not supported for modules with kinds or relations yet: norms over all vertices of a kind "
        raise ExportError(msg + "are refused there. Nearest: BatchNorm, or LayerNorm(mode='node')")
    if more.head is not None:
        msg = f"head={more.head!r} is not supported for modules with kinds or relations yet: export the module that "
        raise ExportError(msg + "returns the embedding, or the one that returns the head's rows")


def _kinds(module: Module, call: ModuleCall, more: KindsAsked) -> Metadata:
    if call.types is None:
        if more.edge_types:
            msg = "edge_types are those of metadata here: leave edge_types out, and give metadata=(kinds, relations)"
            raise ExportError(msg)
        return kinds_of(module, more.metadata, more.mirrors)
    many = next((one.num_relations for one in module.modules() if hasattr(one, "num_relations")), 0)
    metadata = more.metadata
    if metadata is None:
        names = list(more.edge_types) if more.edge_types else [str(number) for number in range(many)]
        metadata = (["vertex"], [("vertex", name, "vertex") for name in names])
    kinds = kinds_of(module, metadata, more.mirrors)
    if len(kinds.names) > 1:
        msg = f"metadata names {len(kinds.names)} kinds, but {call.types} is of edges between vertices of one"
        raise ExportError(msg)
    if len(kinds.relations) > MOST_RELATIONS:
        msg = f"the module has {len(kinds.relations)} types of edges: past eight relations are not supported yet"
        raise ExportError(msg)
    return kinds


def _features(kinds: Metadata, given: Mapping[str, int] | int | None) -> dict[str, int]:
    """Widths of features by kind, as they are given; one number where there is one kind.

    Raises: ExportError
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        wrong = [(kind, width) for kind, width in given.items() if not isinstance(width, int) or width < 1]
        if wrong:
            msg = f"features: the width of kind {wrong[0][0]!r} is {wrong[0][1]!r}, expected a whole number above 0"
            raise ExportError(msg)
        return {str(kind): width for kind, width in given.items()}
    if len(kinds.names) == 1:
        return {kinds.names[0]: given}
    msg = f"features={given}: there are several kinds, so give the width of each, as "
    raise ExportError(msg + f"features={{{kinds.names[0]!r}: {given}}}")


def _model(kinds: Metadata, widths: Widths, built: Built, there: Parts, returned: Sequence[int]) -> KindsModel:
    stored, relations = kinds.stored, list[dict[str, Any]]()
    for j in there.relations:
        source, target = kinds.ends(j)
        of = kinds.mirrors[j]
        ends = {"source": stored[source], "type": kinds.relations[j][1], "target": stored[target]}
        mirrors = None if of is None else there.relations.index(of)
        relations.append({**ends, "mirrors": mirrors, "edge_features": widths.read[j]})
    for layer in built.layers:
        for one in layer.get("convs", ()):
            one["relation"] = there.relations.index(one["relation"])
    try:
        return build_kinds_model(
            kinds={stored[kind]: widths.features[kind] for kind in there.kinds},
            relations=relations,
            layers=built.layers,
            out=[stored[kind] for kind in returned],
            weights=built.weights,
        )
    except (ModelError, ValidationError) as error:
        msg = f"the module's layers make no model: {error}"
        raise ExportError(msg) from None
