"""The tail: readers see whole epochs only, the same in every attempt, and the job never minds what becomes of it."""

from __future__ import annotations

import errno
import mmap
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from freshet.kernels import atomics
from freshet.operators.sink.epoch_rows import EpochRows
from freshet.operators.sink.tail import writer
from freshet.operators.sink.tail.layout import PAGE, W_LENGTH, TailName, TailNote, beat_name, job_word
from freshet.operators.sink.tail.output import TailOutput
from freshet.operators.sink.tail.reader import NotATailError, TailReader, read_beat
from freshet.state.served.ids import Texts
from tests.support.stages.sunk import WIDTH, block, control, log_of, sink_of, tail_of, vector

JOB = "00000000000000ab"
WORD = job_word(JOB)


def tailed(out, kind="int", limit=1 << 30, job=JOB, **options):
    note = TailNote(job, 1, WIDTH, kind == "string")
    sink = sink_of(out, kind=kind, tail=lambda log: TailOutput(out / "tables" / "tail", 0, note, log, limit), **options)
    return sink, tail_of(sink)


def tails(out) -> list[Path]:
    return sorted(path for path in (out / "tables" / "tail").iterdir() if TailName.parse(path.name))


def epochs_in(path):
    reader, found = TailReader(path, WORD), []
    while (one := reader.next()) is not None:
        found.append(one)
    reader.close()
    return found


def test_a_file_that_its_writer_ends_as_it_is_mapped(tmp_path, monkeypatch):
    """It is cut off to what is in it: a reader that has just looked at its size asks for more than there is."""
    ids, rows = [np.array([7, 8])], [np.full((2, WIDTH), 1, np.float32)]
    regions, counts = writer.regions_of(EpochRows(1, ids, rows, 2, 0, np.array([[0, 0, 5, 5]])))
    file = writer.TailFile(tmp_path / "a.tail", writer.header_of(0, 0, WIDTH, False, WORD, 1))
    file.append(1, 0, regions, counts)
    there, map_file = (tmp_path / "a.tail").stat().st_size, mmap.mmap

    def ended_and_mapped(*given, **options):
        file.close()
        assert (tmp_path / "a.tail").stat().st_size < there
        return map_file(*given, **options)

    monkeypatch.setattr(mmap, "mmap", ended_and_mapped)
    reader = TailReader(tmp_path / "a.tail", WORD)
    monkeypatch.setattr(mmap, "mmap", map_file)
    found = reader.next()
    assert found is not None and found.epoch == 1
    assert reader.ended


@pytest.mark.parametrize("offsets", [[[0, 1, 3], [0, 2]], None])
def test_an_epoch_that_comes_in_pieces_lies_in_one_row(tmp_path, offsets):
    """Each region is padded at its end alone."""
    rows = [np.full((2, 3), 1, np.float32), np.full((1, 3), 2, np.float32)]
    texts = [np.frombuffer(text, np.uint8) for text in (b"abc", b"de")]
    ids = [np.array([7, 8]), np.array([9])]
    if offsets is not None:
        ids = [(np.array(one, np.int32), text) for one, text in zip(offsets, texts, strict=True)]
    regions, counts = writer.regions_of(EpochRows(1, ids, rows, 3, 0, np.array([[0, 0, 5, 5]])))
    header = writer.header_of(0, 0, 3, offsets is not None, WORD, 1)
    file = writer.TailFile(tmp_path / "a.tail", header)
    for epoch in (1, 2):
        file.append(epoch, 0, regions, counts)
    file.close()
    for one in epochs_in(tmp_path / "a.tail"):
        assert one.rows.tolist() == [[1.0] * 3, [1.0] * 3, [2.0] * 3]
        assert one.positions.tolist() == [[0, 0, 5, 5]]
        if one.text is None:
            assert one.ids.tolist() == [7, 8, 9]
        else:
            assert Texts.of(one.ids, one.text).decode() == ["a", "bc", "de"]
    assert len(epochs_in(tmp_path / "a.tail")) == 2


@pytest.mark.parametrize("at_once", [None, 7, 1000])
def test_records_of_many_pieces_written_a_little_at_a_time(tmp_path, monkeypatch, at_once):
    keys = [np.arange(k, k + 1) for k in range(3000)]
    rows = EpochRows(1, keys, [np.full((1, 3), k, np.float32) for k in range(3000)], 3000, 0, None)
    whole = os.pwritev
    if at_once:  # as a signal may have it, or a disk that is nearly full
        monkeypatch.setattr(writer.os, "pwritev", lambda file, some, at: whole(file, [some[0][:at_once]], at))
    header = writer.header_of(part=0, number=0, width=3, strings=False, job=WORD, first_epoch=1)
    file = writer.TailFile(tmp_path / "a.tail", header)
    regions, counts = writer.regions_of(rows)
    file.append(1, 0, regions, counts)
    file.close()
    [one] = epochs_in(tmp_path / "a.tail")
    assert one.ids.tolist() == list(range(3000))
    assert one.rows[:, 0].tolist() == list(range(3000))


def test_an_epoch_is_readable_as_soon_as_it_was_applied(tmp_path):
    sink, _ = tailed(tmp_path)
    sink.apply(1, [block(1, [7, 9], control=control(arrival=5), positions=[(0, 0, 2, 2)])])
    [path] = tails(tmp_path)
    reader = TailReader(path, WORD)
    one = reader.next()
    assert one is not None
    assert (one.epoch, one.changed, one.deleted, one.arrived_ms) == (1, 2, 0, 5)
    assert one.ids.tolist() == [7, 9]
    assert np.array_equal(one.rows, [vector(7, 1), vector(9, 1)])
    assert one.positions.tolist() == [[0, 0, 2, 2]]
    assert reader.next() is None
    sink.apply(2, [block(2, [9], dead=[7], control=control())])
    sink.apply(3, [block(3, control=control())])  # an epoch without rows
    two, three = reader.next(), reader.next()
    assert (two.ids.tolist(), two.changed, two.deleted, len(two.positions)) == ([9, 7], 1, 1, 0)
    assert (three.epoch, three.ids.tolist(), three.rows.shape) == (3, [], (0, WIDTH))
    assert not reader.ended
    sink.close()
    assert reader.next() is None
    assert reader.ended
    assert path.stat().st_size < 2 * PAGE, "what was reserved is given back"
    beat = read_beat(path.with_name(beat_name(0)), WORD)
    assert (beat.epoch, beat.failures) == (3, 0)
    assert read_beat(path.with_name(beat_name(0)), WORD + 1) is None, "of another job"


def test_string_ids(tmp_path):
    sink, _ = tailed(tmp_path, "string")
    sink.apply(1, [block(1, [7, 9], control=control(), names={7: "anna", 9: ""})])
    sink.apply(2, [block(2, [9], dead=[7], control=control())])
    sink.apply(3, [block(3, control=control())])
    sink.close()
    one, two, three = epochs_in(tails(tmp_path)[0])
    assert (one.ids.tolist(), one.text.tobytes()) == ([0, 4, 4], b"anna")
    assert (two.ids.tolist(), two.text.tobytes()) == ([0, 0, 4], b"anna")
    assert np.array_equal(two.rows, [vector(9, 2)])
    assert (three.changed, three.ids.size) == (0, 0)


def test_a_large_epoch_and_a_reader_that_mapped_less(tmp_path):
    sink, _ = tailed(tmp_path)
    sink.apply(1, [block(1, [1], control=control())])
    reader = TailReader(tails(tmp_path)[0], WORD)
    assert reader.next().epoch == 1
    many = range(100_000)
    sink.apply(2, [block(2, many, control=control())])
    two = reader.next()
    assert two.ids.tolist() == list(many)
    assert np.array_equal(two.rows[[0, 99_999]], [vector(0, 2), vector(99_999, 2)])
    sink.close()
    assert np.array_equal(two.rows[[0, 99_999]], [vector(0, 2), vector(99_999, 2)]), "also after the file was cut"


def test_a_torn_end_is_no_record(tmp_path):
    sink, _ = tailed(tmp_path)
    for epoch in (1, 2):
        sink.apply(epoch, [block(epoch, [1, 2, 3], control=control())])
    sink.close()
    [path] = tails(tmp_path)
    whole = path.read_bytes()
    for size in range(len(whole) - 1, PAGE, -37):
        path.write_bytes(whole[:size])
        assert [one.epoch for one in epochs_in(path)] == ([1] if size >= PAGE + (len(whole) - PAGE) // 2 else [])
    unpublished = bytearray(whole)
    unpublished[8 * W_LENGTH : 8 * W_LENGTH + 8] = (PAGE).to_bytes(8, "little")
    path.write_bytes(unpublished)
    assert epochs_in(path) == [], "what no length covers was never published"
    path.write_bytes(whole[:100])
    with pytest.raises(NotATailError):
        TailReader(path, WORD)


def test_files_follow_the_change_log_and_go_when_that_shows_them(tmp_path):
    sink, _ = tailed(tmp_path, limit=1)
    for epoch in range(1, 9):
        sink.apply(epoch, [block(epoch, [epoch], control=control(marker=epoch))])
        log_of(sink).writer.wait()
    assert [TailName.parse(path.name).number for path in tails(tmp_path)] == [7]
    sink.close()
    sink, _ = tailed(tmp_path / "b", limit=1)
    log_of(sink).writer.visible_epoch = -1
    hidden = log_of(sink).writer.write_now
    log_of(sink).writer.write_now = lambda file: None  # the disk is slow
    for epoch in range(1, 4):
        sink.apply(epoch, [block(epoch, [epoch], control=control(flags=8))])
    assert len(tails(tmp_path / "b")) == 3, "nothing goes before others can read it in a file"
    log_of(sink).writer.write_now = hidden
    sink.close(write=False)


def test_two_attempts_at_once_tell_the_same(tmp_path):
    first, _ = tailed(tmp_path)
    second, _ = tailed(tmp_path)
    for epoch in (1, 2, 3):
        for sink in (first, second):
            sink.apply(epoch, [block(epoch, [epoch, 7], control=control())])
    one, two = tails(tmp_path)
    assert TailName.parse(one.name).number == TailName.parse(two.name).number
    for a, b in zip(epochs_in(one), epochs_in(two), strict=True):
        assert (a.epoch, a.ids.tolist(), a.rows.tolist()) == (b.epoch, b.ids.tolist(), b.rows.tolist())
    first.close()
    second.close()


def test_a_restore_begins_a_file_of_its_own(tmp_path):
    sink, _ = tailed(tmp_path)
    sink.apply(1, [block(1, [1], control=control())])
    sink.after_restore()
    log_of(sink).writer.visible_epoch = 0  # as after a restore to what was before it
    sink.apply(1, [block(1, [1], control=control())])
    assert [[one.epoch for one in epochs_in(path)] for path in tails(tmp_path)] == [[1], [1]]
    sink.close()


@pytest.mark.parametrize("at", [0, 1])  # when the file is made, and when it grows
def test_a_full_disk_is_counted_and_the_job_goes_on(tmp_path, monkeypatch, caplog, at):
    sink, tail = tailed(tmp_path)
    real, calls = os.posix_fallocate, []

    def full(file, offset, size):
        calls.append(size)
        if len(calls) > at and size > PAGE:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(file, offset, size)

    monkeypatch.setattr(writer.os, "posix_fallocate", full)
    sink.apply(1, [block(1, [1], control=control())])
    sink.apply(2, [block(2, range(100_000), control=control())])
    assert tail.failures == 1
    (said,) = (one for one in caplog.records if "the tail could not be written" in one.message)
    assert said.message.endswith("No space left on device")
    assert not said.exc_info, "a traceback says nothing of a disk that is full"
    assert [one.epoch for path in tails(tmp_path) for one in epochs_in(path)] == ([1] if at else [])
    sink.apply(3, [block(3, [1], control=control(marker=1))])  # here the change log's next file begins
    monkeypatch.undo()
    sink.apply(4, [block(4, [1], control=control())])
    assert [one.epoch for one in epochs_in(tails(tmp_path)[-1])] == [4]
    assert read_beat(tail.folder / beat_name(0), WORD).failures == 1
    assert sink.status(0.0)["tail_failures"] == 1
    sink.close()
    assert sink.status(0.0)["rows"] == 1 + 100_000 + 1 + 1


def test_files_of_another_job_are_not_read_and_go(tmp_path):
    sink, _ = tailed(tmp_path, job="0000000000000001")
    sink.apply(1, [block(1, [1], control=control())])
    sink.close(write=False)
    [path] = tails(tmp_path)
    with pytest.raises(NotATailError):
        TailReader(path, WORD)
    sink, _ = tailed(tmp_path)
    sink.apply(1, [block(1, [1], control=control())])
    assert [one.epoch for path in tails(tmp_path) for one in epochs_in(path)] == [1]
    sink.close()


def test_the_latency_ends_when_the_tail_has_the_row(tmp_path):
    now = [1000.0]
    sink, _ = tailed(tmp_path, clock_ms=lambda: now[0])
    sink.apply(1, [block(1, [1], control=control(arrival=990))])
    now[0] = 9000.0  # when the file closes
    sink.apply(2, [block(2, [1], control=control(events=0, marker=1))])
    log_of(sink).writer.wait()
    assert sink.status(9000.0)["latency_ms_p50"] < 20
    sink.close()


def test_compiled_code_has_the_atomic_instructions():
    """Of a kernel as it runs here: acquire and release in LLVM's code, and what the processor makes of a fence."""
    code = """
import numpy as np
from freshet.kernels.kernel import kernel
from freshet.kernels.atomics import fence_acquire, fence_release, load_acquire, store_release
@kernel
def f(w):
    a = load_acquire(w, np.int64(0)); fence_acquire(); b = w[1]; fence_release(); w[2] = b
    store_release(w, np.int64(3), a)
w = np.arange(4)
f(w)
assert w.tolist() == [0, 1, 1, 0]
print(list(f.inspect_llvm().values())[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    for expected in (r"load atomic i64, .* acquire", r"store atomic i64 .* release", "fence acquire", "fence release"):
        assert re.search(expected, done.stdout), expected


def test_words_from_python():
    words = np.zeros(8, np.int64)
    atomics.publish_word(words, 3, -5)
    assert (atomics.read_word(words, 3), words.tolist()) == (-5, [0, 0, 0, -5, 0, 0, 0, 0])
