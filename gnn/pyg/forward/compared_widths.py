"""Comparisons of widths of rows in a traced forward, as `h + x if h.size(-1) == x.size(-1) else h`.

The layers and operations that make rows give their width. The width of an input is that of the first layer reading it.
"""

from __future__ import annotations

import operator
from typing import Any

from torch.nn import Linear, Module, Sequential

from freshet.gnn.pyg.forward.dims import KEPT, LAYERS, TOGETHER, known_dims
from freshet.gnn.pyg.forward.edge_counts import is_shape
from freshet.gnn.pyg.forward.places import label_of

_OUTCOMES = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_LINEAR = {"Linear", "GRUCell", "MLP", "Bilinear", "JumpingKnowledge"}
"""Layers whose rows have another width than those that they are given first."""
_KEEPING = LAYERS - _LINEAR
_CONVS = {
    *("GCNConv", "SAGEConv", "GraphConv", "TAGConv", "SGConv", "ChebConv", "LEConv", "ResGatedGraphConv", "ARMAConv"),
    *("GENConv", "ClusterGCNConv", "RGCNConv", "FastRGCNConv", "FiLMConv", "NNConv", "GMMConv"),
}
_OF_HEADS = {"GATConv", "GATv2Conv", "TransformerConv"}
_OF_NETWORKS = {"GINConv", "GINEConv", "EdgeConv"}
_REDUCED = {"sum", "mean", "max", "min", "amax", "amin", "prod"}


def compared_widths(node: Any, root: Module) -> bool | None:
    """Return the outcome of a comparison of widths, or of shapes of rows; None for any other one.

    Shapes are taken to have as many rows. `root`: the module that is traced.
    """
    if node.target not in _OUTCOMES or len(node.args) != 2:
        return None
    asked = [_asked(one) for one in node.args]
    if asked[0] is not None and asked[0] == asked[1]:  # of one tensor
        return bool(node.target(0, 0))
    widths = _Widths(root)
    one, other = (widths.compared(*pair) for pair in zip(node.args, asked, strict=True))
    return None if one is None or other is None else bool(node.target(one, other))


def _asked(one: Any) -> tuple[Any, Any] | None:
    """Return of which tensor a node is a size, and of which dimension, None for its shape; None for another node."""
    label = label_of(one) if hasattr(one, "all_input_nodes") else ""
    if label == "size" and len(one.args) == 2:
        return one.args[0], one.args[1]
    if label == "getitem" and is_shape(one.args[0]):
        return one.args[0].args[0], one.args[1]
    return (one.args[0], None) if is_shape(one) else None


class _Widths:
    """The widths of rows, by node."""

    def __init__(self, root: Module) -> None:
        self._root = root
        self._known: dict[Any, int | None] = {}

    def compared(self, one: Any, asked: tuple[Any, Any] | None) -> int | None:
        """Return a number, the width that a node is, or that of the rows whose shape it is."""
        if type(one) is int or asked is None:
            return one if type(one) is int else None
        of, place = asked
        return self.of(of) if place in (1, -1, None) and known_dims(of, self._root) == 2 else None

    def of(self, node: Any) -> int | None:
        """Return how many numbers the last dimension of a tensor has; None where that is not known."""
        if not hasattr(node, "all_input_nodes"):
            return 1 if isinstance(node, int | float) else None
        if node not in self._known:
            self._known[node] = self._made(node)
        return self._known[node]

    def _made(self, node: Any) -> int | None:
        if node.op == "placeholder":
            return next((one for user in node.users if (one := self._read(user, node)) is not None), None)
        if node.op == "call_module":
            return self._behind(node, self._root.get_submodule(node.target))
        if node.op == "get_attr" or not node.args:
            return None
        label, first = label_of(node).split(" ")[0].strip("_"), node.args[0]
        if label in TOGETHER:
            found = [self.of(one) for one in node.args]
            return None if None in found else max(one for one in found if one is not None)
        if label == "cat":
            return self._side_by_side(node)
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        if label in (*_REDUCED, "stack") and dim in (0, 1):
            dims = known_dims(first[0] if isinstance(first, tuple | list) else first, self._root)
            before = dims if label == "stack" else 3 if label_of(first) == "stack" else dims
            return self._first(first) if before == (2 if label == "stack" else 3) else None
        if label == "getitem" and node.args[1] == 0 and label_of(first) in ("max", "min"):
            return self.of(first)
        return self._first(first) if label in KEPT else None

    def _first(self, given: Any) -> int | None:
        return self.of(given[0] if isinstance(given, tuple | list) and given else given)

    def _side_by_side(self, node: Any) -> int | None:
        dim, parts = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0), node.args[0]
        if dim not in (1, -1) or not isinstance(parts, tuple | list):
            return None
        found = [self.of(one) if known_dims(one, self._root) == 2 else None for one in parts]
        return None if None in found else sum(one for one in found if one is not None)

    def _behind(self, node: Any, part: Module) -> int | None:
        """Return the width of what a layer or conv makes."""
        name = type(part).__name__
        if not type(part).__module__.startswith(("torch.nn.", "torch_geometric.nn.")):
            return None
        if name in _OF_NETWORKS:
            return self._behind(node, part.nn) if type(part.nn) in (Linear, Sequential) else None
        if type(part) is Sequential:
            made = [one.out_features for one in part if type(one) is Linear]
            known = all(type(one) is Linear or type(one).__name__ in _KEEPING for one in part)
            return made[-1] if made and known else None
        if name == "Linear" or name in _CONVS:
            width = getattr(part, "out_features", None) or getattr(part, "out_channels", None)
        elif name in _OF_HEADS:
            width = part.out_channels * (part.heads if part.concat else 1)
        else:
            return self._first(node.args[0]) if name in _KEEPING and node.args else None
        return width if isinstance(width, int) and width > 0 else None

    def _read(self, user: Any, node: Any) -> int | None:
        """Return the width of the rows that a layer reads first, where it is handed these as they came."""
        if user.op != "call_module" or not user.args:
            return None
        part, first = self._root.get_submodule(user.target), user.args[0]
        if not type(part).__module__.startswith(("torch.nn.", "torch_geometric.nn.")):
            return None
        part = part[0] if type(part) is Sequential and len(part) else part
        width = getattr(part, "in_features", None) or getattr(part, "in_channels", None)
        if isinstance(first, tuple | list) and node in first:
            width = width[list(first).index(node)] if isinstance(width, tuple) else width
        elif first is not node:
            return None
        return width if type(width) is int and width > 0 else None
