"""Status of a part of an operator while it runs: a small JSON file; and the buckets of latencies."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from freshet.files.json_file import DamagedFileError, as_kind, read_json, write_json
from freshet.operators.output_folders import STATUS

_LOG = logging.getLogger(__name__)

BUCKETS = 256
# Eight buckets to a doubling, from 0.01 ms to 43,000 s: a percentile is right to 4.5%.
_FIRST_MS = 0.01
_PER_DOUBLING = 8
_LOWEST, _HIGHEST = 0, BUCKETS - 1
FROM_FLINK = "from_flink"  # a field: whether it was made of Flink's metrics, for parts that do not see the folder
LAST_STATUS = "last"  # a field: whether this attempt of the part writes no more
SINK_PREFIX, REASONS_PREFIX, PROFILE_PREFIX = "sink-", "letters-partitioner", "profile-"
_LASTING = SINK_PREFIX, REASONS_PREFIX, PROFILE_PREFIX  # statuses of which one is the last
_POLL_S = 0.02
_ADVICE = "what it said is left out until its part writes another one"
Fields = Mapping[str, Any]  # of a status, by name: the type of the value


def bucket_of(latency_ms: float) -> int:
    """Return the bucket of a latency; values out of range are in the end buckets."""
    if not latency_ms > _FIRST_MS:
        return _LOWEST
    return min(_HIGHEST, int(math.log2(latency_ms / _FIRST_MS) * _PER_DOUBLING))


def percentile_ms(counts: np.ndarray, percent: float) -> float | None:
    """The latency that `percent` of the counted ones do not exceed, as its bucket's middle; None when there is none.

    Shapes: counts (256,) int64
    """
    total = int(counts.sum())
    if total == 0:
        return None
    wanted = max(1, int(np.ceil(total * percent / 100)))
    bucket = int(np.searchsorted(np.cumsum(counts), wanted))
    return round(float(_FIRST_MS * 2 ** ((bucket + 0.5) / _PER_DOUBLING)), 3)


class StatusFile:
    """Writes `status/NAME.json` at most twice a second.

    Units: times in milliseconds.
    """

    def __init__(self, out: Path, name: str, interval_ms: float = 500.0) -> None:
        (out / STATUS).mkdir(parents=True, exist_ok=True)
        self.path = out / STATUS / f"{name}.json"
        self._interval_ms = interval_ms
        self._written_ms = float("-inf")

    def is_due(self, now_ms: float) -> bool:
        """Return whether it is time to write again, also when the clock was set back."""
        return not 0 <= now_ms - self._written_ms < self._interval_ms

    def write(self, fields: Mapping[str, Any], now_ms: float) -> None:
        """Replace the file; a reader sees the old one or the new one. The last one of a part survives a power loss."""
        self._written_ms = now_ms
        write_json(self.path, fields, synced=bool(fields.get(LAST_STATUS)))

    def read(self) -> dict[str, Any]:
        """Return the last status of an earlier attempt; a file that was damaged since is set aside, with a warning."""
        try:
            return _read(self.path) or {}
        except DamagedFileError:
            aside = self.path.with_name(f"{self.path.name}.damaged")
            with suppress(FileNotFoundError):  # somebody else was quicker
                os.replace(self.path, aside)
                _LOG.warning("%s: not a status file, counting begins at zero; it is kept as %s", self.path, aside.name)
            return {}


def _read(path: Path) -> dict[str, Any] | None:
    """Return a status, or None where there is no file: one may go, and come again, while a job starts.

    Raises: DamagedFileError for a file that is not what `write` makes.
    """
    found: dict[str, Any] | None = read_json(path, dict[str, Any], _ADVICE)
    return found


def _has(status: Mapping[str, Any], fields: Fields) -> bool:
    """Return whether a status has these fields, each of its type."""
    try:
        for name, kind in fields.items():
            as_kind(status[name], kind)
    except (KeyError, ValueError):
        return False
    return True


def read_statuses(out: Path, prefix: str = SINK_PREFIX, needs: Fields | None = None) -> list[dict[str, Any]]:
    """The status files of all parts, in no particular order; empty before the first is written.

    Damaged files, and those without a valid value of a field that the caller `needs`, are left out, with a warning:
    their contents are lost, and nothing depends on them.
    """
    statuses = []
    for path in (out / STATUS).glob(f"{prefix}*.json"):
        try:
            found = _read(path)
            is_one = found is None or _has(found, needs or {})
        except DamagedFileError:
            found, is_one = None, False
        if not is_one:
            _LOG.warning("%s: not a status file, left out", path)
        elif found is not None:
            statuses.append(found)
    return statuses


def await_last(out: Path, since_ms: float, timeout_s: float) -> bool:
    """Wait until all that have written since then have written their last status; whether they did in time.

    All operators do so in their profiles; so do the Sink's parts, and the Partitioner where records were rejected.
    Those that have written nothing since have no last one: a part of the Sink begins with the first epoch that it
    takes.
    Units: since_ms on the clock of `time` in the status.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        is_late = time.monotonic() > deadline  # before the look: much may come between it and the time
        written = [one for prefix in _LASTING for one in read_statuses(out, prefix)]
        now = [one for one in written if _has(one, {"time": float}) and one["time"] * 1e3 >= since_ms]
        if all(one.get(LAST_STATUS) for one in now):
            return True
        if is_late:
            return False
        time.sleep(_POLL_S)
