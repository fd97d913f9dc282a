"""What a range of destinations keeps of its messages is what the synopsis is defined as, however they come in."""

from __future__ import annotations

from functools import partial
from types import FunctionType

import numpy as np
import pytest

from freshet.gnn.plan import LayerPlan, compile_plan
from freshet.gnn.synopses.of_messages import MonotonicSynopsis
from freshet.operators.aggregates.registry import aggregate_of
from freshet.operators.graph.edge_messages import Messages
from tests.support.graphs.models import models_without_attributes

ROWS, SOURCES, EDGES = 12, 30, 200
FIRST_LAYERS = {
    name: layer
    for name, layer in ((name, compile_plan(make()).layers[0]) for name, make in models_without_attributes().items())
    if name.endswith("narrowing") or name.startswith("pna_conv")
}


def accumulated(layer: LayerPlan, z: np.ndarray, src: np.ndarray, dst: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The synopses of all rows; messages come in pieces of 7."""
    base = ROWS if layer.synopsis.reads_targets else 0
    found = aggregate_of(layer.synopsis).accumulator(layer.synopsis, layer.message_width, ROWS)
    values = z if base else z[ROWS:]
    for first in range(0, len(src), 7):
        of = slice(first, first + 7)
        found.merge(values, Messages((src[of] + base).astype(np.int32), dst[of].astype(np.int32), weight[of]))
    got, rows = np.bincount(dst, minlength=ROWS).astype(np.int32), np.arange(ROWS, dtype=np.int32)
    out = np.full((ROWS, layer.synopsis_width + 1), 7, np.float32)
    found.read(got, rows, out, 1)
    assert (out[:, 0] == 7).all()
    return layer.synopsis.read(np.ascontiguousarray(out[:, 1:]), got)


@pytest.mark.parametrize("name", FIRST_LAYERS)
def test_it_is_what_the_synopsis_is_defined_as(name: str) -> None:
    layer, rng = FIRST_LAYERS[name], np.random.default_rng(3)
    z = rng.standard_normal((ROWS + SOURCES, layer.message_width)).astype(np.float32) * 4
    src, dst = np.sort(rng.integers(0, SOURCES, EDGES)), rng.integers(0, ROWS - 2, EDGES)  # two rows get nothing
    weight = rng.uniform(0.5, 2, EDGES).astype(np.float32) if layer.edge.weighted else np.ones(EDGES, np.float32)
    messages = z[ROWS:][src] * weight[:, None]
    got = np.bincount(dst, minlength=ROWS)
    expected = layer.synopsis.read(layer.synopsis.whole(messages, dst, z[:ROWS]), got)
    np.testing.assert_allclose(accumulated(layer, z, src, dst, weight), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_nan_passes_every_extremum_and_stays(kind: str) -> None:
    layer = FIRST_LAYERS[f"graph_conv-{kind}-narrowing"]
    assert isinstance(layer.synopsis, MonotonicSynopsis)
    z = np.ones((ROWS + 4, layer.message_width), np.float32)
    z[ROWS : ROWS + 4, 0] = [3, np.nan, -5, 9]
    z[ROWS : ROWS + 4, 1] = [np.inf, 1, -np.inf, 0]
    src, dst = np.array([0, 1, 2, 3, 2, 3]), np.array([0, 0, 0, 0, 1, 1])
    found = accumulated(layer, z, src, dst, np.ones(6, np.float32))
    assert np.isnan(found[0, 0]) and found[0, 1] == (np.inf if kind == "max" else -np.inf)
    assert found[1, 0] == (9 if kind == "max" else -5)
    assert (found[2:] == 0).all()


def test_what_a_destination_takes_is_told() -> None:
    """The state's arrays, by row, are as many bytes as a plan reckons with."""
    for name, layer in FIRST_LAYERS.items():
        aggregate = aggregate_of(layer.synopsis)
        kept = aggregate.accumulator(layer.synopsis, layer.message_width, ROWS)
        assert array_bytes(kept) == ROWS * aggregate.accumulator_bytes(layer.synopsis, layer.message_width), name


def array_bytes(kept: object) -> int:
    """Bytes of the arrays by row that an accumulator holds, in what it was made of and in what its functions read."""
    found = dict[int, np.ndarray]()
    waiting = [kept]
    while waiting:
        one = waiting.pop()
        if isinstance(one, np.ndarray):
            found |= {id(one): one} if len(one) == ROWS else {}
        elif isinstance(one, tuple | list):
            waiting += one
        elif isinstance(one, partial):
            waiting += one.args
        elif isinstance(one, FunctionType):
            waiting += [cell.cell_contents for cell in one.__closure__ or ()]
        elif type(one).__module__.startswith("freshet.operators.aggregates"):
            waiting += vars(one).values()
    return sum(one.nbytes for one in found.values())
