"""Clients of a job's embeddings, and the server that they need."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from freshet.extras import need
from freshet.job.folder import layout, run_file
from freshet.job.folder.returned_kinds import folder_name, returned_of
from freshet.job.machine.ports import free_port
from freshet.job.machine.processes import Process
from freshet.job.python.process import CommandProcess
from freshet.job.serving.protocol.errors import NotReadyError

if TYPE_CHECKING:
    from freshet.job.serving.clients.client import EmbeddingClient

_HOST = "127.0.0.1"
_POLL_S = 0.1


class ServerOfJob:
    """The server of one job: that of `flight_port`, or one that is started when it is wanted."""

    def __init__(self, out: Path, tables: Path | None = None, comes: Callable[[], bool] = lambda: False) -> None:
        """`tables`: the folder of tables, where it is not O/tables; `comes`: whether the job starts a server itself."""
        self._out, self._tables, self._comes = out, tables or out / layout.TABLES, comes
        self._process: CommandProcess | None = None
        self._address = ""
        self._clients: weakref.WeakSet[EmbeddingClient] = weakref.WeakSet()

    def client(self, kind: str | None, timeout_s: float) -> EmbeddingClient:
        """Return a client, once there are embeddings.

        Raises: as `RunHandle.client`.
        """
        from freshet.job.serving.clients.client import EmbeddingClient

        folder_name(returned := returned_of(self._out), kind, self._out)
        deadline = time.monotonic() + timeout_s
        while (address := self._running()) is None and self._comes() and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        address = address or self._started(returned, timeout_s)
        made = EmbeddingClient(address, kind=kind)
        while True:
            try:
                made.get([], timeout=0.0)
                self._clients.add(made)
                return made
            except NotReadyError:
                if self._process is not None and (code := self._process.code) is not None:
                    self._process.fail(code)
                if time.monotonic() >= deadline:
                    made.close()
                    raise
                time.sleep(_POLL_S)

    def close(self) -> None:
        """End the server that was started here, and the clients."""
        for one in [*self._clients]:
            one.close()
        if self._process is not None:
            self._process.end()
            self._process.wait()
            self._process = None

    def _running(self) -> str | None:
        """The address of a server that is there."""
        if self._process is not None and self._process.code is None:
            return self._address
        serving = run_file.glimpse_run(self._out).get("serving") or {}
        there = serving and Process(serving["pid"], None).is_alive()
        return str(serving["flight"]) if there else None

    def _started(self, returned: list[str], timeout_s: float) -> str:
        need("serve", "client()")
        ports = [free_port(host=_HOST), free_port(host=_HOST)]
        self._address = f"{_HOST}:{ports[0]}"
        options = ["--tables", str(self._tables), "--port", str(ports[0]), "--http-port", str(ports[1])]
        options += ["--kind", ",".join(returned)] if len(returned) > 1 else []
        options += ["--wait", f"{max(1, round(timeout_s))}s"]
        self._process = CommandProcess(["serve", *options])
        return self._address
