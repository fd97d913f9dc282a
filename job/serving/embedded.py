"""The server that `freshet run --flight-port` starts beside its job: a process of its own, which ends with the run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from freshet.job.console import say
from freshet.job.errors import UsageError
from freshet.job.folder import layout, run_file
from freshet.job.machine.ports import free_port, is_free
from freshet.job.machine.processes import die_with_parent
from freshet.job.machine.python_path import python_environ

_END_S = 10.0
_HTTP_PORT = 47480
_HOST = "127.0.0.1"
_LOG = "serve.log"
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@contextmanager
def server_of_run(
    flight_port: int | None, out: Path, options: Sequence[str] = (), config: Mapping[str, Any] = _NOTHING
) -> Iterator[None]:
    """Have the job's embeddings served while it runs; None: not asked for. `run.json` says where.

    `options`: further ones of the server; `config`: what its --config file has.

    Raises: UsageError when the port is taken.
    """
    if flight_port is None:
        yield
        return
    if flight_port and not is_free(flight_port, _HOST):
        msg = f"--flight-port {flight_port}: the port is taken; give another one, or 0 for any that is free"
        raise UsageError(msg)
    # Of two runs that begin at once, both would find the same port from _HTTP_PORT on free.
    flight, http = flight_port or free_port(host=_HOST), free_port(_HTTP_PORT if flight_port else 0, _HOST)
    process = start_server(out, "--port", str(flight), "--http-port", str(http), *options, config=config)
    addresses = {"flight": f"{_HOST}:{flight}", "http": f"{_HOST}:{http}", "pid": process.pid}
    run_file.update_run(out, serving=addresses)
    say(f"embeddings: Flight at {addresses['flight']}, HTTP at http://{addresses['http']}")
    over = threading.Event()
    threading.Thread(target=_say_its_end, args=(process, out, over), name="freshet-served", daemon=True).start()
    try:
        yield
    finally:
        over.set()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _say_its_end(process: subprocess.Popen[bytes], out: Path, over: threading.Event) -> None:
    """Say that the server has ended before the run; the job goes on without it."""
    code = process.wait()
    if not over.is_set():
        log = out / layout.LOGS / _LOG
        say(f"the server of --flight-port has ended (exit code {code}), and {log} says why; the job goes on. Start")
        say(f"another one by: freshet serve --tables {out / layout.TABLES}")


def start_server(out: Path, *options: str, config: Mapping[str, Any] = _NOTHING) -> subprocess.Popen[bytes]:
    """Start `freshet serve` for a job's tables; it ends when the calling thread ends.

    Its --config file is in memory, and is its own alone: there may be secrets in it.
    """
    command = [sys.executable, "-P", "-m", "freshet.job.cli", "serve", "--tables", str(out / layout.TABLES), *options]
    (out / layout.LOGS).mkdir(parents=True, exist_ok=True)
    with (out / layout.LOGS / _LOG).open("ab") as log, os.fdopen(os.memfd_create("freshet-config"), "wb") as file:
        file.write(yaml.safe_dump(dict(config)).encode())
        file.flush()
        return subprocess.Popen(
            [*command, *(["--config", f"/proc/self/fd/{file.fileno()}"] if config else [])],
            pass_fds=[file.fileno()] if config else [],
            stdout=log,
            stderr=log,
            env=python_environ(),
            start_new_session=True,  # Ctrl-C is for the run, which ends it then
            preexec_fn=partial(die_with_parent, signal.SIGTERM),
        )
