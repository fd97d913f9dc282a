"""A table of another job takes the place of the one before, under each kind of reader: no answer mixes the two."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from freshet import EmbeddingClient
from freshet.gnn.model import save_model
from freshet.job.serving.clients.asked import as_batch, ids_of
from freshet.job.serving.feeds.follower import Follower
from freshet.job.serving.protocol.columns import rows_of
from freshet.job.serving.protocol.errors import NotReadyError
from freshet.job.serving.tables.place import read_shown
from freshet.job.serving.tables.served_job import ServedJob, readouts_of
from freshet.state.served.reader import TableReader
from tests.support.graphs.models import conv, make_model
from tests.support.serving.hand_job import JOB_ID, WIDTH, HandJob, linear
from tests.support.serving.served import Served
from tests.support.serving.server import START_S, Server

OTHER = f"{JOB_ID[:-1]}x"
LAST = 9
OTHERS = {
    "head": {"seed": 2},
    "width": {"seed": 2, "width": WIDTH + 3},
    "no head": {"head": False},
    "strings": {"kind": "string"},
}


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Served]:
    found = Served(tmp_path / "O", "int")
    yield found
    found.close()


class Other:
    """A job whose table takes the place of that in a folder."""

    def __init__(self, out: Path, tables: Path, **options: Any) -> None:
        self.hand, self.has_head = HandJob(out, job_id=OTHER, **options), options.get("head", True)
        for epoch in range(1, LAST + 1):
            self.hand.apply(epoch, ({2: 10.0 + epoch, 3: -5.0}, []), ({4: 7.0}, []))
        self.hand.settle()
        job = ServedJob.read(out)
        assert job is not None
        self.follower = Follower(job, tables, 1 << 20)
        self.follower.start()
        until(lambda: self.follower.step() or self.follower.table.epoch == LAST)
        until(lambda: not self.follower.step() and self.follower.table.epoch == LAST)

    def close(self) -> None:
        self.hand.close()
        self.follower.close(forget=False)
        self.follower.table.path.unlink(missing_ok=True)

    @property
    def two(self) -> int | str:
        return "v2" if self.hand.kind == "string" else 2

    def judge(self, table: pa.Table, logits: bool = True) -> None:
        """Look whether rows, and logits where they were wanted, are those of this job."""
        rows = rows_of(table["embedding"].combine_chunks())
        assert rows.tolist() == [[10.0 + LAST] * self.hand.width]
        assert table.schema.metadata[b"epoch"] == b"%d" % LAST
        assert ("logits" in table.column_names) == (logits and self.has_head)
        if "logits" in table.column_names:
            assert np.array_equal(rows_of(table["logits"].combine_chunks()), self.hand.plan.logits(rows))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def streams(address: str, logits: bool) -> tuple[Any, Any, Any]:
    client = flight.connect(f"grpc://{address}")
    command = orjson.dumps({"logits": logits})
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(command))
    batch = as_batch(ids_of([2]))
    writer.begin(batch.schema)
    writer.write_batch(batch)
    assert rows_of(reader.read_chunk().data.column(2)).tolist() == [[1.0] * WIDTH]
    return client, writer, reader


@pytest.mark.parametrize("name", OTHERS)
def test_each_reader_gets_rows_width_and_head_of_the_table_that_it_reads(
    one: Served, tmp_path: Path, name: str
) -> None:
    address = f"127.0.0.1:{one.port}"
    opened = [streams(address, logits) for logits in (False, True)]
    clients = [one.client("flight"), one.client("mapped")]
    for client in clients:
        assert rows_of(client.get([2], logits=True)["embedding"].combine_chunks()).tolist() == [[1.0] * WIDTH]
        assert client.rows([2])[2].tolist() == [[1.0] * WIDTH]
    changes = flight.connect(f"grpc://{address}").do_get(flight.Ticket(b'{"changes":true}'))
    assert changes.read_chunk().data.num_rows == 3
    other = Other(tmp_path / "P", one.hand.out / "tables", **OTHERS[name])
    two, same = other.two, name == "head"
    try:
        until(lambda: one.lookup.table.epoch == LAST)
        answer = one.http.get(f"/embeddings/{two}").json()
        assert (answer["as_of"], answer["embedding"]) == (LAST, [10.0 + LAST] * other.hand.width)
        assert ("logits" in answer) == (name != "no head")
        until(lambda: clients[1].health()["epoch"] == LAST)  # it looks for another table by itself, now and then
        for client in clients:
            other.judge(client.get([two], logits=True))
            assert client.rows([two])[2].tolist() == [[10.0 + LAST] * other.hand.width]
            other.judge(client.nearest(two, k=1), logits=False)
            assert client.all()["embedding"].type.list_size == other.hand.width
        assert one.health.figures()["epoch"] == LAST
        for (_, writer, reader), logits in zip(opened, (False, True), strict=True):
            goes_on = same or (name == "no head" and not logits)
            writer.write_batch(as_batch(ids_of([2])))
            if goes_on:
                chunk = reader.read_chunk()
                epoch = orjson.loads(chunk.app_metadata.to_pybytes())["epoch"]
                other.judge(pa.Table.from_batches([chunk.data]).replace_schema_metadata({"epoch": str(epoch)}), logits)
            else:
                with pytest.raises(flight.FlightUnavailableError, match="not-ready: the table is another one"):
                    reader.read_chunk()
        with pytest.raises(flight.FlightUnavailableError, match=f"not-ready: the table is of the job '{OTHER}'"):
            while True:
                changes.read_chunk()
        fields = orjson.loads(next(iter(flight.connect(f"grpc://{address}").do_action("job"))).body.to_pybytes())
        assert (fields["job_id"], fields["width"]) == (OTHER, other.hand.width)
    finally:
        other.close()
        for _, _, reader in opened:
            reader.cancel()  # the server waits for its streams when it ends
        changes.cancel()
        for client in clients:
            client.close()


def test_servers_and_their_workers_and_those_that_feed_from_them_follow(one: Served, tmp_path: Path) -> None:
    server = Server(tmp_path / "F")
    try:
        told = server.start("--from", f"127.0.0.1:{one.port}", "--workers", "2")
        flights = [each.removeprefix("grpc://") for each in told["flights"]]
        url = f"http://{told['http'].removeprefix('http://')}/embeddings/2"
        until(lambda: all(answers(each) for each in flights))
        mapped = EmbeddingClient(server.tables, timeout=60.0)
        assert mapped.get([2], logits=True)["logits"].type.list_size == 3
        other = Other(tmp_path / "P", one.hand.out / "tables", **OTHERS["width"])
        try:
            until(lambda: httpx.get(url, trust_env=False, timeout=60).json().get("as_of") == LAST)
            until(lambda: len(httpx.get(url, trust_env=False, timeout=60).json()["embedding"]) == WIDTH + 3)
            for each in flights:
                with EmbeddingClient(each, timeout=60.0) as client:
                    other.judge(client.get([2], logits=True))
            other.judge(mapped.get([2], logits=True))
        finally:
            other.close()
        assert server.stop() == 0
        assert f"of the job {OTHER} now" in server.log()
    finally:
        server.end()


def answers(address: str) -> bool:
    try:
        with EmbeddingClient(address, timeout=0.0) as client:
            return client.get([2]).num_rows == 1
    except NotReadyError:
        return False


@pytest.mark.parametrize("way", ["flight", "mapped"])
def test_neighbours_of_a_vertex_are_of_the_epoch_of_its_row(
    one: Served, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch that comes once the request is under way is of both, or of neither."""
    epoch, rows_at, looks = one.lookup.table.epoch, TableReader.rows_of, list[int]()

    def later(table: TableReader, slots: np.ndarray, at: int) -> Any:
        found = rows_at(table, slots, at)
        if one.lookup.table.epoch == epoch:
            one.hand.apply(epoch + 1, ({2: 100.0}, []))
            one.until(epoch + 1)
        looks.append(at)
        return found

    monkeypatch.setattr(TableReader, "rows_of", later)
    with one.client(way) as client:
        before, after = (client.nearest(2, k=9, metric="dot") for _ in range(2))
    for table, at in ((before, epoch), (after, epoch + 1)):
        rows = rows_of(table["embedding"].combine_chunks())
        value = rows[table["id"].to_pylist().index(2)]
        assert table.schema.metadata[b"epoch"] == b"%d" % at
        assert table["score"].to_pylist() == sorted((rows @ value).tolist(), reverse=True)
    assert after["id"].to_pylist()[0] == 2
    assert after["score"].to_pylist()[0] == WIDTH * 100.0**2 > before["score"].to_pylist()[0]
    assert looks == [epoch, epoch, epoch + 1, epoch + 1]  # of the vertex, and of what was found


def test_a_model_that_is_not_that_of_the_rows_gives_no_logits(tmp_path: Path) -> None:
    """Another model may take the folder of the one before, for another job; under rows of this one it is refused."""
    hand = HandJob(tmp_path / "O")
    job = ServedJob.read(hand.out)
    assert job is not None
    before = readouts_of(job.model, job.model_sha256).of("")
    save_model(make_model(7, [conv("sage_conv", 3, WIDTH)], head=[linear(WIDTH, 3)]), Path(job.model))
    assert readouts_of(job.model, job.model_sha256).of("") is before, "what was read is that of the rows"
    with pytest.raises(NotReadyError, match="is another model than that of the rows"):
        readouts_of(job.model, "0" * 64)
    with pytest.raises(NotReadyError, match="put that one back"):
        readouts_of(job.model, job.model_sha256)
    hand.close()


def test_readers_get_no_earlier_epoch_of_a_job_that_takes_the_place(tmp_path: Path) -> None:
    hand = HandJob(tmp_path / "O")
    hand.apply(1, ({2: 1.0}, []), ({3: 1.0}, []))
    job = ServedJob.read(hand.out)
    assert job is not None
    follower = Follower(job, hand.out / "tables", 1 << 20)
    follower.not_before(3)
    follower.start(lambda: True)
    assert (follower.is_readable, follower.seen, read_shown(hand.out / "tables")) == (False, 3, None)
    for epoch in (2, 3):
        hand.apply(epoch, ({2: float(epoch)}, []), ({}, []))
    until(lambda: follower.step() or follower.is_readable)
    until(lambda: not follower.step() and follower.is_readable)
    assert follower.seen == follower.table.epoch == 3
    hand.close()
    follower.close(forget=True)
