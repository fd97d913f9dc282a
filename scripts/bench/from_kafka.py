"""Throughput from and to a Kafka broker on the same machine, beside files: the stream of `make bench`.

Sources: a Parquet file, a JSON Lines file, and topics with JSON (one event a message, many) or
Arrow. Sinks: none, or a topic of changed embeddings (`--coalesce 500ms`) in the formats of `--embedding-format`. Each
line is one `freshet run` on Flink; `--check` compares its result with a full pass. `cpu us` is the processor time of
the job's processes an event, `broker us` that of the broker; `parser us` is the Parser's own. With `--before CHECKOUT`
each run is made with that checkout's .venv as well, by turns. `--threads` prints, as Markdown, what each thread of the
job and of the broker takes of an event. Where the machine is shared, give `--coalesce-epochs`: intervals by time have
more records where a run takes longer. `--parallelism 2 --readers 1 2 --partitions 1 12`
compares one reader of a topic with two, in two processes.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson
import psutil
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.dev.broker import Broker, start_broker
from freshet.job.dev.script import unwind_at_signals
from freshet.job.kafka.client import ClientProperties
from freshet.job.kafka.produce_messages import read_lines
from freshet.job.kafka.read_topics import end_offsets
from freshet.job.kafka.topic_specs import TopicInput
from freshet.operators.parser.files import ChunkReader, plan_chunks
from scripts.bench.arxiv_stream import generate_once
from scripts.bench.threads import ThreadTimes, Times, thread_table
from scripts.bench.throughput import FRESHET, ROOT, machine

PARTITIONS = 4  # of a topic, by default
# Name, format and events of a message; those without a format are files.
SOURCES: dict[str, tuple[str, int]] = {
    "parquet file": ("", 0),
    "jsonl file": ("", 0),
    "json, 1 a message": ("jsonl", 1),
    "json, 100 a message": ("jsonl", 100),
    "arrow, 1000 a message": ("arrow", 1000),
}
SINKS = ("none", "base64", "binary", "list")
VARIED = ("source", "partitions", "readers", "sink", "epochs", "version")
Figures = dict[str, Any]


def freshet(command: str, *arguments: object) -> Figures:
    """Run a command and return its last line on stdout."""
    done = subprocess.run([str(FRESHET), command, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not done.stdout.strip():
        sys.exit(f"freshet {command}: exit {done.returncode}\n{done.stderr[-3000:]}")
    found: Figures = orjson.loads(done.stdout.splitlines()[-1])
    return found | {"code": done.returncode}


def write_jsonl(folder: Path) -> None:
    """Write the stream as JSON Lines."""
    reader = ChunkReader(every_column=True)
    with (folder / "events.jsonl").open("wb") as file:
        for chunk in plan_chunks([str(folder / "events.parquet")]):
            file.writelines(line + b"\n" for line in read_lines(chunk, reader))


def broker_s(broker: Broker) -> float:
    """Return the broker's processor time so far, in seconds."""
    times = psutil.Process(broker.pid).cpu_times()
    return float(times.user + times.system)


def measure(
    binary: Path, folder: Path, events: str, broker: Broker, options: list[object], check: bool
) -> tuple[Figures, Times]:
    """Make one run of the job and return its figures, and the processor time of its threads.

    Raises: SystemExit when it fails.
    """
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    given: list[object] = [
        "--model",
        folder / "model",
        "--snapshot",
        folder / "snapshot",
        "--events",
        events,
        "--out",
        out,
    ]
    before = broker_s(broker)
    with (folder / "said.log").open("wb") as said:
        command = [str(binary), "run", *map(str, (*given, *options))]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said)
        cpu = ThreadTimes(process, out, {"broker": broker.pid})
        stdout, _ = process.communicate()
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit {process.returncode}\n{(folder / 'said.log').read_text()[-3000:]}")
    result: Figures = orjson.loads(stdout.splitlines()[-1])
    run = orjson.loads((out / "run.json").read_bytes())
    parser = next(counts for name, counts in run["profile"].items() if name.startswith("parser"))
    count = result["events"]
    figures: Figures = {name: result[name] for name in ("events", "events_per_s", "applied_ms_p50", "applied_ms_p99")}
    figures |= {
        "cpu_us": round(cpu.us_per_event(), 1),
        "broker_us": round(1e6 * (broker_s(broker) - before) / count, 1),
        "parser_us": round(1e6 * parser["stage"] / count, 1),
        "rows_per_event": round(result.get("rows", 0) / count, 1),
    }
    if check:
        figures["max_rel_error"] = freshet("check", "--oracle", "own", *given)["max_rel_error"]
    return figures, cpu.us_by_thread()


def report(results: list[Figures]) -> None:
    """Print the medians for people, on stderr."""
    table = Table(title=f"arxiv-shaped stream on Flink ({machine()}), medians")
    rows: dict[tuple[str, ...], list[Figures]] = {}
    for one in results:
        rows.setdefault(tuple(f"{one[name]}" for name in VARIED), []).append(one)
    names = [name for name in max(results, key=len) if name not in (*VARIED, "round")]
    for name in (*VARIED, *names):
        table.add_column(name.replace("_", " "), justify="right")
    for key, some in rows.items():
        table.add_row(*key, *(f"{statistics.median(one.get(name, 0) for one in some):,g}" for name in names))
    Console(stderr=True, width=180).print(table)


def take_runs(options: argparse.Namespace, folder: Path) -> tuple[list[Figures], dict[str, list[Times]]]:
    """Make all runs; their figures, and by name of a run the processor time of its threads in each round."""
    results: list[Figures] = []
    versions = {"now": FRESHET}
    if options.before:
        versions["before"] = options.before / ".venv" / "bin" / "freshet"
    threads: dict[str, list[Times]] = {}
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as data, start_broker(Path(data) / "broker") as broker:
        places = {(name, number): place_of(name, number, folder, broker) for name, number in sources_of(options)}
        runs = [
            (turn, *source, readers, sink, epoch_events, version)
            for turn in range(options.rounds)
            for source in places
            for readers in (options.readers if source[1] else [0])
            for sink in options.sinks
            for epoch_events in options.epoch_events
            for version in versions
        ]
        for number, (turn, name, partitions, readers, sink, epoch_events, version) in enumerate(runs):
            varied = dict(
                zip(VARIED, (name, partitions, readers, sink, epoch_events or "adaptive", version), strict=True)
            )
            print(f"{number + 1} of {len(runs)}: {varied} ...", file=sys.stderr)
            more: list[object] = ["--epoch-events", epoch_events] if epoch_events else []
            more += [*options.options, *(["--until", "latest"] if partitions else [])]
            more += ["--parallelism", options.parallelism, *(["--readers", readers] if readers else [])]
            if sink != "none":
                more += sink_options(f"kafka://{broker.address}/out-{number}", sink, options, Path(data))
            figures, times = measure(versions[version], folder, places[name, partitions], broker, more, options.check)
            if sink != "none":
                records = records_in(broker, f"out-{number}")
                seconds = figures["events"] / figures["events_per_s"]
                figures |= {"records": records, "records_per_s": round(records / seconds)}
            title = ", ".join(f"{varied[one]}" for one in VARIED if one not in ("partitions", "readers"))
            threads.setdefault(title, []).append(times)
            results.append({**varied, "round": turn, **figures})
            print(orjson.dumps(results[-1]).decode(), flush=True)
    return results, threads


def main() -> int:
    """Generate, produce, run; JSON lines on stdout, one a run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bench-kafka", help="inputs and outputs")
    parser.add_argument("--events", type=int, default=600_000, help="length of the stream (default: 600,000)")
    parser.add_argument("--epoch-events", type=int, nargs="+", default=[1000], help="0: adaptive (default: 1000)")
    parser.add_argument("--sources", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--sinks", nargs="+", default=["none"], choices=SINKS)
    parser.add_argument("--coalesce-epochs", type=int, default=0, help="of an interval; 0: 500 ms (default: 0)")
    parser.add_argument("--threads", action="store_true", help="print processor time by thread, as Markdown")
    parser.add_argument("--delivery", default="upsert", choices=["upsert", "exactly-once"])
    parser.add_argument("--partitions", nargs="+", type=int, default=[PARTITIONS], help="of each topic")
    parser.add_argument(
        "--readers", nargs="+", type=int, default=[0], help="of each topic; 0: the default (default: 0)"
    )
    parser.add_argument("--parallelism", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--before", type=Path, help="a checkout of another version, with its .venv")
    parser.add_argument("--check", action="store_true", help="compare each result with a full pass")
    parser.add_argument("options", nargs="*", help="further options of freshet run, after --")
    options = parser.parse_args()
    folder = generate_once(options.folder, options.events, write_jsonl)
    results, threads = take_runs(options, folder)
    shutil.rmtree(folder / "out")
    report(results)
    if options.threads:
        print(thread_table(list(threads), [middle(some) for some in threads.values()]))
    return 0


def middle(some: list[Times]) -> Times:
    """Return the medians of several runs."""
    names = {name for one in some for name in one}
    return {name: statistics.median(one.get(name, 0.0) for one in some) for name in names}


def sink_options(topic: str, form: str, options: argparse.Namespace, folder: Path) -> list[object]:
    """Return the options of a run that writes a topic."""
    found: list[object] = ["--embeddings-to", topic, "--embedding-format", form, "--delivery", options.delivery]
    if not options.coalesce_epochs:
        return [*found, "--coalesce", "500ms"]
    config = folder / "coalesce.yaml"
    config.write_text(f"coalesce-epochs: {options.coalesce_epochs}\n")
    return [*found, "--coalesce", "1h", "--config", config]


def sources_of(options: argparse.Namespace) -> list[tuple[str, int]]:
    """Return each source with its number of partitions; 0 for a file."""
    return [(name, number) for name in options.sources for number in (options.partitions if SOURCES[name][0] else [0])]


def records_in(broker: Broker, topic: str) -> int:
    """Return the number of records of a topic; with exactly-once the marks of transactions count, too."""
    place = TopicInput(source=0, bootstrap=broker.address, topic=topic, start={})
    return sum(end_offsets(place, ClientProperties()).values())


def place_of(name: str, partitions: int, folder: Path, broker: Broker) -> str:
    """Return the `--events` of a source, whose topic is filled."""
    kind, batch = SOURCES[name]
    if not kind:
        return str(folder / f"events.{name.split()[0]}")
    topic = f"kafka://{broker.address}/{kind}-{batch}-{partitions}"
    how = ["--partitions", partitions, "--format", kind, "--batch", batch, "--to", topic]
    freshet("produce", "--events", folder / "events.jsonl", *how)
    return topic


if __name__ == "__main__":
    unwind_at_signals()
    sys.exit(main())
