"""Brings the operations of a forward with kinds into levels: rows by kind, then convs on relations, and so on.

Rows of a kind are a line within each level; what a later level or operation reads of them is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from freshet.gnn.pyg.kinds.layered.grouping import ONE, ConvGroup, Grouped, fits
from freshet.gnn.pyg.kinds.operations import JoinedRows, OnRows
from freshet.gnn.pyg.steps import Step
from freshet.gnn.rows.functions import Scale
from freshet.gnn.rows.jumps import CURRENT, Join, Keep


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
        return [self._steps(start, ops, wanted, kept) for start, ops, wanted in sections]

    def _section(self, kind: int, number: int, result: str | None) -> tuple[str | None, list[str], str | None]:
        """The rows that a level begins with, its operations in order, and the rows that it must end with."""
        if number == 0:
            start: str | None = self._inputs[kind]
        else:
            start = next((one for one in self._layers[number - 1].groups if self._kind[one] == kind), None)
        ops = [name for name in self._rows if self._kind[name] == kind and self._level[name] == number]
        last = number == len(self._layers)
        return start, ops, result if last else self._layers[number].reads.get(kind)

    def _steps(self, start: str | None, ops: list[str], wanted: str | None, kept: set[str]) -> list[Step]:
        current, steps = start, list[Step]()
        if start is not None and start in kept:
            steps.append(_keep(start))
        for name in ops:
            op = self._rows[name]
            if isinstance(op, JoinedRows):
                of = tuple(CURRENT if one == current else one for one in op.rows)
                assert op.operation != "softmax"  # which convs alone are put together by
                steps.append(Step(name, Join(operation=op.operation, of=of)))
            else:
                if op.rows != current:
                    steps.append(_recall(op.rows))
                steps.append(op.step)
            current = name
            if name in kept:
                steps.append(_keep(name))
        if wanted is not None and wanted != current:
            steps.append(_recall(wanted))
        return steps


def _reads(op: OnRows | JoinedRows | ConvGroup) -> list[str]:
    if isinstance(op, ConvGroup):
        return list(op.reads.values())
    return [op.rows] if isinstance(op, OnRows) else list(op.rows)


def _keep(name: str) -> Step:
    return Step(name, Keep(name=name))


def _recall(name: str) -> Step:
    return Step(name, Join(of=(name,)))
