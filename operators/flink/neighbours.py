"""Blocks between tasks of one machine: they stay in memory, and a token goes through Flink in their place.

Flink would copy a block to Java, into network buffers and back, and most blocks go no further than the next task of
the same process, or to another process of the machine (operators/flink/shared_rings.py). A token keeps the place of its
block among those that go as bytes, and no checkpoint holds one: at an aligned barrier nothing is under way. What goes
to another machine, or to a receiver that is not open, goes as bytes.

Few blocks may wait in memory. A sender that is ahead waits for its receiver, but not for long: one that does not read
at all (it waits for another sender's barrier, or for the end) gets bytes, and Flink's flow control holds the sender.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from freshet.operators.flink.shared_rings import ReceivingRings, SendingRing, is_ring_token
from freshet.operators.outcome import Message
from freshet.operators.telemetry.level import JointLevel, Level
from freshet.state.codec import Block, pieces_of

# Of blocks that wait, for each sender and kind of receiver: some epochs of 100 events. A larger block goes alone.
BOUND_BYTES = 128 << 10
PATIENCE_S = 0.1

_TOKEN, _TOKEN_BYTES = b"T", 9  # any block has a longer header
_tokens = itertools.count(secrets.randbits(60))  # those of another process are none of ours


class LostBlockError(RuntimeError):
    """A token came to a task that has no block for it."""


class TaskAddress(NamedTuple):
    """A task of a job: the job's id in Flink, the operator, and the task's number."""

    job: str
    operator: str
    task: int

    def name(self, attempt: int) -> str:
        """Return the address at which the task accepts blocks of other local processes: an abstract Unix socket."""
        return f"\0freshet/{self.job}/{attempt}/{self.operator}/{self.task}"


class _Waiting(NamedTuple):
    block: Any
    size: int
    level: Level


mailboxes: dict[TaskAddress, Mailbox] = {}


def _fits(level: Level, size: int) -> bool:
    return level.now == 0 or level.now + size <= BOUND_BYTES


def _size_of(block: Block | bytes) -> int:
    return block.nbytes if isinstance(block, Block) else len(block)


def is_token(value: bytes) -> bool:
    """Return whether an element stands for a block in memory."""
    return (len(value) == _TOKEN_BYTES and value.startswith(_TOKEN)) or is_ring_token(value)


class Mailbox:
    """The blocks in memory that wait for the tasks of one receiver; they go with it."""

    def __init__(self, addresses: Iterable[TaskAddress], attempt: int = 0) -> None:
        """Register for senders of the same attempt, under these addresses.

        Flink may drop the functions of a failed attempt at any time: their mailboxes are closed here.
        """
        self.attempt, self._closed = attempt, False
        self._changed = threading.Condition()
        self._waiting: dict[bytes, _Waiting] = {}
        self._addresses = list(addresses)
        for address in self._addresses:
            if address in mailboxes:
                mailboxes[address].close()
        self._rings = ReceivingRings(address.name(attempt) for address in self._addresses)
        mailboxes.update(dict.fromkeys(self._addresses, self))

    def has_room(self, level: Level, size: int) -> bool:
        """Wait until `size` more bytes are within the bound, or nothing waits; False if that takes too long."""
        with self._changed:
            found = self._changed.wait_for(lambda: self._closed or _fits(level, size), PATIENCE_S)
            return found and not self._closed

    def put(self, block: Any, size: int, level: Level) -> bytes:
        """Keep a block; returns its token."""
        token = _TOKEN + next(_tokens).to_bytes(8, "little")
        level.add(size)
        self._waiting[token] = _Waiting(block, size, level)
        return token

    def taken(self, value: bytes) -> tuple[Any, int]:
        """The value itself, or the block that it is the token of, and how many bytes came from another thread.

        Raises: LostBlockError when there is no such block.
        """
        self._rings.look()
        if not is_token(value):
            return value, len(value)
        if is_ring_token(value):
            if (block := self._rings.taken(value)) is None:
                raise self._lost()
            return block, len(block)
        waited = self._waiting.pop(value, None)
        if waited is None:
            raise self._lost()
        with self._changed:
            waited.level.take(waited.size)
            self._changed.notify_all()
        return waited.block, waited.size

    def close(self) -> None:
        """Nobody reads here any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for address in self._addresses:
            if mailboxes.get(address) is self:
                del mailboxes[address]
        self._waiting.clear()
        self._rings.close()

    def _lost(self) -> LostBlockError:
        return LostBlockError(f"{self._addresses[0].operator}: a token came whose block is not in this process")


class Neighbours:
    """The receivers of one sender as far as they are in its process, or on its machine.

    Invariant: at the receivers of a kind in its process wait at most `BOUND_BYTES`, or the blocks of one act; for each
    task in another process what a ring may hold.
    """

    def __init__(self, job: str, receivers: Mapping[str, str], chained: Collection[str] = (), attempt: int = 0) -> None:
        """`receivers` are the operators' names by kind; those of the kinds `chained` run in the sender's thread.

        They take a block while it is sent, so nothing needs a bound.
        """
        # No bound of their own: an act may make more. Of the process and of rings: each has one thread that takes.
        self._here, self._in_rings = ({kind: Level() for kind in receivers} for _ in range(2))
        self.levels = {kind: JointLevel((here, self._in_rings[kind])) for kind, here in self._here.items()}
        self._job, self._receivers, self._attempt, self._chained = job, receivers, attempt, chained
        self._mailboxes: dict[str, Mailbox] = {}
        self._rings: dict[tuple[str, int], SendingRing] = {}
        self._left_bytes, self._waited_s = 0, 0.0
        self._asked, self._patience_s = set[tuple[str, int]](), 0.0

    def sendable(self, messages: Iterable[Message]) -> list[Message]:
        """The messages of an act with tokens for their blocks, or with the bytes of them."""
        has_room: dict[str, bool] = {}
        self._asked, self._patience_s = set(), PATIENCE_S
        tokens = ((message, self._token(message, has_room)) for message in messages)
        return [message.encoded() if token is None else message._replace(block=token) for message, token in tokens]

    def counted(self) -> tuple[int, float]:
        """Bytes left in memory for other tasks, and seconds waited for those that were behind, since the last call."""
        found = self._left_bytes, self._waited_s
        self._left_bytes, self._waited_s = 0, 0.0
        return found

    def hear(self) -> None:
        """Have the levels count what other processes have taken meanwhile: nothing is sent at the moment."""
        for ring in self._rings.values():
            ring.rest()

    def close(self) -> None:
        """Nothing is sent any more."""
        for ring in self._rings.values():
            ring.close()

    def _token(self, message: Message, has_room: dict[str, bool]) -> bytes | None:
        """Leave a block to its receiver; None where it has to go as bytes."""
        to, block, mailbox = message.to, message.block, self._mailbox(message.to, message.task)
        if mailbox is None:
            return self._ring_token(message)
        if to in self._chained:
            return mailbox.put(block, 0, self._here[to])
        size = _size_of(block)
        if to not in has_room:  # asked once: what an act has sent before can't be taken before the act is done
            began = time.perf_counter()
            has_room[to] = mailbox.has_room(self._here[to], size)
            self._waited_s += time.perf_counter() - began
        if not has_room[to]:
            return None
        self._left_bytes += size
        return mailbox.put(block, size, self._here[to])

    def _ring_token(self, message: Message) -> bytes | None:
        """Write a block to the ring of a task in another process; None where it has to go as bytes."""
        to, task, block = message.to, message.task, message.block
        if to not in self._receivers:
            return None
        ring = self._rings.get((to, task))
        if ring is None:
            name = TaskAddress(self._job, self._receivers[to], task).name(self._attempt)
            ring = self._rings[to, task] = SendingRing(name, self._in_rings[to])
        # Waited for once, as above, and for all rings together not longer than for one.
        patience_s = 0.0 if (to, task) in self._asked else self._patience_s
        self._asked.add((to, task))
        size, waited_s = _size_of(block), ring.waited_s
        has_room = ring.has_room(size, patience_s)
        waited_s = ring.waited_s - waited_s
        self._waited_s, self._patience_s = self._waited_s + waited_s, max(0.0, self._patience_s - waited_s)
        if not has_room:
            return None
        self._left_bytes += size
        return ring.put(pieces_of(block.header, block.columns) if isinstance(block, Block) else [block], size)

    def _mailbox(self, kind: str, task: int) -> Mailbox | None:
        """Mailbox of a task of that kind, if it is in this process."""
        found = mailboxes.get(TaskAddress(self._job, self._receivers.get(kind, ""), task))
        if found is None or found.attempt != self._attempt:
            return None
        # One mailbox for each kind: a level counts what one thread brings and one other takes.
        return found if self._mailboxes.setdefault(kind, found) is found else None
