"""Types of edges as columns of their attributes: of a module that looks rows up by them, without relations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Embedding, Module

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.running import clone_of
from freshet.gnn.pyg.steps import RowsFunction, Traced


@torch.library.custom_op("freshet::types_of", mutates_args=())
def types_of(edge_attr: Tensor, many: int) -> Tensor:
    """Return the types of edges, (edges,) int64, whose first `many` attributes are 1 for their type and 0 else."""
    return edge_attr[:, :many].argmax(dim=1)


class TypeColumns(NamedTuple):
    """The parameter of a forward that takes the types of edges, and the names of these.

    of_embedding: whether they are as many as an embedding of the module has rows.
    """

    parameter: str
    names: tuple[str, ...]
    of_embedding: bool = False

    @property
    def many(self) -> int:
        """Number of types."""
        return len(self.names)

    def of(self, edge_attr: Any) -> tuple[Any, Any]:
        """Return the types of edges, and their other attributes; of tensors or of what stands for these."""
        return torch.ops.freshet.types_of(edge_attr, self.many), edge_attr[:, self.many :]

    def width(self, module: Module, traced: Traced, edge_features: int | None, rows: int | None) -> int:
        """Return the width of attributes with the columns of types; `edge_features`: without, where that is given.

        `rows`: the width of the features, where that is known.

        Raises: ExportError where nothing says it, or how many types there are.
        """
        ops = [step.op.module if isinstance(step.op, RowsFunction) else step.op for step in traced.steps]
        parts = [part for op in ops if isinstance(op, Module) for part in op.modules()]
        if self.of_embedding and not any(isinstance(part, Embedding) for part in parts):
            refuse(_HOW_MANY.format(self.parameter))
        if traced.types or edge_features is not None:
            return traced.types or self.many + (edge_features or 0)
        clone = clone_of(module)
        fits = [one for one in range(1, _MOST_WIDTHS) if rows is not None and self._runs(clone, traced, rows, one)]
        if len(fits) != 1:
            msg = f"{self.parameter} beside other attributes of edges, whose width nothing says: give edge_features=N"
            raise ExportError(msg)
        return self.many + fits[0]

    def _runs(self, module: Module, traced: Traced, rows: int, width: int) -> bool:
        """Return whether a module runs on a small graph whose edges have other attributes of that width."""
        edges, attr = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.zeros(3, self.many + width)
        try:
            with torch.no_grad():
                traced.run(module, torch.randn(3, rows), edges, torch.ones(3), attr)
        except Exception:  # whatever it is, this is not the width
            return False
        return True


def type_columns(module: Module, parameter: str, edge_types: Sequence[str] | None) -> TypeColumns:
    """Return how a module reads types; without `edge_types` these are the numbers of rows of its one embedding.

    Raises: ExportError where it has none, or several of different sizes.
    """
    if edge_types:
        return TypeColumns(parameter, tuple(edge_types))
    sizes = {one.num_embeddings for one in module.modules() if isinstance(one, Embedding)}
    if len(sizes) != 1:
        refuse(_HOW_MANY.format(parameter))
    return TypeColumns(parameter, tuple(map(str, range(sizes.pop()))), of_embedding=True)


_MOST_WIDTHS = 513
_HOW_MANY = "nothing in it says how many types {} has (an embedding looked up by them does): say edge_types=[...]"
