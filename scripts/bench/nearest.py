"""Nearest neighbours beside a writer: exact and approximate, their recall, and what the lists cost a changed row.

    .venv/bin/python scripts/bench/nearest.py --rows 200000 --width 64
    .venv/bin/python scripts/bench/nearest.py --rows 1000000 --width 128

A second process writes epochs of 20 ms to a table, 50,000 changed rows a second: what 5,000 events a second change in
two layers. Rows lie around 300 centres; a change moves a row a little, and each twentieth to another centre. With
`--centres 0` rows are random, which have no near neighbours. Neighbours are found as a server finds them, without a
protocol around. Prints one JSON line last.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from freshet.job.serving.bounds.neighbours import METRICS
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.nearest import NearestRows, Vertex, Wish, neighbours_of
from freshet.job.serving.tables.served import JobHere, Served
from freshet.state.served.ids import plain_ids
from freshet.state.served.inverted import InvertedLists
from freshet.state.served.layout import HISTORY_BYTES, SHM, TableShape
from freshet.state.served.nearest import Target, best_of
from freshet.state.served.reader import TableReader
from freshet.state.served.writer import TableWriter

_EPOCH_S = 0.02
_NOISE, _STEP, _AT_ONCE = 0.5, 0.05, 50_000
_K, _TRUE_SAMPLES = 10, 100


class Feed:
    """Rows around centres, and changes of them."""

    def __init__(self, rows: int, width: int, centres: int) -> None:
        self.rng, self.width, self.rows = np.random.default_rng(1), width, rows
        self.centres = self.rng.standard_normal((centres, width)).astype(np.float32) if centres else None
        self.of = self.rng.integers(0, max(1, centres), rows)

    def vectors(self, ids: np.ndarray, noise: float = _NOISE) -> np.ndarray:
        """Return new rows."""
        found = self.rng.standard_normal((len(ids), self.width), np.float32)
        return found if self.centres is None else self.centres[self.of[ids]] + np.float32(noise) * found

    def changes(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return changed ids and their rows."""
        ids = np.unique(self.rng.integers(0, self.rows, count))
        if self.centres is not None:
            away = ids[self.rng.random(len(ids)) < _STEP]
            self.of[away] = self.rng.integers(0, len(self.centres), len(away))
        return ids, self.vectors(ids)


def write(path: Path, feed: Feed, rows_per_s: int) -> None:
    """Fill a table, and write epochs until the parent ends."""
    table = TableWriter(path, TableShape.of(feed.width, False, feed.rows + _AT_ONCE, 0, HISTORY_BYTES), 1, 1)
    for begin in range(0, feed.rows, _AT_ONCE):
        ids = np.arange(begin, min(begin + _AT_ONCE, feed.rows))
        table.put(0, ids, feed.vectors(ids))
    table.publish(0)
    print("ready", flush=True)
    each = max(1, int(rows_per_s * _EPOCH_S))
    began, epoch, parent = time.monotonic(), 0, os.getppid()
    while os.getppid() == parent:
        epoch += 1
        ids, rows = feed.changes(each)
        table.put(epoch, ids, rows)
        table.publish(epoch)
        left = began + epoch * _EPOCH_S - time.monotonic()
        time.sleep(max(0.0, left))


class OneTable:
    """A source of answers that is one table."""

    is_computed = False

    def __init__(self, path: Path) -> None:
        self.tables, self.job, self.switches = path, JobHere(), None
        self._served = Served(0, self.job, TableReader(path))

    def served(self) -> Served:
        """The table."""
        return self._served

    at_hand = whole = served


@contextmanager
def writing(options: argparse.Namespace) -> Iterator[Path]:
    """The table that another process writes."""
    path = SHM / f"freshet-nearest-{os.getpid()}"
    command = [sys.executable, __file__, *sys.argv[1:], "--write", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"OMP_NUM_THREADS": "1"})
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield path
        assert process.poll() is None, "the writer has ended"
    finally:
        process.kill()
        process.communicate()
        path.unlink(missing_ok=True)


def timed(lookup: Lookup, wish: Wish, ids: np.ndarray, pause_s: float) -> tuple[list[float], list[NearestRows]]:
    """Return the milliseconds of each request, and the answers."""
    took, answers = [], []
    for one in ids.tolist():
        began = time.perf_counter()
        answers.append(neighbours_of(lookup, Vertex(one), wish))
        took.append(1e3 * (time.perf_counter() - began))
        time.sleep(pause_s)
    return took, answers


def true_recall(table: TableReader, lookup: Lookup, wish: Wish, ids: np.ndarray) -> float:
    """Return the share of the exact neighbours of vertices, without themselves, that are found at the same epoch."""
    shares = []
    for one in ids.tolist():
        found = neighbours_of(lookup, Vertex(one), wish)
        slot = int(table.slots_of(np.array([one]))[0])
        _, _, rows = table.rows_of(np.array([slot]), found.answer.epoch)
        exact = best_of(table, found.answer.epoch, Target(rows[0], METRICS.index(wish.metric), slot), wish.k)
        shares.append(np.isin(plain_ids(exact.ids), plain_ids(found.answer.ids)).mean())
    return float(np.mean(shares))


def measure(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Ask beside the writer."""
    lookup, rng = Lookup(OneTable(path)), np.random.default_rng(2)
    table = lookup.served.whole
    exactly = Wish(_K, options.metric, exclude_self=True)
    wish = exactly._replace(approximate=True)
    some = rng.integers(0, options.rows, options.requests)
    neighbours_of(lookup, Vertex(0), exactly)
    epoch, began = table.epoch, time.monotonic()
    exact, _ = timed(lookup, exactly, some[: options.requests // 4], 0.02)
    cpu, began_build = time.process_time(), time.monotonic()
    neighbours_of(lookup, Vertex(0), wish)
    lists = lookup.neighbourhoods.of(table, METRICS.index(options.metric), lookup.budget)  # type: ignore[union-attr]
    assert lists.wait(600)
    build_s, build_cpu_s = time.monotonic() - began_build, time.process_time() - cpu
    taken, spent = lists.rows_taken, lists.taking_s
    until, approximate, answers = time.monotonic() + options.seconds, list[float](), list[NearestRows]()
    while time.monotonic() < until:
        some_ms, found = timed(lookup, wish, rng.choice(some, 50), 0.02)
        approximate += some_ms
        answers += found
    taken, spent = lists.rows_taken - taken, lists.taking_s - spent
    recall = true_recall(table, lookup, wish, rng.integers(0, options.rows, _TRUE_SAMPLES))
    stated = neighbours_of(lookup, Vertex(0), wish).recall
    epochs, seconds = table.epoch - epoch, time.monotonic() - began
    quantiles = {
        f"{name}_p{q}_ms": round(float(np.percentile(of, q)), 3)
        for name, of in (("exact", exact), ("approximate", approximate))
        for q in (50, 99)
    }
    return {
        **{name: getattr(options, name) for name in ("rows", "width", "centres", "metric")},
        "changed_rows_per_s": round(epochs * options.changes * _EPOCH_S / seconds),
        **quantiles,
        "requests": [len(exact), len(approximate)],
        "share_approximate": float(np.mean([bool(one.is_approximate) for one in answers])),
        "recall_stated": stated,
        "recall_true": round(recall, 4),
        "upkeep_us_per_row": round(1e6 * spent / max(1, taken), 2),
        "upkeep_rows": taken,
        "build_s": round(build_s, 2),
        "build_cpu_s": round(build_cpu_s, 2),
        "index_mb": round(InvertedLists.bytes_for(table) / 1e6, 1),
        "load": [round(one, 2) for one in os.getloadavg()],
    }


def main() -> None:
    """Write the table, or ask for neighbours in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--centres", type=int, default=300)
    parser.add_argument("--changes", type=int, default=50_000, help="changed rows a second")
    parser.add_argument("--metric", choices=METRICS[:-1], default=METRICS[0])
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write:
        write(options.write, Feed(options.rows, options.width, options.centres), options.changes)
        return
    with writing(options) as path:
        print(json.dumps(measure(options, path)), flush=True)


if __name__ == "__main__":
    main()
