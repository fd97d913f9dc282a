"""States of a job: the latest, the one that `--resume` and `--from` name, and those of its earlier attempts."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.flink.checkpoints import NoCheckpointError, find_state, follow_move, prune, states_of_job
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.state_files import checksums_file, damage_of, has_checksums
from freshet.job.folder import layout, run_file
from freshet.job.folder.job_file import job_of_state
from freshet.job.options.flink_keys import resolve
from freshet.job.options.runtime_options import NEWEST
from freshet.job.stores.object_store import NoBucketError, ObjectStore, StoreError
from freshet.job.stores.remote_states import RemoteStates
from freshet.job.uris import is_remote, local_path


@dataclass(frozen=True)
class JobStates:
    """The states of the job in `out`; `checkpoint_dir` is the option's, `flag` that which may name a state.

    `flink` are Flink's own options, by which a store is reached.
    """

    out: Path
    job_id: str
    checkpoint_dir: str | None
    flag: str
    flink: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of the job's checkpoints, or of what lies beside them here."""
        return layout.checkpoint_folder(self._own, self.out)

    def latest(self) -> str | None:
        """The newest one, of which a savepoint may lie elsewhere; None where no checkpoint was complete.

        Raises: UsageError where only Flink can look.
        """
        run = run_file.read_run(self.out)
        savepoint = str(run.get("savepoint") or "")
        has_stopped = run.get("state") in (run_file.STOPPED, run_file.FINISHED)
        if is_remote(self._own or ""):
            return savepoint if has_stopped and savepoint else self._latest_away(run)
        found = states_of_job(self.folder, savepoint, is_last=has_stopped)
        return self._taken(found[0], "latest") if found else None

    def named(self, given: str) -> str:
        """The one that is given, by its folder or by one that it is in; of a folder that jobs share, this job's.

        Raises: UsageError when it isn't there, or is another job's.
        """
        if is_remote(given):
            return self._named_away(given)
        own = local_path(given) / self.job_id
        try:
            found = find_state(str(own) if own.is_dir() else given)
        except NoCheckpointError as error:
            msg = f"{self.flag} {given}: {error}"
            raise UsageError(msg) from None
        return self._taken(found, given)

    @property
    def _own(self) -> str | None:
        return layout.checkpoint_dir_of_job(self.checkpoint_dir, self.job_id)

    def _latest_away(self, run: Mapping[str, Any]) -> str | None:
        """Return the newest state in the job's store."""
        try:
            return self._away(str(self._own)).newest()
        except StoreError as error:
            where = f"{self._own}/{run.get('job_id', 'JOB')}"
            msg = (
                f"{self.flag} latest: can't look into {where} ({error}); give its newest checkpoint, "
                f"{self.flag} {where}/chk-N"
            )
            raise UsageError(msg) from None

    def _named_away(self, given: str) -> str:
        """Return a state in a store: as given, or the newest in the folder that is given; Flink looks where we can't.

        Raises: UsageError where it isn't there, or is another job's.
        """
        place = given.rstrip("/")
        try:
            states = self._away(place)
            found: str | None = place
            if not states.is_state():
                own = states.has_folder(self.job_id)
                found = (self._away(f"{place}/{self.job_id}") if own else states).newest()
        except NoBucketError as error:
            msg = f"{self.flag} {error}"
            raise UsageError(msg) from None
        except StoreError:
            return given
        if found is None:
            msg = f"{self.flag} {given}: no complete checkpoint or savepoint there"
            raise UsageError(msg)
        owner = found.split("/")[-3]  # JOB/FLINK_JOB/chk-N or JOB/savepoints/savepoint-X
        if layout.is_job_id(owner) and owner != self.job_id:
            msg = f"{self.flag} {given}: {found} is a state of job {owner}, the job in {self.out} is {self.job_id}"
            raise UsageError(msg)
        return found

    def _away(self, uri: str) -> RemoteStates:
        return RemoteStates(uri, resolve(self.flink))

    def _taken(self, found: Path, given: str) -> str:
        owner = job_of_state(found)
        if owner not in (None, self.job_id):
            msg = f"{self.flag} {given}: {found} is a state of job {owner}, the job in {self.out} is {self.job_id}"
            raise UsageError(msg)
        self._refuse_damaged(found, given)
        follow_move(found)
        return str(found)

    def _refuse_damaged(self, state: Path, given: str) -> None:
        if (damage := damage_of(state)) is None:
            if not has_checksums(state) and self.flag == "--resume":
                say(f"{state}: its process ended before it took checksums; its _metadata is whole")
            return
        older = self.older_than(state)
        way = f"go on from the one before: {self.flag} {older}"
        if not state.exists():
            msg = f"{self.flag} {given}: the job's last state, {state}, is gone; give where it is now, {self.flag} PATH"
            msg += "" if older is None else f", or {way}"
            raise UsageError(msg)
        if older is None:
            way = "there is no older one: put the file back, or begin again in a new folder"
        msg = f"{self.flag} {given}: the state {state} is damaged: {damage}; {way}"
        raise UsageError(msg)

    def older_than(self, state: Path) -> Path | None:
        """Return the job's newest state before this one that is intact, as far as checksums show."""
        savepoint = str(run_file.read_run(self.out).get("savepoint") or "")
        states = states_of_job(self.folder, savepoint, is_last=False)
        before = states[states.index(state) + 1 :] if state in states else states
        return next((one for one in before if damage_of(one) is None), None)


class FormerCheckpoints:
    """Checkpoints of earlier attempts: `look` removes them during the run, `explained` gives a failure its reason."""

    def __init__(self, spec: JobSpec, resume: str | None, states: JobStates) -> None:
        """`resume`: as the option has it; only `latest` has older checkpoints removed. `states` are the job's."""
        self._spec, self._states, self._removes = spec, states, resume in NEWEST
        self.own_checkpoint: Callable[[], Path | None] = lambda: None
        self.own_away: Callable[[], str | None] = lambda: None  # the folder of those in another store

    def look(self) -> None:
        """Remove them once they are not needed any more."""
        if self._removes and (own := self.own_checkpoint()) is not None:
            prune(self._spec.checkpoints, keep=own)
            self._removes = False
        elif self._removes and (away := self.own_away()) is not None:
            self._removes = False
            self.prune_away(keep=(away,))

    def prune_away(self, keep: Collection[str]) -> None:
        """Remove the checkpoints of the job in another store, if they are there, but those in these folders."""
        if not is_remote(self._spec.checkpoint_dir):
            return
        try:
            RemoteStates(self._spec.checkpoint_uri, self._spec.user_options).prune(keep)
        except StoreError as error:
            say(f"checkpoints that are not needed any more stay where they are: {error}")

    def replace_last(self, savepoint: str | None) -> None:
        """Remove the savepoint with which the job ended the last time, now that it has ended with this one."""
        out = self._spec.out_path
        former = run_file.read_run(out).get("ended_with")
        run_file.update_run(out, ended_with=savepoint)
        if former is None or savepoint is None or former == savepoint:
            return
        if not is_remote(former):
            shutil.rmtree(local_path(former), ignore_errors=True)
            checksums_file(local_path(former)).unlink(missing_ok=True)
            return
        try:
            store = ObjectStore(former, self._spec.user_options)
            store.remove(store.root)
        except StoreError as error:
            say(f"a savepoint that is not needed any more stays where it is: {error}")

    def explained(self, cause: str) -> str:
        """Describe why the run failed, with its initial state if none of its own checkpoints was complete."""
        state = self._spec.resume
        if state is None or is_remote(state) or self.own_checkpoint() is not None:
            return cause
        older = self._states.older_than(local_path(state))
        way = "begin again in a new folder" if older is None else f"go on from the one before: --resume {older}"
        return f"{cause} (the run began at the state {state}; if that is damaged, {way})"
