"""What torch_sparse's SparseTensor does, as far as convs and models use it; it is no library of Freshet.

`stand_in` has it imported as torch_sparse where that is not installed, before PyTorch Geometric is.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch


class SparseTensor:
    """A matrix of entries in the order of their rows."""

    def __init__(
        self,
        row: Any = None,
        rowptr: Any = None,
        col: Any = None,
        value: Any = None,
        sparse_sizes: Any = None,
        is_sorted: bool = False,
        trust_data: bool = False,
    ):
        """Take the row and column of each entry, and values."""
        self.sizes = sparse_sizes or (int(row.max()) + 1, int(col.max()) + 1)
        order = (row * max(self.sizes[1], 1) + col).argsort(stable=True)
        self.row, self.col = row[order], col[order]
        self.value = None if value is None else value[order]

    @classmethod
    def from_edge_index(cls, edge_index: Any, edge_attr: Any = None, sparse_sizes: Any = None) -> Any:
        """Return the matrix whose rows are sources."""
        return cls(edge_index[0], None, edge_index[1], edge_attr, sparse_sizes)

    def t(self) -> Any:
        """Return the transposed matrix."""
        return SparseTensor(self.col, None, self.row, self.value, self.sizes[::-1])

    def coo(self) -> tuple[Any, Any, Any]:
        """Return rows, columns and values."""
        return self.row, self.col, self.value

    def csr(self) -> tuple[Any, Any, Any]:
        """Return where rows begin, columns and values."""
        counts = torch.bincount(self.row, minlength=self.sizes[0])
        return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), self.col, self.value

    def to_torch_sparse_csr_tensor(self, dtype: Any = None) -> Any:
        """Return torch's matrix."""
        begin, col, value = self.csr()
        return torch.sparse_csr_tensor(begin, col, torch.ones(len(col)) if value is None else value, self.sizes)

    def size(self, dim: int) -> int:
        """Return the number of rows or columns."""
        return int(self.sizes[dim])

    sparse_size = size

    def sparse_sizes(self) -> Any:
        """Return the numbers of rows and columns."""
        return self.sizes

    def nnz(self) -> int:
        """Return the number of entries."""
        return len(self.row)

    def has_value(self) -> bool:
        """Return whether entries have values."""
        return self.value is not None

    def set_value(self, value: Any, layout: Any = None) -> Any:
        """Return it with other values."""
        return SparseTensor(self.row, None, self.col, value, self.sizes)

    def fill_value(self, fill: float, dtype: Any = None) -> Any:
        """Return it with one value for all."""
        return self.set_value(torch.full((len(self.row),), fill, dtype=dtype))

    def is_cuda(self) -> bool:
        """Return False."""
        return False

    requires_grad = is_cuda

    def to(self, *_: Any, **__: Any) -> Any:
        """Return itself."""
        return self

    def __matmul__(self, x: Any) -> Any:
        """Return its product with rows."""
        return matmul(self, x)

    def __rmul__(self, scale: Any) -> Any:
        """Return its product with a number for each row, or for each column."""
        return mul(self, scale)

    __mul__ = __rmul__


class SparseStorage:
    """Has nothing."""


def _values(adj: Any, like: Any = None) -> Any:
    dtype = torch.get_default_dtype() if like is None else like.dtype
    return torch.ones(len(adj.row), dtype=dtype) if adj.value is None else adj.value.to(dtype)


def matmul(adj: Any, x: Any, reduce: str = "sum") -> Any:
    """Return the sum or mean of the rows of its columns, times the values."""
    made = x.new_zeros(adj.sizes[0], x.size(1)).index_add(0, adj.row, _values(adj, x).view(-1, 1) * x[adj.col])
    return (
        made if reduce in ("sum", "add") else made / torch.bincount(adj.row, minlength=len(made)).clamp(1).view(-1, 1)
    )


def mul(adj: Any, scale: Any) -> Any:
    """Return its product with a number for each row, or for each column."""
    index = (adj.row if scale.size(1) == 1 else adj.col) if scale.numel() > 1 else 0 * adj.row
    numbers = scale.view(-1)[index]
    return adj.set_value(numbers if adj.value is None else numbers * adj.value)


def sum(adj: Any, dim: int) -> Any:
    """Return the sums of the values of columns, or of rows."""
    values = _values(adj)
    return values.new_zeros(adj.sizes[1 - dim]).index_add(0, (adj.col, adj.row)[dim], values)


def fill_diag(adj: Any, fill: float) -> Any:
    """Return it with one number on the diagonal."""
    stays, loops = adj.row != adj.col, torch.arange(adj.sizes[0])
    row, col = torch.cat([adj.row[stays], loops]), torch.cat([adj.col[stays], loops])
    value = None if adj.value is None else torch.cat([adj.value[stays], adj.value.new_full((len(loops),), fill)])
    return SparseTensor(row, None, col, value, adj.sizes)


PARTS = (SparseTensor, SparseStorage, matmul, mul, sum, fill_diag)
for one in PARTS:
    one.__module__ = "torch_sparse"


def stand_in() -> None:
    """Have these imported as torch_sparse, unless that is installed."""
    if importlib.util.find_spec("torch_sparse") is None:
        made = ModuleType("torch_sparse")
        made.__spec__ = ModuleSpec("torch_sparse", None)
        vars(made).update({one.__name__: one for one in PARTS})
        sys.modules["torch_sparse"] = made
