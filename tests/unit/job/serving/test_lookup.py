"""A few ids by the short way get what the long way says, or are left to it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest

from freshet import NotReadyError
from freshet.job.serving.protocol.wanted import NOTHING_SPECIAL, ROW, Wanted
from freshet.job.serving.tables import served as tables_served
from freshet.job.serving.tables.lookup import FEW, Lookup
from freshet.job.serving.tables.served import CurrentTable
from tests.support.serving.served import Served


@pytest.fixture(scope="module", params=["int", "string"])
def served(request, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    one = Served(tmp_path_factory.mktemp("served") / "O", request.param)
    yield one
    one.close()


def test_few_ids(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    lookup, epoch = served.lookup, served.lookup.table.epoch
    column = pa.array([9, 3, 2, 4, 2], pa.int64())[1:]  # not from the beginning of its memory
    found = lookup.few(column, Wanted(min_epoch=epoch))
    if served.hand.kind == "string":
        assert found is None
        return
    assert found is not None
    answer = lookup.get(np.array([3, 2, 4, 2]))
    assert found[:2] == (answer.served, answer.epoch)
    assert found[2].equals(lookup.as_batch(answer))
    assert found[2].column(1).to_pylist() == [1] * 4
    before = lookup.ids_found
    assert lookup.few(column) is not None
    assert lookup.ids_found == before + 4
    assert lookup.few(pa.array([2, 99])) is None, "one is not there"
    assert lookup.few(column, Wanted(min_epoch=epoch + 1)) is None, "not yet"
    assert lookup.few(column, Wanted(min_position={"0": 1})) is None
    assert lookup.few(pa.array([2] * FEW)) is not None
    assert lookup.few(pa.array([2] * (FEW + 1))) is None
    assert lookup.few(column[:0], NOTHING_SPECIAL) is not None
    row = lookup.served._replace(job=lookup.job._replace(consistency=ROW))
    monkeypatch.setattr(CurrentTable, "at_hand", lambda _table: row)
    assert lookup.few(column, Wanted(min_epoch=1)) is None, "rows are of no epoch"
    assert lookup.few(column) is not None


def test_what_is_no_column_of_numbers_goes_the_long_way(served: Served) -> None:
    key = (lambda number: f"v{number}") if served.hand.kind == "string" else int
    with served.client("flight") as client:
        for ids in ([], [2], [2, 99], [3] * (FEW + 1)):
            table = client.get([key(one) for one in ids])
            assert table["id"].to_pylist() == [key(one) for one in ids if one != 99]


def test_what_needs_the_whole_table_waits_until_it_is_taken_over(served: Served) -> None:
    current, asked = CurrentTable(served.hand.out / "tables"), served.lookup.ids_of([])
    current.begin_with(served.lookup.table.path)
    lookup, epoch = Lookup(current), served.lookup.table.epoch
    later = ThreadPoolExecutor(1).submit(lookup.all)
    assert lookup.get(asked).epoch == epoch
    assert not later.done()
    current.go_on()
    assert later.result(timeout=60).epoch == epoch


def test_the_wait_for_the_whole_table_ends(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables_served, "_WHOLE_S", 0.01)
    current = CurrentTable(served.hand.out / "tables")
    current.begin_with(served.lookup.table.path)
    with pytest.raises(NotReadyError, match="is being taken over; try again"):
        Lookup(current).all()
