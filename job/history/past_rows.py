"""Past rows of vertices, as the change log has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from freshet.job.errors import UsageError
from freshet.job.history.as_of import with_nulls
from freshet.job.history.past_log import PastLog, codes_of
from freshet.job.serving.tables.change_log_rows import again
from freshet.job.serving.tables.log_times import LogTimes
from freshet.state.served.times import NO_TIME


def history(
    out: str | Path, ids: Sequence[int | str], *, kind: str | None = None, generation: int | None = None
) -> pa.Table:
    """Return all rows that the change log has of these vertices, epoch by epoch; a base may be all that is left.

    `kind`: theirs, where the model returns several. `out` may be a service folder: then the rows are of its current
    job, or of that of a `generation`, and epochs are as they are served.

    Shapes: id as in the job; epoch int64; arrived_ms, event_ts int64 ms since 1970, of the row's epoch, null where it
        has none; deleted bool; embedding list of float32, null where deleted. The metadata has `epoch`, the
        last one that is visible, and `known_from`, the first of which compaction has removed no row; of a service
        `generation`, too.
    Raises: UsageError for a folder without a job, or ids of another kind; DamagedFileError.
    """
    return again(lambda: _history(PastLog(Path(out).absolute(), kind, generation), list(ids)))


def _history(log: PastLog, ids: list[int | str]) -> pa.Table:
    found = rows_of(log, _asked(log, ids), log.upto)
    times = LogTimes(log.folders).of(found.epochs)
    columns = {
        "id": found.ids,
        "epoch": pa.array(log.base + found.epochs),
        "arrived_ms": pa.array(times[:, 0], mask=times[:, 0] == NO_TIME),
        "event_ts": pa.array(times[:, 1], mask=times[:, 1] == NO_TIME),
        "deleted": pa.array(~found.lives),
        "embedding": with_nulls(found.vectors(log), found.lives),
    }
    return pa.table(columns).replace_schema_metadata(facts_of(log))


def facts_of(log: PastLog) -> dict[str, str]:
    """Return the metadata of rows of a log: the last epoch that is visible, and the first with all of its rows."""
    facts = {"epoch": log.base + log.upto, "known_from": log.base + log.known_from}
    of_service = {} if log.generation is None else {"generation": log.generation}
    return {name: str(one) for name, one in (facts | of_service).items()}


class FoundRows(NamedTuple):
    """Rows of a log, by vertex and epoch, one for each of both.

    Shapes: ids as in the job; epochs (n,) int64, lives (n,) bool; files, places (n,) int64: where their vectors are
    """

    ids: pa.Array
    epochs: np.ndarray
    lives: np.ndarray
    files: np.ndarray
    places: np.ndarray

    def vectors(self, log: PastLog) -> np.ndarray:
        """Read their embeddings, (n, width) float32; zeros where a vertex was deleted."""
        return log.vectors(np.where(self.lives, self.files, -1), self.places, self.epochs)


def rows_of(log: PastLog, asked: pa.Array, upto: int) -> FoundRows:
    """Return all rows of these vertices up to an epoch."""
    codes, epochs, deleted, files, rows = ([np.empty(0, np.int64)] for _ in range(5))
    for batch in log.batches():
        found = codes_of(batch.ids, asked)
        mine = np.flatnonzero((found >= 0) & (batch.epochs <= upto))
        codes.append(found[mine])
        epochs.append(batch.epochs[mine])
        deleted.append(batch.deleted[mine].astype(np.int64))
        files.append(np.full(len(mine), batch.file))
        rows.append(mine + batch.first)
    which, epoch, gone, file, row = map(np.concatenate, (codes, epochs, deleted, files, rows))
    order = np.lexsort((gone, epoch, which))  # of an epoch the row that lives comes first
    keep = np.ones(len(order), bool)
    keep[1:] = (np.diff(which[order]) != 0) | (np.diff(epoch[order]) != 0)  # a base repeats rows
    order = order[keep]
    ids = asked.take(pa.array(which[order]))
    return FoundRows(ids, epoch[order], gone[order] == 0, file[order], row[order])


def _asked(log: PastLog, ids: list[int | str]) -> pa.Array:
    """The ids once each, of the job's kind; digits stand for numbers where it has these."""
    try:
        if log.strings:
            return pa.array(dict.fromkeys(map(str, ids)), log.kind)
        return pa.array(dict.fromkeys(map(int, ids)), log.kind)
    except (ValueError, OverflowError, pa.ArrowInvalid):
        msg = f"{log.out}: its ids are {'strings' if log.strings else 'integers of 64 bits'}, got {str(ids)[:80]}"
        raise UsageError(msg) from None
