"""Slots of several parts as rows of shared tables."""

from __future__ import annotations

import numpy as np
import pytest

from freshet.operators.graph.part_rows import PartRows
from freshet.state.adjacency import Lists, append
from freshet.state.table import TableSet
from freshet.state.task_parts import TaskParts
from tests.support.stages.blocks import topology


def two_of_five() -> tuple[PartRows, TableSet]:
    """Parts 3 and 4, the second of two tasks."""
    at = PartRows(1, TaskParts.dealt(5, 2))
    tables = TableSet(len(at.here))
    at.keep(tables.add("x", "f4", 2), tables.add("flags", "u1"))
    return at, tables


def test_a_row_goes_there_and_back() -> None:
    at, tables = two_of_five()
    block = topology(1, m_to=[4, 3, 4], m_slot=[0, 7, 40], m_key=[1, 2, 3])
    at.reserve(block, "m")
    rows = at.of(block, "m")
    assert at.needs.tolist() == [8, 41]
    assert {len(table.data) for table in tables} == {2 * 64}, "every table has the same stride"
    columns = at.place_columns("o", rows)
    assert columns["o_to"].tolist() == [4, 3, 4]
    assert columns["o_slot"].tolist() == [0, 7, 40]


def test_what_the_parts_hold_moves_along_when_one_grows() -> None:
    at, tables = two_of_five()
    small = topology(1, m_to=[3, 4], m_slot=[5, 5], m_key=[1, 2])
    at.reserve(small, "m")
    tables["flags"].data[at.of(small, "m")] = [1, 2]
    at.reserve(topology(2, m_to=[4], m_slot=[1000], m_key=[3]), "m")
    assert tables["flags"].data[at.of(small, "m")].tolist() == [1, 2]


def test_a_part_alone_has_slots_for_rows() -> None:
    at = PartRows(2, TaskParts.dealt(4, 4))
    at.keep(TableSet().add("flags", "u1"))
    block = topology(1, m_slot=[9, 4], m_key=[1, 2])
    at.reserve(block, "m")
    assert at.of(block, "m").tolist() == [9, 4]
    assert list(at.place_columns("o", at.of(block, "m"))) == ["o_slot"]


@pytest.mark.parametrize("parts", [1, 3])
def test_lists_of_parts_do_not_meet_in_their_pools(parts: int) -> None:
    at = PartRows(0, TaskParts.dealt(parts, 1))
    lists = Lists(TableSet(parts), "out")
    at.keep(lists)
    to = {"m_to": np.repeat(np.arange(parts), 10)} if parts > 1 else {}
    block = topology(1, m_slot=[*range(10)] * parts, m_key=range(10 * parts), **to)
    at.reserve(block, "m")
    expected: dict[int, list[int]] = {}
    for value in range(300):
        for row in at.of(block, "m").tolist():
            while not append(lists.view, row, value + row, np.float32(1), 0):
                lists.grow()
            expected.setdefault(row, []).append(value + row)
    assert {row: lists.of(row).tolist() for row in expected} == expected
