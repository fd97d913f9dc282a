"""What is told before an embedding starts, and what is refused then."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from freshet.gnn.plan import compile_plan
from freshet.job.embed.needs import Needs, check_disk, lines_of_passes, needs_of
from freshet.job.errors import JobFailed, UsageError
from freshet.job.units import readable
from freshet.operators.embed.engine import EngineOptions
from freshet.operators.snapshot.reader import open_snapshot
from freshet.schema import Features
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.random_graphs import random_graph
from tests.support.stages.embedded import write_graph

MIB = 1 << 20


@pytest.fixture
def needs(tmp_path: Path) -> Needs:
    write_graph(tmp_path, random_graph(1), [f"name {k}" for k in range(50)])
    plan = compile_plan(make_model(1, [conv("sage_conv", IN_WIDTH, 4), conv("gin_conv", 4, 3)]))
    return needs_of(plan, open_snapshot(tmp_path, Features(IN_WIDTH)), undirected=True)


def test_it_counts_vertices_both_ways_and_the_text_of_ids(needs: Needs) -> None:
    assert needs.vertices == 50
    assert needs.edges == 2 * open_edges()
    assert needs.text >= 50 * len("name 1")


def open_edges() -> int:
    return len(random_graph(1).src)


def test_every_step_is_told(needs: Needs) -> None:
    lines = lines_of_passes(needs, EngineOptions(64 * MIB, None))
    assert [line.split(":")[0].strip() for line in lines[:4]] == ["memory", "reading and sorting", "layer 1", "layer 2"]
    assert "hot store 50 of 50 destinations (100%)" in lines[2]
    assert "a later `freshet run`" in lines[4]


def test_passes_side_by_side_share_the_budget(needs: Needs) -> None:
    lines = lines_of_passes(needs, EngineOptions(64 * MIB, None), 2, [2, 4])
    assert lines[2].startswith("  layer 1, 2 passes at a time, each: ") and "25 of 25" in lines[2]
    assert lines[3].endswith("hot store 16 of 16 destinations (100%), 4 passes")
    enough = int(told_to_give(needs, 1)) * MIB
    assert lines_of_passes(needs, EngineOptions(enough))
    assert int(told_to_give(needs, 4)) * MIB > enough


def told_to_give(needs: Needs, side_by_side: int) -> str:
    with pytest.raises(UsageError) as refused:
        lines_of_passes(needs, EngineOptions(64 << 10), side_by_side)
    return str(refused.value).split("give ")[1].split("MiB")[0]


def test_a_small_budget_is_refused_with_one_that_would_do(needs: Needs) -> None:
    with pytest.raises(UsageError, match=r"--memory 64KiB: too little for 50 vertices .* give .* or more") as refused:
        lines_of_passes(needs, EngineOptions(64 << 10))
    enough = int(str(refused.value).split("give ")[1].split("MiB")[0]) * MIB
    assert lines_of_passes(needs, EngineOptions(enough))


def test_a_full_disk_is_foreseen(needs: Needs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed = needs.disk(EngineOptions(64 * MIB), "given", linked=True)
    assert needed < needs.disk(EngineOptions(64 * MIB), "completion", linked=False)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, needed - 1))
    with pytest.raises(JobFailed, match=r"needs .* of disk while it works, .* are free"):
        check_disk(needed, tmp_path, 0)
    assert "are free" in check_disk(needed, tmp_path, 1)


def test_sizes_read_well() -> None:
    assert [readable(n) for n in (17, 2048, 5 * MIB // 2, 3 << 30)] == [
        "17 bytes",
        "2.0 KiB",
        "2.5 MiB",
        "3.0 GiB",
    ]
