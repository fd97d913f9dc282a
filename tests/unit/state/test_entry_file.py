"""Entries come back from their file as they were, and a torn file is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet.state.entry_file import TornEntriesError, read_entries, write_entries

ENTRIES = {"journal/000000000000/0": b"\0" * 1000, "sealed": b"{}", "vertex/0@1": b"", "é": bytes(range(256))}


def test_round_trip(tmp_path: Path) -> None:
    write_entries(tmp_path / "entries", ENTRIES.items())
    assert dict(read_entries(tmp_path / "entries")) == ENTRIES
    write_entries(tmp_path / "none", [])
    assert list(read_entries(tmp_path / "none")) == []


@pytest.mark.parametrize("kept", [0, 1, 12, 500, -1])
def test_a_torn_file(tmp_path: Path, kept: int) -> None:
    write_entries(tmp_path / "entries", ENTRIES.items())
    data = (tmp_path / "entries").read_bytes()
    (tmp_path / "entries").write_bytes(data[:kept])
    with pytest.raises(TornEntriesError):
        list(read_entries(tmp_path / "entries"))
