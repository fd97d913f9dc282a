"""Blocks that stay in the process: found by address, bounded, and gone with their receiver."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from freshet.operators.dataflow import STORAGE, TAIL
from freshet.operators.flink import neighbours
from freshet.operators.flink.neighbours import BOUND_BYTES, LostBlockError, Mailbox, Neighbours, TaskAddress, is_token
from freshet.operators.outcome import Message
from freshet.state.block_columns import SYNC
from freshet.state.codec import Block, Header, decode, seal
from tests.support.flink.still_clock import still_clock

JOB, ANOTHER_JOB = secrets.token_hex(8), secrets.token_hex(8)  # no other process of the machine has them


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    """That of storage 1, which has two tasks here."""
    one = Mailbox(TaskAddress(JOB, "storage1", task) for task in (0, 1))
    yield one
    one.close()


@pytest.fixture
def sender(monkeypatch: pytest.MonkeyPatch) -> Neighbours:
    """A storage 0 without much patience."""
    monkeypatch.setattr(neighbours, "PATIENCE_S", 0.05)
    return Neighbours(JOB, {STORAGE: "storage1", TAIL: "tail1"})


def message(task: int = 0, rows: int = 1, to: str = STORAGE) -> Message:
    columns = {"zo": np.ones((rows, 16), np.float32), "o_slot": np.arange(rows, dtype=np.int32)}
    return Message(to, task, 1, seal(Header(SYNC, 1), columns))


def sent(sender: Neighbours, *messages: Message) -> list[bytes]:
    blocks = [one.block for one in sender.sendable(messages)]
    assert all(isinstance(block, bytes) for block in blocks)
    return blocks  # type: ignore[return-value]


def test_a_block_for_a_task_of_the_process_is_the_same_object_there(mailbox: Mailbox, sender: Neighbours) -> None:
    messages = message(0), message(1)
    tokens = sent(sender, *messages)
    assert all(map(is_token, tokens))
    assert sender.levels[STORAGE].now == sum(one.block.nbytes for one in messages if isinstance(one.block, Block))
    left, _ = sender.counted()
    assert left == sender.levels[STORAGE].now
    assert sender.counted()[0] == 0, "counted once"
    found = [mailbox.taken(token) for token in reversed(tokens)]
    assert [block for block, _ in found] == [one.block for one in reversed(messages)]
    assert sum(size for _, size in found) == left, "what went comes"
    assert sender.levels[STORAGE].now == 0


@pytest.mark.parametrize(
    "one",
    [message(2), message(to=TAIL), message(to="outlet"), message()._replace(block=b"a block's bytes")],
    ids=["another task", "another operator", "nobody's", "of another job"],
)
def test_whatever_goes_elsewhere_goes_as_bytes(one: Message, mailbox: Mailbox, sender: Neighbours) -> None:
    if one.block == b"a block's bytes":
        sender = Neighbours(ANOTHER_JOB, {STORAGE: "storage1"})
    (value,) = sent(sender, one)
    assert not is_token(value)
    assert mailbox.taken(value) == (value, len(value)), "bytes pass as they are"
    assert value == one.encoded().block


def test_beyond_the_bound_a_sender_waits_and_then_sends_bytes(
    mailbox: Mailbox, sender: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = message(rows=BOUND_BYTES // 64)
    tokens = sent(sender, large, large)
    assert all(map(is_token, tokens)), "what one act sends goes together: nothing of it can be taken before"
    (value,) = sent(sender, message())
    assert decode(value).get("zo").shape == (1, 16), "the receiver does not read"
    mailbox.taken(tokens[0])
    monkeypatch.setattr(neighbours, "PATIENCE_S", 60.0)  # which a busy machine needs
    reader = threading.Timer(0.02, mailbox.taken, [tokens[1]])
    reader.start()
    (value,) = sent(sender, message())
    assert is_token(value), "it was read in time"
    reader.join()


def test_a_chained_receiver_has_no_bound_and_is_no_other_task(mailbox: Mailbox) -> None:
    sender = Neighbours(JOB, {STORAGE: "storage1", TAIL: "tail1"}, (STORAGE,))
    tokens = [*sent(sender, message(rows=BOUND_BYTES // 64)), *sent(sender, message(rows=BOUND_BYTES // 64))]
    assert all(map(is_token, tokens))
    assert (sender.counted()[0], mailbox.taken(tokens[0])[1], sender.levels[STORAGE].peak) == (0, 0, 0)


def test_nothing_waits_for_a_receiver_that_has_closed(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "PATIENCE_S", 60.0)
    sender = Neighbours(JOB, {STORAGE: "storage1"})
    (token,) = sent(sender, message(rows=BOUND_BYTES // 64))
    began = time.monotonic()
    threading.Timer(0.05, mailbox.close).start()
    assert not is_token(*sent(sender, message(rows=BOUND_BYTES // 64))), "it closed while the sender waited"
    assert time.monotonic() - began < 50
    with pytest.raises(LostBlockError, match="storage1: a token came whose block is not in this process"):
        mailbox.taken(token)


def test_attempts_do_not_mix(mailbox: Mailbox, sender: Neighbours) -> None:
    (left,) = sent(sender, message())
    later = Neighbours(JOB, {STORAGE: "storage1"}, attempt=1)
    assert not is_token(*sent(later, message())), "Flink has not dropped the failed attempt's receiver yet"
    following = Mailbox([TaskAddress(JOB, "storage1", 0)], attempt=1)
    with pytest.raises(LostBlockError):
        mailbox.taken(left)  # gone with the attempt
    assert not is_token(*sent(sender, message())), "the failed attempt's sender finds nobody"
    mailbox.close()
    (token,) = sent(later, message())
    assert is_token(token), "closing the old one has left the new one"
    assert following.taken(token) is not None
    following.close()


@contextmanager
def unknown_here(mailbox: Mailbox) -> Iterator[None]:
    """Have the process find a mailbox as little as if it were another process's."""
    left = dict(neighbours.mailboxes)
    neighbours.mailboxes.clear()
    yield
    neighbours.mailboxes.update(left)


def test_a_task_of_another_process_gets_its_blocks_by_a_ring(mailbox: Mailbox, sender: Neighbours) -> None:
    one, as_bytes = message(rows=100), 0
    with unknown_here(mailbox):
        while not is_token(value := sent(sender, one)[0]):
            assert mailbox.taken(value) == (value, len(value))
            as_bytes += 1
            time.sleep(0.01)
        assert as_bytes, "until it was found"
        left, _ = sender.counted()
        block, size = mailbox.taken(value)
        assert block == one.encoded().block
        assert left == size == len(block)
        assert sender.levels[STORAGE].now == size
        sender.hear()
        assert sender.levels[STORAGE].now == 0
        tokens = [sent(sender, message(rows=300_000))[0] for _ in range(2)]
        assert is_token(tokens[0])
        assert not is_token(tokens[1]), "too much for a ring in which another one waits"
        assert sender.counted()[1] >= 0.05, "the time it waited"
        mailbox.taken(tokens[0])
        assert not is_token(*sent(sender, message(1)._replace(block=b"events"))), "task 1 was not asked before"
    sender.close()


def test_an_act_waits_once_for_a_ring_and_for_all_rings_no_longer_than_for_one(sender: Neighbours) -> None:
    boxes = [Mailbox([TaskAddress(JOB, "storage1", task)]) for task in range(4)]
    large = 300_000  # rows: two of them do not fit in a ring
    with unknown_here(boxes[0]):
        for task, box in enumerate(boxes):
            while not is_token(sent(sender, message(task, rows=large))[0]):
                box.taken(b"")
        sender.counted()
        with still_clock():
            values = sent(sender, *(message(task, rows=large) for task in range(4) for _ in range(3)))
    assert not any(map(is_token, values)), "nobody has read"
    assert sender.counted()[1] == pytest.approx(0.05)
    sender.close()
    for box in boxes:
        box.close()


def test_a_receiver_that_could_not_open_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError

    address = TaskAddress(JOB, "storage1", 0)
    with monkeypatch.context() as patched, pytest.raises(MemoryError):
        patched.setattr(neighbours, "ReceivingRings", refuse)
        Mailbox([address])
    Mailbox([address], attempt=1).close()


def test_a_later_attempt_has_rings_of_its_own(mailbox: Mailbox, sender: Neighbours) -> None:
    later = Neighbours(JOB, {STORAGE: "storage1"}, attempt=1)
    with unknown_here(mailbox):
        while not is_token(token := sent(sender, message())[0]):
            mailbox.taken(b"")
            assert not is_token(*sent(later, message()))
        following = Mailbox([TaskAddress(JOB, "storage1", 0)], attempt=1)
        with pytest.raises(LostBlockError):
            following.taken(token)
        following.close()
    sender.close()
    later.close()


def test_what_waits_in_a_ring_takes_no_room_from_tasks_of_the_process(
    mailbox: Mailbox, sender: Neighbours, monkeypatch: pytest.MonkeyPatch
) -> None:
    with unknown_here(mailbox):
        while not is_token(sent(sender, message(rows=10_000))[0]):
            mailbox.taken(b"")
    assert sender.levels[STORAGE].now > BOUND_BYTES
    monkeypatch.setattr(threading.Condition, "wait_for", lambda condition, is_so, timeout=None: is_so())
    (token,) = sent(sender, message(1))
    assert is_token(token), "there is room without a wait"
    sender.close()
