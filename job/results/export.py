"""`freshet export`: the live graph of a job as a snapshot, from which a new job goes on."""

from __future__ import annotations

import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from freshet.job.console import say
from freshet.job.errors import EXIT_DONE, EXIT_SIGTERM, UsageError
from freshet.job.flink.rest import FlinkRestError
from freshet.job.folder import layout, lock, run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.folder.lock import taken
from freshet.job.folder.returned_kinds import logs_of
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties
from freshet.job.lifecycle.ending import settled
from freshet.job.lifecycle.job_state import JobState, at_work, state_of
from freshet.job.machine.processes import handled
from freshet.job.options.flink_keys import resolve
from freshet.job.results.coverage import Coverage
from freshet.job.results.final_graph import rebuild
from freshet.job.results.own_savepoint import may_vanish, own_savepoint
from freshet.job.run.job_states import JobStates
from freshet.job.run.positions import as_times
from freshet.job.run.sources import load_sources
from freshet.job.serving.tables.change_log_rows import times_upto
from freshet.operators.dataflow import PARTITIONER, Place
from freshet.operators.epochs.cut import LostCutError
from freshet.operators.epochs.cut_log import CutLog, copy_log
from freshet.operators.epochs.cut_segments import ForeignLogError
from freshet.operators.live_graph import Entries, LiveState
from freshet.operators.output_folders import LogFolders
from freshet.operators.parser.keys import OFFSET
from freshet.operators.settings import Settings
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.operators.sink.log_proof import last_recorded
from freshet.operators.snapshot.reader import EVENT_TS, KEY_SOURCES, dropped_columns
from freshet.operators.snapshot.writer import write_live_graph
from freshet.partitioner.live_graph import LiveGraph
from freshet.schema import Features

WORK = ".export"  # below the folder of the snapshot, while it is made
FILES = ("vertices.parquet", "edges.parquet", "snapshot.json")
_SAY_EPOCHS = 5_000
_END_S = 60.0  # for the end of a job that writes no savepoint: it is being stopped, say
_POLL_S = 0.1
_ANSWER_S = 5.0  # for an answer of Flink


@dataclass(frozen=True)
class Stopped:
    """A job to export: its folder, settings, end, and the properties of Kafka's clients."""

    out: Path
    settings: Settings
    saved: SavedJob
    run: dict[str, Any]
    properties: ClientProperties
    flink: Mapping[str, str] = field(default_factory=dict)  # Flink's own options, by which a store is reached
    is_live: bool = False  # it runs on Flink

    @property
    def is_local(self) -> bool:
        """True if it ran in the local runtime."""
        return self.saved.runtime == "local"

    @property
    def has_finished(self) -> bool:
        """True if it has read all of its input."""
        return run_file.has_finished(self.run)


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
        stopped = _open(job, model, running=state is not None, properties=properties)
        if flink:
            stopped = replace(stopped, flink=flink)
        shutil.rmtree(work, ignore_errors=True)  # of one that was killed
        work.mkdir()
        try:
            line = export_state(stopped, state, work)
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


def export_state(stopped: Stopped, state: str | None, work: Path) -> dict[str, Any]:
    """Write the snapshot to the work folder; the JSON line."""
    if not stopped.is_live:
        with lock.read(stopped.out, "freshet export"):  # from now on the end that is recorded is its last one
            return _from_state(replace(stopped, run=run_file.read_run(stopped.out)), state, work)
    assert state is not None
    if not may_vanish(state, _states(stopped)):
        return _from_state(stopped, state, work)
    try:
        return _from_own_savepoint(stopped, work)
    except FlinkRestError:
        if (ended := _as_ended(stopped)) is None:
            raise
    say("the job has ended meanwhile")
    return export_state(ended, None, work)


def _from_own_savepoint(stopped: Stopped, work: Path, tries: int = 3) -> dict[str, Any]:
    if stopped.run.get("state") != run_file.RUNNING and not state_of(stopped.out, _ANSWER_S).runs_on_cluster:
        msg = f"{stopped.out}: the job is still starting; try again once it says `job ...`"
        raise UsageError(msg)
    say("the job runs: it is asked for a savepoint, which goes when this is done")
    with own_savepoint(stopped.run) as savepoint:
        try:
            return _from_state(stopped, savepoint, work)
        except LostCutError:  # of the cut log, too, the job lets go what its checkpoints need no more
            if tries == 1:
                raise
    return _from_own_savepoint(stopped, work, tries - 1)


def _as_ended(stopped: Stopped) -> Stopped | None:
    """The job once it has ended, if it is about to; else None."""
    deadline = time.monotonic() + _END_S
    while time.monotonic() < deadline:
        if at_work(stopped.out, _ANSWER_S) is None:
            return replace(stopped, run=run_file.read_run(stopped.out), is_live=False)
        time.sleep(_POLL_S)
    return None


def _from_state(stopped: Stopped, state: str | None, work: Path) -> dict[str, Any]:
    copy = _copy_of_log(stopped, work)
    try:
        return _from_log(stopped, CutLog(copy, stopped.settings.job_id), state, work)
    except (LostCutError, ForeignLogError) as error:  # of the copy, which goes
        found = stopped.settings.cuts.topic or _cut_log_of(stopped) or stopped.settings.cuts.folder
        raise type(error)(str(error).replace(str(copy), str(found))) from None


def _from_log(stopped: Stopped, log: CutLog, state: str | None, work: Path) -> dict[str, Any]:
    try:
        live = LiveState(stopped.settings, log)
        coverage = _restore(stopped, live, state, work)
        epoch, more = live.epoch, live.finish_messages()
    finally:
        log.close()
    coverage.extend(live.positions)
    if more:
        say(f"{more:,} events more: the rest of the messages in which epoch {epoch:,} ends")
    graph = live.graph()
    positions = [one.to_dict() for one in coverage.positions(stopped.has_finished and state is None)]
    counts = {"vertices": len(graph.ids), "edges": len(graph.without_mirrors().src), "epoch": epoch}
    say(f"epoch {epoch:,}: writing {counts['vertices']:,} vertices and {counts['edges']:,} edges")
    if live.attrs is not None:
        counts["attr_left_out"] = _tell_attr(stopped, live.core.features, *live.attrs)
    counts |= _tell_zeros(written := graph.without_mirrors(), live.unkept_attributes(written))
    undirected = stopped.settings.partitioning.undirected
    (work / "snapshot").mkdir()
    event_ts = {} if live.core.event_ts is None else {EVENT_TS: live.core.event_ts}
    times = times_upto(_folders_of_log(stopped.out), epoch).latest(live.times)
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


def _tell_zeros(graph: LiveGraph, unkept: np.ndarray) -> dict[str, int]:
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


def _open(job: Path, model: Path | None, running: bool, properties: ClientProperties) -> Stopped:
    """The job in a folder; `running`: it may still run."""
    saved = SavedJob.read(job)
    if saved is None:
        msg = f"{job}: no job in it ({layout.SAVED_JOB}); give the --out folder of a `freshet run`"
        raise UsageError(msg)
    state, run = settled(job, _ANSWER_S), run_file.read_run(job)
    worker = at_work(job, _ANSWER_S)
    if not running and (worker := worker or _elsewhere(state)):
        msg = f"{job}: {worker} is still working on it; stop it first: freshet stop {job}"
        raise UsageError(msg)
    folder = model.absolute() if model else Path(saved.settings.model)
    if not (folder / "model.json").is_file():
        msg = f"{job}: its model {folder} is not there; say where it is now: --model M"
        raise UsageError(msg)
    settings = replace(saved.settings_at(job, folder), registry_login=properties.registry_login())
    if not (job / layout.IMAGE_DONE).exists():
        msg = (
            f"{job}: there is no {layout.IMAGE_DONE}: its run was killed before it had begun, and the snapshot that it "
            "was given is all there is (or that file was lost: `freshet run --resume latest` makes it again)"
        )
        raise UsageError(msg)
    is_live = worker is not None and saved.runtime != "local"
    stopped = Stopped(job, settings, saved, run, properties, saved.flink, is_live)
    if run.get("state") in run_file.ENDED and not state.runs_on_cluster:  # its process is about to end
        return _as_ended(stopped) or stopped
    return stopped


def _elsewhere(state: JobState) -> str | None:
    """The other machine, or the silent cluster, where the job may still be at work."""
    run = state.run
    gone = "(if it is gone, name the state by --from)"
    if state.is_guess:
        return f"the cluster {run['cluster']}, which does not answer, {gone}"
    here = run.get("host") in (None, socket.gethostname())
    if here or run.get("cluster") or run.get("state") in (None, *run_file.ENDED):
        return None
    return f"the machine {run['host']} {gone}"


def _copy_of_log(stopped: Stopped, work: Path) -> Path:
    """The cut log, copied: to open one is to take it over."""
    copy = work / layout.CUT_LOG
    if topic := stopped.settings.cuts.topic:
        from freshet.job.kafka.cut_topic import copy_topic

        copy_topic(KafkaAddress.parse(topic), stopped.properties, stopped.settings.job_id, copy)
        return copy
    found = _cut_log_of(stopped)
    if found is not None:
        copy_log(found, copy)
    return copy


def _cut_log_of(stopped: Stopped) -> Path | None:
    return stopped.saved.cut_log(stopped.out, _states(stopped).folder / layout.CUT_LOG)


def _states(stopped: Stopped) -> JobStates:
    checkpoints = stopped.saved.options.get("checkpoint_dir")
    return JobStates(stopped.out, stopped.settings.job_id, checkpoints, "--from", stopped.flink)


def _restore(stopped: Stopped, live: LiveState, state: str | None, work: Path) -> Coverage:
    """Bring the graph to where the job stands; what its epochs cover."""
    sources = load_sources(stopped.settings, stopped.saved.topics, stopped.properties)
    coverage = Coverage(stopped.out, sources)
    if stopped.is_local:
        if state is not None:
            msg = f"--from {state}: the local runtime has its state in {stopped.out / layout.STATE}; leave --from out"
            raise UsageError(msg)
        _from_store(stopped, live)
    elif state is None and stopped.has_finished:
        say("the job has ended, and Flink keeps no state of such jobs: reading its events again")
        log = _log_of(stopped.out)
        coverage.extend_to(max(log.last_epoch() or 0, stopped.run.get("epoch") or 0), log)
        rebuild(live, sources, log)
        return coverage
    else:
        _from_flink(stopped, live, state, work)
    if live.epoch:
        coverage.extend_to(live.epoch, _log_of(stopped.out))
    for epoch in live.replay():
        if epoch % _SAY_EPOCHS == 0:
            say(f"replayed to epoch {epoch:,}")
    return coverage


def _log_of(out: Path) -> ChangeLogReader:
    return ChangeLogReader(out, _folders_of_log(out).kind)


def _folders_of_log(out: Path) -> LogFolders:
    """Return the change log that says the input of the epochs: of several, that which has most of them."""
    return max(logs_of(out), key=last_recorded)


def _from_store(stopped: Stopped, live: LiveState) -> None:
    from freshet.job.local.runtime import READ_POSITION
    from freshet.job.local.sealed_store import SealedStore

    say(f"restoring from {stopped.out / 'state'}")
    store = SealedStore(stopped.out / layout.STATE)

    def entries_of(operator: str, part: int) -> Entries:
        name = operator if operator == PARTITIONER else str(Place(operator, part))
        return ((key, value) for key, value in store.items(name) if key != READ_POSITION)

    try:
        live.restore(entries_of)
    finally:
        store.close()


def _from_flink(stopped: Stopped, live: LiveState, state: str | None, work: Path) -> None:
    from freshet.job.flink.savepoint_entries import save_entries
    from freshet.state.checksums.entries import SealedEntries
    from freshet.state.entry_file import read_entries

    found = _state_of(stopped, state)
    say(f"restoring from {found}")
    backend = stopped.saved.options.get("state_backend", "rocksdb")
    save_entries(found, backend, stopped.settings.parts, live.operators, work, resolve(stopped.flink))

    def entries_of(operator: str, part: int) -> Iterable[tuple[str, bytes]]:
        place = str(Place(operator, part))
        return SealedEntries(place).opened(read_entries(work / place))

    live.restore(entries_of)


def _state_of(stopped: Stopped, state: str | None) -> str:
    """Return the savepoint or checkpoint, in the form for Flink; nothing is removed, unlike by a resume."""
    states = _states(stopped)
    found = states.latest() if state in (None, "latest") else states.named(state)
    if found is None:
        msg = f"{stopped.out}: no checkpoint is complete; go on with `freshet run --resume latest` and stop that run"
        raise UsageError(msg)
    return found
