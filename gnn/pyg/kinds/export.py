"""Modules that read kinds of vertices and relations become models with kinds."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError
from torch.nn import Module, ModuleDict

from freshet.gnn.kinds.model import KindsModel, build_kinds_model
from freshet.gnn.model import ModelError, explain
from freshet.gnn.pyg.check import on_one_thread, theirs_of
from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.finite import naming_weights, refuse_weights
from freshet.gnn.pyg.forward.asked import Asked
from freshet.gnn.pyg.forward.hints import encoder_hint
from freshet.gnn.pyg.forward.parameters import made_with_bases
from freshet.gnn.pyg.forward.trace import refuse_no_method, refuse_wrapped
from freshet.gnn.pyg.forward.untouched import plain_copy
from freshet.gnn.pyg.graphs import Graphs
from freshet.gnn.pyg.kinds.building import Built, build, heads_of
from freshet.gnn.pyg.kinds.calling import ModuleCall, call_of, reads_kinds, type_of
from freshet.gnn.pyg.kinds.convs.hypergraph import is_hypergraph
from freshet.gnn.pyg.kinds.levels import distinct, grouped, levels_of
from freshet.gnn.pyg.kinds.looking_up import Learned, StoredGraph, learned_of, listed_ids
from freshet.gnn.pyg.kinds.metadata import Metadata, Parts, Relation, kinds_of
from freshet.gnn.pyg.kinds.operations import KindsOperations
from freshet.gnn.pyg.kinds.reading import read
from freshet.gnn.pyg.kinds.running import Run, initialised
from freshet.gnn.pyg.kinds.tracing import graph_of, with_all_attributes
from freshet.gnn.pyg.kinds.widths import Widths, kinds_there, widths_of
from freshet.gnn.pyg.optional_weights import warn_of_weights
from freshet.gnn.pyg.own.differing import compared
from freshet.gnn.pyg.running import own_classes
from freshet.gnn.pyg.statistics import gather
from freshet.kinds_graph import RelationEdges

PLAIN_TYPE = "edge"
"""The type of the edges of a module without kinds whose rows are learned."""


class KindsAsked(NamedTuple):
    """Options for a module with kinds that does not say them itself."""

    metadata: Any = None
    features: Mapping[str, int] | int | None = None
    mirrors: Mapping[Any, Any] | None = None
    edge_types: Sequence[str] | None = None
    edge_features: int | None = None
    stats_from: Any = None
    head: str | Mapping[str, str] | None = None
    ids: Any = None

    def one_width(self) -> int | None:
        """Return the width of the features of a module without kinds, where it is given."""
        if isinstance(self.features, Mapping):
            refuse(f"features={dict(self.features)}: the module has no kinds of vertices, so give one width")
        return self.features

    def one_head(self) -> str | None:
        """Return the head of a module without kinds, where it is given."""
        if isinstance(self.head, Mapping):
            refuse(f"head={dict(self.head)}: the module has no kinds of vertices, so name one submodule")
        return self.head


def kinds_model(module: Module, asked: Asked, more: KindsAsked, checks: Callable[[Any], object] | None) -> KindsModel:
    """Return the model that a module with kinds is, which gives what the module gives.

    `checks` are those of export_model, for a layer that a user wrote and that is not its module.

    Raises: ExportError naming the layer or option that is not supported, or the difference on random graphs.
    """
    try:
        return _checked(module, asked, more, checks)
    except ExportError as error:
        hint = encoder_hint(module, str(error), asked.method)
        if not hint:
            raise
        msg = f"{error}. {hint}"
        raise ExportError(msg) from error


def _checked(module: Module, asked: Asked, more: KindsAsked, checks: Callable[[Any], object] | None) -> KindsModel:
    refuse_wrapped(module)
    refuse_no_method(module, asked.method)
    if reason := made_with_bases(module):
        raise ExportError(reason)
    module = plain_copy(module)
    parts = tuple(more.head.values()) if isinstance(more.head, Mapping) else (more.head,) if more.head else ()
    asked, name = asked._replace(heads=parts), f"{type(module).__name__}.{asked.method}"
    call = call_of(module, asked.method, name, asked.columns)
    if more.metadata is None and more.mirrors is None and not reads_kinds(module, asked.method):
        call = call._replace(plain=True)
    kinds = _kinds(module, call, more, both_ways=asked.both_ways)
    features, ids = _features(kinds, more.features), _ids_by_kind(kinds, more.ids)
    call = with_all_attributes(module, name, call, kinds)
    module = initialised(module, call, kinds, features, more.edge_features)
    stored = more.stats_from if isinstance(more.stats_from, StoredGraph) else None
    given = more.stats_from if stored is None else stored.given(kinds, call)
    frozen = None if given is None else gather(module, call, kinds, given)
    with naming_weights(module):
        by_ids = {kind: of for kind, of in ids.items() if kind not in features}
        traced = graph_of(module, name, call, kinds, edge_functions=asked.recorded, opened=asked.opened)
        found = read(*traced, kinds, asked, frozen, by_ids, features)
        ops = found.operations
        embeddings, heads = heads_of(module, ops, found.results, kinds, more.head)
        made, results = distinct(ops, embeddings)
        levels = levels_of(grouped(made, results, kinds, ops.kind), ops.inputs, ops.tables, results, ops.kind)
        widths = widths_of(ops, found.unread, kinds, features)
        if call.types is not None:  # attributes of all types come in one tensor
            widths = widths._replace(edges=[max(widths.edges)] * len(widths.edges))
        learned = learned_of(ops, kinds, ids)
        if stored is not None:
            stored.refuse_other_ids(learned, kinds, call)
        named = {kind: {name: t.shape[1] for name, t in one.tables.items()} for kind, one in learned.items()}
        built = build(made, levels, kinds, widths.features, named)
        built.add_heads({kind: head.steps for kind, head in heads.items() if head is not None}, kinds)
    refuse_weights(module, built.weights)
    there = _there(ops, kinds)
    model = _model(kinds, widths, built, there, [ops.kind[name] for name in results], learned)
    read_edges = {width for j, width in enumerate(widths.edges) if width and j in there.relations}
    if more.edge_features is not None and read_edges != {more.edge_features}:
        msg = f"edge_features are {more.edge_features}, but the module reads attributes of width "
        raise ExportError(msg + ", ".join(map(str, sorted(read_edges) or [0])))
    run = Run(call, kinds, asked, learned, frozenset(ops.ids), heads, frozen)
    graphs = Graphs(run, widths, there, mirrored=any(map(is_hypergraph, module.modules())))
    made_as = compared(module, model, graphs, checks)
    warn_of_weights(module, graphs)
    if more.metadata is None and call.by_relation:
        _refuse_unnamed(module, kinds)
        _refuse_others(module, graphs)
    return made_as


def _refuse_unnamed(module: Module, kinds: Metadata) -> None:
    """Refuse a module with parts for relations, by the keys of a ModuleDict, which no HeteroConv of it names.

    Raises: ExportError
    """
    known = {re.sub(r"\W", "_", "__".join(one)) for one in kinds.relations}
    keys = {key for part in module.modules() if type(part) is ModuleDict for key in part if len(key.split("__")) == 3}
    if unnamed := sorted(key for key in keys if re.sub(r"\W", "_", key) not in known):
        relation = tuple(unnamed[0].split("__"))
        msg = f"it has a part for {relation!r}, of which nothing says whether the data has it: give metadata="
        raise ExportError(msg + "(kinds, relations), as data.metadata() gives them")


def _refuse_others(module: Module, graphs: Graphs) -> None:
    """Refuse a module whose rows depend on relations that it does not name, or on their order.

    Raises: ExportError
    """
    run, (graph, _) = graphs.run, graphs.some()
    kinds, none = run.kinds, graph.edges[0]
    first = kinds.names[0]
    more = {(first, "another", first), *_named_in_code(module)} - set(kinds.relations)
    others = kinds._replace(relations=[*sorted(more), *kinds.relations[::-1]])
    edges = [RelationEdges(none.src[:0], none.dst[:0], none.values[:0])] * len(more) + graph.edges[::-1]
    with on_one_thread():
        rows = theirs_of(module, run).rows(graph)
        try:
            again = theirs_of(module, replace(run, kinds=others)).rows(graph._replace(edges=edges))
        except ExportError:  # it takes no other relations
            return
    shapes = [one.shape for one in rows], [one.shape for one in again]
    if shapes[0] != shapes[1] or not all(map(partial(np.allclose, rtol=1e-4, atol=1e-4, equal_nan=True), rows, again)):
        msg = (
            "its rows depend on how many relations the data has, or on their order, which nothing says: give metadata="
        )
        raise ExportError(msg + "(kinds, relations), as data.metadata() gives them")


def _named_in_code(module: Module) -> set[Relation]:
    """The relations that stand in the code of a module's own classes."""
    functions = [one for kind in own_classes(module) for one in vars(kind).values() if isinstance(one, FunctionType)]
    constants = [one for function in functions for one in function.__code__.co_consts if isinstance(one, tuple)]
    return {one for one in constants if len(one) == 3 and all(isinstance(part, str) for part in one)}


def _there(ops: KindsOperations, kinds: Metadata) -> Parts:
    """The kinds that convs send from and to, and the relations between these."""
    there = kinds_there(ops, kinds)
    if not there:
        refuse("the module has no conv on a relation, so that no row reads those of neighbours")
    relations = [j for j in range(len(kinds.relations)) if set(kinds.ends(j)) <= there]
    return Parts(sorted(there), relations)


def _ids_by_kind(kinds: Metadata, given: Any) -> dict[str, list[Any]]:
    """The ids that are given by kind; where there is one kind, they may be given as they are."""
    if given is None or isinstance(given, Mapping):
        return {str(kind): listed_ids(kind, of) for kind, of in (given or {}).items()}
    if len(kinds.names) > 1:
        refuse(f"ids is {type(given).__name__}, expected those of each kind, as {{{kinds.names[0]!r}: [...]}}")
    return {kinds.names[0]: listed_ids(kinds.names[0], given)}


def _kinds(module: Module, call: ModuleCall, more: KindsAsked, *, both_ways: bool) -> Metadata:
    if call.plain:
        named = list(more.edge_types or [PLAIN_TYPE])
        if len(named) > 1:
            refuse(f"edge_types are {named}, but the module has no types: with ids it has one relation, so name one")
        types = [named[0], f"rev_{named[0]}"] if both_ways else named
        return kinds_of(module, (["vertex"], [("vertex", one, "vertex") for one in types]), more.mirrors)
    if call.edge_sets:
        named = list(more.edge_types or map(type_of, call.edge_sets))
        if len(named) != len(call.edge_sets):
            refuse(f"edge_types are {named}, but forward takes {', '.join(call.edge_sets)}: give one for each")
        return kinds_of(module, (["vertex"], [("vertex", one, "vertex") for one in named]), more.mirrors)
    if call.types is None:
        if more.edge_types:
            refuse("edge_types are those of metadata here: leave edge_types out, and give metadata=(kinds, relations)")
        return kinds_of(module, more.metadata, more.mirrors)
    many = next((one.num_relations for one in module.modules() if hasattr(one, "num_relations")), 0)
    metadata = more.metadata
    if metadata is None and not more.edge_types and not many:
        refuse(
            f"nothing in it says how many types {call.types} has (num_relations does): give it a default, or say "
            "edge_types=[...]"
        )
    if metadata is None:
        names = list(more.edge_types) if more.edge_types else [str(number) for number in range(many)]
        metadata = (["vertex"], [("vertex", name, "vertex") for name in names])
    kinds = kinds_of(module, metadata, more.mirrors)
    if len(kinds.names) > 1:
        _check_two_kinds(module, call, kinds, more)
    return kinds


def _check_two_kinds(module: Module, call: ModuleCall, kinds: Metadata, more: KindsAsked) -> None:
    """Refuse types of edges that lead between other kinds than two, all the same way, or beside what is of one kind.

    Raises: ExportError
    """
    name = f"metadata names {len(kinds.names)} kinds, and {call.types} is of the edges of all relations: "
    first = next(iter(inspect.signature(getattr(module, call.method)).parameters), "")
    if len({kinds.ends(j) for j in range(len(kinds.relations))}) > 1 or len(kinds.names) > 2:
        refuse(f"{name}expected relations that all lead from one kind to another, the same ones")
    if not first.endswith("_dict"):
        refuse(f"{name}expected forward(x_dict, edge_index, {call.types}), with the rows of both kinds")
    if call.of_sample or more.stats_from is not None:
        refuse(f"{name}{'stats_from' if more.stats_from is not None else call.of_sample[0]} is not supported there")


def _features(kinds: Metadata, given: Mapping[str, int] | int | None) -> dict[str, int]:
    """Widths of features by kind, as they are given; one number where there is one kind.

    Raises: ExportError
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        wrong = [(kind, width) for kind, width in given.items() if not isinstance(width, int) or width < 1]
        if wrong:
            refuse(f"features: the width of kind {wrong[0][0]!r} is {wrong[0][1]!r}, expected a whole number above 0")
        if unknown := sorted(set(map(str, given)) - set(kinds.names)):
            refuse(f"features has the kind {unknown[0]!r}; kinds are {', '.join(kinds.names)}: leave it out")
        return {str(kind): width for kind, width in given.items()}
    if len(kinds.names) == 1:
        return {kinds.names[0]: given}
    msg = f"features={given}: there are several kinds, so give the width of each, as "
    raise ExportError(msg + f"features={{{kinds.names[0]!r}: {given}}}")


def _model(
    kinds: Metadata,
    widths: Widths,
    built: Built,
    there: Parts,
    returned: Sequence[int],
    learned: Mapping[int, Learned],
) -> KindsModel:
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
    declared, weights = dict[str, Any](), dict(built.weights)
    for kind, one in learned.items():
        declared[stored[kind]], tables = one.declared(stored[kind])
        weights |= tables
    try:
        return build_kinds_model(
            kinds={stored[kind]: widths.features[kind] for kind in there.kinds},
            learned=declared,
            relations=relations,
            layers=built.layers,
            out=[stored[kind] for kind in returned],
            heads=built.heads,
            weights=weights,
        )
    except (ModelError, ValidationError) as error:
        msg = f"the module's layers make no model: {explain(error)}"
        raise ExportError(msg) from None
