"""States of a job: the latest, or the one that `--resume` and `--from` name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.flink.checkpoints import NoCheckpointError, find_state, follow_move, states_of_job
from freshet.job.flink.state_files import damage_of, has_checksums
from freshet.job.folder import layout, run_file
from freshet.job.folder.job_file import job_of_state
from freshet.job.uris import is_remote, local_path


@dataclass(frozen=True)
class JobStates:
    """The states of the job in `out`; `checkpoint_dir` is the option's, `flag` that which may name a state."""

    out: Path
    job_id: str
    checkpoint_dir: str | None
    flag: str

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
        if is_remote(self._own or ""):
            if run.get("state") == run_file.STOPPED and savepoint:
                return savepoint
            where = f"{self._own}/{run.get('job_id', 'JOB')}"
            msg = f"{self.flag} latest: can't look into {where}; give its newest checkpoint, {self.flag} {where}/chk-N"
            raise UsageError(msg)
        found = states_of_job(self.folder, savepoint, is_last=run.get("state") == run_file.STOPPED)
        return self._taken(found[0], "latest") if found else None

    def named(self, given: str) -> str:
        """The one that is given, by its folder or by one that it is in; of a folder that jobs share, this job's.

        Raises: UsageError when it isn't there, or is another job's.
        """
        if is_remote(given):
            return given
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
                say(f"{state}: its files have no checksums (an earlier version wrote it, or its process was killed)")
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
