"""`freshet serve`: follows a job, keeps its table, and answers over Arrow Flight and HTTP, until it is told to end."""

from __future__ import annotations

import gc
import hashlib
import ipaddress
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gnn.user_cache import user_cache
from job.console import say
from job.errors import EXIT_DONE, UsageError
from job.folder import layout
from job.machine.ports import free_port
from job.machine.processes import began_s
from job.machine.signals import stop_signals
from job.serving import place
from job.serving.flight_server import EmbeddingFlights
from job.serving.health import STALE_AFTER_S, Health
from job.serving.http_front import Front
from job.serving.lookup import CurrentTable, Lookup
from job.serving.served_job import ServedJob, await_job
from state.served.layout import HISTORY_BYTES

# What follows the job brings numba in, and HTTP a large framework: both are loaded when Flight answers already.
if TYPE_CHECKING:
    from job.serving.follower import Follower

FLIGHT_PORT, HTTP_PORT = 47470, 47480
_END_S, _TELL_S = 1.0, 0.5
_KEEP_ALIVE_S = 75  # a connection over which nothing comes
_SWITCH_INTERVAL_S = 5e-4  # threads that answer wait this long for the one that follows


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """What a server is told; ports that were not asked for (None) give way to the next free one, 0 is any."""

    tables: Path | None
    host: str = "127.0.0.1"
    port: int | None = None
    http_port: int | None = None
    token: str | None = None
    history_bytes: int = HISTORY_BYTES
    stale_after_s: float = STALE_AFTER_S
    wait_s: float = 60.0
    compact: Callable[[], object] | None = None
    compact_every_s: float = 0.0
    sources: tuple[str, ...] = ()  # HOST:PORT of servers to feed from
    source_token: str | None = None


def serve(options: ServeOptions) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code.

    Raises: UsageError when there is no job, another server, or a port that is taken.
    """
    if not is_loopback(options.host) and not options.token:
        say(f"--host {options.host}: whoever reaches this machine reads all embeddings; give --token to prevent it")
    with stop_signals() as caught:

        def until() -> bool:
            return bool(caught)

        tables, job, make = _feed_of(options, until)
        with place.only_server(tables):
            sys.setswitchinterval(_SWITCH_INTERVAL_S)
            current = CurrentTable(tables)
            lookup = Lookup(current, job.sources, (lambda: job.plan) if job.model else None)
            left = place.left_behind(job, tables)
            if left is not None:
                current.begin_with(left)
            health = Health(lookup, options.stale_after_s)
            servers = _Servers(options, lookup, health, job.job_id)
            follower: Follower | None = None
            try:
                servers.start()
                gc.freeze()
                gc.enable()
                if left is not None:
                    servers.tell(tables)
                current.go_on()
                follower = make()
                health.trouble = lambda: follower.trouble
                _start(follower, until)
                if left is None:
                    servers.tell(tables)
                _compact_regularly(options, until)
                follower.run(until)
            finally:
                if follower is not None:
                    follower.close(forget=True)
                all_ended = servers.stop()
    if not all_ended:  # gRPC would wait for them as the interpreter ends
        sys.stderr.flush()
        os._exit(EXIT_DONE)
    return EXIT_DONE


def _feed_of(options: ServeOptions, until: Callable[[], bool]) -> tuple[Path, ServedJob, Callable[[], Follower]]:
    """Where the table lies, what it is of, and what will keep it."""
    if not options.sources:
        assert options.tables is not None
        tables = options.tables.absolute()
        own = await_job(tables, options.wait_s)

        def follower() -> Follower:
            from job.serving.follower import Follower

            return Follower(own, tables, options.history_bytes)

        return tables, own, follower
    from job.serving.feeds.fed_job import FedJob, Sources

    tables = options.tables.absolute() if options.tables else _folder_for(options.sources)
    sources = Sources(list(options.sources), options.source_token)
    fed: FedJob = sources.job(tables, until, options.wait_s)

    def fed_follower() -> Follower:
        from job.serving.feeds.fed_follower import FedFollower

        return FedFollower(fed, tables, sources, until, options.history_bytes)

    return tables, fed, fed_follower


def _folder_for(sources: tuple[str, ...]) -> Path:
    name = hashlib.sha256(",".join(sorted(sources)).encode()).hexdigest()[:16]
    return user_cache() / "served" / name / layout.TABLES


def _start(follower: Follower, until: Callable[[], bool]) -> None:
    """Have the table be readable."""
    began = time.perf_counter()
    follower.start(until)
    if until():
        return
    took = time.perf_counter() - began
    how = "taken over as it stood" if follower.taken_over else f"loaded from {follower.origin}"
    say(f"table of {follower.table.path} {how} in {took:.2f} s, at epoch {follower.table.epoch}")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _port(wanted: int | None, default: int, host: str, option: str) -> int:
    if wanted is None:
        return free_port(default, host)
    if wanted and free_port(wanted, host) != wanted:
        msg = f"{option} {wanted}: the port is taken; give another one, or none for the next free one"
        raise UsageError(msg)
    return free_port(wanted, host)


class _Servers:
    """The Flight server and the HTTP server, on threads of their own."""

    def __init__(self, options: ServeOptions, lookup: Lookup, health: Health, job_id: str) -> None:
        host = options.host
        self.flight_port = _port(options.port, FLIGHT_PORT, host, "--port")
        self.http_port = _port(options.http_port, HTTP_PORT, host, "--http-port")
        location = f"grpc://{f'[{host}]' if ':' in host else host}:{self.flight_port}"
        self._flight = EmbeddingFlights(location, lookup, health, options.token, job_id)
        self._lookup, self._health, self._options = lookup, health, options
        self._http: Any = None
        self._host = host

    def start(self) -> None:
        """Answer over HTTP, too; Flight does so already."""
        import uvicorn

        front = Front(self._health, self._options.token)
        config = uvicorn.Config(
            front,
            self._host,
            self.http_port,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_keep_alive=_KEEP_ALIVE_S,
        )
        self._http = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._http.run, name="freshet-http", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._http.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        from job.serving.http_server import make_app

        front.app = make_app(self._lookup, self._health)

    def tell(self, tables: Path) -> None:
        """Say where it answers."""
        told = {"flight": f"{self._host}:{self.flight_port}", "http": f"{self._host}:{self.http_port}"}
        write = partial(place.write_server, tables, pid=os.getpid(), began_s=began_s(), **told)
        try:
            write()
        except OSError as error:  # a full disk: who knows the ports is served meanwhile
            say(f"{tables}: {error.strerror}; clients do not find the server there until this has changed")
            threading.Thread(target=_until_done, args=(write,), name="freshet-tell", daemon=True).start()
        say(f"serving: Flight at {told['flight']}, HTTP at http://{told['http']} (its API: /docs)")

    def stop(self) -> bool:
        """Answer no more; whether all calls have ended. A client that keeps its stream open is not waited for."""
        closing = threading.Thread(target=self._flight.shutdown, daemon=True)
        closing.start()
        closing.join(_END_S)
        if self._http is not None:
            self._http.should_exit = True
            self._thread.join(_END_S)
        return not closing.is_alive()


def _until_done(write: Callable[[], None]) -> None:
    while True:
        time.sleep(_TELL_S)
        with suppress(OSError):
            write()
            return


def _compact_regularly(options: ServeOptions, ended: Callable[[], bool]) -> None:
    if options.compact is None:
        return

    def run() -> None:
        assert options.compact is not None
        due = time.monotonic() + options.compact_every_s
        while not ended():
            time.sleep(0.5)
            if time.monotonic() >= due:
                try:
                    options.compact()
                except Exception as error:  # a full disk, say: serving goes on
                    say(f"--compact: {type(error).__name__}: {error}")
                due = time.monotonic() + options.compact_every_s

    threading.Thread(target=run, name="freshet-compact", daemon=True).start()
