"""How long the files of the change log are."""

from __future__ import annotations

from operators.sink.log_output import BYTES_PER_FILE, ROWS_OF_FILE, rows_per_file


def test_what_all_parts_hold_back_hardly_grows_with_their_number() -> None:
    assert rows_per_file(1, 40) == ROWS_OF_FILE
    assert rows_per_file(1, 1024) == BYTES_PER_FILE // 4096
    assert rows_per_file(4, 40) == ROWS_OF_FILE // 4
    assert rows_per_file(64, 4) == rows_per_file(10_000, 4) == 32_768, "no smaller ones"
    assert rows_per_file(64, 1024) == 1024, "4 MiB"
    assert rows_per_file(3, 1 << 30) == 1
