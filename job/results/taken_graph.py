"""The graph of a job out of its state: of a savepoint, of a checkpoint, or of where it stopped."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.flink.rest import FlinkRestError
from freshet.job.folder import layout, lock, run_file
from freshet.job.folder.returned_kinds import logs_of
from freshet.job.lifecycle.job_state import state_of
from freshet.job.options.flink_keys import resolve
from freshet.job.results.coverage import Coverage
from freshet.job.results.graph_at import GraphAt, Reached
from freshet.job.results.opened_job import ANSWER_S, Stopped, as_ended, copy_of_log, cut_log_of, states_of
from freshet.job.results.own_savepoint import may_vanish, own_savepoint
from freshet.job.run.sources import load_sources
from freshet.operators.dataflow import PARTITIONER, Place
from freshet.operators.epochs.cut import LostCutError
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.cut_segments import ForeignLogError
from freshet.operators.live_graph import LiveState
from freshet.operators.output_folders import LogFolders
from freshet.operators.sink.change_log_reader import ChangeLogReader
from freshet.operators.sink.log_proof import last_recorded
from freshet.state.entries import Entries, SomeEntries

_SAY_EPOCHS = 5_000
T = TypeVar("T")


class TakenGraph(NamedTuple):
    """A job's graph as a state has it. `coverage`: how far the epochs up to there reach in the sources."""

    job: Stopped
    live: LiveState
    coverage: Coverage
    is_last: bool  # it is what the job has ended with


Use = Callable[[TakenGraph], T]


def take_graph(stopped: Stopped, state: str | None, work: Path, use: Use[T]) -> T:
    """Return what `use` makes of the graph of a state; None: of where the job stopped. `work`: an empty folder.

    Of a job that runs, a state that Flink may remove meanwhile is one that is requested here, and removed afterwards.

    Raises: InputError when the state can't be used; JobFailed when Flink can't read it; FlinkRestError when a job that
    runs writes none.
    """
    if not stopped.is_live:
        with lock.read(stopped.out, "freshet export"):  # from now on the end that is recorded is its last one
            return from_state(replace(stopped, run=run_file.read_run(stopped.out)), state, work, use)
    assert state is not None
    if not may_vanish(state, states_of(stopped)):
        return from_state(stopped, state, work, use)
    try:
        return _from_own_savepoint(stopped, work, use)
    except FlinkRestError:
        if (ended := as_ended(stopped)) is None:
            raise
    say("the job has ended meanwhile")
    return take_graph(ended, None, work, use)


def _from_own_savepoint(stopped: Stopped, work: Path, use: Use[T], tries: int = 3) -> T:
    if stopped.run.get("state") != run_file.RUNNING and not state_of(stopped.out, ANSWER_S).runs_on_cluster:
        msg = f"{stopped.out}: the job is still starting; try again once it says `job ...`"
        raise UsageError(msg)
    say("the job runs: it is asked for a savepoint, which goes when this is done")
    with own_savepoint(stopped.run) as savepoint:
        try:
            return from_state(stopped, savepoint, work, use)
        except LostCutError:  # of the cut log, too, the job lets go what its checkpoints need no more
            if tries == 1:
                raise
    return _from_own_savepoint(stopped, work, use, tries - 1)


def from_state(stopped: Stopped, state: str | None, work: Path, use: Use[T]) -> T:
    """Return what `use` makes of the graph of a state that stays meanwhile."""
    copy = copy_of_log(stopped, work)
    try:
        return _from_log(stopped, CutLog(copy, stopped.settings.job_id), state, work, use)
    except (LostCutError, ForeignLogError) as error:  # of the copy, which goes
        found = stopped.settings.cuts.topic or cut_log_of(stopped) or stopped.settings.cuts.folder
        raise type(error)(str(error).replace(str(copy), str(found))) from None


def _from_log(stopped: Stopped, log: CutLog, state: str | None, work: Path, use: Use[T]) -> T:
    try:
        live = LiveState(stopped.settings, log)
        coverage = _restore(stopped, live, state, work)
        return use(TakenGraph(stopped, live, coverage, stopped.has_finished and state is None))
    finally:
        log.close()


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
        log = log_of(stopped.out)
        last = log.last_epoch() or 0
        coverage.extend_to(max(last, stopped.run.get("epoch") or 0), log)
        live.restore(lambda operator, part: ())
        GraphAt(live, sources, Reached()).bring_to(last, log.positions(), say)
        live.partitioner.epoch = last  # it counts blocks, and there are fewer of them than epochs
        return coverage
    else:
        _from_flink(stopped, live, state, work)
    if live.epoch:
        coverage.extend_to(live.epoch, log_of(stopped.out))
    for epoch in live.replay():
        if epoch % _SAY_EPOCHS == 0:
            say(f"replayed to epoch {epoch:,}")
    return coverage


def log_of(out: Path) -> ChangeLogReader:
    """Return the reader of the change log that says the input of the epochs."""
    return ChangeLogReader(out, folders_of_log(out).kind)


def folders_of_log(out: Path) -> LogFolders:
    """Return the change log that says the input of the epochs: of several, that which has most of them."""
    return max(logs_of(out), key=last_recorded)


def _from_store(stopped: Stopped, live: LiveState) -> None:
    from freshet.job.local.runtime import READ_POSITION
    from freshet.job.local.sealed_store import SealedStore

    say(f"restoring from {stopped.out / 'state'}")
    store = SealedStore(stopped.out / layout.STATE)

    def entries_of(operator: str, part: int) -> Entries:
        name = operator if operator == PARTITIONER else str(Place(operator, part))
        return SomeEntries(store.entries(name), lambda key: key != READ_POSITION)

    try:
        live.restore(entries_of)
    finally:
        store.close()


def _from_flink(stopped: Stopped, live: LiveState, state: str | None, work: Path) -> None:
    from freshet.job.flink.savepoint_entries import save_entries
    from freshet.state.checksums.entries import SealedEntries
    from freshet.state.entry_file import read_entries

    found = found_state(stopped, state)
    say(f"restoring from {found}")
    backend = stopped.saved.options.get("state_backend", "rocksdb")
    save_entries(found, backend, stopped.settings.parts, live.operators, work, resolve(stopped.flink))

    def entries_of(operator: str, part: int) -> Iterable[tuple[str, bytes]]:
        place = str(Place(operator, part))
        return SealedEntries(place).opened(read_entries(work / place))

    live.restore(entries_of)


def found_state(stopped: Stopped, state: str | None) -> str:
    """Return the savepoint or checkpoint, in the form for Flink; nothing is removed, unlike by a resume."""
    states = states_of(stopped)
    found = states.latest() if state in (None, "latest") else states.named(state)
    if found is None:
        msg = f"{stopped.out}: no checkpoint is complete; go on with `freshet run --resume latest` and stop that run"
        raise UsageError(msg)
    return found
