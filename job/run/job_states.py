"""States of a job: the latest, or the one that `--resume` and `--from` name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.flink.checkpoints import NoCheckpointError, find_state, follow_move, states_of_job
from freshet.job.flink.state_files import damage_of, has_checksums
from freshet.job.folder import layout, run_file
from freshet.job.folder.job_file import job_of_state
from freshet.job.options.flink_keys import resolve
from freshet.job.stores.object_store import NoBucketError, StoreError
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
