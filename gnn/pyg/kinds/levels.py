"""Brings the operations of a forward with kinds into levels: rows by kind, then convs on relations, and so on.

Operations that give what others give are put together first. Convs whose rows are added up as HeteroConv and to_hetero
do are a group for each sum. Rows of a kind are a line within each level; what is read of them later is kept.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from freshet.gnn.declarations import Identity
from freshet.gnn.pyg.errors import refuse
from freshet.gnn.pyg.forward.in_place import gives_its_input
from freshet.gnn.pyg.forward.line import LineOp, in_line
from freshet.gnn.pyg.kinds.metadata import Metadata
from freshet.gnn.pyg.kinds.operations import JoinedRows, KindsOperations, Made, OnRelation, OnRows
from freshet.gnn.pyg.kinds.widths import reads_target
from freshet.gnn.pyg.steps import Hop, Step
from freshet.gnn.rows.functions import Scale
from freshet.gnn.rows.layer import Layer


def distinct(ops: KindsOperations, results: list[str]) -> tuple[dict[str, Made], list[str]]:
    """Return the operations that do something, each once, reading each other; and the names of the results there."""
    same, first, made = dict[str, str](), dict[Any, str](), dict[str, Made]()
    for name, op in ops.made.items():
        op = _renamed(op, same)
        if isinstance(op, OnRows) and _does_nothing(op.step):
            same[name] = op.rows
        elif isinstance(op, JoinedRows) and len(op.rows) == 1 and op.operation not in ("softmax", "function"):
            same[name] = op.rows[0]
        else:
            same[name] = first.setdefault(_key(op), name)
            if same[name] == name:
                made[name] = op
    return made, [same.get(name, name) for name in results]


def _renamed(op: Made, same: dict[str, str]) -> Made:
    if isinstance(op, OnRelation):
        target = None if op.target is None else same.get(op.target, op.target)
        return op._replace(source=same.get(op.source, op.source), target=target)
    if isinstance(op, OnRows):
        return op._replace(rows=same.get(op.rows, op.rows))
    return op._replace(rows=tuple(same.get(one, one) for one in op.rows))


def _key(op: Made) -> Any:
    if isinstance(op, JoinedRows):
        return op if op.step is None else (op.rows, id(op.step.op.module))  # type: ignore[union-attr]
    identity = (_identity(op.step), op.step.edge_weights, op.step.attributes, str(op.step.given))
    return (*op[:-1], *identity)


def _does_nothing(step: Step) -> bool:
    if isinstance(step.op, Layer | Hop):
        return isinstance(step.op, Identity)
    return gives_its_input(step.op)


def _identity(step: Step) -> Any:
    """A key that equal steps share."""
    if isinstance(step.op, Layer):
        weights = step.weights or {}
        return type(step.op), step.op.model_dump_json(), tuple((name, w.tobytes()) for name, w in weights.items())
    return id(step.op)


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
            elif isinstance(op, JoinedRows) and op.step is not None:
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
            if isinstance(op, JoinedRows) and op.step is None:
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


class ConvLevel(NamedTuple):
    """Steps on rows of each kind, and the convs behind them: how relations are added up, and groups by target kind."""

    before: dict[int, list[Step]]
    aggr: str
    groups: dict[int, ConvGroup]


class ConvLevels(NamedTuple):
    """A forward as levels from the features on, and the steps behind the last one on rows of each kind."""

    levels: list[ConvLevel]
    after: dict[int, list[Step]]


class _Layer(NamedTuple):
    """Groups that are one layer of convs, by the name of the rows that they make; and what they read of each kind."""

    groups: dict[str, ConvGroup]
    reads: dict[int, str]


def levels_of(
    found: Grouped, inputs: Sequence[str], learned: Iterable[str], results: Sequence[str], kind: Mapping[str, int]
) -> ConvLevels:
    """Return the levels that make these rows of the inputs, one for each kind; `kind` is that of each row.

    `learned` rows are there from the beginning, too, kept under their names.
    """
    return Scheduler(found, inputs, learned, results, kind).run()


class Scheduler:
    """Places the groups of convs in levels: each reads what the levels before it have made."""

    def __init__(
        self,
        found: Grouped,
        inputs: Sequence[str],
        learned: Iterable[str],
        results: Sequence[str],
        kind: Mapping[str, int],
    ) -> None:
        self._groups, self._rows = dict(found.groups), dict(found.rows)
        self._inputs, self._results = inputs, list(results)
        self._kind = dict(kind) | {name: kind[group.convs[0]] for name, group in found.groups.items()}
        self._layers: list[_Layer] = []
        self._level = dict.fromkeys((*inputs, *learned), 0)
        self._schedule()

    def run(self) -> ConvLevels:
        """Return the levels with what each kind keeps and joins between them."""
        aggr = [self.aggr(layer) for layer in self._layers]
        wanted = {self._kind[name]: name for name in self._results}
        lines = {kind: self._line(kind, wanted.get(kind)) for kind in range(len(self._inputs))}
        sections = [{kind: line[s] for kind, line in lines.items()} for s in range(len(self._layers) + 1)]
        levels = [
            ConvLevel(before, how, {self._kind[name]: group for name, group in layer.groups.items()})
            for before, how, layer in zip(sections[:-1], aggr, self._layers, strict=True)
        ]
        return ConvLevels(levels, sections[-1])

    def _schedule(self) -> None:
        """Give each operation the first level at which all that it reads is there, and each group its layer."""
        waiting = {**self._rows, **self._groups}
        while waiting:
            for name, op in list(waiting.items()):
                read = _reads(op)
                if any(one not in self._level for one in read):
                    continue
                at = max(self._level[one] for one in read)
                self._level[name] = 1 + self._into_layer(name, op, at) if isinstance(op, ConvGroup) else at
                del waiting[name]

    def _into_layer(self, name: str, group: ConvGroup, at: int) -> int:
        """Put a group into the first layer from `at` on that it fits into; returns its number."""
        for number in range(at, len(self._layers)):
            layer = self._layers[number]
            ways = {one.aggr for one in (group, *layer.groups.values())}
            ways -= set() if "softmax" in ways else {ONE}
            targets = {self._kind[other] for other in layer.groups}
            if fits(layer.reads, group.reads) and self._kind[name] not in targets and len(ways) < 2:
                layer.groups[name] = group
                layer.reads.update(group.reads)
                return number
        self._layers.append(_Layer({name: group}, dict(group.reads)))
        return len(self._layers) - 1

    def aggr(self, layer: _Layer) -> str:
        """Return how a layer adds up relations: a mean where each sum of several is divided by their number."""
        several = {name: group for name, group in layer.groups.items() if group.aggr != ONE}
        ways = [group.aggr for group in several.values()]
        if ways[:1] != ["sum"]:
            return ways[0] if ways else "sum"
        shares = {name: self._share(name, len(group.convs)) for name, group in several.items()}
        if any(share is None for share in shares.values()):
            return "sum"
        for name, share in shares.items():
            assert share is not None
            self._put_in_place(share, name)
        return "mean"

    def _share(self, name: str, many: int) -> str | None:
        """The operation that divides the rows by that number, where that is all that reads them."""
        readers = [one for one, op in {**self._rows, **self._groups}.items() if name in _reads(op)]
        op = self._rows.get(readers[0]) if len(readers) == 1 and name not in self._results else None
        if not isinstance(op, OnRows) or not isinstance(op.step.op, Scale) or op.step.op.offset:
            return None
        return readers[0] if abs(op.step.op.factor * many - 1) < 1e-12 else None

    def _put_in_place(self, name: str, other: str) -> None:
        """Have all that reads one operation read another, which does the same now."""
        del self._rows[name]
        for key, op in self._rows.items():
            if isinstance(op, OnRows):
                self._rows[key] = op._replace(rows=other if op.rows == name else op.rows)
            else:
                self._rows[key] = op._replace(rows=tuple(other if one == name else one for one in op.rows))
        for layer in self._layers:
            for kind, rows in layer.reads.items():
                layer.reads[kind] = other if rows == name else rows
        self._results = [other if one == name else one for one in self._results]

    def _line(self, kind: int, result: str | None) -> list[list[Step]]:
        """The steps on rows of a kind in each level, the one behind the last convs included."""
        sections = [self._section(kind, s, result) for s in range(len(self._layers) + 1)]
        readers, makers, place = defaultdict(list), dict[str, int](), 0
        for start, ops, wanted in sections:
            place += 1
            if start is not None:
                makers[start] = place
            for name in ops:
                place += 1
                makers[name] = place
                for one in _reads(self._rows[name]):
                    readers[one].append(place)
            place += 1
            if wanted is not None:
                readers[wanted].append(place)
        kept = {name for name, at in makers.items() if any(reader != at + 1 for reader in readers[name])}
        return [
            list(in_line(start, [(name, _line_op(self._rows[name])) for name in ops], wanted, kept))
            for start, ops, wanted in sections
        ]

    def _section(self, kind: int, number: int, result: str | None) -> tuple[str | None, list[str], str | None]:
        """The rows that a level begins with, its operations in order, and the rows that it must end with."""
        if number == 0:
            start: str | None = self._inputs[kind]
        else:
            start = next((one for one in self._layers[number - 1].groups if self._kind[one] == kind), None)
        ops = [name for name in self._rows if self._kind[name] == kind and self._level[name] == number]
        last = number == len(self._layers)
        return start, ops, result if last else self._layers[number].reads.get(kind)


def _reads(op: OnRows | JoinedRows | ConvGroup) -> list[str]:
    if isinstance(op, ConvGroup):
        return list(op.reads.values())
    return [op.rows] if isinstance(op, OnRows) else list(op.rows)


def _line_op(op: OnRows | JoinedRows) -> LineOp:
    if isinstance(op, OnRows):
        return LineOp((op.rows,), op.step)
    if op.step is not None:
        return LineOp(op.rows, op.step)
    assert op.operation != "softmax"  # which convs alone are put together by
    assert op.operation != "function"
    return LineOp(op.rows, None, op.operation)
