"""Makes the topics that a job writes where they are missing, and checks that they accept what it will send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kafka.admin import ConfigResource, NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError

from freshet.job.errors import JobFailed, UsageError
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties, admin_client
from freshet.job.kafka.topic_specs import TopicOutput
from freshet.operators.limits import RECORD_BYTES

_CAP = "transaction.max.timeout.ms"
# A transaction is open for an interval, the checkpoint itself, and a restart in which it is found again.
_SPARE_MS = 60_000


def plan_output(
    option: str,
    address: KafkaAddress,
    properties: ClientProperties,
    say: Callable[[str], None],
    *,
    compacted: bool,
    prefix: str | None = None,
    checkpoint_interval_ms: int = 0,
) -> TopicOutput:
    """Make the topic if it is missing, and check that the brokers can provide the requested guarantees.

    `compacted`: it keeps the last record of each key; `prefix`: of the transactions, None for none.
    Raises: UsageError when the brokers cap transactions below what the job needs; JobFailed when they can't be reached.
    """
    with admin_client(address, properties) as admin:
        make_topic(option, admin, address, say, compacted=compacted)
        timeout_ms = 0
        if prefix is not None:
            timeout_ms = _transaction_timeout_ms(option, admin, address, checkpoint_interval_ms)
        record_bytes = _record_bytes(admin, address, properties)
    return TopicOutput(
        bootstrap=address.bootstrap,
        topic=address.topic,
        transactional_id_prefix=prefix,
        transaction_timeout_ms=timeout_ms,
        record_bytes=record_bytes,
    )


def make_topic(
    option: str,
    admin: Any,
    address: KafkaAddress,
    say: Callable[[str], None],
    *,
    compacted: bool,
    lost: str = "the last embedding of a vertex",
) -> None:
    """Make a topic if it is missing; say where an existing one that is to keep the last record of each key does not.

    `lost`: what such a record says.
    """
    if address.topic not in admin.list_topics():
        config = {"cleanup.policy": "compact"} if compacted else {}
        try:
            # As many partitions and replicas as the brokers' defaults say.
            admin.create_topics([NewTopic(address.topic, -1, -1, topic_configs=config)])
        except TopicAlreadyExistsError:  # made by someone else in between
            pass
        else:
            say(f"{option}: made the topic {address.topic}{', compacted' if compacted else ''}")
            return
    if not compacted:
        return
    if (policy := policy_that_deletes(admin, address.topic)) is not None:
        say(
            f"warning: {option}: the topic {address.topic} has {policy}: {lost} "
            "is deleted after a while; set cleanup.policy=compact to keep it"
        )


def _transaction_timeout_ms(option: str, admin: Any, address: KafkaAddress, interval_ms: int) -> int:
    """The longest that the brokers allow: a job that is down for longer loses what waits to be committed."""
    node = str(admin.describe_cluster()["brokers"][0]["broker_id"])
    cap_ms = int(config_of(admin, "broker", node, _CAP) or 900_000)
    needed_ms = 2 * interval_ms + _SPARE_MS
    if cap_ms < needed_ms:
        msg = (
            f"{option} {address}: --delivery exactly-once with --checkpoint-interval {interval_ms / 1000:g}s needs "
            f"transactions of up to {needed_ms / 1000:g} s, but the brokers cap them at {cap_ms / 1000:g} s ({_CAP}); "
            f"raise that, take a shorter --checkpoint-interval, or --delivery upsert"
        )
        raise UsageError(msg)
    return cap_ms


def _record_bytes(admin: Any, address: KafkaAddress, properties: ClientProperties) -> int:
    """The largest record that the producer sends and the topic takes; defaults where nothing is set."""
    given = properties.resolve().get("max.request.size", "")
    try:
        topic = config_of(admin, "topic", address.topic, "max.message.bytes") or ""
    except (KafkaError, LookupError):  # may not be asked, or was made a moment ago
        topic = ""
    return min(int(size) if size.isdecimal() else RECORD_BYTES for size in (given, topic))


def policy_that_deletes(admin: Any, topic: str) -> str | None:
    """Return the setting by which a topic loses the last record of a key, in words; None where it keeps them."""
    policy = config_of(admin, "topic", topic, "cleanup.policy") or "delete"
    limits = [config_of(admin, "topic", topic, name) for name in ("retention.ms", "retention.bytes")]
    return f"cleanup.policy={policy}" if "delete" in policy and limits != ["-1", "-1"] else None


def compaction_of(address: KafkaAddress, properties: ClientProperties) -> str | None:
    """Return the setting by which brokers remove older records of a key from a topic; None where they keep them.

    Raises: JobFailed when they do not say.
    """
    with admin_client(address, properties) as admin:
        if address.topic not in admin.list_topics():
            return None
        policy = config_of(admin, "topic", address.topic, "cleanup.policy") or ""
    return f"cleanup.policy={policy}" if "compact" in policy else None


def tell_compaction(address: KafkaAddress, properties: ClientProperties, say: Callable[[str], None]) -> None:
    """Say of a topic of events that brokers remove older records of a key from it."""
    try:
        policy = compaction_of(address, properties)
    except JobFailed as error:
        say(f"--events {address}: whether it is compacted is not known ({error})")
        return
    if policy is not None:
        say(
            f"warning: --events {address}: the topic has {policy}: brokers remove all but the last event of each key, "
            "so that a job that reads it again gets another graph, and `freshet check` can't check this one; set "
            "cleanup.policy=delete"
        )


def config_of(admin: Any, kind: str, name: str, key: str) -> str | None:
    """One configuration value of a topic or a broker."""
    found = admin.describe_configs([ConfigResource(kind.upper(), name, [key])], config_filter="all")
    value = found[kind][name].get(key)
    return None if value is None else str(value["value"])
