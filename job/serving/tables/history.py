"""Figures of the last hour, a sample a second, in memory that all processes of a server share."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

SECONDS = 3600  # samples that are kept, one a second
STATES = ("running", "stopped", "ended", "failed", "lost", "silent", "unknown")


class Figure(NamedTuple):
    """A figure of a sample: whether it is a whole number, and its description."""

    whole: bool
    about: str


_OF_JOB = "null where no folder of a job is here"
FIGURES = {
    "time_ms": Figure(True, "when the sample was taken, in ms since 1970"),
    "generation": Figure(True, "of a service; null without one"),
    "epoch": Figure(True, "newest epoch that readers get; null while there is no table"),
    "vertices": Figure(True, "vertices in the table"),
    "behind_s": Figure(False, "seconds for which nothing was heard of the job"),
    "reads_per_s": Figure(False, "lookups, neighbours and scores answered a second, by all processes of the server"),
    "events": Figure(True, f"events read since the job began; {_OF_JOB}"),
    "events_per_s": Figure(False, f"events read a second, now; {_OF_JOB}"),
    "rows": Figure(True, f"rows written since the job began; {_OF_JOB}"),
    "rows_per_s": Figure(False, f"rows written a second, now; {_OF_JOB}"),
    "lag": Figure(True, f"records of the input that are not read yet; {_OF_JOB}, or where it is not known"),
    "freshness_ms_p50": Figure(False, "arrival of an event until others can read its rows: median of the last minute"),
    "freshness_ms_p99": Figure(False, "the same, 99th percentile"),
    "rejected": Figure(True, f"records rejected since the job began; {_OF_JOB}"),
}
STATE = "state"
_COLUMNS = {name: column for column, name in enumerate((*FIGURES, STATE))}
_NUMBERS = {state: number for number, state in enumerate(STATES)}
_WORD = 8


class History:
    """Ring of samples; one process writes, all read.

    Invariant: the number of samples grows after a sample is whole. A reader leaves out those that may have been
    replaced while it read.
    """

    def __init__(self, fd: int | None = None, seconds: int = SECONDS) -> None:
        """`fd`: of memory that processes share (`shared_history`); None: memory of this process."""
        size = size_of(seconds)
        raw = memoryview(bytearray(size)) if fd is None else memoryview(mmap.mmap(fd, size))
        self._count = np.frombuffer(raw[:_WORD], np.int64)
        self._ring = np.frombuffer(raw[_WORD:], np.float64).reshape(seconds, len(_COLUMNS))

    def add(self, sample: Mapping[str, Any]) -> None:
        """Append a sample: figures by name, None or absent where there is none."""
        row = np.full(len(_COLUMNS), np.nan)
        for name, value in sample.items():
            if value is not None:
                row[_COLUMNS[name]] = _NUMBERS.get(value, np.nan) if name == STATE else value
        count = int(self._count[0])
        self._ring[count % len(self._ring)] = row
        self._count[0] = count + 1

    def since(self, time_ms: int = 0) -> list[dict[str, Any]]:
        """Return the samples later than a time, the oldest first."""
        size, before = len(self._ring), int(self._count[0])
        found = self._ring.copy()
        spoilt = max(0, int(self._count[0]) + 1 - size)  # the next sample may be half there
        numbers = np.arange(max(0, before - size, spoilt), before)
        rows = found[numbers % size]
        rows = rows[rows[:, _COLUMNS["time_ms"]] > time_ms]
        columns = [_values(name, rows[:, column]) for name, column in _COLUMNS.items()]
        return [dict(zip(_COLUMNS, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(name: str, column: np.ndarray) -> list[Any]:
    """Return the values of a figure; None where it was not there."""
    there = ~np.isnan(column)
    whole = name == STATE or FIGURES[name].whole
    known: list[Any] = np.where(there, column, 0).astype(np.int64).tolist() if whole else column.round(3).tolist()
    if name == STATE:
        known = [STATES[number] for number in known]
    return [value if is_there else None for value, is_there in zip(known, there.tolist(), strict=True)]


def size_of(seconds: int = SECONDS) -> int:
    """Return the bytes of the memory of a history."""
    return _WORD * (1 + seconds * len(_COLUMNS))


def shared_history() -> int:
    """Return a descriptor of the memory of a history; children inherit it if it is passed."""
    fd = os.memfd_create("freshet-history")
    os.ftruncate(fd, size_of())
    return fd
