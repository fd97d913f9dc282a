"""Results of a forward's operations on edges, weights and shapes, tried on a graph of numbers.

`edge_attr.view(-1)`, `edge_index.to(x.device)` and `h[:x.size(0)]` move values about, whatever these are. So they are
run on a graph whose values are all different: what comes out as it went in does so for every graph.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.parameters import STANDARD, ModuleInputs, Shapes
from freshet.gnn.pyg.forward.places import label_of, nodes_in, place_of

# Primes that no forward has as a number of its own.
_VERTICES, _EDGES, _CHANNELS, _PER_EDGE = 1009, 4003, 11, 13
_TYPES_FROM = 1 << 23  # no multiple of _EDGES, at which what relations have begins
_PRIMES = [one for one in range(_VERTICES, _EDGES) if all(one % divisor for divisor in range(2, 64))]
"""Numbers of vertices of the kinds."""
_INTEGERS = (torch.int64, torch.int32)
_CASTS: dict[str, torch.dtype | None] = {
    **{"float": torch.float32, "long": torch.int64, "int": torch.int32},
    **dict.fromkeys(("to", "type", "type_as", "cpu", "cuda")),
}
_MOVES = {
    *("contiguous", "clone", "detach", "requires_grad_", "view", "view_as", "reshape", "reshape_as", "flatten"),
    *("ravel", "squeeze", "unsqueeze", "t", "transpose", "permute", "select", "narrow", "getitem", "unbind", "stack"),
    *("flip", "size", "numel", "dim", "new_ones"),
}
_SAID_OF_ALL = {"device", "dtype", "ndim", "is_cuda", "layout"}
_ATTRIBUTES = {"shape", "T", "mT", "data", *_SAID_OF_ALL}
_SAID_OF_ROWS = {"shape", *_SAID_OF_ALL}
_LIKE_ANOTHER = {"to", "type_as", "view_as", "reshape_as"}
_OF_ROWS = {"size", "numel", "dim"}
_ROWS_KEPT = {"getitem", "view", "view_as", "reshape", "reshape_as", "flatten", "squeeze", "narrow"}


def vertices_of(kind: int) -> str:
    """Return what the number of the vertices of a kind is called."""
    return f"vertices_{kind}"


class Samples:
    """Values of the nodes of a traced forward that come from edges, weights and shapes alone."""

    def __init__(
        self,
        given: ModuleInputs,
        shapes: Shapes = STANDARD,
        mirrors: Sequence[int | None] = (),
        kind_of: Callable[[str], int] | None = None,
    ) -> None:
        """Take the nodes of the inputs; with types of edges, the edges are those of all relations together.

        Each relation has other numbers, so that none stands for another, and each kind another number of vertices;
        `mirrors`: the number of the relation whose edges it has the other way round, where there is one. `kind_of`: of
        rows by name, where there are several kinds.
        """
        self._kind_of = kind_of
        per_edge = 1 if shapes.flat else _PER_EDGE
        edges, weights = torch.arange(2 * _EDGES).view(2, _EDGES), torch.arange(_EDGES).float()
        attributes = _EDGES + torch.arange(_EDGES * per_edge).view(_EDGES, per_edge).float()
        self._every: dict[str, list[torch.Tensor]] = {
            "edges": [edges + j * edges.numel() for j in range(len(given.edges))],
            "weights": [weights + j * _EDGES for j in range(len(given.weights))],
            "attributes": [attributes + j * attributes.numel() for j in range(len(given.attributes))],
            "ids": [-1 - torch.arange(_EDGES) - j * _EDGES for j in range(len(given.ids))],
        }
        for j, of in enumerate(mirrors):
            if of is not None:
                self._every["edges"][j] = self._every["edges"][of].flip(0)
        self._types = torch.arange(_EDGES) + _TYPES_FROM
        self._values: dict[Any, Any] = {} if given.types is None else {given.types: self._types}
        self._values |= zip(given.edges, self._every["edges"], strict=True)
        self._values |= zip(given.ids, self._every["ids"], strict=True)
        for j, nodes in enumerate(zip(given.weights, given.attributes, strict=True)):
            shaped = shapes.of(self._every["weights"][j], self._every["attributes"][j])
            self._values |= zip(nodes, shaped, strict=True)

    def __contains__(self, node: Any) -> bool:
        """Return whether the node's value is known."""
        return node in self._values

    def relation_of(self, what: str, node: Any) -> int | None:
        """Return the relation whose unchanged edges, weights or attributes (`what`) a node is; None for none.

        Of `ids` the kind whose vertices have these.
        """
        value = self._values.get(node)
        if not isinstance(value, torch.Tensor) or value.is_floating_point() == (what in ("edges", "ids")):
            return None
        return next((j for j, one in enumerate(self._every[what]) if torch.equal(value.to(one.dtype), one)), None)

    def what_of(self, node: Any) -> str | None:
        """Return whether a node is the unchanged edges, weights or attributes of a relation; None for others."""
        return next(
            (what for what in ("edges", "weights", "attributes") if self.relation_of(what, node) is not None), None
        )

    def is_edges(self, node: Any) -> bool:
        """Return whether a node is the unchanged edges of a relation."""
        return self.relation_of("edges", node) is not None

    def index_of(self, node: Any) -> int | None:
        """Return which ends of all edges of the one relation a node is, 0 for sources; None for anything else."""
        value, edges = self._values.get(node), self._every["edges"][:1]
        if not isinstance(value, torch.Tensor) or value.is_floating_point() or not edges:
            return None
        return next((end for end in (0, 1) if torch.equal(value, edges[0][end])), None)

    def is_first(self, node: Any) -> bool:
        """Return whether a node is all edges of the one relation as they came."""
        value, edges = self._values.get(node), self._every["edges"][0]
        return isinstance(value, torch.Tensor) and value.dtype == edges.dtype and torch.equal(value, edges)

    def is_turned(self, node: Any) -> bool:
        """Return whether a node is all edges of the one relation, the other way round."""
        value, edges = self._values.get(node), self._every["edges"][0]
        return isinstance(value, torch.Tensor) and value.dtype == edges.dtype and torch.equal(value, edges.flip(0))

    def is_weights(self, node: Any) -> bool:
        """Return whether a node is the unchanged edge weights of a relation, in one dimension."""
        return self.relation_of("weights", node) is not None

    def is_attributes(self, node: Any) -> bool:
        """Return whether a node is the unchanged attributes of the edges of a relation, in two dimensions."""
        return self.relation_of("attributes", node) is not None

    def is_types(self, node: Any) -> bool:
        """Return whether a node is the unchanged types of edges."""
        value = self._values.get(node)
        return isinstance(value, torch.Tensor) and torch.equal(value, self._types)

    def end_of(self, node: Any) -> tuple[int, int] | None:
        """Return the relation of whose edges a node is one end, and which; None where that is read as it stands."""
        return None

    def is_of_all(self, node: Any) -> bool:
        """Return whether a node is edges, or what these have, of several types at once; False without types."""
        return False

    def is_of_types(self, node: Any) -> bool:
        """Return whether a node is a function of the types of edges alone; False without types."""
        return False

    def is_tensor(self, node: Any) -> bool:
        """Return whether a node is edges or what these have, moved about or not."""
        return isinstance(self._values.get(node), torch.Tensor)

    def is_of_floats(self, node: Any) -> bool:
        """Return whether a node is weights or attributes of edges, moved about or not."""
        value = self._values.get(node)
        return isinstance(value, torch.Tensor) and value.is_floating_point()

    def dims_of(self, node: Any) -> int:
        """Return how many dimensions the value of a node has; 0 for a number."""
        return int(getattr(self._values[node], "ndim", 0))

    def is_size(self, node: Any) -> bool:
        """Return whether a node is a size of the graph, or several."""
        return isinstance(self._values.get(node), int | tuple)

    def is_number(self, node: Any) -> bool:
        """Return whether a node is a size of the graph."""
        return isinstance(self._values.get(node), int)

    def size_of(self, node: Any) -> str | None:
        """Return of what a node is the number, `vertices` or `edges`; None for anything else.

        With several kinds `vertices_0` and so on, those of each.
        """
        value = self._values.get(node)
        if type(value) is int and value in _PRIMES and self._kind_of is not None:
            return vertices_of(_PRIMES.index(value))
        return {_VERTICES: "vertices", _EDGES: "edges"}.get(value) if type(value) is int else None

    def described(self, nodes: list[Any]) -> str:
        """Say what nodes that a module is called with are, and what it could be called with."""
        kept = self.is_edges, self.is_weights, self.is_attributes
        changed = [one for one in nodes if not any(is_kept(one) for is_kept in kept)]
        values = [self._values[one] for one in changed]
        shown = [
            f"{one.name} of shape {tuple(v.shape)}"
            for one, v in zip(changed, values, strict=True)
            if hasattr(v, "shape")
        ]
        what = ", ".join(shown).replace(str(_EDGES * _PER_EDGE), "edges * width").replace(str(_PER_EDGE), "width")
        what = what.replace(str(_EDGES), "edges").replace(str(_VERTICES), "vertices")
        expected = "edge_index (2, edges), weights (edges,) and attributes (edges, width) as they came"
        return f"{what or 'edges'}, expected {expected}"

    def same(self, node: Any, source: Any) -> None:
        """Note that a node gives what another one gives."""
        self._values[node] = self._values[source]

    def take(self, node: Any, rows: Mapping[Any, str], constants: dict[Any, Any]) -> bool:
        """Note the value of a node that only moves edges, weights and shapes about; False for any other node.

        What it says of rows apart from their number, such as their device, becomes a constant.
        Raises: ExportError where weights or ids would be rounded.
        """
        label, read = label_of(node), list(nodes_in((node.args, node.kwargs)))
        if node.op == "call_module" or not read:
            return False
        attribute = node.args[1] if label == "getattr" else None
        of_rows = read == list(node.args[:1]) and read[0] in rows and (label in _OF_ROWS or attribute in _SAID_OF_ROWS)
        of_edges = read[0] in self and (label in _LIKE_ANOTHER or not any(one in rows for one in read))
        given = SampleArguments(node, self._values, rows, constants)
        if not (of_rows or of_edges) or not given.are_known or not self._is_move(given, label):
            return False
        if label == "dim" or attribute in _SAID_OF_ALL:
            constants[node] = self._run(given, label)
            return True
        try:
            self._values[node] = self._run(given, label)
        except ExportError:
            raise
        except (RuntimeError, IndexError, TypeError, ValueError, AttributeError):
            return False
        return True

    def keeps_rows(self, node: Any, rows: Mapping[Any, str], constants: Mapping[Any, Any]) -> bool:
        """Return whether a node returns its first rows unchanged, such as `h[:None]` or `h[:x.size(0)]`."""
        label = label_of(node)
        given = SampleArguments(node, self._values, rows, constants)
        if label not in _ROWS_KEPT or not given.are_known or not self._is_move(given, label):
            return False
        if node.args[0] not in rows:
            return False
        sample = self._rows_of(rows[node.args[0]])
        if label == "getitem" and not self._takes_all(sample, node.args[1]):
            return False
        try:
            made = self._run(given, label)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return False
        return isinstance(made, torch.Tensor) and torch.equal(made, sample)

    def _rows_of(self, name: str) -> torch.Tensor:
        """Return the sample of rows of that name."""
        many = _VERTICES if self._kind_of is None else _PRIMES[self._kind_of(name)]
        return torch.arange(many * _CHANNELS).view(many, _CHANNELS).float()

    def _is_move(self, given: SampleArguments, label: str) -> bool:
        if label == "getattr":
            return given.node.args[1] in _ATTRIBUTES
        if label == "getitem":
            value, index = self._values.get(given.node.args[0]), given.node.args[1]
            if isinstance(value, tuple) and isinstance(index, slice):  # some of the sizes of a shape
                return not list(nodes_in(index))
            return self._keeps_its_place(index) and (value is None or self._takes_all(value, index))
        if label == "mul":  # 2 * x.shape[:1]
            values = [self._values.get(one, one) for one in given.node.args]
            return any(isinstance(one, tuple) for one in values) and any(type(one) is int for one in given.node.args)
        if label == "narrow":
            return self.is_number(given.node.kwargs.get("length", given.node.args[-1]))
        if label == "sub":  # as trim_to_layer does
            return self.is_number(given.node.args[0]) and given.node.args[1:] == (0,)
        return label in _MOVES or label in _CASTS or (label == "dropout" and _does_nothing(given))

    def _keeps_its_place(self, index: Any) -> bool:
        """Return whether an index is one place, or all places: `[:100]` fits only some graphs."""
        if isinstance(index, tuple):
            return all(self._keeps_its_place(one) for one in index)
        if isinstance(index, slice):
            return index.start in (None, 0) and index.step in (None, 1) and (index.stop is None or index.stop in self)
        if isinstance(index, bool):
            return False
        if isinstance(index, list):
            return all(type(one) is int for one in index)
        value = self._values.get(index) if hasattr(index, "all_input_nodes") else index
        if isinstance(value, torch.Tensor):  # the mask of dropout_edge at inference
            return value.dtype == torch.bool and bool(value.all())
        return index is None or index is Ellipsis or isinstance(value, int)

    def _takes_all(self, value: Any, index: Any) -> bool:
        """Return whether slices up to a size of the graph are up to that of what they slice, at the same place."""
        places = index if isinstance(index, tuple) else (index,)
        if not isinstance(value, torch.Tensor) or any(one is None or one is Ellipsis for one in places):
            return not any(isinstance(one, slice) and one.stop is not None for one in places)
        ends = ((one.stop, n) for one, n in zip(places, value.shape, strict=False) if isinstance(one, slice))
        known = ((self._values.get(end), n) for end, n in ends if end is not None)
        return all(end is None or (isinstance(end, int) and end == n) for end, n in known)

    def _run(self, given: SampleArguments, label: str) -> Any:
        args, options = given.values(self._rows_of)
        if label in _CASTS:
            return self._cast(given.node, label, [*args, *options.values()])
        if given.node.op == "call_method":
            return getattr(args[0], given.node.target)(*args[1:], **options)
        return given.node.target(*args, **options)

    def _cast(self, node: Any, label: str, given: list[Any]) -> torch.Tensor | int:
        """Have a value on a device, which is this one here, and in a type that holds all there may be."""
        value = given[0]
        if isinstance(value, int):  # Data.to leaves numbers as they are
            return value
        kinds = [one.dtype if isinstance(one, torch.Tensor) else one for one in given[1:]]
        kinds = [getattr(one, "dtype", one) for one in kinds] + [_CASTS[label]]
        kinds = [torch.float32 if one is torch.FloatTensor else one for one in kinds]
        kinds = [torch.int64 if one is torch.LongTensor else one for one in kinds]
        kind = next((one for one in kinds if isinstance(one, torch.dtype)), None)
        if kind is None and label == "type":  # the name of a type, or one that is none of these
            raise TypeError
        kind = kind or value.dtype
        allowed = (torch.float32,) if value.is_floating_point() else (*_INTEGERS, torch.bool)
        if kind not in allowed:
            what = "edge weights" if value.is_floating_point() else "edges"
            refuse(f"{place_of(node, '')}: {what} become {kind}, expected {' or '.join(map(str, allowed[:2]))}")
        return value.to(kind)


class SampleArguments(NamedTuple):
    """Arguments of an operation: from edges and shapes, from rows, and independent of the graph."""

    node: Any
    samples: Mapping[Any, Any]
    rows: Mapping[Any, str]
    constants: Mapping[Any, Any]

    @property
    def are_known(self) -> bool:
        """Return whether all that it reads is one of these."""
        return all(
            one in self.samples or one in self.rows or one in self.constants for one in self.node.all_input_nodes
        )

    def values(self, rows_of: Callable[[str], torch.Tensor]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments and options, rows of a name as it says."""

        def value(node: Any) -> Any:
            if node in self.rows:
                return rows_of(self.rows[node])
            return self.samples[node] if node in self.samples else self.constants[node]

        args, options = torch.fx.node.map_arg((self.node.args, self.node.kwargs), value)
        return list(args), dict(options)


def _does_nothing(given: SampleArguments) -> bool:
    """Return whether dropout of weights drops nothing."""
    function: Callable[..., Any] = given.node.target
    try:
        bound = inspect.signature(function).bind(*given.node.args, **given.node.kwargs)
    except (TypeError, ValueError):
        return False
    bound.apply_defaults()
    return bound.arguments.get("training") is False or bound.arguments.get("p") in (0, 0.0)
