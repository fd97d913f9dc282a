"""Writes a stream of blocks of Kafka records to a topic.

One Python element for many records is what makes it fast: row by row, the way from Python to Java takes ten times as
long. `operators.record_blocks` has the form of a block. RecordSplitter.java cuts it; RecordSerializer.java, compiled
where the job is drawn, makes the records for Flink's KafkaSink.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.flink_java import java_operator, token_url
from freshet.job.kafka.topic_specs import TopicOutput
from freshet.operators.record_blocks import EPOCH_HEADER, JOB_HEADER

if TYPE_CHECKING:
    from pyflink.datastream import DataStream

SPLITTER, SERIALIZER = (Path(__file__).with_name(f"{name}.java") for name in ("RecordSplitter", "RecordSerializer"))
# While a broker is away, records wait: a send that gives up after its default of a minute would fail the job.
_PATIENCE_MS = 600_000
_DEFAULTS = {
    "max.block.ms": f"{_PATIENCE_MS}",
    "delivery.timeout.ms": f"{_PATIENCE_MS}",
    "linger.ms": "5",
    "batch.size": f"{128 << 10}",
}


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
