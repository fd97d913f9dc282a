"""Calls of a module that reads kinds: with dicts by kind and relation, or with the type of each edge."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch.nn import Module
from torch_geometric.data import HeteroData
from torch_geometric.nn import HeteroConv, MessagePassing

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.forward.parameters import (
    ModuleInputs,
    cut,
    is_of_kinds,
    outside_aggregations,
    rows_by_name,
    takes_data,
    ways_of_data,
)
from freshet.gnn.pyg.forward.sampled import OF_SAMPLES, of_sample, put_sizes
from freshet.gnn.pyg.kinds.convs.typed import is_typed, reads_attributes_of_types
from freshet.gnn.pyg.kinds.metadata import Metadata, Relation
from freshet.gnn.pyg.refusals import ROWS_BESIDE
from freshet.gnn.pyg.steps import adds_attributes, takes_attributes

_EDGES = ("edge_index_dict", "edge_index", "adj_t_dict", "adj_t")
_WEIGHTS = ("edge_weight_dict", "edge_weight")
_ATTRIBUTES = ("edge_attr_dict", "edge_attr", "edge_features_dict")
_IDS = ("node_id_dict", "node_ids_dict", "n_id_dict", "id_dict", "ids_dict", "node_id", "node_ids", "n_id")
_TYPES = ("edge_type", "edge_types", "edge_type_index", "rel_type", "relation")
_CALLS = (
    "expected (x_dict, edge_index_dict[, edge_attr_dict][, edge_weight_dict][, node_id_dict]), (x, edge_index, "
    "edge_type[, edge_attr]) or (data)"
)


class ModuleCall(NamedTuple):
    """The parameters of a method that take edges, weights, attributes and types; None where none does.

    edges: None where they are the second argument, by place. unattributed: relations that are given no attributes,
    since a HeteroConv hands on all that it gets. data: it takes all in one HeteroData. rows: whether it takes
    any; else learned rows are all that it reads. plain: it has one kind and one relation, and takes no dicts.
    edge_sets: the parameters that take a set of edges each; every set is a relation. of_sample: parameters that
    describe a sample. traced: how a module without kinds is called, by its steps. columns: the parameters that take
    columns of the rows each, with their widths.
    """

    method: str
    edges: str | None = None
    weights: str | None = None
    attributes: str | None = None
    types: str | None = None
    unattributed: frozenset[Relation] = frozenset()
    ids: str | None = None
    data: bool = False
    rows: bool = True
    plain: bool = False
    edge_sets: tuple[str, ...] = ()
    of_sample: tuple[str, ...] = ()
    traced: Callable[[Any, Any, Any, Any, Any], Any] | None = None
    columns: tuple[tuple[str, int], ...] = ()

    @property
    def by_relation(self) -> bool:
        """Return whether it takes edges by relation, of which data may have others."""
        return not (self.plain or self.types or self.edge_sets or self.traced)

    def __call__(self, module: Any, kinds: Metadata, given: ModuleInputs) -> Any:
        """Call the method, so that its other parameters keep their defaults."""
        if self.traced is not None:
            return self.traced(module, *(one[0] for one in given[:4]))
        function = module if self.method == "forward" else getattr(module, self.method)
        if self.data and self.plain:
            return ways_of_data()[0].call(function, *(one[0] for one in given[:4]))
        if self.data:
            return function(_data_of(kinds, given))
        if self.edge_sets:
            return function(given.rows[0], **dict(zip(self.edge_sets, given.edges, strict=True)))
        if self.plain:
            x, edges = given.rows[0], given.edges[0]
            every = ((self.weights, given.weights), (self.attributes, given.attributes), (self.ids, given.ids))
            options = {name: values[0] for name, values in every if name is not None}
        elif self.types is not None:
            x = given.rows[0] if len(kinds.names) == 1 else dict(zip(kinds.names, given.rows, strict=True))
            edges, options = given.edges[0], {self.types: given.types}
            every = ((self.weights, given.weights), (self.attributes, given.attributes), (self.ids, given.ids))
            options |= {name: values[0] for name, values in every if name is not None}
        else:
            x = dict(zip(kinds.names, given.rows, strict=True))
            edges, weights, attributes = (dict(zip(kinds.relations, values, strict=True)) for values in given[1:4])
            attributes = {one: values for one, values in attributes.items() if one not in self.unattributed}
            named = ((self.weights, weights), (self.attributes, attributes))
            options = {name: values for name, values in named if name is not None}
            options |= {} if self.ids is None else {self.ids: dict(zip(kinds.names, given.ids, strict=True))}
        options |= self._of_sample(kinds, given)
        if self.columns:
            return function(**cut(x, self.columns), **{str(self.edges): edges}, **options)
        if not self.rows:
            return function(edges, **options)
        if self.edges is None:
            return function(x, edges, **options)
        return function(x, **{self.edges: edges}, **options)

    def _of_sample(self, kinds: Metadata, given: ModuleInputs) -> dict[str, Any]:
        """Parameters of a sample, with values for the whole graph."""
        if not self.of_sample:
            return {}
        vertices, edges = [one.size(0) for one in given.rows], [one.size(1) for one in given.edges]
        if self.plain or self.types is not None:
            return {name: of_sample(name, vertices[0], edges[0]) for name in self.of_sample}
        by_kind, by_relation = (
            dict(zip(kinds.names, vertices, strict=True)),
            dict(zip(kinds.relations, edges, strict=True)),
        )
        return {name: of_sample(name, by_kind, by_relation) for name in self.of_sample}


def _data_of(kinds: Metadata, given: ModuleInputs) -> Any:
    """Return a HeteroData of the inputs; ids are there under both of PyG's names."""
    data = HeteroData()
    for name, rows, ids in zip(kinds.names, given.rows, given.ids, strict=True):
        data[name].x, data[name].node_id, data[name].n_id = rows, ids, ids
    for number, relation in enumerate(kinds.relations):
        edges = data[relation]
        edges.edge_index, edges.edge_weight = given.edges[number], given.weights[number]
        edges.edge_attr = given.attributes[number]
        rows = given.rows[kinds.ends(number)[0]]
        put_sizes(data[relation[0]], rows.size(0), edges, given.edges[number].size(1))
    return data


def edge_sets_of(function: Any) -> tuple[str, ...]:
    """Return the parameters of a forward that take sets of edges, where there are several that it needs, by name."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    named = [p.name for p in parameters if "edge_index" in p.name and p.default is p.empty]
    return tuple(named) if len(named) > 1 and not any(name.endswith("_dict") for name in named) else ()


def type_of(edge_set: str) -> str:
    """Return the type of the edges of a set: `pos` of pos_edge_index, `edge` of edge_index."""
    return edge_set.replace("edge_index", "").strip("_") or "edge"


def typed_parameter(function: Any) -> inspect.Parameter | None:
    """Return the parameter of a forward that takes the types of edges; None where none does."""
    parameters = list(inspect.signature(function).parameters.values())
    return next((p for p in parameters[1:] if p.name in _TYPES), None)


def reads_kinds(module: Module, method: str) -> bool:
    """Return whether a module is called with dicts by kind, or with the types of edges."""
    function = getattr(module, method, None)
    if not callable(function):
        return False
    names = list(inspect.signature(function).parameters)
    if edge_sets_of(function):
        return True
    if any(name.endswith("_dict") for name in names) or any(
        is_of_kinds(part) for _, part in outside_aggregations(module)
    ):
        return True
    typed = typed_parameter(function)
    return typed is not None and (typed.default is typed.empty or any(is_typed(part) for part in module.modules()))


def types_left(module: Module, method: str) -> str | None:
    """Return the parameter of a forward that takes the types of edges, where no conv reads these; None else."""
    function = getattr(module, method, None)
    typed = typed_parameter(function) if callable(function) else None
    return None if typed is None or any(map(is_typed, module.modules())) else typed.name


def call_of(module: Module, method: str, name: str, columns: tuple[tuple[str, int], ...] = ()) -> ModuleCall:
    """Return how a module is called; `columns`: see ModuleCall.

    Raises: ExportError where it needs something else than dicts by kind and relation, or than types of edges.
    """
    if isinstance(module, HeteroConv) and method == "forward":
        attributed = any(_takes(conv, "edge_attr") for conv in module.convs.values())
        return ModuleCall(
            method, attributes="edge_attr_dict" if attributed else None, unattributed=_unattributed(module)
        )
    function = getattr(module, method)
    every = inspect.signature(function).parameters.values()
    parameters = [p for p in every if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    types = typed_parameter(function)
    if takes_data(parameters):
        return ModuleCall(method, data=True)
    if sets := edge_sets_of(function):
        _refuse_needed(name, [p for p in parameters[1:] if p.name not in sets])
        return ModuleCall(method, edge_sets=sets)
    if columns and (by_name := rows_by_name(name, parameters, columns)) is not None:
        parameters = [p for one in (columns[0][0], by_name[1]) for p in parameters if p.name == one] + by_name[2]
    rows = not parameters or parameters[0].name not in _EDGES
    if len(parameters) < 1 + rows:
        refuse(f"{name} takes ({', '.join(p.name for p in parameters)}), {_CALLS}")
    named = next((p for p in parameters[rows:] if p.name in _EDGES), parameters[rows])
    edges = None if named is parameters[rows] and not columns else named.name
    rest = [p for p in parameters[rows:] if p.name not in (named.name, "" if types is None else types.name)]
    weights = attributes = None
    if types is None:
        reads = _may_read_attributes(module)  # to_hetero of PyG's GAT hands on attributes that no conv of it reads
        weights = _named(rest, _WEIGHTS)
        attributes = _named([p for p in rest if reads or p.default is p.empty], _ATTRIBUTES)
    else:
        by_hand = _picks_edges(module)
        reads = any(map(reads_attributes_of_types, module.modules())) or (by_hand and _may_read_attributes(module))
        weights = _named([p for p in rest if by_hand or p.default is p.empty], _WEIGHTS)
        attributes = _named([p for p in rest if reads or p.default is p.empty], _ATTRIBUTES)
    ids = _named(rest, _IDS)
    sampled = tuple(p.name for p in rest if p.name in OF_SAMPLES and p.default is p.empty)
    _refuse_needed(name, [p for p in rest if p.name not in (weights, attributes, ids, *sampled)])
    typed = None if types is None else types.name
    unread = _unattributed(module)
    call = ModuleCall(method, edges, weights, attributes, typed, unread, ids, rows=rows, of_sample=sampled)
    return call._replace(columns=columns)


def _picks_edges(module: Module) -> bool:
    """Return whether edges of a type may be read by other convs than those that read all types, or by none."""
    convs = [one for one in module.modules() if isinstance(one, MessagePassing)]
    return not all(map(is_typed, convs)) or not convs


def _unattributed(module: Module) -> frozenset[Relation]:
    """Relations whose convs in HeteroConvs all read no attributes; none where a conv elsewhere may read theirs."""
    reads = dict[Relation, bool]()
    inside = set[int]()
    for part in module.modules():
        for key, conv in part.convs.items() if isinstance(part, HeteroConv) else ():
            inside.update(map(id, conv.modules()))
            reads[tuple(key)] = reads.get(tuple(key), False) or has_attributes(conv)
    elsewhere = (one for one in module.modules() if isinstance(one, MessagePassing) and id(one) not in inside)
    if any(map(has_attributes, elsewhere)):
        return frozenset()
    return frozenset(relation for relation, are_read in reads.items() if not are_read)


def _may_read_attributes(module: Module) -> bool:
    return any(takes_attributes(part) or adds_attributes(part) for part in module.modules())


def has_attributes(conv: Any) -> bool:
    """Return whether a conv takes attributes, or weights under their name."""
    return "edge_attr" in inspect.signature(conv.forward).parameters


def _takes(conv: Any, parameter: str) -> bool:
    return parameter in inspect.signature(conv.forward).parameters and takes_attributes(conv)


def _named(parameters: Sequence[inspect.Parameter], names: Sequence[str]) -> str | None:
    return next((p.name for p in parameters if p.name in names), None)


def _refuse_needed(name: str, parameters: Sequence[inspect.Parameter]) -> None:
    needed = [p.name for p in parameters if p.default is p.empty]
    if needed:
        refuse(f"{name} needs {', '.join(needed)}, {_CALLS}: give it a default{ROWS_BESIDE}")
