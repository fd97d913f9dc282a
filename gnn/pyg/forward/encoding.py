"""Reads functions of weights and attributes of edges that stand in front of the convs of a forward."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch.nn import Module
from torch_geometric.nn import DeepGCNLayer, MessagePassing

from freshet.gnn.pyg.encoded_conv import VERTICES, FunctionOfEdges
from freshet.gnn.pyg.errors import OUT_EDGES, RECORDED, ExportError, refuse
from freshet.gnn.pyg.forward.again import Encoding
from freshet.gnn.pyg.forward.asked import Asked
from freshet.gnn.pyg.forward.edge_functions import EDGES_FIRST, OPERATIONS
from freshet.gnn.pyg.forward.opening import opened
from freshet.gnn.pyg.forward.places import is_size, label_of
from freshet.gnn.pyg.forward.recorded import RecordingReader, is_of_rows
from freshet.gnn.pyg.steps import RowsFunction, written_class

BROUGHT_TOGETHER = {
    *("scatter", "scatter_add", "scatter_reduce", "index_add", "index_reduce", "degree", "bincount"),
}
"""Operations that make rows of vertices of those of edges."""
_DIMS = {"unsqueeze": 1, "unflatten": 1} | dict.fromkeys(("sum", "mean", "squeeze", "select", "flatten"), -1)
"""How many dimensions operations add."""
_SHAPED, _MADE = ("view", "reshape", "new_zeros", "new_ones", "new_full"), ("zeros", "ones", "full", "empty")
TAKEN_BY_INDEX = {"getitem", "index_select", "gather"}


class EncodingReader(RecordingReader):
    """A reader whose convs may be handed functions of what edges have, if it records."""

    def __init__(self, *given: Any, asked: Asked) -> None:
        """Take what a reader takes, and what is asked for."""
        super().__init__(*given, asked=asked)
        self._of_edges = set[Any]()
        self._mixed = set[Any]()  # functions of rows and edges that are no rows yet
        self._sizes = set[str]()  # those that functions read

    def _read(self, node: Any) -> None:
        if self._recorded and self._reads_sizes(node):
            for one in node.all_input_nodes:
                self._settle_size(one)
        if self._recorded and self._encodes(node):
            self._of_edges.add(node)
            if not self._is_function(node, node.all_input_nodes):  # one of sizes alone is of rows as well
                return
        if self._recorded and self._mixes(node):
            self._mixed.add(node)
            return
        try:
            super()._read(node)
        except ExportError as error:
            raise error.of(error.about or (RECORDED if self._is_encoded(node) else "")) from error.__cause__

    def _settle(self, node: Any) -> None:
        if node in self._mixed:
            self._mixed.discard(node)
            self._rows[node] = self._function_of_edges(node)
        elif node not in self._of_edges:
            super()._settle(node)

    def _mixes(self, node: Any) -> bool:
        """Return whether an operation reads rows of one layer and edges, or functions of both, beside constants."""
        read = node.all_input_nodes
        known = (self._rows, self._waiting, self._mixed, self._of_edges, self._samples, self._constants)
        if not all(any(one in of for of in known) for one in read):
            return False
        mixed = [one for one in read if one in self._mixed]
        rows = any(one in self._rows or one in self._waiting for one in read)
        edges = any(
            (one in self._of_edges and one not in self._waiting) or self._samples.is_tensor(one) for one in read
        )
        if not mixed and not (rows and edges):
            return False
        op = self._submodule(node)
        is_conv = any(map(self._is_along, mixed)) and _is_conv(op) and "turned" not in node.meta
        if op is not None and not is_conv and not (is_of_rows(op) and self._opens(self._name(node)) is None):
            return False
        for one in read:  # so that layers of rows before it say how wide these are
            if not mixed or self._is_beside(one):
                self._settle_flat(one)
        if self._is_one_function(read) or self._takes_numbers_back(node, mixed):
            return True
        for one in mixed:
            self._settle(one)
        return bool(mixed) and self._mixes(node)

    def _takes_numbers_back(self, node: Any, mixed: Sequence[Any]) -> bool:
        """Return whether an operation has at edges what functions of rows and edges give as one number of each end.

        As rows these would be columns, which the forward does not have them for.
        """
        return label_of(node) in TAKEN_BY_INDEX and len(mixed) == 1 and self._dims(mixed[0]) == 1

    def _settle_flat(self, node: Any) -> None:
        """Have a function of rows be rows; of one that has a matrix for each vertex, as by heads, what it reads."""
        if node not in self._waiting or self._dims(node) <= 2:
            self._settle(node)
            return
        for one in node.all_input_nodes:
            if one in self._waiting:
                self._settle_flat(one)

    def _reads_sizes(self, node: Any) -> bool:
        """Return whether an operation reads edges or what these have, beside numbers of rows of functions that wait."""
        sizes = [one for one in node.all_input_nodes if one in self._waiting and is_size(one)]
        others = [one for one in node.all_input_nodes if one not in sizes]
        known = (self._of_edges, self._samples, self._constants)
        return bool(sizes and others) and all(any(one in of for of in known) for one in others)

    def _settle_size(self, node: Any) -> None:
        """Have a number of rows be a size of the graph, where these rows are a function that waits."""
        if node not in self._waiting or not is_size(node):
            return
        (of,) = node.all_input_nodes
        (self._settle_size if is_size(of) else self._settle)(of)
        if self._samples.take(node, self._rows, self._constants):
            del self._waiting[node]

    def _dims(self, node: Any) -> int:
        """Return how many dimensions something has, as far as the operations say that make it."""
        if node in self._rows:
            return 2
        if not hasattr(node, "all_input_nodes") or node in self._constants:
            return int(getattr(self._constants.get(node) if hasattr(node, "op") else None, "ndim", 0))
        if node in self._samples:
            return self._samples.dims_of(node)
        label, given = label_of(node).split(" ")[0].strip("_"), [*node.args, *node.kwargs.values()]
        if label in ("degree", "bincount"):
            return 1
        if label in _SHAPED and node.op == "call_method":
            return len(given[1]) if isinstance(given[1], tuple | list) else len(given) - 1
        if label in _MADE:
            return len(given[0]) if isinstance(given[0], tuple | list) else len(node.args)
        of = [self._dims(one) for one in node.all_input_nodes]
        first = self._dims(given[0]) if label in (*BROUGHT_TOGETHER, *TAKEN_BY_INDEX, "softmax") else max(of, default=0)
        if label == "getitem" and isinstance(given[1], tuple):
            return first + sum((one is None) - (type(one) is int) for one in given[1])
        return first + _DIMS.get(label, 0) * (not node.kwargs.get("keepdim"))

    def _is_beside(self, node: Any) -> bool:
        """Return whether a function of rows is to be rows of its own beside functions of rows and edges."""
        return False

    def _is_one_function(self, read: Sequence[Any]) -> bool:
        """Return whether an operation that reads these is a function of rows, and of edges.

        One of rows of several layers has rows of edges among what it reads, which no rows of vertices are.
        """
        names = {name for one in read for name in self._read_rows(one)}
        return (len(names) == 1 and not self._goes_both_ways(read)) or self._are_along(read)

    def _goes_both_ways(self, read: Sequence[Any]) -> bool:
        """Return whether functions of rows and edges among these bring rows together at sources, and at targets."""
        made = [self._brought_to(one) for one in read if one in self._mixed and not self._is_along(one)]
        return any(one == {0} for one in made) and any(one != {0} for one in made)

    def _are_along(self, read: Sequence[Any]) -> bool:
        """Return whether functions of rows and edges among these have a row for each edge, or a matrix for each row."""
        return any(self._is_along(one) or self._dims(one) > 2 for one in read if one in self._mixed)

    def _is_along(self, node: Any) -> bool:
        """Return whether a node has a row or number for each edge, as far as its operations say."""
        if node in self._rows or node in self._constants or self._samples.size_of(node) is not None:
            return False
        label, read = label_of(node).split(" ")[0].strip("_"), node.all_input_nodes
        if label in BROUGHT_TOGETHER or _is_conv(self._submodule(node)):
            return False
        if label in TAKEN_BY_INDEX and len(read) > 1:
            return any(self._samples.is_tensor(one) or self._is_along(one) for one in read[1:])
        return self._samples.is_tensor(node) or any(map(self._is_along, read))

    def _read_rows(self, node: Any) -> set[str]:
        """Return the names of the rows that something is made of."""
        found, seen, waiting = set[str](), set[Any](), [node]
        while waiting:
            one = waiting.pop()
            if one in self._rows:
                found.add(self._rows[one])
            elif one not in seen and one not in self._constants and self._samples.size_of(one) is None:
                waiting += one.all_input_nodes
            seen.add(one)
        return found

    def _brought_to(self, node: Any) -> set[int]:
        """Return the ends at which a function of rows and edges brings rows of edges together: 0 for sources.

        Those at which it counts edges, or sums what these have, are what matters where it brings no rows together.
        """
        found, counted, seen = set[int](), set[int](), set[Any]()
        waiting: list[tuple[Any, bool | None]] = [(node, None)]
        while waiting:
            one, brought = waiting.pop()
            if (one, brought) in seen or one in self._rows or one in self._constants:
                continue
            seen.add((one, brought))
            end = None if brought is None else self._end_of(one)
            if end is not None:
                (found if brought else counted).add(end)
                continue
            if _is_conv(self._submodule(one)):
                found.add(1)
            label = label_of(one).split(" ")[0].strip("_")
            if label in BROUGHT_TOGETHER or one.target in OPERATIONS:
                brought = bool(self._read_rows(one))
            elif label in TAKEN_BY_INDEX:
                brought = None
            waiting += [(other, brought) for other in one.all_input_nodes]
        return found or counted

    def _end_of(self, node: Any) -> int | None:
        """Return which ends of edges a node is, 0 for sources, with those of added self-loops or not."""
        if (end := self._samples.index_of(node)) is not None:
            return end
        if label_of(node) != "getitem" or node.args[1] not in (0, 1) or not hasattr(node.args[0], "args"):
            return None
        ends = self._both_ends(node.args[0])
        return None if ends is None else ends[node.args[1]]

    def _both_ends(self, node: Any) -> tuple[int, int] | None:
        """Return the ends that the rows of what is made of edges are; None for anything else."""
        if not hasattr(node, "all_input_nodes"):
            return None
        if node in self._samples:
            return (1, 0) if self._samples.is_turned(node) else (0, 1) if self._samples.is_first(node) else None
        label = label_of(node)
        if label == "getitem" and node.args[1] == 0 and getattr(node.args[0], "target", None) in EDGES_FIRST:
            return self._both_ends(node.args[0].args[0]) if node.args[0].args else None
        if label == "stack" and isinstance(node.args[0], tuple | list) and len(node.args[0]) == 2:
            one, other = map(self._end_of, node.args[0])
            return (one, other) if one is not None and other is not None else None
        if label == "flip" and node.args[1] in (0, (0,), [0]):
            ends = self._both_ends(node.args[0])
            return None if ends is None else ends[::-1]
        return None

    def _function_of_edges(self, node: Any) -> str:
        """Note a function of rows and edges; returns the name of its rows.

        Raises: ExportError for one that reads other inputs, or along the edges the other way round.
        """
        if self._brought_to(node) == {0}:
            msg = f"{self._place(node)} brings edges together by their sources"
            raise ExportError(msg).of(OUT_EDGES)
        reads, names = dict[str, int](), sorted(self._read_rows(node))

        def given(one: Any) -> str | None:
            if one not in self._rows:
                return self._given_of_edges(node, one, reads)
            return f"rows{names.index(self._rows[one])}"

        function = self._again(node, given)
        if function is None:
            raise ExportError(self._reads_other(node))
        step = Encoding({}, {}, {}, set(reads)).step(self._name(node), None)
        made = FunctionOfEdges(function)
        if len(names) == 1:
            return self._ops.add(names[0], step._replace(op=made))
        assert step.given is not None  # by Encoding
        call = step.given._replace(rows="rows0", parameters=tuple(f"rows{i}" for i in range(len(names))))
        return self._ops.called(step._replace(op=RowsFunction(made, tuple(names)), given=call), names)

    def _encodes(self, node: Any) -> bool:
        """Return whether an operation reads edges, what these have, sizes, functions of these, and constants alone."""
        self._settle_type(node)
        read = node.all_input_nodes
        known = (self._of_edges, self._samples, self._constants)
        if not read or not all(any(one in of for of in known) for one in read):
            return False
        if all(one in self._constants for one in read) or self._samples.take(node, self._rows, self._constants):
            return False
        op = self._submodule(node)
        return op is None or not (any(isinstance(one, MessagePassing) for one in op.modules()) or written_class(op))

    def _settle_type(self, node: Any) -> None:
        """Have a function of edges that `.to(x)` or `.type_as(x)` makes as rows are be of their type."""
        first, *rows = node.all_input_nodes or [None]
        if node.target in ("to", "type_as") and first in self._of_edges and rows and rows[0] in self._rows:
            node.target, node.args, node.kwargs = "to", (first, torch.float32), {}

    def _is_encoded(self, node: Any) -> bool:
        """Return whether an operation reads functions of what edges have, or these in another shape."""
        return any(one in self._of_edges or self._is_reshaped(one) for one in node.all_input_nodes)

    def _is_reshaped(self, node: Any) -> bool:
        """Return whether a node is weights or attributes of edges in another shape than they came in."""
        return self._recorded and self._samples.is_of_floats(node) and self._samples.what_of(node) is None

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
        if self._both_ends(edges) == (1, 0):
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
            elif (value in self._of_edges or self._is_reshaped(value)) and parameter != "size":
                encoding.encoders[parameter] = self._encoder(value, reads)
            elif (what := self._what_of_edges(value)) is not None:
                encoding.handed[parameter] = what[0]
                reads |= [what]
            else:
                raise ExportError(self._reads_other(node))
            encoding.reads.update(reads)
            found.update(reads.values())
        self._refuse_several(node, found)
        return encoding._replace(sizes=self._sizes_of(node, relation)), relation

    def _sizes_of(self, node: Any, relation: int) -> tuple[str, str]:
        """Return what the numbers of the sources and targets of a relation are called; without kinds they are one.

        Raises: ExportError where functions read other numbers of vertices, `_sizes`.
        """
        return VERTICES

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
            return self._given_of_edges(node, one, reads)

        function = self._again(node, given)
        if function is None:
            refuse(f"{self._place(node)} reads the weights or attributes of edges in another shape than they have")
        return function

    def _given_of_edges(self, node: Any, one: Any, reads: dict[str, int]) -> str | None:
        """Return the name under which functions of edges are given something, which goes into `reads`."""
        if (size := self._samples.size_of(one)) is not None:
            self._sizes.add(size)
            return size
        if (end := self._samples.end_of(one)) is not None:
            return self._noted(node, ("edge_index", end[0]), reads) and f"end_{end[1]}"
        relation = self._samples.relation_of("edges", one)
        what = self._what_of_edges(one) if relation is None else ("edge_index", relation)
        return None if what is None else self._noted(node, what, reads)

    def _noted(self, node: Any, what: tuple[str, int], reads: dict[str, int]) -> str:
        """Note that a function reads what edges of a relation have; returns what that is called.

        Raises: ExportError where it reads the same of those of another one.
        """
        if reads.setdefault(*what) != what[1]:
            self._refuse_several(node, {reads[what[0]], what[1]})
        return what[0]


def _is_conv(op: Any) -> bool:
    """Return whether a part is a conv that is read as it runs."""
    return isinstance(op, MessagePassing) and not written_class(op)
