"""Servers of one process: Flight on a port of its own, and HTTP on a port that processes may share."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from freshet.job.serving.doors.cors import Cors
from freshet.job.serving.doors.flight_server import EmbeddingFlights
from freshet.job.serving.doors.http_front import Front
from freshet.job.serving.doors.tokens import GivenToken, ServerTokens
from freshet.job.serving.protocol.tls import Address, Certificate
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup

END_S = 1.0
_KEEP_ALIVE_S = 75  # a connection over which nothing comes
_WILDCARDS = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Doors:
    """Ports and certificates of a server's processes; plain data, for a process of its own."""

    host: str
    flight_ports: tuple[int, ...]  # one for each process
    http_port: int
    tokens: tuple[GivenToken, ...]
    cert: str | None
    key: str | None
    cors: tuple[str, ...] = ()  # origins whose pages may read

    @property
    def certificate(self) -> Certificate | None:
        """Certificate for TLS; None without."""
        return Certificate(Path(self.cert), Path(self.key)) if self.cert and self.key else None

    @property
    def flights(self) -> list[str]:
        """The Flight servers as clients reach them."""
        host = socket.gethostname() if self.host in _WILDCARDS else self.host
        return [Address(host, port, self.cert is not None).location() for port in self.flight_ports]


class Answering:
    """The Flight server and the HTTP server of one process, on threads of their own."""

    def __init__(self, doors: Doors, number: int, lookup: Lookup, health: Health) -> None:
        """Flight listens on return, on the port of that number."""
        self._doors, self._lookup, self._health = doors, lookup, health
        location = Address(doors.host, doors.flight_ports[number], doors.cert is not None).location()
        several = doors.flights if len(doors.flight_ports) > 1 else []
        self.tokens = ServerTokens(doors.tokens)
        self._flight = EmbeddingFlights(location, lookup, health, self.tokens, doors.certificate, several)
        self.tokens.watch()
        self._http: Any = None

    def start(self) -> None:
        """Answer over HTTP, too."""
        import uvicorn

        from freshet.job.serving.doors.timed_http import TimedLoop, TimedProtocol

        front = Front(self._health, self.tokens, cors=Cors(self._doors.cors))
        config = uvicorn.Config(
            front,
            http=TimedProtocol,
            ws="none",
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_keep_alive=_KEEP_ALIVE_S,
            ssl_certfile=self._doors.cert,
            ssl_keyfile=self._doors.key,
        )
        listening = self._listening()
        self._http = uvicorn.Server(config)
        serving = self._http.serve

        def run() -> None:
            with asyncio.Runner(loop_factory=TimedLoop) as runner:
                runner.run(serving([listening]))

        self._thread = threading.Thread(target=run, name="freshet-http", daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._http.started and self._thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        from freshet.job.serving.doors.http_server import make_app

        front.app = make_app(self._lookup, self._health, lambda: self._http.should_exit)

    def stop(self) -> bool:
        """Answer no more; whether all calls have ended. A client that keeps its stream open is not waited for."""
        self.tokens.stop()
        closing = threading.Thread(target=self._flight.shutdown, daemon=True)
        closing.start()
        closing.join(END_S)
        if self._http is not None:
            self._http.should_exit = True
            self._thread.join(END_S)
        return not closing.is_alive()

    def _listening(self) -> socket.socket:
        host, port = self._doors.host, self._doors.http_port
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)  # asyncio sends at once (TCP_NODELAY) where it knows it is TCP
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if len(self._doors.flight_ports) > 1:  # the kernel shares connections out among those that listen
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        found.bind(place)
        found.listen(2048)
        found.set_inheritable(False)
        return found
