"""Reads of a table beside a process that writes it as fast as it can, each held against what its row must be.

The stream has no end and no memory: which rows an epoch changes, and what any row is as of any epoch, are formulas.
`python -m tests.support.serving.read_beside PATH` is the writer.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from freshet.state.served.ids import frozen
from freshet.state.served.layout import SHM, TableShape
from freshet.state.served.reader import TableReader
from freshet.state.served.writer import TableWriter

ROOT = Path(__file__).resolve().parents[3]
IDS, WIDTH = 500, 6
_BLOCK = 4096
_BATCH = 64


def own_epochs(ids: np.ndarray, epoch: np.ndarray | int) -> np.ndarray:
    """The epoch of each id's row as of an epoch, -1 where it has none: every fifth change of it is a deletion."""
    period = 7 + ids % 13
    own = epoch - (epoch + ids) % period
    return np.where((own < 0) | ((own + ids) // period % 5 == 4), -1, own)


def rows_of(ids: np.ndarray, own: np.ndarray) -> np.ndarray:
    """What rows hold, every number of them."""
    base = ((ids * 7 + own * 1009) % (1 << 23)).astype(np.float32)
    return base[:, None] + np.arange(WIDTH, dtype=np.float32)


def write(path: Path) -> None:
    """Write epochs until killed."""
    table = TableWriter(path, TableShape.of(WIDTH, False, IDS, 0, 1 << 20), 1, 1)
    ids, epoch = np.arange(IDS), 0
    while True:
        changed = ids[(epoch + ids) % (7 + ids % 13) == 0]
        own = own_epochs(changed, epoch)
        put = changed[own == epoch]
        table.remove(epoch, changed[own < 0])
        table.put(epoch, put, rows_of(put, np.full(len(put), epoch)))
        table.publish(epoch)
        if epoch == 0:
            print("ready", flush=True)
        epoch += 1


@contextmanager
def writer() -> Iterator[Path]:
    """The table of a process that writes it meanwhile."""
    path = SHM / f"freshet-beside-{os.getpid()}-{secrets.token_hex(4)}"
    command = [sys.executable, "-m", "tests.support.serving.read_beside", str(path)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield path
        assert process.poll() is None, "the writer wrote to the end"
    finally:
        process.kill()
        process.communicate()
        path.unlink(missing_ok=True)


class Beside(NamedTuple):
    """What was read: calls, rows, rows that were not what they must be, epochs that went back, epochs seen."""

    reads: int
    rows: int
    wrong: int
    back: int
    epochs: int
    epochs_written: int
    history_misses: int
    seconds: float
    cpu_s: float


def read_beside(path: Path, reads: int, seed: int) -> Beside:
    """Read single ids, by both ways that there are, and batches between them."""
    reader, rng = TableReader(path), np.random.default_rng(seed)
    rows = wrong = back = seen = done = 0
    last, began, began_cpu = -1, time.perf_counter(), time.process_time()
    first = reader.epoch
    while done < reads:
        size = _BATCH if done // _BLOCK % 16 == 15 else 1
        n = min(_BLOCK, reads - done)
        asked = rng.integers(-20, IDS, (n, size))
        epochs, own = np.empty(n, np.int64), np.empty((n, size), np.int64)
        got = np.empty((n, size, WIDTH), np.float32)
        for k in range(n):
            ids = frozen(asked[k])
            few = reader.few(ids, last) if k % 2 else None
            epochs[k], own[k], got[k] = few if few is not None else reader.get(ids)
        flat, expected = asked.ravel(), own_epochs(asked, epochs[:, None])
        expected[asked < 0] = -1
        there = expected.ravel() >= 0
        same = (got.reshape(-1, WIDTH) == rows_of(flat, expected.ravel())).all(axis=1)
        wrong += int((own != expected).sum()) + int((there & ~same).sum())
        steps = np.diff(epochs, prepend=last)
        back, seen, last = back + int((steps < 0).sum()), seen + int((steps > 0).sum()), int(epochs[-1])
        rows, done = rows + int(there.sum()), done + n
    took = time.perf_counter() - began, time.process_time() - began_cpu
    return Beside(done, rows, wrong, back, seen, reader.epoch - first, reader.misses, *(round(one, 2) for one in took))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
