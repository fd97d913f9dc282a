"""`freshet run --embeddings asked`: its server computes the last layer at the read, equal to what an eager job has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet import BadRequestError, EmbeddingClient, read_changes
from freshet.gnn.model import save_model
from freshet.gnn.own.loading import load_layers
from freshet.job.errors import UsageError
from freshet.job.folder.run_file import read_run
from freshet.operators.sink.change_log_reader import ChangeLogReader
from tests.support.graphs.attributed import EDGE_WIDTH, gine
from tests.support.graphs.kind_streams import random_records
from tests.support.graphs.kinds import KINDS, kinds_model, sage_everywhere
from tests.support.graphs.messages import gated_sum
from tests.support.graphs.models import IN_WIDTH, conv
from tests.support.runs.inside import call_inside
from tests.support.runs.jobs import NO_SUMS, SUMS, Input, Job, make_input
from tests.support.serving.server import Server

pytestmark = pytest.mark.slow
VERTEX, OTHER, UNKNOWN = -5, 2, 10**9  # the first two are of the snapshot
SHAPE = ("--epoch-events", 40, "--epoch-ms", 0)


def ended(given: Input, out: Path, *options: object) -> Path:
    one = Job(given, out)
    one.done("--runtime", "local", *SHAPE, *options)
    one.check()
    return one.out


def rows_of(table: Any) -> np.ndarray:
    return np.stack(table["embedding"].to_pylist())


@contextmanager
def served(out: Path, folder: str = "") -> Iterator[dict[str, Any]]:
    """A server of all kinds, and what it tells of itself in the folder of one."""
    server = Server(out, of=("--tables", str(out / "tables")), kind=folder)
    try:
        yield server.start()
    finally:
        server.end()


def client_of(address: dict[str, Any], kind: str | None = None) -> EmbeddingClient:
    return EmbeddingClient(address["flight"], timeout=60.0, kind=kind)


def http_of(address: dict[str, Any]) -> httpx.Client:
    return httpx.Client(base_url=f"http://{address['http']}", trust_env=False, timeout=60.0)


def assert_equal(client: EmbeddingClient, eager: Path, kind: str = "") -> None:
    """All rows are those that an eager job has written, at its last epoch."""
    log = ChangeLogReader(eager, kind)
    final = log.final()
    assert len(final.ids) > 5
    found = client.get([*final.ids.tolist(), UNKNOWN])
    assert found["id"].to_pylist() == final.ids.tolist()
    np.testing.assert_allclose(rows_of(found), final.vectors, 1e-5, 1e-5)
    assert set(found["epoch"].to_pylist()) == {log.last_epoch()} == {int(found.schema.metadata[b"epoch"])}


@pytest.mark.parametrize("layers", [SUMS, NO_SUMS], ids=["sums", "no sums"])
def test_it_equals_an_eager_job(tmp_path: Path, layers: Any) -> None:
    given = make_input(tmp_path / "input", 2000, snapshot=True, layers=layers)
    eager = ended(given, tmp_path / "eager")
    lazy = ended(given, tmp_path / "asked", "--embeddings", "asked", "--parts", 1 if layers is NO_SUMS else 2)
    assert not (lazy / "embeddings").exists()
    with served(lazy) as address, client_of(address) as client:
        assert_equal(client, eager)


@pytest.mark.parametrize("returned", [("item", "user"), ("user",)])
def test_kinds(tmp_path: Path, returned: tuple[str, ...]) -> None:
    layers = [sage_everywhere(KINDS, 6, aggr="max"), sage_everywhere(dict.fromkeys(KINDS, 6), 4)]
    model = kinds_model(layers, returned)
    assert model.features.kinds is not None
    save_model(model, tmp_path / "model")
    records = random_records(model.features.kinds, 7, 1_000)
    (tmp_path / "events.jsonl").write_bytes(b"\n".join(map(orjson.dumps, records)))
    given = Input(tmp_path / "model", tmp_path / "events.jsonl", 1_000)
    eager, lazy = ended(given, tmp_path / "eager"), ended(given, tmp_path / "asked", "--embeddings", "asked")
    several = len(returned) > 1
    with served(lazy, next((lazy / "inner").iterdir()).name) as address:
        for kind in returned:
            with client_of(address, kind if several else None) as client:
                assert_equal(client, eager, kind if several else "")


def test_while_it_runs_and_after_kills(tmp_path: Path, job: Callable[[Input], Job]) -> None:
    given = make_input(tmp_path / "input", 3000, snapshot=True)
    eager = ended(given, tmp_path / "eager")
    log = ChangeLogReader(eager)
    at = {epoch: log.state_at(epoch) for epoch in range((log.last_epoch() or 0) + 1)}
    one = job(given)
    slow = {"slow": {"parser": 300}, "chunk": 50, "lull": 10}
    one.start(*SHAPE, "--embeddings", "asked", "--checkpoint-interval", "500ms", faults=slow)
    one.until_epoch(3)
    server, epochs = Server(one.out), set[int]()

    def read() -> None:
        for few in ([VERTEX, OTHER], at[0].ids.tolist()):
            found = client.get(few)
            (epoch,) = set(found["epoch"].to_pylist()) or {0}
            want = at[epoch]
            ids, places = want.ids.tolist(), {id_: k for k, id_ in enumerate(want.ids.tolist())}
            assert found["id"].to_pylist() == [id_ for id_ in few if id_ in set(ids)]
            rows = want.vectors[[places[id_] for id_ in found["id"].to_pylist()]]
            np.testing.assert_allclose(rows_of(found), rows, 1e-5, 1e-5)
            epochs.add(epoch)

    try:
        for kills in (server.kill, one.kill, None):
            address = server.start()
            with client_of(address) as client:
                seen, until = set(epochs), time.monotonic() + 60
                while len(epochs - seen) < 3:
                    assert time.monotonic() < until, epochs
                    read()
            if kills is not None:
                kills()
            if kills == one.kill:
                server.kill()
                one.start("--resume", "latest", faults=slow)
        one.hurry()
        assert one.wait().code == 0
        server.kill()
        with client_of(server.start()) as client:
            assert_equal(client, eager)
    finally:
        server.end()


@pytest.mark.parametrize("runtime", ["local", "flink"])
def test_the_server_of_a_run(tmp_path: Path, job: Callable[[Input], Job], runtime: str) -> None:
    load_layers(["examples.gated_sum"])
    given = make_input(
        tmp_path / "input", 1000, snapshot=True, layers=(conv("sage_conv", IN_WIDTH, 6), gated_sum(6, 4))
    )
    given = replace(given, layers=("examples.gated_sum",))
    eager = ended(given, tmp_path / "eager")
    one, slow = job(given), {"slow": {"parser": 300}, "chunk": 50, "lull": 10}
    one.start(*SHAPE, "--runtime", runtime, "--flight-port", 0, "--embeddings", "asked", faults=slow)
    former: dict[str, Any] = {}
    for _ in range(2):  # the second is resumed, and is not given the option again
        until = time.monotonic() + 120
        while (address := read_run(one.out).get("serving", former)) == former:
            assert time.monotonic() < until, one.log()
            time.sleep(0.05)
        former = address
        with client_of(address) as client:
            found = client.get([VERTEX, OTHER])
            epoch = int(found.schema.metadata[b"epoch"])
            state = ChangeLogReader(eager).state_at(epoch)
            places = [state.ids.tolist().index(id_) for id_ in found["id"].to_pylist()]
            np.testing.assert_allclose(rows_of(found), state.vectors[places], 1e-5, 1e-5)
        one.kill()
        one.start("--resume", "latest", "--flight-port", 0, faults=slow)
    one.hurry()
    assert one.wait().code == 0
    one.check()


def test_doors(tmp_path: Path) -> None:
    given = make_input(tmp_path / "input", 500, snapshot=True)
    lazy = ended(given, tmp_path / "asked", "--embeddings", "asked")
    with (
        served(lazy) as address,
        client_of(address) as client,
        http_of(address) as http,
    ):
        want = rows_of(client.get([VERTEX]))[0]
        one = http.get(f"/v1/embeddings/{VERTEX}").json()
        np.testing.assert_allclose(one["embedding"], want, 1e-6)
        several = http.post("/v1/embeddings", json={"ids": [VERTEX, UNKNOWN]}).json()
        assert several["unknown"] == [UNKNOWN]
        np.testing.assert_allclose(several["found"][0]["embedding"], want, 1e-6)
        features = http.post("/get-online-features", json={"entities": {"id": [VERTEX]}, "features": ["v:embedding"]})
        assert features.status_code == 200
        assert http.post("/v1/score", json={"pairs": [[VERTEX, OTHER]]}).json()["scores"][0] is not None
        np.testing.assert_allclose(rows_of(client.what_if(VERTEX))[0], want, 1e-5, 1e-5)
        changed = client.what_if(VERTEX, in_edges=[(OTHER, 5.0)], also=[OTHER])
        assert not np.allclose(rows_of(changed)[0], want)
        assert http.get("/readyz").status_code == 200
        assert http.get("/v1/server").json()["kinds"][0]["width"] == len(want)
        for refused in (
            http.post("/v1/nearest", json={"id": VERTEX}),
            http.get("/v1/rows"),
        ):
            assert refused.status_code == 400, refused.text
            assert "--embeddings asked" in refused.json()["error"]
        assert "--embeddings asked" in http.get("/v1/changes").text
        for ask in (
            lambda: client.all(),
            lambda: client.nearest(VERTEX),
            lambda: next(iter(client.changes(0))),
        ):
            with pytest.raises(BadRequestError, match="--embeddings asked"):
                ask()
        with EmbeddingClient(lazy / "tables") as mapped, pytest.raises(BadRequestError, match="the server's address"):
            mapped.get([VERTEX])


def test_commands_that_read_embeddings_refuse_its_folder(tmp_path: Path) -> None:
    given = make_input(tmp_path / "input", 300, snapshot=True)
    out = ended(given, tmp_path / "asked", "--embeddings", "asked")
    for command in (
        ("history", OTHER, "--out", out),
        ("watch", "--at", out / "tables"),
        ("promote", tmp_path / "service", out),
    ):
        code, _, errors = call_inside(*map(str, command))
        assert code == 2, errors
        assert "--embeddings asked" in errors
    with pytest.raises(UsageError, match="--embeddings asked"):
        read_changes(out)
    code, _, errors = call_inside("run", "--out", str(tmp_path / "other"), *given.options, "--embeddings", "asked",
                                  "--embeddings-to", "kafka://localhost:1/t")  # fmt: skip
    assert code == 2
    assert "--embeddings asked" in errors
    small = make_input(tmp_path / "one", 50, layers=SUMS[:1])
    code, _, errors = call_inside("run", "--out", str(tmp_path / "other"), *small.options, "--embeddings", "asked")
    assert code == 2
    assert "one layer" in errors
    last = make_input(tmp_path / "two", 50, layers=(SUMS[0], gine(8, 4)), edge_width=EDGE_WIDTH)
    code, _, errors = call_inside("run", "--out", str(tmp_path / "other"), *last.options, "--embeddings", "asked")
    assert code == 2
    assert "attributes of edges that no layer before it does" in errors
    code, _, errors = call_inside(
        "run", "--out", str(out), *given.options, "--resume", "latest", "--embeddings", "eager"
    )
    assert code == 2
    assert "--embeddings" in errors


def test_check_finds_a_row_that_is_wrong(tmp_path: Path) -> None:
    given = make_input(tmp_path / "input", 300, snapshot=True)
    out = ended(given, tmp_path / "asked", "--embeddings", "asked")
    path = max((out / "inner").glob("part-*.parquet"), key=lambda one: pq.read_metadata(one).num_rows)
    table = pq.read_table(path)
    rows = np.stack(table["embedding"].to_pylist()).astype(np.float32)
    rows[-1] += 0.5
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    pq.write_table(table.set_column(table.schema.get_field_index("embedding"), "embedding", column), path)
    with pytest.raises(AssertionError):
        Job(given, out).check()
