"""The result of a module that is exported, and how its forward is read."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch.nn import Module

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.categories import EdgeCategories
from freshet.gnn.pyg.forward.type_columns import TypeColumns


class Asked(NamedTuple):
    """The exported result of a module: that of this method, and of several results the one of this place or name.

    edge_features: how wide attributes of edges are, where that is given, which convs that nobody calls then get if they
    may do without; else 0. recorded: whether
    what stands between convs is read as it runs. both_ways: whether a module without kinds reads its edges the other
    way round, too, as a relation that mirrors them. heads: submodules whose output is served as logits, by kind.
    columns: parameters that take columns of the rows each, with their widths, in order. types: the parameter that takes
    the types of edges, where these are columns of attributes. categories: how it gets attributes that number
    categories. opened: whether convs of the user's own are looked into,
    beside being recorded.
    """

    method: str = "forward"
    output: int | str | None = None
    edge_features: int = 0
    recorded: bool = False
    both_ways: bool = False
    heads: tuple[str, ...] = ()
    columns: tuple[tuple[str, int], ...] = ()
    types: TypeColumns | None = None
    categories: EdgeCategories | None = None
    opened: bool = False

    def is_of_head(self, name: str) -> bool:
        """Return whether an operation, by its name, is one of a head."""
        name = name.partition(":")[0]
        return any(name == head or name.startswith(f"{head}.") for head in self.heads)

    def of(self, module: Module, result: Any) -> Any:
        """The result that is asked for.

        Raises: ExportError where there is none.
        """
        if self.output is None:
            return result
        what = f"{type(module).__name__}.{self.method}"
        if not isinstance(result, tuple | list | dict):
            refuse(f"output={self.output!r}: {what} returns one thing, not several; leave output out")
        try:
            return result[self.output]  # type: ignore[index]
        except (IndexError, KeyError, TypeError):
            names = list(result) if isinstance(result, dict) else range(len(result))
            msg = f"output={self.output!r}: {what} returns {', '.join(map(repr, names))}; output names one of these"
            raise ExportError(msg) from None


FORWARD = Asked()
