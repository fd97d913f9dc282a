"""Functions and norms of rows: bits that do not depend on the place, values as in torch, errors within their scale."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from freshet.gnn.declarations import DenseLayer
from freshet.gnn.rows import full_pass, scales
from freshet.gnn.rows.functions import AnyFunction
from freshet.gnn.rows.layer import Layer
from freshet.gnn.rows.norms import AnyNorm
from freshet.gnn.rows.steps import in_place
from tests.support.graphs.models import ACTIVATIONS, ROW_NORMS

WIDTH = 5
DECLARED: TypeAdapter[Layer] = TypeAdapter(DenseLayer)
PARTIAL: list[dict[str, Any]] = [
    {"type": "exp"},
    {"type": "log"},
    {"type": "sqrt"},
    {"type": "sin"},
    {"type": "cos"},
    {"type": "power", "exponent": 3.0},
    {"type": "power", "exponent": -0.5},
    {"type": "degree_power", "exponent": -0.5},
    {"type": "degree_power", "exponent": -1.0},
]
"""Functions that for some numbers are not defined, or past float32."""
SPECS: list[dict[str, Any]] = [
    spec
    for spec in [*ACTIVATIONS, *PARTIAL, *({**norm, "channels": WIDTH} for norm in ROW_NORMS)]
    if isinstance(DECLARED.validate_python(spec), AnyFunction | AnyNorm)
]
NAMES = ["-".join(map(str, spec.values())) for spec in SPECS]
EXTREMES = np.array(
    [
        [0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1],
        [-0.0, 1e-30, -1e-30, 1e-45, 0],
        [1e4, -1e4, 0, 1, 9999],
        [88.0, 89.0, -104.0, 104.0, 20.0],
        [1e-20, 2e-20, -1e-20, 0, 1e-20],
        [np.inf, 1, 2, 3, 4],
        [-np.inf, 1, 2, 3, 4],
        [np.nan, 1, 2, 3, 4],
    ],
    np.float32,
)


def layer_of(spec: dict[str, Any], seed: int = 0) -> tuple[Layer, dict[str, np.ndarray]]:
    layer, rng = DECLARED.validate_python(spec), np.random.default_rng(seed)
    return layer, {name: rng.normal(0.5, 1, shape).astype(np.float32) for name, shape in layer.tensors().items()}


def applied(layer: Layer, weights: dict[str, np.ndarray], rows: np.ndarray) -> np.ndarray:
    step = in_place(layer, weights)
    assert step is not None
    made = np.array(rows, np.float32, order="C")
    with np.errstate(all="ignore"):
        step(made)
    return made


def test_all_are_there() -> None:
    assert {spec["type"] for spec in SPECS} == {
        *("clamp", "softplus", "celu", "mish", "log_sigmoid", "scale", "affine", "softmax", "log_softmax", "normalize"),
        *("layer_norm", "rms_norm", "frozen_norm", "exp", "log", "sqrt", "power", "degree_power", "sin", "cos"),
    }


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_bits_do_not_depend_on_the_place_in_a_block(spec: dict[str, Any]) -> None:
    layer, weights = layer_of(spec)
    rng = np.random.default_rng(1)
    rows = np.concatenate([EXTREMES, (3 * rng.standard_normal((200, WIDTH))).astype(np.float32)])
    made = applied(layer, weights, rows)
    for pick in (rng.permutation(len(rows)), rng.permutation(len(rows))[:37], np.array([3])):
        np.testing.assert_array_equal(applied(layer, weights, rows[pick]).view(np.uint32), made[pick].view(np.uint32))
    repeated = applied(layer, weights, np.repeat(rows[20:21], 67, axis=0)).view(np.uint32)
    assert (repeated == repeated[0]).all()


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_extremes_are_as_in_torch(spec: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    from freshet.gnn.pyg.rows import function_of

    layer, weights = layer_of(spec)
    function = function_of(layer, {name: torch.from_numpy(value).double() for name, value in weights.items()})
    assert function is not None
    expected = function(torch.from_numpy(EXTREMES).double()).numpy()
    with np.errstate(all="ignore"):
        slow = full_pass.apply(
            layer, {k: v.astype(np.float64) for k, v in weights.items()}, EXTREMES.astype(np.float64)
        )
    np.testing.assert_allclose(slow, expected, rtol=1e-9, atol=1e-12)
    with np.errstate(over="ignore"):
        expected = expected.astype(np.float32)
    np.testing.assert_allclose(applied(layer, weights, EXTREMES), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("spec", SPECS, ids=NAMES)
def test_one_channel_and_none_of_the_rows(spec: dict[str, Any]) -> None:
    narrow = {**spec, "channels": 1} if "channels" in spec else spec
    layer, weights = layer_of(narrow)
    one = np.array([[2.0], [-3.0]], np.float32)
    with np.errstate(invalid="ignore"):
        slow = full_pass.apply(layer, weights, one.astype(np.float64))
    np.testing.assert_allclose(applied(layer, weights, one), slow, rtol=1e-5, atol=1e-6)
    assert applied(layer, weights, np.empty((0, 1), np.float32)).shape == (0, 1)


@settings(max_examples=150, deadline=None)
@given(number=st.integers(0, len(SPECS) - 1), seed=st.integers(0, 10_000), size=st.sampled_from([1e-3, 1.0, 30.0, 1e4]))
def test_errors_within_their_scale_stay_within_it(number: int, seed: int, size: float) -> None:
    """Inputs that are off by the tolerance of their scale give outputs that are, up to what errors add up to."""
    layer, weights = layer_of(SPECS[number], seed)
    rng, step = np.random.default_rng(seed), 1e-4
    wide = {name: value.astype(np.float64) for name, value in weights.items()}
    rows = size * rng.standard_normal((20, WIDTH))
    scale = np.abs(rows) + size * rng.random((20, WIDTH)) * rng.choice([0.0, 1.0, 10.0])
    found = scales.apply(layer, wide, rows, scale, step)
    if found is None:  # value by value: own_scale looks at the function itself
        return
    made, behind = found
    assert np.isfinite(behind).all() and (behind >= 0).all()
    for _ in range(5):
        off = full_pass.apply(layer, wide, rows + step * scale * rng.uniform(-1, 1, rows.shape))
        assert (np.abs(off - made) <= 2.5 * step * behind + 1e-12).all()
