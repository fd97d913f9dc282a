"""One Flink job that writes the same records to a topic for each codec and delivery: BOOTSTRAP OUT."""

from __future__ import annotations

import sys
from pathlib import Path

from pyflink.common import Row, Types

from freshet.job.flink.gateway import start_gateway, stop_gateway
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.options import environment, flink_options
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.flink_topics import SERIALIZER, add_class, add_connector, write_records
from freshet.job.kafka.topic_specs import TopicOutput
from freshet.job.machine.artifacts import connector_jars
from freshet.operators.record_blocks import KafkaRecord, blocks_of

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")  # by their number in a batch of records
DELIVERIES = ("upsert", "exactly-once")
RECORDS = 300


def topic_of(codec: str, delivery: str) -> str:
    return f"{codec}-{delivery}"


def main(bootstrap: str, out: Path) -> None:
    spec = JobSpec(out=str(out), layers=1, parts=1, checkpoint_interval_ms=200, heap_mb=512)
    for folder in (spec.checkpoints, spec.tmp):
        folder.mkdir(parents=True)
    java = start_gateway(spec.logs, spec.tmp, spec.heap_mb)
    try:
        env = environment(flink_options(spec))
        env.set_parallelism(1)
        add_connector(env, connector_jars())
        add_class(env, SERIALIZER, spec.tmp)
        records = [KafkaRecord(b"%d" % k, b"value of %d" % k) for k in range(RECORDS)]
        rows = [Row(block) for block in blocks_of(records)]
        blocks = env.from_collection(rows, type_info=Types.ROW([Types.PRIMITIVE_ARRAY(Types.BYTE())]))
        for codec in CODECS:
            for delivery in DELIVERIES:
                prefix = f"freshet-{codec}" if delivery == "exactly-once" else None
                output = TopicOutput(
                    bootstrap=bootstrap,
                    topic=topic_of(codec, delivery),
                    transactional_id_prefix=prefix,
                    transaction_timeout_ms=60_000,
                )
                properties = ClientProperties({"compression.type": codec})
                write_records(blocks, output, properties, f"to-{codec}-{delivery}")
        env.execute("codecs")
    finally:
        stop_gateway(java)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
