"""All sockets at which processes of a tree can be reached, by whatever transport, over the life of a command."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address

import psutil

_EVERY_S = 0.2  # a look costs several milliseconds for each process, and servers stay


@dataclass
class Seen:
    """What was seen so far: "NAME tcp ADDRESS:PORT" of each socket that takes what others send."""

    loopback: set[str] = field(default_factory=set)
    open: set[str] = field(default_factory=set)
    programs: set[str] = field(default_factory=set)  # of processes that listen

    @property
    def ports(self) -> set[int]:
        """All, whoever reaches them."""
        return {int(line.rpartition(":")[2]) for line in self.loopback | self.open}

    def add(self, process: psutil.Process) -> None:
        for one in process.net_connections(kind="inet"):
            is_tcp = one.type == socket.SOCK_STREAM
            if is_tcp and one.status != psutil.CONN_LISTEN:
                continue
            if not is_tcp and (one.raddr or not one.laddr):  # connected: it takes what its one peer sends
                continue
            told = f"{process.name()} {'tcp' if is_tcp else 'udp'} {one.laddr.ip}:{one.laddr.port}"
            (self.loopback if _is_loopback(one.laddr.ip) else self.open).add(told)
            self.programs.add(process.name())


def _is_loopback(text: str) -> bool:
    address: IPv4Address | IPv6Address = ip_address(text.partition("%")[0])
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


@contextmanager
def watched(*roots: int) -> Iterator[Seen]:
    """Look at these processes and all below them again and again; without any, at all that this one starts."""
    seen, done = Seen(), threading.Event()
    looks = list[int]()

    def look() -> None:
        while not done.wait(_EVERY_S):
            for process in _trees(roots):
                try:
                    seen.add(process)
                except (psutil.Error, OSError):  # it ends as it is looked at
                    continue
            looks.append(1)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield seen
        enough, deadline = len(looks) + 2, time.monotonic() + 300
        while len(looks) < enough:  # the last state is seen, too
            assert time.monotonic() < deadline
            time.sleep(_EVERY_S)
    finally:
        done.set()
        watcher.join()


def _trees(roots: tuple[int, ...]) -> list[psutil.Process]:
    found = list[psutil.Process]()
    for root in roots:
        try:
            found.append(psutil.Process(root))
            found += found[-1].children(recursive=True)
        except psutil.Error:
            continue
    return found or psutil.Process().children(recursive=True)


def is_shut(seen: Seen, *programs: str) -> None:
    """Assert that these programs ran, and that no port was open to other machines."""
    assert seen.programs >= set(programs), seen
    assert not seen.open, sorted(seen.open)


def has_ipv6() -> bool:
    """Whether this machine has the loopback address of IPv6."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False
