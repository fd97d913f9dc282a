"""The stage around the Parser of a topic: batches of messages in, blocks by partition out."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from freshet.operators.parser.core import Origin, Parser
from freshet.operators.parser.letter_box import DeadLetterFile, LetterBox
from freshet.operators.parser.messages import TopicMessage
from freshet.operators.parser.stages import MessageStage
from freshet.operators.telemetry.positions import read_positions
from freshet.operators.telemetry.status_file import StatusFile
from freshet.partitioner.events import Events
from freshet.schema import Features
from tests.support.kafka.batches import batch_of, messages_of

ORIGIN = Origin(1, "kafka://localhost:9092/events")


def lines(*vertices: int) -> bytes:
    return b"\n".join(orjson.dumps({"op": "add_vertex", "id": vertex}) for vertex in vertices)


def stage_in(
    out: Path | None = None, letters: DeadLetterFile | None = None, epoch_events: int = 1000, task: int = 0
) -> MessageStage:
    return MessageStage(Parser(Features(1), "int"), ORIGIN, letters, epoch_events, out, task)


def test_a_batch_holds_messages_as_they_are() -> None:
    messages = [TopicMessage(3, 2**40, b"\x00{}"), TopicMessage(0, 0, b""), TopicMessage(1, 5, None)]
    assert list(messages_of(batch_of(messages))) == messages
    assert not list(messages_of(b""))


def test_a_batch_gives_a_block_for_each_of_its_partitions() -> None:
    messages = [(1, 5, lines(1)), (0, 0, lines(2, 3)), (1, 6, lines(4)), (2, 1, b"\n"), (0, 7, lines(5))]
    blocks = [Events.decode(block) for block in stage_in().parse(batch_of(TopicMessage(*one) for one in messages))]
    assert [(block.end_partition, block.a.to_list(), block.position.tolist()) for block in blocks] == [
        (1, [1, 4], [6, 7]),
        (0, [2, 3, 5], [1, 1, 8]),
    ], "a partition without events has none"
    assert {block.end_source for block in blocks} == {1}
    assert [block.end_position for block in blocks] == [7, 8]


def test_a_message_that_is_larger_than_a_block_goes_on_in_the_next() -> None:
    messages = [
        TopicMessage(0, 4, lines(*range(500))),
        TopicMessage(0, 5, lines(*range(1700))),
        TopicMessage(0, 6, lines(1)),
    ]
    blocks = [Events.decode(block) for block in stage_in().parse(batch_of(messages))]
    assert [len(block) for block in blocks] == [1000, 1000, 201]
    assert [block.end_position for block in blocks] == [5, 5, 7], "the first two end within message 5"
    assert [int(block.position[-1]) for block in blocks] == [6, 6, 7]


def test_rejected_messages_are_in_the_dead_letters_with_their_place(tmp_path: Path) -> None:
    letters = LetterBox(DeadLetterFile(tmp_path / "dead.jsonl"))
    messages = [TopicMessage(2, 8, b"nonsense"), TopicMessage(0, 3, b"\xfe"), TopicMessage(2, 9, None)]
    blocks = stage_in(letters=letters).parse(batch_of(messages))
    assert [Events.decode(block).rejected for block in blocks] == [2, 1]
    found = [orjson.loads(line) for line in (tmp_path / "dead.jsonl").read_bytes().splitlines()]
    assert [(one["source"], one["partition"], one["offset"]) for one in found] == [
        (ORIGIN.name, 2, 8),
        (ORIGIN.name, 2, 9),
        (ORIGIN.name, 0, 3),
    ]
    assert found[2]["raw_base64"] == "/g=="


def test_the_status_tells_how_far_partitions_were_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshet.operators.parser.stages.time.time", lambda: 1000.0)
    stage = stage_in(tmp_path)
    stage.parse(batch_of([TopicMessage(0, 4, lines(1)), TopicMessage(3, 10, b"nonsense")]))
    assert read_positions(tmp_path) == {ORIGIN.name: {0: 5, 3: 11}}
    stage.parse(batch_of([TopicMessage(0, 5, lines(1))]))
    stage.write_status()
    assert read_positions(tmp_path)[ORIGIN.name][0] == 5, "at most twice a second"
    stage.close()
    assert read_positions(tmp_path)[ORIGIN.name][0] == 6


def test_the_last_task_that_read_a_partition_tells_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks come and go at a resume with another number of readers, and their files stay."""
    now = [1000.0]
    monkeypatch.setattr("freshet.operators.parser.stages.time.time", lambda: now[0])

    def read(task: int, *messages: tuple[int, int]) -> None:
        now[0] += 10
        stage = stage_in(tmp_path, task=task)
        stage.parse(batch_of(TopicMessage(partition, offset, lines(1)) for partition, offset in messages))
        stage.close()

    read(0, (0, 10))
    read(1, (1, 20), (3, 5))
    read(2, (2, 30))
    assert read_positions(tmp_path) == {ORIGIN.name: {0: 11, 1: 21, 2: 31, 3: 6}}
    read(0, (2, 25))  # from a state before that; task 2 is gone
    read(1, (0, 15))  # and partition 3, of which no more messages come, is another task's
    assert read_positions(tmp_path) == {ORIGIN.name: {0: 16, 1: 21, 2: 26, 3: 6}}


def test_positions_of_the_version_before_are_read(tmp_path: Path) -> None:
    """It had one file for each topic, and no times."""
    StatusFile(tmp_path, "kafka-1").write({"source": ORIGIN.name, "next": [[0, 7], [2, 9]]}, 0)
    assert read_positions(tmp_path) == {ORIGIN.name: {0: 7, 2: 9}}
    stage_in(tmp_path, task=1).parse(batch_of([TopicMessage(2, 3, lines(1))]))
    assert read_positions(tmp_path) == {ORIGIN.name: {0: 7, 2: 4}}
