"""A source that has lost or changed records is noticed when its events are sealed again, never shifted in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from freshet.operators.epochs.config import SealingConfig
from freshet.operators.epochs.cut import LostCutError
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.input_positions import SAY_EVERY_MS, Patience
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.outcome import Outcome
from freshet.partitioner.core import Partitioner
from freshet.partitioner.events import Events
from freshet.schema import Features
from tests.support.stages.cuts import copied
from tests.unit.operators.epochs.test_waiting_events import TOPIC, block


class Job:
    """A PartitionerStage over a file (source 0) and a topic; the vertices of each epoch."""

    def __init__(self, log: CutLog, entries: dict[str, bytes] | None = None) -> None:
        config = SealingConfig(4, marker_interval_ms=10**9)
        names = ("a.jsonl", "kafka://broker/changes", "b.jsonl")
        self.stage = PartitionerStage(Partitioner(1, Features(1)), config, log, sources=names, streams=[TOPIC])
        self.entries, self.epochs = dict(entries or {}), dict[int, list[int]]()
        self.said: list[str] = []
        self.stage._cutter._patience = Patience(self.said.append)
        self.stage.restore(self.entries.items())
        for outcome in self.stage.begin():
            self.keep(outcome)

    def keep(self, outcome: Outcome) -> None:
        self.entries.update(outcome.puts)
        for message in outcome.messages:
            found = message.block.columns.get("m_key")  # type: ignore[union-attr]
            self.epochs[message.epoch] = [] if found is None else found.tolist()

    def receive(self, events: Events) -> None:
        self.keep(self.stage.receive(events.encode(), 1.0))


def message(offsets: Sequence[int], partition: int = 0) -> Events:
    """A vertex a message, named by its offset."""
    return block(offsets, partition, offsets)


def lines(rows: Sequence[int], source: int = 0) -> Events:
    """A vertex a line of a file, 100 more than the line's number."""
    return block([100 + row for row in rows], 0, rows, source)


def before(*blocks: Events) -> CutLog:
    """The cuts of an attempt that got these."""
    log = CutLog()
    job = Job(log)
    for events in blocks:
        job.receive(events)
    job.keep(job.stage.finish())
    return copied(log)


def test_what_comes_again_as_it_was_is_sealed_as_it_was() -> None:
    log = before(message(range(6)), lines(range(3)), message([6, 7]))
    job = Job(log)
    for events in (message([0]), lines([0]), message(range(1, 8)), lines([1, 2])):
        job.receive(events)
    assert job.epochs == {1: [0, 1, 2, 3], 2: [100, 101, 4, 5], 3: [102, 6, 7]}


def test_a_message_that_is_gone_is_noticed_at_the_epoch_that_had_it() -> None:
    """Compaction: the counts are there, and every epoch behind it would have been shifted by one."""
    log = before(message(range(12)))
    job = Job(log)
    job.receive(message(range(5)))
    text = (
        r"epoch 2 ended with 4 events of kafka://broker/changes, partition 0 before position 8 when it was cut; now "
        r"the same number ends in kafka://broker/changes, partition 0 before position 9: the source has lost or changed"
    )
    with pytest.raises(LostCutError, match=text):
        job.receive(message([5, 6, 8, 9, 10, 11]))
    assert job.epochs == {1: [0, 1, 2, 3]}


def test_a_journaled_message_that_is_gone_is_noticed_too() -> None:
    job = Job(CutLog())
    job.receive(message(range(6)))
    log = before(message(range(8)))
    again = Job(log, job.entries)
    with pytest.raises(LostCutError, match=r"before position 8 when it was cut; now .* before position 9"):
        again.receive(message([7, 8]))


def test_a_partition_that_was_read_past_the_epoch_does_not_wait_for_ever() -> None:
    """Of four events one is gone; three wait, and what comes behind them shows that no fourth will."""
    log = before(message(range(3)), message([3], 1), message(range(3, 7)), message([4], 1))
    job = Job(log)
    job.receive(message([0, 1]))
    assert not job.epochs
    text = (
        r"epoch 1 had 3 events of .*changes, partition 0 up to position 3 when it was cut; now it has 2 of them, "
        r"and has been read up to position 3: the source has lost"
    )
    with pytest.raises(LostCutError, match=text):
        job.receive(replace(block([], 0), end_position=3))  # of rejected records alone


def test_within_a_message_one_waits_for_its_rest() -> None:
    """A message of six events comes in two blocks: the first one ends within it, and says so."""
    offsets = [0, 0, 1, 1, 1, 1]
    whole = block(range(6), 0, offsets)
    log = before(whole)
    job = Job(log)
    job.receive(whole.slice(0, 3))
    assert not job.epochs
    job.receive(whole.slice(3, 6))
    assert job.epochs == {1: [0, 1, 2, 3], 2: [4, 5]}


def test_a_file_that_was_edited_is_noticed() -> None:
    log = before(lines(range(3)), lines(range(5), 2))
    job = Job(log)
    job.receive(lines(range(3)))
    with pytest.raises(LostCutError, match=r"1 ended with 4 events of b\.jsonl before position 1 .* before position 2"):
        job.receive(block([0, 1, 3, 4], 0, [1, 2, 3, 4], 2))
    job = Job(log)
    job.receive(lines(range(2)))
    with pytest.raises(LostCutError, match=r"1 had 4 events of b\.jsonl up to position 1 .* now it has 3 of them"):
        job.receive(lines([0], 2))


def test_a_source_that_stands_still_is_spoken_of() -> None:
    log = before(message([0, 1, 2]), message([3], 1))
    job = Job(log)
    job.receive(message([3], 1))
    assert job.stage.waiting, "or no tick would come"
    for now_ms in (5.0, SAY_EVERY_MS - 1.0):
        job.keep(job.stage.tick(now_ms))
    assert not job.said
    for now_ms in (SAY_EVERY_MS + 5.0, SAY_EVERY_MS + 6.0, 2 * SAY_EVERY_MS + 5.0):
        job.keep(job.stage.tick(now_ms))
    lacks = "lacks 3 of 3 events of kafka://broker/changes, partition 0, up to position 3"
    assert job.said == [f"epoch 1 was cut before the restart and {lacks}; it goes on when they come"] * 2
    job.receive(message([0, 1, 2]))
    assert job.epochs == {1: [0, 1, 2, 3]}


def test_a_log_that_does_not_fit_the_state_is_noticed() -> None:
    job = Job(CutLog())
    job.receive(message(range(6)))
    log = before(message(range(3)), message([3, 4, 5]))
    shorter = CutLog()
    for cut in log.cuts.values():
        shorter.append(cut._replace(end=cut.end + 1))
    with pytest.raises(LostCutError, match="epoch 1 ends at event 5, but the 4 events of its cut end at 4"):
        Job(shorter, job.entries)
