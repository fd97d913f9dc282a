"""`scripts/bench_serve`: reads of a job's embeddings while it works, every sampled answer checked.

The stream is that of `make bench`. With `--rate` (default: 5,000 events/s) it comes from a Kafka broker on the same
machine, as Arrow messages by `freshet produce`. With `--rate 0` it comes from a file, as fast as the job reads it; the
job then also runs for `--alone` seconds without a server, to measure the cost of serving. Clients are threads of this
process, and read in turns of a second: one or four with single lookups over Flight, four with batches of 100, one that
reads all, four over HTTP, one on the mapped table; and the same over Flight at a bare server, which answers with
constant rows. They continue until `--checks` answers are kept for the oracle; a job with a file is then stopped. At
the end the server is killed (SIGKILL), and the start of the next one is timed. The last line is one JSON object; exit 1
if a row is torn or wrong, or if fewer answers were checked.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from freshet.errors import FreshetError
from freshet.job.dev.broker import start_broker
from freshet.job.dev.script import unwind_at_signals
from freshet.job.machine.ports import free_port
from freshet.job.serving.clients.client import EmbeddingClient
from freshet.job.serving.tables.place import read_server
from scripts.bench.arxiv_stream import WIDTH as FEATURES
from scripts.bench.arxiv_stream import generate_once
from scripts.bench.latency import DEADLINE_S, WARM_UP_S, Figures, await_epochs
from scripts.bench.serving.freshness import probes
from scripts.bench.serving.oracle import Oracle
from scripts.bench.serving.readers import HttpClient, Readable, Reader, together
from scripts.bench.throughput import FRESHET, ROOT, inputs_in, machine

CATCH_UP_S, SLACK_S = 60.0, 4.0
ROUNDS_MAX = 40
_BEHIND = 20  # epochs: about what a status file is late
BATCH, LARGE, CLIENTS, VERTICES, WIDTH = 100, 10_000, 4, 169_343, 40
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# What is read, by its name in the result: how many clients, ids a request (None: all), and the way.
KINDS: dict[str, tuple[int, int | None, str]] = {
    "flight": (1, 1, "flight"),
    "bare_flight": (1, 1, "bare"),
    "lookups": (CLIENTS, 1, "flight"),
    "bare_lookups": (CLIENTS, 1, "bare"),
    "batched": (CLIENTS, BATCH, "flight"),
    "bare_batched": (CLIENTS, BATCH, "bare"),
    "large": (1, LARGE, "flight"),
    "bulk": (1, None, "flight"),
    "http": (CLIENTS, 1, "http"),
    "local": (1, 1, "mapped"),
    "local_batched": (1, BATCH, "mapped"),
    "local_large": (1, LARGE, "mapped"),
}
Readers = dict[str, list[Reader]]


def run_of(out: Path, inputs: list[Any], options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """Begin a run."""
    shutil.rmtree(out, ignore_errors=True)
    command = [FRESHET, "run", *inputs, "--out", out, "--runtime", options.runtime, "--parts", options.parts]
    command += ["--epoch-events", options.epoch_events, *options.options]
    with out.with_suffix(".log").open("wb") as log:
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=log)


def finished(job: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Its summary, once it has ended."""
    stdout, _ = job.communicate(timeout=3600)
    if job.returncode not in (0, 143):
        sys.exit(f"freshet run: exit {job.returncode}")
    found: dict[str, Any] = orjson.loads(stdout.splitlines()[-1]) if stdout.strip() else {}
    return found


def until(condition: Callable[[], bool], what: str, timeout_s: float = 600.0) -> None:
    """Wait."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited in vain for {what}")
        time.sleep(0.05)


class Server:
    """A `freshet serve` on ports that stay the same when it is started again."""

    def __init__(self, tables: Path) -> None:
        self.tables, self.ports = tables, (free_port(), free_port())
        self.begin()
        until(lambda: read_server(tables).get("pid") == self.process.pid, "the server")

    def begin(self) -> None:
        """Start it."""
        command = [FRESHET, "serve", "--tables", self.tables, "--port", self.ports[0], "--http-port", self.ports[1]]
        self.process = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)

    @property
    def addresses(self) -> dict[str, str]:
        """Addresses by transport."""
        flight, http = (f"127.0.0.1:{port}" for port in self.ports)
        return {"flight": flight, "http": http, "mapped": str(self.tables)}

    def killed_and_started(self) -> dict[str, float]:
        """Seconds from the start of the next server to its first answers, and the processor time of the first one."""
        self.process.kill()
        self.process.wait()
        began = time.monotonic()
        self.begin()
        with EmbeddingClient(self.addresses["flight"], timeout=120) as client:
            client.rows([1])
        flight_s, cpu_s = time.monotonic() - began, cpu_s_of(self.process.pid)
        until(lambda: alive(self.addresses["http"]), "HTTP")
        http_s = time.monotonic() - began
        return {"restart_flight_s": round(flight_s, 2), "restart_http_s": round(http_s, 2), "restart_cpu_s": cpu_s}

    def end(self) -> None:
        """End it in good order."""
        self.process.terminate()
        self.process.wait(30)


def alive(address: str) -> bool:
    """Return whether HTTP answers."""
    try:
        return httpx.get(f"http://{address}/healthz", trust_env=False, timeout=30).status_code == 200
    except httpx.HTTPError:
        return False


def cpu_s_of(pid: int) -> float:
    """The processor time of a process until now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


@contextmanager
def bare_server() -> Iterator[str]:
    """The address of a Flight server that only answers."""
    command = [sys.executable, str(Path(__file__).with_name("bare_flight.py")), str(WIDTH)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.communicate()


def readers_of(addresses: dict[str, str]) -> Readers:
    """All clients."""

    def client(way: str) -> EmbeddingClient | HttpClient:
        return HttpClient(addresses[way]) if way == "http" else EmbeddingClient(addresses[way], timeout=30)

    return {
        name: [Reader(client(way), VERTICES, size, 10 * number + k) for k in range(count)]
        for number, (name, (count, size, way)) in enumerate(KINDS.items())
    }


def read_beside(out: Path, going: Callable[[], bool], options: argparse.Namespace) -> tuple[Readers, dict[str, Any]]:
    """Have all clients take their turns while the job works; the readers, and what the server showed of itself."""
    server = Server(out / "tables")
    try:
        with bare_server() as bare:
            readers = readers_of(server.addresses | {"bare": bare})
            local = readers["local"][0].client
            until(lambda: not going() or has_come_to(local, out), "the newest epochs")
            readable = Readable(out / "tables")
            for number in range(ROUNDS_MAX):
                if number >= options.rounds and kept(readers) >= options.checks:
                    break
                for some in readers.values():
                    if going():
                        together(some, options.turn)
            taken = readable.end()
        restart = server.killed_and_started()
        for reader in (one for some in readers.values() for one in some):
            reader.client.close()
    finally:
        server.end()
    if not taken:
        sys.exit("no epoch came while clients read: give more --events, the stream ended while the job started")
    shown = {f"publish_to_readable_ms_p{p}": round(float(np.percentile(taken, p)), 2) for p in (50, 99)}
    return readers, shown | {"epochs_seen": len(taken)} | restart


def kept(readers: Readers) -> int:
    """Return the number of answers that wait for the oracle."""
    return sum(len(reader.samples) for name, some in readers.items() if KINDS[name][2] != "bare" for reader in some)


def has_come_to(client: Any, out: Path) -> bool:
    """Return whether the table has the job's epochs, except the last ones."""
    try:
        return bool(client.epoch() >= max(1, Figures(out).epochs - _BEHIND))
    except FreshetError:
        return False


class Offered(NamedTuple):
    """A job that reads a topic into which events are written at a rate."""

    out: Path
    broker: str
    topic: str
    producer: subprocess.Popen[bytes]
    process: subprocess.Popen[bytes]


@contextmanager
def offered(folder: Path, rate: int, options: argparse.Namespace) -> Iterator[Offered]:
    """Broker, generator and job, once the job has taken in what was written while it started; or can't keep up."""
    out = folder / "out-served"
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as data, start_broker(Path(data) / "broker") as broker:
        topic = f"kafka://{broker.address}/serve"
        produce = [FRESHET, "produce", "--events", folder / "events.parquet", "--to", topic, "--partitions", 1]
        produce += ["--rate", rate, "--format", "arrow", "--batch", max(1, rate // 20)]
        began = time.monotonic()
        producer = subprocess.Popen(list(map(str, produce)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        job = run_of(out, [*inputs_in(folder)[:4], "--events", topic], options)
        try:
            await_epochs(out, job, 1)
            time.sleep(WARM_UP_S)
            deadline = time.monotonic() + CATCH_UP_S
            while Figures(out).events < rate * (time.monotonic() - began - SLACK_S):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.5)
            yield Offered(out, broker.address, "serve", producer, job)
        finally:
            producer.kill()
            producer.wait()
            job.send_signal(signal.SIGTERM)
            job.communicate(timeout=DEADLINE_S)


def at_a_rate(folder: Path, options: argparse.Namespace) -> tuple[Readers, dict[str, Any], Path]:
    """Read beside a job that is offered events at a rate; return the figures."""
    with offered(folder, options.rate, options) as job:
        before, began, sent_s = Figures(job.out), time.monotonic(), cpu_s_of(job.producer.pid)
        readers, shown = read_beside(job.out, lambda: True, options)
        seconds = time.monotonic() - began
        found = Figures(job.out).since(before)
        sent_s = cpu_s_of(job.producer.pid) - sent_s
        kept = found["events"] / (options.rate * seconds)
    shown |= {"offered_per_s": options.rate, "kept_percent": round(100 * kept, 1), "epochs": found["epochs"]}
    shown |= {"applied_ms_p50": found["applied_ms_p50"], "generator_cores": round(sent_s / seconds, 2)}
    return readers, shown | {"job_loss_percent": round(max(0.0, 100 * (1 - kept)), 1)}, job.out


def freshness(folder: Path, rate: int, options: argparse.Namespace) -> dict[str, Any]:
    """From a change in Kafka to its row at a client, at a rate, while nobody else reads."""
    shown: dict[str, Any] = {}
    with offered(folder, rate, options) as job:
        server = Server(job.out / "tables")
        try:
            until(lambda: has_come_to(EmbeddingClient(server.tables), job.out), "the newest epochs")
            asked = probes(server.addresses, job.broker, job.topic, FEATURES)
            time.sleep(options.probe)
            for probe in asked:
                taken = probe.end()
                name = f"change_to_{probe.way}_ms"
                shown |= {f"{name}_p{p}": round(float(np.percentile(taken, p)), 1) for p in (50, 99)}
                shown |= {f"changes_to_{probe.way}": len(taken)}
        finally:
            server.end()
    shutil.rmtree(job.out)
    return shown


def at_full_load(folder: Path, options: argparse.Namespace) -> tuple[Readers, dict[str, Any], Path]:
    """A job that takes a file as fast as it can, for a while alone, then with a server."""
    out = folder / "out-alone"
    alone = ended(begun(out, folder, options), options.alone)
    shutil.rmtree(out)
    out = folder / "out-served"
    job = begun(out, folder, options)
    readers, shown = read_beside(out, lambda: job.poll() is None, options)
    shown["stream_ended_first"] = job.poll() is not None
    summary = ended(job, 0.0)
    loss = 100 * (1 - summary["events_per_s"] / alone["events_per_s"])
    rates = {"events_per_s": summary["events_per_s"], "events_per_s_alone": alone["events_per_s"]}
    return readers, shown | rates | {"events": summary["events"], "job_loss_percent": round(loss, 1)}, out


def begun(out: Path, folder: Path, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    """A job of the file that streams."""
    job = run_of(out, inputs_in(folder), options)
    await_epochs(out, job, 1)
    return job


def ended(job: subprocess.Popen[bytes], after_s: float) -> dict[str, Any]:
    """Its summary, once it has ended by itself, or was stopped after so long."""
    with suppress(subprocess.TimeoutExpired):
        job.wait(after_s)
    if job.poll() is None:
        job.send_signal(signal.SIGTERM)
    return finished(job)


def figures_of(readers: Readers) -> dict[str, Any]:
    """Rates and times of all kinds."""
    found: dict[str, Any] = {}
    for name in ("flight", "bare_flight"):
        taken = np.array(readers[name][0].taken_s) * 1e3
        found |= {f"{name}_p{p}_ms": round(float(np.percentile(taken, p)), 3) for p in (50, 99)}

    def rate(name: str, what: Callable[[Reader], float]) -> float:
        return round(sum(what(reader) / max(reader.seconds, 1e-9) for reader in readers[name]), 1)

    requests: dict[str, str] = {"lookups_per_s": "lookups", "bare_lookups_per_s": "bare_lookups"}
    requests |= {"http_requests_per_s": "http", "local_lookups_per_s": "local"}
    found |= {key: rate(name, lambda reader: len(reader.taken_s)) for key, name in requests.items()}
    ids = {"batched_ids_per_s": "batched", "bare_batched_ids_per_s": "bare_batched"}
    ids |= {"local_batched_ids_per_s": "local_batched"}
    found |= {key: rate(name, lambda reader: BATCH * len(reader.taken_s)) for key, name in ids.items()}
    return found | {"bulk_rows_per_s": rate("bulk", lambda reader: reader.rows)}


def main() -> int:
    """Run, read, judge."""
    parser = argparse.ArgumentParser(
        "bench_serve", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench", help="where inputs and outputs go")
    parser.add_argument("--events", type=int, help="length of the stream, at most (default: 1 million; a file: 4)")
    parser.add_argument("--rate", type=int, default=5000, help="events a second that are offered; 0: a file")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each kind of client, at least")
    parser.add_argument("--checks", type=int, default=100_000, help="answers that are held against the change log")
    parser.add_argument("--alone", type=float, default=20.0, metavar="SECONDS", help="with --rate 0: without a server")
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of a turn")
    parser.add_argument("--runtime", default="flink", choices=["local", "flink"])
    parser.add_argument("--parts", type=int, nargs="+", default=[1], help="one run, and one JSON line, for each")
    parser.add_argument(
        "--fresh",
        type=int,
        nargs="*",
        default=[1000, 5000],
        metavar="RATE",
        help="with --rate: also how long a change takes from Kafka to a client, at these rates",
    )
    parser.add_argument("--probe", type=float, default=20.0, metavar="SECONDS", help="of each of those")
    parser.add_argument("--epoch-events", type=int, default=1000)
    parser.add_argument("options", nargs="*", help="further options of freshet run, after --")
    options = parser.parse_args()
    folder = generate_once(options.folder, options.events or (1_000_000 if options.rate else 4_000_000))
    counts, code = options.parts, 0
    for options.parts in counts:
        result = judged(folder, options)
        right = result["checked"] >= options.checks and not any(result[bad] for bad in ("torn", "wrong", "back"))
        if options.rate:
            result["fresh"] = {rate: freshness(folder, rate, options) for rate in options.fresh}
        print(orjson.dumps(result, option=orjson.OPT_NON_STR_KEYS).decode(), flush=True)
        code |= not right
    return code


def judged(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of a run, after comparing its answers with the change log."""
    readers, shown, out = (at_a_rate if options.rate else at_full_load)(folder, options)
    every = [reader for name, some in readers.items() if KINDS[name][2] != "bare" for reader in some]
    oracle = Oracle(out)
    verdicts, checked = [], dict[str, int]()
    for reader in every:
        verdicts += [oracle.judge(sample) for sample in reader.samples]
        checked[str(reader.size or "all")] = checked.get(str(reader.size or "all"), 0) + len(reader.samples)
    torn, wrong = (sum(one[k] for one in verdicts) for k in (0, 1))
    result = figures_of(readers) | {"parts": options.parts, "torn": torn, "wrong": wrong}
    result |= {"back": sum(reader.back for reader in every), "answers": sum(len(reader.taken_s) for reader in every)}
    result |= {"checked": len(verdicts), "checked_by_ids": checked}
    shutil.rmtree(out)
    return result | shown | {"machine": machine(), "load": [round(one, 1) for one in os.getloadavg()]}


if __name__ == "__main__":
    unwind_at_signals()
    sys.exit(main())
