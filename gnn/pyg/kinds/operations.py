"""The operations of a forward on rows by kind: each reads rows of one kind, or sends those of one kind to another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from torch.nn import Module

from freshet.gnn.pyg.errors import ExportError, refuse
from freshet.gnn.pyg.forward.line import Operations
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.steps import RowsFunction, Step
from freshet.gnn.rows.jumps import Operation


class OnRelation(NamedTuple):
    """A conv on a relation: the rows that it reads, by name, and its step; target None: it reads none of its target."""

    relation: int
    source: str
    target: str | None
    step: Step


class OnRows(NamedTuple):
    """A step on rows of one kind."""

    rows: str
    step: Step


class JoinedRows(NamedTuple):
    """Rows of several operations that become one row; of convs also by one softmax over the in-edges of all.

    step: the function that makes it, where that is read as it runs.
    """

    operation: Operation | Literal["softmax", "function"]
    rows: tuple[str, ...]
    step: Step | None = None


Made = OnRelation | OnRows | JoinedRows


class KindsOperations(Operations):
    """The operations of a forward in order, with the kind of the rows that each makes."""

    def __init__(self, kinds: Metadata, features: Mapping[str, int] = MappingProxyType({})) -> None:
        """Begin with the features of each kind alone; `features` are their widths by kind, where they are given."""
        self.inputs = [f"x of {name}" for name in kinds.names]
        self._rows = list(self.inputs)
        super().__init__(self._rows)
        self._kinds = kinds
        self.widths: dict[str, int | None] = {f"x of {name}": width for name, width in features.items()}
        """Widths of rows by name, as far as they were asked for; from the first those of features that are given."""
        self.made: dict[str, Made] = {}
        self.kind = {name: k for k, name in enumerate(self.inputs)}
        self.tables: dict[str, Any] = {}
        """Learned rows by name: (ids, width) tensors."""
        self.ids = set[int]()
        """Kinds whose features are ids."""
        self.refused: dict[str, str] = {}
        """Why operations are refused, by name, where a result depends on them."""
        self.whole = set[int]()
        """Kinds whose vertices have all learned rows that there are, in their order."""

    def learned(self, name: str, kind: int, table: Any) -> str:
        """Note rows that are looked up by the ids of a kind; returns their name."""
        for known, other in self.tables.items():
            if other is table and self.kind[known] == kind:
                return known
        name = self._free(name)
        self._rows.append(name)
        self.tables[name], self.kind[name] = table, kind
        return name

    def add(self, rows: str, step: Step, *, writes: bool = False) -> str:
        """Note a step on the rows of that name; returns the name of what it makes."""
        name = super().add(rows, step, writes=writes)
        return self._note(name, OnRows(rows, step), self.kind[rows])

    def join(self, name: str, operation: Operation, rows: Sequence[str]) -> str:
        """Note that rows of several operations of one kind become one; returns its name.

        Raises: ExportError for rows of several kinds.
        """
        kind = self._one_kind(name, rows)
        name = super().join(name, operation, rows)
        return self._note(name, JoinedRows(operation, tuple(rows)), kind)

    def function(self, name: str, module: Module, rows: Sequence[str]) -> str:
        """Note a function of rows of one kind that is read as it runs; returns the name of what it makes.

        Raises: ExportError for rows of several kinds.
        """
        kind = self._one_kind(name, rows)
        name = super().function(name, module, rows)
        step = Step(name, RowsFunction(module, tuple(rows)))
        return self._note(name, JoinedRows("function", tuple(rows), step), kind)

    def _one_kind(self, name: str, rows: Sequence[str]) -> int:
        """Return the kind that rows have in common.

        Raises: ExportError where they are of several.
        """
        kinds = list(dict.fromkeys(self.kind[one] for one in rows))
        if len(kinds) > 1:
            named = " and ".join(repr(self._kinds.names[k]) for k in kinds)
            refuse(f"{name}: rows of {named} are put together, and each row is of a vertex of its own")
        return kinds[0]

    def attended(self, name: str, convs: Sequence[str]) -> str:
        """Note that one softmax weighs the in-edges of several convs of attention; returns its rows' name."""
        name = super().join(name, "sum", convs)
        return self._note(name, JoinedRows("softmax", tuple(convs)), self.kind[convs[0]])

    def conv(self, where: str, of: OnRelation) -> str:
        """Note a conv on a relation; returns the name of the rows that it makes. `where` is for the message.

        Raises: ExportError where it reads rows of other kinds than its relation runs between.
        """
        source, target = self._kinds.ends(of.relation)
        for what, rows, kind in (("source", of.source, source), ("target", of.target, target)):
            if rows is not None and self.kind[rows] != kind:
                expected, got = self._kinds.names[kind], self._kinds.names[self.kind[rows]]
                refuse(f"{where}: {self._kinds.named(of.relation)} has {expected!r} as its {what}, got rows of {got!r}")
        read = [one for one in (of.source, of.target) if one is not None]
        name = self.called(of.step, read)
        return self._note(name, of, target)

    def _note(self, name: str, made: Made, kind: int) -> str:
        self.made[name], self.kind[name] = made, kind
        return name

    def settle(self, results: Sequence[str]) -> None:
        """Refuse what is read after an operation wrote over it, and forget what nothing reads of these results.

        Raises: ExportError naming the operation that writes, or one that is `refused`.
        """
        self.refuse_overwritten(results)
        self.keep(results)
        if why := next((why for name, why in self.refused.items() if name in self.made), None):
            raise ExportError(why)

    def keep(self, results: Sequence[str]) -> None:
        """Forget what nothing reads of these results."""
        read = self.needed(results)
        self.made = {name: made for name, made in self.made.items() if name in read}
        self.tables = {name: table for name, table in self.tables.items() if name in read}

    def needed(self, results: Sequence[str]) -> set[str]:
        """Return the names of these results and of all rows that they depend on."""
        read, waiting = set[str](), list(results)
        while waiting:
            name = waiting.pop()
            if name not in read:
                read.add(name)
                waiting += self.reads(name)
        return read

    def reads(self, name: str) -> Iterator[str]:
        """Yield the names of the rows that an operation reads; those of a kind are read by nothing before."""
        made = self.made.get(name)
        if isinstance(made, OnRelation):
            yield from (one for one in (made.source, made.target) if one is not None)
        elif isinstance(made, OnRows):
            yield made.rows
        elif made is not None:
            yield from made.rows
