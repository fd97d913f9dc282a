"""The newest rejected records, from the end of the file of dead letters."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from freshet.job.folder import layout
from freshet.job.folder.job_file import SavedJob
from freshet.job.serving.view.job_here import NoJobError
from freshet.job.serving.view.rejected import SHOWN, letters_of, newest_in, newest_rejected
from freshet.operators.parser.letter_box import DeadLetter, DeadLetterFile
from tests.support.serving.hand_job import HandJob


def letter(offset: int, raw: bytes = b"{}") -> DeadLetter:
    return DeadLetter(f"x: expected 8 numbers, got {offset}", "events.jsonl", 0, offset, raw)


def offsets(path: Path, limit: int = 20, **bounds: int) -> tuple[list[int], bool]:
    found, truncated = newest_in(path, limit, **bounds)
    return [one["offset"] for one in found], truncated


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "dead_letters.jsonl"


def test_the_newest_come_first(path: Path) -> None:
    assert offsets(path) == ([], False)
    DeadLetterFile(path).write(map(letter, range(50)))
    assert offsets(path, 3) == ([49, 48, 47], False)
    assert offsets(path, 50) == (list(range(49, -1, -1)), False)
    assert offsets(path, 200) == (list(range(49, -1, -1)), False)


def test_a_letter_says_its_reason_and_its_record(path: Path) -> None:
    DeadLetterFile(path).write([letter(7, b'{"op":"add_vertex"}'), letter(8, b"\xff\xfe")])
    (second, first), _ = newest_in(path, 2)
    assert first["reason"] == "x: expected 8 numbers"
    assert (first["error"], first["raw"]) == ("x: expected 8 numbers, got 7", '{"op":"add_vertex"}')
    assert (second["offset"], second["raw_base64"]) == (8, "//4=")


@pytest.mark.parametrize("end", [b'{"error": "half', b"", b"\n\n", b"no letter\n", b"[1]\n", b'{"error": 3}\n'])
def test_lines_that_are_no_letters_are_left_out(path: Path, end: bytes) -> None:
    DeadLetterFile(path).write(map(letter, range(3)))
    with path.open("ab") as file:
        file.write(end)
    assert offsets(path) == ([2, 1, 0], False)


def test_files_that_were_put_aside_are_read_on(path: Path) -> None:
    one = len(letter(100).to_json()) + 1
    DeadLetterFile(path, 8 * 10 * one).write(letter(100 + k) for k in range(25))
    assert path.with_suffix(".2.jsonl").exists()
    assert offsets(path, 200) == (list(range(124, 99, -1)), False)


def test_what_is_read_is_bounded(path: Path) -> None:
    DeadLetterFile(path).write(letter(k, b"y" * 50_000) for k in range(40))
    found, truncated = offsets(path, 40, bytes_max=1 << 18)
    assert truncated
    assert found == list(range(39, 39 - len(found), -1))
    assert 3 <= len(found) <= 5


def test_a_line_longer_than_the_bound(path: Path) -> None:
    DeadLetterFile(path).write([letter(0), letter(1, b"z" * 300_000)])
    assert offsets(path, bytes_max=1 << 17) == ([], True)
    (newest, _), _ = newest_in(path, 2)
    assert (len(newest["raw"]), newest["raw_length"]) == (SHOWN, 300_000)


def test_where_they_are(tmp_path: Path) -> None:
    hand = HandJob(tmp_path / "O")
    hand.close()
    out, saved = tmp_path / "O", SavedJob.read(tmp_path / "O")

    def going_to(target: str) -> None:
        letters = replace(hand.settings.letters, target=target)
        replace(saved, settings=replace(hand.settings, letters=letters)).write(out)

    going_to("")
    assert letters_of(out) == out / layout.DEAD_LETTERS
    going_to(str(tmp_path / "elsewhere.jsonl"))
    DeadLetterFile(tmp_path / "elsewhere.jsonl").write([letter(5)])
    found = newest_rejected(out, 20)
    assert [one["offset"] for one in found["letters"]] == [5]
    assert found["file"] == str(tmp_path / "elsewhere.jsonl")
    going_to("kafka://localhost:9092/letters")
    with pytest.raises(NoJobError, match="are in the topic kafka://localhost:9092/letters"):
        letters_of(out)
    os.mkfifo(tmp_path / "pipe")
    going_to(str(tmp_path / "pipe"))
    with pytest.raises(NoJobError, match="no file that can be read again"):
        newest_rejected(out, 20)
    with pytest.raises(NoJobError, match="is not the folder of a job on this machine"):
        newest_rejected(tmp_path, 20)


def test_one_line_of_json_is_one_letter(path: Path) -> None:
    path.write_bytes(orjson.dumps({"error": "a\nb", "offset": 1}) + b"\n")
    assert offsets(path) == ([1], False)
