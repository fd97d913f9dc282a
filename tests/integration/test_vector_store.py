"""Rows of an output topic in another store: the recipe for pgvector, on a PostgreSQL of the test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from freshet.job.dev.broker import Broker
from tests.support.kafka.topics import make_topic
from tests.support.runs.jobs import DEADLINE_S, ROOT
from tests.support.serving.topic_jobs import put_rows

pytestmark = pytest.mark.slow

MODEL = "ab" * 32


@pytest.mark.parametrize("form", ["base64", "list"])
def test_the_newest_rows_are_searched_by_pgvector(broker: Broker, tmp_path: Path, form: str) -> None:
    pgserver, psycopg = pytest.importorskip("pgserver"), pytest.importorskip("psycopg")
    pytest.importorskip("pgvector")
    topic = f"rows-{form}"
    make_topic(broker, topic, 2)
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(50, 8)).astype(np.float32)
    newer = rng.normal(size=(50, 8)).astype(np.float32)

    def put(epoch: int, ids: list[int], vectors: np.ndarray | None) -> None:
        given = [(id_, epoch, None if vectors is None else vectors[id_].tolist()) for id_ in ids]
        put_rows(broker, topic, "a1", MODEL, given, form)

    store = pgserver.get_server(tmp_path / "pg", cleanup_mode="delete")
    try:
        put(1, list(range(50)), rows)
        keep(broker, topic, store.get_uri())
        put(2, list(range(10)), newer)
        put(1, [3, 4], rows)  # again, as after a failure
        put_rows(broker, topic, "a1", MODEL, [(7, 3, None), (8, 3, newer[8].tolist())], form)
        put(2, [7], newer)  # again: the vertex stays deleted
        keep(broker, topic, store.get_uri())
        rows[:10] = newer[:10]
        nearest = "SELECT id::int FROM embeddings WHERE embedding IS NOT NULL ORDER BY embedding <=> %s::vector LIMIT 5"
        with psycopg.connect(store.get_uri()) as database:
            (count,) = database.execute("SELECT count(embedding) FROM embeddings").fetchone()
            assert count == 49
            database.execute("SET enable_indexscan = off")  # exact
            for id_ in (0, 20, 40):
                found = database.execute(nearest, (str(rows[id_].tolist()),)).fetchall()
                likeness = rows @ rows[id_] / np.linalg.norm(rows, axis=1)
                likeness[7] = -np.inf
                assert [one for (one,) in found] == np.argsort(-likeness)[:5].tolist()
    finally:
        store.cleanup()


def keep(broker: Broker, topic: str, database: str) -> None:
    command = [sys.executable, "examples/pgvector_rows.py", broker.address, topic, database, "--until-end"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
