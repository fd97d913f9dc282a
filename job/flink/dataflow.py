"""The dataflow of a job, drawn on a PyFlink environment.

source -> parser -> partitioner -> storage 0 -> storage 1 [+ tail 1] -> ... -> storage L [+ tail L] -> sink

Every element is Row(key, block) from the parser on, so streams are keyed in Java without a Python key selector.
A topic's source, batcher and Parser are one chain, with a subtask for each reader; all of them send to the Partitioner.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from freshet.gnn.own.loading import loaded_sources
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.pipeline import OperatorGroups, part_keys, subtasks_of
from freshet.job.folder import layout
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.cut_channel import secrets_of
from freshet.job.kafka.flink_topics import (
    PIECES,
    SERIALIZER,
    TOKEN_URL,
    WATCHED,
    add_class,
    add_connector,
    topic_stream,
    write_records,
)
from freshet.job.kafka.logins import IAM
from freshet.job.machine.artifacts import connector_jars, token_connector_jars
from freshet.job.uris import file_uri
from freshet.operators.dataflow import (
    FEATURES,
    PARSER,
    PARTITIONER,
    SINK,
    STORAGE,
    TAIL,
    Dataflow,
    LayerTasks,
    topic_parser,
)
from freshet.operators.parser.mapping import reads_keys

if TYPE_CHECKING:
    from pyflink.datastream import DataStream, KeyedStream, StreamExecutionEnvironment


# Part of every savepoint: an operator's state is found by its uid.
UID = "freshet-{}"


def build(env: StreamExecutionEnvironment, spec: JobSpec) -> None:
    """Draw the job's operators on `env`."""
    from freshet.operators.flink.partitioner_shell import PartitionerShell
    from freshet.operators.flink.shell import element_type, records_type, tail_tag
    from freshet.operators.flink.stage_shells import OutletShell, StageShell

    _add_connector(env, spec)
    keys, flow = part_keys(spec.parts, spec.max_parallelism), Dataflow(spec.layers, spec.parts)
    pipeline = spec.operators
    places = {"out": str(spec.out_path), "logs": str(spec.logs), "last_of_first": pipeline.last_of_first}
    letters = {"letters": spec.letters_to is not None}
    sources = loaded_sources()
    stage = spec.stage | ({"layers": sources} if sources else {})
    settings = {"factory": spec.factory, "stage": stage, **places, **letters}
    config = json.dumps(settings)
    login = ClientProperties(spec.kafka_properties).registry_login() if spec.topics else {}
    of_parsers = json.dumps(settings | {"stage": stage | {"registry_login": login}}) if login else config
    events, parsers = _events(env, spec, of_parsers, *pipeline.place_of(PARSER))
    chained = chained_operators(spec, flow, pipeline)
    partitioner = PartitionerShell(with_secrets(spec, config), keys, spec.epoch_ms, FEATURES in chained)
    blocks = keyed(events).process(partitioner, element_type())
    streams = {PARTITIONER: named(blocks, PARTITIONER, 1, *pipeline.place_of(PARTITIONER))}
    if spec.letters_to is not None:
        _write_letters(spec, [streams[PARTITIONER], *parsers])  # with the parallelism of the first
    for row in flow.staged:
        first, *others = [streams[sender.name] for sender in flow.senders(row.name)]
        stream = _side_output(first, tail_tag()) if row.kind == TAIL else first.union(*others) if others else first
        in_task, place = keyed(stream, row.name in chained), pipeline.place_of(row.name)
        subtasks = subtasks_of(row.name, spec.by_layer)
        if row.kind != SINK:
            same_thread = [kind for kind, name in row.receivers.items() if name in chained]
            shell = StageShell(row.name, config, keys, row.receivers, same_thread)
            streams[row.name] = named(in_task.process(shell, element_type()), row.name, subtasks, *place)
        elif not spec.embedding_topics:
            rows = in_task.process(StageShell(SINK, config, keys, {}), element_type())
            discard(named(rows, SINK, subtasks, *place))
        else:
            shell = OutletShell(config, keys, list(spec.embeddings_by_kind))
            _write_embeddings(spec, named(in_task.process(shell, records_type()), SINK, subtasks, *place))


def _add_connector(env: StreamExecutionEnvironment, spec: JobSpec) -> None:
    """Add what reads and writes topics, if the job has any."""
    written = spec.embedding_topics or spec.letters_to
    if not spec.topics and not written:
        return
    properties = ClientProperties(spec.kafka_properties)
    shaded = properties.is_shaded
    add_connector(env, connector_jars() if shaded else token_connector_jars(properties.mechanism == IAM))
    read = ((PIECES, spec.topics), (WATCHED, spec.topics))  # in this order: the second one uses the first
    needed = ((TOKEN_URL, properties.token_url), *read, (SERIALIZER, written))
    for source in (source for source, is_needed in needed if is_needed):
        add_class(env, source, spec.tmp, shaded)


def with_secrets(spec: JobSpec, config: str) -> str:
    """Return the Partitioner's configuration: where its cut log is a topic, with what opens that."""
    fields = json.loads(config)
    if not fields["stage"].get("cuts", {}).get("topic"):
        return config
    properties = ClientProperties(spec.kafka_properties)
    fields["stage"]["cuts"] |= {"properties": dict(properties), "secrets": secrets_of(properties)}
    return json.dumps(fields)


def chained_operators(spec: JobSpec, flow: Dataflow, pipeline: OperatorGroups) -> set[str]:
    """Return the operators that share a thread with their only sender.

    With one task no data is redistributed, so another thread only adds a change of threads. The raw features, Tails
    and, with one part, the Sink compute little compared with that.
    """
    one_part = spec.parts == 1
    tasks = LayerTasks.of_counts(spec.parts, *(spec.stage.get(name) or () for name in ("tasks", "layer_tasks")))
    light = [row.name for row in flow.staged if row.name == FEATURES or row.kind == TAIL]
    found = {name for name in light if tasks.of(name).tasks == 1}
    if one_part and pipeline.group_of(SINK) == pipeline.group_of(f"{STORAGE}{spec.layers}"):
        found.add(SINK)
    return found


def _write_embeddings(spec: JobSpec, blocks: DataStream) -> None:
    """Draw the way of a Sink's records to a topic, or to one of each kind."""
    from freshet.operators.flink.shell import outlet_tag

    properties = ClientProperties(spec.kafka_properties)
    if spec.embeddings_to is not None:
        write_records(blocks, spec.embeddings_to, properties, UID.format("embeddings"))
    for kind, topic in spec.embeddings_by_kind.items():
        write_records(_side_output(blocks, outlet_tag(kind)), topic, properties, UID.format(f"embeddings.{kind}"))


def _write_letters(spec: JobSpec, streams: Sequence[DataStream]) -> None:
    """Draw the way of rejected records to their topic."""
    from freshet.operators.flink.shell import letters_tag

    first, *others = [_side_output(stream, letters_tag()) for stream in streams]
    blocks = first.union(*others) if others else first
    assert spec.letters_to is not None
    write_records(blocks, spec.letters_to, ClientProperties(spec.kafka_properties), UID.format("letters"))


def _events(
    env: StreamExecutionEnvironment, spec: JobSpec, config: str, slots: str, together: str | None
) -> tuple[DataStream, list[DataStream]]:
    """Return the Parsers' blocks together with the block that begins the job, and the streams of the Parsers."""
    from pyflink.common import WatermarkStrategy
    from pyflink.common.typeinfo import Types
    from pyflink.datastream.connectors.number_seq import NumberSequenceSource

    from freshet.operators.flink.parser_shells import MessageParserShell, ParserShell, StartShell
    from freshet.operators.flink.shell import element_type

    def numbers(name: str, last: int) -> DataStream:
        source = NumberSequenceSource(0, last)
        stream = env.from_source(source, WatermarkStrategy.no_watermarks(), name, type_info=Types.LONG())
        return named(stream, name, 1, slots, together)

    start = named(numbers("start", 0).process(StartShell(), element_type()), "begin", 1)
    parsers, keyed = [], reads_keys(spec.stage.get("parsing", {}).get("events_map"))
    for topic, readers in zip(spec.topics, spec.topic_readers or (1,) * len(spec.topics), strict=True):
        name = topic_parser(topic.source)
        uid = UID.format(f"kafka-{topic.source}")
        places = spec.out_path, layout.topic_ended(spec.out_path, topic.source)
        properties = ClientProperties(spec.kafka_properties)
        batches = topic_stream(env, topic, readers, properties, uid, *places, spec.ends_with_state, keyed=keyed)
        parsers.append(named(batches.process(MessageParserShell(name, config), element_type()), name, readers))
    if spec.chunks:
        parser = ParserShell(config, spec.chunks - 1 if spec.stay else -1)
        parsers.append(named(numbers("chunks", spec.chunks - 1).process(parser, element_type()), PARSER, 1))
    streams = [*parsers, _idle(env, spec)] if spec.stay else parsers
    return start.union(*streams) if streams else start, parsers


def _idle(env: StreamExecutionEnvironment, spec: JobSpec) -> DataStream:
    """Return a stream that never ends and never says anything: a watched folder in which no file appears."""
    from pyflink.common import Duration, WatermarkStrategy
    from pyflink.datastream.connectors.file_system import FileSource, StreamFormat

    from freshet.operators.flink.parser_shells import StartShell
    from freshet.operators.flink.shell import element_type

    folder = spec.out_path / layout.IDLE
    folder.mkdir(parents=True, exist_ok=True)
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), file_uri(folder))
    source = source.monitor_continuously(Duration.of_minutes(10)).build()
    lines = named(env.from_source(source, WatermarkStrategy.no_watermarks(), "stay"), "stay", 1)
    return named(lines.process(StartShell(), element_type()), "idle", 1)


def keyed(stream: DataStream, chained: bool = False) -> KeyedStream:
    """Key a stream of Row(key, block) by its first field, as PyFlink's `key_by` does after its own Python operator.

    `chained`: the stream is keyed so already, and stays in its task.
    """
    from pyflink.common.typeinfo import Types
    from pyflink.datastream import KeyedStream
    from pyflink.java_gateway import get_gateway

    selector = get_gateway().jvm.KeyByKeySelector()
    key_type = Types.ROW([Types.INT()]).get_java_type_info()
    value_type = Types.PICKLED_BYTE_ARRAY()
    if chained:
        utils = get_gateway().jvm.org.apache.flink.streaming.api.datastream.DataStreamUtils
        again = utils.reinterpretAsKeyedStream(stream._j_data_stream, selector, key_type)
        return KeyedStream(again, value_type, stream)
    return KeyedStream(stream._j_data_stream.keyBy(selector, key_type), value_type, stream)


def _side_output(stream: DataStream, tag: object) -> DataStream:
    """Return a side output as it is; PyFlink's own method would put a Python operator behind it."""
    from pyflink.datastream import DataStream

    return DataStream(stream._j_data_stream.getSideOutput(tag.get_java_output_tag()))  # type: ignore[attr-defined]


def named(
    stream: DataStream, name: str, parallelism: int, slots: str | None = None, together: str | None = None
) -> DataStream:
    """Name a stream's operator, its state's uid too.

    `slots`: by default those of what sends to it. `together`: of all operators with this name, Flink puts the subtasks
    of one number into one slot.
    """
    made = stream.name(name).uid(UID.format(name)).set_parallelism(parallelism)
    if together is not None:
        made._j_data_stream.getTransformation().setCoLocationGroupKey(together)
    return made if slots is None else made.slot_sharing_group(slots)


def discard(stream: DataStream, name: str = "end") -> None:
    """End a stream that carries nothing."""
    from pyflink.java_gateway import get_gateway

    sink = get_gateway().jvm.org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink()
    stream._j_data_stream.sinkTo(sink).name(name).uid(UID.format(name)).setParallelism(1)
