"""Stream for servers that feed from this one: all rows at one epoch, then the changes, read from the table.

The ring of undo entries names every slot that was replaced, and new slots are the last ones: so what an epoch changed
is found without a look at all rows, whoever made the table, and a reader that is slow gets several epochs as one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from freshet.job.serving.bounds.budget import Held, RowShape
from freshet.job.serving.bounds.whole_table import WholeTable
from freshet.job.serving.protocol.columns import column_of_ids, numbers, pieces_of, vectors
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import Served
from freshet.state.served import layout as lay
from freshet.state.served.ids import Ids, slice_of
from freshet.state.served.reader import Change, ChangeReader
from freshet.state.served.times import NO_TIME

OF_ROWS = "this server feeds from a Kafka topic, whose rows are of no one epoch; read the topic for changes"
BEAT_S = 0.5  # at least so often something comes, if only to say that nothing has changed
_POLL_S = 0.004
_ROWS_AT_ONCE = 16_384
_TIMES_MAX = 4096


@dataclass(frozen=True, slots=True)
class ChangeEnd:
    """Metadata beside the rows of the last piece of a change."""

    arrived_us: int
    published_us: int
    behind_us: int | None
    tail_failures: int
    ended: bool
    stopped: bool
    positions: list[list[int]]
    event_ts: int | None = None  # the largest `ts` up to the epoch
    times: list[list[int | None]] = field(default_factory=list)  # (epoch, arrived_ms, event_ts) of newer epochs


def changes(
    lookup: Lookup, served: Served, until: Callable[[], bool], since: int | None = None
) -> Iterator[tuple[Change, ChangeEnd | None]]:
    """Yield all rows first, in pieces, the last one with metadata, then each change; an empty one as a heartbeat.

    `served`: the whole table to begin with, and to which job all rows belong. `since`: an epoch whose rows the reader
    has; where the table knows what followed, only that comes.

    Raises: NotReadyError while no table is kept, or once it is of another job; ExhaustedError, TooSlowError for a slow
    reader.
    """
    reading, sent, newest = ChangeReader(served.whole), 0.0, -1
    if since is not None and reading.go_on_after(since):
        newest = since
    row, held = RowShape(reading.table.width, 0).in_arrow, Held(lookup.budget)
    while not until():
        if lookup.table is not reading.table:
            served = of_same_job(lookup.whole, served)
            reading = ChangeReader(served.whole)
            if since is not None:
                reading.go_on_after(newest)
        if reading.lost:
            whole = WholeTable(reading.table, lookup.budget)
            reading.start_at(newest := whole.epoch)
            nothing, end, began = reading.nothing().ids, end_of(served, 0), time.monotonic()  # as of that epoch
            for part in whole:
                sent = time.monotonic()
                later = end if end.behind_us is None else replace(end, behind_us=end.behind_us + _us(sent - began))
                change = Change(whole.epoch, True, part.ids, part.own, part.rows, nothing)
                yield change, later if part.last else None
            continue
        newer = reading.newer(lambda rows: held.resize(rows * row, "changes"))
        if newer is None and (reading.lost or time.monotonic() - sent < BEAT_S):
            time.sleep(0 if reading.lost else _POLL_S)
            continue
        sent, before = time.monotonic(), newest
        newest = reading.epoch
        yield newer if newer is not None else reading.nothing(), end_of(served, before + 1)
        del newer
        held.release()


def _us(seconds: float) -> int:
    return int(seconds * 1e6)


def end_fields(how: int) -> dict[str, bool]:
    """Return the end of the job, as reported to other servers."""
    return {"ended": bool(how), "stopped": how == lay.STOPPED}


def ended_of(fields: Mapping[str, Any]) -> int:
    """The inverse of `end_fields`; servers of an earlier version do not say that a job was stopped."""
    return lay.STOPPED if fields.get("stopped") is True else lay.ENDED if fields["ended"] is True else lay.RUNS


def of_same_job(now: Served, before: Served) -> Served:
    """Return what is served now.

    Raises: NotReadyError where it is of another job, whose rows whoever began with the one before can't take.
    """
    if now.job.identity != before.job.identity or now.table.width != before.table.width:
        msg = f"the table is of the job {now.job.job_id!r} now, and was of {before.job.job_id!r}; ask again"
        raise NotReadyError(msg)
    return now


def end_of(served: Served, begin: int) -> ChangeEnd:
    """Return the metadata of a table, as of now, with the times of the newest epochs from `begin` on."""
    table = served.table
    epochs = np.arange(max(begin, table.epoch + 1 - _TIMES_MAX), table.epoch + 1)
    times = [
        [epoch, *(None if one == NO_TIME else one for one in own)]
        for epoch, own in zip(epochs.tolist(), table.times(epochs).tolist(), strict=True)
    ]
    beat_us = table.word(lay.T_SOURCE_BEAT_US)
    ended = end_fields(table.word(lay.T_ENDED))
    return ChangeEnd(
        table.word(lay.T_ARRIVED_US),
        table.word(lay.T_PUBLISHED_US),
        time.time_ns() // 1000 - beat_us if beat_us else None,
        table.word(lay.T_TAIL_FAILURES),
        positions=table.positions().tolist(),
        event_ts=served.so_far(table.epoch).event_ts,
        times=[one for one in times if one[1:] != [None, None]],
        **ended,
    )


def schema_of(strings: bool, width: int) -> pa.Schema:
    """Return the schema of the batches: live ids, then deleted ones, with rows of zeros."""
    kind = pa.string() if strings else pa.int64()
    return pa.schema([("id", kind), ("epoch", pa.int64()), ("embedding", pa.list_(pa.float32(), width))])


def batches_of(change: Change, end: ChangeEnd | None) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    """A change in pieces, each with how many of its rows live; the last one says what stands beside, if anything."""
    width, live, dead = change.rows.shape[1], len(change.own), len(change.dead)
    parts = [(_batch(change.ids, change.own, change.rows, a), True) for a in range(0, live, _ROWS_AT_ONCE)]
    for at in range(0, dead, _ROWS_AT_ONCE):
        n = min(_ROWS_AT_ONCE, dead - at)
        gone = slice_of(change.dead, at, at + n)
        parts.append((_batch(gone, np.full(n, change.epoch), np.zeros((n, width), np.float32), 0), False))
    if not parts:
        parts = [(_batch(change.ids, change.own, change.rows, 0), True)]
    pieces = [(piece, lives) for batch, lives in parts for piece in pieces_of(batch)]
    for k, (batch, lives) in enumerate(pieces):
        head: dict[str, Any] = {"epoch": change.epoch, "whole": change.whole, "lives": lives}
        yield batch, orjson.dumps(head | ({"told": end} if end is not None and k == len(pieces) - 1 else {}))


def _batch(ids: Ids, own: np.ndarray, rows: np.ndarray, at: int) -> pa.RecordBatch:
    end = min(at + _ROWS_AT_ONCE, len(own))
    columns = [column_of_ids(slice_of(ids, at, end)), numbers(own[at:end]), vectors(rows[at:end])]
    return pa.RecordBatch.from_arrays(columns, ["id", "epoch", "embedding"])
