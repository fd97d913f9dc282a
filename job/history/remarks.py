"""Doubts about an as-of join: times of another unit, past the end of the log, or that a snapshot may have seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from freshet.job.folder.run_file import glimpse_run
from freshet.job.history.epoch_at import By, EpochsAt
from freshet.operators.output_folders import LogFolders
from freshet.partitioner.times.units import MS, UNIT_NAMES, day_of, first_unusual, of_ms, to_ms, unit_that_fits
from freshet.state.served.times import NO_TIME

_DAY_MS = 86_400_000


class AskedTimes(NamedTuple):
    """Times of questions in ms since 1970, (n,) int64, and the unit that they came in (None: a type said it)."""

    times: np.ndarray
    unit: str | None


def remarks(asked: AskedTimes, walk: EpochsAt, by: By, log: LogFolders) -> Iterator[str]:
    """Say what may be wrong with times, which the answers do not show."""
    yield from _of_units(asked, walk, by, log)
    times, many = asked.times, f"{len(asked.times):,}"
    late = times > walk.largest
    if walk.largest != NO_TIME and late.any():
        most = int(times.max()) - walk.largest
        words = f"{most / _DAY_MS:,.1f} days" if most >= _DAY_MS else f"{most / 1000:,.3f} s"
        yield (
            f"{int(late.sum()):,} of {many} times are past the end of the log, {_moment(walk.largest)}, by up to "
            f"{words}: they have the rows of its last epoch, which may not be those of that time"
        )
    early = int(((walk.epochs == 0) & (times < walk.first)).sum())
    if by is By.EVENT and early and glimpse_run(log.out).get("snapshot"):
        yield (
            f"{early:,} of {many} times are before the log's first event, {_moment(walk.first)}: they have the rows of "
            "the snapshot, which may have seen more than had happened by then"
        )


def _of_units(asked: AskedTimes, walk: EpochsAt, by: By, log: LogFolders) -> Iterator[str]:
    if asked.unit is not None and (ms := first_unusual(asked.times, NO_TIME)) is not None:
        number = of_ms(ms, asked.unit)
        if (fits := unit_that_fits(number)) is not None:
            yield (
                f"the time {number} is {day_of(ms)} in {UNIT_NAMES[asked.unit]}; in {UNIT_NAMES[fits]} it is "
                f"{day_of(to_ms(number, fits))}: ts_unit={fits!r} of freshet.as_of, --ts-unit {fits} of freshet history"
            )
    if by is By.EVENT and walk.largest != NO_TIME and first_unusual(np.array([walk.largest]), NO_TIME) is not None:
        unit = glimpse_run(log.out).get("ts_unit", MS)
        number = of_ms(walk.largest, unit)
        if (fits := unit_that_fits(number)) is not None:
            yield (
                f"the log ends at {day_of(walk.largest)} by the ts of its events ({number} in {UNIT_NAMES[unit]}); in "
                f"{UNIT_NAMES[fits]} that is {day_of(to_ms(number, fits))}: run the job again with --ts-unit {fits}"
            )


def _moment(ms: int) -> str:
    return f"{ms} ({day_of(ms)})"
