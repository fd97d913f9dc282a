"""Finds laundering in a stream of payments, from a Kafka broker: `python scripts/payments/replay.py [--folder FOLDER]`.

Makes the payments (stream.py) and trains the models (train.py), as far as FOLDER has none. For each model the first
half of the events goes into a topic, and `freshet run` follows it. The job is stopped and exported. Then the other half
comes; the job goes on to its end, and so does a new job, from the export. `freshet check` compares both with a full
pass.

Average precision and F1 say how well the scores find the accounts that launder: fresh ones, those of the export, and
stale ones, of the snapshot. F1 takes the threshold that is best on the snapshot; accounts without a score are not
taken. The last line is JSON; exit 1 when a check fails, or the new job does not end as the old one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.dev.broker import start_broker
from scripts.payments.quality import average_precision, best_threshold, f1_at
from tests.support.runs.jobs import FRESHET, ROOT, Job, Log, TopicInput, read_log

MODELS = ("gine", "gat")
EQUAL = 1e-4  # largest difference of two jobs' scores, of the largest score
PARTITIONS = 4
Figures = dict[str, Any]


def prepare(folder: Path, options: argparse.Namespace) -> None:
    """Make what is missing: payments, models, and the two halves of the events."""
    scripts = Path(__file__).parent
    if not (folder / "events.jsonl").exists():
        sizes = ["--accounts", options.accounts, "--seed", options.seed]
        subprocess.run([sys.executable, scripts / "stream.py", folder, *map(str, sizes)], check=True)
    for name in options.models:
        if not (folder / name / "model.json").exists():
            how = ["--models", name, "--passes", str(options.passes), "--seed", str(options.seed)]
            subprocess.run([sys.executable, scripts / "train.py", folder, *how], check=True)
    lines = (folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "first.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    (folder / "second.jsonl").write_bytes(b"".join(lines[len(lines) // 2 :]))


def produce(events: Path, topic: str) -> int:
    """Send events to a topic; returns how many."""
    command = [FRESHET, "produce", "--events", events, "--to", topic, "--partitions", PARTITIONS]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"freshet produce: exit {done.returncode}\n{done.stderr[-3000:]}")
    return int(orjson.loads(done.stdout)["events"])


class Scores:
    """Scores of accounts by a change log; accounts without one have -inf. Shapes: all (accounts,) float64."""

    def __init__(self, log: Log, accounts: int) -> None:
        self._log, self._accounts = log, accounts

    def after(self, epoch: int) -> np.ndarray:
        """The scores after an epoch."""
        found = np.full(self._accounts, -np.inf)
        rows = slice(0, int(np.searchsorted(self._log.epoch, epoch, side="right")))
        found[self._log.id[rows]] = np.where(self._log.deleted[rows], -np.inf, self._log.vector[rows, 0])
        return found


def replay(name: str, folder: Path, work: Path, address: str, options: argparse.Namespace) -> Figures:
    """Take the payments through one model's job, its export and a new job."""
    topic = f"kafka://{address}/payments-{name}"
    given = TopicInput(folder / name, folder / "events.jsonl", 0, folder / "snapshot", topic)
    how = ("--parts", options.parts, "--epoch-events", options.epoch_events, "--epoch-ms", 200)
    job, exported = Job(given, work / name), work / f"{name}-export"
    successor = Job(TopicInput(given.model, given.events, 0, exported, topic), work / f"{name}-successor")
    try:
        first = produce(folder / "first.jsonl", topic)
        job.start(*how)
        half = _followed(name, job, first)
        export = job.exported(exported)
        _good(f"{name}: freshet export", export.code, export.errors)
        second = produce(folder / "second.jsonl", topic)
        job.start("--resume", "latest")
        whole = _followed(name, job, first + second)
        going_on = successor.done(*how, "--until", "latest")
        checks = [one.checked(timeout_s=None) for one in (job, successor)]
    finally:
        job.end()
        successor.end()
    print(f"{name}: {first:,} and {second:,} events; exported at epoch {export.result['epoch']}", file=sys.stderr)
    figures = compare(folder, job.out, successor.out, int(export.result["epoch"]))
    figures |= {"events": whole["events"], "rejected": whole["rejected"], "continued": going_on["events"]}
    figures |= {"events_per_s": [half["events_per_s"], going_on["events_per_s"]]}
    figures["checks"] = [one.result.get("max_rel_error") for one in checks]
    figures["is_good"] = figures["difference"] <= EQUAL and not any(one.code for one in checks)
    return {"model": name, **figures}


def compare(folder: Path, out: Path, successor: Path, exported: int) -> Figures:
    """Return quality, and how far the ends of two jobs are apart."""
    truth = pq.read_table(folder / "truth.parquet")["launders_from"].to_numpy()
    accounts = pq.read_table(folder / "snapshot" / "vertices.parquet")
    known = np.zeros(len(truth))
    known[accounts["id"].to_numpy()] = accounts["label"].to_numpy()
    log = read_log(out)
    scores, other = Scores(log, len(truth)), read_log(successor)
    stale, fresh = scores.after(0), scores.after(log.last)
    threshold, labels = best_threshold(stale, known), (truth >= 0).astype(np.int64)
    quality = {"snapshot": (stale, known), "fresh": (fresh, labels), "stale": (stale, labels)}
    quality["at_export"] = (scores.after(exported), labels)
    found: Figures = {
        told: {"ap": round(average_precision(*one), 4), "f1": round(f1_at(*one, threshold), 4)}
        for told, one in quality.items()
    }
    theirs = Scores(other, len(truth)).after(other.last)
    if not np.array_equal(np.isfinite(fresh), np.isfinite(theirs)):
        return found | {"difference": float("inf")}
    both = np.isfinite(fresh)
    off = np.abs(fresh[both] - theirs[both]).max() / np.abs(fresh[both]).max()
    return found | {"accounts": int(both.sum()), "laundering": int(labels.sum()), "difference": float(off)}


def _followed(name: str, job: Job, events: int) -> Figures:
    """Stop the job once it has taken `events`; returns what it says in the end."""
    job.until(lambda: (job.out / "run.json").exists(), timeout_s=600)
    job.until(lambda: job.status().get("events", 0) >= events, timeout_s=1800)
    stopped = job.stop()
    _good(f"{name}: freshet stop", stopped.code, stopped.errors)
    return job.wait().result


def _good(told: str, code: int, errors: str) -> None:
    if code:
        sys.exit(f"{told}: exit {code}\n{errors[-3000:]}")


def report(results: list[Figures]) -> None:
    """Print the table for people, on stderr."""
    table = Table(title="accounts that launder by the end of the stream: average precision (F1)")
    for column in ("model", "snapshot", "fresh", "at the export", "stale", "new job differs by", "checks"):
        table.add_column(column, justify="left" if column == "model" else "right")
    for one in results:
        cells = [
            f"{one[name]['ap']:.3f} ({one[name]['f1']:.3f})" for name in ("snapshot", "fresh", "at_export", "stale")
        ]
        checks = ", ".join("failed" if error is None else f"{error:.1e}" for error in one["checks"])
        table.add_row(one["model"], *cells, f"{one['difference']:.1e}", checks)
    Console(stderr=True, width=140).print(table)


def main() -> int:
    """Prepare, replay, report; JSON lines on stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "payments", help="of payments and models")
    parser.add_argument("--accounts", type=int, default=100_000)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--passes", type=int, default=80, help="of training over the snapshot")
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--epoch-events", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    prepare(folder, options)
    results = []
    with tempfile.TemporaryDirectory(prefix="freshet-payments-") as work, start_broker(Path(work) / "broker") as broker:
        for name in options.models:
            results.append(replay(name, folder, Path(work), broker.address, options))
            print(orjson.dumps(results[-1]).decode(), flush=True)
    report(results)
    is_good = all(one["is_good"] for one in results)
    print(orjson.dumps({"models": len(results), "is_good": is_good}).decode())
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
