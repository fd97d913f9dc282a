"""Tails of a server's own machine, sent to other servers record by record, with unchanged bytes.

A stream begins, for each part, at an epoch that the reader names, and always continues with the earliest epoch that
some tail here has. Besides the records it sends the last heartbeats of the parts, and the epoch of the server's own
table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from freshet.job.serving.feeds.change_stream import end_fields
from freshet.job.serving.protocol.columns import PIECE_BYTES
from freshet.job.serving.protocol.errors import BadRequestError, NotReadyError
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.part_tails import PartTails
from freshet.job.serving.tables.requests import Ticket
from freshet.job.serving.tables.served_job import TailsHere
from freshet.operators.sink.tail.layout import VERSION, beat_name, job_word
from freshet.operators.sink.tail.reader import TailEpoch, read_beat
from freshet.state.served.layout import RUNS, T_ENDED

SCHEMA = pa.schema([("record", pa.uint8())])
_BEAT_S, _POLL_S = 0.25, 0.004


def pieces_of_tails(
    here: TailsHere, asked: Ticket, lookup: Lookup, until: Callable[[], bool]
) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    """Records as they come, in pieces, and heartbeats; the metadata says which.

    Raises: BadRequestError for a request about another job, other parts, or another version of the records.
    """
    wanted = asked.tails or []
    if asked.job != here.job_id:
        msg = f"tails of the job {asked.job!r}: this server is of the job {here.job_id!r}"
        raise BadRequestError(msg)
    if len(wanted) != here.parts:
        msg = f"tails: expected {here.parts} epochs, one for each part, got {str(wanted)[:50]!r}"
        raise BadRequestError(msg)
    if asked.version != VERSION:
        msg = f"tails of version {asked.version!r}: this server has version {VERSION}; use one Freshet for both"
        raise BadRequestError(msg)
    return _pieces(here, list(wanted), (here.job_id, asked.generation), lookup, until)


def _pieces(
    here: TailsHere, wanted: list[int], identity: tuple[str, int | None], lookup: Lookup, until: Callable[[], bool]
) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    folder, word = Path(here.folder), job_word(here.job_id)
    parts = [PartTails(folder, part, word) for part in range(here.parts)]
    sent_s = float("-inf")
    try:
        while not until():
            if time.monotonic() - sent_s >= _BEAT_S:
                if (job := lookup.job).identity != identity:
                    of = "" if job.generation is None else f"generation {job.generation}, "
                    msg = f"tails of the job {here.job_id!r}: this server is of {of}the job {job.job_id!r} now"
                    raise NotReadyError(msg)
                sent_s = time.monotonic()
                yield _batch(np.empty(0, np.uint8)), orjson.dumps(_beat(here, folder, word, identity, lookup))
            found = [(one.epoch, k, one) for k, part in enumerate(parts) if (one := part.after(wanted[k])) is not None]
            if found:
                epoch, part, one = min(found, key=lambda each: each[:2])
                wanted[part] = epoch + 1
                yield from _record(part, one)
            else:
                time.sleep(_POLL_S)
    finally:
        for each in parts:
            each.close()


def _record(part: int, one: TailEpoch) -> Iterator[tuple[pa.RecordBatch, bytes]]:
    for at in range(0, one.raw.nbytes, PIECE_BYTES):
        more = at + PIECE_BYTES < one.raw.nbytes
        head = orjson.dumps({"part": part, "epoch": one.epoch, "more": more})
        yield _batch(one.raw[at : at + PIECE_BYTES]), head


def _batch(raw: np.ndarray) -> pa.RecordBatch:
    column = pa.Array.from_buffers(pa.uint8(), raw.nbytes, [None, pa.py_buffer(raw)])
    return pa.RecordBatch.from_arrays([column], schema=SCHEMA)


def _beat(here: TailsHere, folder: Path, word: int, identity: tuple[str, int | None], lookup: Lookup) -> dict[str, Any]:
    """Return the last heartbeats of local parts, with their ages, since clocks of two machines may differ.

    Epochs are those of the job, as in its tails, also that of the table.
    """
    now_us = time.time_ns() // 1000
    beats = [read_beat(folder / beat_name(part), word) for part in range(here.parts)]
    shares = [None if one is None else [now_us - one.beat_us, one.visible, one.failures, one.epoch] for one in beats]
    try:
        served = lookup.served
        if served.job.identity == identity:
            table, base = served.table, served.job.base
            return {"beats": shares, "table": table.epoch - base, **end_fields(table.word(T_ENDED))}
    except NotReadyError:
        pass
    return {"beats": shares, "table": -1, **end_fields(RUNS)}
