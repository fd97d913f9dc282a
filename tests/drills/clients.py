"""Clients of a job on a cluster are killed, and one command line is given again and again: the job stays one and exact.

With free slots, in which a second job could begin, and without; under the name of another host; after the JobManager
was killed, so that the job is lost; and where slots are missing when the job is to go on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from freshet.files.listing import paths_in
from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.errors import EXIT_FAILED, EXIT_SIGTERM, EXIT_USAGE
from freshet.job.folder.run_file import read_run, update_run
from freshet.job.lifecycle.job_state import ENDED, LOST, RUNNING, STOPPED, state_of
from tests.support.runs.jobs import DEADLINE_S, Ended, Job, assert_as_uninterrupted, make_input

SHAPE = ("--parts", 4, "--parallelism", 2, "--epoch-events", 80, "--epoch-ms", 0, "--hybrid-threshold", 20)
ANSWER_S = 60.0
KILLS = "same host", "other host", "free slots", "jobmanager", "stopped"

Say = Callable[[str], None]


@dataclass
class ClientKills:
    """One run in a folder of its own, which leaves no process behind; `kills` are the ways, in this order."""

    folder: Path
    events: int
    kills: tuple[str, ...]
    say: Say

    def run(self) -> None:
        """Have it all happen.

        Raises: AssertionError where anything is not as it should be.
        """
        self.faults = {"slow": {"parser": 300}, "chunk": 50, "lull": 240}
        self.job = Job(make_input(self.folder / "in", self.events), self.folder / "out")
        try:
            environ = self.job.environ_of_cluster(self.faults)
            with LocalCluster(self.folder / "cluster", 2, environ) as self.cluster:
                self._line()
                self._until_attached_or_begun()
                for number, how in enumerate(self.kills, 1):
                    self.say(f"kill {number} of {len(self.kills)}: {how}, at epoch {self._epoch()}")
                    self._kill(how)
                self._stop_and_wait_for_slots()
                self._end_unseen()
            assert_as_uninterrupted(self.job, "--parts", 4, "--hybrid-threshold", 20)
        finally:
            self.job.end()

    def _line(self, *more: object) -> None:
        """Give the command line, always the same."""
        self.job.start("--resume", "auto", "--cluster", self.cluster.rest, *SHAPE, *more, faults=self.faults)

    def _kill(self, how: str) -> None:
        if how == "jobmanager":
            self._lose_the_job()
            return
        if how == "stopped":
            self._stop_without_client()
            return
        before = read_run(self.job.out)["job_id"]
        if how == "free slots":
            extra = [self.cluster.start_task_manager() for _ in range(2)]
            self.cluster.await_ready()
        self.job.kill()
        if how == "other host":
            update_run(self.job.out, host="elsewhere")
        self._expect(RUNNING, "RUNNING")
        refused = self.job.exported(self.folder / "S")
        assert (refused.code, "the cluster" in refused.last_line) == (EXIT_USAGE, True), refused.errors
        self._line()
        self._until_attached_or_begun()
        assert read_run(self.job.out)["job_id"] == before, "a second job was started"
        if how == "free slots":
            for process in extra:
                self.cluster.kill(process)
            self.cluster.await_ready()

    def _lose_the_job(self) -> None:
        """Kill client and JobManager: no cluster knows the job, which goes on from its newest checkpoint."""
        self._await(lambda: any(paths_in(self.job.out / "checkpoints", "*/chk-*/_metadata")), "a checkpoint")
        assert self.cluster.job_manager is not None
        before = read_run(self.job.out)["job_id"]
        self.cluster.kill(self.cluster.job_manager)
        self.job.kill()
        assert state_of(self.job.out).is_guess, "nobody can say while no JobManager answers"
        stopped = self.job.stop()
        assert (stopped.code, "does not answer" in stopped.last_line) == (EXIT_FAILED, True), stopped.errors
        self._line()
        refused = self._ended()
        assert (refused.code, "does not answer" in refused.last_line) == (EXIT_USAGE, True), refused.errors
        self.cluster.start_job_manager()
        self._expect(LOST, None)
        self._line()
        self._until_attached_or_begun()
        assert read_run(self.job.out)["job_id"] != before

    def _stop_without_client(self) -> None:
        self.job.kill()
        update_run(self.job.out, host="elsewhere")
        stopped = self.job.stop()
        assert stopped.code == 0, stopped.errors
        self._expect(STOPPED, "FINISHED")
        again = self.job.stop()
        assert (again.code, "no running job" in again.last_line) == (EXIT_USAGE, True), again.errors
        self._line()
        self._until_attached_or_begun()

    def _stop_and_wait_for_slots(self) -> None:
        """Stop by a signal; leave the job too few slots, and have one more come."""
        os.killpg(self.job.processes[-1].pid, signal.SIGTERM)
        ended = self._ended()
        assert ended.code == EXIT_SIGTERM, ended.errors
        self._expect(STOPPED, "FINISHED")
        self.cluster.kill(self.cluster.task_managers[0])
        self.cluster.await_ready()
        self._line("--detach")
        self.job.until(lambda: "cluster has 1 free slot, 2 wanted" in self.job.log())
        assert state_of(self.job.out, ANSWER_S).state == RUNNING, "it is starting"
        self.cluster.start_task_manager()
        detached = self._ended()
        assert (detached.code, detached.result["job_id"]) == (0, read_run(self.job.out)["job_id"]), detached.errors
        self._expect(RUNNING, None)

    def _end_unseen(self) -> None:
        """Have the job end without a client; the line then says so."""
        self.job.hurry()
        self._await(lambda: state_of(self.job.out, ANSWER_S).flink == "FINISHED", "the end")
        self._expect(ENDED, "FINISHED")
        self._line()
        ended = self._ended()
        assert (ended.code, ended.result["events"]) == (0, self.events), ended.errors
        assert read_run(self.job.out)["state"] == "finished"

    def _until_attached_or_begun(self) -> None:
        process, before = self.job.processes[-1], self._epoch()
        self.job.until(lambda: read_run(self.job.out).get("pids", {}).get("client") == process.pid)
        self.job.until(lambda: "Flink UI at" in self.job.log() and self._epoch() > before + 3)
        self._expect(RUNNING, "RUNNING")

    def _expect(self, state: str, flink: str | None) -> None:
        """Expect a state by Flink and the folder, and one running job at most."""
        found = state_of(self.job.out, ANSWER_S)
        assert found.state == state, found
        assert flink in (None, found.flink), found
        running = [one["id"] for one in self.cluster.get("/jobs")["jobs"] if one["status"] == "RUNNING"]
        assert len(running) <= 1, running

    def _ended(self) -> Ended:
        return self.job.wait()

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, f"{what}: waited in vain\n{self.job.log()}"
            time.sleep(0.1)

    def _epoch(self) -> int:
        from freshet.job.lifecycle.summary import progress

        return int(progress(self.job.out)["epoch"])
