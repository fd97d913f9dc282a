"""The ring has as many entries as it says, and not one more: what is older is missed, never read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from freshet.state.served.layout import (
    R_BEFORE,
    R_EPOCH,
    R_LIVES,
    R_SEQ,
    ROW_HEAD,
    T_RESERVED,
    T_RING,
    T_ROW_WORDS,
    T_ROWS_AT,
    TableShape,
)
from freshet.state.served.plain import PlainReader
from freshet.state.served.read_kernels import MISSED, read_these, slots_in_ring
from freshet.state.served.writer import TableWriter

WIDTH, IDS, RING = 2, 8, 3


@pytest.fixture
def table(tmp_path: Path) -> TableWriter:
    """Epoch 1 of eight ids, and a ring of three entries."""
    made = TableWriter(tmp_path / "a.table", TableShape.of(WIDTH, False, 16, 0, 0), 1, 1)
    made.mem[T_RING] = RING
    put(made, 1, *range(IDS))
    made.publish(1)
    return made


def put(table: TableWriter, epoch: int, *ids: int) -> None:
    rows = np.array([[epoch, id_] for id_ in ids], np.float32)
    table.put(epoch, np.array(ids), rows)


def row_at(table: TableWriter, slot: int) -> int:
    return int(table.mem[T_ROWS_AT] + slot * table.mem[T_ROW_WORDS])


def read_at(table: TableWriter, slot: int, epoch: int) -> tuple[int, int, list[float]]:
    own, rows = np.empty(1, np.int64), np.empty((1, WIDTH), np.float32)
    code = read_these(table.mem, table.floats, np.array([slot]), epoch, own, rows)
    return code, int(own[0]), rows[0].tolist()


@pytest.mark.parametrize("later", range(2 * RING))
def test_a_former_row_is_read_while_its_entry_is_there(table: TableWriter, later: int) -> None:
    """After so many later entries of other rows."""
    put(table, 2, 0)
    for id_ in range(1, later + 1):
        put(table, 2, id_)
    assert table.word(T_RESERVED) == later + 1
    code, own, row = read_at(table, 0, 1)
    if later < RING:
        assert (code, own, row) == (0, 1, [1.0, 0.0])
    else:
        assert code == MISSED
    found = PlainReader(table.path)  # at epoch 1
    rows = found.get(np.array([IDS - 1]))
    assert (rows.epoch, rows.own.tolist(), rows.rows.tolist()) == (1, [1], [[1.0, IDS - 1.0]])


@pytest.mark.parametrize("entries", range(1, 2 * RING + 1))
def test_slots_of_entries_that_are_there(table: TableWriter, entries: int) -> None:
    ids = [5, 2, 7, 0, 3, 1][:entries]
    for id_ in ids:
        put(table, 2, id_)
    for first in range(entries):
        slots = np.full(entries - first, -9, np.int64)
        code = slots_in_ring(table.mem, first, slots)
        if entries - first <= RING:
            assert (code, slots.tolist()) == (0, ids[first:])
        else:
            assert code == MISSED


@pytest.mark.parametrize("later", range(1, 2 * RING))
def test_a_row_that_was_being_set_again_is_put_back_from_its_entry_or_is_none(table: TableWriter, later: int) -> None:
    """The epoch under way brings it again in either case."""
    put(table, 2, 0)
    for id_ in range(1, later + 1):
        put(table, 2, id_)
    row = row_at(table, 0)
    table.mem[row + R_SEQ] += 1  # killed amid the vector
    table.floats[2 * (row + ROW_HEAD)] = -5
    again = TableWriter.take_over(table.path)
    assert again.word(row + R_SEQ) % 2 == 0
    if later < RING:
        told = [again.word(row + word) for word in (R_EPOCH, R_BEFORE, R_LIVES)]
        assert told == [1, -1, 1]
        assert read_at(again, 0, 1) == (0, 1, [1.0, 0.0])
    else:
        assert again.word(row + R_LIVES) == 0
    put(again, 2, 0)
    again.publish(2)
    assert read_at(again, 0, 2) == (0, 2, [2.0, 0.0])
    assert again.word(T_RING) == RING
