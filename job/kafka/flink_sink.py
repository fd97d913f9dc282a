"""Writes a stream of text blocks to a Kafka topic: SQL splits each block into records.

`operators.record_lines` has the form of a block. One Python element for many records is what makes it fast: row by row,
the way from Python to Java takes ten times as long.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.flink_table import kafka_table
from freshet.job.kafka.topic_specs import TopicOutput
from freshet.operators.record_lines import EPOCH_HEADER, LINE_END, TAB

if TYPE_CHECKING:
    from pyflink.datastream import DataStream, StreamExecutionEnvironment
    from pyflink.table import TableDescriptor

# A line that begins with a tab has its key in hexadecimal, one field later than any other. Only tombstones have a field
# behind the value, which is empty there. Each SPLIT_INDEX splits the whole line, so most rows come to two of them; two
# tabs in a row have tombstones and an empty key alone.
_SQL = """
INSERT INTO `{topic}` SELECT
  CASE WHEN `line` LIKE '{tab}%' THEN UNHEX(SPLIT_INDEX(`line`, '{tab}', 1))
    ELSE ENCODE(SPLIT_INDEX(`line`, '{tab}', 0), 'UTF-8') END,
  CASE WHEN `line` LIKE '%{tab}{tab}%' THEN CASE WHEN `line` LIKE '{tab}%'
        THEN ENCODE(NULLIF(SPLIT_INDEX(`line`, '{tab}', 2), ''), 'UTF-8')
        ELSE ENCODE(NULLIF(SPLIT_INDEX(`line`, '{tab}', 1), ''), 'UTF-8') END
    WHEN `line` LIKE '{tab}%' THEN ENCODE(SPLIT_INDEX(`line`, '{tab}', 2), 'UTF-8')
    ELSE ENCODE(SPLIT_INDEX(`line`, '{tab}', 1), 'UTF-8') END,
  CASE WHEN `line` NOT LIKE '%{tab}{tab}%' THEN CAST(NULL AS MAP<STRING, BYTES>)
    WHEN `line` LIKE '{tab}%' AND SPLIT_INDEX(`line`, '{tab}', 3) IS NOT NULL
      THEN MAP['{header}', ENCODE(SPLIT_INDEX(`line`, '{tab}', 3), 'UTF-8')]
    WHEN `line` NOT LIKE '{tab}%' AND SPLIT_INDEX(`line`, '{tab}', 2) IS NOT NULL
      THEN MAP['{header}', ENCODE(SPLIT_INDEX(`line`, '{tab}', 2), 'UTF-8')]
    ELSE CAST(NULL AS MAP<STRING, BYTES>) END
FROM `{view}` CROSS JOIN UNNEST(SPLIT(`lines`, '{end}')) AS records(`line`)
""".strip()

# While a broker is away, records wait: a send that gives up after its default of a minute would fail the job.
_PATIENCE_MS = 600_000
_DEFAULTS = {
    "max.block.ms": f"{_PATIENCE_MS}",
    "delivery.timeout.ms": f"{_PATIENCE_MS}",
    "linger.ms": "5",
    "batch.size": f"{128 << 10}",
}


def write_lines(
    env: StreamExecutionEnvironment, lines: DataStream, output: TopicOutput, properties: ClientProperties, uid: str
) -> None:
    """End a stream of Row(lines: STRING) in a topic; the state of the operators that do it goes by `uid`.

    They keep the order and the parallelism of the stream.
    """
    from pyflink.table import StreamTableEnvironment

    tables = StreamTableEnvironment.create(env)
    name = uid.replace("-", "_")
    names = {"view": f"{name}_lines", "topic": name}
    tables.create_temporary_view(names["view"], tables.from_data_stream(lines))
    tables.create_temporary_table(names["topic"], _descriptor(output, properties))
    java = env._j_stream_execution_environment
    before = java.getTransformations().size()
    statements = tables.create_statement_set()
    statements.add_insert_sql(_SQL.format(**names, tab=TAB, end=LINE_END, header=EPOCH_HEADER))
    statements.attach_as_datastream()
    first = lines._j_data_stream.getTransformation().getId()
    count = itertools.count()
    for number in range(before, java.getTransformations().size()):
        for transformation in _upstream(java.getTransformations().get(number), first):
            transformation.setUid(f"{uid}-{next(count)}")


def _upstream(transformation: Any, until: int) -> Iterator[Any]:
    """A transformation and those before it, up to the one with that id: the planner gives them no uid."""
    while transformation.getId() != until:
        yield transformation
        transformation = transformation.getInputs().get(0)


def _descriptor(output: TopicOutput, properties: ClientProperties) -> TableDescriptor:
    from pyflink.table import DataTypes, Schema

    schema = Schema.new_builder().column("key", DataTypes.BYTES()).column("value", DataTypes.BYTES())
    schema = schema.column_by_metadata("headers", DataTypes.MAP(DataTypes.STRING(), DataTypes.BYTES())).build()
    return kafka_table(schema, connector_options(output, properties))


def connector_options(output: TopicOutput, properties: ClientProperties) -> dict[str, str]:
    """The options of the table connector; the user's properties win over our defaults."""
    options = {
        "topic": output.topic,
        "properties.bootstrap.servers": output.bootstrap,
        "key.format": "raw",
        "key.fields": "key",
        "value.format": "raw",
        "value.fields-include": "EXCEPT_KEY",
        "sink.delivery-guarantee": "at-least-once",
    }
    given = {**_DEFAULTS, **properties.resolve()}
    if output.transactional_id_prefix is not None:
        options["sink.delivery-guarantee"] = "exactly-once"
        options["sink.transactional-id-prefix"] = output.transactional_id_prefix
        given["transaction.timeout.ms"] = f"{output.transaction_timeout_ms}"
        # Within a transaction there is no later than its end.
        for name in ("max.block.ms", "delivery.timeout.ms"):
            given[name] = str(min(int(given[name]), output.transaction_timeout_ms))
    return options | {f"properties.{name}": value for name, value in given.items()}
