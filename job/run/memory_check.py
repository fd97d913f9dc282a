"""Check of `--memory` of a local job before it starts."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.units import format_size

_OF_PROCESS_MIB = 300  # what a local job takes beside its graph: Python, compiled kernels, buffers
_IN_MEMORY = "tmpfs", "ramfs"


def check_memory(budget_bytes: int, out: Path) -> None:
    """Warn where `--memory` is too little for the process, or there is no disk for tables.

    Raises: UsageError where the system has no such mappings of files.
    """
    if not sys.platform.startswith("linux"):
        msg = "--memory: a local job keeps to it on Linux alone; leave it out, or use --runtime flink"
        raise UsageError(msg)
    if budget_bytes < 2 * _OF_PROCESS_MIB << 20:
        say(
            f"--memory {format_size(budget_bytes)}: the process itself takes about {_OF_PROCESS_MIB}MiB; where tables "
            "find no room in the rest, the disk limits the job"
        )
    if (kind := file_system_of(out)) in _IN_MEMORY:
        say(f"--memory: --out {out} is in memory ({kind}), and so would tables be that find no room; put it on a disk")


def file_system_of(path: Path) -> str:
    """Return the kind of the file system that a path lies on, or will lie on; empty where it can't be known."""
    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}
    return next((mounts[one] for one in (path, *path.parents) if one in mounts), "")
