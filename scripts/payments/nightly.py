"""Trains each night who launders, on a job's graph: `python scripts/payments/nightly.py [--folder FOLDER]`.

A job reads the payments of stream.py with an epoch of event time each day. Behind every third epoch a model is trained
on the graph of three epochs before, by the accounts that are known to launder by then, and scores those of now. The
average precision is about accounts that no model is trained on: a fifth of those of the snapshot, and all new ones. The
last line is JSON; `--plot PATH` draws it.
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

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from freshet import LiveGraph
from freshet.job.training.fit import Schedule
from scripts._over_time import Comparison, Night, draw, over_time
from scripts.payments.stream import NEVER
from scripts.payments.train import TrainingGraph
from scripts.plots.picture import picture
from tests.support.runs.jobs import FRESHET, ROOT

MODEL, SEED = "gine", 7  # of train.py
EVERY = 3  # days


def prepare(folder: Path, accounts: int) -> None:
    """Make what is missing: the graph and the model."""
    scripts = Path(__file__).parent
    if not (folder / "events.jsonl").exists():
        subprocess.run([sys.executable, scripts / "stream.py", folder, "--accounts", str(accounts)], check=True)
    if not (folder / MODEL / "model.json").exists():
        subprocess.run([sys.executable, scripts / "train.py", folder, "--models", MODEL], check=True)


def run(folder: Path, out: Path) -> list[int]:
    """Run the job; return the time behind the last event of each epoch from 1 on, in milliseconds since 1970."""
    given = ["--model", folder / MODEL, "--snapshot", folder / "snapshot", "--events", folder / "events.jsonl"]
    how = ["--runtime", "local", "--epoch-event-time", "1d"]
    subprocess.run(list(map(str, [FRESHET, "run", *given, "--out", out, *how])), check=True, stdout=subprocess.DEVNULL)
    epochs = pq.read_table(out / "epochs", columns=["epoch", "event_ts"]).sort_by("epoch").to_pydict()
    return [ts + 1 for epoch, ts in zip(epochs["epoch"], epochs["event_ts"], strict=True) if epoch > 0]


def held_back(folder: Path, accounts: int) -> np.ndarray:
    """Return which accounts train.py did not train on, (accounts,) bool: a fifth of its snapshot, and all new ones."""
    data, found = TrainingGraph(folder / "snapshot", SEED), np.ones(accounts, bool)
    ids = pq.read_table(folder / "snapshot" / "vertices.parquet", columns=["id"])["id"].to_numpy()
    found[ids] = data.held.numpy()
    return found


def nights(folder: Path, ends_ms: list[int]) -> list[Night]:
    """Return the nights; ends_ms[k] is the end of epoch k + 1."""
    since = pq.read_table(folder / "truth.parquet").sort_by("id")["launders_from"].to_numpy()
    since = np.where(since == NEVER, np.iinfo(np.int64).max, since)
    held, found = held_back(folder, len(since)), []
    for now in range(EVERY, len(ends_ms), EVERY):
        known = np.where(held, -1, since < ends_ms[now - EVERY])
        truth = np.where(held, since < ends_ms[now], -1)
        found.append(Night(f"day {now + 1}", now - EVERY + 1, now + 1, known.astype(np.int64), truth.astype(np.int64)))
    return found


def main() -> None:
    """Prepare, run, train, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "payments-nightly", help="graph and model")
    parser.add_argument("--accounts", type=int, default=20_000)
    parser.add_argument("--passes", type=int, default=60, help="of a training from nothing; further ones have a third")
    parser.add_argument("--plot", type=picture)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    prepare(options.folder, options.accounts)
    with tempfile.TemporaryDirectory() as work:
        every = nights(options.folder, run(options.folder, Path(work) / "out"))
        schedules = [
            Schedule(options.passes // 3, 0.005, "average_precision"),
            Schedule(options.passes, 0.01, "average_precision"),
        ]
        of = Comparison(options.folder / MODEL, "scripts.payments.train:gine", "", *schedules)
        with LiveGraph(Path(work) / "out") as live:
            found = over_time(live.at, every, of)
    if options.plot:
        draw(options.plot, [one.name for one in every], found, "accounts that launder")
    means = {name: round(float(np.mean(values)), 4) for name, values in found.items()}
    rounded = {name: [round(value, 4) for value in values] for name, values in found.items()}
    print(orjson.dumps({"nights": [one.name for one in every], "mean": means, **rounded}).decode())


if __name__ == "__main__":
    main()
