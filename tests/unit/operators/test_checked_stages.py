"""The checks around every stage of the tests (tests/support/stages/checked.py) find what they are there to find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from freshet.operators.control import LAST, control_values
from freshet.operators.core import Core
from freshet.operators.dataflow import SINK, STORAGE
from freshet.operators.epochs.cut_log import CutLog
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.outcome import Message, Outcome
from freshet.operators.stage import Stage
from freshet.state.block_columns import ROWS, SYNC, TOPOLOGY
from freshet.state.codec import Block, Header, seal
from freshet.state.table import TableSet
from tests.support.stages.sealed import Job, edges

Change = Callable[[int], list[Message]]


class Told(Core):
    """A core that sends what it is told."""

    def __init__(self, change: Change) -> None:
        self.tables, self.change = TableSet(), change

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        return self.change(epoch)


def rows(epoch: int, task: int = 0, kind: int = ROWS, **columns: Any) -> Message:
    given = {"key": np.arange(2), "row": np.ones((2, 3), np.float32)} | columns
    return Message(SINK, task, epoch, seal(Header(kind, epoch), given))


def run(change: Change, epochs: int = 3, last: int = 99, **columns: Any) -> Stage:
    stage = Stage("storage1-0", Told(change), 1)
    for epoch in range(1, epochs + 1):
        control = control_values(flags=LAST if epoch == last else 0)
        complete = stage.offer(seal(Header(SYNC, epoch), {"ctl": control, **columns}))
        assert complete is not None
        stage.act(complete)
    return stage


def test_what_is_right_passes() -> None:
    run(lambda epoch: [rows(epoch), rows(epoch, 1)])
    run(lambda epoch: [rows(epoch)], epochs=2, last=2)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda epoch: [rows(epoch, key=np.arange(2, dtype=np.int32))], "key is int32, not int64"),
        (lambda epoch: [rows(epoch, row=np.ones((2, 3)))], "row is float64, not float32"),
        (lambda epoch: [rows(epoch, row=np.ones(6, np.float32))], "row has 1 dimensions"),
        (lambda epoch: [rows(epoch, row=np.ones((2, 2 + epoch), np.float32))], "row is 4 wide, and was 3"),
        (lambda epoch: [rows(epoch, z_slot=np.zeros(1, np.int32))], "has a column z_slot"),
        (lambda epoch: [rows(epoch, kind=SYNC)], f"of kind {SYNC} came to a stage that takes"),
        (lambda epoch: [rows(1)], r"acted on epoch 2, with blocks of \[1, 2\]"),
        (lambda epoch: [rows(epoch)._replace(epoch=1)], r"acted on epoch 2, with blocks of \[1, 2\]"),
        (lambda epoch: [rows(1)._replace(epoch=epoch)], "a block of epoch 1 was sent as of epoch 2"),
        (lambda epoch: [rows(epoch), rows(epoch)], "epoch 1: several blocks for one of"),
        (lambda epoch: [rows(epoch, task) for task in range(epoch)], r"epoch 2 went to \[.*\], not"),
        (lambda epoch: [rows(epoch)] * (epoch != 2), "epoch 3 was sent after epoch 1"),
    ],
)
def test_what_a_stage_sends_wrongly_is_found(change: Change, error: str) -> None:
    with pytest.raises(AssertionError, match=error):
        run(change)


def test_what_a_stage_is_offered_wrongly_is_found() -> None:
    with pytest.raises(AssertionError, match="m_key is float32, not int64"):
        run(lambda epoch: [], m_key=np.ones(1, np.float32))
    with pytest.raises(AssertionError, match="epoch 3 came after the end, which is epoch 2"):
        run(lambda epoch: [], last=2)
    stage = run(lambda epoch: [])
    stage.close()
    with pytest.raises(AssertionError, match="came to a stage that is closed"):
        stage.offer(seal(Header(SYNC, 4), {}))


def sealing(change: Callable[[Message], Message], monkeypatch: pytest.MonkeyPatch) -> Job:
    """A Partitioner that was broken."""
    seal_one = PartitionerStage._seal

    def broken(self: PartitionerStage, *given: Any) -> Outcome:
        outcome = seal_one(self, *given)
        return Outcome([change(message) for message in outcome.messages], outcome.mutations)

    monkeypatch.setattr(PartitionerStage, "_seal", broken)
    return Job(CutLog())


def altered(message: Message, epoch: int, **columns: Any) -> Message:
    block = message.block
    assert isinstance(block, Block)
    return Message(STORAGE, message.task, epoch, seal(Header(TOPOLOGY, epoch), {**block.columns, **columns}))


def test_what_the_partitioner_seals_wrongly_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, pytest.raises(AssertionError, match="m_slot is int64, not int32"):
        sealing(lambda m: altered(m, m.epoch, m_slot=np.arange(2)), patched).receive(8)
    with monkeypatch.context() as patched, pytest.raises(AssertionError, match="epoch 1 was sent after epoch 2"):
        sealing(lambda m: altered(m, 3 - m.epoch), patched).receive(8)
    with monkeypatch.context() as patched, pytest.raises(AssertionError, match="epoch 3 was sent after epoch 1"):
        sealing(lambda m: altered(m, 2 * m.epoch - 1), patched).receive(8)


def test_nothing_is_sealed_after_the_end() -> None:
    job = Job(CutLog())
    job.receive(6)
    job.keep(job.stage.finish())
    with pytest.raises(AssertionError, match="epoch 3 came after the end, which is epoch 2"):
        job.stage.receive(edges(4, 6), 0.0)
