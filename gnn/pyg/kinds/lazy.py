"""Modules whose sizes the first rows say (in_channels=-1), sized by a run on a small graph with kinds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from freshet.gnn.pyg.errors import ExportError
from freshet.gnn.pyg.kinds.calling import ModuleCall, ModuleInputs
from freshet.gnn.pyg.kinds.metadata import Metadata

if TYPE_CHECKING:
    from torch.nn import Module


def initialised(module: Module, call: ModuleCall, kinds: Metadata, features: Mapping[str, int]) -> Module:
    """Return the module with all sizes known; it is a copy already.

    Raises: ExportError where the width of a kind's features is needed and not given.
    """
    import torch

    lazy = [name for name, one in module.named_parameters() if torch.nn.parameter.is_lazy(one)]
    if not lazy:
        return module
    missing = [name for name in kinds.names if name not in features]
    if missing:
        msg = (
            f"{lazy[0]}: its size is not known yet (in_channels=-1); run the module once before exporting it, or give "
            f"the widths of the features of all kinds: features={{{missing[0]!r}: N, ...}}"
        )
        raise ExportError(msg)
    edges = torch.zeros((2, 1), dtype=torch.int64)
    rows = [torch.zeros((2, features[name])) for name in kinds.names]
    many = 1 if call.types is not None else len(kinds.relations)
    given = ModuleInputs(
        rows,
        [edges] * many,
        [torch.ones(1)] * many,
        [torch.zeros((1, _edge_dim(module)))] * many,
        None if call.types is None else torch.zeros(1, dtype=torch.int64),
    )
    try:
        with torch.no_grad():
            call(module, kinds, given)
    except Exception as error:
        msg = f"the module fails on a small graph, which is to size it ({type(error).__name__}: {error})"
        raise ExportError(msg) from error
    return module


def _edge_dim(module: Any) -> int:
    """The width of attributes that convs say; those of several widths have sizes of their own by then."""
    return next((one.edge_dim for one in module.modules() if isinstance(getattr(one, "edge_dim", None), int)), 1)
