"""`freshet embed` in a process of its own, which ends with the test's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from freshet.job.machine.processes import die_with_parent
from tests.support.runs.jobs import FRESHET, ROOT, Input


def start_embed(
    given: Input, out: Path, *options: str, faults: dict[str, Any] | None = None, **environ: str
) -> subprocess.Popen[str]:
    """Begin to embed the snapshot of the input into `out`; what it prints and says can be read.

    `faults`: those of `faulty`.
    """
    program = [FRESHET] if faults is None else [sys.executable, "-m", "tests.support.runs.faulty"]
    command = [*program, "embed", "--model", given.model, "--snapshot", given.snapshot, "--out", out, *options]
    environ |= {} if faults is None else {"FRESHET_FAULTS": json.dumps(faults)}
    return subprocess.Popen(
        list(map(str, command)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environ,
        preexec_fn=die_with_parent,
    )


@contextmanager
def killing_steps() -> Iterator[list[str]]:
    """Kill the process of the first step that is seen below this one, meanwhile; the list gets its name."""
    done, killed = threading.Event(), list[str]()
    killer = threading.Thread(target=_kill_a_step, args=(done, killed))
    killer.start()
    try:
        yield killed
    finally:
        done.set()
        killer.join()


def _kill_a_step(done: threading.Event, killed: list[str]) -> None:
    while not done.is_set() and not killed:
        for process in psutil.Process().children(recursive=True):
            try:
                if "freshet.job.embed.step" in process.cmdline() and time.time() - process.create_time() > 0.3:
                    name = process.name()  # nobody can tell it once the step has been reaped
                    process.kill()
                    killed.append(name)
                    break
            except psutil.Error:
                continue
        time.sleep(0.02)
