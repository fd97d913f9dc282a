"""Checks around every stage: blocks are as the table of columns says, epochs ascend, and nothing comes after the end.

`check_stages` puts them around the stages that ship, wherever a test, the simulator or a job with faults makes one.
A violation is an AssertionError of the stage that sent the block, or that was offered it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from freshet.operators.control import FLAGS, LAST
from freshet.operators.dataflow import PARTITIONER, SINK, STORAGE, TAIL
from freshet.operators.epochs.partitioner_stage import PartitionerStage
from freshet.operators.outcome import Message, Outcome
from freshet.operators.stage import Stage
from freshet.state.block_columns import DTYPES, EVENTS, PARTIAL, ROWS, SYNC, TABLE, TOPOLOGY, split_name
from freshet.state.codec import Block, decode

# Kinds of blocks by the kind of operator that they are addressed to; what goes to the outlet is no block.
_SENT_TO = {STORAGE: (TOPOLOGY, SYNC), TAIL: (PARTIAL,), SINK: (ROWS,), PARTITIONER: (EVENTS,)}
_COLUMNS = {kind: {column.name: column for column in row.columns} for kind, row in TABLE.items()}


def assert_as_told(block: Block) -> None:
    """Every column is one that the table has for this kind of block, of its dtype and dimensions."""
    kind = block.header.kind
    for name, values in block.columns.items():
        column = _COLUMNS[kind].get(split_name(name)[1])
        assert column is not None, f"a block of kind {kind} has a column {name}"
        assert values.dtype == DTYPES[name], f"{name} is {values.dtype}, not {DTYPES[name]}"
        is_matrix = column.width and f"{name}_widths" not in block.columns
        assert values.ndim == (2 if is_matrix else 1), f"{name} has {values.ndim} dimensions"


class _Checks:
    """What a stage has sent since it was made or restored.

    Invariant: each epoch has one block for each of the same receivers, and is the one after the last.
    """

    def __init__(self) -> None:
        self.sent: int | None = None  # the newest epoch
        self.ended: int | None = None  # the last epoch that there is, once it is known
        self.is_closed = False
        self._receivers: list[tuple[str, int]] = []
        self._widths: dict[tuple[str, str], int] = {}

    def assert_open(self, epoch: int | None = None) -> None:
        """Nothing is asked of a closed stage, and no epoch comes after the last."""
        assert not self.is_closed, "something came to a stage that is closed"
        late = self.ended is not None and epoch is not None and epoch > self.ended
        assert not late, f"epoch {epoch} came after the end, which is epoch {self.ended}"

    def receive(self, block: Block, *kinds: int) -> None:
        """A block has come; one of the end says so in its controls."""
        assert block.header.kind in kinds, f"a block of kind {block.header.kind} came to a stage that takes {kinds}"
        assert_as_told(block)
        if block.header.kind != EVENTS and "ctl" in block.columns and int(block.columns["ctl"][FLAGS]) & LAST:
            self.ended = block.header.epoch

    def send(self, messages: Iterable[Message]) -> None:
        """Messages for other stages; they may be of several epochs."""
        by_epoch: dict[int, list[Message]] = {}
        for message in messages:
            if message.to in _SENT_TO:
                by_epoch.setdefault(message.epoch, []).append(message)
        for epoch, group in by_epoch.items():
            self._send(epoch, group)

    def _send(self, epoch: int, messages: list[Message]) -> None:
        self.assert_open(epoch)
        assert self.sent is None or epoch == self.sent + 1, f"epoch {epoch} was sent after epoch {self.sent}"
        receivers = sorted((message.to, message.task) for message in messages)
        assert len(set(receivers)) == len(receivers), f"epoch {epoch}: several blocks for one of {receivers}"
        assert receivers == (self._receivers or receivers), f"epoch {epoch} went to {receivers}, not {self._receivers}"
        self.sent, self._receivers = epoch, receivers
        for message in messages:
            block = message.block if isinstance(message.block, Block) else decode(message.block)
            assert block.header.epoch == epoch, f"a block of epoch {block.header.epoch} was sent as of epoch {epoch}"
            self.receive(block, *_SENT_TO[message.to])
            for name, values in block.columns.items():
                if values.ndim == 2:
                    width = self._widths.setdefault((message.to, name), values.shape[1])
                    assert values.shape[1] == width, f"{name} is {values.shape[1]} wide, and was {width}"


_checks: WeakKeyDictionary[Any, _Checks] = WeakKeyDictionary()
_OFFERED = (TOPOLOGY, SYNC, PARTIAL, ROWS)


def _of(stage: Any) -> _Checks:
    return _checks.setdefault(stage, _Checks())


def _checked_offer(offer: Callable[..., Any]) -> Callable[..., Any]:
    def checked(self: Stage, block: Block | bytes) -> Any:
        one = block if isinstance(block, Block) else decode(block)
        _of(self).assert_open(one.header.epoch)
        assert one.header.kind in _OFFERED
        assert_as_told(one)
        return offer(self, block)

    return checked


def _checked_act(act: Callable[..., Outcome]) -> Callable[..., Outcome]:
    def checked(self: Stage, blocks: list[Block | bytes]) -> Outcome:
        decoded = [block if isinstance(block, Block) else decode(block) for block in blocks]
        outcome, checks = act(self, decoded), _of(self)
        epochs = {block.header.epoch for block in decoded} | {message.epoch for message in outcome.messages}
        assert epochs == {self.epoch}, f"{self.name} has acted on epoch {self.epoch}, with blocks of {sorted(epochs)}"
        checks.send(outcome.messages)
        for block in decoded:
            checks.receive(block, *_OFFERED)
        return outcome

    return checked


def _checked_outcome(method: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """Of the Partitioner: what it seals now."""

    def checked(self: PartitionerStage, *given: Any) -> Outcome:
        checks = _of(self)
        checks.assert_open()
        if method.__name__ == "receive":
            checks.receive(decode(given[0]), EVENTS)
        outcome = method(self, *given)
        checks.send(outcome.messages)
        return outcome

    return checked


def _checked_outcomes(method: Callable[..., Iterable[Outcome]]) -> Callable[..., Iterator[Outcome]]:
    """Of the Partitioner: what it replays, alone or at the beginning of an attempt."""

    def checked(self: PartitionerStage, *given: Any) -> Iterator[Outcome]:
        for outcome in method(self, *given):
            checks = _of(self)
            seen = [message.epoch for message in outcome.messages]
            if checks.sent is None or any(epoch != checks.sent for epoch in seen):  # `begin` passes on what it replays
                checks.send(outcome.messages)
            yield outcome

    return checked


def _begins(restore: Callable[..., None]) -> Callable[..., None]:
    def checked(self: Any, *given: Any) -> None:
        _checks[self] = _Checks()
        restore(self, *given)

    return checked


def _ends(close: Callable[..., None]) -> Callable[..., None]:
    def checked(self: Any) -> None:
        close(self)
        _of(self).is_closed = True

    return checked


def check_stages() -> None:
    """Check all stages of this process from now on."""
    if getattr(Stage, "is_checked", False):
        return
    Stage.is_checked = True  # type: ignore[attr-defined]
    wrappers: dict[type, dict[str, Callable[..., Any]]] = {
        Stage: {"offer": _checked_offer, "act": _checked_act, "restore": _begins, "close": _ends},
        PartitionerStage: {
            **dict.fromkeys(("receive", "tick", "finish"), _checked_outcome),
            **dict.fromkeys(("begin", "replay"), _checked_outcomes),
            **{"restore": _begins, "close": _ends},
        },
    }
    for one, methods in wrappers.items():
        for name, wrapper in methods.items():
            setattr(one, name, wrapper(getattr(one, name)))
