"""`freshet export`: the live graph of a job as a snapshot, from which a new job goes on."""

from __future__ import annotations

import shutil
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from job.console import say
from job.errors import EXIT_DONE, EXIT_SIGTERM, UsageError
from job.flink.rest import FlinkRest, FlinkRestError
from job.folder import layout, run_file
from job.folder.job_file import SavedJob
from job.kafka.client import ClientProperties
from job.machine.signals import handled
from job.results.coverage import Coverage
from job.results.final_graph import rebuild
from job.run.job_states import JobStates
from job.run.sources import load_sources
from operators.dataflow import FEATURES, PARTITIONER, Place
from operators.epochs.cut_log import CutLog, copy_log
from operators.live_graph import Entries, LiveState
from operators.settings import Settings
from operators.sink.change_log_reader import ChangeLogReader
from operators.snapshot.writer import write_live_graph

WORK = ".export"  # below the folder of the snapshot, while it is made
_SAY_EPOCHS = 5_000
_ENDED = ("FINISHED", "CANCELED", "FAILED")  # in Flink's words


@dataclass(frozen=True)
class Stopped:
    """A job to export: its folder, what it was told, how it ended, and what Kafka's clients are to be told."""

    out: Path
    settings: Settings
    saved: SavedJob
    run: dict[str, Any]
    properties: ClientProperties

    @property
    def is_local(self) -> bool:
        """Whether it ran in the local runtime."""
        return self.saved.runtime == "local"

    @property
    def has_finished(self) -> bool:
        """Whether it has taken in all of its input."""
        return run_file.has_finished(self.run)


def export(
    snapshot: Path,
    job: Path,
    state: str | None = None,
    model: Path | None = None,
    properties: ClientProperties | None = None,
) -> int:
    """Write the live graph of the job in `job` to the folder `snapshot`, and print a JSON line about it.

    `state`: a savepoint or checkpoint to take it from, None: where the job stopped.

    Raises: InputError when there is no such job, it still runs, or its state can't be used; JobFailed when Flink can't
    read the savepoint.
    """
    job, snapshot = job.absolute(), snapshot.absolute()
    stopped = _open(job, model, running=state is not None, properties=properties or ClientProperties())
    work, new = snapshot / WORK, not snapshot.exists()
    try:
        with handled(_leave, signal.SIGTERM):
            work.mkdir(parents=True)
            line = _export(stopped, state, work)
            for name in ("vertices.parquet", "edges.parquet", "snapshot.json"):  # this one last: it says where to go on
                (work / "snapshot" / name).replace(snapshot / name)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if new:
            with suppress(OSError):  # not empty, or never made
                snapshot.rmdir()
    print(orjson.dumps(line).decode(), flush=True)
    return EXIT_DONE


def _leave(_number: int, _frame: object) -> None:
    """As Ctrl-C does: nothing stays behind."""
    sys.exit(EXIT_SIGTERM)


def _export(stopped: Stopped, state: str | None, work: Path) -> dict[str, Any]:
    log = CutLog(_copy_of_log(stopped, work), stopped.settings.job_id)
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
    counts = {"vertices": len(graph.ids), "edges": len(graph.src), "epoch": epoch}
    say(f"epoch {epoch:,}: writing {counts['vertices']:,} vertices and {counts['edges']:,} edges")
    undirected = stopped.settings.partitioning.undirected
    (work / "snapshot").mkdir()
    info = {**counts, "undirected": undirected, "positions": positions}
    write_live_graph(work / "snapshot", graph, live.features(graph), info)
    return {**counts, "positions": positions}


def _open(job: Path, model: Path | None, running: bool, properties: ClientProperties) -> Stopped:
    """The job in a folder; `running`: it may still run."""
    saved = SavedJob.read(job)
    if saved is None:
        msg = f"{job}: no job in it; give the --out folder of a `freshet run`"
        raise UsageError(msg)
    run = run_file.read_run(job)
    if not running and (worker := _at_work(job, run)):
        msg = f"{job}: {worker} is still working on it; stop it first: freshet stop {job}"
        raise UsageError(msg)
    folder = model.absolute() if model else Path(saved.settings.model)
    if not (folder / "model.json").is_file():
        msg = f"{job}: its model {folder} is not there; say where it is now: --model M"
        raise UsageError(msg)
    settings = saved.settings_at(job, folder)
    if not (job / layout.IMAGE_DONE).exists():
        msg = f"{job}: its run was killed before it had begun; the snapshot that it was given is all there is"
        raise UsageError(msg)
    return Stopped(job, settings, saved, run, properties)


def _at_work(job: Path, run: dict[str, Any]) -> str | None:
    """Who works on the job, as far as can be told from here."""
    process = run_file.running_process(job)
    if process is not None:
        return f"process {process}"
    if run.get("state") in (None, *run_file.ENDED):
        return None
    if run.get("cluster") and "job_id" in run:  # it goes on without the process that started it
        rest = FlinkRest(run["rest"], run["job_id"])
        try:
            return None if rest.state() in _ENDED else f"the cluster {run['cluster']}"
        except FlinkRestError:
            return None
        finally:
            rest.close()
    here = run.get("host") in (None, socket.gethostname())
    return None if here else f"the machine {run['host']} (if it is gone, name the state by --from)"


def _copy_of_log(stopped: Stopped, work: Path) -> Path:
    """The cut log, copied: to open one is to take it over."""
    copy = work / layout.CUT_LOG
    found = stopped.saved.cut_log(stopped.out, _states(stopped).folder / layout.CUT_LOG)
    if found is not None:
        copy_log(found, copy)
    return copy


def _states(stopped: Stopped) -> JobStates:
    return JobStates(stopped.out, stopped.settings.job_id, stopped.saved.options.get("checkpoint_dir"), "--from")


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
        log = ChangeLogReader(stopped.out)
        coverage.extend_to(max(log.last_epoch() or 0, stopped.run.get("epoch") or 0), log)
        rebuild(live, sources, log)
        return coverage
    else:
        _from_flink(stopped, live, state, work)
    if live.epoch:
        coverage.extend_to(live.epoch, ChangeLogReader(stopped.out))
    for epoch in live.replay():
        if epoch % _SAY_EPOCHS == 0:
            say(f"replayed to epoch {epoch:,}")
    return coverage


def _from_store(stopped: Stopped, live: LiveState) -> None:
    from job.local.runtime import READ_POSITION, open_store

    say(f"restoring from {stopped.out / 'state'}")
    store = open_store(stopped.out / layout.STATE)

    def entries_of(operator: str, part: int) -> Entries:
        name = operator if operator == PARTITIONER else str(Place(operator, part))
        return ((key, value) for key, value in store.items(name) if key != READ_POSITION)

    try:
        live.restore(entries_of)
    finally:
        store.close()


def _from_flink(stopped: Stopped, live: LiveState, state: str | None, work: Path) -> None:
    from job.flink.savepoint_entries import save_entries
    from state.entry_file import read_entries

    found = _state_of(stopped, state)
    say(f"restoring from {found}")
    backend = stopped.saved.options.get("state_backend", "rocksdb")
    save_entries(found, backend, stopped.settings.parts, (PARTITIONER, FEATURES), work)

    def entries_of(operator: str, part: int) -> Iterable[tuple[str, bytes]]:
        return read_entries(work / str(Place(operator, part)))

    live.restore(entries_of)


def _state_of(stopped: Stopped, state: str | None) -> str:
    """The savepoint or checkpoint, as Flink is told of it; nothing is removed, unlike by a resume."""
    states = _states(stopped)
    found = states.latest() if state in (None, "latest") else states.named(state)
    if found is None:
        msg = f"{stopped.out}: no checkpoint is complete; go on with `freshet run --resume latest` and stop that run"
        raise UsageError(msg)
    return found
