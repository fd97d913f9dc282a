"""`run.json`: what a running or ended job is and where to reach it, for people and for `freshet stop`."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from job.folder.layout import RUN
from job.machine.processes import Process, began_s

STARTING, RUNNING, FINISHED, STOPPED, FAILED = "starting", "running", "finished", "stopped", "failed"
ENDED = frozenset({FINISHED, STOPPED, FAILED})


def read_run(out: Path) -> dict[str, Any]:
    """Return the content of `out/run.json`, empty when there is none."""
    try:
        content: dict[str, Any] = json.loads((out / RUN).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return content


def has_finished(run: Mapping[str, Any]) -> bool:
    """Whether the run, as `run.json` tells of it, has taken in all of its input."""
    return bool(run.get("state") == FINISHED)


def update_run(out: Path, **fields: Any) -> dict[str, Any]:
    """Set fields of `out/run.json`, keep the others, and return all; a reader sees the old file or the new one."""
    content = {**read_run(out), **fields}
    write_json(out / RUN, content)
    return content


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def this_process() -> dict[str, Any]:
    """Fields of `run.json` by which others tell whether this process still lives."""
    return {"host": socket.gethostname(), "pids": {"client": os.getpid()}, "client_began_s": began_s()}


def running_process(out: Path) -> int | None:
    """The process on this machine that works on `out`; None when it has ended, or was killed."""
    run = read_run(out)
    pid = run.get("pids", {}).get("client")
    if pid is None or pid == os.getpid() or run.get("host") != socket.gethostname():
        return None
    return pid if Process(pid, run.get("client_began_s")).is_alive() else None
