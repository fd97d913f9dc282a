"""The cut log in a topic: fenced before it is read, found without reading it whole, and bounded."""

from __future__ import annotations

import pytest

from freshet.operators.epochs.cut import Cut, LostCutError
from freshet.operators.epochs.cut_segments import FencedError, ForeignLogError
from freshet.operators.epochs.cut_topic import CutRecord, CutTopic, decode_record, encode_record, newest_record
from tests.support.stages.channels import ChannelInMemory, TopicInMemory
from tests.support.stages.cuts import CUTS

JOB = "0123456789abcdef"


def opened(topic: TopicInMemory, run: int | None = None, job: str = JOB) -> CutTopic:
    return CutTopic(ChannelInMemory(topic), job, run)


def written(topic: TopicInMemory, epochs: int = len(CUTS)) -> CutTopic:
    log = opened(topic)
    for epoch in range(1, epochs + 1):
        log.append(CUTS[epoch - 1] if epoch <= len(CUTS) else Cut(epoch, 30 + epoch, False))
    return log


def test_cuts_come_back() -> None:
    topic = TopicInMemory()
    written(topic)
    log = opened(topic)
    assert (log.last, log.attempt) == (4, 2)
    assert [log.cut_of(epoch) for epoch in (2, 3, 4, 1, 1)] == [CUTS[1], CUTS[2], CUTS[3], CUTS[0], CUTS[0]]


def test_a_record_has_its_own_form_and_more_cuts_than_one() -> None:
    record = CutRecord(5, 7, 2, 4, 3, tuple(CUTS))
    value = encode_record(JOB, record)
    assert value.splitlines()[0] == b'{"format":1,"job":"%b","attempt":7,"run":2,"last":4,"release":3}' % JOB.encode()
    assert decode_record("t", JOB, 5, value) == record
    for wrong in (
        b"",
        b"zombie",
        value[:-9] + b"\n",
        value.replace(b'"last":4', b'"last":5'),
        value.replace(b":1", b":9"),
    ):
        with pytest.raises(LostCutError, match="offset 5 is none of a cut log of format 1"):
            decode_record("t", JOB, 5, wrong)
    with pytest.raises(ForeignLogError, match=f"the cut log of job {JOB}, expected that of job ffff"):
        decode_record("t", "ffff", 5, value)


def test_an_attempt_that_was_cut_off_seals_nothing_more() -> None:
    topic = TopicInMemory()
    zombie = written(topic)
    log = opened(topic)
    with pytest.raises(FencedError, match="another attempt of the job has taken over kafka://memory/cuts"):
        zombie.append(Cut(5, 99, False))
    log.append(Cut(5, 31, False))
    assert opened(topic).cut_of(5) == Cut(5, 31, False)


def test_what_an_attempt_commits_before_it_is_fenced_is_obeyed() -> None:
    """The order matters: one that read first and fenced then would cut epoch 5 again, otherwise."""
    topic = TopicInMemory()
    before = written(topic)

    class Late(ChannelInMemory):
        def fence(self) -> None:
            before.append(Cut(5, 77, False))
            super().fence()

    log = CutTopic(Late(topic), JOB)
    assert log.last == 5
    assert log.cut_of(5) == Cut(5, 77, False)


def test_an_earlier_run_does_not_take_the_log_back() -> None:
    topic = TopicInMemory()
    opened(topic, run=1)
    now = opened(topic, run=2)
    with pytest.raises(
        FencedError, match="run 2 of the job has taken over kafka://memory/cuts; this is run 1, and ends"
    ):
        opened(topic, run=1)
    now.append(Cut(1, 10, False))  # was not disturbed
    assert opened(topic).run == 2


def test_a_cut_that_was_not_committed_is_not_in_the_log() -> None:
    topic = TopicInMemory()
    log = written(topic)
    log.channel.lost = True  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="silent"):
        log.append(Cut(5, 31, False))
    assert log.last == 4
    assert opened(topic).last == 4


def test_only_the_next_epoch_can_be_cut() -> None:
    with pytest.raises(LostCutError, match="cut of epoch 3 can't follow that of epoch 0"):
        opened(TopicInMemory()).append(CUTS[2])


def test_a_long_log_is_searched_and_not_read_whole() -> None:
    topic = TopicInMemory()
    written(topic, 3_000)
    topic.reads = 0
    log = opened(topic)
    assert log.cut_of(2_000).epoch == 2_000
    assert topic.reads < 60
    topic.reads = 0
    assert [log.cut_of(epoch).epoch for epoch in range(2_001, 3_001)] == list(range(2_001, 3_001))
    assert topic.reads == 1_000, "one after the other"


def test_epochs_that_nobody_has_any_more_are_named() -> None:
    topic = TopicInMemory()
    written(topic)
    log = opened(topic)
    with pytest.raises(LostCutError, match="has no epoch 5, but the state has passed it"):
        log.cut_of(5)
    at = [offset for offset, value in topic.records.items() if b"\n[3," in value]
    del topic.records[at[0]]
    assert opened(topic).cut_of(2) == CUTS[1]
    with pytest.raises(LostCutError, match=r"has no epoch 3 any more \(epoch 4 comes first\)"):
        opened(topic).cut_of(3)
    topic.delete_before(topic.end)  # with the record of the last attempt, too
    assert opened(topic).last == 0


def test_what_no_state_needs_is_released_by_the_records_after_it() -> None:
    topic = TopicInMemory()
    log = written(topic)
    log.settle(0)  # a marker at epoch 4: what was cut up to it is still needed
    log.append(Cut(5, 31, True))
    assert newest(topic).release == 0
    log.settle(4)
    log.append(Cut(6, 32, False))
    release = newest(topic).release
    assert [value for offset, value in topic.records.items() if offset >= release and b"\n[4," in value] == []
    topic.delete_before(release)
    again = opened(topic)
    assert [again.cut_of(epoch).epoch for epoch in (5, 6)] == [5, 6]
    with pytest.raises(LostCutError, match="has no epoch 4 any more"):
        again.cut_of(4)
    assert newest(topic).release == release, "the next attempt knows it, too"


def newest(topic: TopicInMemory) -> CutRecord:
    found = newest_record(ChannelInMemory(topic), JOB)
    assert found is not None
    return found
