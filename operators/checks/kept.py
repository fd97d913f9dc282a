"""Cases of messages through the code that a job runs: stores, merges of parts, a full pass; and their definition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from freshet.gnn.synopses.edge_network import EdgeNetwork, NetworkSynopsis
from freshet.gnn.synopses.redone import RedoneFunctions, RedoneSynopsis
from freshet.operators.aggregates.aggregate import Aggregate
from freshet.operators.aggregates.registry import aggregate_of
from freshet.operators.checks.between import Between, Carried, Edge, Related, carried_by
from freshet.operators.checks.cases import EPOCHS, MessageCase, MessageWidths, OneMessage
from freshet.operators.graph.edge_messages import Messages

_ONE_PART = 31  # what rows are shifted by where all are of one part
Numbered = list[tuple[int, int, OneMessage]]  # case, number among all messages, message


class Both(NamedTuple):
    """Aggregates of cases as they were made and as they should be; (cases, width) float32 each."""

    got: np.ndarray
    want: np.ndarray


@dataclass(frozen=True)
class KeptAggregate:
    """A synopsis of a relation's messages, and what keeps it.

    `functions` are those of an aggregate that a user wrote, which gets its messages in an order of Freshet's.
    """

    relation: Related
    aggregate: Aggregate[Any]
    functions: RedoneFunctions | None = None

    @staticmethod
    def of(relation: Related, aggregate: Aggregate[Any] | None = None) -> KeptAggregate:
        """Return the synopsis of a relation as the registry keeps it, or as `aggregate` does."""
        return KeptAggregate(relation, aggregate or aggregate_of(relation.synopsis))

    @staticmethod
    def written(functions: RedoneFunctions, message: int, state: int, made: int) -> KeptAggregate:
        """Return the aggregate that a user wrote, of messages as they come: no function makes them.

        `message`, `state` and `made` are widths: of a message, of a state, and of what is read of it.
        """
        as_it_is = EdgeNetwork(0, -1, message, "sum", message, lambda rows: rows, 0)
        synopsis = NetworkSynopsis(RedoneSynopsis(functions, state, made), as_it_is)
        return KeptAggregate(Related(message, 0, synopsis), aggregate_of(synopsis), functions)

    @property
    def merges(self) -> bool:
        """True if states of several parts can be merged."""
        return self.relation.synopsis.merges

    @property
    def has_full_pass(self) -> bool:
        """True if a pass over the sources makes it: one by a user's functions needs all messages of a vertex."""
        relation = self.relation
        same = relation.target_width in (None, 0, relation.message_width)  # as the rows of one kind
        return not relation.synopsis.needs_all and not relation.edge.attributes and same

    @property
    def widths(self) -> MessageWidths:
        """MessageWidths of what its messages are made of."""
        relation = self.relation
        return MessageWidths(relation.message_width, relation.target_width or 0, relation.edge)

    def streamed(self, cases: Sequence[MessageCase], parts: int) -> list[Both]:
        """Return the aggregates after each epoch, merged from the states of the parts."""
        messages = _numbered(cases)
        relation, slots = self.relation, (max(1, len(messages)), len(cases))
        store = Between.of(relation, relation.synopsis, parts, slots, self.aggregate)
        found = []
        for epoch in range(1, EPOCHS + 1):
            edges: dict[Edge, Carried] = {
                (one.part, k, case, 0): (one.weight, one.attr) for case, k, one in messages if one.is_there(epoch)
            }
            sent = {(one.part, k): _row(one.sent(epoch)) for _, k, one in messages if epoch == 1 or one.then}
            read = {
                (part, v): _row(case.read(epoch))
                for v, case in enumerate(cases)
                for part in range(parts)
                if case.target and (epoch == 1 or case.turned)
            }
            store.apply(edges, sent, read)
            counts = store.in_edges().reshape(parts, len(cases))
            states = self._merged(store.read(), counts)
            got = relation.synopsis.read(states, counts.sum(axis=0, dtype=np.int32))
            found.append(Both(got, self.defined(cases, epoch)))
        return found

    def passed(self, cases: Sequence[MessageCase]) -> Both:
        """Return the aggregates at the end, made in one pass over all messages, as `freshet embed` does."""
        relation, last = self.relation, EPOCHS
        there = [(case, one) for case, _, one in _numbered(cases) if one.is_there(last)]
        made = self.aggregate.accumulator(relation.synopsis, relation.message_width, len(cases))
        targets = [_row(case.read(last)) for case in cases] if relation.target_width else []
        z = np.array([*targets, *(_row(one.sent(last)) for _, one in there)], np.float32)
        src = np.arange(len(targets), len(targets) + len(there), dtype=np.int32)
        dst = np.array([case for case, _ in there], np.int32)
        weight = np.array([one.weight for _, one in there], np.float32)
        made.merge(z.reshape(-1, relation.message_width), Messages(src, dst, weight))
        counts = np.bincount(dst, minlength=len(cases)).astype(np.int32)
        states = np.empty((len(cases), relation.synopsis_width), np.float32)
        made.read(counts, np.arange(len(cases), dtype=np.int32), states, 0)
        return Both(relation.synopsis.read(states, counts), self.defined(cases, last))

    def defined(self, cases: Sequence[MessageCase], epoch: int = EPOCHS, *, backwards: bool = False) -> np.ndarray:
        """Return the aggregates after an epoch by the synopsis's own definition, of all messages at once."""
        relation = self.relation
        there = [(case, one) for case, _, one in _numbered(cases) if one.is_there(epoch)]
        there = there[::-1] if backwards else there
        messages = np.array([_row(one.sent(epoch)) for _, one in there], np.float32)
        messages = messages.reshape(len(there), relation.message_width)
        carried = carried_by([(one.weight, one.attr) for _, one in there], relation.edge)
        messages = relation.edge.messages(messages, carried)
        dst = np.array([case for case, _ in there], np.int64)
        targets = np.array([_row(case.read(epoch)) for case in cases], np.float32)
        if not relation.target_width:
            targets = np.zeros((len(cases), relation.message_width), np.float32)
        counts = np.bincount(dst, minlength=len(cases)).astype(np.int32)
        return relation.synopsis.read(relation.synopsis.whole(messages, dst, targets), counts)

    def folded(self, cases: Sequence[MessageCase], *, backwards: bool) -> np.ndarray:
        """Return the aggregates of messages in the order in which they come, or in the opposite one."""
        if self.functions is None:
            return self.defined(cases, backwards=backwards)
        made = np.zeros_like(self.defined(cases))
        for number, case in enumerate(cases):
            rows = np.array([_row(one.sent(EPOCHS)) for one in case.messages if one.is_there(EPOCHS)], np.float32)
            if len(rows):
                state = self.functions.fold(np.ascontiguousarray(rows[::-1] if backwards else rows))
                made[number] = self.functions.read(state.astype(np.float32)[None])[0]
        return made

    def _merged(self, states: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return one state for each target of those of the parts, as a Tail does; (targets, width) float32."""
        parts, targets = counts.shape
        if parts == 1:
            return states
        rows = np.arange(parts * targets, dtype=np.int32).reshape(parts, targets)
        index = np.ascontiguousarray(np.where(counts > 0, rows, np.int32(-1)).T)
        out, slots = np.empty((targets, states.shape[1]), np.float32), np.arange(targets, dtype=np.int32)
        columns = (0, states.shape[1])
        self.aggregate.merger(self.relation.synopsis)(index, states, slots, out, (_ONE_PART, _ONE_PART), columns)
        return out


def _numbered(cases: Sequence[MessageCase]) -> Numbered:
    pairs = [(number, one) for number, case in enumerate(cases) for one in case.messages]
    return [(case, k, one) for k, (case, one) in enumerate(pairs)]


def _row(values: Sequence[float]) -> np.ndarray:
    return np.array(values, np.float32)
