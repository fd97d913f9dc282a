"""Rejected records on their way to a file or a topic, and how many there were of each reason."""

import base64
import json
from collections import Counter

import pytest

from freshet.operators.limits import RECORD_BYTES, RECORD_SPARE
from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.letter_box import (
    OTHER_REASONS,
    REASONS_MAX,
    DeadLetter,
    DeadLetterFile,
    LetterBox,
    LetterQueue,
    add_reasons,
    read_dropped,
    read_reasons,
    reason_of,
)
from freshet.operators.parser.messages import RawMessage
from freshet.operators.record_blocks import BLOCK_BYTES
from freshet.operators.telemetry.status_file import await_last
from freshet.schema import Features
from tests.support.kafka.records import split


def letter(error="x: missing", raw=b"{}", offset=0, source="kafka://h:1/t", partition=2):
    return DeadLetter(error, source, partition, offset, raw)


def records(queue):
    return [(key.decode(), json.loads(value)) for block in queue.take() for key, value in split(block)]


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
    assert queue.traffic.messages == 3
    assert queue.traffic.bytes == sum(len(key.encode()) + len(json.dumps(value)) for key, value in found)


@pytest.mark.parametrize("byte", [b"x", b"\x00", b"\xff"])
def test_a_record_that_is_too_long_for_kafka_is_cut(byte):
    queue = LetterQueue()
    queue.write([letter(raw=byte * 5_000_000)])
    [block] = queue.take()
    [(key, value)] = split(block)
    assert len(key) + len(value) < RECORD_BYTES - RECORD_SPARE
    record = json.loads(value)
    assert record["raw_bytes"] == 5_000_000
    assert base64.b64decode(record["raw_base64"]) == byte * (64 << 10)
    assert record["note"] == "raw_base64 holds the first 65536 of 5000000 bytes: the topic takes no more"
    assert "raw" not in record


@pytest.mark.parametrize("record_bytes", [4_000, 10_000, 100_000, RECORD_BYTES])
@pytest.mark.parametrize("size", [0, 500, 2_000, 9_000, 80_000, 1_040_000, 1_048_000])
def test_no_record_is_larger_than_its_topic_takes(record_bytes, size):
    queue = LetterQueue(record_bytes)
    queue.write([letter(raw=b"x" * size), letter(raw=b"\x01" * (size // 6)), letter("é" * 300, raw=b"\xff" * size)])
    for block in queue.take():
        for key, value in split(block):
            assert len(key) + len(value) <= record_bytes - RECORD_SPARE
            record = json.loads(value)
            assert ("note" in record) == ("raw_bytes" in record)


def test_a_letter_for_many_says_so(tmp_path):
    box = LetterBox(DeadLetterFile(tmp_path / "dead.jsonl"))
    box.write([letter(), DeadLetter("the rest of it, got 41", "s", 0, 0, b"", 41)])
    lines = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_bytes().splitlines()]
    assert ["records" in line for line in lines] == [False, True]
    assert lines[1]["records"] == 41


@pytest.mark.parametrize("damage", [b"", b"{", b'{"reasons": {"x', b"[]", b'{"reasons": 3}', b"\xff\x00" * 40])
def test_a_damaged_status_is_set_aside_and_counting_goes_on(tmp_path, caplog, damage):
    path = tmp_path / "status" / "letters-partitioner.json"
    path.parent.mkdir()
    path.write_bytes(damage)
    assert read_reasons(tmp_path) == {}
    box = LetterBox(DeadLetterFile(tmp_path / "dead.jsonl"), tmp_path, "partitioner")
    box.report({"x: missing": 1})
    assert read_reasons(tmp_path) == {"x: missing": 1}
    if damage[:9] != b'{"reasons' or damage[-1:] != b"}":
        assert path.with_name("letters-partitioner.json.damaged").read_bytes() == damage
        assert "letters-partitioner.json" in caplog.text


def test_many_come_in_blocks():
    queue = LetterQueue()
    queue.write(letter(raw=b"x" * 1000, offset=k) for k in range(500))
    blocks = queue.take()
    assert len(blocks) > 3
    assert max(map(len, blocks)) < BLOCK_BYTES + 2000
    assert sum(len(split(block)) for block in blocks) == 500


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
    _, letters = Parser(Features(2), "int", None).parse_jsonl(b"\n".join(lines), Origin())
    assert len(letters) == len(lines)
    reasons = Counter(reason_of(one.error) for one in letters)
    assert reasons.total() == len(lines)
    assert reasons["x: expected 2 numbers"] == 2
    assert reasons["x: expected numbers"] == 2
    assert reasons["x: not finite in float32"] == 1
    assert reasons["dst: missing"] == 1
    assert reasons["dst: expected an integer"] == 1
    assert max(count for reason, count in reasons.items() if reason.startswith("op: expected one of")) == 2
    assert len([reason for reason in reasons if "JSON" in reason]) <= 3


def test_reasons_stay_few_whatever_the_records_hold():
    lines = [b" " * k + b"\xff" for k in range(50)]
    _, letters = Parser(Features(2), "int", None).parse_jsonl(b"\n".join(lines), Origin())
    arrow = [b"\xff" * 4 + bytes([k, 1, 0, 0]) * k for k in range(1, 50)]
    letters += Parser(Features(2)).parse_messages([RawMessage(k, value) for k, value in enumerate(arrow)], Origin())[1]
    foreign = Parser(Features(2), "int", None, {"op": "op", "weight": "abs(weight)"})
    lines = [b'{"op":"add_edge","weight":"%d"}' % k for k in range(50)]
    letters += foreign.parse_jsonl(b"\n".join(lines), Origin())[1]
    assert len({one.error for one in letters}) > 90
    assert {reason_of(one.error) for one in letters} == {
        "not UTF-8: invalid start byte",
        "not an Arrow IPC stream",
        "weight: events_map does not apply",
    }


def test_reasons_beyond_the_first_are_counted_together():
    reasons = {}
    add_reasons(reasons, ((f"reason {k}", 1) for k in range(REASONS_MAX + 30)))
    add_reasons(reasons, [("reason 0", 1), ("reason 5000", 1)])
    assert len(reasons) == REASONS_MAX + 1
    assert (reasons["reason 0"], reasons[OTHER_REASONS], sum(reasons.values())) == (2, 31, REASONS_MAX + 32)


def test_a_reason_is_short():
    assert len(reason_of("type: expected one of the model's edge types " + "a, " * 100 + "got 'b'")) <= 80


def test_the_partitioner_alone_tells_why(tmp_path, monkeypatch):
    monkeypatch.setattr("freshet.operators.parser.letter_box.time.time", lambda: 1000.0)
    parser = LetterBox(DeadLetterFile(tmp_path / "dead.jsonl"), tmp_path, "parser")
    parser.write([letter(), letter("op: missing")])
    parser.write([])
    assert read_reasons(tmp_path) == {}
    box = LetterBox(LetterQueue(), tmp_path, "partitioner")
    box.report({"x: missing": 1, "op: missing": 2})
    box.report({"x: missing": 4}, now=False)
    assert read_reasons(tmp_path) == {"op: missing": 2, "x: missing": 1}, "it is not due"
    assert not await_last(tmp_path, 0.0, 0.0)
    box.report({"x: missing": 4}, last=True)
    assert read_reasons(tmp_path) == {"x: missing": 4}
    assert await_last(tmp_path, 0.0, 0.0)
    assert parser.take() == []
    assert len((tmp_path / "dead.jsonl").read_bytes().splitlines()) == 2


def test_what_is_dropped_is_counted_across_restarts(tmp_path):
    for attempt in (1, 2):
        box = LetterBox(DeadLetterFile(tmp_path / "dead.jsonl", 8 * 1000), tmp_path, "parser")
        for offset in range(100):
            box.write([letter(raw=b"x" * 100, offset=offset)])
        kept = sum(len(path.read_bytes().splitlines()) for path in tmp_path.glob("dead*.jsonl"))
        # told at once, for a kill comes without a word
        assert read_dropped(tmp_path) == box.dropped == 100 * attempt - kept > 0
    assert LetterBox(LetterQueue()).dropped == 0
