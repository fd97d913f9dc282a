"""The job's edge types: names to codes, one table for the life of the job.

A type is live while an edge has it. What an event may bring is decided by live types alone, event by event, so that it
depends on the order of the events and on nothing else: not on blocks, messages or epochs. The default type, or those of
a typed model, are kept for good and not counted.

A new type of an epoch has a code from the beginning of the epoch on; its name becomes durable at the end, if an edge
then has it. A code that no edge has at the end of an epoch is free, and its name forgotten; it is handed out again from
the next epoch on, the lowest first. So within an epoch no code changes its meaning.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from freshet.partitioner import graph_tables as t
from freshet.partitioner.events import OP_ADD_EDGE, Events
from freshet.partitioner.id_lookup import free_name, store_name
from freshet.partitioner.words import words_for

_ROOM = 16


class TypeCounts(NamedTuple):
    """View of the types for kernels."""

    uses: np.ndarray  # (codes,) int32: edges of each type
    live: np.ndarray  # (1,) int64: types that have edges
    kept: int  # the codes below are kept for good
    bound: int  # the most that may be live


class EdgeTypes:
    """Names and codes of edge types.

    Invariant: after an epoch the known codes are those that are kept and those that live edges have; counts are a
    function of the edges, names and codes stand in the table `types`.
    """

    def __init__(self, tables: t.GraphTables, kept: tuple[str, ...], bound: int) -> None:
        self._t, self._kept, self._bound = tables, kept, bound
        self._live = np.zeros(1, np.int64)
        tables.scalars.data[t.TYPES] = len(kept)
        self._begin()

    def _begin(self) -> None:
        self._names: list[str | None] = list(self._kept)  # by code
        self._codes = {name: code for code, name in enumerate(self._kept)}
        self._free: list[int] = []
        self._new: list[int] = []  # codes of this epoch
        self._uses = np.zeros(max(_ROOM, len(self._kept)), np.int32)
        self._known = np.zeros(len(self._uses), bool)  # those that are not kept for good
        self._live[0] = 0

    @property
    def counts(self) -> TypeCounts:
        """Counters for kernels; stale after `codes_of`."""
        return TypeCounts(self._uses, self._live, len(self._kept), self._bound)

    def name(self, code: int) -> str:
        """The name of a known code."""
        return self._names[code] or ""

    def fixed_codes(self, events: Events) -> np.ndarray | None:
        """(n,) int32 codes of the events of a block; None where they depend on the epoch (see `codes_of`)."""
        return events.etype.astype(np.int32) if events.types == self._kept or len(events.types) == 1 else None

    def codes_of(self, types: Sequence[str], op: np.ndarray, etype: np.ndarray) -> np.ndarray:
        """(n,) int32 codes of an epoch's events; -1 where one deletes an edge of a type that no edge has.

        Shapes: op (n,) uint8; etype (n,) int32, places in `types`
        """
        table = np.array([self._codes.get(name, -1) for name in types], np.int32)
        if (table < 0).any():
            added, first = np.unique(etype[op == OP_ADD_EDGE], return_index=True)
            for here in added[np.argsort(first)].tolist():  # by events: blocks may have their names in another order
                if table[here] < 0:
                    table[here] = self._give_code(types[here])
        return table[etype]

    def _give_code(self, name: str) -> int:
        if self._free:
            code = heapq.heappop(self._free)
            self._names[code] = name
        else:
            code = len(self._names)
            self._names.append(name)
            if code == len(self._uses):
                self._uses = np.concatenate([self._uses, np.zeros_like(self._uses)])
                self._known = np.concatenate([self._known, np.zeros_like(self._known)])
        self._known[code] = True
        self._codes[name] = code
        self._new.append(code)
        return code

    def end_epoch(self) -> None:
        """End an epoch's events: store the names of new types that edges have, forget those that no edge has."""
        new = set(self._new)
        for code in self._new:
            if self._uses[code]:
                self._store(code)
        if len(self._codes) != len(self._kept) + self._live[0]:
            for code in np.flatnonzero(self._known & (self._uses == 0)).tolist():
                self._forget(code, stored=code not in new)
        self._new = []

    def _store(self, code: int) -> None:
        text = np.frombuffer(self.name(code).encode(), np.uint8).copy()  # kernels are compiled for writable arrays
        tables = self._t
        tables.types.reserve(code + 1)
        tables.reserve_words(words_for(len(text)))
        tables.types.touch_rows(np.array([code]))
        tables.types.data[code, t.LIVE] = 1
        store_name(tables.scalars.data, tables.types.data, tables.words.view, code, text, 0, len(text))
        tables.scalars.data[t.TYPES] = max(tables.scalar(t.TYPES), code + 1)

    def _forget(self, code: int, stored: bool) -> None:
        tables = self._t
        del self._codes[self.name(code)]
        self._names[code] = None
        self._known[code] = False
        heapq.heappush(self._free, code)
        if stored:
            tables.types.touch_rows(np.array([code]))
            tables.types.data[code, t.LIVE] = 0
            free_name(tables.scalars.data, tables.types.data, tables.words.view, code)

    def after_restore(self, edges: np.ndarray) -> None:
        """Build derived state from the tables; `edges` are the rows of live edges."""
        tables = self._t
        self._begin()
        codes = tables.scalar(t.TYPES)
        tables.types.reserve(codes)
        if codes <= len(self._kept):
            return
        words = tables.words.data.view(np.uint8)
        for code in range(len(self._kept), codes):
            row = tables.types.data[code]
            self._names.append(None)
            if row[t.LIVE]:
                begin = 8 * int(row[t.NAME_AT])
                self._names[code] = words[begin : begin + int(row[t.NAME_BYTES])].tobytes().decode()
                self._codes[self.name(code)] = code
            else:
                self._free.append(code)  # ascending, which is a heap
        counted = np.bincount(tables.edge.data[edges, t.TYPE], minlength=max(_ROOM, codes))
        self._uses = counted.astype(np.int32)
        self._known = np.zeros(len(self._uses), bool)
        self._known[list(self._codes.values())[len(self._kept) :]] = True
        self._uses[: len(self._kept)] = 0
        self._live[0] = np.count_nonzero(self._uses)

    def of_edges(self, codes: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
        """Edges' codes in a table of names without gaps, which begins with those that are kept."""
        known = [code for code, name in enumerate(self._names) if name is not None]
        place = np.zeros(len(self._names) + 1, np.int32)
        place[known] = np.arange(len(known))
        return place[codes], tuple(self.name(code) for code in known)
