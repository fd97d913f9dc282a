"""A snapshot is placed with all of it in view: communities stay together, and parts get equal work."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from freshet.partitioner.config import STRATEGIES, PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.events import Events
from freshet.partitioner.live_graph import PartitionStats
from freshet.partitioner.placement import whole_graph
from freshet.partitioner.placement.whole_graph import whole_masters
from freshet.schema import Features
from tests.support.graphs.partition_reference import Receiver, ReferenceGraph, check_receivers

GROUPS, MEMBERS, FOREIGN = 8, 40, 0.1
VERTICES = GROUPS * MEMBERS
CTL = np.arange(8, dtype=np.int64)


def communities(seed: int = 5, edges: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Edges of which a tenth lead from a group to any other; the members of a group do not stand together."""
    rng = np.random.default_rng(seed)
    place = rng.permutation(VERTICES)
    src = rng.integers(0, VERTICES, edges)
    near = src // MEMBERS * MEMBERS + rng.integers(0, MEMBERS, edges)
    dst = np.where(rng.random(edges) < FOREIGN, rng.integers(0, VERTICES, edges), near)
    return place[src], place[dst]


def snapshot_of(src: np.ndarray, dst: np.ndarray) -> list[tuple]:
    vertices = [("add_vertex", int(k)) for k in range(VERTICES)]
    return vertices + [("add_edge", int(a), int(b)) for a, b in zip(src, dst, strict=True)]


def placed(strategy: str, parts: int, *, snapshot: bool, rows: list[tuple]) -> PartitionStats:
    core = Partitioner(parts, Features(1), PartitionerConfig(strategy=strategy))
    core.partition(events_of(rows, Features(1)), snapshot=snapshot)
    return core.stats()


@pytest.mark.parametrize("parts", [2, 4, 8])
def test_communities_stay_together(parts: int) -> None:
    src, dst = communities()
    masters = whole_masters(src, dst, VERTICES, parts)
    assert masters is not None
    assert np.mean(masters[src] != masters[dst]) <= FOREIGN
    work = np.bincount(masters[dst], minlength=parts) + np.bincount(masters, minlength=parts) * 10
    assert work.max() <= 1.15 * work.mean()


def test_the_same_graph_gives_the_same_parts_in_whatever_order_its_edges_come() -> None:
    src, dst = communities()
    order = np.random.default_rng(0).permutation(len(src))
    first, again = whole_masters(src, dst, VERTICES, 4), whole_masters(src[order], dst[order], VERTICES, 4)
    assert first is not None
    assert again is not None
    assert first.tolist() == again.tolist()


def test_vertices_without_a_neighbour_are_left_to_the_stream() -> None:
    src, dst = communities()
    loops = np.array([VERTICES, VERTICES + 1])
    masters = whole_masters(np.append(src, loops), np.append(dst, loops), VERTICES + 4, 4)
    assert masters is not None
    assert masters[VERTICES:].tolist() == [-1] * 4
    assert masters[:VERTICES].min() >= 0


def test_small_graphs_and_huge_ones_come_as_a_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    src, dst = communities()
    assert whole_masters(src[:20], dst[:20], VERTICES, 4) is None
    assert whole_masters(src[:0], dst[:0], VERTICES, 4) is None
    monkeypatch.setattr(whole_graph, "EDGES_MAX", len(src) // 2)
    assert whole_masters(src, dst, VERTICES, 4) is None
    rows = snapshot_of(src, dst)
    assert placed("hybrid", 4, snapshot=True, rows=rows) == placed("hybrid", 4, snapshot=False, rows=rows)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_it_brings_by_strategy(strategy: str) -> None:
    rows = snapshot_of(*communities())
    whole, stream = (placed(strategy, 4, snapshot=snapshot, rows=rows) for snapshot in (True, False))
    if strategy in ("hdrf", "hash"):
        assert whole == stream
    else:
        assert whole.cut_share < 0.25 * stream.cut_share
        assert whole.replication_factor < 0.7 * stream.replication_factor


def epochs(rng: np.random.Generator) -> Iterator[list[tuple]]:
    """New edges and vertices, and deletions, after the snapshot."""
    for _ in range(8):
        ends = rng.integers(0, VERTICES + 20, (60, 2)).tolist()
        gone = [("del_vertex", int(k)) for k in rng.integers(0, VERTICES, 3)]
        yield [("add_edge" if rng.random() < 0.6 else "del_edge", a, b) for a, b in ends] + gone


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("strategy", ["hybrid", "locality"])
@pytest.mark.parametrize("parts", [3, 20])
def test_parts_hold_the_graph_in_the_stream_that_follows(strategy: str, parts: int, undirected: bool) -> None:
    config = PartitionerConfig(strategy=strategy, undirected=undirected, hybrid_threshold=6)
    core, reference = Partitioner(parts, Features(1), config), ReferenceGraph(undirected)
    receivers = [Receiver() for _ in range(parts)]
    rng = np.random.default_rng(2)
    rows = snapshot_of(*communities())
    for epoch, some in enumerate([rows, *epochs(rng)]):
        change = core.partition(Events.decode(events_of(some, Features(1)).encode()), snapshot=epoch == 0)
        reference.apply(some)
        blocks = core.split(change, CTL, epoch)
        for part, (receiver, block) in enumerate(zip(receivers, blocks, strict=True)):
            receiver.apply(block, part, epoch)
        check_receivers(receivers, reference, strings=False)


def test_a_process_that_is_stopped_while_metis_runs_stops() -> None:
    code = """
import os, signal, subprocess, sys
import numpy as np
import pymetis
from freshet.partitioner.placement.whole_graph import whole_masters

part_graph = pymetis.part_graph

def stopped(*args, **options):
    subprocess.Popen(["sh", "-c", f"sleep 0.1; kill {os.getpid()}"])
    while True:  # METIS catches the signal in one of these passes
        part_graph(*args, **options)

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
pymetis.part_graph = stopped
src, dst = np.random.default_rng(1).integers(0, 20_000, (2, 200_000))
whole_masters(src, dst, 20_000, 4)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 143, ended.stderr
