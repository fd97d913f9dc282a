"""Times of epochs in a table: those of the newest ones, and the greatest up to each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from freshet.state.served import layout
from freshet.state.served.layout import T_TIMES, TableShape
from freshet.state.served.plain import PlainReader
from freshet.state.served.reader import TableReader
from freshet.state.served.times import NO_TIME, Moment
from freshet.state.served.writer import TableWriter

NONE = [NO_TIME, NO_TIME]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableWriter:
    monkeypatch.setattr(layout, "TIMES", 8)
    return TableWriter(tmp_path / "a.table", TableShape.of(2, False, 16, 0, 0), 1, 1)


@pytest.mark.parametrize("reads", [PlainReader, TableReader])
def test_an_epoch_has_its_own_times_and_the_greatest_up_to_it(table: TableWriter, reads: type) -> None:
    reader = reads(table.path)
    table.publish(3, own=Moment(100, 7_000), so_far=Moment(50, 9_000))
    table.publish(4, own=Moment(90))
    table.publish(5)
    table.publish(6, own=Moment(None, -5))
    assert [reader.so_far(epoch) for epoch in (3, 4, 5, 6)] == [Moment(100, 9_000)] * 4
    assert reader.times(np.array([6, 3, 5, 4, 2, -1])).tolist() == [
        [NO_TIME, -5],
        [100, 7_000],
        NONE,
        [90, NO_TIME],
        NONE,
        NONE,
    ]
    assert [reader.so_far(epoch) for epoch in (2, 7, -1, 11)] == [Moment()] * 4


def test_the_newest_epochs_take_the_place_of_older_ones(table: TableWriter) -> None:
    reader = PlainReader(table.path)
    for epoch in range(20):
        table.publish(epoch, own=Moment(epoch))
    assert reader.times(np.arange(20))[:, 0].tolist() == [NO_TIME] * 12 + list(range(12, 20))
    table.note_epochs({21: Moment(21), 22: Moment(22)})
    table.publish(23, own=Moment(23))
    assert reader.times(np.arange(20, 24))[:, 0].tolist() == [NO_TIME, 21, 22, 23]


def test_a_larger_table_has_the_times_of_the_former(table: TableWriter, tmp_path: Path) -> None:
    table.publish(4, own=Moment(40, 400))
    larger = TableWriter(tmp_path / "b.table", TableShape.of(2, False, 4096, 0, 0), 1, 1)
    larger.publish(4)
    larger.take_times(table)
    larger.publish(5)
    assert PlainReader(larger.path).so_far(5) == Moment(40, 400)
    assert PlainReader(larger.path).times(np.array([4])).tolist() == [[40, 400]]


def test_a_table_of_an_earlier_version_knows_no_times(table: TableWriter) -> None:
    table.mem[T_TIMES] = 0
    table.publish(1, own=Moment(1, 2))
    reader = PlainReader(table.path)
    assert (reader.so_far(1), reader.times(np.array([1])).tolist()) == (Moment(), [NONE])
