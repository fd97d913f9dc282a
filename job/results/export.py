"""`freshet export`: the live graph of a job as a snapshot, from which a new job goes on."""

from __future__ import annotations

import shutil
import signal
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from freshet.job.console import say
from freshet.job.errors import EXIT_DONE, EXIT_SIGTERM, UsageError
from freshet.job.folder import layout
from freshet.job.folder.lock import taken
from freshet.job.kafka.client import ClientProperties
from freshet.job.machine.processes import handled
from freshet.job.results.opened_job import Stopped, open_job
from freshet.job.results.taken_graph import TakenGraph, folders_of_log, take_graph
from freshet.job.run.positions import as_times
from freshet.job.serving.tables.change_log_rows import times_upto
from freshet.operators.parser.keys import OFFSET
from freshet.operators.snapshot.reader import EVENT_TS, KEY_SOURCES, dropped_columns
from freshet.operators.snapshot.writer import write_live_graph
from freshet.partitioner.live_graph import PlacedGraph
from freshet.schema import Features
from freshet.type_columns import without_types

WORK = ".export"  # below the folder of the snapshot, while it is made
FILES = ("vertices.parquet", "edges.parquet", "snapshot.json")


def export(
    snapshot: Path,
    job: Path,
    state: str | None = None,
    model: Path | None = None,
    properties: ClientProperties | None = None,
    flink: Mapping[str, str] | None = None,
) -> int:
    """Write the live graph of the job in `job` to the folder `snapshot`, and print a JSON line about it.

    `state`: a savepoint or checkpoint to take it from, None: where the job stopped. `flink`: Flink's own options in
    place of the job's.

    Raises: InputError when there is no such job, it still runs, or its state can't be used; JobFailed when Flink can't
    read the savepoint.
    """
    job, snapshot = job.absolute(), snapshot.absolute()
    properties = properties or ClientProperties()
    work = snapshot / WORK
    with handled(_leave, signal.SIGTERM), taken(snapshot, "freshet export"):
        _refuse_used(snapshot)
        stopped = open_job(job, model, running=state is not None, properties=properties)
        if flink:
            stopped = replace(stopped, flink=flink)
        shutil.rmtree(work, ignore_errors=True)  # of one that was killed
        work.mkdir()
        try:
            line = take_graph(stopped, state, work, lambda taken_graph: _write(taken_graph, work))
            for name in FILES:  # snapshot.json last: it says where to go on
                (work / "snapshot" / name).replace(snapshot / name)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    print(orjson.dumps(line).decode(), flush=True)
    return EXIT_DONE


def _refuse_used(snapshot: Path) -> None:
    """Refuse a folder that holds more than what an export left that was killed: all of it is written again."""
    there = {item.name for item in snapshot.iterdir()} - {layout.LOCK}
    if there - {WORK, *FILES} or (there and WORK not in there):
        msg = f"--out {snapshot}: expected a folder that is new or empty"
        raise UsageError(msg)


def _leave(_number: int, _frame: object) -> None:
    """Exit as at Ctrl-C: no files remain."""
    sys.exit(EXIT_SIGTERM)


def _write(graph_taken: TakenGraph, work: Path) -> dict[str, Any]:
    """Write the snapshot to the work folder; the JSON line."""
    stopped, live, coverage, is_last = graph_taken
    epoch, more = live.epoch, live.finish_messages()
    coverage.extend(live.positions)
    if more:
        say(f"{more:,} events more: the rest of the messages in which epoch {epoch:,} ends")
    graph, features = live.graph(), live.core.features
    graph = replace(graph, values=without_types(graph.values, features))
    positions = [one.to_dict() for one in coverage.positions(is_last)]
    counts = {"vertices": len(graph.ids), "edges": len(graph.without_mirrors().src), "epoch": epoch}
    say(f"epoch {epoch:,}: writing {counts['vertices']:,} vertices and {counts['edges']:,} edges")
    if live.attrs is not None:
        counts["attr_left_out"] = _tell_attr(stopped, features, *live.attrs)
    counts |= _tell_zeros(written := graph.without_mirrors(), live.unkept_attributes(written))
    undirected = stopped.settings.partitioning.undirected
    (work / "snapshot").mkdir()
    event_ts = {} if live.core.event_ts is None else {EVENT_TS: live.core.event_ts}
    times = times_upto(folders_of_log(stopped.out), epoch).latest(live.times)
    by_place = stopped.settings.partitioning.edge_keys and stopped.settings.parsing.edge_key == OFFSET
    keyed = {KEY_SOURCES: list(stopped.settings.sources)} if by_place else {}
    info = {**counts, "undirected": undirected, **event_ts, **as_times(times), **keyed, "positions": positions}
    write_live_graph(work / "snapshot", graph, live.features(graph), info)
    return {**counts, "positions": positions}


def _tell_attr(stopped: Stopped, features: Features, width: int, events: int) -> int:
    """Say that edges had attr, which no job keeps yet; how many numbers each."""
    given = stopped.saved.snapshot
    also = f" and {given}/edges.parquet" if given and dropped_columns(Path(given), features) else ""
    say(
        f"attr is left out: {events:,} edge events{also} brought attr of {width} numbers, which a job checks and does "
        "not keep; edges.parquet has no such column, take it from where the edges came from"
    )
    return width


def _tell_zeros(graph: PlacedGraph, unkept: np.ndarray) -> dict[str, int]:
    """Say how many edges have zeros for attributes that the job did not keep, and which they are; nothing of none."""
    count, loops = int(unkept.sum()), graph.src == graph.dst
    if not count:
        return {}
    names = graph.types if graph.kinds is None else graph.kinds.relation_names
    of_types = [names[code] or "one type" for code in np.unique(graph.etype[unkept & ~loops]).tolist()]
    among = [f"those of {', '.join(of_types)}"] * bool(of_types) + ["self-loops"] * bool((unkept & loops).any())
    say(
        f"attr of {count:,} edges is zeros in edges.parquet: nothing that the model returns reads it "
        f"({' and '.join(among)}), so the job did not keep it; take it from where the edges came from"
    )
    return {"attr_zeros": count}
