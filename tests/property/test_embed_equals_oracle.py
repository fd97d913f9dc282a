"""Any model on any graph, embedded out of core with any store, equals the oracle, and itself bit by bit."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from freshet.gnn.oracles import own_scale
from freshet.operators.embed.engine import EngineOptions
from freshet.operators.embed.orchestrator import POLICIES
from freshet.schema import Graph
from tests.support.graphs.models import IN_WIDTH, random_model
from tests.support.graphs.random_graphs import weighted
from tests.support.stages.embedded import SMALL, embed, file_bytes, read_rows, write_graph
from tests.support.stages.in_memory import folder_in_memory

TOLERANCE = 1e-5


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Few vertices, so that hubs, loops, both directions and vertices without edges are common."""
    n = draw(st.integers(1, 30))
    ends = st.integers(0, n - 1)
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=80, unique=True))
    # Where a degree is as small as 1e-45, messages of float32 have a bit or two: no embedding of such a graph is exact.
    weights = st.just(0.0) | st.floats(2.0**-60, 4, width=32)
    weight = draw(st.lists(weights, min_size=len(pairs), max_size=len(pairs)))
    x = np.random.default_rng(draw(st.integers(0, 1000))).standard_normal((n, IN_WIDTH)).astype(np.float32)
    src, dst = np.array([p[0] for p in pairs], np.int64), np.array([p[1] for p in pairs], np.int64)
    return weighted(x, src, dst, np.array(weight, np.float32))


@settings(max_examples=40, deadline=None)
@given(
    graph=graphs(),
    seed=st.integers(0, 199),
    slots=st.integers(1, 12),
    passes=st.sampled_from([1, 1, 2, 4, None]),
    eviction=st.sampled_from(sorted(POLICIES)),
    strings=st.booleans(),
    order=st.sampled_from(["given", "completion"]),
)
def test_any_embedding_is_the_oracles(
    graph: Graph, seed: int, slots: int, passes: int | None, eviction: str, strings: bool, order: str
) -> None:
    model = random_model(seed)
    assume(not model.edge_features)  # they are refused by name
    ids = [f"v{k}" * (k % 5) + str(k) for k in range(len(graph.x))] if strings else list(range(len(graph.x)))
    with folder_in_memory() as folder:
        write_graph(folder / "S", graph, ids)
        embed(model, folder / "S", folder / "wide", order=order)
        options = EngineOptions(SMALL, passes, eviction, slots)
        report = embed(model, folder / "S", folder / "narrow", options, order=order)
        assert report.total("graduated") == len(graph.x) * len(report.layers)
        assert file_bytes(folder / "wide") == file_bytes(folder / "narrow")
        rows = read_rows(folder / "wide")
    want = own_scale.forward(model, graph, tolerance=TOLERANCE)
    got = np.stack([rows[k] for k in ids])
    with np.errstate(all="ignore"):
        error = np.abs(got - want.rows) / want.scale
    near = (
        (np.abs(got - want.rows) <= np.finfo(np.float32).tiny)
        | (error <= TOLERANCE)
        | (np.isnan(got) & np.isnan(want.rows))
        | ~np.isfinite(want.scale)
    )
    assert near.all(), (got[~near], want.rows[~near])
