"""Convs as relations between two sets of rows, and random changes of both ends."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from freshet.gnn.plan import compile_plan
from freshet.gnn.synopses.edge_network import NetworkSynopsis
from freshet.gnn.synopses.of_messages import GatedSynopsis, Synopsis
from freshet.gnn.synopses.softmax import SoftmaxSynopsis
from freshet.kernels.kernel_calls import encode, noted_calls
from freshet.operators.checks.between import Between, Carried, Related
from tests.support.graphs.attributed import EDGE_WIDTH
from tests.support.graphs.models import Spec, conv, linear, make_model


def _columns_of(synopsis: Synopsis) -> tuple[int, int]:
    """The first column that messages read of a target, and how many; none: 0."""
    if isinstance(synopsis, SoftmaxSynopsis):
        return synopsis.score.reads
    if isinstance(synopsis, GatedSynopsis):
        return 2 * synopsis.channels, synopsis.channels
    if isinstance(synopsis, NetworkSynopsis) and synopsis.reads_targets:
        return synopsis.network.target, synopsis.network.turning
    return 0, 0


def _from_first(synopsis: Synopsis) -> Synopsis:
    """The synopsis, where the columns of a target are a row of their own."""
    if isinstance(synopsis, SoftmaxSynopsis):
        return replace(synopsis, score=replace(synopsis.score, target=0))
    if isinstance(synopsis, NetworkSynopsis):
        return replace(synopsis, network=replace(synopsis.network, target=0))
    assert isinstance(synopsis, GatedSynopsis)
    return replace(synopsis)  # which takes the last columns


def related(spec: Spec) -> dict[str, tuple[Related, Synopsis]]:
    """A conv as a relation: with whole rows at both ends, and with a target's columns alone where they are the last."""
    (layer,) = compile_plan(make_model(0, [spec])).layers
    first, width = _columns_of(layer.synopsis)
    sent, reads = layer.message_width, replace(layer.edge, skip_loops=False)  # rows of ends are others
    whole_rows = Related(sent, sent if width else 0, layer.synopsis, reads)
    found: dict[str, tuple[Related, Synopsis]] = {"rows": (whole_rows, layer.synopsis)}
    if width and first and first + width == sent:
        own = Related(first, width, _from_first(layer.synopsis), reads)
        found["columns"] = own, layer.synopsis
    return found


def specs() -> dict[str, Spec]:
    """Convs that between them have every aggregate."""
    attributed: Spec = {"edge_channels": EDGE_WIDTH}
    return {
        "sum": conv("graph_conv", 3, 4),
        "mean": conv("sage_conv", 3, 4),
        "max": conv("graph_conv", 3, 4, aggr="max"),
        "std": conv("graph_conv", 3, 4, aggr="std"),
        "product": conv("sage_conv", 3, 4, aggr=["max", "std", "sum"]),
        "gates": conv("res_gated_graph_conv", 3, 4),
        **{kind: conv(f"{kind}_conv", 3, 4, heads=2) for kind in ("gat", "gatv2", "transformer")},
        "network": conv("edge_conv", 3, 3, nn=[linear(6, 3), linear(3, 3)], aggr="max"),
        "difference": conv("edge_conv", 3, 3, nn=[linear(6, 9), linear(9, 1)], aggr=["max", "std", "sum"]),
        "gine": conv("gine_conv", 3, 3, nn=[], **attributed),
        "cg": conv("cg_conv", 3, 3, **attributed),
        **{f"{kind}-attr": conv(f"{kind}_conv", 3, 4, **attributed) for kind in ("gat", "gatv2", "transformer")},
    }


def play(kept: Between, seed: int, epochs: int, check: Callable[[np.ndarray], None]) -> None:
    """Have edges of all parts come, change and go at random, and rows of both ends change; `check` what changed."""
    rng, relation = np.random.default_rng(seed), kept.relation
    ends = kept.z.shape[1], kept.q.shape[1]
    weights = [1.0, 2.0, 0.5, -1.0]

    def carried() -> Carried:
        return float(rng.choice(weights)), tuple(rng.integers(-2, 3, relation.edge.attributes).astype(float).tolist())

    def rows(many: int, slots: int, width: int) -> dict[tuple[int, int], np.ndarray]:
        chosen = {(int(rng.integers(kept.parts)), int(rng.integers(slots))) for _ in range(many)}
        return {one: rng.standard_normal(width).astype(np.float32) for one in sorted(chosen)}

    for epoch in range(epochs):
        edges = dict(kept.edges)
        for edge in list(edges):
            if (chance := rng.random()) < 0.25:
                del edges[edge]
            elif chance < 0.4:
                edges[edge] = carried()
        for _ in range(0 if epoch % 5 == 4 else 4 * kept.parts):
            part, kind = int(rng.integers(kept.parts)), int(rng.integers(2 if relation.edge.attributes else 1))
            edges[part, int(rng.integers(ends[0])), int(rng.integers(ends[1])), kind] = carried()
        moved = rows(6 * kept.parts if epoch == 0 else 2, ends[0], kept.z.shape[2])
        turned = rows(4 * kept.parts if epoch == 0 else epoch % 3, ends[1], kept.q.shape[2])
        check(kept.apply(edges, moved, turned))


def main() -> None:
    """Print the kernels that such stores call, one encoded call a line."""
    np.seterr(all="ignore")
    for spec in specs().values():
        for relation, whole in related(spec).values():
            for parts in (1, 2):
                play(Between.of(relation, whole, parts, (9, 5)), 0, 3, lambda _: None)
    for call in noted_calls():
        sys.stdout.buffer.write(encode(call))


if __name__ == "__main__":
    main()
