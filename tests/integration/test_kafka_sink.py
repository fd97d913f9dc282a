"""Embeddings and rejected records in topics of a real broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource

from freshet.job.dev.broker import Broker, start_broker
from freshet.job.folder.run_file import read_run
from freshet.job.lifecycle.summary import progress
from freshet.job.run.watching import in_flight_bytes, operator_levels
from freshet.operators.telemetry.load import read_loads
from freshet.operators.telemetry.profile import read_profiles
from scripts.cora.graph import FOLDER, load
from scripts.cora.stream import make_stream
from tests.support.kafka.records import parse
from tests.support.kafka.topics import broker_folder, read_topic, standing
from tests.support.runs.jobs import ROOT, Input, Job, flink_metrics, make_input, read_log

pytestmark = pytest.mark.slow

Make = Callable[[Input], Job]
Last = dict[bytes, dict[str, Any] | None]


def records(broker: Broker, topic: str, committed: bool = True) -> list[Any]:
    """All records of a topic, in order for each key."""
    isolation = "read_committed" if committed else "read_uncommitted"
    return [record for found in read_topic(broker, topic, isolation_level=isolation).values() for record in found]


def last_of(found: list[Any]) -> Last:
    """What a compacted topic keeps."""
    return {record.key: None if record.value is None else parse(record.value) for record in found}


def assert_as_logged(last: Last, out: Path) -> None:
    """The last record of every vertex is its last row in the change log, bit by bit, and gone where it is gone."""
    log = read_log(out)
    rows = {b"%d" % log.id[k]: k for k in range(len(log.id))}
    assert last.keys() == rows.keys()
    for key, k in rows.items():
        record = last[key]
        assert (record is None) == bool(log.deleted[k])
        if record is not None:
            assert (record["id"], record["epoch"]) == (log.id[k], log.epoch[k])
            assert np.array_equal(record["embedding"].view(np.uint32), log.vector[k].view(np.uint32))


def test_java_makes_the_records_of_blocks(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.kafka.split_by_java", str(tmp_path)]
    environ = os.environ | {"PYTHONPATH": ""}  # all of it: this environment of Flink has Beam
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=600, check=False)
    assert done.stdout.split()[-2:] == ["53", "26"], done.stderr


def cora_input(folder: Path) -> Input:
    """The whole demo stream from an empty graph: what the snapshot would hold comes first, as events."""
    graph = load()
    x, edges = graph.features(), graph.known_edges()
    first = [{"op": "add_vertex", "id": int(paper), "x": x[paper].tolist()} for paper in np.flatnonzero(graph.known)]
    first += [{"op": "add_edge", "src": int(a), "dst": int(b)} for a, b in edges]
    path = folder / "events.jsonl"
    stream = [*first, *make_stream(graph, 5_000, 5)]
    path.write_bytes(b"".join(orjson.dumps(record) + b"\n" for record in stream))
    return Input(FOLDER / "model", path, len(stream))


def test_cora_to_a_topic(broker: Broker, job: Make, tmp_path: Path) -> None:
    given = cora_input(tmp_path)
    one = job(given)
    options = ("--undirected", "--parts", 2, "--epoch-events", 200)
    result = one.done(*options, "--embeddings-to", f"kafka://{broker.address}/cora")
    found = records(broker, "cora")
    last = last_of(found)
    assert sum(record is None for record in last.values()) > 0, "vertices that left for good"
    assert sum(record is not None for record in last.values()) == result["vertices"] > 2_000
    assert len(found) < result["rows"], "coalesced"
    assert_as_logged(last, one.out)
    written = read_loads(one.out, running=False)["outlet"]
    assert (written["messages"], written["bytes"]) == (len(found), sum(map(size_of, found)))
    gone = {record.key: dict(record.headers) for record in found if last[record.key] is record.value is None}
    log = read_log(one.out)
    assert len(gone) > 0
    for key, headers in gone.items():
        assert headers == {"epoch": b"%d" % log.epoch[log.id == int(key)][-1]}, "a tombstone says when"
    model = read_run(one.out)["model_sha256"][:12]
    assert {record["model"] for record in last.values() if record is not None} == {model}
    assert one.check()["vertices"] == result["vertices"], "and the change log equals the oracle"
    assert policy(broker, "cora") == "compact"


def size_of(record: Any) -> int:
    return len(record.key) + len(record.value or b"")


def policy(broker: Broker, topic: str) -> str:
    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        found = admin.describe_configs([ConfigResource("TOPIC", topic, ["cleanup.policy"])], config_filter="all")
        return str(found["topic"][topic]["cleanup.policy"]["value"])
    finally:
        admin.close()


def test_rejected_records_in_a_topic(broker: Broker, job: Make, tmp_path: Path) -> None:
    given = make_input(tmp_path / "in", 2_000)
    lines = given.events.read_bytes().splitlines()
    bad = [b'{"op":"fly"}', b"\xff\xfe", b'{"op":"add_edge","src":1}', b'{"x":"' + b"\x01" * 2_000_000 + b'"}']
    wrong = {3 + 31 * k: bad[k % len(bad)] for k in range(40)}
    for at, line in wrong.items():
        lines.insert(at, line)
    given.events.write_bytes(b"\n".join(lines) + b"\n")
    one = job(given)
    result = one.done("--parts", 2, "--dead-letters", f"kafka://{broker.address}/dead")
    assert (result["events"], result["rejected"]) == (2_040, 40)
    assert result["reasons"]["op: expected one of add_vertex, del_vertex, set_features, add_edge, del_edge"] == 10
    assert result["reasons"]["dst: missing"] == 10
    assert sum(result["reasons"].values()) == 40
    letters = {record.key: json.loads(record.value) for record in records(broker, "dead")}
    assert {letter["offset"]: letter["error"].split(":")[0] for letter in letters.values()}.keys() == wrong.keys()
    for key, letter in letters.items():
        assert key.decode() == f"{given.events}/0/{letter['offset']}"
        raw = wrong[letter["offset"]]
        if len(raw) < 1000:
            assert letter.get("raw", "").encode() == raw or letter["raw_base64"] == "//4="
        else:
            assert letter["raw_bytes"] == len(raw), "cut, for Kafka does not take so much"
    assert not (one.out / "dead_letters.jsonl").exists()


@pytest.mark.long
def test_a_broker_that_pauses_slows_the_source(job: Make, tmp_path: Path) -> None:
    config = tmp_path / "job.yaml"
    config.write_text("kafka:\n  buffer.memory: 65536\n  batch.size: 16384\n")
    with broker_folder(tmp_path) as data, start_broker(data, sasl=False, tls=False) as broker:
        one = job(make_input(tmp_path / "in", 18_000))
        output = ("--embeddings-to", f"kafka://{broker.address}/slow", "--coalesce", "100ms", "--config", config)
        # No checkpoint comes meanwhile: it would have the sink wait for the broker with nothing in its hands.
        shape = ("--parts", 1, "--checkpoint-interval", "1h", "--epoch-events", 100)
        # So slow that most of the stream is left whenever the broker stands; from then on as fast as it can be read.
        one.start(*shape, *output, faults={"slow": {"parser": 150}, "chunk": 50, "lull": 180})
        one.until_epoch(5)
        with standing(broker):
            one.hurry()
            under_way = until_all_stands(one.out)
            events = progress(one.out)["events"]
            assert_levels_in_flink(one.out)
            levels = operator_levels(read_profiles(one.out))
        assert events < 18_000, "the source stands"
        ended = one.wait()
        assert (ended.code, ended.result["events"]) == (0, 18_000)
        assert "restarted" not in ended.errors
        assert_as_logged(last_of(records(broker, "slow")), one.out)
    found = read_run(one.out)["levels"]
    assert found.keys() == {"in_flight_bytes", *levels}
    assert found["in_flight_bytes"]["bound"] == 256 << 20, "Flink's network memory"
    assert found["in_flight_bytes"]["bound"] > found["in_flight_bytes"]["peak"] >= under_way
    for name, level in found.items():
        stays = name == "partitioner.journal_bytes" or name.endswith(".index_bytes")  # of tables
        assert level["now"] == 0 or stays, (name, level)
        assert level["bound"] is None or level["peak"] <= level["bound"], (name, level)
    bounded = {"partitioner.journal_bytes", "partitioner.waiting_events", "sink.rows_bytes", "sink.outlet_bytes"}
    assert bounded <= {name for name, level in found.items() if level["bound"]}


def until_all_stands(out: Path) -> int:
    """Wait until the topic is what limits and the source reads no more; the bytes that are under way then.

    A busy machine writes profiles late, so that no single look says whether they have come to a standstill.
    """
    seen: list[tuple[int, int]] = []
    deadline = time.monotonic() + 300
    while True:
        profiles, loads = read_profiles(out), read_loads(out, running=True)
        waits = int(operator_levels(profiles)["sink.outbox_bytes"]["now"]) > 0
        seen.append((int(profiles["parser"]["bytes_out"]), in_flight_bytes(profiles)))
        limits = loads["outlet"]["busy"] > 0.9 and loads["sink"]["busy"] < 0.5
        if waits and limits and seen[-1][1] > 0 and len(seen) > 4 and len(set(seen[-5:])) == 1:
            print("bytes read, and under way, while the broker pauses:", seen)
            return seen[-1][1]
        assert time.monotonic() < deadline, f"no standstill with bytes before the sink, which waits: {seen}, {loads}"
        time.sleep(2.0)


def assert_levels_in_flink(out: Path) -> None:
    """What waits is shown by Flink's own metrics: those of an operator that waits stand as it began to."""
    wanted = {"partitioner.freshet.journal_bytes": "partitioner.journal_bytes"}
    wanted |= {f"{name}_bound": f"{told}" for name, told in wanted.items()}
    deadline = time.monotonic() + 300
    while True:
        shown, told = flink_metrics(out, wanted), operator_levels(read_profiles(out))["partitioner.journal_bytes"]
        assert told["bound"] is not None and told["peak"] is not None
        near = 0 < shown.get("partitioner.freshet.journal_bytes", 0) <= told["peak"]
        if near and 0 < shown.get("partitioner.freshet.journal_bytes_bound", 0) <= told["bound"]:
            return
        assert time.monotonic() < deadline, (shown, told)
        time.sleep(0.5)
