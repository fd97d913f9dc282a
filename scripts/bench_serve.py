"""`scripts/bench_serve`: reads of a job's embeddings while the job takes its full load, every sampled answer checked.

The stream is that of `make bench`. Clients take turns of a second: one with single lookups over Flight, four with
single lookups, four with batches, one that reads all, one on the mapped table. The job runs once more without a server,
for what serving takes of its throughput. The last line is one JSON object; exit 1 if a row is torn or wrong.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from _serve_oracle import Oracle, Sample
from arxiv_stream import generate_once
from bench import FRESHET, ROOT, inputs_in, machine

from job.serving.clients.client import EmbeddingClient
from job.serving.place import read_server

TURN_S, BATCH, CLIENTS = 1.0, 100, 4
SAMPLED = 50  # one in so many small answers is kept for the oracle


class Reader:
    """A client and what it counts."""

    def __init__(self, address: str, vertices: int, size: int | None, seed: int) -> None:
        self._client, self._vertices, self._size = EmbeddingClient(address, timeout=10), vertices, size
        self._rng = np.random.default_rng(seed)
        self.taken_ms: list[float] = []
        self.seconds, self.rows, self.back = 0.0, 0, 0
        self.samples: list[Sample] = []
        self._epoch = 0

    def turn(self, seconds: float) -> None:
        """Read for so long."""
        began = time.perf_counter()
        while (now := time.perf_counter()) - began < seconds:
            ids = None if self._size is None else self._rng.integers(0, self._vertices, self._size)
            sample = self._read(ids)
            self.taken_ms.append((time.perf_counter() - now) * 1e3)
            self.rows += len(sample.ids)
            self.back += sample.epoch < self._epoch
            self._epoch = sample.epoch
            if ids is None or len(self.taken_ms) % SAMPLED == 1:
                self.samples = [*self.samples[-2:], sample] if ids is None else [*self.samples, sample]
        self.seconds += time.perf_counter() - began

    def close(self) -> None:
        """Let the connection go."""
        self._client.close()

    def _read(self, ids: np.ndarray | None) -> Sample:
        if ids is not None:
            found = self._client.rows(ids)
            return Sample(found.epoch, ids, *found)
        table = self._client.all()
        vectors = table["embedding"].combine_chunks()
        flat = vectors.flatten().to_numpy(zero_copy_only=False).reshape(len(table), -1)
        epoch = int(table.schema.metadata[b"epoch"])
        return Sample(epoch, None, table["id"].to_numpy(), table["epoch"].to_numpy(), flat)


def command_of(folder: Path, out: Path, options: argparse.Namespace) -> list[str]:
    shutil.rmtree(out, ignore_errors=True)
    command: list[Any] = [FRESHET, "run", *inputs_in(folder), "--out", out, "--runtime", options.runtime]
    command += ["--parts", options.parts, "--epoch-events", options.epoch_events]
    return list(map(str, command))


def finished(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    stdout, _ = process.communicate(timeout=3600)
    if process.returncode:
        sys.exit(f"freshet run: exit {process.returncode}")
    found: dict[str, Any] = orjson.loads(stdout.splitlines()[-1])
    return found


def until(condition: Callable[[], bool], what: str, timeout_s: float = 600.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            sys.exit(f"waited in vain for {what}")
        time.sleep(0.05)


def together(readers: list[Reader], seconds: float) -> None:
    threads = [threading.Thread(target=reader.turn, args=(seconds,)) for reader in readers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def served_run(folder: Path, options: argparse.Namespace) -> tuple[dict[str, Any], dict[str, list[Reader]], Path]:
    """A run with a server beside it, read until it ends; its summary and the readers."""
    out = folder / "out-served"
    job = subprocess.Popen(command_of(folder, out, options), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    until((out / "base" / "complete").exists, "the job")
    command = [FRESHET, "serve", "--tables", out / "tables", "--port", "0", "--http-port", "0"]
    server = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
    try:
        until(lambda: read_server(out / "tables").get("pid") == server.pid, "the server")
        flight, tables = read_server(out / "tables")["flight"], str(out / "tables")
        n = options.vertices
        readers = {
            "flight": [Reader(flight, n, 1, 1)],
            "lookups": [Reader(flight, n, 1, 10 + k) for k in range(CLIENTS)],
            "batched": [Reader(flight, n, BATCH, 20 + k) for k in range(CLIENTS)],
            "bulk": [Reader(flight, n, None, 30)],
            "local": [Reader(tables, n, 1, 40)],
        }
        until(lambda: readers["local"][0]._client.epoch() > 0, "the first epoch")
        while job.poll() is None:
            for some in readers.values():
                together(some, TURN_S)
        summary = finished(job)
        for reader in (one for some in readers.values() for one in some):
            reader.close()
    finally:
        server.terminate()
        server.wait(30)
    return summary, readers, out


def figures_of(readers: dict[str, list[Reader]]) -> dict[str, Any]:
    singles = np.array(readers["flight"][0].taken_ms)

    def rate(name: str, what: Callable[[Reader], float]) -> float:
        return round(sum(what(reader) / reader.seconds for reader in readers[name]), 1)

    return {
        "flight_p50_ms": round(float(np.percentile(singles, 50)), 3),
        "flight_p99_ms": round(float(np.percentile(singles, 99)), 3),
        "lookups_per_s": rate("lookups", lambda reader: len(reader.taken_ms)),
        "batched_ids_per_s": rate("batched", lambda reader: BATCH * len(reader.taken_ms)),
        "bulk_rows_per_s": rate("bulk", lambda reader: reader.rows),
        "local_lookups_per_s": rate("local", lambda reader: len(reader.taken_ms)),
    }


def main() -> int:
    """Run, read, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench", help="where inputs and outputs go")
    parser.add_argument("--events", type=int, default=300_000, help="length of the stream")
    parser.add_argument("--runtime", default="flink", choices=["local", "flink"])
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--epoch-events", type=int, default=1000)
    parser.add_argument("--no-baseline", action="store_true", help="leave out the run without a server")
    options = parser.parse_args()
    folder = generate_once(options.folder, options.events)
    options.vertices = 169_343
    alone = None
    if not options.no_baseline:
        command = command_of(folder, folder / "out-alone", options)
        alone = finished(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
        shutil.rmtree(folder / "out-alone")
    summary, readers, out = served_run(folder, options)
    every = [reader for some in readers.values() for reader in some]
    oracle = Oracle(out)
    verdicts = [oracle.judge(sample) for reader in every for sample in reader.samples]
    torn, wrong = (sum(one[k] for one in verdicts) for k in (0, 1))
    loss = None if alone is None else round(100 * (1 - summary["events_per_s"] / alone["events_per_s"]), 1)
    result = figures_of(readers) | {"torn": torn, "wrong": wrong, "job_loss_percent": loss}
    result |= {
        "answers": sum(len(reader.taken_ms) for reader in every),
        "checked": len(verdicts),
        "back": sum(reader.back for reader in every),
        "events_per_s": summary["events_per_s"],
        "events_per_s_alone": None if alone is None else alone["events_per_s"],
        "machine": machine(),
    }
    shutil.rmtree(out)
    print(orjson.dumps(result).decode(), flush=True)
    return 0 if verdicts and not torn and not wrong and not result["back"] else 1


if __name__ == "__main__":
    sys.exit(main())
