"""Of a tail: nothing is shown before it is there, and what another start of the machine has left is not believed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from freshet.operators.sink.epoch_rows import EpochRows
from freshet.operators.sink.tail import reader, writer
from freshet.operators.sink.tail.layout import W_LAST, W_LENGTH, boot_word, job_word

WORD = job_word("00000000000000ab")
WIDTH = 3


def begun(path: Path) -> writer.TailFile:
    return writer.TailFile(path, writer.header_of(0, 0, WIDTH, strings=False, job=WORD, first_epoch=1))


def append(file: writer.TailFile, epoch: int) -> None:
    rows = [np.full((1, WIDTH), epoch, np.float32) for _ in range(3)]
    ids = [np.array([k]) for k in range(3)]
    file.append(epoch, 0, *writer.regions_of(EpochRows(epoch, ids, rows, 3, 0, None)))


def test_the_length_is_published_when_all_of_the_record_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that looks before each write, and before each word that is published, sees whole records alone."""
    path, seen = tmp_path / "a.tail", list[tuple[str, list[int]]]()
    file = begun(path)
    append(file, 1)
    write, publish = os.pwritev, writer.publish_word

    def look(what: str) -> None:
        looking, found = reader.TailReader(path, WORD), []
        while (one := looking.next()) is not None:
            assert one.rows.tolist() == [[float(one.epoch)] * WIDTH] * 3
            assert one.ids.tolist() == [0, 1, 2]
            found.append(one.epoch)
        looking.close()
        seen.append((what, found))

    def write_a_little(to: int, pieces: list[np.ndarray], at: int) -> int:
        look("write")
        return write(to, [pieces[0][:16]], at)

    def publish_and_look(words: np.ndarray, index: int, value: int) -> None:
        if index in (W_LENGTH, W_LAST):
            look("publish")
        publish(words, index, value)

    monkeypatch.setattr(writer.os, "pwritev", write_a_little)
    monkeypatch.setattr(writer, "publish_word", publish_and_look)
    append(file, 2)
    monkeypatch.undo()
    assert {what for what, _ in seen} == {"write", "publish"}
    assert all(found == [1] for _, found in seen)
    look("after")
    assert seen[-1] == ("after", [1, 2])
    file.close()


def test_a_tail_of_another_start_of_the_machine_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pages may be half on the disk: the records are no longer proved by the length."""
    file = begun(tmp_path / "a.tail")
    append(file, 1)
    file.close()
    assert reader.TailReader(tmp_path / "a.tail", WORD).next() is not None
    monkeypatch.setattr(reader, "boot_word", lambda: boot_word() ^ 1)
    with pytest.raises(reader.NotATailError, match="start of the machine"):
        reader.TailReader(tmp_path / "a.tail", WORD)


def test_a_beat_of_another_start_of_the_machine_is_not_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that beat before the machine went down does not live."""
    writer.BeatFile(tmp_path / "beat", WORD).beat(visible=3, failures=0, epoch=4)
    beat = reader.read_beat(tmp_path / "beat", WORD)
    assert beat is not None
    assert (beat.visible, beat.epoch) == (3, 4)
    monkeypatch.setattr(reader, "boot_word", lambda: boot_word() ^ 1)
    assert reader.read_beat(tmp_path / "beat", WORD) is None
