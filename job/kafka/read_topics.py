"""The Kafka topics that a job reads: where each partition begins and ends, and their messages."""

from __future__ import annotations

import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndTimestamp

from freshet.job.console import say
from freshet.job.errors import JobFailed, UsageError
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties, admin_client, connected_consumer, consumer_of
from freshet.job.kafka.topic_specs import COMMITTED, LATEST, TIMESTAMP, TopicIdentity, TopicInput, advice, parse_start
from freshet.operators.parser.messages import TopicMessage
from freshet.partitioner.times.units import day_of

_READS: dict[str, Any] = {
    "auto_offset_reset": "none",
    "isolation_level": "read_committed",
    "max_partition_fetch_bytes": 8 << 20,
}
FOR_EVER = 2**63 - 1  # past any offset of a partition
_POLL_MS = 500
_SILENT_S = 60.0  # how long a broker may have messages for us and send none


def plan_topic(
    source: int,
    address: KafkaAddress,
    start: str,
    bounded: bool,
    properties: ClientProperties,
    covered: Mapping[int, int] | None = None,
    known: TopicIdentity | None = None,
) -> TopicInput:
    """Ask the brokers where to begin and, of a bounded read, where to end.

    `covered`: offsets by partition that a snapshot says to begin at, whatever `start` is; other partitions were added
    later and begin at their beginning. `known`: the topic that these offsets are of.

    Raises: UsageError when there is no such topic, it is another one, or does not have such offsets; JobFailed when the
    brokers can't be reached.
    """
    mode, moment_ms = parse_start(start)
    with _consumer(address, properties, group=mode == COMMITTED) as consumer:
        partitions, identity = _describe(address, properties)
        if known is not None and (why := known.why_other(identity)) is not None:
            msg = (
                f"--events {address}: {why}, so that the positions in snapshot.json are none of this topic; give "
                "`ignore-positions: true` in --config to read it from its beginning"
            )
            raise UsageError(msg)
        first, end = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        begin = dict(first)
        if covered is not None:
            begin = _after(covered, address, first, end)
        elif mode == LATEST:
            begin = dict(end)
        elif mode == TIMESTAMP:
            found = consumer.offsets_for_times(dict.fromkeys(partitions, moment_ms))
            begin = {one: found[one].offset if found.get(one) is not None else end[one] for one in partitions}
            if (why := out_of_range(moment_ms, found, first, end)) is not None:
                say(f"--from {start} ({day_of(moment_ms)}) is out of the range of {address}: {why}")
        elif mode == COMMITTED:
            committed = {one: consumer.committed(one) for one in partitions}
            begin = {one: first[one] if offset is None else offset for one, offset in committed.items()}
    ends = {one.partition: max(end[one], begin[one]) for one in partitions} if bounded else None
    starts = {one.partition: begin[one] for one in partitions}
    return TopicInput(
        source=source,
        bootstrap=address.bootstrap,
        topic=address.topic,
        start=starts,
        end=ends,
        topic_id=identity.topic_id,
        cluster_id=identity.cluster_id,
    )


def out_of_range(
    moment_ms: int,
    found: Mapping[TopicPartition, OffsetAndTimestamp | None],
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> str | None:
    """Describe where a start time lies outside the records of a topic; None where it does not, or there are none.

    `found`: the first record from that time on, by partition.
    """
    filled = [one for one in first if end[one] > first[one]]
    records = [record for one in filled if (record := found.get(one)) is not None]
    if filled and not records:
        return "it is later than every record, so none that is there is read"
    at_first = all((record := found.get(one)) is not None and record.offset == first[one] for one in filled)
    earliest = min((record.timestamp for record in records), default=moment_ms)
    if at_first and earliest > moment_ms:
        return f"it is before the first record, {earliest} ({day_of(earliest)}), so all are read"
    return None


def resumed_topic(
    topic: TopicInput,
    address: KafkaAddress,
    properties: ClientProperties,
    out: Path,
    ended: bool,
    is_read: bool = False,
) -> TopicInput:
    """A topic of the job in `out` as a resume reads on: a bounded one up to where it ends now.

    One that has `ended`, as it may have in the state, keeps its ends. So does one that a version without ids has
    recorded: its state does not have the partitions that were read to their end. `is_read`: the job has read it up to
    the ends that it had, and goes on there.

    Raises: UsageError when it is another topic of that name, or has lost messages; JobFailed as `plan_topic`.
    """
    partitions, identity = _describe(address, properties)
    if (why := topic.identity.why_other(identity)) is not None:
        msg = f"--events {address}: {why}, and the job in {out} can't go on in it; {advice(out)}"
        raise UsageError(msg)
    now = topic.at(address)
    if topic.end is None:
        return now.model_copy(update=identity._asdict())
    if ended or topic.cluster_id is None:
        return now
    with _consumer(address, properties) as consumer:
        ends = {one.partition: offset for one, offset in consumer.end_offsets(partitions).items()}
        first = {one.partition: offset for one, offset in consumer.beginning_offsets(partitions).items()}
    for partition, end in topic.end.items():
        if is_read and ends.get(partition, 0) > end and first[partition] > end:
            msg = (
                f"--events {address}: partition {partition} now begins at offset {first[partition]}, and the job in "
                f"{out} goes on at {end}: the messages between are gone (retention?); {advice(out)}"
            )
            raise UsageError(msg)
        if ends.get(partition, 0) < end:
            msg = (
                f"--events {address}: partition {partition} ends at offset {ends.get(partition, 0)}, and the job in "
                f"{out} was to read up to {end}: messages are gone; {advice(out)}"
            )
            raise UsageError(msg)
    return now.model_copy(update={"end": ends})


def _after(
    covered: Mapping[int, int],
    address: KafkaAddress,
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the offsets after a snapshot."""
    begin = dict(first)
    for partition, offset in covered.items():
        place = TopicPartition(address.topic, partition)
        low, high = first.get(place, 0), end.get(place, 0)
        if not low <= offset <= high:
            msg = (
                f"--events {address}: the snapshot goes on at offset {offset} of partition {partition}, which now "
                f"has {low} to {high}: messages are gone, or it is another topic; to go on without them, write an "
                "offset that is there into its snapshot.json, and take crc32 out of that file"
            )
            raise UsageError(msg)
        begin[place] = offset
    return begin


def end_offsets(topic: TopicInput, properties: ClientProperties) -> dict[int, int]:
    """Return where each partition ends now.

    Raises: JobFailed when the brokers can't be reached.
    """
    with _consumer(topic.address, properties) as consumer:
        found = consumer.partitions_for_topic(topic.topic) or topic.start
        partitions = [TopicPartition(topic.topic, partition) for partition in found]
        return {one.partition: offset for one, offset in consumer.end_offsets(partitions).items()}


def read_partition(
    topic: TopicInput, partition: int, properties: ClientProperties, end: int | None = None
) -> Iterator[list[TopicMessage]]:
    """The messages of one partition from its start to its end (or `end`, FOR_EVER for none), many at a time.

    Raises: UsageError when it is another topic of that name, or no longer has the first of them; JobFailed when the
    brokers can't be reached.
    """
    with _consumer(topic.address, properties) as consumer:
        if (why := topic.identity.why_other(_describe(topic.address, properties)[1])) is not None:
            msg = f"--events {topic.address}: {why}, so the messages that the run read are gone"
            raise UsageError(msg)
        place = TopicPartition(topic.topic, partition)
        first = consumer.beginning_offsets([place])[place]
        begin = topic.start.get(partition, 0)
        if first > begin:
            msg = (
                f"{topic.address}: partition {partition} now begins at offset {first}, the run read from {begin}: the "
                "messages between are gone (retention?), so that it can't be read again"
            )
            raise UsageError(msg)
        last = consumer.end_offsets([place])[place] if end is None else end
        consumer.assign([place])
        consumer.seek(place, begin)
        heard = time.monotonic()
        while consumer.position(place) < last:
            found = consumer.poll(timeout_ms=_POLL_MS, max_records=5000).get(place, [])
            if found:
                heard = time.monotonic()
                yield [_message(record) for record in found if record.offset < last]
            elif time.monotonic() - heard > _SILENT_S:
                msg = f"{topic.address}: no message of partition {partition} for {_SILENT_S:.0f} s before its end"
                raise JobFailed(msg)


def first_messages(
    topics: Sequence[TopicInput], properties: ClientProperties
) -> Iterator[tuple[TopicInput, list[TopicMessage], bool]]:
    """The messages of all topics from their starts, as they come; goes on for ever unless all topics have an end.

    Each list is of one partition, and empty where no message was there for a moment. It comes with whether some are
    left of the messages that stood in its topic at first.
    """
    open_ends = dict.fromkeys(range(len(topics)), True)
    consumers: dict[int, KafkaConsumer] = {}
    first_ends: dict[int, dict[TopicPartition, int]] = {}
    try:
        while any(open_ends.values()):
            for number, topic in enumerate(topics):
                if not open_ends[number]:
                    continue
                if number not in consumers:
                    consumers[number] = _at_start(topic, properties)
                    first_ends[number] = consumers[number].end_offsets(list(consumers[number].assignment()))
                found = consumers[number].poll(timeout_ms=_POLL_MS, max_records=500)
                is_behind = any(consumers[number].position(one) < end for one, end in first_ends[number].items())
                for records in found.values() or [[]]:
                    yield topic, [_message(record) for record in records], is_behind
                open_ends[number] = topic.end is None or any(
                    consumers[number].position(TopicPartition(topic.topic, partition)) < end
                    for partition, end in topic.end.items()
                )
    finally:
        for consumer in consumers.values():
            consumer.close(autocommit=False)


def _at_start(topic: TopicInput, properties: ClientProperties) -> KafkaConsumer:
    consumer = connected_consumer(topic.address, properties, **_READS)
    places = {TopicPartition(topic.topic, partition): offset for partition, offset in topic.start.items()}
    consumer.assign(list(places))
    for place, offset in places.items():
        consumer.seek(place, offset)
    return consumer


def _message(record: Any) -> TopicMessage:
    return TopicMessage(record.partition, record.offset, record.value, record.key if record.value is None else None)


def _describe(address: KafkaAddress, properties: ClientProperties) -> tuple[list[TopicPartition], TopicIdentity]:
    """The partitions of a topic, and which topic it is."""
    with admin_client(address, properties) as admin:
        if address.topic not in admin.list_topics():
            msg = f"--events {address}: no such topic; make it first (`freshet produce --partitions N` does)"
            raise UsageError(msg)
        found, cluster = admin.describe_topics([address.topic])[0], admin.describe_cluster()
    partitions = sorted(TopicPartition(address.topic, one["partition_index"]) for one in found["partitions"])
    return partitions, TopicIdentity(topic_id_of(found.get("topic_id")), cluster.get("cluster_id"))


def topic_id_of(given: str | uuid.UUID | None) -> str | None:
    """A topic's id as Kafka's tools write it; brokers before 2.8 give none, or zeros."""
    bits = uuid.UUID(str(given)) if given else uuid.UUID(int=0)
    return urlsafe_b64encode(bits.bytes).decode().rstrip("=") if bits.int else None


def _consumer(
    address: KafkaAddress, properties: ClientProperties, group: bool = False
) -> AbstractContextManager[KafkaConsumer]:
    more = {"group_id": properties.resolve().get("group.id")} if group else {}
    return consumer_of(address, properties, **_READS, **more)
