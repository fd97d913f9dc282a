"""The begin of a reader of a job's graph: the job's base images, a state, or a graph that was saved."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from freshet.job.errors import UsageError
from freshet.job.lifecycle.job_state import at_work
from freshet.job.live.saved import SavedGraph, is_saved, read_saved, save
from freshet.job.options.config_file import load_flink, load_properties
from freshet.job.results.graph_at import GraphAt, Reached
from freshet.job.results.opened_job import Stopped, describe_job, open_job
from freshet.job.results.taken_graph import TakenGraph, take_graph
from freshet.job.run.sources import Sources, load_sources
from freshet.operators.epochs.cut import FILES
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.factory import load_plan, parser_of
from freshet.operators.live_graph import LiveState

BASE, LATEST = "base", "latest"


def sources_of(job: Stopped, *, are_followed: bool = False) -> Sources:
    """Return the sources of a job as it began; `are_followed`: topics are read on while the graph is brought on."""
    found = load_sources(job.settings, job.saved.topics, job.properties)
    if not are_followed:
        return found
    return replace(found, topics=tuple(replace(one, is_followed=True) for one in found.topics))


def graph_of_base(job: Stopped, *, is_followed: bool = False) -> GraphAt:
    """Return the graph that a job began with; see `sources_of`."""
    live = LiveState(job.settings, CutLog(job=job.settings.job_id))
    live.restore(lambda operator, part: ())
    return GraphAt(live, sources_of(job, are_followed=is_followed), Reached())


def graph_of_saved(job: Stopped, saved: SavedGraph, *, is_followed: bool = False) -> GraphAt:
    """Return a graph that was saved; see `sources_of`.

    Raises: DamagedFileError, UnknownFormatError.
    """
    live = LiveState(job.settings, CutLog(job=job.settings.job_id), saved.images)
    live.load()
    return GraphAt(live, sources_of(job, are_followed=is_followed), saved.reached)


def save_state(job: Stopped, state: str, folder: Path) -> None:
    """Save the graph of a state (LATEST: of a new savepoint, or of where the job stopped) in a folder.

    Raises: InputError where there is no such state; FlinkRestError where a job that runs writes none.
    """
    opened = open_job(job.out, Path(job.settings.model), running=True, properties=job.properties)
    if opened.is_local and (worker := at_work(job.out)):
        msg = f"{job.out}: {worker} works on it, and the local runtime writes no savepoints; give begin={BASE!r}"
        raise UsageError(msg)
    opened = replace(opened, flink=job.flink)
    asked = None if state == LATEST and not opened.is_live else state

    def saved(taken: TakenGraph) -> None:
        save(folder, job.settings.job_id, taken.live, _reached(taken))

    with tempfile.TemporaryDirectory(prefix="freshet-state-") as work:
        take_graph(opened, asked, Path(work), saved)


def _reached(taken: TakenGraph) -> Reached:
    """Return how far the graph of a state covers the input."""
    names, live = taken.job.settings.sources, taken.live
    taken.coverage.extend(live.positions)
    offsets = {(names[source], partition): at for (source, partition), at in taken.coverage.reached.items()}
    if taken.is_last:
        return Reached(live.epoch, offsets)
    rests = {(names[source], partition): count for (source, partition), count in live.rests().items()}
    if not isinstance(live.settings.parsing.events_map, dict):  # of which records may have several events
        of_files = _reached_in_files(taken)
        offsets |= {place: offset for place, (offset, _) in of_files.items()}
        rests |= {place: rest for place, (_, rest) in of_files.items()}
    return Reached(live.epoch, offsets, rests)


def _reached_in_files(taken: TakenGraph) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the first record of each file that is not covered whole, and the events that are left of it, 0: all.

    They are counted from the first file on: the job's state does not say where in a record an epoch ends.
    """
    left, found = taken.live.partitioner.lanes.sealed_by_lane().get(FILES, 0), {}
    settings = taken.live.settings
    for source in sources_of(taken.job).files:
        reached = source.first, 0
        for block in source.events(0, parser_of(settings, load_plan(settings.model))) if left else ():
            count = min(left, len(block))
            if count:
                left, last = left - count, int(block.position[count - 1])
                rest = int(np.count_nonzero(block.position[count:] == last))  # a record is in one block
                reached = last - bool(rest), rest
            if not left:
                break
        found[source.name, 0] = reached
    return found


def begin_of(job: Stopped, begin: str, work: Path) -> SavedGraph | None:
    """Return the graph that a reader begins with; None: that of the job's base images. `work`: where states go."""
    if begin == BASE:
        return None
    folder = Path(begin)
    if begin != LATEST and is_saved(folder):
        return read_saved(folder.absolute(), job.settings.job_id)
    save_state(job, begin, work / "begin")
    return read_saved(work / "begin", job.settings.job_id)


def described(out: Path, model: Path | None, config: Path | None) -> Stopped:
    """Read what the job in a folder is; `config`: properties of clients, and Flink's options in place of the job's."""
    found = describe_job(out, model, load_properties(config))
    flink = load_flink(config)
    return replace(found, flink=flink) if flink else found
