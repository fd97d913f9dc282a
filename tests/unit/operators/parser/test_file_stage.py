"""Blocks of parsed records: each says how many of them were rejected, why, and which letters are theirs."""

from __future__ import annotations

from pathlib import Path

from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.dead_letters import DeadLetter, DeadLetterFile
from freshet.operators.parser.file_stage import ParserStage, encoded_blocks, write_plan
from freshet.operators.parser.files import EventFile, plan_file
from freshet.operators.parser.formats import JSONL
from freshet.operators.parser.letter_box import OTHER_REASONS, LetterBox
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
