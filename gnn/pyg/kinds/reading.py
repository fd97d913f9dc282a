"""Reads a forward that was traced with kinds and relations, from its first operation to its last."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.fx import Asked
from freshet.gnn.pyg.forward.in_place import refuse_overwritten
from freshet.gnn.pyg.forward.nodes import label_of, nodes_in
from freshet.gnn.pyg.forward.reading import Reader
from freshet.gnn.pyg.kinds.calling import ModuleInputs
from freshet.gnn.pyg.kinds.hgt import hgt_conv, is_hgt
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import KindsOperations, OnRelation
from freshet.gnn.pyg.kinds.samples import KindsSamples
from freshet.gnn.pyg.kinds.typed import is_across, is_typed, typed_convs
from freshet.gnn.pyg.refusals import CHANGES_EDGES
from freshet.gnn.pyg.steps import Step, class_name, takes_attributes

if TYPE_CHECKING:
    from torch.nn import Module


class Read(NamedTuple):
    """The operations of a forward, and the rows that it returns, by name, in its order.

    unread: operations that no result depends on, as far as they could be read; they say how wide features are.
    """

    operations: KindsOperations
    results: list[str]
    unread: KindsOperations


def read(graph: Any, root: Any, given: ModuleInputs, kinds: Metadata, asked: Asked) -> Read:
    """Return the operations of a traced forward, and what it returns of them.

    Raises: ExportError at the first operation that cannot be taken over, and for results that are no rows by kind.
    """
    name = f"{type(root.inner).__name__}.{asked.method}"
    refuse_overwritten(graph, root, "")
    output = next(node for node in graph.nodes if node.op == "output")
    returned = asked.of(root.inner, output.args[0])
    listed = _listed(name, returned)
    output.args = (list(listed.values()),)
    unread = KindsOperations(kinds)
    if any(map(_is_dead, graph.nodes)):
        with suppress(ExportError):
            KindsReader(unread, graph, root, given, kinds).results()
    for node in reversed(list(graph.nodes)):
        if _is_dead(node):
            graph.erase_node(node)
    ops = KindsOperations(kinds)
    results = KindsReader(ops, graph, root, given, kinds).results()
    _refuse_misnamed(name, ops, kinds, dict(zip(listed, results, strict=True)))
    ops.settle(results)
    return Read(ops, results, unread)


def _is_dead(node: Any) -> bool:
    return not node.users and node.op not in ("output", "placeholder")


def _listed(name: str, returned: Any) -> dict[str | None, Any]:
    """The returned nodes by the kind that they are returned as; None for one without a name."""
    if hasattr(returned, "all_input_nodes"):
        return {None: returned}
    if isinstance(returned, dict):
        there = {key: value for key, value in returned.items() if value is not None}
        if there and all(hasattr(one, "all_input_nodes") for one in there.values()):
            return there
    keys = (
        list(returned)
        if isinstance(returned, dict)
        else list(range(len(returned) if isinstance(returned, tuple | list) else 0))
    )
    msg = f"{name} returns {type(returned).__name__}, expected rows of one kind, or a dict of rows by kind"
    if keys:
        shown = ", ".join(f"output={key!r}" for key in keys)
        msg += f". Say which one is the embedding, as in export_model(module, folder, output=...): {shown}"
    raise ExportError(msg)


def _refuse_misnamed(name: str, ops: KindsOperations, kinds: Metadata, results: dict[str | None, str]) -> None:
    """Refuse rows that are returned under another name than that of their kind.

    Raises: ExportError naming both.
    """
    for key, rows in results.items():
        kind = kinds.names[ops.kind[rows]]
        if key is not None and key != kind:
            msg = f"{name} returns rows of kind {kind!r} as {key!r}: return them as {kind!r}, or say output={key!r}"
            raise ExportError(msg)


class KindsReader(Reader):
    """A traced graph with kinds and relations whose operations are noted one after the other."""

    _ops: KindsOperations
    _samples: KindsSamples

    def __init__(self, ops: KindsOperations, graph: Any, root: Module, given: ModuleInputs, kinds: Metadata) -> None:
        """Take the graph, the module that it is of, its inputs' nodes, and which kinds and relations there are."""
        super().__init__(ops, graph, root, "", ops.inputs[:1], lambda label: None, KindsSamples(given))
        self._rows = dict(zip(given.rows, ops.inputs, strict=True))
        self._kinds, self._typed = kinds, given.types is not None
        self._dicts: dict[Any, dict[str, str]] = {}
        self._nodes = [*self._nodes[:1] * 4, *(node for node in self._nodes if node.op != "placeholder")]

    def _name(self, node: Any) -> str:
        name = super()._name(node)
        return type(self._root.inner).__name__ if name == "inner" else name

    def _place(self, node: Any) -> str:
        line = node.meta.get("line")
        return f"{self._name(node)} ({line})" if line else self._name(node)

    def _read(self, node: Any) -> None:
        op = self._submodule(node)
        if op is not None and is_hgt(op):
            self._dicts[node] = self._hgt(node, op)
        elif label_of(node) == "getitem" and node.args[0] in self._dicts:
            self._rows[node] = self._dicts[node.args[0]][node.args[1]]
        else:
            super()._read(node)

    def _hgt(self, node: Any, op: Any) -> dict[str, str]:
        """Note the operations of an HGTConv; returns the names of its rows by kind."""
        x, edges = inspect.signature(op.forward).bind(*node.args, **node.kwargs).arguments.values()
        known = isinstance(x, dict) and isinstance(edges, dict) and all(one in self._rows for one in x.values())
        relations = {ends: self._samples.relation_of("edges", one) for ends, one in edges.items()} if known else {}
        if not known or any(j is None or self._kinds.relations[j] != ends for ends, j in relations.items()):
            msg = f"{self._place(node)} is to be called with rows by kind, and edges by relation as they came: "
            raise ExportError(msg + CHANGES_EDGES)
        rows = {kind: self._rows[one] for kind, one in x.items()}
        return hgt_conv(self._ops, self._place(node), self._name(node), op, rows, relations)  # type: ignore[arg-type]

    def _module(self, node: Any) -> str:
        from torch_geometric.nn import MessagePassing

        op = self._root.get_submodule(node.target)
        if not isinstance(op, MessagePassing):
            return super()._module(node)
        try:
            arguments = inspect.signature(op.forward).bind(*node.args, **node.kwargs).arguments
        except TypeError as error:
            msg = f"{self._place(node)}: {type(op).__name__}.forward: {error}"
            raise ExportError(msg) from None
        x = next(iter(arguments.values()))
        others = {name: value for name, value in list(arguments.items())[1:] if list(nodes_in(value))}
        source, target = x if isinstance(x, tuple | list) and len(x) == 2 else (x, x)
        if source is None and target is not None:
            msg = f"{self._place(node)} has no rows of its sources: no relation of the layer before reaches them. "
            raise ExportError(msg + "Nearest: a relation into it (ToUndirected), or {**x_dict, **conv(x_dict, ...)}")
        ends = [None if one is None else self._rows.get(one) for one in (source, target)]
        if ends[0] is None or (target is not None and ends[1] is None):
            raise ExportError(self._reads_other(node))
        if is_typed(op):
            return self._typed_conv(node, op, ends, others)
        return self._conv(node, op, ends, others, one=not isinstance(x, tuple | list))

    def _reads_other(self, node: Any) -> str:
        op = self._submodule(node)
        first = node.args[0] if node.args else next(iter(node.kwargs.values()), None)
        if op is None or node in self._rows:
            return super()._reads_other(node)
        if isinstance(first, dict):
            return f"{self._place(node)}: {class_name(op)} reads rows by kind itself, which is not supported"
        if first is None or first in self._constants:
            msg = f"{self._place(node)}: {class_name(op)} is called without rows of the input: a learned row of each "
            return f"{msg}id is not supported yet. Nearest: these rows as features"
        return super()._reads_other(node)

    def _conv(self, node: Any, op: Any, ends: list[Any], others: dict[str, Any], *, one: bool) -> str:
        place, name = self._place(node), self._name(node)
        if self._typed:
            msg = (
                f"{place}: {type(op).__name__} reads edges of all types alike, which is not supported beside types yet"
            )
            raise ExportError(msg)
        found = {what: {} for what in ("edges", "weights", "attributes")}  # type: dict[str, dict[str, int]]
        for parameter, value in others.items():
            for what, of in found.items():
                if (relation := self._samples.relation_of(what, value)) is not None:
                    of[parameter] = relation
        relations = {number for of in found.values() for number in of.values()}
        known = sum(map(len, found.values())) == len(others)
        if not known or len(found["edges"]) != 1 or not set(found["weights"]) <= {"edge_weight", "edge_attr"}:
            raise ExportError(self._reads_other(node))
        if len(relations) > 1:
            named = " and ".join(self._kinds.named(number) for number in sorted(relations))
            msg = f"{place} gets edges of {named} at once, expected edges and what they have of one relation"
            raise ExportError(msg)
        self._refuse_confused(node, op, weighted=bool(found["weights"]), attributed=bool(found["attributes"]))
        (relation,) = relations
        source, target = self._kinds.ends(relation)
        if one and source != target:
            msg = f"{place} reads {self._kinds.named(relation)} with rows of one kind: give it a pair of rows, "
            raise ExportError(msg + "(x_source, x_target)")
        attributed = bool(found["attributes"]) and takes_attributes(op)
        step = Step(name, op, edge_weights=bool(found["weights"]), attributes=attributed)
        return self._ops.conv(place, OnRelation(relation, ends[0], ends[1], step))

    def _typed_conv(self, node: Any, op: Any, ends: list[Any], others: dict[str, Any]) -> str:
        """Note a conv that reads the type of each edge as convs of relations, and their sum."""
        values = list(others.values())
        place = self._place(node)
        if not self._typed:
            msg = f"{place}: {class_name(op)} reads the types of edges: call it from forward(x, edge_index, edge_type)"
            raise ExportError(msg)
        if len(values) != 2 or not self._samples.is_edges(values[0]) or not self._samples.is_types(values[1]):
            msg = f"{place} is to be called with x, edge_index and edge_type as they came: {CHANGES_EDGES}"
            raise ExportError(msg)
        if ends[0] != ends[1]:
            msg = f"{place} is called with two kinds of rows: give it one, x"
            raise ExportError(msg)
        name = self._name(node)
        made = [
            self._ops.conv(place, OnRelation(relation, ends[0], ends[0], step))
            for relation, step in enumerate(typed_convs(Step(name, op), len(self._kinds.relations)))
        ]
        if is_across(op):
            return self._ops.attended(f"{name}.softmax", made)
        return made[0] if len(made) == 1 else self._ops.join(f"{name}.sum", "sum", made)
