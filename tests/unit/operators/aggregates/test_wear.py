"""When a sum counts as worn, which rows of softmax sums are looked at, and which ones the scrubber comes to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from freshet.operators.aggregates.attention import kernels
from freshet.operators.aggregates.exact_sums import LOSSY
from freshet.operators.aggregates.sums.kernels import SCRUBBED_PER_EPOCH
from freshet.operators.storage.layer import LayerStorage
from freshet.operators.storage.shape import LayerShape
from freshet.state.task_parts import TaskParts
from tests.support.stages.blocks import sync
from tests.support.stages.twin import twin_of
from tests.unit.operators.aggregates.test_attention import KINDS, ROWS, assert_same, fold_of, gat_rows, star
from tests.unit.operators.aggregates.test_exact_sums import HUB, Star


@pytest.mark.parametrize("bits", range(30, 60, 2))
def test_a_sum_is_worn_as_soon_as_it_may_be_off_by_a_part_in_2_to_20(bits: int) -> None:
    """A neighbour comes and goes beside which the last bits of the other one vanish: no more than 2^-20 is lost."""
    for value in (32 + 2.0**-13, 32 + 2.0**-14, 33.0, 47.0 + 2.0**-18):
        beside = Star(2, width=1)
        beside.step({1: value}, add=[1])
        beside.step({2: 2.0**bits}, add=[2])
        beside.step({}, drop=[2])
        assert beside.error() <= 2.0**-20, value


def test_a_sum_that_lost_less_is_kept() -> None:
    """Summing it afresh would be right, too, but a hub would be summed afresh in every epoch."""
    beside = Star(2, width=1)
    beside.step({1: 32 + 2.0**-18}, add=[1])
    beside.step({2: 2.0**36}, add=[2])  # an ulp is 2^-16: a bound of 2^-21 of 32
    beside.step({}, drop=[2])
    kept = beside.core.relations[0].store
    assert kept.note.data[HUB, LOSSY] != 0
    assert 0 < beside.error() <= 2.0**-20
    assert kept.recomputed == 0


@pytest.mark.parametrize("head", ["both", "first", "second"])
def test_softmax_sums_that_lose_something_for_the_first_time_are_looked_at(head: str) -> None:
    """Messages come that cancel: nothing is left of the small one, in an epoch that began with exact sums."""
    kept, huge = twin_of(KINDS["gat"], ROWS), np.float32(2.0**60)
    values = gat_rows(kept, dict.fromkeys(range(4), 0.25))
    kept.apply(star([1]), values)
    fold = fold_of(kept)
    assert fold.note.data[0, LOSSY] == 0
    fold.counts[:] = 0
    of = {"both": slice(0, 4), "first": slice(0, 2), "second": slice(2, 4)}[head]
    up, down = [0.0] * 4, [0.0] * 4
    up[of] = [float(huge)] * len(up[of])
    down[of] = [-float(huge)] * len(down[of])
    kept.apply(star([1, 2, 3]), {2: [*up, *values[2][4:]], 3: [*down, *values[3][4:]]})
    got = kept.layer.synopsis.read(kept.read(), np.zeros(kept.rows, np.int32))[0]
    want = np.array(values[1][:4], np.float32) / 3
    np.testing.assert_allclose(got[:4], want, rtol=1e-6, atol=0)
    assert fold.counts[kernels.AFRESH] == 1
    assert_same(kept)


def rings(star: Star, vertices: list[int]) -> LayerStorage:
    """A Storage with so many vertices in each part, of which every one has the one before as its in-neighbour."""
    parts = len(vertices)
    core = LayerStorage(LayerShape(0, TaskParts.dealt(parts, 1), 1, star.core.shape.layer, None))
    slots = [k for count in vertices for k in range(count)]
    parts_of = [part for part, count in enumerate(vertices) for _ in range(count)]

    def to(name: str) -> dict[str, Any]:
        return {f"{name}_to": parts_of} if parts > 1 else {}

    brought: dict[str, Any] = {"m_slot": slots, "m_key": list(range(len(slots))), "o_slot": slots}
    brought["zo"] = [np.full(2 * star.width, 1.0 + k, np.float32) for k in range(len(slots))]
    after = [(k + 1) % vertices[part] for k, part in zip(slots, parts_of, strict=True)]
    edges: dict[str, Any] = {"add_src": slots, "add_dst": after, "add_w": [1.0] * len(slots)}
    core.apply(1, [sync(1, **brought, **edges, **to("m"), **to("o"), **to("add"))])
    return core


@pytest.mark.parametrize("vertices", [[6], [7], [41], [5, 1, 12], [3, 20]], ids=str)
def test_the_scrubber_comes_to_every_row_of_every_part_and_again(vertices: list[int]) -> None:
    """By turns; a row that nothing else touches is put right in the time that the largest part takes."""
    core, epoch = rings(Star(1), vertices), 1
    data, shift = core.relations[0].store.s.data, core.relations[0].store.lists.targets.shift
    rows = np.array([(part << shift) + k for part, count in enumerate(vertices) for k in range(count)])
    right = data[rows].copy()
    assert (right > 0).all()
    rounds = len(vertices) * (-(-max(vertices) // SCRUBBED_PER_EPOCH) + 1)
    for once_more in (1, 2):
        data[rows] += 0.5
        for _ in range(rounds):
            epoch += 1
            core.apply(epoch, [sync(epoch)])
        assert np.array_equal(data[rows], right)
        assert core.sums["differed"] == once_more * len(rows)
    assert core.sums["scrubbed"] >= 2 * len(rows)
