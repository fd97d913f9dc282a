"""Messages within one process: delivered in order on every channel, until nothing is under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from freshet.operators.dataflow import Dataflow, Place
from freshet.operators.outcome import Message, Outcome
from freshet.operators.stage import Stage

Channel = tuple[Place, Place]  # sender and receiver


class Network:
    """Delivers messages between the stages of one process, first in, first out on every channel.

    Messages to stages that are not here gather in `outside`, with their sender.
    """

    def __init__(self, flow: Dataflow, stages: Mapping[Place, Stage]) -> None:
        self.stages = stages
        self.outside: list[tuple[Place, Message]] = []
        self._flow = flow
        self._channels: dict[Channel, deque[Message]] = {}
        self._routes: dict[tuple[Place, str, int], Channel | None] = {}
        self._waiting: list[Channel] = []

    def send(self, sender: Place, messages: Iterable[Message]) -> None:
        """Put messages on their channels."""
        for message in messages:
            route = sender, message.to, message.task
            if route not in self._routes:
                self._routes[route] = self._channel(*route)
            if (channel := self._routes[route]) is None:
                self.outside.append((sender, message))
                continue
            queue = self._channels[channel]
            if not queue:
                self._waiting.append(channel)
            queue.append(message)

    def _channel(self, sender: Place, kind: str, task: int) -> Channel | None:
        """Return the channel to a task; None where that is not here."""
        to = Place(self._flow.receiver(sender.operator, kind), task)
        if to not in self.stages:
            return None
        self._channels.setdefault((sender, to), deque())
        return sender, to

    def step(self) -> tuple[Place, Outcome] | None:
        """Deliver the block that waits longest; what the receiver did, if that completed an epoch there."""
        channel = self._waiting[0]
        queue = self._channels[channel]
        message = queue.popleft()
        if not queue:
            self._waiting.pop(0)
        _, to = channel
        stage = self.stages[to]
        blocks = stage.offer(message.block)
        if blocks is None:
            return None
        outcome = stage.act(blocks)
        self.send(to, outcome.messages)
        return to, outcome

    def run(self, sender: Place, messages: Iterable[Message]) -> list[Message]:
        """Send messages, deliver until nothing is under way, and return what was sent to stages that are not here."""
        self.send(sender, messages)
        while not self.idle:
            self.step()
        sent, self.outside = self.outside, []
        return [message for _, message in sent]

    def close(self) -> None:
        """Close all stages."""
        for stage in self.stages.values():
            stage.close()

    @property
    def idle(self) -> bool:
        """True if nothing is under way."""
        return not self._waiting
