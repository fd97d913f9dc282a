"""Check that the brokers of a command are reachable, before anything else, so that it ends within seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from freshet.job.errors import UsageError, one_line
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.client import ClientProperties, connection
from freshet.job.machine.ports import why_silent

CONNECT_S = 2.5  # in which a server takes a connection
ANSWER_S = 3.5  # in which one that does also answers as a broker
_POLL_S = 0.01
GRACE_S = 1.0  # for a thread to tell of a connection that was refused in time: this process may wait for a core
_STEP_S = 0.5  # a look that comes later counts as this: the process stood still, with those that ask for it
_PATIENCE_S = 60.0  # of a client, so that it asks on where this process stood still; the looks end the wait


def await_brokers(named: Iterable[tuple[str, KafkaAddress]], properties: ClientProperties) -> None:
    """Wait until the brokers of all addresses have answered, a few seconds at most; each comes with its option.

    Raises: UsageError for the first that do not, or for properties that a client does not take.
    """
    import kafka  # noqa: F401 - before the clock runs: on a busy machine it takes a second

    addresses = list(named)
    if addresses:
        properties.fetch_token()
    asked: dict[str, _Asked] = {}
    for option, address in addresses:
        if address.bootstrap not in asked:
            asked[address.bootstrap] = _Asked(f"{option} {address}", address, properties)
    waited_s, looked_s = 0.0, time.monotonic()
    for one in asked.values():
        while not one.answered:
            now_s = time.monotonic()
            waited_s, looked_s = waited_s + min(now_s - looked_s, _STEP_S), now_s
            if (reason := one.why_not(waited_s)) is not None:
                msg = f"{one.name}: {reason}"
                raise UsageError(msg)
            time.sleep(_POLL_S)


class _Asked:
    """Brokers that are asked on threads of their own: a look-up of a host's name can't be given a time limit."""

    def __init__(self, name: str, address: KafkaAddress, properties: ClientProperties) -> None:
        self.name, self.answered = name, False
        self._options = connection(address, properties) | {"bootstrap_timeout_ms": int(1e3 * _PATIENCE_S)}
        servers = address.bootstrap.split(",")
        self._count = len(servers)
        self._silent: list[str | None] = []  # why a server takes no connection, None for one that does
        self._error: Exception | None = None
        self._is_broker = False
        asks: list[Callable[[], None]] = [self._ask, *(partial(self._connect, server) for server in servers)]
        for ask in asks:
            threading.Thread(target=ask, name="freshet-brokers", daemon=True).start()

    def why_not(self, seconds: float) -> str | None:
        """Return why there is no answer after so long, and what to do; None while there may be one."""
        if self._error is not None:
            return f"no Kafka broker answers there ({one_line(self._error)})"
        if seconds > ANSWER_S and self._is_broker:
            return (
                "a broker answers there, but not at the address that it gives out for itself; check its "
                "advertised.listeners"
            )
        if None in self._silent and seconds > ANSWER_S:
            return (
                f"something takes connections there, but does not answer as a Kafka broker within {ANSWER_S:g} s; "
                "check the port, and login and TLS (`kafka:` in the --config file)"
            )
        if None in self._silent or (seconds < CONNECT_S + GRACE_S and len(self._silent) < self._count):
            return None
        cause = self._silent[0] if self._silent else "no answer"
        return f"no broker is there ({cause}); check host and port, and that the broker runs"

    def _connect(self, server: str) -> None:
        self._silent.append(why_silent(server, CONNECT_S))

    def _ask(self) -> None:
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaTimeoutError

        try:
            admin = KafkaAdminClient(**self._options)
            self._is_broker = True
            admin.describe_cluster()  # of a broker by the address that it gives out
            self.answered = True
            admin.close()
        except KafkaTimeoutError:
            return
        except Exception as error:  # whatever comes of TLS, logins and answers of other servers
            self._error = error
