"""`freshet serve --what-if` beside a job that runs, after it has ended, and under kills of both."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest

from freshet import BadRequestError, EmbeddingClient, NotReadyError, NotYetError
from freshet.errors import TooFarError
from freshet.gnn.model import save_model
from freshet.gnn.own.loading import load_layers
from freshet.job.folder.run_file import read_run
from freshet.job.lifecycle.summary import progress
from freshet.job.machine.ports import free_port
from tests.support.graphs.messages import written_models
from tests.support.graphs.models import IN_WIDTH, make_model
from tests.support.runs.jobs import DEADLINE_S, FRESHET, SUMS, Input, Job, make_input, read_epochs
from tests.support.serving.server import Server
from tests.support.serving.tried import Event, Rows, item_of

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


def test_jobs_of_a_service_answer_beside_it(given: Input, ended: Path, tmp_path: Path) -> None:
    other = tmp_path / "model"
    save_model(make_model(2, SUMS), other)
    one = Job(replace(given, model=other), tmp_path / "out")
    one.start("--runtime", "local", "--what-if")
    assert one.wait().code == 0
    service = tmp_path / "service"
    servers = [Server(service, of=("--service", str(service))), Server(one.out)]
    try:
        for generation, out in enumerate((ended, one.out)):
            promoted = [str(FRESHET), "promote", str(service), str(out)]
            assert subprocess.run(promoted, capture_output=True, timeout=DEADLINE_S, check=False).returncode == 0
            if not generation:
                servers[0].launch("--what-if", "base")
                assert servers[0].process is not None and servers[0].process.wait(60) == 2
                assert "--what-if base: does not go with --service" in servers[0].log()
                told = servers[0].start()
            with EmbeddingClient(told["flight"], timeout=60.0) as client:
                assert client.all().schema.metadata[b"generation"] == str(generation).encode()
                with pytest.raises(BadRequestError, match=r"start it as .*--tables O/tables --what-if"):
                    client.what_if(OTHER)  # though the run of the second one has asked for it
                served = rows_of(client.get([VERTEX, OTHER]))
        with EmbeddingClient(servers[1].start()["flight"], timeout=60.0) as client:
            tried = client.what_if(vertices=[{"id": VERTEX}, {"id": OTHER}])
            np.testing.assert_allclose(rows_of(tried), served, 1e-5, 1e-5)
    finally:
        for server in servers:
            server.end()


IDS = [VERTEX, OTHER, *range(9, 9 + 7 * 28, 7)]
Answer = tuple[int, list[Any], np.ndarray, int | None]  # epoch, ids, rows; the event that was tried, if any
TIMEOUT_S = 5.0


def over_http(address: str, vertices: list[Event]) -> tuple[int, list[Any], np.ndarray]:
    """What is answered for several vertices."""
    body = {"vertices": vertices, "timeout": TIMEOUT_S}
    try:
        found = httpx.post(f"http://{address}/v1/what-if", json=body, trust_env=False, timeout=12 * TIMEOUT_S)
    except httpx.TransportError as error:  # the server is killed
        raise NotReadyError(str(error)) from None
    answer = found.json()
    if found.status_code in (503, 504):
        raise NotReadyError(answer["error"])
    assert found.status_code == 200, answer
    rows = answer["found"]
    return answer["as_of"], [one["id"] for one in rows], np.array([one["embedding"] for one in rows], np.float32)


@dataclass
class Asking:
    """Asks again and again on a thread of its own: for vertices as they are, and for what comes next in the stream."""

    flight: str
    http: str
    events: list[Event]
    many: bool  # vertices in a request, or the next event
    answers: list[Answer] = field(default_factory=list)
    failures: int = 0
    longest_s: float = 0.0
    broken: BaseException | None = None

    def __post_init__(self) -> None:
        self._stop, self._turn = threading.Event(), 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with EmbeddingClient(self.flight, timeout=TIMEOUT_S) as client:
                while not self._stop.wait(0.005):
                    began = time.monotonic()
                    try:
                        self.answers.append(self._answer(client))
                    except (NotReadyError, NotYetError):
                        self.failures += 1
                    self.longest_s = max(self.longest_s, time.monotonic() - began)
        except BaseException as error:
            self.broken = error

    def _answer(self, client: EmbeddingClient) -> Answer:
        self._turn += 1
        if self.many:
            vertices: list[Event] = [{"id": one} for one in IDS]
            if self._turn % 2:
                return *over_http(self.http, vertices), None
            return *self._of(client.what_if(vertices=vertices)), None
        following = (self.answers[-1][0] if self.answers else 0) + self._turn % 3
        item = item_of(self.events[following], "") if following < len(self.events) else None
        return *self._of(client.what_if(**(item or {"id": VERTEX}))), None if item is None else following

    @staticmethod
    def _of(table: Any) -> tuple[int, list[Any], np.ndarray]:
        return int(table.schema.metadata[b"epoch"]), table["id"].to_pylist(), rows_of(table)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive(), "it hangs"
        if self.broken is not None:
            raise self.broken


def held(asking: Asking, truth: Rows) -> int:
    """Hold answers against the rows of the job; returns how many are of the next event, which came to pass later."""
    epochs = [one[0] for one in asking.answers]
    assert epochs == sorted(epochs), "it went back"
    next_ones = 0
    for epoch, ids, rows, event in asking.answers[:: max(1, len(epochs) // 300)]:
        if event is not None and event != epoch:  # of a stream whose every event is an epoch
            continue
        next_ones += event is not None
        for one, row in zip(ids, rows, strict=True):
            expected = truth.at(one, epoch if event is None else epoch + 1)
            if expected is not None:  # else it is deleted, and a new vertex was asked for
                np.testing.assert_allclose(row, expected, 1e-4, 1e-5, err_msg=f"{one} at {epoch}, tried {event}")
    return next_ones


def test_clients_that_ask_on_while_server_and_job_are_killed(
    tmp_path: Path, job: Callable[[Input], Job], servers: list[Server]
) -> None:
    one = job(make_input(tmp_path / "in", 3000, snapshot=True))
    events = [orjson.loads(line) for line in one.given.events.read_bytes().splitlines()]
    options = ("--runtime", "local", "--epoch-events", 1, "--epoch-ms", 0, "--checkpoint-interval", "500ms")
    slow = {"slow": {"parser": 20}, "chunk": 1}
    one.start(*options, faults=slow)
    one.until_epoch(2)
    server, ports = Server(one.out), (free_port(), free_port())
    servers.append(server)
    given = ("--what-if", "base", "--port", str(ports[0]), "--http-port", str(ports[1]))
    told = server.start(*given)
    asking = [Asking(told["flight"], told["http"], events, many) for many in (False, True)]

    def more() -> None:
        seen = [len(each.answers) for each in asking]
        one.until(
            lambda: (
                any(each.broken for each in asking)
                or all(len(each.answers) > before + 8 for each, before in zip(asking, seen, strict=True))
            ),
            alive=False,
        )

    more()
    server.kill()
    server.start(*given)
    more()
    before = progress(one.out)["epoch"]
    one.kill()
    more()
    one.start(*options, "--resume", "latest", faults=slow)
    one.until_epoch(before + 10)
    more()
    server.kill()
    one.kill()
    server.start(*given)
    one.start(*options, "--resume", "latest", faults=slow)
    more()
    one.hurry()
    assert one.wait().code == 0
    more()
    for each in asking:
        each.end()
        assert each.longest_s < 4 * TIMEOUT_S
    assert all(epoch == at for epoch, _, at, events_of_it in read_epochs(one.out) if events_of_it)
    truth = Rows(one.out, sorted({each for asked in asking for _, ids, _, _ in asked.answers for each in ids}))
    assert held(asking[0], truth) > 10
    held(asking[1], truth)
    assert len({epoch for epoch, *_ in asking[1].answers}) > 10
