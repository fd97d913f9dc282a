"""`freshet export`: the live graph of a job as a snapshot, from which a new job goes on."""

from __future__ import annotations

import shutil
import signal
import socket
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from job.errors import EXIT_DONE, EXIT_SIGTERM, JobFailed, UsageError, one_line
from job.flink.checkpoints import (
    NoCheckpointError,
    dir_of_job,
    find_state,
    follow_move,
    is_remote,
    local_folder,
    newest_of_job,
)
from job.flink.rest import FlinkRest, FlinkRestError
from job.folder import run_file
from job.kafka.client import ClientProperties
from job.kafka.topic_specs import from_recorded
from job.machine.signals import handled
from job.results.coverage import Coverage, open_log
from job.results.final_graph import rebuild
from job.run.positions import JOB_FOLDER
from job.run.prepare import CHUNKS, CUT_LOG, IMAGE_FOLDER, SAVED, image_is_done, say
from job.run.resume import job_of_state
from job.run.sources import load_sources
from operators.dataflow import FEATURES, PARTITIONER
from operators.epochs.cut import ForeignStateError, LostCutError
from operators.epochs.cut_log import CutLog, copy_log
from operators.epochs.cut_segments import ForeignLogError
from operators.factory import Settings, load_plan
from operators.live_graph import Entries, LiveState
from operators.parser.files import EventFileError
from operators.snapshot.writer import write_live_graph
from state.codec import UnknownFormatError
from state.image import DamagedImageError
from state.value_log import LostValueError

WORK = ".export"  # below the folder of the snapshot, while it is made
_SAY_EPOCHS = 5_000
_UNUSABLE = (
    LostCutError,
    ForeignLogError,
    ForeignStateError,
    LostValueError,
    DamagedImageError,
    UnknownFormatError,
    EventFileError,
)
_ENDED = ("FINISHED", "CANCELED", "FAILED")  # in Flink's words


@dataclass(frozen=True)
class Stopped:
    """A job to export: its folder, what it was told, how it ended, and what Kafka's clients are to be told."""

    out: Path
    settings: Settings
    saved: dict[str, Any]
    run: dict[str, Any]
    properties: ClientProperties

    @property
    def is_local(self) -> bool:
        """Whether it ran in the local runtime."""
        return bool(self.saved["runtime"] == "local")

    @property
    def has_finished(self) -> bool:
        """Whether it has taken in all of its input."""
        return bool(self.run.get("state") == run_file.FINISHED)


def export(
    snapshot: Path,
    job: Path,
    state: str | None = None,
    model: Path | None = None,
    properties: ClientProperties | None = None,
) -> int:
    """Write the live graph of the job in `job` to the folder `snapshot`, and print a JSON line about it.

    `state`: a savepoint or checkpoint to take it from, None: where the job stopped.

    Raises: UsageError when there is no such job, it still runs, or its state can't be read; JobFailed when Flink can't
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
    except _UNUSABLE as error:
        raise UsageError(str(error)) from None
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
        say(f"with {more:,} events more: the rest of messages that epoch {epoch:,} ends within")
    graph = live.graph()
    positions = [one.to_dict() for one in coverage.positions(stopped.has_finished and state is None)]
    counts = {"vertices": len(graph.ids), "edges": len(graph.src), "epoch": epoch}
    say(f"epoch {epoch:,}: writing {counts['vertices']:,} vertices and {counts['edges']:,} edges")
    undirected = bool(stopped.settings.partitioner.get("undirected"))
    (work / "snapshot").mkdir()
    info = {**counts, "undirected": undirected, "positions": positions}
    write_live_graph(work / "snapshot", graph, live.features(graph), info)
    return {**counts, "positions": positions}


def _open(job: Path, model: Path | None, running: bool, properties: ClientProperties) -> Stopped:
    """The job in a folder; `running`: it may still run."""
    try:
        saved = orjson.loads((job / JOB_FOLDER / SAVED).read_bytes())
    except FileNotFoundError:
        message = f"{job}: no job in it; give the --out folder of a `freshet run`"
        raise UsageError(message) from None
    run = run_file.read_run(job)
    if not running and (worker := _at_work(job, run)):
        message = f"{job}: {worker} is still working on it; stop it first: freshet stop {job}"
        raise UsageError(message)
    former = Settings.from_dict(saved["settings"])
    folder = str(model.absolute()) if model else former.model
    if not (Path(folder) / "model.json").is_file():
        message = f"{job}: its model {folder} is not there; say where it is now: --model M"
        raise UsageError(message)
    if load_plan(folder).sha256 != saved["model_sha256"]:
        message = f"--model {folder}: another model than the job in {job} was begun with; give that one"
        raise UsageError(message)
    chunks = str(job / JOB_FOLDER / CHUNKS)
    settings = replace(former, model=folder, out=str(job), image=str(job / IMAGE_FOLDER), chunks=chunks)
    if not image_is_done(settings):
        message = f"{job}: its run was killed before it had begun; the snapshot that it was given is all there is"
        raise UsageError(message)
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
    former = stopped.saved["settings"]
    was = Path(former["cut_log"])
    places = [_checkpoints(stopped) / CUT_LOG, was]
    if was.is_relative_to(former["out"]):
        places.append(stopped.out / was.relative_to(former["out"]))
    copy = work / CUT_LOG
    for place in places:
        if place.is_dir():
            copy_log(place, copy)
            break
    return copy


def _checkpoints(stopped: Stopped) -> Path:
    """The folder of the job's checkpoints, or of what lies beside them here."""
    own = dir_of_job(stopped.saved["options"].get("checkpoint_dir"), stopped.settings.job_id)
    return local_folder(own, stopped.out)


def _restore(stopped: Stopped, live: LiveState, state: str | None, work: Path) -> Coverage:
    """Bring the graph to where the job stands; what its epochs cover."""
    topics, settings = from_recorded(stopped.saved.get("topics", [])), stopped.settings
    sources = load_sources(Path(settings.chunks), settings.sources, topics, stopped.properties)
    coverage = Coverage(stopped.out, sources)
    if stopped.is_local:
        if state is not None:
            message = f"--from {state}: the local runtime has its state in {stopped.out}/state; leave --from out"
            raise UsageError(message)
        _from_store(stopped, live)
    elif state is None and stopped.has_finished:
        say("the job has come to its end, and Flink keeps no state of such jobs: taking its events in again")
        log = open_log(stopped.out)
        coverage.extend_to(max(log.last_epoch() or 0, stopped.run.get("epoch") or 0))
        rebuild(live, sources, log)
        return coverage
    else:
        _from_flink(stopped, live, state, work)
    coverage.extend_to(live.epoch)
    for epoch in live.replay():
        if epoch % _SAY_EPOCHS == 0:
            say(f"replayed to epoch {epoch:,}")
    return coverage


def _from_store(stopped: Stopped, live: LiveState) -> None:
    from job.local.runtime import READ_POSITION, open_store

    say(f"restoring from {stopped.out / 'state'}")
    store = open_store(stopped.out / "state")

    def entries_of(operator: str, part: int) -> Entries:
        name = operator if operator == PARTITIONER else f"{operator}-{part}"
        return ((key, value) for key, value in store.part(name).items() if key != READ_POSITION)

    try:
        live.restore(entries_of)
    finally:
        store.close()


def _from_flink(stopped: Stopped, live: LiveState, state: str | None, work: Path) -> None:
    from job.flink.errors import JobFailedError
    from job.flink.gateway import GatewayError
    from job.flink.savepoint_entries import save_entries
    from job.machine.java import JavaNotFoundError
    from state.entry_file import read_entries

    found = _state_of(stopped, state)
    say(f"restoring from {found}")
    backend = stopped.saved["options"].get("state_backend", "rocksdb")
    try:
        save_entries(found, backend, stopped.settings.parts, (PARTITIONER, FEATURES), work)
    except (JobFailedError, GatewayError, JavaNotFoundError) as error:
        raise JobFailed(one_line(str(error))) from error

    def entries_of(operator: str, part: int) -> Iterable[tuple[str, bytes]]:
        return read_entries(work / f"{operator}-{part}")

    live.restore(entries_of)


def _state_of(stopped: Stopped, state: str | None) -> str:
    """The savepoint or checkpoint, as Flink is told of it; nothing is removed, unlike by a resume."""
    if state is not None and is_remote(state):
        return state
    options, out = stopped.saved["options"], stopped.out
    folder = _checkpoints(stopped)
    savepoint = str(stopped.run.get("savepoint") or "")
    try:
        if state is not None:
            found = find_state(state, folder)
        elif is_remote(options.get("checkpoint_dir") or ""):
            if stopped.run.get("state") == run_file.STOPPED and savepoint:
                return savepoint
            message = (
                f"{out}: can't look into {options['checkpoint_dir']}; give the newest checkpoint there: --from URI"
            )
            raise UsageError(message)
        else:
            latest = newest_of_job(folder, savepoint)
            if latest is None:
                message = (
                    f"{out}: no checkpoint is complete; go on with `freshet run --resume latest` and stop that run"
                )
                raise UsageError(message)
            found = latest
    except NoCheckpointError as error:
        message = f"--from {state}: {error}"
        raise UsageError(message) from None
    owner = job_of_state(found)
    if owner not in (None, stopped.settings.job_id):
        message = f"--from {state}: {found} is a state of job {owner}, that of {out} is {stopped.settings.job_id}"
        raise UsageError(message)
    follow_move(found)
    return str(found)
