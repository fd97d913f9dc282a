import itertools
import random

import numpy as np
import pytest

from freshet.operators.control import control_values
from freshet.operators.core import Core
from freshet.operators.outcome import Message
from freshet.operators.stage import OutOfOrderError, Stage
from freshet.state.block_columns import PARTIAL, SYNC
from freshet.state.codec import Block, Header, encode
from freshet.state.table import TableSet


class Notebook(Core):
    """A core that writes down what it was given, and adds it up in a table."""

    def __init__(self) -> None:
        self.tables = TableSet()
        self.total = self.tables.add("total", "i8")
        self.total.reserve(1)
        self.seen: list[tuple[int, list[tuple[int, int, int]]]] = []
        self.restored = 0

    def after_restore(self) -> None:
        self.restored += 1

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        self.seen.append((epoch, [(b.header.kind, b.header.flags, b.header.source) for b in blocks]))
        self.total.touch_rows(np.array([0]))
        self.total.data[0] += sum(int(block.columns["m_key"].sum()) for block in blocks)
        return [Message("storage", 0, epoch, encode(Header(SYNC, epoch), {}))]


def block(epoch: int, source: int, value: int = 1, *, flags: int = 0, kind: int = SYNC, marker: int = -1) -> bytes:
    columns = {"m_key": np.array([value])} | ({"ctl": control_values(marker)} if source == 0 and flags == 0 else {})
    return encode(Header(kind, epoch, 1, source, flags), columns)


def fed(stage: Stage, blocks: list[bytes]) -> None:
    for one in blocks:
        complete = stage.offer(one)
        if complete is not None:
            stage.act(complete)


def test_it_acts_when_every_sender_has_sent() -> None:
    stage = Stage("storage1-0", Notebook(), senders=3)
    assert stage.offer(block(1, 0)) is None
    assert stage.offer(block(1, 2)) is None
    assert stage.waiting == 2
    complete = stage.offer(block(1, 1))
    assert complete is not None
    assert stage.waiting == 0
    outcome = stage.act(complete)
    assert [message.epoch for message in outcome.messages] == [1]
    assert stage.epoch == 1


def test_blocks_come_to_the_core_in_one_order_whatever_the_order_of_arrival() -> None:
    """Storages before tails, each by their part."""
    arrivals = [block(1, source, flags=flags) for source in range(3) for flags in (0, 1)]
    for order in itertools.islice(itertools.permutations(arrivals), 0, 720, 37):
        core = Notebook()
        fed(Stage("storage2-0", core, senders=6), list(order))
        assert core.seen == [(1, [(SYNC, flags, source) for flags in (0, 1) for source in range(3)])]


def test_epochs_may_overlap_on_the_way() -> None:
    """Channels are first in, first out; across them anything goes."""
    rng = random.Random(5)
    channels = [[block(epoch, source, epoch) for epoch in range(1, 30)] for source in range(4)]
    core = Notebook()
    stage = Stage("tail1-0", core, senders=4)
    while any(channels):
        fed(stage, [rng.choice([channel for channel in channels if channel]).pop(0)])
    assert [epoch for epoch, _ in core.seen] == list(range(1, 30))
    assert core.total.data[0] == 4 * sum(range(1, 30))
    assert stage.waiting == 0


def test_a_repeated_block_is_refused() -> None:
    stage = Stage("storage1-3", Notebook(), senders=2)
    stage.offer(block(1, 0))
    with pytest.raises(OutOfOrderError, match="storage1-3: epoch 1 from part 0 came again, at epoch 0"):
        stage.offer(block(1, 0))
    fed(stage, [block(1, 1)])
    with pytest.raises(OutOfOrderError, match="epoch 1 from part 1 came again, at epoch 1"):
        stage.offer(block(1, 1))


def test_two_kinds_or_two_operators_of_one_part_are_two_senders() -> None:
    stage = Stage("storage2-0", Notebook(), senders=3)
    assert stage.offer(block(1, 0)) is None
    assert stage.offer(block(1, 0, flags=1)) is None
    assert stage.offer(block(1, 0, kind=PARTIAL)) is not None


def test_a_lost_block_is_noticed_when_the_next_epoch_is_complete() -> None:
    stage = Stage("storage1-0", Notebook(), senders=2)
    fed(stage, [block(1, 0), block(2, 0)])
    complete = stage.offer(block(2, 1))
    assert complete is not None
    with pytest.raises(OutOfOrderError, match="epoch 2 is complete, but the next one is 1"):
        stage.act(complete)


def test_a_marker_in_the_control_values_begins_a_sweep() -> None:
    stage = Stage("storage1-0", Notebook(), senders=1)
    puts: list[str] = []
    for epoch in range(1, 5):
        complete = stage.offer(block(epoch, 0, marker=epoch // 2 if epoch % 2 == 0 else -1))
        assert complete is not None
        puts.append(" ".join(sorted(key for key, _ in stage.act(complete).puts)))
    assert puts == ["format", "meta@1", "total/0@1", "meta@2"]
    assert stage.sweeper.marker == 2


def test_a_restored_stage_goes_on_where_its_cut_stands() -> None:
    stage, entries = Stage("storage1-0", Notebook(), senders=1), dict[str, bytes]()
    for epoch in range(1, 6):
        complete = stage.offer(block(epoch, 0, epoch, marker=0 if epoch in (2, 4) else -1))
        assert complete is not None
        entries |= dict(stage.act(complete).puts)
    core = Notebook()
    again = Stage("storage1-0", core, senders=1)
    again.restore(entries.items())
    assert again.epoch == 2, "the marker before the last: epochs 3 to 5 come again"
    assert core.restored == 1
    assert core.total.data[0] == 1 + 2
    fed(again, [block(epoch, 0, epoch) for epoch in (3, 4, 5)])
    assert core.total.data[0] == 15


def test_memory_counts_tables_and_inbox() -> None:
    core = Notebook()
    stage = Stage("storage1-0", core, senders=2)
    empty = stage.memory_bytes
    assert empty >= core.total.data.nbytes
    waiting = block(1, 0)
    stage.offer(waiting)
    assert stage.memory_bytes == empty + len(waiting)
    held, epochs = stage.levels["inbox_bytes"], stage.levels["inbox_epochs"]
    ahead = [block(2, 0), block(3, 0)]
    fed(stage, ahead)
    assert (held.now, epochs.now) == (len(waiting) + sum(map(len, ahead)), 3)
    fed(stage, [block(1, 1)])
    assert (held.now, epochs.now) == (sum(map(len, ahead)), 2), "what completes an epoch does not wait"
    fed(stage, [block(2, 1), block(3, 1)])
    assert (held.now, epochs.now) == (0, 0)
    assert (held.peak, epochs.peak) == (len(waiting) + sum(map(len, ahead)), 3)
    assert stage.memory_bytes == empty
