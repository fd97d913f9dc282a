"""Past rows of vertices, as the change log has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

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
    asked = _asked(log, ids)
    codes, epochs, deleted, files, rows = ([np.empty(0, np.int64)] for _ in range(5))
    for batch in log.batches():
        found = codes_of(batch.ids, asked)
        mine = np.flatnonzero((found >= 0) & (batch.epochs <= log.upto))
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
    which, epoch, lives = which[order], epoch[order], gone[order] == 0
    times = LogTimes(log.folders).of(epoch)
    columns = {
        "id": asked.take(pa.array(which)),
        "epoch": pa.array(log.base + epoch),
        "arrived_ms": pa.array(times[:, 0], mask=times[:, 0] == NO_TIME),
        "event_ts": pa.array(times[:, 1], mask=times[:, 1] == NO_TIME),
        "deleted": pa.array(~lives),
        "embedding": with_nulls(log.vectors(np.where(lives, file[order], -1), row[order], epoch), lives),
    }
    facts = {"epoch": log.base + log.upto, "known_from": log.base + log.known_from}
    of_service = {} if log.generation is None else {"generation": log.generation}
    return pa.table(columns).replace_schema_metadata({name: str(one) for name, one in (facts | of_service).items()})


def _asked(log: PastLog, ids: list[int | str]) -> pa.Array:
    """The ids once each, of the job's kind; digits stand for numbers where it has these."""
    try:
        if log.strings:
            return pa.array(dict.fromkeys(map(str, ids)), log.kind)
        return pa.array(dict.fromkeys(map(int, ids)), log.kind)
    except (ValueError, OverflowError, pa.ArrowInvalid):
        msg = f"{log.out}: its ids are {'strings' if log.strings else 'integers of 64 bits'}, got {str(ids)[:80]}"
        raise UsageError(msg) from None
