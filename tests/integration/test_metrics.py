"""Metrics of a running job and of its server: they say what happens, and all that deploy/ asks for is there."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from freshet.job.dev.broker import start_broker
from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.kafka.address import KafkaAddress
from freshet.job.kafka.produce import produce
from freshet.job.machine.ports import free_port
from tests.support.kafka.topics import broker_folder, require_jars
from tests.support.runs.jobs import ROOT, Job, TopicInput, make_input
from tests.support.serving.server import Server

pytestmark = pytest.mark.slow

EVENTS, BAD = 6_000, 40
REASON = "op: expected one of add_vertex, del_vertex, set_features, add_edge, del_edge"
JOB = "flink_taskmanager_job_task_operator_freshet_"
Samples = dict[str, list[tuple[dict[str, str], float]]]  # by name: labels and value


@dataclass
class Running:
    """A job from a topic to a topic on a cluster with Flink's Prometheus reporter, and its server."""

    job: Job
    reporters: list[str]
    server: str
    folder: Path
    topic: KafkaAddress
    sent: int = EVENTS + BAD

    def nudge(self) -> None:
        """Have every operator act once more: another source of an edge into a vertex."""
        file = self.folder / f"nudge-{self.sent}.jsonl"
        file.write_text(f'{{"op":"add_edge","src":{10**6 + self.sent},"dst":2}}\n')
        produce(events=[str(file)], to=self.topic)
        self.sent += 1

    def scrape(self) -> Samples:
        found: Samples = {}
        for address in (*self.reporters, self.server):
            text = httpx.get(f"http://{address}/metrics", timeout=60, trust_env=False).text
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    found.setdefault(sample.name, []).append((sample.labels, sample.value))
        return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    require_jars()
    folder = tmp_path_factory.mktemp("metrics")
    given = make_input(folder / "in", EVENTS)
    lines = given.events.read_bytes().splitlines()
    for k in range(BAD):
        lines.insert(100 * k, b'{"op":"fly"}')
    given.events.write_bytes(b"\n".join(lines) + b"\n")
    first = free_port(19249)  # below those of `server_port`: no other port of the cluster is among them
    ports = range(first, first + 20)  # other tests may take some
    options = {
        "metrics.reporter.prom.factory.class": "org.apache.flink.metrics.prometheus.PrometheusReporterFactory",
        "metrics.reporter.prom.port": f"{ports[0]}-{ports[-1]}",
        "metrics.reporter.prom.filterLabelValueCharacters": "false",
    }
    with (
        broker_folder(folder) as data,
        start_broker(data, sasl=False, tls=False) as broker,
        LocalCluster(folder / "cluster", 1, options=options) as cluster,
    ):
        topic = KafkaAddress.parse(f"kafka://{broker.address}/events")
        produce(events=[str(given.events)], to=topic, partitions=2)
        job = Job(TopicInput(given.model, folder, EVENTS, None, str(topic)), folder / "out")
        server = Server(job.out)
        try:
            output = ("--embeddings-to", f"kafka://{broker.address}/rows", "--coalesce", "100ms")
            job.start(
                "--cluster", cluster.rest, "--parts", 2, "--checkpoint-interval", "1s", "--name", "fraud-eu", *output
            )
            job.until(lambda: (job.out / "job" / "job.json").exists())
            http = server.start("--wait", "2m")["http"]
            job.until(lambda: job.status()["events"] == EVENTS + BAD)
            yield Running(job, [f"127.0.0.1:{port}" for port in taken(cluster, ports)], http, folder, topic)
        finally:
            server.end()
            job.end()


def taken(cluster: LocalCluster, ports: range) -> list[int]:
    """At which of these ports processes of the cluster listen, one each."""
    assert cluster.job_manager is not None
    processes = [psutil.Process(one.pid) for one in (cluster.job_manager, *cluster.task_managers)]
    found = [one.laddr.port for process in processes for one in process.net_connections("tcp") if not one.raddr]
    found = [port for port in found if port in ports]
    assert len(found) == len(processes)
    return found


@pytest.fixture(scope="module")
def scraped(running: Running) -> Samples:
    """All metrics, once the counts of the last events have reached them; each subtask tells its own when it is due."""
    httpx.get(f"http://{running.server}/embeddings?id=2", timeout=60, trust_env=False)
    asked = set().union(*map(metrics_of, queries().values()))
    began = nudged = time.monotonic()
    while True:
        found = running.scrape()
        checkpoint = found.get("flink_jobmanager_job_lastCheckpointCompletedTimestamp", [({}, 0)])
        if checkpoint[0][1] > 0 and asked <= found.keys() and not unsettled(found, running.job.status()):
            return found
        now = time.monotonic()
        if now - began > 300:
            return found  # the tests say what is not there
        if now - nudged > 10:  # a subtask that waits for input tells nothing (operators/flink/metrics.py)
            nudged = now
            running.nudge()
        time.sleep(1)


def unsettled(found: Samples, now: dict[str, Any]) -> list[str]:
    """The metrics that do not say yet what the job has come to."""
    expected = {
        "events": ("freshet_events_total", now["events"]),
        "rows_changed": ("freshet_rows_changed_total", now["rows"]),
        "vertices": ("freshet_graph_vertices", now["vertices"]),
        "edges": ("freshet_graph_edges", total(found, "freshet_graph_edges")),
        "reason_rejected": ("freshet_rejected_total", BAD),
    }
    figures = {JOB + name: value for name, (_, value) in expected.items()} | dict(expected.values())
    figures |= {"flink_taskmanager_job_task_operator_pendingRecords": 0, "freshet_lag": 0, "freshet_ready": 1}
    late = [name for name, value in figures.items() if total(found, name) != value]
    answered = total(found, "freshet_requests_total", kind="http embeddings", end="ok")
    return late if answered == 1 else [*late, "freshet_requests_total"]


def total(found: Samples, name: str, **labels: str) -> float:
    return sum(value for have, value in found.get(name, ()) if labels.items() <= have.items())


def queries() -> dict[str, str]:
    """Each query of the dashboard and of the alerts, by where it stands."""
    dashboard: dict[str, Any] = orjson.loads((ROOT / "deploy/grafana/dashboards/freshet.json").read_bytes())
    asked = {
        f"{panel['title']} {target['refId']}": target["expr"]
        for panel in dashboard["panels"]
        for target in panel.get("targets", ())
    }
    alerts = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text())
    return asked | {rule["alert"]: rule["expr"] for group in alerts["groups"] for rule in group["rules"]}


def metrics_of(query: str) -> set[str]:
    """The metrics that a query names."""
    return set(re.findall(r"\b(?:flink|freshet)_\w+", re.sub(r'"[^"]*"', '""', query)))


def test_each_query_of_dashboard_and_alerts_has_its_metrics(scraped: Samples) -> None:
    asked = queries()
    assert len(asked) > 30
    lacking = {}
    for where, query in asked.items():
        names = metrics_of(query)
        assert names or re.search(r"\bup\{", query), where  # what Prometheus itself has of each scrape
        if missing := names - scraped.keys():
            lacking[where] = missing
    assert not lacking
    labels = {
        label for query in asked.values() for by in re.findall(r"by \(([^)]*)\)", query) for label in by.split(", ")
    }
    known = {label for samples in scraped.values() for have, _ in samples for label in have} | {"instance"}
    assert labels <= known


def status_by_flink(job: Job) -> dict[str, Any]:
    """The status, once Flink and the broker have answered in the short time that a status has."""
    deadline = time.monotonic() + 300
    while (found := job.status())["flink"] is None or found["lag"] is None:
        assert time.monotonic() < deadline, found
    return found


def test_a_job_counts_what_it_does(scraped: Samples, running: Running) -> None:
    now = status_by_flink(running.job)
    assert (now["state"], now["lag_total"], now["flink"]) == ("running", 0, "RUNNING")
    assert now["events"] == running.sent
    assert now["reasons"] == {REASON: BAD}
    assert not unsettled(scraped, now)
    for name in (f"{JOB}reason_rejected", "freshet_rejected_total"):
        assert total(scraped, name, reason=REASON) == BAD
    assert total(scraped, "freshet_graph_edges") > 0
    for name in (f"{JOB}le_freshness_seconds_bucket", "freshet_freshness_seconds_bucket"):
        bounds = [(float(labels["le"]), value) for labels, value in scraped[name]]
        assert sum(value for bound, value in bounds if bound == float("inf")) > 0, name
        assert len(dict(bounds)) == 19
    assert total(scraped, "freshet_job_state", state="running") == 1 == total(scraped, "freshet_job_state")
    assert total(scraped, f"{JOB}source_messages_per_s") >= 0
    for name in (f"{JOB}events", "freshet_events_total"):
        assert {labels["job_name"] for labels, _ in scraped[name]} == {"fraud-eu"}


def test_a_server_counts_its_requests(scraped: Samples) -> None:
    assert total(scraped, "freshet_requests_total", kind="http embeddings", end="ok") == 1
    assert total(scraped, "freshet_requests_total", kind="http metrics", end="ok") >= 0
    assert total(scraped, "freshet_request_seconds_count", kind="http embeddings") == 1
    assert total(scraped, "freshet_ready") == 1
