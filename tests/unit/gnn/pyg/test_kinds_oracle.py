"""The full pass of models with kinds by PyTorch Geometric, beside our own in float64."""

from __future__ import annotations

import numpy as np
import pytest

from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.oracles import kinds as own
from freshet.gnn.pyg.kinds import oracle
from tests.support.graphs.kinds import (
    by_kind,
    hetero,
    kinds_model,
    random_kinds_graph,
    random_model_of_kinds,
    relation,
)
from tests.unit.gnn.kinds.test_kinds_plan import MODELS, Spec

ATTENTION: Spec = {"in_channels": 5, "out_channels": 6, "heads": 2}
RGAT: Spec = {"type": "gat_conv", "mixed_heads": True, "add_self_loops": False, **ATTENTION}
OF_A = [relation("a", "follows", "a"), relation("a", "knows", "a"), relation("b", "likes", "a")]


def attended(spec: Spec, aggr: str) -> KindsModel:
    return kinds_model([hetero(dict.fromkeys(range(3), spec), aggr)], ["a"], {"a": 5, "b": 5}, OF_A)


ATTENDED = {
    "rgat": lambda: attended(RGAT, "softmax"),
    "scores of all heads, apart": lambda: attended(RGAT, "sum"),
    "hgt": lambda: attended({"type": "transformer_conv", **ATTENTION}, "softmax"),
    "gatv2": lambda: attended(
        {"type": "gatv2_conv", "add_self_loops": False, "residual": True, **ATTENTION}, "softmax"
    ),
}


def assert_same(model: KindsModel, seed: int, **more: int) -> None:
    graph, rng = random_kinds_graph(model, seed, **more), np.random.default_rng(seed)
    wide = [sum(rows.values()) for rows in model.row_parts().values()]
    x = [
        np.concatenate([of, rng.standard_normal((len(of), width - of.shape[1])).astype(np.float32)], axis=1)
        for of, width in zip(graph.x, wide, strict=True)
    ]
    graph = graph._replace(x=x)
    made, wanted = oracle.forward(model, graph), own.forward(model, graph)
    assert made.keys() == wanted.keys() and made
    for kind, rows in made.items():
        assert rows.dtype == np.float64
        np.testing.assert_allclose(rows, wanted[kind].rows, rtol=0, atol=1e-9)


def test_every_conv_equals_our_own_pass() -> None:
    """Without edges, too."""
    for make in (*MODELS.values(), *ATTENDED.values()):
        assert_same(make(), 1)
        assert_same(make(), 2, edges=0)


@pytest.mark.parametrize("seed", range(12))
def test_random_models_equal_our_own_pass(seed: int) -> None:
    assert_same(random_model_of_kinds(seed), seed)


def test_a_kind_that_no_relation_reached_goes_on_from_kept_rows() -> None:
    sums: Spec = {"type": "sage_conv", "in_channels": 3, "target_channels": 4, "out_channels": 2}
    kept = by_kind(a=[{"type": "keep", "name": "x"}]), by_kind(a=[{"type": "join", "of": ["x"]}])
    convs = hetero({0: sums}), hetero({0: sums | {"target_channels": 2}})
    model = kinds_model([kept[0], convs[0], kept[1], convs[1]], ["b"], {"a": 3, "b": 4}, [relation("a", "to", "b")])
    assert_same(model, 0)
