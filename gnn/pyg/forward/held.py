"""The Data that a forward reads without being given it: one that its module keeps, or a global of its file.

The graph of a job stands for it while the forward is called. The user's object is as before after the call.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from copy import copy
from itertools import pairwise
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

import torch
from torch.nn import Module
from torch_geometric.data import Data
from torch_geometric.data.storage import GlobalStorage

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.forward.places import place_here
from freshet.gnn.pyg.running import own_classes
from freshet.kinds_graph import KindsGraph, RelationEdges
from freshet.schema import WEIGHT, EdgeValues

FIELDS = ("x", "edge_index", "edge_weight", "edge_attr")
_MOST_VERTICES, _MOST_EDGES, _SOME_VERTICES = 3000, 50_000, 1000
_LOADS = ("LOAD_GLOBAL", "LOAD_DEREF", "LOAD_ATTR")


class HeldData:
    """A Data within reach of a forward, and the graph that stands for it in a call.

    read: what is read of it, by the name of the object: the first field, with its line.
    """

    def __init__(self, beside: str | None = None) -> None:
        """Take the name of the parameter for rows that the forward has besides."""
        self.beside = beside
        self.read: dict[str, str] = {}

    def call(self, function: Any, given: Data, *args: Any, **options: Any) -> Any:
        """Call a forward while a graph stands for each Data within its reach.

        Raises: ExportError where it reads what a job does not have, sets a field, or reads the Data of two graphs.
        """
        module = getattr(function, "__self__", function)
        with ExitStack() as stack:
            for name, data in data_of(module).items():
                stack.enter_context(_replaced(data, _Standing(self, name, data, given)))
            return function(*args, **options)

    def note(self, name: str, field: str) -> None:
        """Note that a field is read.

        Raises: ExportError where another Data was read before.
        """
        if name not in self.read:
            self.read[name] = f"{name}.{field} ({place_here()})"
        if len(self.read) > 1:
            refuse(f"its forward reads {' and '.join(self.read.values())}, and a job has one graph: read one Data")

    def refuse(self, name: str, field: str) -> None:
        """Refuse that a field is read.

        Raises: ExportError, always
        """
        self.note(name, field)
        at = f"its forward reads {name}.{field} ({place_here()})"
        if field == "x":
            refuse(f"{at} beside its argument {self.beside}, and these may be other rows: read {self.beside} alone")
        refuse(f"{at}, and of a Data a job has {', '.join(FIELDS[:3])} and {FIELDS[3]}: leave it out")

    def itself(self, module: Module) -> ItsOwn:
        """Return the Data that was read, as it is.

        Raises: ExportError where it has no rows or edges.
        """
        name = next(iter(self.read))
        data = data_of(module)[name]
        if data.x is None or data.edge_index is None:
            missing = "x" if data.x is None else "edge_index"
            refuse(f"{name} has no {missing}: the module runs on it as it is, and is compared with its export there")
        return ItsOwn(name, _small(data).clone().cpu())


class ItsOwn(HeldData):
    """The user's own Data, a copy of which stands for it: the module reads all that it has, as without an export."""

    def __init__(self, name: str, data: Data) -> None:
        """Take the name of the object and a copy of it."""
        super().__init__()
        self.name, self.data = name, data

    def call(self, function: Any, given: Data, *args: Any, **options: Any) -> Any:
        """Call a forward; floats of the Data have the precision of those in `given`."""
        module = getattr(function, "__self__", function)
        dtype = next(one.dtype for one in given.to_dict().values() if torch.is_floating_point(one))
        own = self.data.clone().apply(lambda one: one.to(dtype) if torch.is_floating_point(one) else one)
        with _replaced(data_of(module)[self.name], own._store):
            return function(*args, **options)

    def graph(self, width: int, weights: str) -> KindsGraph:
        """Return it as arrays; edges without weights have 1, and those without attributes zeros of this width.

        weights: the field that has them, where it is there.
        Raises: ExportError for rows or edges of another shape.
        """
        x, edges = self.data.x, self.data.edge_index
        if x.ndim != 2 or edges.ndim != 2 or len(edges) != 2:
            shapes = f"x {tuple(x.shape)} and edge_index {tuple(edges.shape)}"
            refuse(f"{self.name} has {shapes}, expected (vertices, width) and (2, edges)")
        count = edges.shape[1]
        weight, attr = (None if field not in self.data else self.data[field] for field in (weights, "edge_attr"))
        weight = torch.ones(count) if weight is None else weight.reshape(-1)
        attr = torch.zeros(count, width) if attr is None or not width else attr.reshape(count, -1)
        (src, dst), given = edges.long().numpy(), {WEIGHT: weight.float().numpy()}
        values = EdgeValues(count, given, attr.float().numpy() if width else None)
        return KindsGraph([x.float().numpy()], [RelationEdges(src, dst, values)])


class _Standing(GlobalStorage):
    """The fields of a Data that stands for the user's."""

    def __init__(self, held: HeldData, name: str, data: Data, given: Data) -> None:
        super().__init__(given.to_dict(), _parent=data)
        own = set(data.keys()) - ({"num_nodes"} if "x" in given else set())
        self._others = (own | ({"num_nodes", "x"} if "x" not in given else set())) - set(given.keys())
        self._name, self._held = name, held

    def __getitem__(self, key: str) -> Any:
        if key in self.__dict__.get("_others", ()):
            self._held.refuse(self._name, key)
        value = self._mapping[key]
        self._held.note(self._name, key)
        return value

    def __contains__(self, key: object) -> bool:
        if key in self._others:
            self._held.refuse(self._name, str(key))
        return key in self._mapping

    def get(self, key: str, value: Any = None) -> Any:
        return self[key] if key in self else value

    def __setitem__(self, key: str, value: Any) -> None:
        if "_held" in self.__dict__:
            self._held.note(self._name, key)
            refuse(f"its forward sets {self._name}.{key} ({place_here()}), which its next call reads: set a name")
        super().__setitem__(key, value)


@contextmanager
def _replaced(data: Data, store: GlobalStorage) -> Iterator[None]:
    """Have a Data the fields of a store in this context alone."""
    kept = dict(vars(data))
    vars(data)["_store"] = store
    try:
        yield
    finally:
        vars(data).clear()
        vars(data).update(kept)


def _small(data: Data) -> Data:
    """Return a Data, or of a large one its first vertices and the edges between them."""
    if data.num_nodes <= _MOST_VERTICES and data.num_edges <= _MOST_EDGES:
        return data
    return copy(data).subgraph(torch.arange(min(_SOME_VERTICES, data.num_nodes), device=data.edge_index.device))


def data_of(module: Module) -> dict[str, Data]:
    """Return the Data within reach of a module's own code, by name: its attributes, and globals of its files."""
    found, ids = dict[str, Data](), set[int]()
    for name, value in _named_values(module):
        if isinstance(value, Data) and id(value) not in ids:
            ids.add(id(value))
            found.setdefault(name, value)
    return found


def _named_values(module: Module) -> Iterator[tuple[str, Any]]:
    functions = list[FunctionType]()
    for path, part in module.named_modules():
        yield from ((".".join(filter(None, ("self", path, name))), value) for name, value in list(vars(part).items()))
        functions += [one for one in vars(part).values() if isinstance(one, FunctionType)]
    for kind in own_classes(module):
        yield from ((f"{kind.__name__}.{name}", value) for name, value in list(vars(kind).items()))
        functions += filter(None, map(_function_of, vars(kind).values()))
    for function in functions:
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        yield from ((name, cell.cell_contents) for name, cell in cells if cell != CellType())
    homes = {id(function.__globals__): function.__globals__ for function in functions}
    for home in homes.values():
        yield from list(home.items())


def _function_of(value: Any) -> FunctionType | None:
    """Return the function of a method, as it was written."""
    value = getattr(value, "fget", None) or getattr(value, "__func__", value)
    found = inspect.unwrap(value) if callable(value) else None
    return found if isinstance(found, FunctionType) else None


def field_read(function: Callable[..., Any]) -> str:
    """Return the first field of a graph that a forward reads of an object, with its line; empty where none is."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    file = getattr(code, "co_filename", "")
    given = () if code is None else dis.get_instructions(code)
    for one, following in pairwise(given):
        if one.opname in _LOADS and following.opname == "LOAD_ATTR" and following.argval in FIELDS:
            line = following.positions.lineno if following.positions else None
            return f"{one.argval}.{following.argval} ({Path(str(file)).name}:{line})"
    return ""
