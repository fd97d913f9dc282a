"""Jobs whose rows a test puts into topics, as a job's sink and its `embeddings-from-start` do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np

from freshet.job.dev.broker import Broker
from freshet.job.folder.job_file import SavedJob
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.produce import producer_to
from freshet.operators.record_blocks import JOB_HEADER, TopicMark
from freshet.operators.sink.coalesce import Changes
from freshet.operators.sink.kafka_records import RecordBlocks
from tests.support.kafka.records import split_epochs


def write_topic(out: Path, topic: str | None) -> None:
    """Have a job's folder say that it writes there."""
    saved = SavedJob.read(out)
    assert saved is not None
    replace(saved, options={"embeddings_to": topic}).write(out)


def put_rows(
    broker: Broker,
    topic: str,
    job_id: str,
    model: str,
    rows: Iterable[tuple[int, int, list[float] | None]],
    form: str = "binary",
    **mark: str,
) -> None:
    """Put records of a job into a topic: vertex, epoch, and the embedding or None for a deletion.

    `form`: as --embedding-format names it.
    """
    ids, epochs, vectors = (list(column) for column in zip(*rows, strict=True))
    width = max(len(one) for one in vectors if one is not None)
    put = Changes(
        np.array(ids, np.int64),
        np.array(epochs, np.int64),
        np.array([one is None for one in vectors]),
        np.array([one or [0.0] * width for one in vectors], np.float32),
    )
    producer = producer_to(KafkaAddress(broker.address, topic), broker.client_properties())
    headers = [(JOB_HEADER, TopicMark(job_id, has_all=True, **mark).encode())]
    for block in RecordBlocks(model[:12], form).blocks(put):
        for key, value, epoch in split_epochs(block):
            own = headers if epoch is None else [("epoch", b"%d" % epoch)]
            producer.produce(topic, value, key, headers=own)
    assert producer.flush(60) == 0
