"""The steps of `freshet swap`: a job with another model beside the one that serves, checked, and put in its place.

Each step does what is left to do where it was killed on the way.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from freshet.job.console import say
from freshet.job.errors import JobFailed, UsageError, one_line
from freshet.job.folder import layout, run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.lifecycle.job_state import FAILED, LOST, STOPPED, JobState, state_of
from freshet.job.options.config_file import load_properties
from freshet.job.serving.promotion import JobOfService, promote, publish_again
from freshet.job.swap.commands import Commands, SwapFailed
from freshet.job.swap.finite import not_finite
from freshet.job.swap.learned import Forgotten, forgotten
from freshet.job.swap.record import SNAPSHOT, Swap, SwapLine, SwapRecord, SwapStep
from freshet.operators.factory import load_plan

_POLL_S = 0.5
_SAY_S = 10.0
_STARTS = 3  # of a new job that is killed again and again
EMBEDDED = "embedded"  # beside it: the same with the state of the new job


class SwapSteps:
    """The acts of the steps."""

    def __init__(self, swap: Swap, line: SwapLine, commands: Commands) -> None:
        self._swap, self._line, self._commands = swap, line, commands
        self._starts = 0

    def all(self) -> list[SwapStep]:
        """Return the steps in their order."""
        acts: list[Callable[[SwapRecord], Mapping[str, Any]]] = [
            self.export, self.embed, self.run, self.wait, self.check, self.promote, self.keep, self.stop
        ]  # fmt: skip
        return [SwapStep(act.__name__, act) for act in acts]

    def export(self, record: SwapRecord) -> Mapping[str, Any]:
        """Write the graph of the job that serves; with `in_turn` that job stops before."""
        old, folder = Path(record.old), self._swap.work(record) / SNAPSHOT
        if (folder / "snapshot.json").exists():
            return {}
        shutil.rmtree(folder, ignore_errors=True)
        live = self._begun(old)
        if live and self._line.in_turn:
            self._commands.do("stop", str(old))
            live = False
        from_ = ("--from", "latest") if live else ()
        self._commands.do("export", "--out", str(folder), *from_, *self._config(record), *self._layers, str(old))
        return {}

    def embed(self, record: SwapRecord) -> Mapping[str, Any]:
        """Embed that graph by the new model, out of core."""
        work = self._swap.work(record)
        given = ["--model", str(self._line.model), "--snapshot", str(work / SNAPSHOT), "--out", str(work / EMBEDDED)]
        saved = SavedJob.read(Path(record.old))
        lost = [] if saved is None else self._forgotten(Path(saved.settings.model), work / SNAPSHOT)
        self._commands.do("embed", *given, *self._config(record), *self._layers)
        return {"forgotten": {one.kind: one.vertices for one in lost}}

    def _forgotten(self, old: Path, snapshot: Path) -> list[Forgotten]:
        lost = forgotten(load_plan(str(old)), load_plan(str(self._line.model)), snapshot)
        if lost:
            words = "; ".join(map(str, lost))
            say(f"embed: the new model has no learned rows of ids that the one before has them of: {words}")
        return lost

    def run(self, record: SwapRecord) -> Mapping[str, Any]:
        """Begin the new job, which goes on without this process."""
        out, deadline = Path(record.out), time.monotonic() + self._line.wait_s
        if record.by_hand:
            say(f"run: waiting for the job of {out}, which you start")
        process: subprocess.Popen[bytes] | None = None
        while not _has_begun(out):
            code = None if process is None else process.poll()
            if code == 0:  # it was submitted
                break
            if code is not None and code > 0 and not _runs(out):  # below 0: it was killed
                raise SwapFailed(self._why(record, f"the new job could not begin (exit code {code})"))
            if (process is None or code is not None) and not _runs(out) and not record.by_hand:
                process = self._start(record)
            if record.by_hand and time.monotonic() > deadline:
                msg = f"{out}: no job has begun there within {self._line.wait_s:g} s; repeat the line once it has"
                raise UsageError(msg)
            time.sleep(_POLL_S)
        return {}

    def wait(self, record: SwapRecord) -> Mapping[str, Any]:
        """Return once the new job has read as far as the one that serves."""
        old, out = Path(record.old), Path(record.out)
        deadline, said_s = time.monotonic() + self._line.wait_s, float("-inf")
        while True:
            is_behind, what = _lag(old, out)
            if not what:
                return {}
            self._see_alive(record, state_of(out), is_behind, what)
            if time.monotonic() > deadline:
                msg = f"{out}: it is behind after {self._line.wait_s:g} s: {what}"
                raise SwapFailed(msg)
            if time.monotonic() - said_s > _SAY_S:
                said_s = time.monotonic()
                say(f"wait: {what}")
            time.sleep(_POLL_S)

    def _see_alive(self, record: SwapRecord, state: JobState, is_behind: bool, what: str) -> None:
        """Go on with a new job that was killed.

        Raises: SwapFailed where it has failed, or has come to its end without what the other has read.
        """
        was_killed = state.state == LOST and not state.is_guess and not record.by_hand
        if was_killed and self._starts < _STARTS:
            say(f"wait: the new job was killed ({state.detail}); it goes on from its newest checkpoint")
            self._start(record)
            time.sleep(1.0)  # until it says that it works there
        elif was_killed or state.state == FAILED:
            raise SwapFailed(self._why(record, f"the new job has {state.state}: {state.detail}"))
        elif state.is_over and is_behind and state.state != LOST:
            raise SwapFailed(self._why(record, f"the new job has ended and is behind: {what}"))

    def check(self, record: SwapRecord) -> Mapping[str, Any]:
        """See that the new rows are finite, and what the gate says.

        Raises: SwapFailed
        """
        for kind, job in JobOfService.read(Path(record.out)).served.items():
            if bad := not_finite(job):
                of_kind = f" of {kind}" if kind else ""
                msg = f"{record.out}: {bad:,} embeddings{of_kind} are not finite"
                raise SwapFailed(msg)
        if self._line.gate:
            named = {"OLD": record.old, "NEW": record.out, "SERVICE": str(self._swap.service.folder)}
            named["MODEL"] = str(self._line.model)
            env = {**os.environ, **{f"FRESHET_{name}": value for name, value in named.items()}}
            code = subprocess.run(
                self._line.gate, shell=True, env=env, stdin=subprocess.DEVNULL, check=False
            ).returncode
            if code:
                msg = f"--gate {self._line.gate}: it ended with {code}"
                raise SwapFailed(msg)
        return {}

    def promote(self, record: SwapRecord) -> Mapping[str, Any]:
        """Have the service go on with the new job, and readers of its topic, too.

        Raises: JobFailed where the brokers do not take it, after the promotion.
        """
        service, out = self._swap.service, Path(record.out)
        current = service.current()
        properties = load_properties(self._swap.config(record))
        if current is None or current.job != str(out):
            made = promote(service, out, wait_s=self._line.wait_s, force=False, why="swap", properties=properties)
        else:  # this command was killed since, or the brokers did not answer
            made = publish_again(service, current, properties)
        if not made.readable:
            say(f"promote: not all servers have changed over within {self._line.wait_s:g} s")
        if made.published is False:
            msg = f"{out}: it serves, and its topic is not the current one for readers; repeat the line"
            raise JobFailed(msg)
        return {"generation": made.generation.generation}

    def keep(self, record: SwapRecord) -> Mapping[str, Any]:
        """Let the job before go on for a while, so that a rollback is at once."""
        since_ms = self._swap.service.generations()[record.generation or 0].since_ms
        until_s = since_ms / 1e3 + self._line.keep_s
        if time.time() < until_s and not state_of(Path(record.old)).is_over:
            shown = time.strftime("%F %T", time.localtime(until_s))
            say(f"keep: {record.old} goes on until {shown}; until then `freshet rollback` is at once")
        while time.time() < until_s and not self._is_back(record):
            time.sleep(min(1.0, max(until_s - time.time(), 0.0)))
        return {}

    def stop(self, record: SwapRecord) -> Mapping[str, Any]:
        """Stop the job before, unless it serves again."""
        if self._is_back(record):
            say(f"{record.old} serves again: it goes on, and so does {record.out}")
        elif not state_of(Path(record.old)).is_over:
            self._commands.do("stop", record.old)
        return {}

    def give_up(self, record: SwapRecord) -> None:
        """Stop the new job, which serves nobody, and say what stands still."""
        out, old = Path(record.out), Path(record.old)
        if _runs(out):
            with suppress(SwapFailed):  # it may have ended meanwhile
                self._commands.do("stop", str(out))
        if self._line.in_turn and state_of(old).state == STOPPED:
            say(f"{old} has been stopped by --in-turn; go on with it by `freshet run --resume latest --out {old}`")

    def _begun(self, old: Path) -> bool:
        """Return whether the job that serves is live, once it is clear."""
        deadline = time.monotonic() + self._line.wait_s
        while not (state := state_of(old)).is_over:
            if state.runs_on_cluster or run_file.read_run(old).get("state") != run_file.STARTING:
                return True
            if time.monotonic() > deadline:
                msg = f"{old}: it is still starting after {self._line.wait_s:g} s; try again once it runs"
                raise UsageError(msg)
            time.sleep(_POLL_S)
        return False

    def _start(self, record: SwapRecord) -> subprocess.Popen[bytes]:
        """Start the new job, or go on with it."""
        self._starts += 1
        given = ["--model", str(self._line.model), "--snapshot", str(self._swap.work(record) / EMBEDDED)]
        given += [word for one in record.events for word in ("--events", one)]
        given += ["--cluster", record.cluster, "--detach"] if record.cluster else []
        given += ["--out", record.out, "--resume", "auto", *self._config(record), *self._layers]
        return self._commands.begin(self._log(record), "run", *given)

    def _is_back(self, record: SwapRecord) -> bool:
        current = self._swap.service.current()
        return current is not None and current.job_id == record.old_job_id

    def _config(self, record: SwapRecord) -> tuple[str, str]:
        return "--config", str(self._swap.config(record))

    @property
    def _layers(self) -> list[str]:
        return [word for one in self._line.layers for word in ("--layers", one)]

    def _log(self, record: SwapRecord) -> Path:
        return self._swap.work(record) / "run.log"

    def _why(self, record: SwapRecord, what: str) -> str:
        return f"{record.out}: {what}; {self._commands.shown(self._log(record))}"


def _lag(old: Path, out: Path) -> tuple[bool, str]:
    """Return whether a job is known to be behind another, and in words why it can't take its place yet."""
    if run_file.glimpse_run(out).get("state") == run_file.STARTING:
        return False, f"{out}: it is still starting"
    try:
        lacks = JobOfService.read(out).lacks(JobOfService.read(old))
    except UsageError as error:
        return False, one_line(error)
    return bool(lacks), "; ".join(map(str, lacks[:3]))


def _has_begun(out: Path) -> bool:
    return (out / layout.IMAGE_DONE).exists() and bool(run_file.read_run(out))


def _runs(out: Path) -> bool:
    """Return whether somebody works on the job of this folder, which may hold none yet."""
    try:
        return not state_of(out).is_over
    except UsageError:
        return False
