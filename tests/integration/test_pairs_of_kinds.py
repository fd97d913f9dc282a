"""100,000 pairs of users and items over each way equal torch's module at the epoch of the answer.

Two local jobs stream on meanwhile, and the second one, of another model, takes the place of the first.
"""

from __future__ import annotations

import copy
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.flight as flight
import pyarrow.parquet as pq
import pytest
import torch

from freshet import EmbeddingClient
from freshet.gnn.model import save_model
from freshet.gnn.pyg.own.pairs import with_link_heads
from freshet.job.lifecycle.summary import progress
from freshet.job.service.generations import GENERATION, Service
from freshet.job.serving.promotion import promote
from freshet.job.serving.protocol.wanted import PAIRS_MAX
from tests.support.graphs.kind_streams import random_records
from tests.support.graphs.kinds import KINDS, kinds_model, sage_everywhere
from tests.support.runs.inside import call_inside
from tests.support.runs.jobs import DEADLINE_S, Input, Job, read_log
from tests.support.serving.server import Server

pytestmark = pytest.mark.slow

EVENTS, IDS = 4_000, 12  # of users and items, of which some have no row
WIDTHS = {"A": 4, "B": 6}
SLOW = {name: {"slow": {"parser": ms}, "chunk": 20, "lull": 150} for name, ms in (("A", 150), ("B", 100))}  # B is ahead
ENOUGH = 2  # answers by each way, of each generation
Scores = tuple[int, list[float | None]]


def head(name: str) -> torch.nn.Module:
    torch.manual_seed(ord(name))
    return torch.nn.Bilinear(WIDTHS[name], WIDTHS[name], 1)


def make_job(folder: Path, name: str, records: list[dict[str, Any]]) -> Job:
    layers = [sage_everywhere(KINDS, 6), sage_everywhere(dict.fromkeys(KINDS, 6), WIDTHS[name])]
    model = kinds_model(layers, ["user", "item"], seed=ord(name))
    save_model(with_link_heads(model, {("user", "item"): head(name)}), folder / name / "model")
    events = folder / "events.jsonl"
    events.write_bytes(b"\n".join(map(orjson.dumps, records)))
    return Job(Input(folder / name / "model", events, EVENTS), folder / name / "O")


@pytest.fixture
def both(tmp_path: Path, jobs: list[Job]) -> list[Job]:
    kinds = kinds_model([sage_everywhere(KINDS, 4)], ["user", "item"]).features.kinds
    assert kinds is not None
    records = random_records(kinds, 3, EVENTS)
    jobs += [make_job(tmp_path, name, records) for name in WIDTHS]
    for one, name in zip(jobs, WIDTHS, strict=True):
        one.start("--runtime", "local", "--parts", 2, "--epoch-events", 20, faults=SLOW[name])
    for one in jobs:
        one.until(lambda one=one: progress(one.out)["epoch"] >= 2)
    return jobs


@pytest.fixture
def server(both: list[Job], tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "V"
    promote(Service(folder), both[0].out, wait_s=60.0, force=False)
    one = Server(folder, of=("--service", str(folder), "--kind", "user,item"), kind="item")
    yield one
    one.end()


class Reader(threading.Thread):
    """Asks by one way after the other, over and over: (way, epoch, scores)."""

    def __init__(self, reads: dict[str, Callable[[], Scores]]) -> None:
        super().__init__(daemon=True)
        self._reads, self.stop, self.answers = reads, threading.Event(), list[tuple[str, int, list[float | None]]]()
        self.broken: BaseException | None = None

    def run(self) -> None:
        try:
            for way, read in itertools.cycle(self._reads.items()):
                if self.stop.is_set():
                    return
                self.answers.append((way, *read()))
        except BaseException as error:
            self.broken = error

    def until_all_ways(self, generation: int) -> None:
        """Wait until each way has given enough answers of a generation, at several epochs together."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            mine = [(way, epoch) for way, epoch, _ in self.answers if epoch // GENERATION == generation]
            counts = Counter(way for way, _ in mine)
            if len(counts) == len(self._reads) and min(counts.values()) >= ENOUGH and len({at for _, at in mine}) > 1:
                return
            assert self.broken is None, self.broken
            assert time.monotonic() < deadline, counts
            time.sleep(0.02)


def of_table(table: pa.Table) -> Scores:
    assert table.schema.metadata[b"scored_by"] == b"link_head"
    return int(table.schema.metadata[b"epoch"]), table["score"].to_pylist()


def ways(at: dict[str, Any], pairs: np.ndarray, folder: Path) -> dict[str, Callable[[], Scores]]:
    client = EmbeddingClient(at["flight"], timeout=60)
    mapped = EmbeddingClient(folder / "V" / "tables", timeout=60)
    http = httpx.Client(base_url=f"http://{at['http']}", timeout=120, trust_env=False)
    listed = pairs.tolist()
    ticket = flight.Ticket(orjson.dumps({"score": listed, "timeout": 60}))
    pq.write_table(pa.table({"left": pairs[:, 0], "right": pairs[:, 1]}), folder / "pairs.parquet")

    def by_http() -> Scores:
        answer = http.post("/v1/score", json={"pairs": listed, "timeout": 60}).json()
        return answer["as_of"], answer["scores"]

    def by_ticket() -> Scores:
        with flight.connect(f"grpc://{at['flight']}") as door:
            return of_table(door.do_get(ticket).read_all())

    def by_file() -> Scores:
        given = ("--pairs-file", folder / "pairs.parquet", "--format", "json", "--timeout", 60)
        _, out, err = call_inside("query", "--at", at["flight"], *given)
        epoch = next(line for line in err.splitlines() if line.startswith("epoch "))
        return int(epoch.split()[1].rstrip(":")), [orjson.loads(line)["score"] for line in out.splitlines()]

    return {
        "client": lambda: of_table(client.score(pairs)),
        "mapped": lambda: of_table(mapped.score(pairs)),
        "http": by_http,
        "ticket": by_ticket,
        "file": by_file,
    }


def rows_at(out: Path, kind: str, epoch: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows of the ids of a kind at an epoch of the job, and which of them there are."""
    log, rows, there = read_log(out, kind), np.zeros((IDS, width)), np.zeros(IDS, bool)
    for k in np.flatnonzero((log.epoch <= epoch) & (log.id < IDS)):
        there[log.id[k]] = not log.deleted[k]
        rows[log.id[k]] = log.vector[k]
    return rows, there


def expected(job: Job, name: str, epoch: int, pairs: np.ndarray) -> np.ndarray:
    """torch's scores at an epoch of a job, NaN where an end has no row."""
    ends = [rows_at(job.out, kind, epoch, WIDTHS[name]) for kind in ("user", "item")]
    left, right = (torch.from_numpy(rows[at]) for (rows, _), at in zip(ends, pairs.T, strict=True))
    with torch.no_grad():
        scores = copy.deepcopy(head(name)).double()(left, right)[:, 0].numpy()
    return np.where(ends[0][1][pairs[:, 0]] & ends[1][1][pairs[:, 1]], scores, np.nan)


def test_pairs_over_each_way_equal_the_module_while_models_are_exchanged(
    both: list[Job], server: Server, tmp_path: Path
) -> None:
    pairs = np.random.default_rng(1).integers(0, IDS, (PAIRS_MAX, 2))
    reader = Reader(ways(server.start(), pairs, tmp_path))
    reader.start()
    reader.until_all_ways(0)
    promote(Service(tmp_path / "V"), both[1].out, wait_s=60.0, force=True)
    reader.until_all_ways(1)
    assert [job.processes[-1].poll() for job in both] == [None, None], "both stream on"
    reader.stop.set()
    reader.join()
    for job in both:
        job.hurry()
        assert job.wait().code == 0, job.log()
    epochs = [epoch for _, epoch, _ in reader.answers]
    assert epochs == sorted(epochs)
    for way, epoch, scores in reader.answers:
        number, own = divmod(epoch, GENERATION)
        want = expected(both[number], "AB"[number], own, pairs)
        got = np.array([np.nan if score is None else score for score in scores])
        assert np.isfinite(want).any()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4, err_msg=f"{way} at {epoch}")
