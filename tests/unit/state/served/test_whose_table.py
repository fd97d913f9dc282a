"""A file that is no whole table is said to be none, and a table is held exactly as long as its writer lives."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from freshet.state.served.layout import PAGE, TableShape
from freshet.state.served.mapped import MappedTable, NoTableError, is_held
from freshet.state.served.plain import PlainReader
from freshet.state.served.writer import TableWriter


def table(path: Path) -> TableWriter:
    return TableWriter(path, TableShape.of(2, False, 16, 0, 0), 1, 1)


def test_a_table_is_held_until_its_writer_is_gone(tmp_path: Path) -> None:
    """Also in the process of the writer, which goes on with another table."""
    path = tmp_path / "a.table"
    writer = table(path)
    assert is_held(path)
    del writer
    gc.collect()
    assert not is_held(path)
    again = TableWriter.take_over(path)
    assert is_held(path)
    del again
    gc.collect()
    assert not is_held(path)


@pytest.mark.parametrize("size", [0, 1, 8, 8 * PAGE - 8, 8 * PAGE - 1, 8 * PAGE, 8 * PAGE + 1, 8 * PAGE + 7, 1 << 16])
def test_a_file_that_was_cut_off_is_no_table(tmp_path: Path, size: int) -> None:
    """Others may put files beside the tables of the machine: whoever looks through them does not stumble."""
    path = tmp_path / "a.table"
    table(path)
    with path.open("r+b") as file:
        file.truncate(size)
    for kind in (MappedTable, PlainReader):
        with pytest.raises(NoTableError, match=f"not a table, it has {size} bytes"):
            kind(path)
