"""Free ports, for servers that bind them later, or bind them again after a kill; and whether a server answers."""

from __future__ import annotations

import errno
import random
import socket
import time
from collections import deque

# Below what Linux gives to outgoing connections (32768 and up): while a server is down, a client that tries to reach it
# again and again could otherwise be given the very port, connect to itself, and keep it.
_FIRST, _LAST = 20_000, 32_000
_TRIES = 200
_RETRY_S = 0.25
# Neither two processes of one seed, nor two servers of a process that bind theirs later, are to get the same.
_CHANCE = random.SystemRandom()
_given: set[int] = set()
_claims: deque[socket.socket] = deque()  # of the newest ones: by then servers have bound those before
_CLAIMS_MAX = 64


def server_port(wanted: int = 0, host: str = "127.0.0.1") -> int:
    """Return `wanted` where it is free, for 0 any free port that neither this process nor another has been given.

    Raises: OSError when the wanted port is taken, or no port is free.
    """
    for port in [wanted] if wanted else _CHANCE.sample(range(_FIRST, _LAST), _TRIES):
        if (wanted or port not in _given) and is_free(port, host) and (wanted or _could_claim(port)):
            _given.add(port)
            return port
    msg = f"port {wanted} is taken" if wanted else f"no free port from {_FIRST} to {_LAST}"
    raise OSError(msg)


def _could_claim(port: int) -> bool:
    """Claim a port for a server that binds it later; False when another process of this machine has done so.

    A claim is a name of Linux's that only one process can have, and that goes with it; elsewhere there is none.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0freshet-port-{port}")
    except OSError as error:
        claim.close()
        return error.errno != errno.EADDRINUSE
    _claims.append(claim)
    if len(_claims) > _CLAIMS_MAX:
        _claims.popleft().close()
    return True


def free_port(wanted: int = 0, host: str = "127.0.0.1") -> int:
    """Return `wanted` if it can be bound, else the next free port; any free one for 0.

    Raises: OSError when there is none.
    """
    if not wanted:
        return server_port(host=host)
    for port in range(wanted, wanted + 100):
        if is_free(port, host):
            return port
    msg = f"no free port from {wanted} to {wanted + 99}"
    raise OSError(msg)


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Return whether a server could listen on the port now."""
    try:
        try_to_bind(host, port)
    except OSError:
        return False
    return True


def try_to_bind(host: str, port: int = 0) -> None:
    """Bind a port, any for 0, and let it go.

    Raises: OSError when that can't be: the port is taken, or the host has no address of this machine.
    """
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(place)


def why_silent(address: str, timeout_s: float = 5.0) -> str | None:
    """Describe why no server accepts connections at HOST:PORT; None as soon as one does.

    It asks again until the time is over: a server that has just been started may not listen yet.
    """
    host, _, port = address.rpartition(":")
    end = time.monotonic() + timeout_s
    while True:
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s):
                return None
        except OSError as error:
            if time.monotonic() + _RETRY_S > end:
                return error.strerror or str(error)
        time.sleep(_RETRY_S)
