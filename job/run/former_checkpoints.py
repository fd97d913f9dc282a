"""The checkpoints of a job's earlier attempts, which stay until the new one has completed a checkpoint of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from freshet.job.console import say
from freshet.job.flink.checkpoints import prune
from freshet.job.flink.job_spec import JobSpec
from freshet.job.flink.state_files import checksums_file
from freshet.job.folder import run_file
from freshet.job.options.runtime_options import NEWEST
from freshet.job.run.job_states import JobStates
from freshet.job.stores.object_store import ObjectStore, StoreError
from freshet.job.stores.remote_states import RemoteStates
from freshet.job.uris import is_remote, local_path


class FormerCheckpoints:
    """Checkpoints of earlier attempts: `look` removes them while the run goes on, `told` explains a failure."""

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

    def told(self, cause: str) -> str:
        """Describe why the run failed, with its initial state if none of its own checkpoints was complete."""
        state = self._spec.resume
        if state is None or is_remote(state) or self.own_checkpoint() is not None:
            return cause
        older = self._states.older_than(local_path(state))
        way = "begin again in a new folder" if older is None else f"go on from the one before: --resume {older}"
        return f"{cause} (the run began at the state {state}; if that is damaged, {way})"
