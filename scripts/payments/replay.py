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

import numpy as np
import orjson
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet.job.dev.broker import start_broker
from freshet.job.dev.script import unwind_at_signals
from freshet.job.training.judge import average_precision
from scripts._quality import best_threshold, f1_at
from scripts._replay import Figures, Replayed, halve, replay
from tests.support.runs.jobs import ROOT

MODELS = ("gine", "gat")


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
    halve(folder)


def quality(folder: Path, found: Replayed) -> Figures:
    """Return how well the scores find the accounts that launder."""
    truth = pq.read_table(folder / "truth.parquet")["launders_from"].to_numpy()
    accounts = pq.read_table(folder / "snapshot" / "vertices.parquet")
    known = np.zeros(len(truth))
    known[accounts["id"].to_numpy()] = accounts["label"].to_numpy()
    scores, labels = found.scores, (truth >= 0).astype(np.int64)
    stale, fresh = scores.after(0), scores.after(scores.last)
    threshold = best_threshold(stale, known)
    told = {"snapshot": (stale, known), "fresh": (fresh, labels), "stale": (stale, labels)}
    told["at_export"] = (scores.after(found.exported), labels)
    figures: Figures = {
        name: {"ap": round(average_precision(*one), 4), "f1": round(f1_at(*one, threshold), 4)}
        for name, one in told.items()
    }
    return figures | {"accounts": int(np.isfinite(fresh).sum()), "laundering": int(labels.sum())}


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
    vertices = pq.read_metadata(folder / "truth.parquet").num_rows
    with tempfile.TemporaryDirectory(prefix="freshet-payments-") as work, start_broker(Path(work) / "broker") as broker:
        for name in options.models:
            topic = f"kafka://{broker.address}/payments-{name}"
            how = ("--parts", options.parts, "--epoch-events", options.epoch_events, "--epoch-ms", 200)
            found = replay(name, folder, Path(work), topic, how, vertices)
            results.append({"model": name, **quality(folder, found), **found.figures})
            print(orjson.dumps(results[-1]).decode(), flush=True)
    report(results)
    is_good = all(one["is_good"] for one in results)
    print(orjson.dumps({"models": len(results), "is_good": is_good}).decode())
    return 0 if is_good else 1


if __name__ == "__main__":
    unwind_at_signals()
    sys.exit(main())
