"""A Kafka topic as a stream of batches of messages, in one task with its Parser.

PyFlink's KafkaSource gives values only, so the Table connector reads: value as it is, partition and offset as metadata.
A call into Python costs 16 us and takes the interpreter lock several times, in competition with busy operators: with
one call per message a source would read 8,000 messages a second. So messages are gathered in Java (see
MessageBatcher.java).
Source, table operators, batcher and Parser are chained, with a subtask for each reader of the topic. The source is
wrapped by WatchedSource.java, which is compiled here and goes along in a jar.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.flink_java import java_operator, token_url
from freshet.job.kafka.topic_specs import TopicInput, advice

if TYPE_CHECKING:
    from pyflink.datastream import DataStream, StreamExecutionEnvironment
    from pyflink.table import TableDescriptor

BATCHER, WATCHED = (Path(__file__).with_name(f"{name}.java") for name in ("MessageBatcher", "WatchedSource"))
KEY_COLUMN = "message_key"
# A message waits so long at most for others to be parsed with; the first one after a pause does not.
BATCH_BYTES, BATCH_MESSAGES, LINGER_MS = 4 << 20, 16000, 10


def topic_stream(
    env: StreamExecutionEnvironment,
    topic: TopicInput,
    readers: int,
    properties: ClientProperties,
    uid: str,
    out: Path,
    ended: Path,
    waits: bool,
    *,
    keyed: bool = False,
) -> DataStream:
    """Return the messages of a topic from its start, to its end if it has one; the source's state goes by `uid`.

    Each of the `readers` reads some of its partitions. `operators.parser.topic_stage` reads the batches. `out` is the
    job's output folder, for what its errors advise. A topic that is read to its end `waits` until the job is stopped,
    or makes the file `ended` and never reads again. `keyed`: with the keys of messages without a value.
    """
    from pyflink.table import StreamTableEnvironment
    from pyflink.table.expressions import col

    tables = StreamTableEnvironment.create(env)
    tables.get_config().set("table.exec.resource.default-parallelism", str(readers))
    messages = tables.from_descriptor(_descriptor(topic, properties, keyed=keyed))
    columns = "partition", "offset", "value", *([KEY_COLUMN] if keyed else [])
    stream = tables.to_data_stream(messages.select(*map(col, columns)))
    at_end = str(ended), waits, advice(out)
    _set_up_source(stream._j_data_stream.getTransformation(), topic, uid, at_end, token_url(properties))
    return in_batches(stream)


def in_batches(messages: DataStream) -> DataStream:
    """Put the batcher behind a stream of Row(partition, offset, value); returns one of batches.

    They are plain bytes, for what comes from outside is never unpickled.
    """
    from pyflink.common.typeinfo import Types

    limits = BATCH_BYTES, BATCH_MESSAGES, LINGER_MS
    return java_operator(messages, BATCHER, limits, Types.PRIMITIVE_ARRAY(Types.BYTE()), "batches")


def _descriptor(topic: TopicInput, properties: ClientProperties, *, keyed: bool) -> TableDescriptor:
    from pyflink.table import DataTypes, Schema, TableDescriptor

    schema = Schema.new_builder().column("value", DataTypes.BYTES())
    schema = schema.column(KEY_COLUMN, DataTypes.BYTES()) if keyed else schema
    schema = schema.column_by_metadata("partition", DataTypes.INT(), is_virtual=True)
    schema = schema.column_by_metadata("offset", DataTypes.BIGINT(), is_virtual=True)
    builder = TableDescriptor.for_connector("kafka").schema(schema.build())
    of_keys = {"key.format": "raw", "key.fields": KEY_COLUMN, "value.fields-include": "EXCEPT_KEY"} if keyed else {}
    for name, value in (source_options(topic, properties) | of_keys).items():
        builder = builder.option(name, value)
    return builder.build()


def source_options(topic: TopicInput, properties: ClientProperties) -> dict[str, str]:
    """The options of the table connector."""
    options = {
        "topic": topic.topic,
        "properties.bootstrap.servers": topic.bootstrap,
        "properties.isolation.level": "read_committed",
        "properties.allow.auto.create.topics": "false",  # a topic that is deleted is not to come back by our asking
        "value.format": "raw",
        # The very offsets that `freshet run` found, so that a job that begins again begins there.
        "scan.startup.mode": "specific-offsets",
        "scan.startup.specific-offsets": _offsets(topic.start),
    }
    if topic.end is not None:
        options |= {
            "scan.bounded.mode": "specific-offsets",
            "scan.bounded.specific-offsets": _offsets(topic.end),
        }
    return options | {f"properties.{key}": value for key, value in properties.resolve().items()}


def _offsets(offsets: dict[int, int]) -> str:
    return ";".join(f"partition:{partition},offset:{offset}" for partition, offset in sorted(offsets.items()))


def _set_up_source(transformation: Any, topic: TopicInput, uid: str, at_end: tuple[str, bool, str], url: Any) -> None:
    """Name the source above a table's stream, and have it end the job when its messages are gone.

    The planner gives it no uid by which its state would be found again. And when a checkpoint's offset is no longer
    there, the connector makes the client begin with the earliest message left: those between would be lost silently.
    """
    from pyflink.java_gateway import get_gateway

    while not transformation.getInputs().isEmpty():
        transformation = transformation.getInputs().get(0)
    transformation.setUid(uid)
    transformation.setName(f"{topic.topic} (Kafka)")
    source = transformation.getSource()
    properties = _field(source, "props").get(source)
    properties.setProperty("auto.offset.reset", "none")
    jvm, ends = get_gateway().jvm, None
    if topic.end is not None:
        ends = jvm.java.util.HashMap()
        for partition, offset in topic.end.items():
            ends.put(partition, offset)
    watched = jvm.WatchedSource(source, properties, topic.topic, *topic.identity, ends, *at_end, url)
    _field(transformation, "source").set(transformation, watched)


def _field(of: Any, name: str) -> Any:
    field = of.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field
