"""Records of tails in pieces, whatever their size: the last one says that nothing more comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from freshet.job.serving.feeds import tail_stream
from freshet.job.serving.tables import part_tails
from freshet.job.serving.tables.part_tails import PartTails
from freshet.operators.sink.epoch_rows import EpochRows
from freshet.operators.sink.tail import writer
from freshet.operators.sink.tail.layout import TailName, job_word
from freshet.operators.sink.tail.reader import TailEpoch, TailReader

WORD = job_word("00000000000000ab")


def tail(folder: Path, number: int, epochs: range, rows: int = 1) -> writer.TailFile:
    header = writer.header_of(0, number, 2, strings=False, job=WORD, first_epoch=epochs.start)
    file = writer.TailFile(folder / str(TailName(0, number, "0a1b2c3d")), header)
    for epoch in epochs:
        ids, vectors = [np.arange(rows)], [np.full((rows, 2), epoch, np.float32)]
        file.append(epoch, 0, *writer.regions_of(EpochRows(epoch, ids, vectors, rows, 0, None)))
    return file


def record(folder: Path, rows: int) -> TailEpoch:
    file = tail(folder, 0, range(1, 2), rows)
    found = TailReader(file.path, WORD).next()
    assert found is not None
    file.close()
    return found


@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize("more", [-8, 0, 8])
def test_the_last_piece_of_a_record_says_so(
    tmp_path: Path, pieces: int, more: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a record that is a whole number of pieces: whoever takes it waits for no further one."""
    one = record(tmp_path, rows=9)
    monkeypatch.setattr(tail_stream, "PIECE_BYTES", (one.raw.nbytes + more) // pieces)
    heads, taken = list[dict[str, Any]](), list[np.ndarray]()
    for batch, head in tail_stream._record(3, one):
        heads.append(orjson.loads(head))
        taken.append(batch.column(0).to_numpy())
    assert np.array_equal(np.concatenate(taken), one.raw)
    assert all(piece.size for piece in taken)
    assert [head["more"] for head in heads] == [True] * (len(heads) - 1) + [False]
    assert {(head["part"], head["epoch"]) for head in heads} == {(3, 1)}


def test_files_are_let_go_before_they_are_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that goes on another way and comes back does so for months."""
    opened = list[TailReader]()

    class Counted(TailReader):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            opened.append(self)

    monkeypatch.setattr(part_tails, "TailReader", Counted)
    files = [tail(tmp_path, 0, range(1, 3)), tail(tmp_path, 1, range(3, 5))]
    part = PartTails(tmp_path, 0, WORD)
    for _ in range(5):
        found = part.get(1)
        assert found is not None
        assert found.epoch == 1
        part.rewind()
    assert len(opened) >= 5
    assert all(reader._file == -1 for reader in opened)
    part.close()
    for file in files:
        file.close()
