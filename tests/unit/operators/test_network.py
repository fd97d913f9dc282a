import numpy as np
import pytest

from freshet.operators.core import Core
from freshet.operators.dataflow import PARTITIONER, SINK, STORAGE, Dataflow, Place
from freshet.operators.network import Network
from freshet.operators.outcome import Message
from freshet.operators.stage import OutOfOrderError, Stage
from freshet.state.block_columns import ROWS, SYNC
from freshet.state.codec import Block, Header, encode
from freshet.state.table import TableSet


class Relay(Core):
    """Sends the sum of what it got to every part of the next operator."""

    def __init__(self, part: int, parts: int, to: str | None) -> None:
        self.tables, self.part, self.parts, self.to = TableSet(), part, parts, to
        self.added: list[int] = []

    def after_restore(self) -> None:
        pass

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        self.added.append(sum(int(block.columns["m_key"][0]) for block in blocks))
        if self.to is None:
            return []
        data = message(epoch, self.part, self.added[-1], ROWS if self.to == SINK else SYNC)
        return [Message(self.to, part, epoch, data) for part in range(self.parts)]


def message(epoch: int, source: int, value: int, kind: int = SYNC) -> bytes:
    return encode(Header(kind, epoch, 0, source), {"m_key": np.array([value])})


def network() -> tuple[Network, list[Relay]]:
    """Two parts of storage 0, storage 1 and the sink."""
    flow = Dataflow(1, 2)
    stages, sinks = {}, []
    for name, to in (("storage0", STORAGE), ("storage1", SINK), (SINK, None)):
        for place in flow[name].places:
            core = Relay(place.number, 2, to)
            stages[place] = Stage(str(place), core, 1 if name == "storage0" else 2)
            sinks += [core] if name == SINK else []
    return Network(flow, stages), sinks


def test_every_block_arrives_once() -> None:
    delivery, sinks = network()
    for epoch in range(1, 6):
        blocks = [Message(STORAGE, part, epoch, message(epoch, 0, epoch + part)) for part in range(2)]
        delivery.send(Place(PARTITIONER, 0), blocks)
    acted = 0
    while not delivery.idle:
        acted += delivery.step() is not None
    assert [sink.added for sink in sinks] == [[2 * (2 * epoch + 1) for epoch in range(1, 6)]] * 2
    assert acted == 5 * 6


def test_what_a_stage_refuses_is_not_swallowed() -> None:
    delivery, _ = network()
    delivery.send(Place(PARTITIONER, 0), [Message(STORAGE, 0, 1, message(1, 0, 1))] * 2)
    delivery.step()
    with pytest.raises(OutOfOrderError, match="storage0-0: epoch 1 from part 0 came again"):
        while not delivery.idle:
            delivery.step()
