"""Matrices of edges that a traced forward makes: of torch's sparse tensors and of torch_sparse, products with rows.

A product is noted as what it computes, rows of the ends of edges that are brought together at the other ends.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, NoReturn, Self

import torch
from torch.nn import Module
from torch_geometric import utils

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.forward.edge_functions import EdgesByMethods, function_of_edges, homes_of
from freshet.gnn.pyg.forward.places import place_here

_TAKEN = "Nearest: products with rows, as adj @ x"
_KEEPING = {
    *("to", "cuda", "cpu", "float", "double", "type", "type_as", "detach", "clone", "requires_grad_", "contiguous"),
}
_PRODUCTS = ("mm", "matmul", "smm", "spmm", "_sparse_mm")
_OF_COO = ("indices", "values", "size")
_OF_UTILITIES = ("edge_index", "edge_attr", "size", "is_coalesced")
_UTILITIES = ("to_torch_coo_tensor", "to_torch_csr_tensor", "to_torch_csc_tensor")
_REDUCED = {"sum": "sum", "add": "sum", "mean": "mean", "min": "min", "max": "max"}


class EdgeMatrix(EdgesByMethods):
    """A sparse matrix whose entries are edges: (row, col) of each, and a value or 1."""

    is_sparse, is_cuda, layout = True, False, torch.sparse_coo
    joins = False
    """True if several edges between two vertices are one entry, as after `coalesce`; then only sums are read."""

    def __init__(
        self,
        row: Any = None,
        rowptr: Any = None,
        col: Any = None,
        value: Any = None,
        sparse_sizes: Any = None,
        is_sorted: Any = False,
        trust_data: Any = False,
    ) -> None:
        """Take what torch_sparse's SparseTensor takes.

        Raises: ExportError without rows and columns, or without sizes.
        """
        if row is None or col is None:
            _refuse("a matrix of edges is made of other than the row and column of each. Nearest: row=, col=")
        if sparse_sizes is None:
            _refuse(
                "a matrix of edges without sizes has no row for a vertex behind the last one that has an edge. "
                "Nearest: sizes (x.size(0), x.size(0))"
            )
        self._row, self._col, self._value, self._sizes = row, col, value, (sparse_sizes[0], sparse_sizes[1])

    @classmethod
    def from_edge_index(cls, edge_index: Any, edge_attr: Any = None, sparse_sizes: Any = None, *_: Any) -> Self:
        """Return the matrix with a row for the first end of each edge, and a column for the second one."""
        return cls(edge_index[0], None, edge_index[1], edge_attr, sparse_sizes)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return what a function of torch makes of a matrix.

        Raises: ExportError for one that is not read.
        """
        name, options = getattr(func, "__name__", str(func)), kwargs or {}
        if name in _PRODUCTS and isinstance(args[0], EdgeMatrix):
            return args[0].matmul(*args[1:], **options)
        if name in ("sum", "_sparse_sum") and isinstance(args[0], EdgeMatrix):
            return args[0].sum(*args[1:], **options)
        if name in ("t", "transpose") and isinstance(args[0], EdgeMatrix):
            return args[0].t()
        _refuse(f"{name.strip('_')} of a matrix of edges is not read. {_TAKEN}")

    def __getattr__(self, name: str) -> Any:
        """Return a method that keeps a matrix as it is.

        Raises: ExportError for another one.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        if name in _KEEPING:
            return lambda *_, **__: self
        _refuse(f".{name} of a matrix of edges is not read. {_TAKEN}")

    def t(self) -> EdgeMatrix:
        """Return the matrix with rows for columns."""
        return self._made(self._col, self._row, self._value, self._sizes[::-1])

    T = property(t)

    def transpose(self, *_: int) -> EdgeMatrix:
        """Return the matrix with rows for columns: it has two dimensions."""
        return self.t()

    @property
    def shape(self) -> tuple[Any, Any]:
        """Numbers of rows and columns."""
        return self._sizes

    def size(self, dim: int | None = None) -> Any:
        """Return the number of rows or columns, or both."""
        return self._sizes if dim is None else self._sizes[dim]

    sparse_sizes, sparse_size = size, size

    def coalesce(self, *_: Any) -> Self:
        """Return the matrix, with several edges between two vertices as one entry."""
        self.joins = True
        return self

    def coo(self) -> tuple[Any, Any, Any]:
        """Return the row and column of each entry, and the values.

        Raises: ExportError where several edges are one entry.
        """
        if self.joins:
            _refuse(f"the entries of a matrix, in which several edges may be one, are not read. {_TAKEN}")
        return self._row, self._col, self._value

    def matmul(self, rows: Any, reduce: str = "sum") -> Any:
        """Return the sum of rows of columns, times the values, for each row; or another aggregate of them.

        Raises: ExportError for another matrix.
        """
        if isinstance(rows, EdgeMatrix) or reduce not in _REDUCED or (self.joins and _REDUCED[reduce] != "sum"):
            _refuse(f"a product of two matrices of edges, or by {reduce!r} of joined ones, is not read. {_TAKEN}")
        sent = rows.index_select(0, self._col)
        if self._value is not None:
            sent = self._value.view(-1, 1) * sent
        return function_of_edges("scatter")(sent, self._row, 0, self._sizes[0], _REDUCED[reduce])

    __matmul__, mm, spmm = matmul, matmul, matmul

    def __rmatmul__(self, rows: Any) -> NoReturn:
        """Refuse rows times a matrix, whose columns would be vertices."""
        _refuse(f"rows times a matrix of edges is not read. {_TAKEN}")

    def sum(self, dim: int | None = None) -> Any:
        """Return the sum of the values of each row (dim=1) or column.

        Raises: ExportError for the sum of all.
        """
        if dim is None:
            _refuse(f"the sum of all edges is not read. {_TAKEN}")
        index = self._col if dim in (0, -2) else self._row
        if self._value is None:
            return function_of_edges("degree")(index, self._sizes[0], torch.float32)
        return function_of_edges("scatter")(self._value, index, 0, self._sizes[0], "sum")

    def __mul__(self, other: Any) -> EdgeMatrix:
        """Return the matrix with its values times a number, or a number for each row, (rows, 1), or column.

        Raises: ExportError for anything else.
        """
        if isinstance(other, torch.fx.Proxy):
            index = {(-1, 1): self._row, (1, -1): self._col}.get(_viewed(other))
            if index is None:
                _refuse(f"a matrix of edges times something is read by .view(-1, 1) or .view(1, -1). {_TAKEN}")
            other = other.view(-1).index_select(0, index)
        elif not isinstance(other, int | float):
            _refuse(f"a matrix of edges times {type(other).__name__} is not read. {_TAKEN}")
        if self._value is None and isinstance(other, int | float):
            other = other * self._row.new_ones(self._row.size(0), dtype=torch.float32)
        value = other if self._value is None else self._value * other
        return self._made(self._row, self._col, value, self._sizes)

    __rmul__ = mul = __mul__

    def __truediv__(self, number: Any) -> EdgeMatrix:
        """Return the matrix with its values divided by a number."""
        return self * (1 / number)

    def __neg__(self) -> EdgeMatrix:
        """Return the matrix with the values of the other sign."""
        return self * -1

    def set_diag(self, values: Any = None) -> EdgeMatrix:
        """Return the matrix with ones, the only entries there then, on its diagonal.

        Raises: ExportError for other values.
        """
        if values is not None:
            _refuse(f"a diagonal of other values than ones is not read. {_TAKEN}")
        return self.fill_diag(1.0)

    def fill_diag(self, fill: float) -> EdgeMatrix:
        """Return the matrix with one number, the only entries there then, on its diagonal."""
        loops = {} if self._value is None else {"fill_value": float(fill)}
        edges, value = function_of_edges("remove_self_loops")(self.as_edges(), self._value)
        edges, value = function_of_edges("add_self_loops")(edges, value, num_nodes=self._sizes[0], **loops)
        return self._made(edges[1], edges[0], None if self._value is None else value, self._sizes)

    def gcn_norm(
        self,
        edge_weight: Any = None,
        num_nodes: Any = None,
        improved: bool = False,
        add_self_loops: bool = True,
        *_: Any,
        **__: Any,
    ) -> EdgeMatrix:
        """Return the matrix with its values divided by the roots of the sums of both ends' rows, as PyG does it.

        Raises: ExportError where several edges are one entry.
        """
        self.coo()
        adj = self
        if self._value is None and improved and add_self_loops:
            adj = self * 1.0
        if add_self_loops:
            adj = adj.fill_diag(2.0 if improved else 1.0)
        roots = adj.sum(1).pow(-0.5)
        roots = roots.masked_fill(roots == float("inf"), 0.0)
        return roots.view(-1, 1) * adj * roots.view(1, -1)

    def as_edges(self) -> Any:
        """Return edges along which a conv brings together what the matrix does."""
        return torch.stack([self._col, self._row])

    def _made(self, row: Any, col: Any, value: Any, sizes: Any) -> EdgeMatrix:
        made = EdgeMatrix(row, None, col, value, sizes)
        made.joins = self.joins
        return made


def _viewed(numbers: Any) -> Any:
    """Return the shape that a traced tensor was given; None where that is not known."""
    node = numbers.node
    return tuple(node.args[1:]) if node.op == "call_method" and node.target in ("view", "reshape") else None


def _refuse(reason: str) -> NoReturn:
    msg = f"{place_here()}: {reason}"
    raise ExportError(msg)


def _coo(made: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Return the matrix that torch makes of traced edges; of others what torch makes."""
    if not any(isinstance(one, torch.fx.Proxy) for one in (*args, *options.values())):
        return made(*args, **options)
    given = dict[str, Any](zip(_OF_COO, args, strict=False)) | options
    indices = given["indices"]
    return EdgeMatrix(indices[0], None, indices[1], given.get("values"), given.get("size")).coalesce()


def _of_edges(made: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that makes the matrix which one of PyG's utilities makes of traced edges."""

    def called(*args: Any, **options: Any) -> Any:
        given = dict[str, Any](zip(_OF_UTILITIES, args, strict=False)) | options
        edges, size = given["edge_index"], given.get("size")
        if not isinstance(edges, torch.fx.Proxy):
            return made(*args, **options)
        if given.get("edge_attr") is None and not given.get("is_coalesced"):
            _refuse(
                f"{made.__name__} without edge_attr makes one entry of 1 of several edges between two vertices. "
                "Nearest: edge_attr=torch.ones(edge_index.size(1)), which sums them"
            )
        sizes = size if size is None or isinstance(size, tuple | list) else (size, size)
        return EdgeMatrix(edges[0], None, edges[1], given.get("edge_attr"), sizes).coalesce()

    return called


def _maker(made: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **options: _coo(made, *args, **options)


def _method(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of torch_sparse that calls the method of a matrix of edges."""

    def called(*args: Any, **options: Any) -> Any:
        if not args or not isinstance(args[0], EdgeMatrix):
            return function(*args, **options)
        return getattr(args[0], name)(*args[1:], **options)

    return called


_METHODS = ("matmul", "mul", "sum", "t", "transpose", "fill_diag", "set_diag")


@contextmanager
def matrices_of_edges(module: Module) -> Iterator[None]:
    """Have torch, and torch_sparse under whatever name the code has it, make matrices of what is traced."""
    before = [(vars(torch), "sparse_coo_tensor", torch.sparse_coo_tensor)]
    before += [(vars(torch.sparse), name, getattr(torch.sparse, name)) for name in ("FloatTensor", "DoubleTensor")]
    stands = [_maker(one) for *_, one in before]
    of_pyg = {getattr(utils, name): _of_edges(getattr(utils, name)) for name in _UTILITIES}
    of_pyg[utils.spmm] = _method("spmm", utils.spmm)
    for home in (vars(utils), *homes_of(module)):
        for name, value in list(home.items()):
            if isinstance(value, FunctionType) and value in of_pyg:
                before.append((home, name, value))
                stands.append(of_pyg[value])
            if not str(getattr(value, "__module__", "")).startswith("torch_sparse"):
                continue
            known = getattr(value, "__name__", "")
            if known == "SparseTensor" or known in _METHODS:
                before.append((home, name, value))
                stands.append(EdgeMatrix if known == "SparseTensor" else _method(known, value))
    try:
        for (home, name, _), stand in zip(before, stands, strict=True):
            home[name] = stand
        yield
    finally:
        for home, name, value in before:
            home[name] = value


def with_edges(conv: Module, args: Any, options: Any) -> tuple[Any, Any]:
    """Return the arguments of a conv with edges, and weights where it takes some, in the place of a matrix.

    PyG's gcn_norm puts self-loops in the place of those that are on the diagonal of a matrix.

    Raises: ExportError for a matrix in which several edges may be one.
    """
    found = next((one for one in (*args, *options.values()) if isinstance(one, EdgeMatrix)), None)
    if found is None:
        return args, options
    signature = inspect.signature(conv.forward)
    given = signature.bind(*args, **options).arguments
    *_, values = found.coo()
    edges = found.as_edges()
    if "edge_weight" not in signature.parameters:
        values = None
    elif getattr(conv, "add_self_loops", False) is True and getattr(conv, "normalize", True):
        edges, values = function_of_edges("remove_self_loops")(edges, values)
    if values is not None:
        given["edge_weight"] = values
    return (), {name: edges if one is found else one for name, one in given.items()}
