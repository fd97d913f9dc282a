"""Attributes of edges that number categories: of a module that looks rows up by them, without kinds."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Embedding, Module

from freshet.edge_categories import MOST_CATEGORIES
from freshet.gnn.pyg.errors import UNREAD, ExportError
from freshet.gnn.pyg.running import clone_of
from freshet.gnn.pyg.steps import ATTRIBUTE_NAMES, Traced


@torch.library.custom_op("freshet::categories_of", mutates_args=())
def categories_of(edge_attr: Tensor, whole: bool) -> Tensor:
    """Return attributes of edges as a forward gets them; `whole`: as int64, since all of them number categories."""
    return edge_attr.round().long() if whole else edge_attr.clone()


class EdgeCategories(NamedTuple):
    """Form in which a forward gets attributes that number categories: whole: as int64; flat: as (edges,)."""

    whole: bool
    flat: bool

    def of(self, edge_attr: Any) -> Any:
        """Return attributes of edges in this form; of a tensor or of what stands for one."""
        made = torch.ops.freshet.categories_of(edge_attr, self.whole)
        return made.view(-1) if self.flat else made

    def counts(self, module: Module, traced: Traced, edge_features: int | None, rows: int | None) -> tuple[int, ...]:
        """Return how many categories each attribute numbers, 0 where it is any number: with which a module runs.

        `edge_features`: how wide they are, where that is given; `rows`: the width of the features, where it is known.

        Raises: ExportError where there are none, or several widths will do.
        """
        widths = [1] if self.flat else range(1, _MOST_WIDTHS) if edge_features is None else [edge_features]
        run, fits = _Trial(clone_of(module), traced, 0), list[int]()
        for one in _rows_of(module) if rows is None else [rows]:
            run = _Trial(clone_of(module), traced, one)
            if fits := [width for width in widths if run.takes([0] * width)]:
                break
        if not fits:
            raise ExportError("it runs with no attributes of edges").of(UNREAD)
        if len(fits) > 1:
            msg = f"attributes of edges may be {' or '.join(map(str, fits[:3]))} wide: give edge_features=N"
            raise ExportError(msg)
        found = [run.count(place, fits[0]) for place in range(fits[0])]
        if not any(found) or (self.whole and not all(found)):
            msg = f"some or all attributes of edges number none of up to {MOST_CATEGORIES:,} categories"
            raise ExportError(msg).of(UNREAD)
        if not run.takes([max(0, one - 1) for one in found]):
            msg = f"attributes of edges are looked up together, and each by itself is read. {LOOKED_UP}"
            raise ExportError(msg)
        return tuple(found)


def _rows_of(module: Module) -> list[int]:
    """Return widths that features may have, as parts of a module say them."""
    said = [getattr(part, name, 0) for part in module.modules() for name in ("in_features", "in_channels")]
    return [one for one in dict.fromkeys(said) if isinstance(one, int) and one > 0]


class _Trial:
    """A module that is run on a small graph."""

    def __init__(self, module: Module, traced: Traced, rows: int) -> None:
        self._module, self._traced = module, traced
        self._rows, self._edges = torch.randn(_EDGES, rows), torch.arange(_EDGES).repeat(2, 1)
        self._edges[1] = self._edges[1].roll(1)

    def takes(self, attributes: Sequence[int]) -> bool:
        """Return whether it runs with these attributes of an edge."""
        attr = torch.zeros(_EDGES, len(attributes))
        attr[0] = torch.tensor(attributes)
        try:
            with torch.no_grad():
                self._traced.run(self._module, self._rows, self._edges, torch.ones(_EDGES), attr)
        except Exception:  # whatever it is, these are not the attributes
            return False
        return True

    def count(self, place: int, width: int) -> int:
        """Return the first whole number that it does not take as the attribute of a place, 0 where it takes all."""

        def takes(number: int) -> bool:
            return self.takes([number if one == place else 0 for one in range(width)])

        low, high = 0, 1  # taken; perhaps not
        while takes(high):
            low, high = high, 2 * high
            if high > 2 * MOST_CATEGORIES:
                return 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if takes(middle) else (low, middle)
        return high if high <= MOST_CATEGORIES else 0


def ways_of_categories(module: Module, method: str) -> list[EdgeCategories]:
    """Return the forms in which a forward may get attributes that number categories; none where it looks nothing up."""
    function = getattr(module, method, None)
    named = {*inspect.signature(function).parameters} if callable(function) else set()
    parts = list(module.modules())
    own = [part.forward for part in parts if not type(part).__module__.startswith(("torch.", "torch_geometric."))]
    codes = [getattr(inspect.unwrap(one), "__code__", None) for one in (*own, function) if callable(one)]
    looks = any(isinstance(part, Embedding) for part in parts)
    looks |= any(code is not None and _LOOKING & {*code.co_names} for code in codes)
    if not looks or not (named & {*ATTRIBUTE_NAMES, *_DATA}):
        return []
    return [EdgeCategories(whole, flat) for flat in (False, True) for whole in (False, True)]


LOOKED_UP = (
    "Attributes of edges that number categories are read as they came, as in self.emb(edge_attr[:, 0].long()). "
    "Nearest: that; columns of 0 and 1 in the stream; or types of edges, as in self.emb(edge_type)"
)
"""The end of a refusal: which lookups by attributes are supported, and an alternative."""
_LOOKING = {"long", "one_hot", "int64"}
_DATA = ("data", "batch", "graph", "g")
_MOST_WIDTHS = 65
_EDGES = 67  # more than any width, which a shape is then not taken for
