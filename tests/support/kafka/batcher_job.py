"""Messages through MessageBatcher.java in a real Flink job: `python -m tests.support.kafka.batcher_job OUT`.

Each message is a piece of its own. OUT/batches.json has the batches of each case: lists of [partition, offset, value,
key], both in base64 or null. Cases of time read a stream that lasts until what they are to show has come.
"""

from __future__ import annotations

import base64
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyflink.common import Row, Types
from pyflink.datastream import DataStream
from pyflink.table import StreamTableEnvironment

from freshet.job.flink.gateway import start_gateway, stop_gateway
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.options import flink_options
from freshet.job.flink.runtime import environment
from freshet.job.kafka import flink_topics
from tests.support.kafka.batches import batch_of, messages_of

PIECE = Types.PRIMITIVE_ARRAY(Types.BYTE())
DAY_MS = 86_400_000
LARGE = 5000  # bytes of one message
SLOW_ROWS = 120_000  # in bursts of a thousand a second

Batches = list[list[Any]]


def many_messages() -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Of all kinds: without a value, empty, small, one larger than a batch."""
    rng = random.Random(3)
    values = [None if rng.random() < 0.1 else rng.randbytes(rng.choice([0, 1, 30, 90])) for _ in range(3000)]
    values[1500] = rng.randbytes(LARGE)
    keys = [rng.choice([None, b"", b"key %d" % k]) for k in range(3000)]
    return [(k % 3, 2**33 + k, value, keys[k]) for k, value in enumerate(values)]


def tables_of(options: dict[str, str]) -> StreamTableEnvironment:
    env = environment(options)
    env.set_parallelism(1)
    return StreamTableEnvironment.create(env)


def run(
    messages: DataStream, limits: tuple[int, int, int], enough: Callable[[Batches], bool] = lambda _: False
) -> Batches:
    """The batches of a job with these limits (bytes, messages, milliseconds), up to the end or to what is enough."""
    flink_topics.BATCH_BYTES, flink_topics.BATCH_MESSAGES, flink_topics.LINGER_MS = limits
    rows = flink_topics.in_batches(messages)._j_data_stream.executeAndCollect()
    found: Batches = []
    while not enough(found) and rows.hasNext():
        batch = bytes(rows.next())
        found.append(
            [
                (partition, offset, *(None if one is None else base64.b64encode(one).decode() for one in both))
                for partition, offset, *both in messages_of(batch)
            ]
        )
    rows.close()
    return found


def slow_messages(tables: StreamTableEnvironment) -> DataStream:
    tables.execute_sql(
        f"CREATE TABLE slow (o BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000', "
        f"'fields.o.kind' = 'sequence', 'fields.o.start' = '0', 'fields.o.end' = '{SLOW_ROWS - 1}')"
    )
    return tables.to_data_stream(tables.from_path("slow")).map(_without_value, PIECE)


def _without_value(row: Row) -> bytes:
    return batch_of([(0, row[0], None)])


def _first(row: Row) -> bytes:
    return bytes(row[0])


def main(out: Path) -> None:
    """Run the cases."""
    spec = JobSpec(out=str(out), layers=1, parts=1, checkpoint_interval_ms=200, heap_mb=512)
    for folder in (spec.checkpoints, out / "tmp"):
        folder.mkdir(parents=True)
    java = start_gateway(spec.logs, spec.tmp, spec.heap_mb)
    results = {}
    try:
        # A barrier sends what waits: no checkpoint comes while batches are to be full.
        options = flink_options(spec)
        quiet = {name: value for name, value in options.items() if name != "execution.checkpointing.interval"}
        rows = [Row(batch_of([one])) for one in many_messages()]
        env = environment(quiet)
        env.set_parallelism(1)
        many = env.from_collection(rows, Types.ROW([PIECE])).map(_first, PIECE)
        results["many"] = run(many, (1000, 50, DAY_MS))
        slow = slow_messages(tables_of(options))
        results["by barriers"] = run(slow, (1 << 30, 1 << 30, DAY_MS), lambda found: len(found) >= 3)
        slow = slow_messages(tables_of(quiet))
        results["by time"] = run(slow, (1 << 30, 1 << 30, 100), lambda found: len(found) >= 3 and len(found[-1]) == 1)
    finally:
        stop_gateway(java)
    (out / "batches.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
