"""How operators are wired, for the runtimes that are not Flink: who sends to whom, in which order blocks may arrive."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from operators.messages import SINK, STORAGE, TAIL, Message, Outcome
from operators.stage import Stage

PARTITIONER = "partitioner"


def operators_of(layers: int, parts: int) -> list[str]:
    """The keyed operators after the Partitioner, in the order of the flow."""
    names = ["storage0"]
    for layer in range(1, layers + 1):
        names.append(f"storage{layer}")
        if parts > 1:
            names.append(f"tail{layer}")
    return [*names, SINK]


def senders_of(operator: str, parts: int) -> int:
    """How many blocks an epoch brings to each part of an operator."""
    if operator == "storage0":
        return 1
    if operator in ("storage1",) or operator.startswith(TAIL) or parts == 1:
        return parts
    return 2 * parts  # storage and tail of the layer before


def receiver(sender: str, to: str) -> str:
    """The operator that a message of `sender` addressed `to` goes to."""
    if to == SINK:
        return SINK
    layer = -1 if sender == PARTITIONER else int(sender.removeprefix(STORAGE).removeprefix(TAIL))
    return f"{TAIL}{layer}" if to == TAIL else f"{STORAGE}{layer + 1}"


Channel = tuple[str, int, str, int]  # sender, its part, receiver, its part


class Network:
    """Delivers messages between the stages of one process, first in, first out on every channel.

    Messages to operators that are not here gather in `outside`, with operator and part of their sender.
    """

    def __init__(self, stages: dict[tuple[str, int], Stage]) -> None:
        self.stages = stages
        self.outside: list[tuple[str, int, Message]] = []
        self._channels: dict[Channel, deque[Message]] = {}
        self._waiting: list[Channel] = []

    def send(self, sender: str, part: int, messages: Iterable[Message]) -> None:
        """Put messages on their channels."""
        for message in messages:
            to = receiver(sender, message.to)
            if (to, message.part) not in self.stages:
                self.outside.append((sender, part, message))
                continue
            channel = (sender, part, to, message.part)
            queue = self._channels.setdefault(channel, deque())
            if not queue:
                self._waiting.append(channel)
            queue.append(message)

    def step(self) -> tuple[str, int, Outcome] | None:
        """Deliver the block that waits longest; what the receiver did, if that completed an epoch there."""
        channel = self._waiting[0]
        queue = self._channels[channel]
        message = queue.popleft()
        if not queue:
            self._waiting.pop(0)
        _, _, operator, part = channel
        stage = self.stages[operator, part]
        blocks = stage.offer(message.block)
        if blocks is None:
            return None
        outcome = stage.act(blocks)
        self.send(operator, part, outcome.messages)
        return operator, part, outcome

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._waiting
