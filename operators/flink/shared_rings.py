"""Blocks between processes of one machine: they go through shared memory, and a token goes through Flink.

Flink would copy such a block seven times: to Java, into its buffers, to the kernel and back, and to Python again. Here
the sender writes it to a ring in memory that both processes map, and the receiver copies it from there.

    receiver   listens at an abstract Unix socket
    sender     connects, and hands over the descriptor of a ring: a memory file, which has no name
    receiver   takes the connection when it looks the next time, and says so; only then is the ring used
    sender     writes a block, and sends its token through Flink, in the block's place
    receiver   copies the block, and says which one it was: its place is free

Sockets and memory vanish with the processes, so nothing is left of one that was killed. Abstract sockets end at the
container and the machine: who is not found at one gets bytes by Flink. Both ends refuse processes of other users.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import mmap
import os
import secrets
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from freshet.operators.telemetry.level import Level

# Of blocks that wait in a ring, as far as more than one waits: two of 1,000 events. A larger block goes alone, up to
# the size of the ring, and beyond that by Flink.
BOUND_BYTES = 4 << 20
RING_BYTES = 64 << 20
LOOK_S = 0.05  # how often a receiver looks for new senders, and a sender for a receiver that it has not found
_LOOKED_AT = 64  # connections at a look: another user of the machine may open any number of them

# While blocks are within the bound, twice as much is room for them one after the other, never one in two pieces.
_USUAL_BYTES = 2 * BOUND_BYTES
_HELLO = struct.Struct("<Q")  # the ring's number
_TAKEN = struct.Struct("<Q")  # the number of the last block that the receiver has copied; 0 before the first
_TOKEN = struct.Struct("<cQQII")  # "R", the numbers of the ring and the block, its place, its bytes
_PEER = struct.Struct("3i")
_CLOSE_ON_EXEC = 1
_numbers = itertools.count(secrets.randbits(60))


def is_ring_token(value: bytes) -> bool:
    """Return whether an element stands for a block in a ring."""
    return len(value) == _TOKEN.size and value.startswith(b"R")


class SendingRing:
    """The sender's end of a ring to one task.

    Invariant: at most `BOUND_BYTES` of blocks wait in it, or one block.
    """

    def __init__(self, name: str, level: Level) -> None:
        """Nobody is looked for yet; `level` counts what waits in the ring. The receiver listens at `name`."""
        self.waited_s = 0.0  # for room, in all
        self._name, self._level = name, level
        self._number = next(_numbers)
        self._connection: socket.socket | None = None
        self.memory: mmap.mmap | None = None
        self._ready, self._next_try = False, 0.0
        self._waiting: deque[tuple[int, int]] = deque()  # numbers and bytes of blocks that were not copied yet
        self._blocks = self._waiting_bytes = self._end = self._touched = 0

    def has_room(self, size: int, patience_s: float) -> bool:
        """Return whether a block of `size` bytes can be put, after a bounded wait; False if no receiver is found."""
        if size > RING_BYTES or not self._finds_receiver():
            return False
        if not self._fits(size):
            began = time.monotonic()
            while self._ready and not self._fits(size) and (left := began + patience_s - time.monotonic()) > 0:
                self.hear(left)
            self.waited_s += time.monotonic() - began
        return self._ready and self._fits(size)

    def put(self, pieces: Iterable[bytes | memoryview], size: int) -> bytes:
        """Write a block that there is room for, of which these are the pieces; returns its token."""
        assert self.memory is not None
        in_row = self._waiting and self._end + size <= _USUAL_BYTES
        place = at = self._end if in_row else 0
        if at + size <= _USUAL_BYTES:
            self._give_back()
        with memoryview(self.memory) as view:
            for piece in pieces:
                view[at : at + len(piece)] = piece
                at += len(piece)
        self._blocks, self._end, self._touched = self._blocks + 1, at, max(self._touched, at)
        self._waiting.append((self._blocks, size))
        self._waiting_bytes += size
        self._level.add(size)
        return _TOKEN.pack(b"R", self._number, self._blocks, place, size)

    def hear(self, timeout_s: float = 0.0) -> None:
        """Take what the receiver has said, waiting so long for it."""
        if self._connection is None:
            return
        if timeout_s:
            events = select.poll()  # it takes descriptors of any number
            events.register(self._connection, select.POLLIN)
            events.poll(1e3 * timeout_s)
        try:
            said = self._connection.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._end_connection()
            return
        self._ready = True
        (last,) = _TAKEN.unpack_from(said, len(said) - _TAKEN.size)  # each was sent whole, and comes so
        while self._waiting and self._waiting[0][0] <= last:
            self._forget(self._waiting.popleft()[1])

    def rest(self) -> None:
        """Take what the receiver has said, and keep no memory for nothing: nothing is sent at the moment."""
        self.hear()
        if not self._waiting:
            self._give_back()

    def close(self) -> None:
        """Let go of the ring, for good; the receiver may still read what was sent."""
        self._ready = True
        self._end_connection()

    def _give_back(self) -> None:
        """Give back what a large block took, where nothing waits."""
        if self.memory is not None and self._touched > _USUAL_BYTES:
            with suppress(OSError):  # memory that is locked, say
                self.memory.madvise(mmap.MADV_REMOVE, _USUAL_BYTES, RING_BYTES - _USUAL_BYTES)
            self._touched = 0

    def _end_connection(self) -> None:
        """End the connection: no other is made after a receiver has read; one that was just starting is asked again."""
        if self._ready:
            self._next_try = float("inf")
        if self._connection is not None:
            self._connection.close()
        if self.memory is not None:
            with suppress(BufferError):  # a thread that nobody waits for any more is writing: it goes when that is done
                self.memory.close()
        self._connection = self.memory = None
        self._ready = False
        while self._waiting:
            self._forget(self._waiting.popleft()[1])

    def _forget(self, size: int) -> None:
        self._waiting_bytes -= size
        self._level.take(size)

    def _finds_receiver(self) -> bool:
        if self._connection is None and (now := time.monotonic()) >= self._next_try:
            self._next_try = now + LOOK_S
            self._connection = _local_socket(self._offer)
        self.hear()
        return self._ready

    def _offer(self, made: socket.socket) -> None:
        """Offer a ring to whoever listens.

        Raises: OSError where nobody does, or there is no memory.
        """
        made.connect(self._name)
        if not _is_of_this_user(made):
            raise PermissionError(self._name)
        file = memory_file()
        try:
            os.ftruncate(file, RING_BYTES)
            socket.send_fds(made, [_HELLO.pack(self._number)], [file])
            self.memory = mmap.mmap(file, RING_BYTES)
        finally:
            os.close(file)

    def _fits(self, size: int) -> bool:
        return not self._waiting or self._waiting_bytes + size <= BOUND_BYTES


@dataclass(slots=True)
class _Ring:
    """A ring of a sender, whose blocks were taken up to the number `last`."""

    memory: mmap.mmap
    connection: socket.socket
    last: int = 0

    def send_taken(self) -> bool:
        """Say what was taken; False if that has to be said again: the sender has not heard for long."""
        try:
            self.connection.send(_TAKEN.pack(self.last))
        except BlockingIOError:
            return False
        except OSError:  # its sender is gone, and waits for nothing
            pass
        return True


class ReceivingRings:
    """The rings of all senders in other processes to the tasks of one receiver."""

    def __init__(self, names: Iterable[str]) -> None:
        """Listen at these names; at one that is taken, senders find nobody."""
        found = (_local_socket(partial(_listen, name)) for name in names)
        self._listeners = [made for made in found if made is not None]
        self._rings: dict[int, _Ring] = {}
        self._unsent: list[_Ring] = []
        self._next_look, self._looking = 0.0, threading.Lock()

    def look(self) -> None:
        """Take the rings of new senders, now and then: it may be called as often as one likes."""
        if self._unsent:
            self._unsent = [ring for ring in self._unsent if not ring.send_taken()]
        now = time.monotonic()
        if now < self._next_look:
            return
        with self._looking:  # another thread may close this
            self._next_look = max(self._next_look, now + LOOK_S)
            for listener in self._listeners:
                with suppress(OSError):  # there is none
                    for _ in range(_LOOKED_AT):
                        self._take(listener.accept()[0])

    def taken(self, token: bytes) -> bytes | None:
        """A copy of the block that a token stands for, whose place is free then.

        None where its ring is not here, or another block of it is the next one.
        """
        _, number, block, place, size = _TOKEN.unpack(token)
        ring = self._rings.get(number)
        if ring is None or block != ring.last + 1:
            return None
        copy = ring.memory[place : place + size]
        ring.last = block
        if not ring.send_taken() and ring not in self._unsent:
            self._unsent.append(ring)
        return copy

    def close(self) -> None:
        """Nobody reads here any more."""
        with self._looking:
            listeners, rings = self._listeners, self._rings
            self._listeners, self._rings, self._unsent, self._next_look = [], {}, [], float("inf")
        for listener in listeners:
            listener.close()
        for ring in rings.values():
            ring.connection.close()
            ring.memory.close()

    def _take(self, connection: socket.socket) -> None:
        """Map the ring that a sender offers, and acknowledge it."""
        files: Sequence[int] = ()
        try:
            connection.setblocking(False)
            if not _is_of_this_user(connection):
                raise ConnectionError
            said, files, _, _ = socket.recv_fds(connection, _HELLO.size, 1)
            if len(said) != _HELLO.size or not files:
                raise ConnectionError
            memory = mmap.mmap(files[0], RING_BYTES, access=mmap.ACCESS_READ)
            connection.send(_TAKEN.pack(0))
        except (OSError, ValueError):  # whatever it was, or is no more
            connection.close()
        else:
            self._rings[_HELLO.unpack(said)[0]] = _Ring(memory, connection)
        finally:
            for file in files:
                os.close(file)


def _is_of_this_user(connection: socket.socket) -> bool:
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(peer)[1] == os.geteuid())


def _listen(name: str, made: socket.socket) -> None:
    made.bind(name)
    made.listen(64)


def _local_socket(prepare: Callable[[socket.socket], None]) -> socket.socket | None:
    """A Unix socket that never blocks and is prepared; None where that, or the socket itself, can't be had."""
    try:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError:  # no such sockets, or no descriptors
        return None
    try:
        made.setblocking(False)
        prepare(made)
    except OSError:
        made.close()
        return None
    return made


def memory_file() -> int:
    """The descriptor of a file in memory, without a name.

    Raises: OSError where there is none.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create("freshet-ring")
    # Pythons that run everywhere were built against an older C library, and have no such function.
    function = getattr(ctypes.CDLL(None, use_errno=True), "memfd_create", None)
    file = -1 if function is None else int(function(b"freshet-ring", _CLOSE_ON_EXEC))
    if file < 0:
        raise OSError(ctypes.get_errno() or errno.ENOSYS, "memfd_create")
    return file
