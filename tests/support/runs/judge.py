"""What a job left behind, held against the truth: embeddings, epochs, and the topic it wrote."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import orjson
import pyarrow.parquet as pq

from freshet.job.dev.broker import Broker
from tests.support.kafka.records import parse
from tests.support.kafka.topics import read_topic
from tests.support.runs.jobs import FRESHET, ROOT, Job, Log

Delivery = Literal["upsert", "exactly-once"]
Say = Callable[[str], None]


@dataclass
class Outcome:
    """What came of it; all zeros is what should come."""

    wrong: int = 0
    missing: int = 0
    duplicates: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Nothing was wrong."""
        return not (self.wrong or self.missing or self.duplicates)


def check_embeddings(job: Job, outcome: Outcome, say: Say) -> None:
    """The final embeddings equal the oracle's (`freshet check`)."""
    command = [str(FRESHET), "check", *job.given.options, "--out", str(job.out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if not done.stdout.strip():
        outcome.wrong += 1
        outcome.notes.append(f"freshet check: {done.stderr.strip().splitlines()[-1]}")
        return
    found = orjson.loads(done.stdout)
    say(f"freshet check: {done.stdout.strip()}")
    outcome.missing += found["missing"]
    outcome.duplicates += found["duplicates"]
    outcome.wrong += found["extra"] + found["mismatched"] + (found["max_rel_error"] > 1e-4)


def check_count(out: Path, events: int, outcome: Outcome) -> None:
    """Every event is in exactly one epoch."""
    tables = [pq.read_table(file) for file in (out / "epochs").glob("[!._]*.parquet")]
    found = sum(sum(table["events"].to_pylist()) for table in tables)
    if found != events:
        outcome.wrong += 1
        outcome.notes.append(f"{found:,} events in all epochs, {events:,} in the input")


def check_topic(
    broker: Broker, log: Log, delivery: Delivery, outcome: Outcome, say: Say, topic: str = "embeddings"
) -> None:
    """Each vertex's last record in the topic is its last row in the change log, bit by bit."""
    committed = "read_committed" if delivery == "exactly-once" else "read_uncommitted"
    found = read_topic(broker, topic, isolation_level=committed)
    every = [record for each in found.values() for record in each]
    records = [(record.key, parse(record.value) if record.value else None) for record in every]
    last = dict(records)
    rows = {b"%d" % log.id[k]: k for k in range(len(log.id))}
    for key, k in rows.items():
        record = last.get(key)
        if log.deleted[k]:
            outcome.wrong += record is not None
        elif record is None:
            outcome.missing += 1
        else:
            outcome.wrong += record["embedding"].tobytes() != log.vector[k].tobytes()
    outcome.wrong += len(last.keys() - rows.keys())
    twice = Counter((key, record["epoch"]) for key, record in records if record is not None)
    repeated = sum(count - 1 for count in twice.values())
    if delivery == "exactly-once":
        outcome.duplicates += repeated
    say(f"the topic {topic}: {len(records):,} records of {len(last):,} vertices, {repeated:,} of them repeated")


def say(text: str) -> None:
    """A line of progress."""
    print(f"{time.strftime('%H:%M:%S')}  {text}", file=sys.stderr, flush=True)
