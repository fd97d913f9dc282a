"""The generation that readers of a service have seen last, and times of its answers: kept when its server has ended.

`seen.json` beside the tables of a kind has `generation`, `as_of_ms` and `event_ts`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from typing_extensions import TypedDict

from freshet.files.json_file import read_json, write_json
from freshet.state.served.times import NOTHING_KNOWN, Moment, times_so_far

if TYPE_CHECKING:
    from freshet.state.served.writer import TableWriter

FILE = "seen.json"


class _File(TypedDict):
    generation: int
    as_of_ms: int | None
    event_ts: int | None


class SeenGeneration(NamedTuple):
    """The newest generation that readers have got, -1 before the first one, and times that no answer precedes."""

    generation: int = -1
    times: Moment = NOTHING_KNOWN


def read_seen(tables: Path) -> SeenGeneration:
    """Return what readers of these tables have seen.

    Raises: DamagedFileError.
    """
    advice = "remove it: the current generation is served then, and times in answers may go back once"
    found = read_json(tables / FILE, _File, advice)
    return (
        SeenGeneration()
        if found is None
        else SeenGeneration(found["generation"], Moment(found["as_of_ms"], found["event_ts"]))
    )


def note_generation(tables: Path, generation: int, table: TableWriter, times: Moment, *, is_new: bool) -> None:
    """Have a table, which readers are about to get, say no earlier times than they have seen; note a new generation.

    Raises: OSError for a full disk.
    """
    table.raise_times(read_seen(tables).times.latest(times))
    if is_new:
        write_seen(tables, SeenGeneration(generation, times_so_far(table.mem, table.epoch)))


def write_seen(tables: Path, seen: SeenGeneration) -> None:
    """Note a generation, before readers get it.

    Raises: OSError for a full disk.
    """
    as_of_ms, event_ts = seen.times
    write_json(tables / FILE, {"generation": seen.generation, "as_of_ms": as_of_ms, "event_ts": event_ts})
