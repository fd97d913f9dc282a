"""Finds the convs of a forward whose rows are added up as HeteroConv and to_hetero do: one group for each sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.kinds.layered.converting import reads_target
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import JoinedRows, Made, OnRelation, OnRows

_AGGR = {"sum": "sum", "max": "max", "min": "min", "product": "mul", "cat": "cat", "softmax": "softmax"}
ONE = "one"
"""Aggregation of a single conv: all of them give the same."""


class ConvGroup(NamedTuple):
    """Convs on relations into one kind, by name, and how they are added up; `reads` are rows by kind."""

    aggr: str
    convs: list[str]
    reads: dict[int, str]


class Grouped(NamedTuple):
    """Groups by the name of the rows that they make, and the operations on rows that are left, in their order."""

    groups: dict[str, ConvGroup]
    rows: dict[str, OnRows | JoinedRows]


def grouped(made: Mapping[str, Made], results: list[str], kinds: Metadata, kind: Mapping[str, int]) -> Grouped:
    """Return the convs of a forward in groups; `kind` is that of each row.

    Raises: ExportError for a conv that reads two rows of one kind.
    """
    return _Grouper(made, results, kinds, kind).run()


class _Grouper:
    def __init__(self, made: Mapping[str, Made], results: list[str], kinds: Metadata, kind: Mapping[str, int]) -> None:
        self._made, self._kinds, self._kind = made, kinds, kind
        self._readers = Counter(results)
        for op in made.values():
            self._readers.update(_read_by(op))
        self._inside = self._nested()

    def run(self) -> Grouped:
        groups, rows = dict[str, ConvGroup](), dict[str, OnRows | JoinedRows]()
        for name, op in self._made.items():
            if isinstance(op, OnRows):
                rows[name] = op
            elif isinstance(op, JoinedRows) and name not in self._inside:
                self._add_up(name, op, groups, rows)
        taken = {conv for group in groups.values() for conv in group.convs}
        alone = {
            name: ConvGroup(ONE, [name], self._reads(name))
            for name, op in self._made.items()
            if isinstance(op, OnRelation) and name not in taken
        }
        return Grouped({**groups, **alone}, rows)

    def _nested(self) -> set[str]:
        """Joins that only a join of the same operation reads."""
        found = set[str]()
        for op in self._made.values():
            if isinstance(op, JoinedRows):
                inner = {one: self._made.get(one) for one in op.rows if self._readers[one] == 1}
                found |= {
                    one for one, of in inner.items() if isinstance(of, JoinedRows) and of.operation == op.operation
                }
        return found

    def _leaves(self, op: JoinedRows) -> list[str]:
        leaves = list[str]()
        for row in op.rows:
            inner = self._made.get(row)
            leaves += self._leaves(inner) if row in self._inside and isinstance(inner, JoinedRows) else [row]
        return leaves

    def _add_up(
        self, name: str, op: JoinedRows, groups: dict[str, ConvGroup], rows: dict[str, OnRows | JoinedRows]
    ) -> None:
        """Note groups of the convs that a join puts together, and what it does with them."""
        leaves = self._leaves(op)
        convs = [one for one in leaves if isinstance(self._made.get(one), OnRelation) and self._readers[one] == 1]
        if op.operation not in _AGGR or (op.operation == "cat" and len(convs) < len(leaves)):
            convs = []
        found = list[ConvGroup]()
        for conv in convs:
            self._put(conv, _AGGR[op.operation], found)
        if op.operation == "softmax" and len(found) != 1:
            refuse(f"{name}: one softmax over convs that read different rows of one kind is not supported")
        found = [group for group in found if len(group.convs) > 1 or op.operation == "softmax"]
        if len(found) == 1 and len(found[0].convs) == len(leaves):
            groups[name] = found[0]
            return
        if op.operation == "cat":  # whose order would be another
            found = []
        inside = dict[str, str]()
        for number, group in enumerate(found):
            groups[f"{name} {number}"] = group
            inside |= dict.fromkeys(group.convs, f"{name} {number}")
        of = list(dict.fromkeys(inside[one] for one in leaves if one in inside))
        rows[name] = JoinedRows(op.operation, (*of, *(one for one in leaves if one not in inside)))

    def _put(self, conv: str, aggr: str, found: list[ConvGroup]) -> None:
        """Put a conv into the first group that reads the same rows, and has none on its relation."""
        reads = self._reads(conv)
        for at, group in enumerate(found):
            relations = {self._relation(one) for one in group.convs}
            if fits(group.reads, reads) and self._relation(conv) not in relations:
                found[at] = ConvGroup(aggr, [*group.convs, conv], group.reads | reads)
                return
        found.append(ConvGroup(aggr, [conv], reads))

    def _relation(self, conv: str) -> int:
        op = self._made[conv]
        assert isinstance(op, OnRelation)
        return op.relation

    def _reads(self, conv: str) -> dict[int, str]:
        op = self._made[conv]
        assert isinstance(op, OnRelation)
        read = {self._kind[op.source]: op.source}
        if op.target is not None and reads_target(op.step):
            own = {self._kind[op.target]: op.target}
            if not fits(read, own):
                what = f"{op.source} and {op.target} of {self._kinds.names[self._kind[op.target]]!r}"
                refuse(f"{conv} reads two rows of one kind, {what}. Nearest: the same rows as source and as target")
            read |= own
        return read


def fits(one: Mapping[int, str], other: Mapping[int, str]) -> bool:
    """Return whether both read the same rows of the kinds that both read."""
    return all(other[kind] == rows for kind, rows in one.items() if kind in other)


def _read_by(op: Made) -> list[str]:
    if isinstance(op, OnRelation):
        return [one for one in (op.source, op.target) if one is not None]
    return [op.rows] if isinstance(op, OnRows) else list(op.rows)
