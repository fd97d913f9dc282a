"""Epochs and topics that are not what they should be, and tables that nobody has got."""

from __future__ import annotations

import orjson
import pytest

from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.serving.feeds import topic_reader
from freshet.job.serving.feeds.topic_reader import OffsetsGoneError, TopicReader
from freshet.job.serving.feeds.topic_records import Record, rows_of_records
from freshet.job.serving.tables import place
from tests.support.serving.hand_job import HandJob
from tests.unit.job.serving.test_following import catch_up, follower_of, hand, seen  # noqa: F401
from tests.unit.job.serving.test_topic_feed import KIND, records


@pytest.mark.parametrize(("epoch", "taken"), [(-1, False), (0, True), (2**62, True), (2**62 + 1, False)])
def test_the_least_and_the_greatest_epoch_of_a_record(epoch: int, taken: bool) -> None:
    value = orjson.loads(records((7, 1, 0.5))[0].value)
    found, refused = rows_of_records([Record(b"7", orjson.dumps(value | {"epoch": epoch}))], KIND)
    assert found.epochs.tolist() == ([epoch] if taken else [])
    assert len(refused) == (not taken)
    assert all("epoch: expected an integer from 0 to" in reason for reason in refused)


def test_a_topic_that_was_made_again_is_noticed_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its records begin at offset 0 once more: what the reader would ask for next is of another history."""
    reader = TopicReader.__new__(TopicReader)
    reader.address, reader._properties = KafkaAddress("localhost:1", "t"), ClientProperties()
    reader.id, reader.offsets = "a", {0: 5}
    monkeypatch.setattr(topic_reader, "partitions_of", lambda *_: [0])
    reader._consumer = None
    monkeypatch.setattr(topic_reader, "topic_id", lambda *_: "a")
    reader._look()
    monkeypatch.setattr(topic_reader, "topic_id", lambda *_: "b")
    with pytest.raises(OffsetsGoneError, match="the topic was deleted and recreated"):
        reader._look()


def test_a_table_that_nobody_has_got_goes_when_another_takes_its_place(hand: HandJob) -> None:  # noqa: F811
    """It waits for what readers have seen of the one before, and must grow meanwhile."""
    hand.apply(1, ({2: 1.0, 3: 1.0}, []), ({4: 1.0}, []), marker=1)
    hand.settle()
    follower = follower_of(hand)
    catch_up(follower, 1)
    shown = follower.table.path
    follower._floor = 100
    follower._begin_anew()
    waiting = follower.table.path
    folder = waiting.parent
    assert waiting != shown
    follower._make_room(50_000, 0)
    assert follower.table.path not in (shown, waiting)
    left = set(folder.glob(f"{place._prefix(follower.job, follower.tables)}*"))
    assert left == {shown, follower.table.path}
    assert seen(hand)[1] == {2: (1, 1.0), 3: (1, 1.0), 4: (1, 1.0)}
    hand.close()
    follower.close(forget=True)
