"""Reads functions of weights and attributes of edges that stand in front of the convs of a forward."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

from torch.nn import Module
from torch_geometric.nn import DeepGCNLayer, MessagePassing

from freshet.gnn.pyg.errors import OUT_EDGES, ExportError, refuse
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
        else:
            super()._read(node)

    def _encodes(self, node: Any) -> bool:
        """Return whether an operation reads weights and attributes of edges, or functions of these, and constants."""
        read = node.all_input_nodes
        if not any(one in self._of_edges or self._samples.is_of_edges(one) for one in read):
            return False
        if self._samples.take(node, self._rows, self._constants):
            return False
        op = self._submodule(node)
        if op is not None and (any(isinstance(one, MessagePassing) for one in op.modules()) or written_class(op)):
            return False
        known = (self._of_edges, self._constants)
        return all(any(one in of for of in known) or self._samples.is_of_edges(one) for one in read)

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
        relation = self._samples.relation_of("edges", edges)
        if x not in self._rows or relation is None:
            raise ExportError(self._reads_other(node))
        encoding = self._encoding(node, dict(rest), relation)
        return opened(self._ops, name, op, self._rows[x], edge_weights=False, encoding=encoding)

    def _encoding(self, node: Any, given: Mapping[str, Any], relation: int) -> Encoding:
        """Return all arguments of a conv beside its rows and edges, which are those of a relation.

        Raises: ExportError for functions of anything else than what these edges have.
        """
        encoding, found = Encoding({}, {}, {}, set()), {relation}
        for parameter, value in given.items():
            if not hasattr(value, "all_input_nodes") or value in self._constants:
                encoding.constants[parameter] = self._values(value)
            elif value in self._of_edges and parameter != "size":
                encoding.encoders[parameter] = self._encoder(value, encoding.reads, found)
            elif (what := self._what_of_edges(value)) is not None:
                encoding.handed[parameter] = what[0]
                encoding.reads.add(what[0])
                found.add(what[1])
            else:
                raise ExportError(self._reads_other(node))
        self._refuse_several(node, found)
        return encoding

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

    def _encoder(self, node: Any, reads: set[str], relations: set[int]) -> Module:
        """Return the function that makes a result of what edges have.

        `reads` gets the names of what it reads, `relations` those whose edges have it.
        """

        def given(one: Any) -> str | None:
            if (what := self._what_of_edges(one)) is None:
                return None
            reads.add(what[0])
            relations.add(what[1])
            return what[0]

        function = self._again(node, given)
        if function is None:
            refuse(f"{self._place(node)} reads the weights or attributes of edges in another shape than they have")
        return function
