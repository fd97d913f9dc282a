"""Modules that call a conv as a test of PyG's calls it: a part of pyg_tests.py."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import nn
from torch_geometric import nn as pyg

BETWEEN = ("a", "to", "b")


class _On(nn.Module):
    """A conv that is called as a test calls it, with constants among its arguments; `two`: with first rows, too.

    shape: that of the row of a vertex, where it has several dimensions.
    """

    def __init__(self, conv: nn.Module, more: dict[str, Any], *, two: bool, shape: Any) -> None:
        super().__init__()
        self.conv, self.more, self.two, self.shape = conv, more, two, shape

    def called(self, x: Any, *edges: Any, **options: Any) -> Any:
        """Return what the conv gives."""
        x = x if self.shape is None else x.view(-1, *self.shape)
        return self.conv(x, *([x] if self.two else []), *edges, **options, **self.more)


class _Plain(_On):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.called(x, edge_index)


class _Weighted(_On):
    def forward(self, x: Any, edge_index: Any, edge_weight: Any) -> Any:
        return self.called(x, edge_index, edge_weight)


class _Attributed(_On):
    def forward(self, x: Any, edge_index: Any, edge_attr: Any) -> Any:
        return self.called(x, edge_index, edge_attr=edge_attr)


class _Typed(_On):
    def forward(self, x: Any, edge_index: Any, edge_type: Any) -> Any:
        return self.called(x, edge_index, edge_type=edge_type)


class _TypedAttributed(_On):
    def forward(self, x: Any, edge_index: Any, edge_type: Any, edge_attr: Any) -> Any:
        return self.called(x, edge_index, edge_type=edge_type, edge_attr=edge_attr)


class _Signed(_On):
    def forward(self, x: Any, pos_edge_index: Any, neg_edge_index: Any) -> Any:
        return self.conv(x, pos_edge_index, neg_edge_index)


class _WithPositions(_On):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv(x[:, 3:], x[:, :3], edge_index)


class _WithNormals(_On):
    def forward(self, x: Any, edge_index: Any) -> Any:
        return self.conv(x[:, 6:], x[:, :3], x[:, 3:6], edge_index)


class OfDicts(nn.Module):
    """A HeteroConv that is called with further rows by kind: each argument is columns of the rows, or all edges."""

    def __init__(self, conv: nn.Module, args: list[slice | None], options: dict[str, slice]) -> None:
        super().__init__()
        self.conv, self.args, self.options = conv, args, options

    def called(self, x_dict: Any, edge_index_dict: Any, **edges: Any) -> Any:
        """Return what the conv gives."""
        given = [edge_index_dict if at is None else {kind: x[:, at] for kind, x in x_dict.items()} for at in self.args]
        named = {name: {kind: x[:, at] for kind, x in x_dict.items()} for name, at in self.options.items()}
        return self.conv(*given, **named, **edges)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        """Return what the conv gives."""
        return self.called(x_dict, edge_index_dict)


class OfDictsWeighted(OfDicts):
    """The same with edge weights."""

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any) -> Any:  # type: ignore[override]
        """Return what the conv gives."""
        return self.called(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)


class FlatRows(nn.Module):
    """A HeteroConv that keeps the rows of relations apart, which here are side by side in one row of a vertex."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Any:
        """Return what the conv gives, flat."""
        made = self.conv(x_dict, edge_index_dict, edge_attr_dict)
        return {kind: rows.flatten(1) for kind, rows in made.items()}


class Related(nn.Module):
    """A HeteroConv of one relation, between two kinds if nothing else is said."""

    def __init__(self, conv: nn.Module, relation: tuple[str, str, str] = BETWEEN) -> None:
        """Take the conv and its relation."""
        super().__init__()
        self.conv = pyg.HeteroConv({relation: conv})

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        """Return what the conv gives."""
        return self.conv(x_dict, edge_index_dict)


class _RelatedWeighted(Related):
    def forward(self, x_dict: Any, edge_index_dict: Any, edge_weight_dict: Any) -> Any:  # type: ignore[override]
        return self.conv(x_dict, edge_index_dict, edge_weight_dict=edge_weight_dict)


class RelatedAttributed(Related):
    """The same with attributes of edges."""

    def forward(self, x_dict: Any, edge_index_dict: Any, edge_attr_dict: Any) -> Any:  # type: ignore[override]
        """Return what the conv gives."""
        return self.conv(x_dict, edge_index_dict, edge_attr_dict=edge_attr_dict)


IN = (("vertex", "in", "hyperedge"), ("hyperedge", "rev_in", "vertex"))


class OfHyperedges(nn.Module):
    """A HypergraphConv, whose hyperedges are vertices of a second kind; `read`: of which it reads weights or more."""

    def __init__(self, conv: nn.Module, read: Collection[str]) -> None:
        super().__init__()
        self.conv, self.read = conv, read

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        """Return what the conv gives."""
        rows = {"hyperedge_weight": x_dict["hyperedge"][:, 0], "hyperedge_attr": x_dict["hyperedge"][:, 1:]}
        return self.conv(x_dict["vertex"], edge_index_dict[IN[0]], **{name: rows[name] for name in self.read})


class _RelatedWithPositions(nn.Module):
    """A conv between two kinds that is called with pairs of rows and of positions."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
        (a, b), edges = (x_dict["a"], x_dict["b"]), edge_index_dict[BETWEEN]
        return self.conv((a[:, 3:], b[:, 3:]), (a[:, :3], b[:, :3]), edges)


class _RelatedTyped(nn.Module):
    """A conv between two kinds that is called with types of edges."""

    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv = conv

    def forward(self, x_dict: Any, edge_index: Any, edge_type: Any) -> Any:
        return self.conv((x_dict["a"], x_dict["b"]), edge_index, edge_type)


PLAIN: dict[tuple[str, ...], Any] = {
    (): _Plain,
    ("edge_weight",): _Weighted,
    ("edge_attr",): _Attributed,
    ("edge_type",): _Typed,
    ("edge_attr", "edge_type"): _TypedAttributed,
    ("pos_edge_index", "neg_edge_index"): _Signed,
    ("pos",): _WithPositions,
    ("pos", "normal"): _WithNormals,
}
RELATED: dict[tuple[str, ...], Any] = {
    (): Related,
    ("edge_weight",): _RelatedWeighted,
    ("edge_attr",): RelatedAttributed,
    ("edge_type",): _RelatedTyped,
    ("pos",): _RelatedWithPositions,
}
