"""Three aggregates at once, in one loop over the edges, are what numpy makes of them one by one."""

import numpy as np
import pytest

from freshet.gnn.oracles.edges import SortedEdges
from freshet.gnn.oracles.scaled import Scaled, aggregated
from freshet.schema import EdgeValues

ODD = (np.nan, np.inf, -np.inf, 3e38)


def one_by_one(kind, x, scale, src, dst, factor, vertices):
    """Results of `gather`, destination by destination."""
    out, size, through = (np.zeros((vertices, x.shape[1])) for _ in range(3))
    for v in np.unique(dst):
        here = dst == v
        terms, off = x[src[here]] * factor[here, None], scale[src[here]] * factor[here, None]
        if kind == "sum":
            out[v], size[v], through[v] = terms.sum(0), np.abs(terms).sum(0), np.sqrt((off**2).sum(0))
        else:
            out[v] = getattr(np, kind)(terms, axis=0)
            size[v], through[v] = np.abs(terms).max(0), np.abs(off).max(0)
    return out, size, through


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize("odd", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_gathers_what_numpy_does(kind, odd, dtype):
    rng = np.random.default_rng(4)
    x, scale = rng.standard_normal((9, 5)).astype(dtype), rng.random((9, 5))
    if odd:
        x[rng.integers(0, 9, 4), rng.integers(0, 5, 4)] = ODD
        scale[3, 2] = np.inf
    src, dst, factor = rng.integers(0, 9, 40), rng.integers(0, 7, 40), rng.uniform(-1, 2, 40)
    factor[5] = 0
    edges = SortedEdges(9, src, dst, EdgeValues.default(40))
    with np.errstate(all="ignore"):
        for weight, given in ((factor[np.argsort(dst, kind="stable")], factor), (None, np.ones(40))):
            got, expected = edges.gather(kind, x, scale, weight), one_by_one(kind, x, scale, src, dst, given, 9)
            for ours, theirs in zip(got, expected, strict=True):
                np.testing.assert_allclose(ours, theirs, rtol=1e-12)
            assert not got[0][7:].any()
            exact = edges.gather(kind, x, np.broadcast_to(0.0, x.shape), weight)
            np.testing.assert_array_equal(exact[0], got[0])
            assert not exact[2].any()


def test_one_edge_with_a_factor_of_its_own():
    for factor, expected in ((np.array([3.0]), 6.0), (None, 2.0)):
        edges = SortedEdges(2, np.array([0]), np.array([1]), EdgeValues.default(1))
        out, *_ = edges.gather("sum", np.array([[2.0], [5.0]]), np.ones((2, 1)), factor)
        assert out.tolist() == [[0.0], [expected]]


def test_an_aggregate_that_the_oracle_lacks_is_refused_by_name():
    edges, x = SortedEdges(2, np.array([0]), np.array([1]), EdgeValues.default(1)), np.ones((2, 1))
    with pytest.raises(ValueError, match="the oracle knows no aggregate 'median'"):
        aggregated("median", Scaled(x, x), edges, None, 1e-7)


def test_pieces_have_so_many_edges_and_vertices_at_most(monkeypatch):
    monkeypatch.setattr("freshet.gnn.oracles.edges._CHUNK_EDGES", 6)
    monkeypatch.setattr("freshet.gnn.oracles.edges._CHUNK_VERTICES", 4)
    rng = np.random.default_rng(1)
    dst = np.sort(np.append(rng.integers(0, 6, 30), np.full(9, 40)))
    edges = SortedEdges(50, np.arange(39), dst, EdgeValues.default(39))
    seen = [(vertices, here, len(part.dst)) for vertices, here, part in edges.pieces()]
    assert [one[0].start for one in seen[1:]] == [one[0].stop for one in seen[:-1]]
    assert [one[1].start for one in seen[1:]] == [one[1].stop for one in seen[:-1]]
    assert (seen[-1][0].stop, seen[-1][1].stop) == (50, 39)
    most = np.bincount(dst).max()
    assert all(vertices.stop - vertices.start <= 4 and count <= max(6, most) for vertices, _, count in seen)
