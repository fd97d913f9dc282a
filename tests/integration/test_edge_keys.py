"""Jobs whose edges have keys, from the command line: run, checked, exported, and gone on with from the snapshot."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import orjson
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from freshet.gnn.model import save_model
from freshet.job.dev.broker import Broker
from freshet.job.folder.run_file import read_run
from tests.support.graphs.attributed import EDGE_WIDTH, gine
from tests.support.graphs.models import IN_WIDTH, conv, make_model
from tests.support.graphs.streams import random_records, with_attributes
from tests.support.kafka.topics import make_topic
from tests.support.runs.inside import call_inside
from tests.support.runs.jobs import Job, TopicInput

MODEL = [conv("sage_conv", IN_WIDTH, 6), {"type": "relu"}, gine(6, 4)]


def freshet(*words: object) -> dict[str, Any]:
    """The JSON line of a command that ends well."""
    code, output, errors = call_inside(*words)
    assert code == 0, errors[-2000:]
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def save(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_bytes(b"\n".join(map(orjson.dumps, records)))
    return path


def records_of(kind: str, field: str = "key") -> list[dict[str, Any]]:
    """Random records, most edges of which have one of five keys; the first edge has one."""
    rng, found = random.Random(kind), list[dict[str, Any]]()
    for record in with_attributes(random_records(random.Random(4), 1200, IN_WIDTH, vertices=20), EDGE_WIDTH):
        number = rng.randrange(6) if any("src" in one for one in found) else 3
        if "src" in record and number:
            every = record["op"] == "del_edge" and number < 3
            record = {**record, field: "*" if every else number if kind == "int" else f"payment {number}"}
        found.append(record)
    return found


def edges_after(records: list[dict[str, Any]]) -> set[tuple[Any, Any, Any]]:
    """The edges that are there after the records, by plain dictionaries."""
    edges: dict[tuple[Any, Any, Any], None] = {}
    for record in records:
        key = record.get("key")
        if record["op"] == "add_edge":
            edges[record["src"], record["dst"], key] = None
        elif record["op"] in ("del_edge", "del_vertex"):
            for edge in list(edges):
                pair = edge[:2] == (record.get("src"), record.get("dst")) and key in ("*", edge[2])
                if pair or record.get("id") in edge[:2]:
                    del edges[edge]
    return set(edges)


def exported(folder: Path) -> set[tuple[Any, Any, Any]]:
    table = pq.read_table(folder / "edges.parquet").to_pylist()
    edges = {(row["src"], row["dst"], row["key"]) for row in table}
    assert len(edges) == len(table)
    return edges


@pytest.mark.parametrize("kind", ["int", "string"])
def test_a_job_and_one_that_goes_on_from_its_export(tmp_path: Path, kind: str) -> None:
    model, records = tmp_path / "model", records_of(kind)
    save_model(make_model(3, MODEL), model)
    snapshot: list[object] = []
    for number, some in enumerate([records[:600], records[600:]]):
        events = save(tmp_path / f"{number}.jsonl", some)
        given = ["--model", model, "--events", events, "--out", (out := tmp_path / f"out {number}"), *snapshot]
        freshet("run", *given, "--runtime", "local", "--parts", 2 + number, "--epoch-events", 50)
        line = freshet("check", *given, "--every", 3)
        assert (line["missing"], line["extra"], line["oracle"]) == (0, 0, "pyg") and line["epochs_checked"] > 3
        freshet("export", "--out", (to := tmp_path / f"graph {number}"), out)
        edges = exported(to)
        assert edges == edges_after(records[: 600 * (1 + number)])
        assert len({edge[:2] for edge in edges}) < len(edges), "some are parallel"
        snapshot = ["--snapshot", to]


def test_keys_of_another_field_and_of_places(tmp_path: Path) -> None:
    model = tmp_path / "model"
    save_model(make_model(3, MODEL), model)
    renamed = save(tmp_path / "payments.jsonl", records_of("string", "payment"))
    plain = save(tmp_path / "plain.jsonl", [{**one, "key": None} for one in records_of("int", "other")])
    for events, field in ((renamed, "payment"), (plain, "offset")):
        given = ["--model", model, "--events", events, "--out", tmp_path / field]
        line = freshet("run", *given, "--runtime", "local", "--edge-key", field, "--epoch-events", 100)
        assert line["rejected"] == 0
        assert freshet("check", *given, "--every", 4)["missing"] == 0
    freshet("export", "--out", (graph := tmp_path / "graph"), tmp_path / "offset")
    more = save(tmp_path / "more.jsonl", [{**one, "key": None} for one in records_of("int", "other")])
    given = ["--model", model, "--events", plain, "--events", more, "--out", tmp_path / "on", "--snapshot", graph]
    freshet("run", *given, "--runtime", "local", "--edge-key", "offset", "--epoch-events", 100)
    assert freshet("check", *given, "--every", 4)["missing"] == 0
    given[3], given[5] = more, plain
    code, _, errors = call_inside("run", *given, "--edge-key", "offset", "--runtime", "local", "--out", tmp_path / "no")
    assert code == 2 and "these first in --events" in errors


def test_a_job_without_keys_says_which_option_takes_them(tmp_path: Path) -> None:
    model = tmp_path / "model"
    save_model(make_model(3, MODEL), model)
    edges = [{"op": "add_edge", "src": 1, "dst": 2}, {"op": "add_edge", "src": 1, "dst": 2, "key": 7}]
    given = ["--model", model, "--events", save(tmp_path / "a.jsonl", edges), "--out", tmp_path / "out"]
    line = freshet("run", *given, "--runtime", "local")
    assert line["rejected"] == 1 and "--edge-key" in next(iter(line["reasons"]))
    assert freshet("check", *given)["rejected"] == 1


def send(broker: Broker, topic: str, messages: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": broker.address})
    for message in messages:
        producer.produce(topic, message, partition=0)
    assert producer.flush(60) == 0


def given_by(broker: Broker, folder: Path, topic: str) -> TopicInput:
    save_model(make_model(3, MODEL), folder / "model")
    make_topic(broker, topic, 1)
    return TopicInput(folder / "model", folder / "none", 0, None, f"kafka://{broker.address}/{topic}")


@pytest.mark.slow
@pytest.mark.long
def test_a_topic_that_begins_with_vertices(broker: Broker, tmp_path: Path, jobs: list[Job]) -> None:
    jobs.append(job := Job(given_by(broker, tmp_path, "vertices-first"), tmp_path / "out"))
    vertices = [{"op": "add_vertex", "id": 7 * k - 5} for k in range(700)]
    wrong = {"op": "add_edge", "src": 1, "dst": 2, "key": 1.5}
    records = [*vertices, wrong, *records_of("string")]
    send(broker, "vertices-first", list(map(orjson.dumps, records)))
    done = job.done("--until", "latest", "--epoch-events", 200)
    assert (done["events"], done["rejected"]) == (len(records), 1)
    assert read_run(job.out)["edge_keys"] == "string"
    job.check()


@pytest.mark.slow
def test_each_record_of_a_message_is_an_edge(broker: Broker, tmp_path: Path, jobs: list[Job]) -> None:
    """Several records a message, read further on another night; another --edge-key is refused then."""
    jobs.append(job := Job(given_by(broker, tmp_path, "batches"), tmp_path / "out"))
    records = [{**one, "key": "*" if one["op"] == "del_edge" else None} for one in records_of("int", "other")]
    lines = list(map(orjson.dumps, records))
    messages = [b"\n".join(lines[k : k + 30]) for k in range(0, len(lines), 30)]
    how = ("--until", "latest", "--epoch-events", 70, "--edge-key")
    send(broker, "batches", messages[:25])
    assert job.done(*how, "offset")["rejected"] == 0
    send(broker, "batches", messages[25:])
    refused = job.run(*how, "other", "--resume", "auto")
    assert refused.code == 2 and "--edge-key" in refused.last_line
    assert job.done(*how, "offset", "--resume", "auto")["events"] == len(records)
    job.check()
    job.exported(tmp_path / "graph")
    pairs = Counter[tuple[Any, Any]]()
    for one in records:
        if one["op"] == "add_edge":
            pairs[one["src"], one["dst"]] += 1
        elif one["op"] in ("del_edge", "del_vertex"):
            for pair in [pair for pair in pairs if pair == (one.get("src"), one.get("dst")) or one.get("id") in pair]:
                del pairs[pair]
    table = pq.read_table(tmp_path / "graph" / "edges.parquet").to_pylist()
    assert Counter((one["src"], one["dst"]) for one in table) == pairs and max(pairs.values()) > 2
