"""`freshet serve --what-if` beside a job that runs, after it has ended, and after a kill."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from freshet import BadRequestError, EmbeddingClient
from freshet.errors import TooFarError
from freshet.gnn.model import save_model
from freshet.gnn.own.loading import load_layers
from freshet.job.folder.run_file import read_run
from tests.support.graphs.messages import written_models
from tests.support.graphs.models import IN_WIDTH
from tests.support.runs.jobs import Input, Job, make_input
from tests.support.serving.server import Server

pytestmark = pytest.mark.slow
VERTEX, OTHER = -5, 2  # of those that the snapshot has


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Input:
    return make_input(tmp_path_factory.mktemp("input"), 3000, snapshot=True)


def rows_of(table: Any) -> np.ndarray:
    return np.stack(table["embedding"].to_pylist())


def test_a_run_answers_while_it_goes_on(given: Input, job: Callable[[Input], Job]) -> None:
    one = job(given)
    slow = {"slow": {"parser": 300}, "chunk": 50, "lull": 10}
    one.start("--flight-port", 0, "--what-if", "--runtime", "local", "--epoch-events", 20, faults=slow)
    one.until(lambda: "serving" in read_run(one.out))
    epochs = set[int]()
    with EmbeddingClient(read_run(one.out)["serving"]["flight"], timeout=60.0) as client:
        deadline = time.monotonic() + 120
        while len(epochs) < 4 and time.monotonic() < deadline:
            tried = client.what_if(VERTEX)
            there = client.get([VERTEX])
            if tried.schema.metadata[b"epoch"] == there.schema.metadata[b"epoch"] and there.num_rows:
                np.testing.assert_allclose(rows_of(tried), rows_of(there), 1e-5, 1e-5)
                epochs.add(int(tried.schema.metadata[b"epoch"]))
    one.hurry()
    assert one.wait().code == 0
    assert len(epochs) >= 4, epochs
    server = Server(one.out)
    try:
        with EmbeddingClient(server.start()["flight"], timeout=60.0) as client:
            assert client.what_if(VERTEX).num_rows == 1, "as its run has asked of all servers"
    finally:
        server.end()


@pytest.fixture(scope="module")
def ended(given: Input, tmp_path_factory: pytest.TempPathFactory) -> Path:
    one = Job(given, tmp_path_factory.mktemp("ended") / "out")
    one.start("--runtime", "local")
    assert one.wait().code == 0
    return one.out


def test_tables_of_a_job_that_has_ended_answer_over_all_doors(ended: Path) -> None:
    server = Server(ended)
    try:
        for _ in range(2):  # and after a kill
            told = server.start("--what-if", "base")
            client = EmbeddingClient(told["flight"], timeout=60.0)
            item = {"x": [0.5] * IN_WIDTH, "in_edges": [[VERTEX, 2.0], {"id": OTHER}], "out_edges": [[OTHER]]}
            new = client.what_if(None, also=[OTHER, 10**9], **item)  # type: ignore[arg-type]
            assert new["id"].to_pylist() == [None, OTHER]
            assert new.schema.metadata[b"unknown"] == b"[1000000000]"
            now = client.get([OTHER])
            assert not np.allclose(rows_of(new)[1], rows_of(now)[0])
            np.testing.assert_allclose(rows_of(client.what_if(OTHER)), rows_of(now), 1e-5, 1e-5)
            with httpx.Client(base_url=f"http://{told['http']}", trust_env=False, timeout=60) as http:
                found = http.post("/v1/what-if", json={**item, "also": [OTHER, 10**9]})
                assert (found.status_code, found.json()["unknown"]) == (200, [10**9])
                assert [one["id"] for one in found.json()["found"]] == [None, OTHER]
                np.testing.assert_allclose([one["embedding"] for one in found.json()["found"]], rows_of(new), 1e-6)
                several = http.post("/v1/what-if", json={"vertices": [item, {"id": OTHER}], "ids_as": "string"}).json()
                assert [(one["id"], one["vertex"]) for one in several["found"]] == [(None, 0), (str(OTHER), 1)]
                for body, status, kind, why in (
                    ({**item, "max_touched": 0}, 422, "too-far", "max_touched: the events reach 2 vertices"),
                    ({"x": [1.0]}, 422, "bad-request", f"x: expected {IN_WIDTH} numbers, got 1"),
                    ({"vertices": [item], "id": 7}, 422, "bad-request", "id: does not go with vertices"),
                    ({"vertices": [{"in_edge": []}]}, 422, "bad-request", "in_edge"),
                ):
                    refused = http.post("/v1/what-if", json=body)
                    assert (refused.status_code, refused.json()["kind"]) == (status, kind)
                    assert why in refused.json()["error"]
            with pytest.raises(TooFarError, match="expected at most 0"):
                client.what_if(max_touched=0, **item)  # type: ignore[arg-type]
            client.close()
            server.kill()
        told = server.start()
        with (
            EmbeddingClient(told["flight"]) as client,
            pytest.raises(BadRequestError, match=r"start it as .* --what-if"),
        ):
            client.what_if(OTHER)
        with EmbeddingClient(ended / "tables") as client, pytest.raises(BadRequestError, match="--what-if"):
            client.what_if(OTHER)
    finally:
        server.end()


def test_layers_of_ones_own_are_given_to_the_server(tmp_path: Path) -> None:
    given = make_input(tmp_path / "input", 300)
    load_layers(["examples.gated_sum"])
    save_model(written_models(IN_WIDTH)["gated_sum"](), given.model)
    one = Job(replace(given, layers=("examples.gated_sum",)), tmp_path / "out")
    one.start("--runtime", "local")
    assert one.wait().code == 0
    server = Server(one.out)
    try:
        server.launch("--what-if", "base")
        assert server.process is not None and server.process.wait(60) == 2
        assert "give --layers examples.gated_sum" in server.log()
        told = server.start("--what-if", "base", "--layers", "examples.gated_sum")
        with EmbeddingClient(told["flight"], timeout=60.0) as client:
            np.testing.assert_allclose(rows_of(client.what_if(OTHER)), rows_of(client.get([OTHER])), 1e-5, 1e-5)
    finally:
        server.end()
