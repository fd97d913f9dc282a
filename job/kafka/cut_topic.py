"""The topic of a job's cut log, for the process that starts the job: it is made, checked, trimmed and copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import NewTopic

from freshet.job.errors import UsageError
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties, admin_client, connection
from freshet.job.kafka.cut_channel import PARTITION, KafkaChannel, transactional_id
from freshet.job.kafka.make_topics import config_of
from freshet.job.kafka.read_topics import topic_id_of
from freshet.operators.epochs.cut_segments import SegmentWriter, attempt_folder
from freshet.operators.epochs.cut_topic import decode_record, newest_record
from freshet.operators.epochs.retention import CLOCKS_MS

_CONFIG = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}  # what no state needs is deleted
_TRIM_OFFSETS = 1_000  # fewer are not worth a request


def address_of(job: str, topics: Sequence[tuple[str, KafkaAddress]]) -> KafkaAddress:
    """The topic of a job's cut log: on the brokers of the first of its topics."""
    return KafkaAddress(topics[0][1].bootstrap, transactional_id(job))


def make_cut_topic(address: KafkaAddress, properties: ClientProperties, say: Callable[[str], None]) -> str:
    """Make the topic of a new job; returns its id ("": the brokers give none).

    Raises: JobFailed where the brokers refuse it, or can't be reached.
    """
    with admin_client(address, properties) as admin:
        admin.create_topics([NewTopic(address.topic, 1, -1, topic_configs=_CONFIG)], wait_for_metadata=True)
        found = admin.describe_topics([address.topic])[0]
    say(f"the cut log is the topic {address}: the job may go on from its checkpoints on any machine")
    return topic_id_of(found.get("topic_id")) or ""


def check_cut_topic(
    address: KafkaAddress, topic_id: str, out: Path, properties: ClientProperties, say: Callable[[str], None]
) -> None:
    """Make sure that the topic is still that of the job in `out`.

    Raises: UsageError where it is gone, was made again or has other partitions; JobFailed without brokers.
    """
    advice = f"start a new job with a new --out, from a snapshot of its graph where there is one ({out})"
    with admin_client(address, properties) as admin:
        if address.topic not in admin.list_topics():
            msg = f"the cut log {address} is gone, and the epochs that readers have seen can't be cut again; {advice}"
            raise UsageError(msg)
        found = admin.describe_topics([address.topic])[0]
        if (count := len(found["partitions"])) != 1:
            msg = f"the cut log {address}: expected 1 partition, got {count}; {advice}"
            raise UsageError(msg)
        policy = config_of(admin, "topic", address.topic, "cleanup.policy")
        kept = [config_of(admin, "topic", address.topic, name) for name in ("retention.ms", "retention.bytes")]
    if policy != "delete" or any(one not in (None, "-1") for one in kept):
        want = ", ".join(f"{name}={value}" for name, value in _CONFIG.items())
        say(f"warning: the cut log {address}: its brokers may delete cuts that the job needs; set {want}")
    now = topic_id_of(found.get("topic_id"))
    if topic_id and now and now != topic_id:
        msg = f"the cut log {address} was deleted and recreated (its id is {now}, expected {topic_id}); {advice}"
        raise UsageError(msg)


class CutTrimmer:
    """Deletes the cuts that no retained checkpoint needs."""

    def __init__(self, address: KafkaAddress, properties: ClientProperties, job: str) -> None:
        self._address, self._properties, self._job = address, properties, job
        self._since_ms = 0.0

    def trim(self, since_ms: float) -> int:
        """Delete what no state needs that was begun at `since_ms` or later; returns how many offsets.

        Records say what states need that are begun after them. That is by the clock of the Partitioner's machine, and
        `since_ms` by the JobManager's: they must not differ by more than CLOCKS_MS.
        Raises: KafkaError, OSError, JobFailed: the brokers do not do it now.
        """
        if since_ms <= self._since_ms:
            return 0
        place = TopicPartition(self._address.topic, PARTITION)
        channel = KafkaChannel(self._address, self._properties)
        try:
            first, _ = channel.bounds()
            newest = newest_record(channel, self._job, self._offset_at(place, int(since_ms - CLOCKS_MS)))
        finally:
            channel.close()
        self._since_ms = since_ms
        if newest is None or newest.release - first < _TRIM_OFFSETS:
            return 0
        with admin_client(self._address, self._properties) as admin:
            admin.delete_records({place: newest.release})
        return newest.release - first

    def _offset_at(self, place: Any, moment_ms: int) -> int | None:
        """The first offset that is not older than this moment; None: all are older."""
        consumer = KafkaConsumer(**connection(self._address, self._properties), enable_auto_commit=False)
        try:
            found = consumer.offsets_for_times({place: max(0, moment_ms)}).get(place)
        finally:
            consumer.close(autocommit=False)
        return None if found is None else int(found.offset)


def copy_topic(address: KafkaAddress, properties: ClientProperties, job: str, copy: Path) -> None:
    """Write the committed cuts of a topic to a folder, as a cut log of files; without any, do nothing.

    Raises: LostCutError, ForeignLogError for what is no cut log of the job; OSError when the brokers do not answer.
    """
    channel = KafkaChannel(address, properties)
    writer: SegmentWriter | None = None
    try:
        for offset, value in channel.read(*channel.bounds()):
            for cut in decode_record(channel.name, job, offset, value).cuts:
                if writer is None:
                    folder = attempt_folder(copy, 1, 0)
                    folder.mkdir(parents=True)
                    writer = SegmentWriter(folder, 1, cut.epoch, job)
                writer.write(cut.encode())
    finally:
        channel.close()
        if writer is not None:
            writer.close()
