"""Rings between processes: what is put is what is taken, within the bound, whoever dies."""

from __future__ import annotations

import errno
import multiprocessing
import os
import secrets
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.operators.flink import shared_rings
from freshet.operators.flink.shared_rings import (
    BOUND_BYTES,
    LOOK_S,
    RING_BYTES,
    ReceivingRings,
    SendingRing,
    is_ring_token,
)
from freshet.operators.telemetry.level import Level
from tests.support.flink.still_clock import still_clock

WAIT_S = 60.0


def name() -> str:
    return f"\0freshet/test/{secrets.token_hex(8)}"


def met(sender: SendingRing, receiver: ReceivingRings) -> None:
    """Have the two find each other."""
    end = time.monotonic() + WAIT_S
    while not sender.has_room(1, 0.0):
        assert time.monotonic() < end
        receiver.look()
        time.sleep(0.001)


class Pair:
    """A sender and its receiver, in one process."""

    def __init__(self) -> None:
        self.level, self.name = Level(), name()
        self.receiver, self.sender = ReceivingRings([self.name]), SendingRing(self.name, self.level)
        met(self.sender, self.receiver)

    def put(self, block: bytes) -> bytes | None:
        return self.sender.put([block[:3], memoryview(block)[3:]], len(block)) if self.fits(len(block)) else None

    def fits(self, size: int) -> bool:
        return self.sender.has_room(size, 0.0)

    def close(self) -> None:
        self.sender.close()
        self.receiver.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    one = Pair()
    yield one
    one.close()


def test_a_block_is_what_it_was(pair: Pair) -> None:
    token = pair.put(b"some block")
    assert token is not None and is_ring_token(token)
    assert pair.level.now == 10
    assert pair.receiver.taken(token) == b"some block"
    pair.sender.hear()
    assert (pair.level.now, pair.level.peak) == (0, 10)


sizes = st.one_of(st.integers(3, 100), st.integers(3, BOUND_BYTES // 3), st.integers(BOUND_BYTES, 3 * BOUND_BYTES))


@given(st.lists(st.tuples(sizes, st.integers(0, 4)), min_size=1, max_size=25))
def test_blocks_of_all_sizes_come_in_order_and_whole(steps: list[tuple[int, int]]) -> None:
    pair, waiting, number = Pair(), deque[tuple[bytes, bytes]](), 0
    try:
        for size, reads in steps:
            number += 1
            block = bytes([number % 251]) * size
            token = pair.put(block)
            held = sum(len(one) for one, _ in waiting)
            assert (token is not None) == (not waiting or held + size <= BOUND_BYTES), "as much as there is room for"
            if token is not None:
                waiting.append((block, token))
            for _ in range(min(reads, len(waiting))):
                block, token = waiting.popleft()
                assert pair.receiver.taken(token) == block
            pair.sender.hear()
            assert pair.level.now == sum(len(one) for one, _ in waiting)
        for block, token in waiting:
            assert pair.receiver.taken(token) == block
    finally:
        pair.close()


def resident(pair: Pair) -> int:
    """Bytes that the sender's end of the ring holds."""
    assert pair.sender.memory is not None
    with open("/proc/self/smaps") as file:
        lines = file.read().split("memfd:freshet-ring")[1:]
    return max(int(line.split("Rss:")[1].split()[0]) << 10 for line in lines)


def test_a_large_block_goes_alone_and_gives_its_memory_back(pair: Pair) -> None:
    before = pair.put(b"small")
    assert before is not None
    assert not pair.fits(RING_BYTES), "not beside another one"
    pair.receiver.taken(before)
    large = pair.put(b"x" * RING_BYTES)
    assert large is not None
    assert not pair.fits(1), "alone"
    assert pair.receiver.taken(large) == b"x" * RING_BYTES
    assert resident(pair) > RING_BYTES - BOUND_BYTES
    after = pair.put(b"small again")
    assert after is not None and pair.receiver.taken(after) == b"small again"
    assert resident(pair) < 3 * BOUND_BYTES
    assert not pair.fits(RING_BYTES + 1), "goes by Flink"


def test_a_sender_waits_for_room_and_counts_it(pair: Pair) -> None:
    first = pair.put(b"x" * BOUND_BYTES)
    assert first is not None
    with still_clock():
        assert not pair.sender.has_room(3, 0.05), "the receiver does not read"
        assert pair.sender.waited_s == pytest.approx(0.05)
    reader = threading.Timer(0.05, pair.receiver.taken, [first])
    reader.start()
    assert pair.sender.has_room(3, WAIT_S)
    reader.join()


def test_until_the_receiver_has_answered_nothing_goes_by_a_ring() -> None:
    at = name()
    sender = SendingRing(at, Level())
    assert not sender.has_room(1, 1.0), "nobody listens"
    receiver = ReceivingRings([at])
    end = time.monotonic() + 3 * LOOK_S
    while time.monotonic() < end:
        assert not sender.has_room(1, 0.0), "somebody listens, who has not looked: he may be of a failed attempt"
    met(sender, receiver)
    sender.close()
    assert not sender.has_room(1, 0.0), "closed for good"
    receiver.close()


def test_a_receiver_that_could_not_take_the_ring_yet_is_asked_again() -> None:
    at = name()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(at)
        listener.listen()
        sender = SendingRing(at, Level())
        sender.has_room(1, 0.0)
        listener.accept()[0].close()
    receiver = ReceivingRings([at])
    met(sender, receiver)
    sender.close()
    receiver.close()


def test_small_blocks_that_were_taken_at_once_leave_their_room(pair: Pair) -> None:
    """A socket holds the word of some hundreds, and the sender hears nothing while it waits elsewhere."""
    tokens = [pair.put(b"x" * 4096) for _ in range(1000)]
    for token in tokens:
        assert token is not None and pair.receiver.taken(token) == b"x" * 4096
    assert not pair.fits(2 * BOUND_BYTES), "not all of it was heard"
    pair.receiver.look()
    assert pair.fits(2 * BOUND_BYTES)
    assert pair.level.now == 0


def test_a_token_that_comes_twice_or_too_early_stands_for_nothing(pair: Pair) -> None:
    first, second = pair.put(b"one"), pair.put(b"two")
    assert first is not None and second is not None
    assert pair.receiver.taken(second) is None
    assert pair.receiver.taken(first) == b"one"
    assert pair.receiver.taken(first) is None
    assert pair.receiver.taken(second) == b"two"


def test_an_idle_sender_gives_back_what_a_large_block_took(pair: Pair) -> None:
    token = pair.put(b"x" * RING_BYTES)
    assert token is not None
    pair.sender.rest()
    assert pair.receiver.taken(token) == b"x" * RING_BYTES, "not while it waits"
    pair.sender.rest()
    assert resident(pair) <= 2 * BOUND_BYTES


def test_memory_that_can_not_be_given_back_is_kept(pair: Pair) -> None:
    class Locked:
        def madvise(self, *_: int) -> None:
            raise OSError(errno.EINVAL, "locked")

    memory, pair.sender.memory = pair.sender.memory, Locked()  # type: ignore[assignment]
    pair.sender._touched = RING_BYTES
    pair.sender.rest()
    pair.sender.memory = memory
    token = pair.put(b"block")
    assert token is not None and pair.receiver.taken(token) == b"block"


def test_closing_does_not_wait_for_a_thread_that_writes(pair: Pair) -> None:
    assert pair.sender.memory is not None
    with memoryview(pair.sender.memory):
        pair.sender.close()
    assert pair.sender.memory is None


@pytest.mark.parametrize("lacking", ["sockets", "memory files", "descriptors"])
def test_what_the_machine_does_not_have_is_done_without(lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE if lacking == "descriptors" else errno.EAFNOSUPPORT, lacking)

    at = name()
    if lacking == "memory files":
        monkeypatch.setattr(shared_rings, "memory_file", refuse)
    else:
        monkeypatch.setattr(socket, "socket", refuse)
    receiver, sender = ReceivingRings([at]), SendingRing(at, Level())
    receiver.look()
    assert not sender.has_room(1, 0.0)
    monkeypatch.undo()
    sender.close()
    receiver.close()


def test_a_python_without_memory_files_has_them_of_the_c_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    pair = Pair()
    token = pair.put(b"block")
    assert token is not None and pair.receiver.taken(token) == b"block"
    file = shared_rings.memory_file()
    assert not os.get_inheritable(file)
    os.close(file)
    pair.close()


def test_a_receiver_that_closes_while_it_looks_takes_nothing_more() -> None:
    at = name()
    receiver = ReceivingRings([at])
    senders = [SendingRing(at, Level()) for _ in range(20)]
    ended = threading.Event()

    def look() -> None:
        while not ended.is_set():
            receiver._next_look = min(receiver._next_look, 0.0)
            receiver.look()

    looking = threading.Thread(target=look)
    looking.start()
    for sender in senders:
        sender.has_room(1, 0.0)
    receiver.close()
    ended.set()
    looking.join()
    receiver.look()
    assert not receiver._rings
    for sender in senders:
        sender.close()


def test_what_is_no_ring_is_let_go(pair: Pair) -> None:
    receiver, waiting = pair.receiver, []
    for said, files in ((b"", False), (b"hello", True), (b"12345678", False), (b"12345678", True)):
        one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        one.connect(pair.name)
        reading, writing = os.pipe()  # a file that can't be mapped
        if files:
            socket.send_fds(one, [said], [reading])
        elif said:
            one.send(said)
        os.close(reading), os.close(writing)
        waiting.append(one)
    time.sleep(LOOK_S)
    receiver.look()
    for one in waiting:
        one.settimeout(WAIT_S)
        assert one.recv(1) == b"", "closed"
        one.close()
    token = pair.put(b"and the others go on")
    assert token is not None and receiver.taken(token) == b"and the others go on"


def test_a_name_that_is_taken_belongs_to_the_first(pair: Pair) -> None:
    second = ReceivingRings([pair.name])
    token = pair.put(b"block")
    assert token is not None
    assert second.taken(token) is None
    second.close()
    assert pair.receiver.taken(token) == b"block"


def test_what_was_sent_is_read_though_its_sender_has_closed(pair: Pair) -> None:
    token = pair.put(b"the last block")
    pair.sender.close()
    assert pair.level.now == 0
    assert token is not None and pair.receiver.taken(token) == b"the last block"
    pair.receiver.close()
    assert pair.receiver.taken(token) is None
    pair.receiver.look()


def _is_refused(at: str) -> bool:
    """Whether this process gets no ring taken at a name."""
    stranger = SendingRing(at, Level())
    found = stranger._finds_receiver() or stranger._connection is not None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:  # one that does not mind whose it is
        one.connect(at)
        file = os.memfd_create("ring")
        os.ftruncate(file, RING_BYTES)
        try:
            socket.send_fds(one, [b"12345678"], [file])
            one.settimeout(WAIT_S)
            refused = one.recv(1) == b""
        except (BrokenPipeError, ConnectionResetError):  # it was closed before that was sent, or read
            refused = True
    return refused and not found


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_processes_of_other_users_are_refused(pair: Pair) -> None:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setuid(65534)
            os.write(write, b"yes" if _is_refused(pair.name) else b"no!")
        finally:
            os._exit(0)
    rings, end = len(pair.receiver._rings), time.monotonic() + WAIT_S
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        assert time.monotonic() < end
        pair.receiver.look()
        time.sleep(0.01)
    assert os.read(read, 3) == b"yes"
    assert len(pair.receiver._rings) == rings
    os.close(read), os.close(write)


def _receive(at: str, tokens: Connection) -> None:
    receiver = ReceivingRings([at])
    tokens.send(b"listening")
    while True:
        while not tokens.poll(0.01):
            receiver.look()
        taken = receiver.taken(tokens.recv())
        assert taken is not None
        tokens.send((len(taken), int(np.frombuffer(taken, np.uint8).sum(dtype=np.int64))))


def test_by_another_process_and_after_it_was_killed() -> None:
    at, (tokens, theirs) = name(), multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_receive, args=(at, theirs), daemon=True)
    process.start()
    assert tokens.recv() == b"listening"
    level = Level()
    sender = SendingRing(at, level)
    end = time.monotonic() + WAIT_S
    while not sender.has_room(1, 0.0):
        assert time.monotonic() < end
    random = np.random.default_rng(0)
    for _ in range(50):
        block = random.integers(0, 255, random.integers(1, 300_000), np.uint8)
        assert sender.has_room(block.size, WAIT_S)
        tokens.send(sender.put([block.data], block.size))
        assert tokens.recv() == (block.size, int(block.sum(dtype=np.int64)))
    sender.put([b"x" * BOUND_BYTES], BOUND_BYTES)
    assert process.pid is not None
    killer = threading.Timer(0.1, os.kill, [process.pid, signal.SIGKILL])
    killer.start()
    began = time.monotonic()
    assert not sender.has_room(BOUND_BYTES, 60.0), "it is not waited for any longer"
    assert time.monotonic() - began < 50
    assert level.now == 0
    assert not sender.has_room(1, 0.0)
    killer.join()
    process.join()
    sender.close()
