"""The cut log in a real topic: the brokers fence the attempt before, and what it did not commit is not seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from freshet.job.dev.broker import Broker, start_broker
from freshet.job.errors import UsageError
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties, admin_client
from freshet.job.kafka.cut_channel import PARTITION, KafkaChannel, open_channel
from freshet.job.kafka.cut_topic import CutTrimmer, address_of, check_cut_topic, copy_topic, make_cut_topic
from freshet.job.machine.artifacts import ArtifactError, broker_jars
from freshet.operators.epochs.cut import Cut
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.cut_segments import FencedError
from freshet.operators.epochs.cut_topic import CutTopic
from freshet.operators.epochs.retention import CLOCKS_MS
from tests.support.kafka.topics import broker_folder
from tests.support.stages.cuts import CUTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

JOB, NONE = "0123456789abcdef", ClientProperties()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    try:
        broker_jars()
    except ArtifactError as error:
        pytest.skip(str(error))
    with broker_folder(tmp_path_factory.mktemp("broker")) as data, start_broker(data) as started:
        yield started


def opened(address: KafkaAddress, run: int | None = None) -> CutTopic:
    return CutTopic(open_channel(str(address), {}, {}, JOB), JOB, run)


def test_a_zombie_seals_nothing_and_a_restore_reads_what_was_committed(broker: Broker, tmp_path: Path) -> None:
    address = address_of(JOB, [("--events", KafkaAddress(broker.address, "events"))])
    told: list[str] = []
    topic_id = make_cut_topic(address, NONE, told.append)
    check_cut_topic(address, topic_id, tmp_path, NONE, told.append)
    assert [line.split(":")[0] for line in told] == ["the cut log is the topic kafka"]
    zombie = opened(address, run=1)
    for cut in CUTS:
        zombie.append(cut)
    channel = zombie._channel
    assert isinstance(channel, KafkaChannel)
    channel._producer.begin_transaction()  # and dies here: a cut that was sent and not committed
    channel._producer.send(address.topic, b"zombie", partition=PARTITION).get(timeout=30)
    log = opened(address, run=2)
    assert (log.attempt, log.last) == (2, 4)
    assert [log.cut_of(epoch) for epoch in range(1, 5)] == CUTS
    channel._producer = None  # as a process that was stopped: it does not know
    with pytest.raises(FencedError, match="run 2 of the job has taken over"):
        opened(address, run=1)
    for epoch in range(5, 9):
        log.append(Cut(epoch, 31, False))
    same_run = opened(address, run=2)
    with pytest.raises(FencedError, match="another attempt of the job has taken over kafka://"):
        log.append(Cut(9, 99, False))
    same_run.append(Cut(9, 32, True))
    assert opened(address).cut_of(9) == Cut(9, 32, True)
    copy_topic(address, NONE, JOB, tmp_path / "cuts")
    assert list(CutLog(tmp_path / "cuts", JOB).cuts.values())[:4] == CUTS
    _is_trimmed(address, tmp_path)
    _is_refused(address, topic_id, tmp_path)


def _is_trimmed(address: KafkaAddress, tmp_path: Path) -> None:
    """What no state needs goes, once all retained checkpoints are newer than what says so."""
    log = opened(address)
    log.settle(0)
    for epoch in range(10, 400):
        log.append(Cut(epoch, 40, False))
    log.settle(9)
    log.append(Cut(400, 40, False))
    trimmer = CutTrimmer(address, NONE, JOB)
    assert trimmer.trim(1.0) == 0
    assert trimmer.trim(4e12 + CLOCKS_MS) == 0, "few offsets"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("freshet.job.kafka.cut_topic._TRIM_OFFSETS", 1)
        assert trimmer.trim(4e12 + 2 * CLOCKS_MS) > 9
    log.close()
    copy_topic(address, NONE, JOB, tmp_path / "rest")
    assert CutLog(tmp_path / "rest", JOB).first == 10


def _is_refused(address: KafkaAddress, topic_id: str, tmp_path: Path) -> None:
    with admin_client(address, NONE) as admin:
        admin.delete_topics([address.topic])
    with pytest.raises(UsageError, match=f"the cut log {address} is gone"):
        check_cut_topic(address, topic_id, tmp_path, NONE, print)
    make_cut_topic(address, NONE, print)
    with pytest.raises(UsageError, match=f"{address.topic} was deleted and recreated"):
        check_cut_topic(address, topic_id, tmp_path, NONE, print)
