"""Reads functions of weights and attributes of edges that stand in front of the convs of a forward."""

from __future__ import annotations

import inspect
from typing import Any

from torch.nn import Module
from torch_geometric.nn import DeepGCNLayer, MessagePassing

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.again import Encoding
from freshet.gnn.pyg.forward.opening import opened
from freshet.gnn.pyg.forward.recorded import RecordingReader
from freshet.gnn.pyg.steps import written_class


class EncodingReader(RecordingReader):
    """A reader of a module without kinds, whose convs may be handed functions of what edges have, if it records."""

    def __init__(self, *given: Any, recorded: bool) -> None:
        """Take what a reader takes, and whether it records."""
        super().__init__(*given, recorded=recorded)
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

    def _module(self, node: Any) -> str:
        if not any(one in self._of_edges for one in node.all_input_nodes):
            return super()._module(node)
        op, name = self._root.get_submodule(node.target), self._name(node)
        if not isinstance(op, MessagePassing | DeepGCNLayer) or written_class(op):
            raise ExportError(self._reads_other(node))
        rows, encoding = self._encoding(node, op.conv if isinstance(op, DeepGCNLayer) else op)
        return opened(self._ops, name, op, rows, edge_weights=False, encoding=encoding)

    def _encoding(self, node: Any, conv: Any) -> tuple[str, Encoding]:
        """Return the rows that a conv is called with, and all else beside edges.

        Raises: ExportError for edges that are not those of the stream, and for functions of anything else.
        """
        try:
            arguments = inspect.signature(conv.forward).bind(*node.args, **node.kwargs).arguments
        except TypeError as error:
            msg = f"{self._place(node)}: {type(conv).__name__}.forward: {error}"
            raise ExportError(msg) from None
        self._unpair(node, conv, arguments)
        (_, x), (_, edges), *rest = arguments.items()
        if x not in self._rows or not self._samples.is_edges(edges):
            raise ExportError(self._reads_other(node))
        encoding = Encoding({}, {}, {}, set())
        for parameter, value in rest:
            if not hasattr(value, "all_input_nodes") or value in self._constants:
                encoding.constants[parameter] = self._values(value)
            elif value in self._of_edges:
                encoding.encoders[parameter] = self._encoder(value, encoding.reads)
            elif (what := self._what_of_edges(value)) is not None:
                encoding.handed[parameter] = what
                encoding.reads.add(what)
            else:
                raise ExportError(self._reads_other(node))
        return self._rows[x], encoding

    def _what_of_edges(self, node: Any) -> str | None:
        if self._samples.is_attributes(node):
            return "edge_attr"
        return "edge_weight" if self._samples.is_weights(node) else None

    def _encoder(self, node: Any, reads: set[str]) -> Module:
        """Return the function that makes a result of what edges have, of which `reads` gets the names."""

        def given(one: Any) -> str | None:
            what = self._what_of_edges(one)
            reads.update([] if what is None else [what])
            return what

        function = self._again(node, given)
        if function is None:
            refuse(f"{self._place(node)} reads the weights or attributes of edges in another shape than they have")
        return function
