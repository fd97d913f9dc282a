"""The steps of `freshet swap`: a job with another model beside the one that serves, checked, and put in its place.

Each step is a command of `freshet` that one could give oneself, in a process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import yaml

from freshet.files.owner_only import close_to_others
from freshet.job.console import say
from freshet.job.errors import JobFailed, UsageError, one_line
from freshet.job.folder import layout, run_file
from freshet.job.folder.job_file import SavedJob
from freshet.job.lifecycle.job_state import FAILED, LOST, state_of
from freshet.job.run.successor import options_of_successor
from freshet.job.serving.promotion import JobOfService, promote
from freshet.job.serving.tables.change_log_rows import rows_between
from freshet.job.swap.record import Swap, SwapRecord, SwapStep

_POLL_S = 0.2
_SAY_S = 10.0
_LINES = 20  # of a log that are shown
_PROGRAM = sys.executable, "-m", "freshet.job.cli"
CONFIG = "run.yaml"


class SwapFailed(JobFailed):
    """The new job can't take the place; the one before serves on."""


class SwapOptions(NamedTuple):
    """The options of a swap. `run`: options of the new job, by their names in the --config file."""

    model: Path
    run: Mapping[str, Any]
    events: tuple[str, ...]
    in_turn: bool = False
    gate: str = ""
    wait_s: float = 3600.0
    keep_s: float = 3600.0


class SwapSteps:
    """The acts of the steps; one that was killed on the way does what is left."""

    def __init__(self, swap: Swap, options: SwapOptions, program: Sequence[str] = _PROGRAM) -> None:
        self._swap, self._options, self._program = swap, options, program

    def all(self) -> list[SwapStep]:
        """Return the steps in their order."""
        acts: list[Callable[[SwapRecord], Mapping[str, Any]]] = [
            self.export, self.embed, self.run, self.wait, self.check, self.promote, self.keep, self.stop
        ]  # fmt: skip
        return [SwapStep(act.__name__, act) for act in acts]

    def export(self, record: SwapRecord) -> Mapping[str, Any]:
        """Write the graph of the job that serves; with `in_turn` that job stops before."""
        old, folder = Path(record.old), self._swap.work(record) / "snapshot"
        if not (folder / "snapshot.json").exists():
            close_to_others(self._swap.service.folder)
            folder.parent.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            runs = not state_of(old).is_over
            if runs and self._options.in_turn:
                self._command("stop", str(old))
                runs = False
            self._command("export", "--out", str(folder), *(("--from", "latest") if runs else ()), str(old))
        return {}

    def embed(self, record: SwapRecord) -> Mapping[str, Any]:
        """Embed that graph by the new model, out of core."""
        work = self._swap.work(record)
        saved = SavedJob.read(Path(record.old))
        if saved is None:
            msg = f"{record.old}: its job is gone; put the folder back"
            raise UsageError(msg)
        config = {**options_of_successor(saved), **self._options.run}
        (work / CONFIG).touch(mode=0o600)
        (work / CONFIG).write_text(yaml.safe_dump(config))
        command = ["embed", "--model", str(self._options.model), "--snapshot", str(work / "snapshot")]
        self._command(*command, "--out", str(work / "embedded"), "--config", str(work / CONFIG))
        return {}

    def run(self, record: SwapRecord) -> Mapping[str, Any]:
        """Begin the new job, which goes on without this process."""
        out, work = Path(record.out), self._swap.work(record)
        if _runs(out):  # this command was killed meanwhile
            return self._await_begin(record, None)
        model, config = str(self._options.model), str(work / CONFIG)
        given = ["--model", model, "--snapshot", str(work / "embedded"), "--config", config]
        given += [word for one in self._options.events for word in ("--events", one)]
        cluster = run_file.read_run(Path(record.old)).get("cluster")
        given += ["--cluster", str(cluster), "--detach"] if cluster else []
        command = [*self._program, "run", *given, "--out", str(out), "--resume", "auto"]
        with (work / "run.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        return self._await_begin(record, process)

    def _await_begin(self, record: SwapRecord, process: subprocess.Popen[bytes] | None) -> Mapping[str, Any]:
        """Return once the new job has its state, or has come to its end; `process`: that was started for it."""
        out = Path(record.out)
        while not (out / layout.IMAGE_DONE).exists() or not run_file.read_run(out):
            code = None if process is None else process.poll()
            if code == 0:
                break
            if code is not None and not _runs(out):  # one that this command had started before it was killed
                msg = self._why(record, f"the new job could not begin (exit code {code})")
                raise SwapFailed(msg)
            if process is None and not _runs(out):
                return self.run(record)
            time.sleep(_POLL_S)
        return {}

    def wait(self, record: SwapRecord) -> Mapping[str, Any]:
        """Return once the new job has read as far as the one that serves."""
        old, out = Path(record.old), Path(record.out)
        deadline, said_s = time.monotonic() + self._options.wait_s, float("-inf")
        while True:
            lacks = []
            try:
                found = JobOfService.read(out)
            except UsageError as error:
                what = one_line(error)
            else:
                lacks = found.lacks(JobOfService.read(old))
                if not lacks:
                    return {}
                what = "; ".join(map(str, lacks[:3]))
            state = state_of(out)
            if state.state in (FAILED, LOST):
                raise SwapFailed(self._why(record, f"the new job has {state.state}: {state.detail}"))
            if state.is_over and lacks:
                raise SwapFailed(self._why(record, f"the new job has ended and is behind: {what}"))
            if time.monotonic() > deadline:
                msg = f"{out}: it is behind after {self._options.wait_s:g} s: {what}"
                raise SwapFailed(msg)
            if time.monotonic() - said_s > _SAY_S:
                said_s = time.monotonic()
                say(f"wait: {what}")
            time.sleep(_POLL_S)

    def check(self, record: SwapRecord) -> Mapping[str, Any]:
        """See that the new rows are finite, and what the gate says.

        Raises: SwapFailed
        """
        for kind, job in JobOfService.read(Path(record.out)).served.items():
            rows = rows_between(job.log, -1, job.complete_epoch(), job.strings, job.width)
            bad = int((~np.isfinite(rows.rows).all(axis=1)).sum())
            if bad:
                of_kind = f" of {kind}" if kind else ""
                msg = f"{record.out}: {bad:,} of {len(rows.rows):,} embeddings{of_kind} are not finite"
                raise SwapFailed(msg)
        if self._options.gate:
            named = {"OLD": record.old, "NEW": record.out, "SERVICE": str(self._swap.service.folder)}
            env = {**os.environ, **{f"FRESHET_{name}": value for name, value in named.items()}}
            code = subprocess.run(
                self._options.gate, shell=True, env=env, stdin=subprocess.DEVNULL, check=False
            ).returncode
            if code:
                msg = f"--gate {self._options.gate}: it ended with {code}"
                raise SwapFailed(msg)
        return {}

    def promote(self, record: SwapRecord) -> Mapping[str, Any]:
        """Have the service go on with the new job."""
        service, out = self._swap.service, Path(record.out)
        current = service.current()
        if current is None or current.job != str(out):
            current = promote(service, out, wait_s=self._options.wait_s, force=False, why="swap").generation
        return {"generation": current.generation}

    def keep(self, record: SwapRecord) -> Mapping[str, Any]:
        """Let the job before go on for a while, so that a rollback is at once."""
        since_ms = self._swap.service.generations()[record.generation or 0].since_ms
        until_s = since_ms / 1e3 + self._options.keep_s
        while time.time() < until_s and not self._is_back(record):
            time.sleep(min(1.0, max(until_s - time.time(), 0.0)))
        return {}

    def stop(self, record: SwapRecord) -> Mapping[str, Any]:
        """Stop the job before, unless it serves again."""
        if self._is_back(record):
            say(f"{record.old} serves again: it goes on, and so does {record.out}")
        elif not state_of(Path(record.old)).is_over:
            self._command("stop", record.old)
        return {}

    def give_up(self, record: SwapRecord) -> None:
        """Stop the new job, which serves nobody."""
        out = Path(record.out)
        if _runs(out):
            with suppress(SwapFailed):  # it may have ended meanwhile
                self._command("stop", str(out))

    def _is_back(self, record: SwapRecord) -> bool:
        current = self._swap.service.current()
        return current is not None and current.job_id == record.old_job_id

    def _why(self, record: SwapRecord, what: str) -> str:
        log = self._swap.work(record) / "run.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        for line in lines[-_LINES:]:
            print(line, file=sys.stderr)
        return f"{record.out}: {what}; {lines[-1] if lines else 'it has said nothing'}"

    def _command(self, *arguments: str) -> dict[str, Any]:
        """Run a command of freshet; return its last line, which is JSON.

        Raises: SwapFailed where it fails.
        """
        done = subprocess.run(
            [*self._program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False
        )
        if done.returncode:
            msg = f"freshet {' '.join(arguments)}: it ended with {done.returncode}; see above"
            raise SwapFailed(msg)
        lines = done.stdout.splitlines()
        return dict(orjson.loads(lines[-1])) if lines else {}


def _runs(out: Path) -> bool:
    """Return whether somebody works on the job of this folder, which may hold none yet."""
    try:
        return not state_of(out).is_over
    except UsageError:
        return False
