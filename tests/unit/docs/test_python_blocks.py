"""The Python of README and docs is run: against a served job, and modules that are what the lines say."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet import EmbeddingClient
from freshet.job.serving.tables.hypotheses import Tried
from tests.support.serving.hand_job import WIDTH
from tests.support.serving.served import Served
from tests.unit.docs.test_commands import PAGES, blocks

# What the text says, and what it is here: the numbers are those of a job that has run for long.
HERE = {"min_epoch=120": "min_epoch=1", "41_000": "10", "2.0)": "120.0)", "64, 64": "3, 3"}
TUTORIALS = [page for page in PAGES if page.parent.name == "tutorials"]  # tests/integration/test_tutorials.py runs them
STORIES = [page for page in PAGES if page.name == "python.md"]  # whose blocks are one program
BLOCKS = [(page, text) for page in PAGES if page not in STORIES + TUTORIALS for text in blocks(page, "python")]


class Guesses:
    """Answers what if, with rows of zeros."""

    def tried(
        self, items: Sequence[Mapping[str, Any]], kind: str, min_epoch: int, timeout_s: float, most: int
    ) -> Tried:
        ids = [one for item in items for one in (item.get("id"), *item.get("also", ()))]
        return Tried(min_epoch, ids, np.zeros((len(ids), WIDTH), np.float32), np.arange(len(ids)), [])


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Vertices 7 and 9, among others."""
    one = Served(tmp_path_factory.mktemp("served") / "O", "int")
    one.lookup.hypotheses = Guesses()
    one.hand.apply(2, ({7: 1.0, 9: 2.0}, []))
    one.until(2)
    yield one
    one.close()


def names(line: str) -> dict[str, Any]:
    """What the text around the code has: trained modules, and the features and edges of a graph."""
    torch = pytest.importorskip("torch")
    pyg = pytest.importorskip("torch_geometric")

    class Net(torch.nn.Module):
        """A conv; a classifier behind it, a second result or another method where the line is about that."""

        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.nn.SAGEConv(4, 3)
            if " head=" in line:
                self.classifier = torch.nn.Linear(3, 2)
            if "stats_from=" in line:
                self.norm = pyg.nn.GraphNorm(3)

        def forward(self, x: Any, edge_index: Any) -> Any:
            out = self.conv(x, edge_index)
            if " head=" in line:
                return self.classifier(out)
            if "stats_from=" in line:
                return self.norm(out)
            return (out, out.relu()) if "output=" in line else out

        def encode(self, x: Any, edge_index: Any) -> Any:
            return self.conv(x, edge_index).relu()

    module, ids = Net().eval(), [7, 9, 2]
    graph = {"x": torch.randn(6, 4), "edge_index": torch.randint(6, (2, 12))}
    vertices = torch.arange(6)
    if "freshet.labels(" in line or "freshet.loader(" in line:
        labelled = {"id": vertices, "y": vertices % 2, "train_mask": vertices > 2}
        return {"data": pyg.data.Data(**graph, **labelled)}
    data = pyg.data.HeteroData(user={"x": graph["x"]}, user__follows__user={"edge_index": graph["edge_index"]})
    return {
        "EmbeddingClient": EmbeddingClient,
        "module": module,
        "trained_module": module,
        "torch": torch,
        "partial": partial,
        "ids": ids,
        "graph_store": None,
        "NeighborLoader": lambda stores, *given: stores,
        "data": data,
        **graph,
    }


@pytest.mark.parametrize(("page", "text"), BLOCKS, ids=[page.name for page, _ in BLOCKS])
def test_every_statement_runs(
    page: Path, text: str, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f'"127.0.0.1:{served.port}", timeout=120'  # this process may wait long for a core
    text = text.replace('"127.0.0.1:47470"', address).replace('"O"', repr(str(served.hand.out)))
    text = text.replace('"L.parquet"', repr(str(tmp_path / "L.parquet")))
    pq.write_table(pa.table({"id": [2, 5], "label": [1, 0]}), tmp_path / "L.parquet")
    for said, here in HERE.items():
        text = text.replace(said, here)
    space: dict[str, Any] = {}
    try:
        for k, statement in enumerate(ast.parse(text).body):
            loaded = {one.id for one in ast.walk(statement) if isinstance(one, ast.Name)}
            borrowed = loaded - space.keys() - set(dir(builtins)) - assigned(statement)
            given = names(ast.unparse(statement)) if borrowed else {}
            (tmp_path / str(k)).mkdir()
            with monkeypatch.context() as there:
                there.chdir(tmp_path / str(k))
                exec(ast.unparse(statement), space | {name: given[name] for name in borrowed}, space)
    finally:  # an open stream would keep the server from ending
        for one in space.values():
            if isinstance(one, EmbeddingClient):
                one.close()


@pytest.mark.slow
@pytest.mark.parametrize("page", STORIES, ids=lambda page: page.name)
def test_the_blocks_of_a_page_are_a_program(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_geometric")
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {}
    try:
        for text in blocks(page, "python"):
            exec(text, space)
        assert space["result"].ok and space["summary"].events == 2
    finally:
        if "job" in space:
            space["job"].close()


def assigned(statement: ast.stmt) -> set[str]:
    """The names that a statement sets, and those of the parameters of functions in it."""
    walked = list(ast.walk(statement))
    parameters = {one.arg for one in walked if isinstance(one, ast.arg)}
    return parameters | {one.id for one in walked if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def test_there_is_code_to_run() -> None:
    assert len(BLOCKS) >= 5
