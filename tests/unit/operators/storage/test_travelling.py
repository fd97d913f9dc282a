"""The topology for tasks that have other parts: shares of it, and the whole of several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshet.operators.storage.travelling import share_of, together
from freshet.state.block_columns import DTYPES, SYNC
from freshet.state.codec import Block, Header, seal
from tests.support.stages.blocks import sync

TWO_PARTS: dict[str, Any] = {  # of parts 2 and 3
    "m_to": [3, 2, 3],
    "m_slot": [7, 8, 9],
    "m_key": [70, 80, 90],
    "m_off": [0, 1, 3, 3],
    "m_name": list(b"abc"),
    "add_to": [2, 3],
    "add_src": [1, 2],
    "add_dst": [3, 4],
    "add_w": [0.5, 2.0],
    "s_to": [3],
    "s_slot": [9],
}
ONE_PART: dict[str, Any] = {"m_slot": [5], "m_key": [50], "m_off": [0, 2], "m_name": list(b"xy"), "d_slot": [1]}
POSITIONS = {"pos_source": [0], "pos_partition": [1], "pos_next": [2], "pos_events": [3]}


def lists(columns: Any) -> dict[str, Any]:
    return {name: column.tolist() for name, column in columns.items() if name != "ctl" and column.size}


def test_a_task_with_the_same_parts_gets_the_columns_as_they_are() -> None:
    block = sync(3, **TWO_PARTS)
    found = share_of(block, range(2, 4), range(2, 4))
    assert all(found[name] is column for name, column in block.columns.items())


def test_a_task_with_some_of_the_parts_gets_their_records() -> None:
    block = sync(3, **TWO_PARTS, **POSITIONS)
    three = share_of(block, range(2, 4), range(3, 6))
    assert lists(three) == {
        **{"m_slot": [7, 9], "m_key": [70, 90], "m_off": [0, 1, 1], "m_name": [97], "m_to": [3, 3]},
        **{"add_src": [2], "add_dst": [4], "add_w": [2.0], "add_to": [3], "s_slot": [9], "s_to": [3]},
    }
    two = share_of(block, range(2, 4), range(2, 3))
    assert lists(two) == {
        **{"m_slot": [8], "m_key": [80], "m_off": [0, 2], "m_name": [98, 99]},
        **{"add_src": [1], "add_dst": [3], "add_w": [0.5]},
    }
    assert "ctl" in two
    assert {name: values.dtype for name, values in three.items()} == {name: DTYPES[name] for name in three}


def test_a_task_with_more_parts_is_told_which_one_it_is() -> None:
    found = share_of(sync(3, **ONE_PART, **POSITIONS), range(0, 1), range(0, 4))
    assert lists(found) == {**ONE_PART, **POSITIONS, "m_to": [0], "d_to": [0]}
    assert lists(share_of(sync(3, **ONE_PART, **POSITIONS), range(2, 3), range(2, 4))) == {
        **{**ONE_PART, "m_to": [2], "d_to": [2]}
    }


@pytest.mark.parametrize(
    "receivers", [[range(0, 6)], [range(0, 3), range(3, 6)], [range(0, 2), range(2, 5), range(5, 6)]]
)
def test_shares_of_all_senders_are_the_whole(receivers: list[range]) -> None:
    """No record is lost or doubled, and those of a part keep their order."""
    rng = np.random.default_rng(4)
    senders, blocks = [range(0, 1), range(1, 4), range(4, 6)], []
    for source, parts in enumerate(senders):
        count = 12
        to = rng.integers(parts.start, parts.stop, count).astype(np.int16)
        columns: dict[str, Any] = {"c_slot": np.arange(count, dtype=np.int32), "c_degree": rng.random(count)}
        columns |= {"c_to": to} if len(parts) > 1 else {}
        blocks.append(seal(Header(SYNC, 1, 1, source, 0), {"ctl": np.zeros(8, np.int64), **columns}))
    found = []
    for there in receivers:
        shares = [
            Block(block.header, share_of(block, parts, there))
            for block, parts in zip(blocks, senders, strict=True)
            if parts.start < there.stop and there.start < parts.stop
        ]
        whole = together(shares)
        to = whole.columns.get("c_to", np.full(whole.get("c_slot").size, there.start))
        assert set(to.tolist()) <= set(there)
        found += list(zip(to.tolist(), whole.get("c_slot").tolist(), whole.get("c_degree").tolist(), strict=True))
    expected = [
        (int(to), slot, degree)
        for block, parts in zip(blocks, senders, strict=True)
        for to, slot, degree in zip(
            block.columns.get("c_to", np.full(12, parts.start)),
            block.get("c_slot").tolist(),
            block.get("c_degree").tolist(),
            strict=True,
        )
    ]
    assert sorted(found, key=lambda one: one[0]) == sorted(expected, key=lambda one: one[0])


def test_names_of_several_are_joined() -> None:
    whole = together(
        [sync(3, 0, **ONE_PART), sync(3, 1, m_slot=[6, 7], m_key=[60, 70], m_off=[0, 1, 1], m_name=list(b"z"))]
    )
    assert lists(whole.columns) == {
        **{"m_slot": [5, 6, 7], "m_key": [50, 60, 70], "m_off": [0, 2, 3, 3], "m_name": list(b"xyz"), "d_slot": [1]}
    }
