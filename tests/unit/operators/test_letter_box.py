"""Rejected records on their way to a file or a topic, and how many there were of each reason."""

import base64
import json

import pytest

from operators.dead_letters import DeadLetter, DeadLetterFile
from operators.letter_box import (
    BLOCK_BYTES,
    LETTER_BYTES,
    OTHER_REASONS,
    REASONS_MAX,
    LetterBox,
    LetterQueue,
    read_reasons,
    reason_of,
)
from operators.parser import Origin, Parser, RawMessage
from tests.support.kafka_records import split


def letter(error="x: missing", raw=b"{}", offset=0, source="kafka://h:1/t", partition=2):
    return DeadLetter(error, source, partition, offset, raw)


def records(queue):
    return [(key.decode(), json.loads(value)) for block in queue.take() for key, value in split(block.encode())]


def test_a_record_says_what_the_file_form_says():
    queue = LetterQueue()
    letters = [
        letter(raw='{"é😀": "\t"}\n'.encode(), offset=7),
        letter(raw=b"\xff\x00", offset=8, source="ä b\t.jsonl"),
        letter(raw=b""),
    ]
    queue.write(letters)
    found = records(queue)
    assert [key for key, _ in found] == ["kafka://h:1/t/2/7", "ä b\t.jsonl/2/8", "kafka://h:1/t/2/0"]
    assert [value for _, value in found] == [json.loads(one.to_json()) for one in letters]
    assert records(queue) == []


@pytest.mark.parametrize("byte", [b"x", b"\x00", b"\xff"])
def test_a_record_that_is_too_long_for_kafka_is_cut(byte):
    queue = LetterQueue()
    queue.write([letter(raw=byte * 5_000_000)])
    [block] = queue.take()
    assert len(block) < LETTER_BYTES
    [(_, value)] = split(block.encode())
    record = json.loads(value)
    assert record["raw_bytes"] == 5_000_000
    assert base64.b64decode(record["raw_base64"]) == byte * (64 << 10)
    assert "raw" not in record


def test_many_come_in_blocks():
    queue = LetterQueue()
    queue.write(letter(raw=b"x" * 1000, offset=k) for k in range(500))
    blocks = queue.take()
    assert len(blocks) > 3
    assert max(map(len, blocks)) < BLOCK_BYTES + 2000
    assert sum(len(split(block.encode())) for block in blocks) == 500


def test_reasons_are_counted_without_the_values():
    lines = [
        b'{"op":"add_vertex","id":1,"x":[1]}',
        b'{"op":"add_vertex","id":1,"x":[1,2,3]}',
        b'{"op":"add_vertex","id":1,"x":[1,"a"]}',
        b'{"op":"add_vertex","id":1,"x":["b",1]}',
        b'{"op":"add_vertex","id":1,"x":[1,1e39]}',
        b'{"op":"fly"}',
        b'{"op":"walk"}',
        b'{"op":"add_edge","src":1,"dst":1.5}',
        b'{"op":"add_edge","src":1}',
        b"{",
        b'{"a" 1}',
        b"[1]",
    ]
    _, letters = Parser(2, "int", None).parse_jsonl(b"\n".join(lines), Origin())
    assert len(letters) == len(lines)
    box = LetterBox(LetterQueue())
    box.write(letters)
    assert box.reasons.total() == len(lines)
    assert box.reasons["x: expected 2 numbers"] == 2
    assert box.reasons["x: expected numbers"] == 2
    assert box.reasons["x: not finite in float32"] == 1
    assert box.reasons["dst: missing"] == 1
    assert box.reasons["dst: expected an integer"] == 1
    assert max(count for reason, count in box.reasons.items() if reason.startswith("op: expected one of")) == 2
    assert len([reason for reason in box.reasons if "JSON" in reason]) <= 3


def test_reasons_stay_few_whatever_the_records_hold():
    lines = [b" " * k + b"\xff" for k in range(50)]
    _, letters = Parser(2, "int", None).parse_jsonl(b"\n".join(lines), Origin())
    arrow = [b"\xff" * 4 + bytes([k, 1, 0, 0]) * k for k in range(1, 50)]
    letters += Parser(2).parse_messages([RawMessage(k, value) for k, value in enumerate(arrow)], Origin())[1]
    foreign = Parser(2, "int", None, {"op": "op", "weight": "abs(weight)"})
    lines = [b'{"op":"add_edge","weight":"%d"}' % k for k in range(50)]
    letters += foreign.parse_jsonl(b"\n".join(lines), Origin())[1]
    assert len({one.error for one in letters}) > 90
    assert {reason_of(one.error) for one in letters} == {
        "not UTF-8: invalid start byte",
        "not an Arrow IPC stream",
        "weight: events_map does not apply",
    }


def test_reasons_beyond_the_first_are_counted_together():
    box = LetterBox(LetterQueue())
    box.write(letter(f"reason {k}") for k in range(REASONS_MAX + 30))
    box.write([letter("reason 0"), letter("reason 5000")])
    assert len(box.reasons) == REASONS_MAX + 1
    assert (box.reasons["reason 0"], box.reasons[OTHER_REASONS], box.reasons.total()) == (2, 31, REASONS_MAX + 32)


def test_a_reason_is_short():
    assert len(reason_of("type: expected one of the model's edge types " + "a, " * 100 + "got 'b'")) <= 80


def test_counts_go_on_after_a_restart(tmp_path):
    box = LetterBox(DeadLetterFile(tmp_path / "dead.jsonl"), tmp_path, "parser")
    box.write([letter(), letter("op: missing")])
    box.write([])
    box.close()
    again = LetterBox(DeadLetterFile(tmp_path / "dead.jsonl"), tmp_path, "parser")
    again.write([letter()])
    again.close()
    other = LetterBox(LetterQueue(), tmp_path, "partitioner")
    other.write([letter("weight: too small, got 3")])
    other.close()
    assert read_reasons(tmp_path) == {"x: missing": 2, "op: missing": 1, "weight: too small": 1}
    assert again.take() == []
    assert len((tmp_path / "dead.jsonl").read_bytes().splitlines()) == 3
