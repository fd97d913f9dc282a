"""Reads where a forward with kinds looks rows up by the ids of vertices, or takes those of all vertices of a kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch.fx import Node
from torch.nn import Module
from torch_geometric.nn import MessagePassing

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.asked import Asked
from freshet.gnn.pyg.forward.encoding import EncodingReader
from freshet.gnn.pyg.forward.parameters import ModuleInputs
from freshet.gnn.pyg.forward.places import label_of
from freshet.gnn.pyg.forward.samples import Samples
from freshet.gnn.pyg.kinds.by_type import TypedSamples
from freshet.gnn.pyg.kinds.convs.typed import reads_all_numbers
from freshet.gnn.pyg.kinds.looking_up import check_embedding, is_embedding
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import KindsOperations
from freshet.gnn.pyg.steps import written_class


class LookingReader(EncodingReader):
    """A reader of a forward with kinds that knows rows which are looked up."""

    _ops: KindsOperations

    def __init__(
        self,
        ops: KindsOperations,
        graph: Any,
        root: Module,
        given: ModuleInputs,
        kinds: Metadata,
        ids: Mapping[str, Sequence[Any]] | None = None,
        *,
        asked: Asked,
    ) -> None:
        """Take the graph, the module that it is of, its inputs' nodes, and which kinds and relations there are.

        `ids`: those of kinds whose features may be such.
        """
        self._typed, self._both_ways = given.types is not None, asked.both_ways
        mirrors = kinds.mirrors if asked.both_ways else ()
        kind_of = ops.kind.__getitem__ if len(kinds.names) > 1 else None
        samples = (
            TypedSamples(given, len(kinds.relations), kind_of)
            if self._typed
            else Samples(given, mirrors=mirrors, kind_of=kind_of)
        )
        super().__init__(ops, graph, given, root, "", ops.inputs, lambda label: None, samples, asked=asked)
        self._kinds, self._ids, self._edge_width = kinds, ids or {}, asked.edge_features or None

    def _looked_up(self, node: Any) -> str | None:
        """Note rows that are looked up by ids: by an Embedding, its function, or as table[ids]; None for others."""
        op, args = self._submodule(node), [*node.args, *node.kwargs.values()]
        if op is not None and is_embedding(op):
            check_embedding(self._place(node), op)
            ids, table = args[0], op.weight
        elif label_of(node) == "embedding" and len(args) > 1 and self._is_table(args[1]):
            ids, table = args[0], self._constants[args[1]]
        elif label_of(node) == "getitem" and self._is_table(args[0]):
            ids, table = args[1], self._constants[args[0]]
        else:
            return None
        ids = ids if isinstance(ids, Node) else None  # else a slice, say
        kind = self._samples.relation_of("ids", ids)
        if kind is None and self._rows.get(ids) in self._ops.inputs:
            kind = self._ops.kind[self._rows[ids]]
            self._ops.ids.add(kind)
        if kind is None and self._samples.is_of_types(ids):
            msg = f"{self._place(node)} looks up rows by the types of edges, which is not supported. Nearest: put them "
            raise ExportError(
                msg + "into the stream as attributes of edges, or RGCNConv, which has a matrix for each type"
            )
        if kind is None:
            msg = f"{self._place(node)} looks up rows by something other than the ids of vertices as they came: "
            raise ExportError(msg + "give it x of a kind without features, or node_id_dict[kind]")
        return self._ops.learned(self._name(node), kind, table)

    def _is_table(self, node: Any) -> bool:
        value = self._constants.get(node) if hasattr(node, "all_input_nodes") else None
        return getattr(value, "ndim", 0) == 2

    def _is_constant(self, node: Any) -> bool:
        """Return whether the node depends on parameters alone, and is not the rows of all vertices of a kind."""
        known = super()._is_constant(node)
        if not known or node.op != "get_attr" or not self._is_table(node):
            return known
        kind = self._kind_of_table(node)
        if kind is not None:
            self._ops.whole.add(kind)
            self._rows[node] = self._ops.learned(self._name(node), kind, self._constants.pop(node))
        return True

    def _kind_of_table(self, node: Any) -> int | None:
        """The kind whose rows a conv reads of a table, by way of what reads nothing else; None where none does."""
        waiting = [node]
        while waiting:
            one = waiting.pop()
            for user in one.users:
                if (kind := self._kind_read(user, one)) is not None:
                    return kind
                waiting += [user] if list(user.all_input_nodes) == [one] and user.op != "output" else []
        return None

    def _kind_read(self, user: Any, rows: Any) -> int | None:
        op = self._submodule(user)
        if op is None or (not isinstance(op, MessagePassing) and written_class(op) is None):
            return None
        given: list[Any] = [*user.args, *user.kwargs.values()]
        x, others = given[0], given[1:]
        if isinstance(x, dict):
            return next((self._kinds.names.index(kind) for kind, one in x.items() if one is rows), None)
        if self._typed:
            return 0
        place = 1 if isinstance(x, tuple | list) and x[0] is not rows else 0
        relations = [j for one in others if (j := self._samples.relation_of("edges", one)) is not None]
        return self._kinds.ends(relations[0])[place] if relations else None

    def _are_numbers(self, x: Any, op: Any) -> bool:
        """Return whether a conv is called with the numbers of vertices: of all, as None or arange, or as ids."""
        node = x if hasattr(x, "all_input_nodes") else None
        constant: Any = self._constants.get(node)
        is_listed = getattr(constant, "ndim", 0) == 1
        every = x is None or (is_listed and constant.tolist() == list(range(op.in_channels_l)))
        given = self._ids.get(self._kinds.names[0], ())
        features = self._rows.get(node) == self._ops.inputs[0] and len(given) == op.in_channels_l
        if features:
            self._ops.ids.add(0)
        known = every or features or self._samples.relation_of("ids", node) == 0
        if every or (known and reads_all_numbers(op)):
            self._ops.whole.add(0)
        return known
