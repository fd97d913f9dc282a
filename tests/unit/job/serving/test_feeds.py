"""A server that feeds from others: the same rows at the same epochs, through deaths of its sources, never back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from freshet import EmbeddingClient
from freshet.gnn.model import ModelError
from freshet.job.errors import UsageError
from freshet.job.machine.ports import server_port
from freshet.job.serving.doors.flight_server import EmbeddingFlights
from freshet.job.serving.feeds.fed_job import FedServers
from freshet.job.serving.feeds.sent_model import digest_of, folder_of, take
from freshet.job.serving.tables import place
from freshet.job.serving.tables.health import Health
from freshet.job.serving.tables.lookup import Lookup
from freshet.job.serving.tables.served import CurrentTable, JobHere
from freshet.state.served.times import Moment
from tests.support.serving.fed import FedFollower
from tests.support.serving.hand_job import JOB_ID, WIDTH
from tests.support.serving.served import Served


class Fed:
    """A server without a folder in common with the job, in this process."""

    def __init__(self, tables: Path, addresses: list[str], token: str | None = None) -> None:
        sources = FedServers(addresses, token)
        self._stop = threading.Event()
        self.job = sources.job(tables, self._stop.is_set, 60)
        self.follower = FedFollower(self.job, tables, sources, self._stop.is_set, 1 << 20)
        self.follower.start()
        self.lookup = Lookup(CurrentTable(tables, JobHere.of(self.job)))
        self.health = Health(self.lookup, stale_after_s=1.0)
        self._thread = threading.Thread(target=self.follower.run, args=(self._stop.is_set,))
        self._thread.start()

    def rows(self) -> dict[object, tuple[int, float]]:
        answer = self.lookup.all()
        ids = answer.ids.tolist() if hasattr(answer.ids, "tolist") else answer.ids.decode()
        return {id_: (own, row[0]) for id_, own, row in zip(ids, answer.epochs.tolist(), answer.rows, strict=True)}

    def until(self, epoch: int) -> None:
        deadline = time.monotonic() + 60
        while self.lookup.table.epoch < epoch:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def until_ready(self, ready: bool) -> None:
        deadline = time.monotonic() + 60
        while self.health.figures()["ready"] != ready:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def close(self, forget: bool = True) -> None:
        self._stop.set()
        self._thread.join()
        self.follower.close(forget)


@pytest.fixture(params=["int", "string"])
def source(request, tmp_path) -> Iterator[Served]:
    one = Served(tmp_path / "O", request.param, token="secret")
    yield one
    one.close()
    assert not list(place.SHM.glob(f"freshet-{JOB_ID}-*"))


def test_following_through_the_death_of_a_source(source, tmp_path):
    def key(number: int) -> object:
        return f"v{number}" if source.hand.kind == "string" else number

    nobody = f"127.0.0.1:{server_port()}"
    fed = Fed(tmp_path / "fed" / "tables", [nobody, f"127.0.0.1:{source.port}"], "secret")
    assert fed.rows() == {key(2): (1, 1.0), key(3): (1, -2.0), key(4): (1, 3.0)}
    source.hand.apply(2, ({2: 2.0, 5: 2.0}, [3]), event_ts=-7, last_arrival_ms=22)
    fed.until(2)
    assert fed.lookup.served.so_far(2) == source.lookup.served.so_far(2) == Moment(22, -7)
    expected = {key(2): (2, 2.0), key(4): (1, 3.0), key(5): (2, 2.0)}
    assert fed.rows() == expected
    assert fed.lookup.table.positions().tolist() == source.lookup.table.positions().tolist() == [[0, 0, 20, 2]]
    source.flights.shutdown()
    source.hand.apply(3, ({key_: 3.0 for key_ in range(10, 2000)}, [2]))  # grows both tables
    source.hand.apply(4, ({}, [5]), ({2: 4.0}, []), event_ts=-9, last_arrival_ms=44)
    source.until(4)
    fed.until_ready(False)  # it says that it is stale, and how stale
    assert fed.rows() == expected, "what there was is there"
    location = f"grpc://127.0.0.1:{source.port}"
    source.flights = EmbeddingFlights(location, source.lookup, source.health, "secret")
    fed.until(4)
    expected = {key(4): (1, 3.0), key(2): (4, 4.0)} | {key(one): (3, 3.0) for one in range(10, 2000)}
    assert fed.rows() == expected, "deletions that nobody told of are found by what is whole"
    assert fed.lookup.served.so_far(4) == source.lookup.served.so_far(4) == Moment(44, -7)
    epochs = np.arange(1, 5)
    answers = [one.lookup.all()._replace(epochs=epochs) for one in (fed, source)]
    times = [one.lookup.times_of(answer).tolist() for one, answer in zip((fed, source), answers, strict=True)]
    assert times[0] == times[1]
    assert times[0][1::2] == [[22, -7], [44, -9]]
    fed.until_ready(True)
    fed.close(forget=False)  # killed
    again = Fed(tmp_path / "fed" / "tables", [f"127.0.0.1:{source.port}"], "secret")
    assert again.follower.taken_over
    source.hand.apply(5, ({2: 5.0}, []))
    again.until(5)
    assert again.rows() == expected | {key(2): (5, 5.0)}
    again.close()


def test_a_source_that_is_behind_takes_nothing_back(source, tmp_path):
    fed = Fed(tmp_path / "fed" / "tables", [f"127.0.0.1:{source.port}"], "secret")
    two, nine = (fed.lookup.ids_of([f"v{key}" if source.hand.kind == "string" else key]) for key in (2, 9))
    table, row = fed.follower.table, np.ones((1, WIDTH), np.float32)
    table.put(2, two, 2 * row)  # as if another server had told of epochs 2 and 3
    table.put(3, nine, row)
    table.publish(3)
    source.hand.apply(2, ({2: 2.0}, []))
    source.until(2)
    time.sleep(0.2)
    assert fed.lookup.table.epoch == 3
    assert fed.lookup.get(nine).epochs.tolist() == [3]
    source.hand.apply(3, ({9: 1.0}, []))
    source.hand.apply(4, ({4: 4.0}, []))
    fed.until(4)
    assert sorted(fed.rows().values()) == [(1, -2.0), (2, 2.0), (3, 1.0), (4, 4.0)]
    fed.close()


def logits_of(lookup, rows):
    return lookup.served.readout.columns(rows)["logits"]


def test_logits_by_the_model_that_is_sent(source, tmp_path, capsys):
    tables = tmp_path / "fed" / "tables"
    fed = Fed(tables, [f"127.0.0.1:{source.port}"], "secret")
    rows = fed.lookup.all().rows
    assert np.array_equal(logits_of(fed.lookup, rows), source.hand.plan.logits(rows))
    assert fed.lookup.served.row_shape(readout=True).logits == 3
    port = server_port()
    between = EmbeddingFlights(f"grpc://127.0.0.1:{port}", fed.lookup, fed.health, "secret")
    third = Fed(tmp_path / "third" / "tables", [f"127.0.0.1:{port}"], "secret")
    assert np.array_equal(logits_of(third.lookup, rows), source.hand.plan.logits(rows))
    with EmbeddingClient(tmp_path / "third" / "tables") as client:
        assert client.all(logits=True).column_names[-2:] == ["logits", "class"]
    third.close()
    between.shutdown()
    fed.close()
    weights = source.hand.out / "model" / "model.safetensors"
    whole, digest = weights.read_bytes(), digest_of(str(source.hand.out / "model"))
    spec = (source.hand.out / "model" / "model.json").read_bytes()
    for pieces in ([spec, whole[:-1]], [whole, spec], []):
        with pytest.raises(ModelError, match="has the SHA-256"):
            take(pieces, tmp_path / "other", digest)
    weights.write_bytes(b"pickle" + whole)  # the source's digest fits, but it is no model
    (tmp_path / "again").mkdir()
    job = FedServers([f"127.0.0.1:{source.port}"], "secret").job(tmp_path / "again" / "tables", lambda: False, 60)
    assert job.model == ""
    assert "no logits: " in capsys.readouterr().err
    assert not folder_of(tmp_path / "again" / "tables", digest_of(str(source.hand.out / "model"))).exists()


def test_no_source_is_said(tmp_path):
    sources = FedServers([f"127.0.0.1:{server_port()}"], None)
    with pytest.raises(UsageError, match="no server answers"):
        sources.job(tmp_path / "tables", lambda: False, 0.1)
