"""`embeddings-from-start: true`: the embeddings of the snapshot into the topic, before the job puts anything there.

Once in a job's life: what comes after it is newer, and would be hidden by the same rows put again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from confluent_kafka import KafkaException

from freshet.job.console import ProgressDisplay, say
from freshet.job.errors import JobFailed
from freshet.job.folder import layout
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.produce import explained, producer_to
from freshet.job.kafka.topic_specs import TopicOutput
from freshet.job.run.new_job import Job
from freshet.job.serving.protocol.columns import ids_of_column, rows_of
from freshet.operators.output_folders import LogFolders
from freshet.operators.record_blocks import JOB_HEADER, records_of
from freshet.operators.sink.coalesce import Changes, TextIds
from freshet.operators.sink.kafka_records import RecordBlocks
from freshet.state.served.ids import Texts

_ROWS_AT_ONCE = 16_384
_WAIT_S = 1.0


def put_start(job: Job, properties: ClientProperties, out: Path) -> None:
    """Put the rows of epoch 0 into the topic, unless that was done; the brokers have them on return.

    Raises: JobFailed when they do not take them.
    """
    topics, done = job.outputs.topics, out / layout.IN_TOPIC
    if not topics or done.exists():
        return
    assert job.settings.outlet is not None
    records = RecordBlocks(job.settings.outlet.model_tag, job.settings.outlet.embedding_format)
    for kind, topic in topics.items():
        count = _put(topic, properties, records, LogFolders(out, kind))
        say(f"embeddings-from-start: {count:,} embeddings of the snapshot are in the topic {topic.topic}")
    done.touch()


def _put(topic: TopicOutput, properties: ClientProperties, records: RecordBlocks, log: LogFolders) -> int:
    failed: list[Any] = []
    count = 0

    def reported(error: Any, _message: Any) -> None:
        if error is not None:
            failed.append(error)

    producer = producer_to(topic.address, properties)
    try:
        with ProgressDisplay("embeddings to the topic") as bar:
            for changes in _changes(log):
                for block in records.blocks(changes):
                    for key, value, _ in records_of(block):
                        while not _takes(producer, topic, key, value, reported):
                            _raise(failed)
                count += len(changes)
                _raise(failed)
                bar.update(f"rows {count:,}")
            while producer.flush(_WAIT_S):
                _raise(failed)
            _raise(failed)
    except KafkaException as error:
        msg = f"embeddings-from-start: {explained(error, topic.address)}; go on with --resume latest"
        raise JobFailed(msg) from error
    finally:
        producer.purge()
    return count


def _takes(producer: Any, topic: TopicOutput, key: bytes, value: bytes | None, reported: Any) -> bool:
    """Hand a record over; False where the client holds all that it may, after a wait."""
    try:
        marks = {"headers": [(JOB_HEADER, topic.mark.encode())]} if topic.mark else {}
        producer.produce(topic.topic, value, key, on_delivery=reported, **marks)
    except BufferError:
        producer.poll(_WAIT_S)
        return False
    producer.poll(0)
    return True


def _raise(failed: list[Any]) -> None:
    if failed:
        raise KafkaException(failed[0])


def _changes(log: LogFolders) -> Iterator[Changes]:
    """Return the rows of epoch 0, which the change log has before the job begins."""
    for path in sorted(log.embeddings.glob("[!._]*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE):
                ids = ids_of_column(batch.column("id"))
                n, epochs = batch.num_rows, batch.column("epoch").to_numpy()
                put = TextIds(ids.offsets.copy(), ids.data.copy()) if isinstance(ids, Texts) else ids.copy()
                yield Changes(put, epochs.copy(), np.zeros(n, bool), rows_of(batch.column("embedding")).copy())
