"""Throughput of the source: the stream of `make bench` from files and from a Kafka broker on the same machine.

From Kafka as JSON (one event a message, many) and as Arrow, over four partitions. Each line is one `freshet run` on
Flink, checked at the end; `parser` and `partitioner` are the seconds that these operators' own code took, `busy` the
share of the streaming time in which the Parser's thread did anything at all (parsing, keyed state, handing on).
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.dev.broker import start_broker
from freshet.job.kafka.produce_messages import read_lines
from freshet.operators.parser.files import ChunkReader, plan_chunks
from scripts.bench.arxiv_stream import generate_once
from scripts.bench.throughput import FRESHET, ROOT, machine

PARTITIONS = 4
# Name, format and events of a message; those without a format are files.
SOURCES: dict[str, tuple[str, int]] = {
    "parquet file": ("", 0),
    "jsonl file": ("", 0),
    "json, 1 a message": ("jsonl", 1),
    "json, 100 a message": ("jsonl", 100),
    "arrow, 1000 a message": ("arrow", 1000),
}


def freshet(command: str, *arguments: object) -> dict[str, Any]:
    """Run a command; its last line on stdout."""
    done = subprocess.run([str(FRESHET), command, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout.strip():
        sys.exit(f"freshet {command}: exit {done.returncode}\n{done.stderr[-3000:]}")
    found: dict[str, Any] = orjson.loads(done.stdout.splitlines()[-1])
    return found | {"code": done.returncode}


def write_jsonl(folder: Path) -> None:
    """The stream as JSON Lines."""
    reader = ChunkReader(every_column=True)
    with (folder / "events.jsonl").open("wb") as file:
        for chunk in plan_chunks([str(folder / "events.parquet")]):
            file.writelines(line + b"\n" for line in read_lines(chunk, reader))


def measure(folder: Path, name: str, events: str, count: int, options: list[object]) -> dict[str, Any]:
    """Run and check one job; `count` is the number of events."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    given = ["--model", folder / "model", "--snapshot", folder / "snapshot", "--events", events, "--out", out]
    result = freshet("run", *given, *options)
    check = freshet("check", "--oracle", "own", *given)
    run = orjson.loads((out / "run.json").read_bytes())
    profile = {operator.partition("-")[0]: counts for operator, counts in run["profile"].items()}
    parser = profile["parser"]
    busy = sum(parser[part] for part in ("stage", "hand_over", "state", "emit")) / result["seconds"]
    return {
        "source": name,
        **{key: result[key] for key in ("events", "seconds", "events_per_s", "applied_ms_p50", "applied_ms_p99")},
        "parser_s": parser["stage"],
        "parser_calls": parser["acts"],
        "partitioner_s": profile["partitioner"]["stage"],
        "parser_busy": round(busy, 2),
        "max_rel_error": check["max_rel_error"],
        "correct": check["code"] == 0 and result["events"] == count,
    }


def report(results: list[dict[str, Any]]) -> None:
    """For people, on stderr."""
    table = Table(title=f"arxiv-shaped stream on Flink, by source ({machine()})")
    for name in results[0]:
        table.add_column(name.replace("_", " "), justify="right")
    for one in results:
        table.add_row(*(f"{value:,}" if isinstance(value, int | float) else str(value) for value in one.values()))
    Console(stderr=True, width=180).print(table)


def main() -> int:
    """Generate, produce, run, check; JSON lines on stdout, one per source."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench-kafka", help="inputs and outputs")
    parser.add_argument("--events", type=int, default=300_000, help="length of the stream")
    parser.add_argument("--epoch-events", type=int, default=1000)
    parser.add_argument("--sources", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    options = parser.parse_args()
    folder = generate_once(options.folder, options.events, write_jsonl)
    results = []
    more: list[object] = ["--epoch-events", options.epoch_events]
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as data, start_broker(Path(data) / "broker") as broker:
        for number, name in enumerate(options.sources):
            print(f"{name} ...", file=sys.stderr)
            kind, batch = SOURCES[name]
            if not kind:
                file = folder / f"events.{name.split()[0]}"
                results.append(measure(folder, name, str(file), options.events, more))
            else:
                topic = f"kafka://{broker.address}/bench-{number}"
                how = ["--partitions", PARTITIONS, "--format", kind, "--batch", batch, "--to", topic]
                freshet("produce", "--events", folder / "events.jsonl", *how)
                results.append(measure(folder, name, topic, options.events, [*more, "--until", "latest"]))
            print(orjson.dumps(results[-1]).decode(), flush=True)
    shutil.rmtree(folder / "out")
    report(results)
    return 0 if all(result["correct"] for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
