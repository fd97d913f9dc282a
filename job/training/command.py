"""Rounds of training as `freshet train` runs them: one, or one after the other."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import orjson
import torch

from freshet.job.console import ProgressDisplay, say
from freshet.job.folder.lock import taken
from freshet.job.lifecycle.job_state import state_of
from freshet.job.options.training import Training
from freshet.job.training.outcome import Report
from freshet.job.training.rounds import GraphSource, train

NICENESS = 10  # the job and its readers come first


def run_once(given: Training) -> Report:
    """Run one round, and print its report."""
    _give_way()
    with closing(GraphSource(given)) as source:
        return _round(given, source, given.out, "")


def repeat(given: Training, every_s: float) -> None:
    """Run a round every so often, each into a folder of its own below `given.out`, until the job has ended.

    Numbers of rounds go on where an earlier command has left off. `given.then` runs after each that is taken.
    """
    _give_way()
    last, out = -1, given.out
    with taken(out, "freshet train"), closing(GraphSource(given)) as source:
        while True:
            began = time.monotonic()
            is_over = state_of(source.job).is_over  # before the graph is read, which then is the last one
            folder = out / f"{_next_number(out):06}"
            found = _round(given, source, folder, folder.name)
            if found.taken and given.then:
                _run_command(given.then, folder)
            if is_over and found.epoch == last:
                say(f"{source.job}: the job has ended, and its graph was trained on; no further round")
                return
            last = found.epoch
            time.sleep(max(0.0, every_s - (time.monotonic() - began)))


def _round(given: Training, source: GraphSource, out: Path, name: str) -> Report:
    with taken(out, "freshet train"), ProgressDisplay("freshet train") as progress:
        found = train(given, source, out, progress.update)
    difference = f"{found.metric} {found.old:.4f} -> {found.new:.4f}"
    say(f"{difference}: taken" if found.taken else f"{difference}: not taken, the margin is {found.margin:g}")
    print(orjson.dumps({**({"round": name} if name else {}), **found._asdict()}).decode(), flush=True)
    return found


def _next_number(out: Path) -> int:
    return 1 + max((int(one.name) for one in out.iterdir() if one.name.isdecimal()), default=0)


def _run_command(then: str, model: Path) -> None:
    env = {**os.environ, "FRESHET_MODEL": str(model.absolute())}
    if code := subprocess.run(then, shell=True, env=env, stdin=subprocess.DEVNULL, check=False).returncode:
        say(f"--then {then}: it ended with {code}; the next round comes all the same", "warning")


def _give_way() -> None:
    """Leave half of the processors to the job, and go behind it on the others."""
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))
    with suppress(OSError):  # where a process may not
        os.nice(NICENESS)
