"""Words of a table's header: what the writer says of itself and the job is what any reader has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from freshet.state.served.layout import (
    ENDED,
    RUNS,
    STOPPED,
    T_ARRIVED_US,
    T_BEAT_US,
    T_ENDED,
    T_PUBLISHED_US,
    T_READABLE_US,
    T_SOURCE_BEAT_US,
    T_TAIL_FAILURES,
    TableShape,
)
from freshet.state.served.plain import PlainReader
from freshet.state.served.times import Moment
from freshet.state.served.writer import TableWriter


@pytest.fixture
def table(tmp_path: Path) -> TableWriter:
    return TableWriter(tmp_path / "a.table", TableShape.of(2, False, 16, 0, 0), 1, 1)


@pytest.mark.parametrize("ended", [RUNS, ENDED, STOPPED])
def test_a_beat_says_all_of_it(table: TableWriter, ended: int) -> None:
    reader = PlainReader(table.path)
    assert [reader.word(at) for at in (T_SOURCE_BEAT_US, T_TAIL_FAILURES, T_ENDED, T_BEAT_US)] == [0, 0, RUNS, 0]
    for source_us, failures in ((70, 3), (80, 0)):
        before = reader.word(T_BEAT_US)
        table.beat(source_us, failures, ended)
        assert [reader.word(at) for at in (T_SOURCE_BEAT_US, T_TAIL_FAILURES, T_ENDED)] == [source_us, failures, ended]
        assert reader.word(T_BEAT_US) > before
    table.beat(90, 0, RUNS)
    assert reader.word(T_ENDED) == RUNS, "a job that was resumed runs"


def test_an_epoch_is_published_with_its_times(table: TableWriter) -> None:
    reader = PlainReader(table.path)
    table.put(1, np.array([5]), np.ones((1, 2), np.float32))
    assert reader.epoch == -1
    table.publish(1, 50, Moment(40))
    told = [reader.word(at) for at in (T_ARRIVED_US, T_PUBLISHED_US)]
    assert (reader.epoch, told) == (1, [40_000, 50])
    readable = reader.word(T_READABLE_US)
    assert readable > 0
    table.publish(2, 60)
    told = [reader.word(at) for at in (T_ARRIVED_US, T_PUBLISHED_US)]
    assert (reader.epoch, told) == (2, [40_000, 60]), "no event has arrived for this one"
    assert reader.word(T_READABLE_US) >= readable


def test_rows_reach_as_far_as_the_greatest_epoch_that_was_put_removed_or_shown(table: TableWriter) -> None:
    """Said before a row is there: a writer that is killed meanwhile can't prove less."""
    assert (table.epoch, table.reach) == (-1, -1)
    table.put(3, np.array([5]), np.ones((1, 2), np.float32))
    assert (table.reach, table.can_go_on) == (3, False)
    table.put(2, np.array([6]), np.ones((1, 2), np.float32))
    assert table.reach == 3
    with pytest.raises(ValueError, match="there are rows up to epoch 3"):
        table.publish(2)
    table.publish(3)
    assert (table.reach, table.can_go_on) == (3, True)
    table.remove(4, np.array([6]))
    assert (table.reach, table.can_go_on) == (4, True)
    table.remove(5, np.array([9]))
    assert (table.reach, table.can_go_on) == (5, False)
    table.publish(7)
    assert (table.reach, table.can_go_on) == (7, True)
    again = TableWriter.take_over(table.path)
    assert (again.epoch, again.reach) == (7, 7)
