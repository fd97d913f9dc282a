"""Kafka topics in a Flink job: one as a stream of batches of messages, in one task with its Parser; and as a sink.

A call into Python costs 16 us and takes the interpreter lock several times, in competition with busy operators: with
one call per message a source would read 8,000 messages a second. So messages are gathered in Java, and where Flink's
reader of a topic hands them over: no operator of Flink has an object for each (see MessagePieces.java and
MessageBatcher.java). PyFlink's own KafkaSource gives values only, and the Table connector makes three rows of each.
Source, batcher and Parser are chained, with a subtask for each reader of the topic. The source is
wrapped by WatchedSource.java. Java of ours is compiled where the job is drawn, by the compiler that Flink has for
generated code, and goes along in a jar.

Records are written in blocks, too (`operators.record_blocks`), since row by row the way from Python to Java takes ten
times as long. RecordSplitter.java cuts a block, RecordSerializer.java makes the records for Flink's KafkaSink.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from freshet.job.kafka.client import SHADED, ClientProperties
from freshet.job.kafka.topic_specs import TopicInput, TopicOutput, advice
from freshet.job.uris import file_uri
from freshet.operators.record_blocks import EPOCH_HEADER, JOB_HEADER

if TYPE_CHECKING:
    from pyflink.common.typeinfo import TypeInformation
    from pyflink.datastream import DataStream, StreamExecutionEnvironment

TOKEN_URL = Path(__file__).with_name("TokenUrl.java")
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


def add_connector(env: StreamExecutionEnvironment, jars: Sequence[Path]) -> None:
    """Let the job, and this process where it draws the job, find the connector."""
    env.add_jars(*map(file_uri, jars))


def add_class(env: StreamExecutionEnvironment, source: Path, folder: Path, shaded: bool = True) -> None:
    """Compile a class, with the connector's jars added before, and let the job find it; the jar lies in `folder`.

    `shaded`: the connector has Kafka's client in it, in a package of another name.
    """
    from pyflink.java_gateway import get_gateway

    jvm = get_gateway().jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setTargetVersion(8)  # or Janino calls no static method of an interface
    compiler.setParentClassLoader(jvm.Thread.currentThread().getContextClassLoader())
    text = source.read_text(encoding="utf-8")
    compiler.cook(text if shaded else text.replace(SHADED, ""))
    folder.mkdir(parents=True, exist_ok=True)
    jar = folder / f"{source.stem}.jar"
    with ZipFile(jar, "w") as file:
        for name, code in compiler.getBytecodes().items():
            file.writestr(f"{name}.class", bytes(code))
    env.add_jars(file_uri(jar))


def token_url(properties: ClientProperties) -> Any:
    """The object of `TOKEN_URL` that lets clients ask for tokens where it arrives; None where none are asked for."""
    from pyflink.java_gateway import get_gateway

    url = properties.token_url
    return None if url is None else get_gateway().jvm.TokenUrl(_ALLOWED, url)


def java_operator(
    stream: DataStream, source: Path, references: Sequence[Any], out: TypeInformation, name: str
) -> DataStream:
    """Put an operator that is compiled where it runs behind a stream, in its task; it is given `references`."""
    from pyflink.datastream import DataStream
    from pyflink.java_gateway import get_gateway

    gateway = get_gateway()
    flink = gateway.jvm.org.apache.flink
    given = gateway.new_array(gateway.jvm.Object, len(references))
    for number, value in enumerate(references):
        given[number] = value
    no_options = flink.configuration.Configuration()
    code = flink.table.runtime.generated.GeneratedOperator(source.stem, source.read_text(), given, no_options)
    factory = flink.table.runtime.operators.CodeGenOperatorFactory(code)
    java = stream._j_data_stream
    before = java.getTransformation()
    made = flink.streaming.api.transformations.OneInputTransformation(
        before, name, factory, out.get_java_type_info(), before.getParallelism()
    )
    env = java.getExecutionEnvironment()
    env.addOperator(made)
    return DataStream(flink.streaming.api.datastream.DataStream(env, made))


BATCHER, PIECES, WATCHED = (
    Path(__file__).with_name(f"{name}.java") for name in ("MessageBatcher", "MessagePieces", "WatchedSource")
)
# A message waits so long at most for others to be parsed with; the first one after a pause does not.
BATCH_BYTES, BATCH_MESSAGES, LINGER_MS = 4 << 20, 16000, 10
_POLL_MESSAGES = 4000  # one hand-over from the client's thread to the task's; eight times Kafka's default
SPLITTER, SERIALIZER = (Path(__file__).with_name(f"{name}.java") for name in ("RecordSplitter", "RecordSerializer"))
# While a broker is away, records wait: a send that gives up after its default of a minute would fail the job.
_PATIENCE_MS = 600_000
_DEFAULTS = {
    "max.block.ms": f"{_PATIENCE_MS}",
    "delivery.timeout.ms": f"{_PATIENCE_MS}",
    "linger.ms": "5",
    "batch.size": f"{128 << 10}",
}


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

    Each of the `readers` reads some of its partitions. `operators.parser.stages` reads the batches. `out` is the
    job's output folder, for what its errors advise. A topic that is read to its end `waits` until the job is stopped,
    or makes the file `ended` and never reads again. `keyed`: with the keys of messages without a value.
    """
    from pyflink.datastream import DataStream
    from pyflink.java_gateway import get_gateway

    jvm = get_gateway().jvm
    starts = _java_map(topic.start)
    ends = None if topic.end is None else _java_map(topic.end)
    source = jvm.MessagePieces.source(topic.topic, _java_map(source_options(topic, properties)), starts, ends)
    used = _field(source, "props").get(source)
    # When a checkpoint's offset is no longer there, the connector makes the client begin with the earliest message
    # left: those between would be lost silently.
    used.setProperty("auto.offset.reset", "none")
    at_end = str(ended), waits, advice(out), token_url(properties)
    limits = BATCH_BYTES, BATCH_MESSAGES, keyed
    watched = jvm.WatchedSource(source, used, topic.topic, *topic.identity, ends, *at_end, *limits)
    no_marks = jvm.org.apache.flink.api.common.eventtime.WatermarkStrategy.noWatermarks()
    java = env._j_stream_execution_environment.fromSource(
        watched, no_marks, f"{topic.topic} (Kafka)", _pieces().get_java_type_info()
    )
    return in_batches(DataStream(java.uid(uid).setParallelism(readers)))


def in_batches(pieces: DataStream) -> DataStream:
    """Put the batcher behind a stream of pieces of messages; returns one of batches.

    Both are plain bytes, for what comes from outside is never unpickled.
    """
    return java_operator(pieces, BATCHER, (BATCH_BYTES, BATCH_MESSAGES, LINGER_MS), _pieces(), "batches")


def _pieces() -> TypeInformation:
    from pyflink.common.typeinfo import Types

    return Types.PRIMITIVE_ARRAY(Types.BYTE())


def source_options(topic: TopicInput, properties: ClientProperties) -> dict[str, str]:
    """The properties of the consumer; the user's win over our defaults."""
    options = {
        "bootstrap.servers": topic.bootstrap,
        "isolation.level": "read_committed",
        "allow.auto.create.topics": "false",  # a topic that is deleted is not to come back by our asking
        "max.poll.records": f"{_POLL_MESSAGES}",
    }
    return options | properties.resolve()


def _java_map(of: Mapping[Any, Any]) -> Any:
    from pyflink.java_gateway import get_gateway

    found = get_gateway().jvm.java.util.HashMap()
    for key, value in of.items():
        found.put(key, value)
    return found


def _field(of: Any, name: str) -> Any:
    field = of.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field


def write_records(blocks: DataStream, output: TopicOutput, properties: ClientProperties, uid: str) -> None:
    """End a stream of Row(block of records) in a topic; the state of what writes it goes by `uid`.

    The class of `SERIALIZER` has been added to the job. The records keep the order and the parallelism of the stream.
    """
    from pyflink.common.typeinfo import Types
    from pyflink.java_gateway import get_gateway

    records = java_operator(blocks, SPLITTER, (), Types.PRIMITIVE_ARRAY(Types.BYTE()), f"{output.topic} records")
    records._j_data_stream.getTransformation().setUid(f"{uid}-1")
    jvm = get_gateway().jvm
    flink = jvm.org.apache.flink.connector
    builder = flink.kafka.sink.KafkaSink.builder().setBootstrapServers(output.bootstrap)
    for name, value in producer_properties(output, properties).items():
        builder.setProperty(name, value)
    headers = EPOCH_HEADER, JOB_HEADER, output.mark
    builder.setRecordSerializer(jvm.RecordSerializer(output.topic, *headers, token_url(properties)))
    guarantee = flink.base.DeliveryGuarantee.AT_LEAST_ONCE
    if output.transactional_id_prefix is not None:
        guarantee = flink.base.DeliveryGuarantee.EXACTLY_ONCE
        builder.setTransactionalIdPrefix(output.transactional_id_prefix)
    sink = records._j_data_stream.sinkTo(builder.setDeliveryGuarantee(guarantee).build())
    sink.name(f"{output.topic} (Kafka)").uid(f"{uid}-0")
    sink.setParallelism(records._j_data_stream.getTransformation().getParallelism())


def producer_properties(output: TopicOutput, properties: ClientProperties) -> dict[str, str]:
    """The properties of the producer; the user's win over our defaults."""
    given = {**_DEFAULTS, **properties.resolve()}
    if output.transactional_id_prefix is not None:
        given["transaction.timeout.ms"] = f"{output.transaction_timeout_ms}"
        # Within a transaction there is no later than its end.
        for name in ("max.block.ms", "delivery.timeout.ms"):
            given[name] = str(min(int(given[name]), output.transaction_timeout_ms))
    return given
