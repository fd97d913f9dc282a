"""Keeps the embeddings of a job's output topic in a table of PostgreSQL, where pgvector searches them.

Needs `pip install confluent-kafka numpy pgvector 'psycopg[binary]'`, and the extension `vector` in the database:

    python pgvector_rows.py HOST:PORT TOPIC postgresql://user@host/database

It runs on. Offsets are committed once the database has the rows, so that a killed process goes on there; rows that come
twice change nothing. `--until-end` ends at the records that are there.
"""

from __future__ import annotations

import argparse
import base64
import json
from typing import Any

import numpy as np
import psycopg
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition
from pgvector.psycopg import register_vector

ROWS, WAIT_S = 1000, 1.0  # of a transaction
TABLE = """
CREATE EXTENSION IF NOT EXISTS vector;
CREATE TABLE IF NOT EXISTS embeddings
    (id text PRIMARY KEY, epoch bigint NOT NULL, model text, embedding vector({width}));
CREATE INDEX IF NOT EXISTS embeddings_nearest ON embeddings USING hnsw (embedding vector_cosine_ops);
"""
# A row of an earlier epoch, read again after a failure, does not come back over a later one; nor does a deleted vertex,
# whose row stays without an embedding.
KEEP = """
INSERT INTO embeddings AS kept (id, epoch, model, embedding) VALUES (%s, %s, %s, %s)
ON CONFLICT (id) DO UPDATE SET epoch = excluded.epoch, model = excluded.model, embedding = excluded.embedding
WHERE kept.epoch <= excluded.epoch
"""


def row_of(message: Message) -> tuple[str, int, str | None, np.ndarray | None]:
    """Return id, epoch, model and embedding of a record; a deleted vertex has no embedding."""
    id_, value = (message.key() or b"").decode(), message.value()
    if value is None:
        return id_, int(dict(message.headers() or [])["epoch"]), None, None
    found = json.loads(value)
    row = found["embedding"]
    vector = np.frombuffer(base64.b64decode(row), "<f4") if isinstance(row, str) else np.array(row, np.float32)
    return id_, found["epoch"], found["model"], vector


def write(database: psycopg.Connection[Any], rows: list[tuple[str, int, str | None, np.ndarray | None]]) -> None:
    """Write rows in one transaction.

    Raises: psycopg.DataError for a row of another width than the table's, as of another model; it needs another table.
    """
    with database.transaction():
        database.cursor().executemany(KEEP, rows)


def begun(database: psycopg.Connection[Any]) -> bool:
    """Return whether the table is there, and have vectors be written if it is."""
    (found,) = database.execute("SELECT to_regclass('embeddings')").fetchone() or (None,)
    if found is not None:
        register_vector(database)
    return found is not None


def partitions_of(consumer: Consumer, topic: str) -> set[int]:
    """Return the numbers of a topic's partitions."""
    return set(consumer.list_topics(topic, timeout=30).topics[topic].partitions)


def main() -> None:
    """Read the topic and write the table, until it is stopped or the end of the topic."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("brokers", help="HOST:PORT,...")
    parser.add_argument("topic")
    parser.add_argument("database", help="a connection string of PostgreSQL")
    parser.add_argument("--until-end", action="store_true", help="end at the records that are there now")
    given = parser.parse_args()
    consumer = Consumer(
        {
            "bootstrap.servers": given.brokers,
            "group.id": f"pgvector-{given.topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    left = partitions_of(consumer, given.topic) if given.until_end else None
    if left is None:
        consumer.subscribe([given.topic])
    else:
        consumer.assign([TopicPartition(given.topic, number, OFFSET_BEGINNING) for number in left])
    with psycopg.connect(given.database, autocommit=True) as database:
        is_ready = begun(database)
        while left is None or left:
            rows = []
            for message in consumer.consume(ROWS, WAIT_S):
                error = message.error()
                if error is None:
                    rows.append(row_of(message))
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif left is not None:
                    left.discard(message.partition())
            width = next((len(row[3]) for row in rows if row[3] is not None), None)
            if not is_ready and width is not None:
                database.execute(TABLE.format(width=width))
                is_ready = begun(database)
            if is_ready and rows:
                write(database, rows)
                consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main()
