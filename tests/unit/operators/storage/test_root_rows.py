"""Root rows are those of the self inputs that are here now."""

from __future__ import annotations

import numpy as np
import pytest

from freshet.gnn.plan import compile_plan
from freshet.operators.storage.root_rows import RootRows
from tests.support.graphs.models import conv, make_model

SLOTS = np.array([3, 0, 2], np.int32)
(LAYER,) = compile_plan(make_model(0, [conv("graph_conv", 3, 4, aggr="max")])).layers


def roots_and_inputs() -> tuple[RootRows, np.ndarray]:
    roots = RootRows(LAYER.kinds[0])
    roots.reserve(5)
    return roots, np.arange(15, dtype=np.float32).reshape(5, 3)


def test_a_row_is_made_when_it_is_first_read_and_kept() -> None:
    roots, own = roots_and_inputs()
    made = roots.read(SLOTS, own)
    np.testing.assert_array_equal(made, LAYER.root(own[SLOTS]))
    np.testing.assert_array_equal(roots.read(SLOTS, own * 2), made, "nobody said that they have changed")


@pytest.mark.parametrize("how", ["forget", "clear", "grow"])
def test_a_row_whose_input_changes_is_made_again(how: str) -> None:
    roots, own = roots_and_inputs()
    roots.read(SLOTS, own)
    own[2] = -1
    if how == "forget":
        roots.forget(np.array([2], np.int32))
    elif how == "clear":
        roots.clear()
    else:
        roots.reserve(9)
    np.testing.assert_array_equal(roots.read(SLOTS, own), LAYER.root(own[SLOTS]))
