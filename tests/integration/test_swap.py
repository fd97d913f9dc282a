"""`freshet swap` of a local job, in turn: what is killed goes on, and what is refused leaves the old job serving."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet as pq
import pytest

from freshet import EmbeddingClient
from freshet.gnn.model import Model, load_model, save_model
from freshet.job.results.check import check
from freshet.job.service.generations import GENERATION, Service
from freshet.job.swap.record import STEPS, Swap
from tests.support.graphs.kinds import text_id
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.streams import random_records
from tests.support.runs.jobs import DEADLINE_S, FRESHET, ROOT
from tests.support.serving.server import Server
from tests.unit.job.results.test_kinds_jobs import with_attributes, write

pytestmark = pytest.mark.slow

EVENTS = 2_000


def freshet(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [str(FRESHET), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A service of a local job that has read half of its input and was stopped by its end; models M and M2."""
    save_model(make_model(1, [conv("sage_conv", IN_WIDTH, 4)]), tmp_path / "M")
    save_model(make_model(2, [conv("gcn_conv", IN_WIDTH, 6)]), tmp_path / "M2")
    records = random_records(random.Random(3), EVENTS, IN_WIDTH, vertices=100)
    for number, record in enumerate(records):  # edges expire, and some stand beside others
        record["ts"] = 1000 * number
        if record["op"].endswith("edge") and number % 5 == 0:
            record["key"] = number % 3
    (tmp_path / "e.jsonl").write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in records))
    given = ["--model", tmp_path / "M", "--events", tmp_path / "e.jsonl", "--out", tmp_path / "O"]
    shape = "--epoch-events", 50, "--parts", 2, "--edge-ttl", "900s"
    done = freshet("run", *given, "--runtime", "local", *shape, "--what-if")
    assert done.returncode == 0, done.stderr
    assert freshet("promote", tmp_path / "V", tmp_path / "O").returncode == 0
    return tmp_path


def line(folder: Path, *more: object) -> list[object]:
    return ["swap", folder / "V", "--model", folder / "M2", "--in-turn", "--keep", "1s", *more]


def swapped(folder: Path, *more: object) -> dict[str, Any]:
    done = freshet(*line(folder, *more))
    assert done.returncode == 0, done.stderr
    return dict(orjson.loads(done.stdout.splitlines()[-1]))


def assert_its_server_answers_what_if(out: Path) -> None:
    """As its rows are, by the new model, without the option: the job before has it."""
    server = Server(out)
    try:
        with EmbeddingClient(server.start()["flight"], timeout=60) as client:
            rows = client.all()
            tried = client.what_if(vertices=[{"id": one} for one in rows["id"].to_pylist()[:5]])
    finally:
        server.end()
    found, expected = (np.stack(one["embedding"].to_pylist()[:5]) for one in (tried, rows))
    assert found.shape == (5, 6)
    np.testing.assert_allclose(found, expected, 1e-5, 1e-5)


def test_another_model_serves_after_it_and_the_first_one_again(folder: Path) -> None:
    server = Server(folder / "V", of=("--service", str(folder / "V")))
    try:
        place = server.start()
        with EmbeddingClient(place["flight"], timeout=60) as client:
            assert client.all().schema.metadata[b"generation"] == b"0"
            result = swapped(folder)
            assert (result["generation"], set(result["seconds"])) == (1, set(STEPS))
            (work,) = (folder / "V" / "swaps").iterdir()
            table = client.all(min_epoch=GENERATION)
            assert table["embedding"].to_pylist()[0] and len(table["embedding"].to_pylist()[0]) == 6
            assert check(folder / "M2", [str(folder / "e.jsonl")], Path(result["out"]), work / "embedded") == 0
            assert_its_server_answers_what_if(Path(result["out"]))
            assert freshet("rollback", folder / "V").returncode == 0
            assert len(client.all(min_epoch=2 * GENERATION)["embedding"].to_pylist()[0]) == 4
    finally:
        server.end()
    assert not (folder / "V" / "swap.json").exists()


def test_it_goes_on_wherever_it_is_killed(folder: Path) -> None:
    service, killed = Service(folder / "V"), 0
    for number in range(30):
        command = subprocess.Popen(
            [str(FRESHET), *map(str, line(folder))],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        record = Swap(service).record()
        done, deadline = set() if record is None else set(record.seconds), time.monotonic() + DEADLINE_S
        while command.poll() is None and time.monotonic() < deadline:
            record = Swap(service).record()
            if record is not None and set(record.seconds) - done:
                time.sleep(0.1 * (number % 3))  # in the step that follows, sooner or later
                break
            time.sleep(0.01)
        if command.poll() is not None:
            break
        command.send_signal(signal.SIGKILL)
        command.wait()
        killed += 1
        if record is not None and "run" not in record.seconds:
            assert [one.why for one in service.generations()] == ["promote"], "what serves is as it was"
    assert command.poll() == 0, command.communicate()[1]
    assert killed >= 3
    assert [one.why for one in service.generations()] == ["promote", "swap"]


def test_kinds_attributes_and_learned_rows_go_along(tmp_path: Path) -> None:
    """Of the ids that the first model has learned rows of, the second one lacks all but one."""
    write(tmp_path, with_attributes(), text_id, parquet=True)
    save_model(with_attributes([8, 100]), tmp_path / "M2")
    given = ["--model", tmp_path / "model", "--events", tmp_path / "events.parquet", "--out", tmp_path / "O"]
    done = freshet("run", *given, "--runtime", "local", "--epoch-events", 20, "--parts", 2, "--edge-ttl", "30d")
    assert done.returncode == 0, done.stderr
    assert freshet("promote", tmp_path / "V", tmp_path / "O").returncode == 0
    swapped_by = freshet("swap", tmp_path / "V", "--model", tmp_path / "M2", "--keep", "off")
    assert swapped_by.returncode == 0, swapped_by.stderr
    result = orjson.loads(swapped_by.stdout.splitlines()[-1])
    (work,) = (tmp_path / "V" / "swaps").iterdir()
    vertices = pq.read_table(work / "embedded" / "vertices.parquet", columns=["id", "kind"]).to_pylist()
    lost = {one["id"] for one in vertices if one["kind"] == "user"} & {text_id(number) for number in range(0, 9, 2)}
    lost -= {text_id(number) for number in (8, 100)}
    assert lost
    assert result["forgotten"] == {"user": len(lost)}
    assert all(one in swapped_by.stderr for one in lost)
    events = [str(tmp_path / "events.parquet")]
    assert check(tmp_path / "M2", events, Path(result["out"]), work / "embedded") == 0


def too_large(model: Model) -> Model:
    """Its weights are numbers, and its rows are not."""
    weights = {name: np.full_like(one, 3e38) for name, one in model.weights.items()}
    return model.model_copy(update={"weights": weights})


def test_what_is_refused_leaves_the_old_job_serving(folder: Path) -> None:
    service = Service(folder / "V")
    gate = freshet(*line(folder, "--gate", 'test "$FRESHET_OLD" = "$FRESHET_NEW"'))
    assert gate.returncode == 1
    assert "--gate test" in gate.stderr
    assert Swap(service).record() is None
    asked = freshet(*line(folder, "--embeddings", "asked"))
    assert (asked.returncode, Swap(service).record()) == (2, None)
    assert "--embeddings asked: a service has the embeddings of all vertices" in asked.stderr
    held = freshet(*line(folder, "--hold"))
    assert held.returncode == 0, held.stderr
    assert [one.why for one in service.generations()] == ["promote"]
    other = freshet(*line(folder, "--parts", 3))
    assert other.returncode == 2
    assert "a swap is under way with --parts" in other.stderr
    assert swapped(folder)["generation"] == 1


def test_a_model_whose_rows_are_not_finite_is_refused(folder: Path) -> None:
    save_model(too_large(load_model(folder / "M2")), folder / "M2")
    found = freshet(*line(folder))
    assert found.returncode == 1, found.stderr
    assert "are not finite" in found.stderr
    assert [one.why for one in Service(folder / "V").generations()] == ["promote"]
