"""Numbers by row and part: as columns and as lists they are the same, also after a restore."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import freshet.state.table
from freshet.operators.graph.part_columns import PartColumns
from freshet.state.adjacency import Lists
from freshet.state.sweep import Mutations, Sweeper
from freshet.state.table import Table, TableSet
from freshet.state.task_parts import DENSE_PARTS

SLOTS = 6
Numbers = dict[tuple[int, int], int]


class Columns:
    """Columns of one task, beside the numbers that they should have."""

    def __init__(self, here: int, parts: int) -> None:
        self.here, self.parts = here, parts
        self.want: Numbers = {}
        self.entries: list[dict[str, bytes]] = [{} for _ in range(here)]
        self._make()

    def _make(self) -> None:
        self.tables = TableSet(self.here)
        self.columns = PartColumns(self.tables, "numbers", self.parts)
        self.sweeper = Sweeper(self.tables)

    def reserve(self) -> None:
        self.columns.rows.reserve(SLOTS)
        if isinstance(self.columns.rows, Lists):
            self.columns.rows.after_restore()

    @property
    def rows(self) -> np.ndarray:
        """The rows of all slots of all parts here."""
        shift = self.columns.part_shift
        return np.concatenate([np.arange(SLOTS, dtype=np.int32) + ((k << shift) if k else 0) for k in range(self.here)])

    def crash(self) -> None:
        """Go on with what is durable."""
        for epoch in (1, 2):
            self._keep(self.sweeper.mark(epoch))
        self._make()
        self.sweeper.restore(*(one.items() for one in self.entries))
        self.reserve()

    def _keep(self, changes: dict[int, Mutations]) -> None:
        for part, mutations in changes.items():
            self.entries[part].update(mutations.puts)
            for key in mutations.deletes:
                self.entries[part].pop(key, None)

    def check(self) -> None:
        rows, want = self.rows, self.want
        every = [(k, part) for k in range(rows.size) for part in range(self.parts)]
        at, parts = (np.array(column) for column in zip(*every, strict=True))
        told = [want.get(one, -1) for one in every]
        assert self.columns.numbers(rows[at], parts.astype(np.int16)).tolist() == told
        found, of = self.columns.held(rows)
        held = sorted(want)
        assert found.tolist() == [rows[k] for k, _ in held], "in the order of rows and parts"
        assert of.tolist() == [part for _, part in held]
        for some, index, places, shift in self.columns.columns(rows, 3):
            for row, place in zip(rows[some].tolist(), places.tolist(), strict=True):
                k = rows.tolist().index(row)
                base = (place >> shift) << 3 if shift < 31 else 0
                numbers = [base + number for number in index[place].tolist() if number >= 0]
                in_task = 8 * (k // SLOTS)
                assert numbers == [in_task + number for (at, _), number in sorted(want.items()) if at == k]


@settings(max_examples=60)
@patch.object(freshet.state.table, "PAGE_BYTES", 64)  # a change that is not announced hides behind no other
@given(st.sampled_from([1, 2, 3]), st.sampled_from([3, DENSE_PARTS, DENSE_PARTS + 1, 40]), st.integers(0, 1 << 30))
def test_columns_hold_what_was_put(here: int, parts: int, seed: int) -> None:
    rng, columns = np.random.default_rng(seed), Columns(here, parts)
    columns.reserve()
    for _ in range(rng.integers(1, 9)):
        many = int(rng.integers(0, 60))
        places = rng.choice(here * SLOTS * parts, min(many, here * SLOTS * parts), replace=False)
        at, of = places // parts, (places % parts).astype(np.int16)
        rows = columns.rows[at]
        act = rng.integers(4)
        if act == 0:
            columns.columns.drop(rows, of)
            for one in zip(at.tolist(), of.tolist(), strict=True):
                columns.want.pop(one, None)
        elif act == 1 and at.size:
            columns.columns.clear(rows[:2])
            columns.want = {one: number for one, number in columns.want.items() if one[0] not in at[:2]}
        else:
            numbers = rng.integers(0, 8, places.size).astype(np.int32)
            columns.columns.put(rows, of, numbers)
            columns.want |= dict(zip(zip(at.tolist(), of.tolist(), strict=True), numbers.tolist(), strict=True))
        columns.check()
        if rng.random() < 0.3:
            columns.crash()
            columns.check()


def test_rows_of_many_parts_take_what_they_hold() -> None:
    tables = TableSet()
    columns = PartColumns(tables, "numbers", 64)
    rows = np.arange(10_000, dtype=np.int32)
    columns.rows.reserve(rows.size)
    for part in (3, 60):
        columns.put(rows, np.full(rows.size, part, np.int16), rows)
    held = {table.name: int(table.part_rows[0]) * table.data[:1].nbytes for table in tables}
    assert held["numbers.head"] == 12 * rows.size
    assert held["numbers.pool"] < 40 * rows.size
    columns.clear(rows)
    before = tables["numbers.pool"].stride
    columns.put(rows, np.full(rows.size, 9, np.int16), rows)
    assert tables["numbers.pool"].stride == before, "chunks that were given back are used again"


def test_up_to_16_parts_there_is_the_table_that_there_always_was() -> None:
    names: dict[int, list[Table]] = {}
    for parts in (2, DENSE_PARTS, DENSE_PARTS + 1):
        tables = TableSet()
        PartColumns(tables, "numbers", parts)
        names[parts] = list(tables)
    assert [table.name for table in names[2]] == [table.name for table in names[DENSE_PARTS]] == ["numbers"]
    assert names[DENSE_PARTS][0].width == DENSE_PARTS
    assert [table.name for table in names[DENSE_PARTS + 1]] == ["numbers.head", "numbers.pool", "numbers.free"]
