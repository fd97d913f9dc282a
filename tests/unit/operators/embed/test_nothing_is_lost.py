"""A lost edge ends the embedding, and the journal names no pass whose rows a power cut could take."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from freshet.gnn.plan import Context, LayerPlan
from freshet.operators.embed import engine as engines
from freshet.operators.embed import orchestrator
from freshet.operators.embed.cold_store import ColdStore
from freshet.operators.embed.engine import EngineOptions
from freshet.operators.embed.files import DiskFile, EmbedError, FinishedSteps
from freshet.operators.embed.hot_kernels import MIN_PENDING, Task
from freshet.operators.embed.orchestrator import Orchestrator, make_hot
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.random_graphs import random_graph
from tests.support.stages.embedded import SMALL, embed, read_rows, write_graph

VERTICES = 120
LAYERS = [conv("sage_conv", IN_WIDTH, 5), conv("gcn_conv", 5, 3), conv("gat_conv", 3, 4, heads=2)]


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    return write_graph(tmp_path / "S", random_graph(3, vertices=VERTICES, edges=700))


def test_a_pass_that_waits_for_a_message_still_is_not_finished(tmp_path: Path) -> None:
    """Also a trial, which writes no rows that somebody could count."""
    cold = ColdStore(tmp_path / "cold", 0, 3)
    store = make_hot(np.array([1, 0, 2], np.int32), np.empty(0, np.int32), 3, 0)
    task = Task(0, 3, False, False, 0, 0, False, MIN_PENDING)
    waiting = Orchestrator(store, cold, task, None)
    with pytest.raises(EmbedError, match="3 of 3 vertices are not complete: the topology is damaged"):
        waiting.finish()
    store.state[:] = orchestrator.hot.COMPLETED
    waiting.finish()
    store.state[1] = orchestrator.hot.COLD
    with pytest.raises(EmbedError, match="1 of 3 vertices are not complete"):
        waiting.finish()
    cold.close()


@pytest.mark.parametrize("layer", [1, 2, 3])
@pytest.mark.parametrize("passes", [1, 3])
def test_an_edge_that_is_lost_ends_the_embedding(
    layer: int, passes: int, snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One vertex has an in-edge more than the topology brings."""
    pending_of, hub = engines.pending_of, VERTICES // 2

    def one_more(plan: LayerPlan, context: Context, first: int, last: int) -> np.ndarray:
        found = pending_of(plan, context, first, last)
        if plan.name == LAYERS[layer - 1]["type"] and first <= hub < last:
            found[hub - first] += 1
        return found

    monkeypatch.setattr(engines, "pending_of", one_more)
    with pytest.raises(EmbedError, match=r"1 of [0-9]+ vertices are not complete|edges|messages"):
        embed(make_model(3, LAYERS), snapshot, tmp_path / "O", EngineOptions(SMALL, passes=passes))
    assert not list((tmp_path / "O").glob("embeddings/[!._]*"))
    monkeypatch.undo()
    embed(make_model(3, LAYERS), snapshot, tmp_path / "O", EngineOptions(SMALL, passes=passes))
    assert len(read_rows(tmp_path / "O")) == VERTICES


@pytest.mark.parametrize("passes", [1, 3])
def test_rows_are_on_the_disk_before_the_journal_names_them(
    passes: int, snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, dirty, puts = DiskFile.write, set[str](), list[str]()
    synced, put = os.fsync, FinishedSteps.put

    def write(file: DiskFile, *args: Any) -> Any:
        dirty.add(file.path.name)
        return written(file, *args)

    def sync(file: int) -> None:
        synced(file)
        dirty.discard(Path(os.readlink(f"/proc/self/fd/{file}")).name)

    def put_checked(journal: FinishedSteps, name: str, value: Any) -> None:
        if isinstance(value, dict) and "rows" in value:
            puts.append(name)
            left = [one for one in dirty if one.startswith(f"{name.split('-')[0]}.")]
            assert not left, f"{name} is said to be done, and {left} may be lost"
        put(journal, name, value)

    monkeypatch.setattr(DiskFile, "write", write)
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "fdatasync", sync)
    monkeypatch.setattr(FinishedSteps, "put", put_checked)
    embed(make_model(3, LAYERS), snapshot, tmp_path / "O", EngineOptions(SMALL, passes=passes))
    assert len(puts) >= len(LAYERS) * passes
