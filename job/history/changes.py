"""`freshet.read_changes`: the change log of a job as an Arrow table."""

from __future__ import annotations

import os
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet.job.errors import UsageError
from freshet.job.history.as_of import basis_of
from freshet.job.history.epoch_at import UNKNOWN, epochs_at
from freshet.job.history.past_log import PastLog
from freshet.job.history.past_rows import FoundRows, facts_of, rows_of
from freshet.job.serving.tables.change_log_rows import again


def read_changes(
    out: str | os.PathLike[str],
    *,
    kind: str | None = None,
    as_of: int | datetime | np.datetime64 | str | None = None,
    by: Literal["event", "arrival"] | None = None,
    newest: bool = False,
    generation: int | None = None,
) -> pa.Table:
    """Return the rows of the change log, epoch by epoch; `.to_pandas()` makes a frame of them.

    The job may run; its rows are there once they are visible in O/embeddings. In an epoch a vertex has one row at most.
    Its embedding is zeros where it was deleted. `freshet compact` keeps the newest rows alone; the metadata says from
    which epoch on all rows are there.

    Args:
        out: the --out folder of a job, or a service folder, whose current job is meant.
        kind: of the vertices, where the model returns several.
        as_of: last epoch, or time, whose rows count; None: all. A time is a datetime or text such as
            `2026-11-29 14:00`, in UTC where it has no zone, and means the last epoch that is not later.
        by: times of epochs, as in `freshet.as_of`: those of events where any has a `ts`, else of their arrival.
        newest: only the last row of each vertex that lives: the embeddings as they were then.
        generation: of a service folder, another job than the current one.

    Shapes: id as in the job, epoch int64, embedding fixed-size list of float32, deleted bool; the metadata has `epoch`,
        the last one that is visible, and `known_from`, the first of which compaction has removed no row
    Raises: UsageError (of `InputError`) for a folder without a job, or another kind; DamagedFileError.
    """
    return again(lambda: _changes(PastLog(Path(out).absolute(), kind, generation), as_of, by, newest=newest))


def _changes(log: PastLog, as_of: Any, by: str | None, *, newest: bool) -> pa.Table:
    upto = log.upto if as_of is None else _epoch_of(log, as_of, by)
    found = rows_of(log, _all_ids(log), upto)
    if log.known_from and not (newest and upto >= log.base_epoch):
        warnings.warn(f"compaction has removed rows before epoch {log.base + log.known_from}", stacklevel=5)
    if newest:
        ids = pc.dictionary_encode(found.ids).indices.to_numpy()
        last = np.append(np.diff(ids) != 0, True) if len(ids) else np.empty(0, bool)
        found = _some(found, np.flatnonzero(last & found.lives))
    else:
        found = _some(found, np.argsort(found.epochs, kind="stable"))
    vectors = pa.array(found.vectors(log).reshape(-1))
    columns = {
        "id": found.ids,
        "epoch": pa.array(log.base + found.epochs),
        "embedding": pa.FixedSizeListArray.from_arrays(vectors, log.width),
        "deleted": pa.array(~found.lives),
    }
    return pa.table(columns).replace_schema_metadata(facts_of(log))


def _some(found: FoundRows, rows: np.ndarray) -> FoundRows:
    ids = found.ids.take(pa.array(rows))
    return FoundRows(ids, found.epochs[rows], found.lives[rows], found.files[rows], found.places[rows])


def _all_ids(log: PastLog) -> pa.Array:
    chunks = [one for batch in log.batches() for one in batch.ids.chunks]
    ids = pc.unique(pa.chunked_array(chunks, log.kind))
    return ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids


def _epoch_of(log: PastLog, as_of: Any, by: str | None) -> int:
    """Return the last epoch that counts."""
    if isinstance(as_of, int | np.integer) and not isinstance(as_of, bool):
        epoch = int(as_of) - log.base
        if epoch > log.upto:
            warnings.warn(f"as_of {as_of}: the last visible epoch is {log.base + log.upto}", stacklevel=6)
        return min(epoch, log.upto)
    times = np.array([_ms_of(as_of)])
    epoch = int(epochs_at(log.folders, times, basis_of(log, by), log.upto).epochs[0])
    if epoch == UNKNOWN:
        warnings.warn(f"as_of {as_of}: before the first epoch of the change log", stacklevel=6)
    return epoch


def _ms_of(as_of: Any) -> int:
    """A time in ms since 1970, rounded down.

    Raises: UsageError for what is none.
    """
    try:
        given = datetime.fromisoformat(as_of) if isinstance(as_of, str) else as_of
        at = np.datetime64(given) if isinstance(given, np.datetime64) else pa.scalar(given)
        if isinstance(at, np.datetime64):
            return int(at.astype("datetime64[ms]").astype(np.int64))
        found = at.cast(pa.timestamp("us")) if at.type.tz is None else at.cast(pa.timestamp("us", "UTC"))
        return int(found.value) // 1000
    except (ValueError, TypeError, AttributeError, pa.ArrowException):
        msg = f"as_of: expected an epoch, a datetime or text such as '2026-11-29 14:00', got {as_of!r}"
        error = UsageError(msg)
        error.named = "as_of"
        raise error from None
