"""`freshet serve`: follows a job, keeps its table, and answers over Arrow Flight and HTTP, until it is told to end."""

from __future__ import annotations

import gc
import ipaddress
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from job.console import say
from job.errors import EXIT_DONE, UsageError
from job.machine.ports import free_port
from job.machine.processes import began_s
from job.machine.signals import stop_signals
from job.serving import place
from job.serving.feeds.feed import feed_of
from job.serving.flight_server import EmbeddingFlights
from job.serving.health import Health
from job.serving.http_front import Front
from job.serving.lookup import CurrentTable, Lookup
from job.serving.serve_options import ServeOptions
from job.serving.served_job import ServedJob
from job.serving.tls import Address

# What follows the job brings numba in, and HTTP a large framework: both are loaded when Flight answers already.
if TYPE_CHECKING:
    from job.serving.follower import Follower

FLIGHT_PORT, HTTP_PORT = 47470, 47480
_END_S = 1.0
_KEEP_ALIVE_S = 75  # a connection over which nothing comes
_SWITCH_INTERVAL_S = 5e-4  # threads that answer wait this long for the one that follows


def serve(options: ServeOptions) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code.

    Raises: UsageError when there is no job, another server, or a port that is taken.
    """
    if not is_loopback(options.host) and not options.token:
        say(f"--host {options.host}: whoever reaches this machine reads all embeddings; give --token to prevent it")
    elif not is_loopback(options.host) and options.certificate is None:
        say(f"--host {options.host}: token and embeddings cross the network as they are; give --tls-cert and --tls-key")
    with stop_signals() as caught:
        feed = feed_of(options, lambda: bool(caught))
        tables, job = feed.tables, feed.job
        with place.only_server(tables):
            sys.setswitchinterval(_SWITCH_INTERVAL_S)
            current = CurrentTable(tables)
            lookup = Lookup(current, job.sources, (lambda: job.plan) if job.model else None, feed.consistency)
            left = place.left_behind(job, tables)
            if left is not None:
                current.begin_with(left)
            servers = _Servers(options, lookup, Health(lookup, options.stale_after_s), job)
            follower: Follower | None = None
            try:
                servers.start()
                gc.freeze()
                gc.enable()
                if left is not None:
                    servers.tell(tables)
                current.go_on()
                follower = _started(feed.follower)
                if left is None:
                    servers.tell(tables)
                _compact_regularly(options, lambda: bool(caught))
                follower.run(lambda: bool(caught))
            finally:
                if follower is not None:
                    follower.close(forget=True)
                all_ended = servers.stop()
    if not all_ended:  # gRPC would wait for them as the interpreter ends
        sys.stderr.flush()
        os._exit(EXIT_DONE)
    return EXIT_DONE


def _started(make: Callable[[], Follower]) -> Follower:
    """What keeps the table, once the table can be read."""
    began = time.perf_counter()
    follower = make()
    follower.start()
    took = time.perf_counter() - began
    how = "taken over as it stood" if follower.taken_over else f"loaded from {follower.origin}"
    say(f"table of {follower.table.path} {how} in {took:.2f} s, at epoch {follower.table.epoch}")
    return follower


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

    def __init__(self, options: ServeOptions, lookup: Lookup, health: Health, job: ServedJob) -> None:
        host = options.host
        self.flight_port = _port(options.port, FLIGHT_PORT, host, "--port")
        self.http_port = _port(options.http_port, HTTP_PORT, host, "--http-port")
        self._tls = options.certificate
        location = Address(host, self.flight_port, self._tls is not None).location()
        self._flight = EmbeddingFlights(location, lookup, health, options.token, job.job_id, self._tls, job.model)
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
            ssl_certfile=None if self._tls is None else self._tls.cert,
            ssl_keyfile=None if self._tls is None else self._tls.key,
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
        # With TLS as URIs, which clients take as they take HOST:PORT.
        flight, http = ("grpc+tls://", "https://") if self._tls is not None else ("", "")
        told = {"flight": f"{flight}{self._host}:{self.flight_port}", "http": f"{http}{self._host}:{self.http_port}"}
        place.write_server(tables, pid=os.getpid(), began_s=began_s(), **told)
        say(f"serving: Flight at {told['flight']}, HTTP at {'' if http else 'http://'}{told['http']} (its API: /docs)")

    def stop(self) -> bool:
        """Answer no more; whether all calls have ended. A client that keeps its stream open is not waited for."""
        closing = threading.Thread(target=self._flight.shutdown, daemon=True)
        closing.start()
        closing.join(_END_S)
        if self._http is not None:
            self._http.should_exit = True
            self._thread.join(_END_S)
        return not closing.is_alive()


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
