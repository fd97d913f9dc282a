"""Blocks of parsed records: each says how many of them were rejected, why, and which letters are theirs."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.event_files import EventFileError
from freshet.operators.parser.files import EventFile, plan_file
from freshet.operators.parser.formats import JSONL
from freshet.operators.parser.letter_box import OTHER_REASONS, DeadLetter, DeadLetterFile, LetterBox
from freshet.operators.parser.stages import ParserStage, encoded_blocks, write_plan
from freshet.partitioner.events import Events
from freshet.schema import Features

GOOD, BAD, WORSE = b'{"op":"add_edge","src":1,"dst":2}', b"nonsense", b'{"op":"fly"}'


def test_each_block_has_the_letters_and_reasons_of_its_records() -> None:
    records = [BAD, GOOD, GOOD, WORSE, GOOD, BAD, BAD, GOOD, WORSE]
    events, letters = Parser(Features(2)).parse_jsonl(b"\n".join(records), Origin())
    found = list(encoded_blocks(events, letters, 2))
    blocks = [Events.decode(block.encoded) for block in found]
    assert [len(block) for block in blocks] == [2, 2]
    assert [block.rejected for block in blocks] == [1, 4]
    assert [sum(count for _, count in block.reasons) for block in blocks] == [1, 4]
    assert [[letter.offset for letter in block.letters] for block in found] == [[0], [3, 5, 6, 8]]
    assert [len(block.reasons) for block in blocks] == [1, 2]


def test_a_letter_for_many_is_told_by_each_block_that_has_some_of_them() -> None:
    events, _ = Parser(Features(2)).parse_jsonl(b"\n".join([BAD, BAD, GOOD, BAD, BAD, BAD, GOOD]), Origin())
    letters = [DeadLetter("one", "s", 0, 0, b""), DeadLetter("the rest, got 3", "s", 0, 1, b"", 3)]
    found = list(encoded_blocks(events, letters, 1))
    reasons = [Events.decode(block.encoded).reasons for block in found]
    assert reasons == [(("one", 1), ("the rest", 1)), (("the rest", 2), (OTHER_REASONS, 1))]
    assert [len(block.letters) for block in found] == [2, 0]


def test_letters_of_blocks_that_are_not_taken_are_not_written(tmp_path: Path) -> None:
    """A stop within a chunk has it parsed again: its letters once stood in the file twice."""
    source = tmp_path / "e.jsonl"
    source.write_bytes(b"\n".join([GOOD, BAD] * 1500))
    write_plan(plan_file(EventFile(str(source), source.name, 0, JSONL)), tmp_path / "chunks")
    box = LetterBox(DeadLetterFile(tmp_path / "dead.jsonl"))
    stage = ParserStage(tmp_path / "chunks", Parser(Features(2)), box, 1000)
    first, second = stage.parsed(0)
    assert not (tmp_path / "dead.jsonl").exists()
    assert Events.decode(stage.taken(first)).rejected == len((tmp_path / "dead.jsonl").read_bytes().splitlines()) == 999
    stage.taken(second)
    assert len((tmp_path / "dead.jsonl").read_bytes().splitlines()) == 1500
    assert [Events.decode(block).rejected for block in stage.parse(0)] == [999, 501]


def test_what_is_parsed_ahead_is_what_is_parsed_in_turn(tmp_path: Path) -> None:
    """Blocks, letters and reasons are the same; chunks may be skipped, and taken again."""
    chunks = []
    for source in range(2):
        file = tmp_path / f"{source}.jsonl"
        file.write_bytes(b"".join(b'{"op":"add_vertex","id":%d}\n%s\n' % (k, BAD) for k in range(9000)))
        chunks += plan_file(EventFile(str(file), file.name, source, JSONL))
    write_plan(chunks, tmp_path / "chunks")

    def stage(name: str, ahead: int) -> ParserStage:
        box = LetterBox(DeadLetterFile(tmp_path / name))
        parsers = [Parser(Features(2), "int") for _ in range(ahead)]
        return ParserStage(tmp_path / "chunks", Parser(Features(2), "int"), box, 1000, parsers)

    order = [*range(len(chunks)), 3, 1, 2]
    assert len(order) > 8
    alone, ahead = stage("alone.jsonl", 0), stage("ahead.jsonl", 2)
    for number in order:
        expected = [replace(Events.decode(block), arrival_ms=0.0).encode() for block in alone.parse(number)]
        assert [replace(Events.decode(block), arrival_ms=0.0).encode() for block in ahead.parse(number)] == expected
    assert (tmp_path / "ahead.jsonl").read_bytes() == (tmp_path / "alone.jsonl").read_bytes()
    ahead.close()
    deadline = time.monotonic() + 60
    while any(thread.name.startswith("freshet-ahead") for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "threads are left"
        time.sleep(0.01)


def test_an_error_of_a_chunk_that_is_parsed_ahead_comes_in_its_turn(tmp_path: Path) -> None:
    chunks = []
    for source in range(3):
        file = tmp_path / f"{source}.jsonl"
        file.write_bytes(GOOD + b"\n")
        chunks += plan_file(EventFile(str(file), file.name, source, JSONL))
    write_plan(chunks, tmp_path / "chunks")
    (tmp_path / "1.jsonl").write_bytes(b"")
    stage = ParserStage(tmp_path / "chunks", Parser(Features(2), "int"), None, 1000, [Parser(Features(2), "int")])
    assert len(stage.parse(0)) == 1
    with pytest.raises(EventFileError, match=r"1\.jsonl: expected 34 bytes, got 0: the file has changed"):
        stage.parse(1)
    assert len(stage.parse(2)) == 1
    stage.close()


def test_nothing_is_parsed_ahead_of_what_decides_the_kind_of_ids(tmp_path: Path) -> None:
    file = tmp_path / "e.jsonl"
    file.write_bytes(b"".join(b'{"op":"add_vertex","id":"%d"}\n' % k for k in range(20_000)))
    write_plan(plan_file(EventFile(str(file), file.name, 0, JSONL)), tmp_path / "chunks")
    before = threading.enumerate()  # some of a test before this one may still be ending
    stage = ParserStage(tmp_path / "chunks", Parser(Features(2)), None, 1000, [Parser(Features(2))])
    assert [sum(len(Events.decode(block)) for block in stage.parse(number)) for number in range(3)] == [
        8000,
        8000,
        4000,
    ]
    assert not [one for one in threading.enumerate() if one.name.startswith("freshet-ahead") and one not in before]
