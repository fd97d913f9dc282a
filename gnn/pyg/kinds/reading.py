"""Reads a forward that was traced with kinds and relations, from its first operation to its last."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, NamedTuple

from torch_geometric.nn import MessagePassing

from freshet.gnn.pyg.encoded_conv import EndColumns
from freshet.gnn.pyg.errors import RECORDED, ExportError, refuse
from freshet.gnn.pyg.forward.asked import Asked
from freshet.gnn.pyg.forward.hops import is_of_hops
from freshet.gnn.pyg.forward.in_place import refuse_overwritten
from freshet.gnn.pyg.forward.parameters import ModuleInputs
from freshet.gnn.pyg.forward.places import label_of, nodes_in
from freshet.gnn.pyg.kinds.convs.by_kinds import han_conv, hgt_conv, is_han, is_hgt
from freshet.gnn.pyg.kinds.convs.hypergraph import hypergraph_conv, is_hypergraph
from freshet.gnn.pyg.kinds.convs.paired import paired
from freshet.gnn.pyg.kinds.convs.signed import is_signed, signed_conv
from freshet.gnn.pyg.kinds.convs.typed import (
    is_typed,
    may_be_between_kinds,
    may_read_numbers,
    reads_attributes_of_types,
    refuse_types,
    typed_conv,
)
from freshet.gnn.pyg.kinds.convs.within import WithinRelation, called_with, relation_within
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import KindsOperations, OnRelation
from freshet.gnn.pyg.kinds.reading_edges import EdgesReader
from freshet.gnn.pyg.kinds.returned import listed, refuse_misnamed
from freshet.gnn.pyg.kinds.widths import is_read_here, is_run_here, known_width
from freshet.gnn.pyg.refusals import CHANGES_EDGES
from freshet.gnn.pyg.statistics import Statistics
from freshet.gnn.pyg.steps import Step, class_name, takes_attributes, written_class

Ends = tuple[str | None, str | None]
"""The rows of the sources and targets of edges."""


class Read(NamedTuple):
    """The operations of a forward, and the rows that it returns, by name, in its order.

    unread: operations that no result depends on, as far as they could be read; they say how wide features are.
    """

    operations: KindsOperations
    results: list[str]
    unread: KindsOperations


def read(
    graph: Any,
    root: Any,
    given: ModuleInputs,
    kinds: Metadata,
    asked: Asked,
    frozen: Statistics | None = None,
    ids: Mapping[str, Sequence[Any]] | None = None,
    features: Mapping[str, int] = MappingProxyType({}),
) -> Read:
    """Return the operations of a traced forward, and what it returns of them; `frozen` is what is so.

    `ids`: those that were given by kind, of kinds whose features were not. `features`: the widths that were given.

    Raises: ExportError at the first operation that cannot be taken over, and for results that are no rows by kind.
    """
    name = f"{type(root.inner).__name__}.{asked.method}"
    refuse_overwritten(graph, root, "")
    output = next(node for node in graph.nodes if node.op == "output")
    returned = asked.of(root.inner, output.args[0])
    returned_as = listed(name, returned)
    output.args = (list(returned_as.values()),)
    _count_calls(graph)
    unread = KindsOperations(kinds, features)
    if any(map(_is_dead, graph.nodes)):
        with suppress(ExportError):
            KindsReader(unread, graph, root, given, kinds, ids, asked=asked, frozen=frozen).results()
    for node in reversed(list(graph.nodes)):
        if _is_dead(node):
            graph.erase_node(node)
    ops = KindsOperations(kinds, features)
    results = KindsReader(ops, graph, root, given, kinds, ids, asked=asked, frozen=frozen).results()
    refuse_misnamed(name, ops, kinds, dict(zip(returned_as, results, strict=True)))
    ops.settle(results)
    if frozen is not None:
        frozen.freeze(ops)
    return Read(ops, results, unread)


def _count_calls(graph: Any) -> None:
    """Note in each call of a module the number of those before it."""
    calls = Counter[str]()
    for node in graph.nodes:
        if node.op == "call_module":
            node.meta["call"] = calls[node.target]
            calls[node.target] += 1


def _is_dead(node: Any) -> bool:
    return not node.users and node.op not in ("output", "placeholder")


class KindsReader(EdgesReader):
    """A traced graph with kinds and relations whose operations are noted one after the other."""

    def __init__(self, *given: Any, frozen: Statistics | None = None, **more: Any) -> None:
        """Take what a reader with kinds takes; `frozen`: what was frozen on the graph of `stats_from`."""
        super().__init__(*given, **more)
        self._frozen = frozen
        self._dicts: dict[Any, dict[str, str]] = {}

    def _name(self, node: Any) -> str:
        name = super()._name(node)
        return type(self._root.inner).__name__ if name == "inner" else name

    def _place(self, node: Any) -> str:
        line = node.meta.get("line")
        return f"{self._name(node)} ({line})" if line else self._name(node)

    def _read(self, node: Any) -> None:
        if self._recorded and self._typed and self._picks(node):
            self._pick_in_front(node)
        op = self._submodule(node)
        if op is not None and (is_hgt(op) or is_han(op) or may_read_numbers(op)):
            self._settle_read(node)
        if op is not None and (is_hgt(op) or is_han(op)):
            self._dicts[node] = self._by_dicts(node, op)
        elif label_of(node) == "getitem" and node.args[0] in self._dicts:
            self._rows[node] = self._dicts[node.args[0]][node.args[1]]
        elif op is not None and may_read_numbers(op):
            self._rows[node] = self._module(node)
        elif (looked_up := self._looked_up(node)) is not None:
            self._rows[node] = looked_up
        else:
            super()._read(node)

    def _by_dicts(self, node: Any, op: Any) -> dict[str, str]:
        """Note the operations of an HGTConv or HANConv; returns the names of its rows by kind."""
        x, edges, *more = inspect.signature(op.forward).bind(*node.args, **node.kwargs).arguments.values()
        known = isinstance(x, dict) and isinstance(edges, dict) and all(one in self._rows for one in x.values())
        relations = {ends: self._samples.relation_of("edges", one) for ends, one in edges.items()} if known else {}
        if any(more):
            refuse(f"{self._place(node)}: return_semantic_attention_weights is not supported: leave it out")
        if not known or any(j is None or self._kinds.relations[j] != ends for ends, j in relations.items()):
            msg = f"{self._place(node)} is to be called with rows by kind, and edges by relation as they came: "
            raise ExportError(msg + CHANGES_EDGES)
        rows = {kind: self._rows[one] for kind, one in x.items()}
        where = self._ops, self._place(node), self._name(node)
        if is_hgt(op):
            return hgt_conv(*where, op, rows, relations)  # type: ignore[arg-type]
        name = node.target.removeprefix("inner.").removeprefix("inner")
        attention = None if self._frozen is None else self._frozen.attention(name, node.meta["call"])
        return han_conv(*where, op, rows, relations, attention)  # type: ignore[arg-type]

    def _module(self, node: Any) -> str:
        op = self._called(node)
        if not isinstance(op, MessagePassing) and written_class(op) is None:
            return self._module_of_convs(node, op)
        try:
            arguments = inspect.signature(op.forward).bind(*node.args, **node.kwargs).arguments
        except TypeError as error:
            msg = f"{self._place(node)}: {type(op).__name__}.forward: {error}"
            raise ExportError(msg) from None
        x = next(iter(arguments.values()))
        others = {name: value for name, value in list(arguments.items())[1:] if list(nodes_in(value))}
        if may_read_numbers(op) and self._are_numbers(x, op):
            return self._typed_conv(node, op, (None, None), others)
        source, target = x if isinstance(x, tuple | list) and len(x) == 2 else (x, x)
        if source is None and target is not None:
            msg = f"{self._place(node)} has no rows of its sources: no relation of the layer before reaches them. "
            raise ExportError(msg + "Nearest: a relation into it (ToUndirected), or {**x_dict, **conv(x_dict, ...)}")
        ends = [None if one is None else self._rows.get(one) for one in (source, target)]
        if ends[0] is None or (target is not None and ends[1] is None):
            raise ExportError(self._reads_other(node))
        if is_signed(op):
            relations = [self._samples.relation_of("edges", one) for one in others.values()]
            if len(relations) != 2 or None in relations or ends[0] != ends[1]:
                raise ExportError(self._reads_other(node))
            return signed_conv(self._ops, self._place(node), self._name(node), op, ends[0], relations)  # type: ignore[arg-type]
        if is_hypergraph(op):
            return self._hypergraph_conv(node, op, ends[0], others)
        if is_typed(op):
            if ends[0] != ends[1] and not (may_be_between_kinds(op) and self._are_ends(ends)):
                refuse(f"{self._place(node)} is called with two kinds of rows: give it one, x")
            return self._typed_conv(node, op, (ends[0], ends[1]), others)
        return self._conv(node, op, ends, others, one=not isinstance(x, tuple | list))

    def _module_of_convs(self, node: Any, op: Any) -> str:
        """Note a module that is no conv; one that is called with edges holds convs on their relation."""
        relation = relation_within(self._samples, self._kinds, node)
        of_all = self._typed and any(map(self._samples.is_of_all, node.all_input_nodes))
        if relation is None and not of_all:
            return super()._module(node)
        if relation is None or relation < 0:
            msg = f"{self._place(node)}: {type(op).__name__} is called with edges and holds convs, which is supported "
            raise ExportError(msg + "with edges of one relation within one kind. Nearest: its convs by themselves")
        ops, self._ops = self._ops, WithinRelation(self._ops, self._kinds, self._place(node), relation)  # type: ignore[assignment]
        try:
            return super()._module(node)
        finally:
            self._ops = ops

    def _reads_other(self, node: Any) -> str:
        op = self._submodule(node)
        first = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
        if op is None or node in self._rows:
            return super()._reads_other(node)
        if isinstance(first, dict):
            return f"{self._place(node)}: {class_name(op)} reads rows by kind itself, which is not supported"
        if first in self._constants and may_read_numbers(op):
            return f"{self._place(node)} is called with numbers that are not those of all vertices, 0 and up, in order"
        if first is None or first in self._constants:
            msg = f"{self._place(node)}: {class_name(op)} is called without rows of vertices. Nearest: rows that "
            return f"{msg}were learned for each, as an Embedding's weight or by node_id_dict, or features"
        return super()._reads_other(node)

    def _conv(self, node: Any, op: Any, ends: list[Any], others: dict[str, Any], *, one: bool) -> str:
        place = self._place(node)
        of_all = self._typed and any(map(self._samples.is_of_all, others.values()))
        refuse_types(place, op, reads=any(map(self._samples.is_types, others.values())), beside=of_all)
        found = {what: {} for what in ("edges", "weights", "attributes")}  # type: dict[str, dict[str, int]]
        for parameter, value in others.items():
            for what, of in found.items():
                if (relation := self._samples.relation_of(what, value)) is not None:
                    of[parameter] = relation
        several = is_of_hops(op) or is_run_here(op)  # as GCN2Conv and FAConv
        first = {one: self._rows[value] for one, value in others.items() if several and value in self._rows}
        if self._is_encoded(node):
            return self._encoded_conv(node, op, ends, one=one)
        pairs = {one: [self._rows[end] for end in value] for one, value in others.items() if self._are_pair(value)}
        known = sum(map(len, found.values())) + len(first) + len(pairs) == len(others)
        own = is_run_here(op)
        known = known and (not pairs or (is_read_here(op) and not first and not one and None not in ends))
        if not known or len(found["edges"]) != 1 or not (own or set(found["weights"]) <= {"edge_weight", "edge_attr"}):
            raise ExportError(self._reads_other(node))
        self._refuse_several(node, {number for of in found.values() for number in of.values()})
        self._refuse_confused(node, op, found["weights"].keys(), attributed=bool(found["attributes"]))
        relation = next(iter(found["edges"].values()))
        two_kinds = self._is_bipartite(node, relation, one=one)
        given = called_with(node, op, found, tuple(first), pair=not one, two_kinds=two_kinds)
        has = bool(found["weights"]), bool(found["attributes"]) and takes_attributes(op)
        step = Step(self._name(node), op, has[0], attributes=has[1], given=given if own else None)
        if pairs:
            pairs = {given.rows: ends, **pairs}
            return self._paired_conv(node, OnRelation(relation, ends[0], ends[1], step), pairs)
        return self._on_relation(
            node, OnRelation(relation, ends[0], ends[1], step), list(first.values()), given.constants
        )

    def _encoded_conv(self, node: Any, op: Any, ends: list[Any], *, one: bool) -> str:
        """Note a conv on a relation that is handed functions of its edges and what they have."""
        arguments = inspect.signature(op.forward).bind(*node.args, **node.kwargs).arguments
        _, (_, edges), *rest = arguments.items()
        if written_class(op) is not None:
            raise ExportError(self._reads_other(node))
        encoding, relation = self._encoding(node, edges, dict(rest))
        two_kinds = self._is_bipartite(node, relation, one=one)
        step = encoding.step(self._name(node), op, pair=not one, two_kinds=two_kinds)
        return self._on_relation(node, OnRelation(relation, ends[0], ends[1], step), [], {})

    def _hypergraph_conv(self, node: Any, op: Any, rows: str, others: Mapping[str, Any]) -> str:
        relation = self._samples.relation_of("edges", others.get("hyperedge_index"))
        if relation is None:
            raise ExportError(self._reads_other(node))
        of_edges = {name: one for name, one in others.items() if name not in ("hyperedge_index", "num_edges")}
        if not all(one in self._rows for one in of_edges.values()):
            raise ExportError(self._reads_other(node))
        given = {name: self._rows[one] for name, one in of_edges.items()}
        place, step = self._place(node), Step(self._name(node), op)
        return hypergraph_conv(self._ops, place, step, rows, relation, self._kinds, given)

    def _are_pair(self, value: Any) -> bool:
        return isinstance(value, tuple | list) and len(value) == 2 and all(one in self._rows for one in value)

    def _paired_conv(self, node: Any, of: OnRelation, pairs: Mapping[str, Sequence[str]]) -> str:
        """Note a conv on a relation that is called with several pairs of rows, by its parameters."""
        rows, columns = list[str](), list[dict[str, EndColumns]]()
        for end, kind in enumerate(self._kinds.ends(of.relation)):
            names = list(dict.fromkeys(one[end] for one in pairs.values()))
            if any(self._ops.kind[name] != kind for name in names):
                raise ExportError(self._reads_other(node))
            columns.append(dict(zip(names, self._columns(node, end, names).values(), strict=True)))
            rows.append(self._beside(node, names, end))
        if rows[0] != rows[1] and len(set(self._kinds.ends(of.relation))) < 2:
            msg = (
                f"{self._place(node)} is called with several pairs of rows on {self._kinds.named(of.relation)}, within "
            )
            raise ExportError(msg + "one kind, where both ends have the same: give it x and pos in place of pairs")
        cut = {name: (columns[0][source], columns[1][target]) for name, (source, target) in pairs.items()}
        source, target = (known_width(self._ops, one, self._kinds) for one in rows)
        step = paired(of.step, cut, (source, target))
        return self._on_relation(node, OnRelation(of.relation, rows[0], rows[1], step), [], {})

    def _is_bipartite(self, node: Any, relation: int, *, one: bool) -> bool:
        """Return whether a relation is one between two kinds.

        Raises: ExportError where a conv is called with `one` tensor of rows there.
        """
        source, target = self._kinds.ends(relation)
        if one and source != target:
            msg = f"{self._place(node)} reads {self._kinds.named(relation)} with rows of one kind: give it a pair of "
            raise ExportError(msg + "rows, (x_source, x_target)")
        return source != target

    def _refuse_several(self, node: Any, relations: Collection[int]) -> None:
        are_mirrored = len(relations) == 2 and any(self._kinds.mirrors[one] in relations for one in relations)
        if len(relations) > 1 and not are_mirrored:
            named = " and ".join(self._kinds.named(number) for number in sorted(relations))
            msg = f"{self._place(node)} gets edges of {named} at once, and what these have: expected one relation"
            raise ExportError(msg).of(RECORDED)

    def _are_ends(self, rows: list[str | None]) -> bool:
        """Return whether these are rows of the sources and of the targets of all edges, which are of two kinds."""
        return None not in rows and tuple(self._ops.kind[one] for one in rows) == self._kinds.ends(0)  # type: ignore[index]

    def _typed_conv(self, node: Any, op: Any, ends: Ends, others: dict[str, Any]) -> str:
        """Note a conv that reads the type of each edge as convs of relations, and their sum.

        ends: the rows of sources and targets; None where it reads numbers of vertices, and has weights for each.
        """
        values = list(others.values())
        place = self._place(node)
        if not self._typed:
            msg = f"{place}: {class_name(op)} reads the types of edges: call it from forward(x, edge_index, edge_type)"
            raise ExportError(msg)
        if self._is_encoded(node):
            msg = f"{place}: {class_name(op)} gets a function of attributes, which is not supported beside types yet. "
            raise ExportError(msg + "Nearest: put what it makes into the stream, or HeteroConv of GATConv").of(RECORDED)
        attributed = len(values) == 3 and self._samples.is_attributes(values[2])
        if attributed and not reads_attributes_of_types(op):
            refuse(
                f"{place}: {class_name(op)} is given attributes of edges, and reads none (no edge_dim): leave them out"
            )
        known = len(values) == 2 + attributed and self._samples.is_types(values[1])
        if not known or not self._samples.is_edges(values[0]):
            refuse(f"{place} is to be called with x, edge_index and edge_type as they came: {CHANGES_EDGES}")
        step = Step(self._name(node), op, attributes=attributed)
        return typed_conv(self._ops, place, step, ends[0], ends[1], self._kinds)
