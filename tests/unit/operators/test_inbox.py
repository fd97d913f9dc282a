import random
import tempfile
from pathlib import Path

import numpy as np
import pytest

from freshet.operators.inbox import INBOX_BYTES, Inbox
from freshet.state.block_columns import SYNC
from freshet.state.codec import Block, Header, decode, encode, seal


def block(epoch: int, source: int, size: int = 10) -> tuple[Header, bytes]:
    header = Header(SYNC, epoch, 1, source)
    return header, encode(header, {"value": np.full(size, 100 * epoch + source)})


def test_a_block_waits_for_the_others_of_its_epoch() -> None:
    inbox = Inbox(senders=3)
    first, second, third = (block(1, source) for source in (2, 0, 1))
    assert inbox.put(*first) is None
    assert inbox.holds(first[0])
    assert not inbox.holds(second[0])
    assert inbox.put(*block(2, 2)) is None
    assert inbox.put(*second) is None
    assert (inbox.blocks, inbox.nbytes) == (3, 3 * len(first[1]))
    assert inbox.put(*third) == [second[1], third[1], first[1]], "by their part"
    assert (inbox.blocks, inbox.nbytes, inbox.levels["inbox_epochs"].now) == (1, len(first[1]), 1)


def test_what_is_past_the_bound_waits_in_a_file_and_comes_back_as_it_was() -> None:
    """One way far ahead of the other, whose turn then comes."""
    size = len(block(1, 0)[1])
    inbox = Inbox(senders=2, bound=3 * size)
    held, aside, epochs = (inbox.levels[f"inbox_{name}"] for name in ("bytes", "file_bytes", "epochs"))
    for round_ in range(3):
        first = 1 + 20 * round_
        for epoch in range(first, first + 20):
            assert inbox.put(*block(epoch, 0)) is None
        assert (held.now, aside.now, epochs.now, inbox.blocks) == (3 * size, 17 * size, 20, 20)
        for epoch in range(first, first + 20):
            assert inbox.put(*block(epoch, 1)) == [block(epoch, 0)[1], block(epoch, 1)[1]]
        assert (held.now, aside.now, epochs.now, inbox.blocks) == (0, 0, 0, 0)
    assert (held.peak, held.bound, aside.peak) == (3 * size, 3 * size, 17 * size), "the file is used again"
    inbox.close()


def test_decoded_blocks_may_wait_in_a_file_too() -> None:
    inbox = Inbox(senders=2, bound=0)
    header = Header(SYNC, 1, 1, 0)
    inbox.put(header, seal(header, {"value": np.arange(5)}))
    complete = inbox.put(*block(1, 1))
    assert complete is not None
    (back, _) = (one if isinstance(one, Block) else decode(one) for one in complete)
    assert back.header == header
    assert back.columns["value"].tolist() == list(range(5))


def test_blocks_of_any_size_in_any_order_are_what_they_were() -> None:
    rng = random.Random(3)
    senders, inbox = 4, Inbox(4, bound=2000)
    channels = [[block(epoch, source, rng.randrange(1, 120)) for epoch in range(60)] for source in range(senders)]
    sent = {header: data for channel in channels for header, data in channel}
    while any(channels):
        header, data = rng.choice([channel for channel in channels if channel]).pop(0)
        complete = inbox.put(header, data)
        assert inbox.nbytes <= 2000
        for one in complete or ():
            assert isinstance(one, bytes)
            assert sent.pop(decode(one).header) == one
    assert not sent
    assert inbox.levels["inbox_file_bytes"].peak > 10_000
    assert (inbox.blocks, inbox.nbytes, inbox.levels["inbox_file_bytes"].now) == (0, 0, 0)


def test_the_file_has_no_name_and_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    inbox = Inbox(senders=2, bound=0)
    inbox.put(*block(1, 0))
    assert inbox.levels["inbox_file_bytes"].now > 0
    assert list(tmp_path.iterdir()) == []
    inbox.close()
    inbox.close()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(OSError, match="none"):
        Inbox(senders=2, bound=0).put(*block(1, 0))


def test_one_sender_never_waits() -> None:
    inbox = Inbox(senders=1)
    for epoch in range(1, 4):
        header, data = block(epoch, 0)
        assert inbox.put(header, data) == [data]
    assert {name: level.peak for name, level in inbox.levels.items()} == {name: 0 for name in inbox.levels}
    assert inbox.levels["inbox_bytes"].bound == 0
    assert Inbox(senders=2).levels["inbox_bytes"].bound == INBOX_BYTES
