"""A base file of the newest rows beside the change log, and the files behind it removed.

`embeddings/base-EPOCH.parquet` holds the last row of each live id with its own epoch, so "the row with the greatest
epoch holds" stays true of the folder as a whole. A deletion that a file kept back could outlive is in the base, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from freshet.files.whole import remove_left_behind
from freshet.job.errors import UsageError
from freshet.job.folder import layout
from freshet.job.folder.lock import locked
from freshet.job.serving.protocol.columns import column_of_ids, numbers, spans_of, vectors
from freshet.job.serving.tables.change_log_rows import (
    KNOWN_FROM,
    POSITIONS,
    TIMES,
    in_series,
    known_from,
    positions_at,
    rows_between,
    times_upto,
)
from freshet.job.serving.tables.served_job import ServedJob
from freshet.operators.sink.change_log import embeddings_schema
from freshet.operators.sink.direct_file import DirectFile, replace_whole
from freshet.operators.sink.log_proof import BASE_PREFIX, epochs_of
from freshet.state.served.ids import slice_of

# A restore may begin at the marker before the last, and then files from there on are written again: those of the last
# minutes stay, whatever was asked for.
KEEP_AT_LEAST_S = 600.0
_LOCK = ".compact.lock"


@dataclass(frozen=True, slots=True)
class Compacted:
    """Result of a compaction."""

    epoch: int
    rows: int
    removed: int
    removed_bytes: int


def compact_log(
    out: Path, keep_s: float | None = None, now_s: float | None = None, kind: str | None = None
) -> Compacted:
    """Write a base as of the last complete epoch; then remove covered files that are older than `keep_s` (None: none).

    `kind`: whose log it is, where the model returns several.

    Raises: UsageError when `out` holds no job, or is being compacted already, or a kind is to be named.
    """
    job = ServedJob.read(out, kind)
    if job is None:
        lacking = layout.IMAGE_DONE if (out / layout.SAVED_JOB).exists() else layout.SAVED_JOB  # it comes last
        msg = (
            f"{out}: no job in it, or one that prepares itself: there is no {lacking}; give the --out folder of a "
            "`freshet run`"
        )
        raise UsageError(msg)
    folder = job.log.embeddings

    def refused(owner: str) -> str:
        return f"{folder}: {owner} compacts it; try again when that has ended"

    # A second one may remove files, or the base, that this one reads.
    with locked(folder / _LOCK, "freshet compact", refused):
        remove_left_behind(folder, f"{BASE_PREFIX}*")
        return _compact(job, keep_s, time.time() if now_s is None else now_s)


def _compact(job: ServedJob, keep_s: float | None, now: float) -> Compacted:
    upto = job.complete_epoch()
    folder = job.log.embeddings
    series = in_series(folder.glob("[!._]*.parquet"))
    bases = {path for files in series for path in files if path.name.startswith(BASE_PREFIX)}
    series = [files for files in series if files[0] not in bases]
    gone: list[Path] = []
    if keep_s is not None:
        oldest = now - max(keep_s, KEEP_AT_LEAST_S)
        gone = [path for files in series for path in takewhile(partial(_may_go, oldest=oldest, upto=upto), files)]
    left = [[path for path in files if path not in set(gone)] for files in series]
    known_from = max(_known_from(bases), 1 + max((epochs_of(path)[1] for path in gone), default=-1))
    oldest_kept = min((epochs_of(files[0])[0] for files in left if files), default=upto + 1)
    base = folder / f"{BASE_PREFIX}{upto:012d}.parquet"
    rows = _write(job, base, upto, oldest_kept, known_from)
    size = sum(path.stat().st_size for path in gone)
    for path in [*gone, *(bases - {base})]:
        path.unlink(missing_ok=True)
    return Compacted(upto, rows, len(gone), size)


def _may_go(path: Path, oldest: float, upto: int) -> bool:
    """Return whether a file is old, and has no row that the base lacks."""
    return path.stat().st_mtime < oldest and epochs_of(path)[1] <= upto


def _known_from(bases: Iterable[Path]) -> int:
    """Return the first epoch of which no row was removed before; nobody knows of bases of earlier versions."""
    return max((known_from(base) for base in bases), default=0)


def _write(job: ServedJob, base: Path, upto: int, oldest_kept: int, known_from: int) -> int:
    found = rows_between(job.log, -1, upto, job.strings, job.width)
    schema = embeddings_schema(job.width, "string" if job.strings else "int")
    # Deletions are needed only against rows that stay in older files.
    live, count = len(found.epochs), len(found.dead_epochs) if oldest_kept <= upto else 0
    ids = [found.ids, *([found.dead] if count else [])]
    texts = [column_of_ids(slice_of(each, begin, end)) for each in ids for begin, end in spans_of(each)]
    columns = [
        pa.chunked_array(texts),
        numbers(np.concatenate([found.epochs, found.dead_epochs[:count]])),
        pa.chunked_array([vectors(found.rows), vectors(np.zeros((count, job.width), np.float32))]),
        pa.array(np.arange(live + count) >= live),
    ]
    read = positions_at(job.log, upto, job.sources).tolist()
    positions = orjson.dumps([[job.sources[source], *rest] for source, *rest in read if source >= 0])
    cast = [column.cast(field.type) for column, field in zip(columns, schema, strict=True)]
    times = orjson.dumps(list(times_upto(job.log, upto)))
    schema = schema.with_metadata({POSITIONS: positions, TIMES: times, KNOWN_FROM: b"%d" % known_from})
    table = pa.Table.from_arrays(cast, schema=schema)

    def write(sink: DirectFile) -> None:
        with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
            writer.write_table(table)
        sink.seal()

    replace_whole(base, write)
    return live
