"""Parts of the edges that a forward picks by their types, tried on a graph of numbers: each is a relation."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.parameters import ModuleInputs
from freshet.gnn.pyg.forward.places import label_of, place_of
from freshet.gnn.pyg.forward.samples import SampleArguments, Samples

MOST_PICKED = 40
"""Types by which a forward may pick edges by hand: with more, two types or sums of them may have as many samples."""
_SEED = 52
_OF_TYPES = {
    *("eq", "ne", "lt", "le", "gt", "ge", "and_", "or_", "xor", "invert", "isin", "nonzero", "where"),
    *("add", "sub", "mod", "remainder", "floordiv"),
    *("logical_and", "logical_or", "logical_xor", "logical_not"),
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not"),
}


class TypedSamples(Samples):
    """Values of the nodes of a forward that is called with the types of edges.

    A function of types alone is a mask, or the places where it holds: the edges there, and what these have, are of a
    relation where they are all those of one type.
    """

    def __init__(self, given: ModuleInputs, relations: int, kind_of: Callable[[str], int] | None = None) -> None:
        """Take the nodes of the inputs, and the number of types; `kind_of`: see Samples."""
        super().__init__(given, kind_of=kind_of)
        self._whole = {what: self._every[what][0] for what in ("edges", "weights", "attributes")}
        self._of_types = {given.types}
        self._every |= {what: [] for what in self._whole}
        if relations > MOST_PICKED:
            self._of_types.clear()
            return
        counts = _counts(relations, len(self._types))
        order = torch.randperm(len(self._types), generator=torch.Generator().manual_seed(_SEED))
        self._types = torch.arange(relations).repeat_interleave(torch.tensor(counts))[order]
        self._values[given.types] = self._types
        for what, whole in self._whole.items():
            of_types = (self._types == j for j in range(relations))
            self._every[what] = [whole[:, one] if what == "edges" else whole[one] for one in of_types]

    def is_edges(self, node: Any) -> bool:
        """Return whether a node is the unchanged edges of all types."""
        return self._is_whole("edges", node)

    def is_weights(self, node: Any) -> bool:
        """Return whether a node is the unchanged weights of the edges of all types."""
        return self._is_whole("weights", node)

    def is_attributes(self, node: Any) -> bool:
        """Return whether a node is the unchanged attributes of the edges of all types."""
        return self._is_whole("attributes", node)

    def is_of_all(self, node: Any) -> bool:
        """Return whether a node is edges, or what these have, of several types."""
        picked = any(self.relation_of(what, node) is not None for what in self._whole)
        return not picked and self.is_tensor(node) and node not in self._of_types

    def is_of_types(self, node: Any) -> bool:
        """Return whether a node is a function of the types of edges alone."""
        return node in self._of_types

    def end_of(self, node: Any) -> tuple[int, int] | None:
        """Return the relation of whose edges a node is the sources (0) or targets (1), and which; None for others."""
        value = self._values.get(node)
        ends = ((j, i) for j in range(len(self._every["edges"])) for i in (0, 1))
        if not isinstance(value, torch.Tensor):
            return None
        return next((at for at in ends if torch.equal(value, self._every["edges"][at[0]][at[1]])), None)

    def size_of(self, node: Any) -> str | None:
        """Return of what a node is the number, `vertices` or `edges` of one type; None for anything else."""
        value = self._values.get(node)
        if type(value) is int and any(value == len(one) for one in self._every["weights"]):
            return "edges"
        return super().size_of(node) if super().size_of(node) == "vertices" else None

    def take(self, node: Any, rows: Mapping[Any, str], constants: dict[Any, Any]) -> bool:
        """Note the value of a node that moves edges and what these have about, or picks some by their types."""
        taken = super().take(node, rows, constants)
        if taken and node.all_input_nodes[0] in self._of_types and self._is_of_all_types(node):
            self._of_types.add(node)
        return taken

    def _is_of_all_types(self, node: Any) -> bool:
        """Return whether a node that reads a function of types is one, too: for all edges, or the places of some."""
        value, source = self._values[node], self._values[node.all_input_nodes[0]]
        if isinstance(value, torch.Size) or not isinstance(value, torch.Tensor | tuple):
            return False
        if isinstance(source, tuple) or label_of(node) in _OF_TYPES:
            return True
        return isinstance(value, torch.Tensor) and value.numel() == source.numel()  # not the type of one edge

    def _is_whole(self, what: str, node: Any) -> bool:
        value, whole = self._values.get(node), self._whole[what]
        return isinstance(value, torch.Tensor) and value.shape == whole.shape and torch.equal(value.to(whole), whole)

    def _is_move(self, given: SampleArguments, label: str) -> bool:
        read = given.node.all_input_nodes
        if label in ("index_select", "masked_select"):
            return len(read) > 1 and all(one in self._of_types for one in read[1:])
        if label not in _OF_TYPES or read[0] not in self._of_types:
            return super()._is_move(given, label)
        return all(one in self._of_types or one in given.constants for one in read)

    def _cast(self, node: Any, label: str, given: list[Any]) -> torch.Tensor | int:
        try:
            return super()._cast(node, label, given)
        except ExportError as error:
            if node.all_input_nodes[0] not in self._of_types:
                raise
            msg = (
                f"{place_of(node, '')}: types of edges become numbers of a message. Nearest: a conv for each type, on "
            )
            raise ExportError(
                msg + "edge_index[:, edge_type == 0], and their sum, or edge_attr in the stream"
            ) from error

    def _keeps_its_place(self, index: Any) -> bool:
        of_types = hasattr(index, "all_input_nodes") and index in self._of_types
        return of_types or super()._keeps_its_place(index)


def picked_in_front(node: Any, made: Sequence[Any], given: Collection[Any]) -> list[Any]:
    """Have a function of what all edges have, of which `node` picks some, be that function of what these have.

    `made`: the operations of the function, in order; the last one gives what `node` picks of. `given`: what they read
    of edges. Returns the operations that stand in front of `node` now, which is the last one of the function.
    """
    place = node.args[1][0] if isinstance(node.args[1], tuple) else node.args[1]
    copies, graph = dict[Any, Any](), node.graph
    with graph.inserting_before(node):
        for one in given:
            copies[one] = graph.call_function(operator.getitem, (one, place))
            copies[one].meta |= node.meta
        for one in made[:-1]:
            copies[one] = graph.node_copy(one, lambda read: copies.get(read, read))
    last = made[-1]
    node.op, node.target = last.op, last.target
    args, options = torch.fx.node.map_arg((last.args, dict(last.kwargs)), lambda read: copies.get(read, read))
    node.args, node.kwargs = args, options
    return list(copies.values())


def _counts(relations: int, edges: int) -> list[int]:
    """Return how many samples each type has: no two as many, nor one as many as two others together."""
    counts = [(edges - relations * (relations - 1) // 2) // relations + j for j in range(relations)]
    return [*counts[:-1], edges - sum(counts[:-1])]
