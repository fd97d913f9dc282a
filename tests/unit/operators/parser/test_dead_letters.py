"""The dead letter file."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path

from freshet.operators.parser.letter_box import FILES, DeadLetter, DeadLetterFile


def test_letters_are_appended_as_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "new" / "dead_letters.jsonl"
    file = DeadLetterFile(path)
    file.write([])
    assert not path.exists()
    file.write([DeadLetter("op: missing", "a.jsonl", 0, 4, b'{"id":"\xc3\xa4"}')])
    file.write([DeadLetter("not UTF-8", "a.jsonl", 1, 5, b"\xff\0"), DeadLetter("e", "b\udcff", 0, 0, b"")])
    assert len(path.read_bytes().splitlines()) == 3
    DeadLetterFile(path).write([DeadLetter("again", "c", 0, 0, b"x\ny")])
    letters = [json.loads(line) for line in path.read_text().splitlines()]
    assert letters == [
        {"error": "op: missing", "source": "a.jsonl", "partition": 0, "offset": 4, "raw": '{"id":"ä"}'},
        {
            "error": "not UTF-8",
            "source": "a.jsonl",
            "partition": 1,
            "offset": 5,
            "raw_base64": base64.b64encode(b"\xff\0").decode(),
        },
        {"error": "e", "source": "b?", "partition": 0, "offset": 0, "raw": ""},
        {"error": "again", "source": "c", "partition": 0, "offset": 0, "raw": "x\ny"},
    ]


# -- the files have a limit -------------------------------------------------------------------------------------------


def letter(offset: int, source: str = "a", size: int = 0) -> DeadLetter:
    return DeadLetter("op: missing", source, 0, offset, b"x" * size)


def offsets(path: Path) -> list[int]:
    return [json.loads(line)["offset"] for line in path.read_text().splitlines()]


def all_files(path: Path) -> list[Path]:
    """From the newest on."""
    older = sorted(path.parent.glob(f"{path.stem}.?{path.suffix}"))
    return [path, *older]


def test_the_newest_letters_stay_and_the_oldest_are_dropped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "dead_letters.jsonl"
    one = len(letter(100_000).to_json()) + 1
    file = DeadLetterFile(path, FILES * 10 * one)
    for first in range(100_000, 100_155, 7):
        file.write([letter(offset) for offset in range(first, min(first + 7, 100_155))])
        assert sum(each.stat().st_size for each in all_files(path)) <= FILES * 10 * one
    assert [each.name for each in all_files(path)][:3] == [path.name, "dead_letters.1.jsonl", "dead_letters.2.jsonl"]
    assert offsets(path) == list(range(100_150, 100_155))
    kept = [offset for each in reversed(all_files(path)) for offset in offsets(each)]
    assert kept == list(range(100_000 + file.dropped, 100_155))
    assert file.dropped == 80


def test_without_a_limit_there_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "dead_letters.jsonl"
    file = DeadLetterFile(path)
    for offset in range(50):
        file.write([letter(offset, size=10_000)])
    assert all_files(path) == [path]
    assert file.dropped == 0


def test_a_letter_that_is_larger_than_a_file_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "letters"  # a name without a suffix
    file = DeadLetterFile(path, FILES * 100)
    file.write([letter(1), letter(2, size=5_000), letter(3)])
    assert [offsets(each) for each in (path, tmp_path / "letters.1", tmp_path / "letters.2")] == [[3], [2], [1]]


def test_operators_that_write_to_one_file_lose_nothing(tmp_path: Path) -> None:
    """As processes do: each opens the file and the lock for itself."""
    path = tmp_path / "dead_letters.jsonl"
    writers = [DeadLetterFile(path, 120_000) for _ in range(4)]

    def run(number: int) -> None:
        for offset in range(0, 400, 2):
            writers[number].write([letter(offset, f"source {number}"), letter(offset + 1, f"source {number}")])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    lines = [json.loads(line) for each in reversed(all_files(path)) for line in each.read_text().splitlines()]
    dropped = sum(file.dropped for file in writers)
    assert len(lines) + dropped == 1600
    assert dropped > 100
    for number in range(4):
        own = [line["offset"] for line in lines if line["source"] == f"source {number}"]
        assert own == list(range(400 - len(own), 400)), "none is missing in between, none comes twice"


def test_what_is_no_file_is_written_to_as_it_is() -> None:
    file = DeadLetterFile("/dev/null", 8)
    file.write([letter(1), letter(2)])
    assert file.dropped == 0
    assert not Path("/dev/.null.lock").exists()
