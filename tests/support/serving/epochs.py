"""A stream of epochs whose every row says what it must be, and a process that writes them to a table for ever."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from freshet.state.served.layout import TableShape
from freshet.state.served.writer import TableWriter

IDS, WIDTH, EPOCHS = 400, 5, 3000


def histories(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """For each epoch and id: the epoch of its row as of then, and whether it lives; (EPOCHS + 1, IDS)."""
    rng = np.random.default_rng(seed)
    changed = rng.random((EPOCHS + 1, IDS)) < 0.25
    changed[0] = np.arange(IDS) < IDS // 2
    own = np.maximum.accumulate(np.where(changed, np.arange(EPOCHS + 1)[:, None], -1), axis=0)
    dies = changed & (rng.random((EPOCHS + 1, IDS)) < 0.2)
    lives = np.take_along_axis(changed & ~dies, np.maximum(own, 0), axis=0) & (own >= 0)
    return own, lives


def row_of(ids: np.ndarray, own: np.ndarray) -> np.ndarray:
    """What a row holds: all of it tells which it is."""
    base = (ids * 7 + own * 1000).astype(np.float32)
    return base[:, None] + np.arange(WIDTH, dtype=np.float32)


def write_epoch(table: TableWriter, epoch: int, own: np.ndarray, lives: np.ndarray) -> None:
    """Apply an epoch, deletions first."""
    at = np.flatnonzero(own[epoch] == epoch)
    dead, put = at[~lives[epoch][at]], at[lives[epoch][at]]
    table.remove(epoch, dead.astype(np.int64))
    table.put(epoch, put.astype(np.int64), row_of(put, np.full(len(put), epoch)))
    table.publish(epoch)


def main(path: str, until: int) -> None:
    """Go on with the table at `path`, or make it, and write epochs; behind `until` wait to be killed."""
    own, lives = histories()
    if Path(path).exists():
        table = TableWriter.take_over(Path(path))
    else:
        table = TableWriter(Path(path), TableShape.of(WIDTH, False, IDS, 0, 1 << 20), 1, 1)
    print("ready", flush=True)
    for epoch in range(table.epoch + 1, EPOCHS + 1):
        write_epoch(table, epoch, own, lives)
        while epoch == until < EPOCHS:
            time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
