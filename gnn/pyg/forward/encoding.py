"""Reads functions of weights and attributes of edges that stand in front of the convs of a forward."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

from torch.nn import Module
from torch_geometric.nn import DeepGCNLayer, MessagePassing

from freshet.gnn.pyg.errors import OUT_EDGES, RECORDED, ExportError, refuse
from freshet.gnn.pyg.forward.again import Encoding
from freshet.gnn.pyg.forward.asked import Asked
from freshet.gnn.pyg.forward.opening import opened
from freshet.gnn.pyg.forward.recorded import RecordingReader
from freshet.gnn.pyg.steps import written_class


class EncodingReader(RecordingReader):
    """A reader whose convs may be handed functions of what edges have, if it records."""

    def __init__(self, *given: Any, asked: Asked) -> None:
        """Take what a reader takes, and what is asked for."""
        super().__init__(*given, asked=asked)
        self._of_edges = set[Any]()

    def _read(self, node: Any) -> None:
        if self._recorded and self._encodes(node):
            self._of_edges.add(node)
            if not self._is_function(node, node.all_input_nodes):  # one of sizes alone is of rows as well
                return
        try:
            super()._read(node)
        except ExportError as error:
            raise error.of(error.about or (RECORDED if self._is_encoded(node) else "")) from error.__cause__

    def _settle(self, node: Any) -> None:
        if node not in self._of_edges:
            super()._settle(node)

    def _encodes(self, node: Any) -> bool:
        """Return whether an operation reads edges, what these have, sizes, functions of these, and constants alone."""
        read = node.all_input_nodes
        known = (self._of_edges, self._samples, self._constants)
        if not read or not all(any(one in of for of in known) for one in read):
            return False
        if all(one in self._constants for one in read) or self._samples.take(node, self._rows, self._constants):
            return False
        op = self._submodule(node)
        return op is None or not (any(isinstance(one, MessagePassing) for one in op.modules()) or written_class(op))

    def _is_encoded(self, node: Any) -> bool:
        """Return whether an operation reads functions of what edges have."""
        return any(one in self._of_edges for one in node.all_input_nodes)

    def _module(self, node: Any) -> str:
        if not self._is_encoded(node):
            return super()._module(node)
        op, name = self._called(node), self._name(node)
        if not isinstance(op, MessagePassing | DeepGCNLayer) or written_class(op):
            raise ExportError(self._reads_other(node))
        conv = op.conv if isinstance(op, DeepGCNLayer) else op
        try:
            arguments = inspect.signature(conv.forward).bind(*node.args, **node.kwargs).arguments
        except TypeError as error:
            msg = f"{self._place(node)}: {type(conv).__name__}.forward: {error}"
            raise ExportError(msg) from None
        self._unpair(node, conv, arguments)
        (_, x), (_, edges), *rest = arguments.items()
        if self._samples.is_turned(edges):
            msg = f"{self._place(node)} reads edges the other way round"
            raise ExportError(msg).of(OUT_EDGES)
        if x not in self._rows:
            raise ExportError(self._reads_other(node))
        encoding, _ = self._encoding(node, edges, dict(rest))
        return opened(self._ops, name, op, self._rows[x], edge_weights=False, encoding=encoding)

    def _encoding(self, node: Any, edges: Any, given: Mapping[str, Any]) -> tuple[Encoding, int]:
        """Return all arguments of a conv beside its rows, and the relation that its edges are of.

        Raises: ExportError for functions of anything else than these edges, and what they have.
        """
        reads, relation = dict[str, int](), self._samples.relation_of("edges", edges)
        made = self._encoder(edges, reads) if edges in self._of_edges else None
        relation = reads.get("edge_index", next(iter(reads.values()), None)) if relation is None else relation
        if relation is None:
            raise ExportError(self._reads_other(node))
        found, encoding = {relation, *reads.values()}, Encoding({}, {}, {}, set(reads), made)
        for parameter, value in given.items():
            reads = dict[str, int]()
            if not hasattr(value, "all_input_nodes") or value in self._constants:
                encoding.constants[parameter] = self._values(value)
            elif value in self._of_edges and parameter != "size":
                encoding.encoders[parameter] = self._encoder(value, reads)
            elif (what := self._what_of_edges(value)) is not None:
                encoding.handed[parameter] = what[0]
                reads |= [what]
            else:
                raise ExportError(self._reads_other(node))
            encoding.reads.update(reads)
            found.update(reads.values())
        self._refuse_several(node, found)
        return encoding, relation

    def _refuse_several(self, node: Any, relations: Collection[int]) -> None:
        """Refuse edges of one relation with what those of another have; without kinds there is one relation.

        Raises: ExportError
        """

    def _what_of_edges(self, node: Any) -> tuple[str, int] | None:
        """Return what unchanged weights or attributes are called in front of a conv, and their relation."""
        for name, what in (("edge_attr", "attributes"), ("edge_weight", "weights")):
            if (relation := self._samples.relation_of(what, node)) is not None:
                return name, relation
        return None

    def _encoder(self, node: Any, reads: dict[str, int]) -> Module:
        """Return the function that makes a result of edges, and of what these have.

        `reads` gets the names of what it reads, with the relation whose edges have it.
        """

        def given(one: Any) -> str | None:
            if (size := self._samples.size_of(one)) is not None:
                return size
            relation = self._samples.relation_of("edges", one)
            what = self._what_of_edges(one) if relation is None else ("edge_index", relation)
            if what is None:
                return None
            if reads.setdefault(*what) != what[1]:
                self._refuse_several(node, {reads[what[0]], what[1]})
            return what[0]

        function = self._again(node, given)
        if function is None:
            refuse(f"{self._place(node)} reads the weights or attributes of edges in another shape than they have")
        return function
