"""Sums stay what their in-edges say, whatever came and went: held by exact arithmetic (math.fsum) after every epoch."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshet.gnn.model import build_model
from freshet.gnn.plan import compile_plan
from freshet.operators.aggregates import exact_sums
from freshet.operators.aggregates.sums.kernels import SCRUBBED_PER_EPOCH
from freshet.operators.storage.layer import LayerStorage
from freshet.operators.storage.shape import LayerShape
from freshet.state.task_parts import TaskParts
from tests.support.stages.blocks import sent, sync

HUB = 0
# Far apart, so that sums of them lose bits, cancel and overflow.
ODD = [0.0, 1.0, -1.0, 0.1, 3.0, 1e-30, 18.7, -5e7, 1e8, 1e20, -1e20, 3e38, -3e38, float("inf")]


class Star:
    """A Storage whose in-edges all end at vertex 0, and what its sum has to be.

    Shapes: value by source, (width,) float32; weight by source.
    """

    def __init__(self, sources: int, width: int = 2, weighted: bool = False) -> None:
        spec = {"type": "graph_conv", "in_channels": width, "out_channels": width, "edge_weights": weighted}
        weights = {
            "layers.0.lin_rel.weight": np.eye(width, dtype=np.float32),
            "layers.0.lin_rel.bias": np.zeros(width, np.float32),
            "layers.0.lin_root.weight": np.zeros((width, width), np.float32),
        }
        plan = compile_plan(build_model(layers=[spec], head=[], edge_types=[], weights=weights))
        self.width, self.epoch = width, 0
        self.core = LayerStorage(LayerShape(0, TaskParts.dealt(1, 1), 1, plan.layers[0], None))
        self.values: dict[int, np.ndarray] = {}
        self.weights: dict[int, np.float32] = {}
        slots = list(range(sources + 1))
        self.step({}, m_slot=slots, m_key=slots)

    def step(self, rows: dict[int, Any], add: Any = (), drop: Any = (), weight: float = 1.0, **columns: Any) -> Any:
        """An epoch: new values of sources, then edges from them to the hub that are added and dropped."""
        self.epoch += 1
        values = {k: np.broadcast_to(np.asarray(row, np.float32), self.width) for k, row in rows.items()}
        columns |= {"add_src": list(add), "add_dst": [HUB] * len(add), "add_w": [weight] * len(add)}
        lost = [self.weights.pop(k) for k in drop]
        columns |= {"del_src": list(drop), "del_dst": [HUB] * len(drop), "del_w": lost}
        if values:
            zeros = np.zeros(self.width, np.float32)
            columns |= {"o_slot": list(values), "zo": [np.concatenate([row, zeros]) for row in values.values()]}
        self.values |= values
        self.weights |= dict.fromkeys(add, np.float32(weight))
        return self.core.apply(self.epoch, [sync(self.epoch, **columns)])

    def terms(self, channel: int) -> list[float]:
        zeros = np.zeros(self.width, np.float32)
        with np.errstate(over="ignore"):
            return [float(np.float32(w * self.values.get(k, zeros)[channel])) for k, w in self.weights.items()]

    def error(self) -> float:
        """The largest error of the hub's sum beside the true one, each channel for itself, past what one sum rounds."""
        worst = 0.0
        for channel in range(self.width):
            terms, got = self.terms(channel), float(self.core.relations[0].store.s.data[HUB, channel])
            if not np.isfinite(terms).all():
                assert not math.isfinite(got)
                continue
            true, rounding = math.fsum(terms), len(terms) ** 2 * 2.0**-106 * math.fsum(map(abs, terms))
            off = max(0.0, abs(got - true) - rounding)
            worst = max(worst, off / abs(true) if true else off)
        return worst


@pytest.mark.parametrize("weighted", [False, True])
def test_small_steps_of_many_neighbours_are_not_lost(weighted: bool) -> None:
    """Each of them is below half an ulp of a float32 sum, which was 1.9e-3 off after 20 steps."""
    star = Star(10_000, weighted=weighted)
    sources = range(1, 10_001)
    star.step(dict.fromkeys(sources, 10.0), add=sources, weight=0.7 if weighted else 1.0)
    for step in range(1, 21):
        star.step(dict.fromkeys(sources, 10.0 + 0.003 * step))
    assert star.error() == 0.0
    assert star.core.relations[0].store.recomputed == 0


def test_a_heavy_neighbour_that_comes_and_goes_leaves_nothing_behind() -> None:
    """A float32 sum swallowed the small ones while it was there: 6.8e-2 off."""
    star = Star(2001)
    star.step({1: 20_000.0}, add=[1])
    small = range(2, 2002)
    for k in small:
        star.step({k: 1e-3 * (1 + k % 7)}, add=[k])
    star.step({}, drop=[1])
    assert star.error() == 0.0
    star.step({}, drop=[k for k in small if k > 3])
    assert star.error() == 0.0
    assert star.core.relations[0].store.recomputed == 0


def test_a_channel_is_judged_by_itself() -> None:
    """One channel is large for good, the other one spikes and comes back: it read 16.0 for 18.7 for ever."""
    star = Star(2)
    star.step({1: [5e7, 18.7]}, add=[1])
    for spike in (1e8, 1e16, 1e17, 3e17, 1e20, 3e38):
        star.step({2: [0.0, spike]}, add=[2])
        star.step({}, drop=[2])
        assert star.error() <= 2.0**-20, spike
    assert star.core.relations[0].store.recomputed > 0


def test_terms_that_cancel_within_an_epoch_are_noticed() -> None:
    """Two huge neighbours of opposite sign come in one epoch, and go in one."""
    star = Star(3)
    star.step({1: [1e20, 18.7]}, add=[1])
    star.step({2: [1.0, 1e20], 3: [1.0, -1e20]}, add=[2, 3])
    assert star.error() <= 2.0**-20
    star.step({}, drop=[2, 3])
    assert float(star.core.relations[0].store.s.data[HUB, 1]) == float(np.float32(18.7))


def test_what_a_fresh_sum_rounds_away_is_not_forgotten() -> None:
    star = Star(3)
    star.step({1: 1e20, 2: 1.0, 3: 1e-30}, add=[1, 2, 3])
    star.step({}, drop=[1])
    kept = star.core.relations[0].store
    assert (kept.recomputed, kept.s.data[HUB, 0]) == (1, 1.0), "1e-30 is rounded away"
    star.step({}, drop=[2])
    assert (star.core.relations[0].store.recomputed, star.error()) == (2, 0.0)


def test_a_difference_that_is_rounded_counts_as_lost() -> None:
    """From 18.7 to 1e20 and back in the same source: the differences themselves are not exact."""
    for weighted in (False, True):
        star = Star(2, weighted=weighted)
        star.step({1: [1.0, 18.7], 2: [1.0, 0.1]}, add=[1, 2])
        for value in (1e20, 18.7, -3e38, 18.7):
            star.step({1: [1.0, value]})
        assert star.error() <= 2.0**-20, weighted
        assert star.core.relations[0].store.recomputed > 0


OPERATIONS = st.lists(
    st.tuples(
        st.integers(1, 5),
        st.sampled_from(["set", "add", "drop"]),
        st.lists(st.sampled_from(ODD), min_size=2, max_size=2),
    ),
    min_size=1,
    max_size=60,
)


@pytest.mark.parametrize("weight", [1.0, 0.3])
@settings(max_examples=180, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=OPERATIONS, epochs=st.lists(st.integers(1, 6), min_size=1, max_size=5))
def test_any_history_of_odd_values(weight: float, operations: list[Any], epochs: list[int]) -> None:
    star, at, turn = Star(5, weighted=weight != 1.0), 0, 0
    while at < len(operations):
        rows, add, drop = {}, set(), set()
        for source, what, value in operations[at : at + epochs[turn % len(epochs)]]:
            if what == "set":
                rows[source] = value
            elif what == "add" and source not in star.weights:
                add.add(source)
            elif what == "drop" and source in star.weights:
                drop.add(source)
        star.step(rows, add=sorted(add), drop=sorted(drop), weight=weight)
        assert star.error() <= 2.0**-20
        at, turn = at + epochs[turn % len(epochs)], turn + 1


def test_no_history_changes_a_bit() -> None:
    """Ordinary values: after thousands of changes the sum is that of a Storage which got the last ones at once."""
    rng = np.random.default_rng(3)
    star, draw = Star(200, width=16), random.Random(3)
    for _ in range(1500):
        chosen = draw.sample(range(1, 201), 5)
        add = [k for k in chosen[:2] if k not in star.weights]
        drop = [k for k in chosen[2:4] if k in star.weights]
        rows = {k: rng.standard_normal(16) * 10.0 ** draw.randint(-2, 2) for k in chosen}
        star.step(rows, add=add, drop=drop)
    fresh = Star(200, width=16)
    order = draw.sample(sorted(star.weights), len(star.weights))
    fresh.step({k: star.values[k] for k in order if k in star.values}, add=order)
    assert star.weights
    assert star.core.relations[0].store.s.data[HUB].tobytes() == fresh.core.relations[0].store.s.data[HUB].tobytes()
    assert star.core.relations[0].store.recomputed == 0


def test_the_scrubber_finds_what_no_note_says() -> None:
    star = Star(40, width=2)
    star.step({1: [1.0, 2.0]}, add=[1])
    assert star.core.sums["differed"] == 0
    star.core.relations[0].store.s.data[HUB, 1] += 0.5
    assert published(star.step({}, add=[2])) == [[1.0, 2.5]], "a neighbour without values has the row looked at"
    rows = [row for _ in range(2 + 41 // SCRUBBED_PER_EPOCH) for row in published(star.step({}))]
    assert rows == [[1.0, 2.0]], "what was seen of it is put right"
    assert star.error() == 0.0
    assert star.core.sums["differed"] == 1
    assert star.core.sums["largest_difference"] == pytest.approx(0.25), "0.5 beside the row's 2.0"


def published(messages: Any) -> list[Any]:
    return [row for columns in sent(messages, "sink").values() for row in columns.get("row", [])]


def test_a_row_without_terms_is_zero_and_has_lost_nothing() -> None:
    star = Star(2)
    star.step({1: [1e20, 1e-30], 2: [0.1, 0.2]}, add=[1, 2])
    star.step({}, drop=[1, 2])
    note = star.core.relations[0].store.note.data[HUB]
    assert not star.core.relations[0].store.s.data[HUB].any()
    assert note[exact_sums.LOST] == 0
    assert note[exact_sums.LOSSY] == 0
