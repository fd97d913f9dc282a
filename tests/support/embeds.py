"""`freshet embed` in a process of its own, which ends with the test's."""

from __future__ import annotations

import subprocess
from pathlib import Path

from job.machine.processes import die_with_parent
from tests.support.jobs import FRESHET, Input


def start_embed(given: Input, out: Path, *options: str) -> subprocess.Popen[str]:
    """Begin to embed the snapshot of the input into `out`; what it prints and says can be read."""
    command = [FRESHET, "embed", "--model", given.model, "--snapshot", given.snapshot, "--out", out, *options]
    return subprocess.Popen(
        list(map(str, command)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )
