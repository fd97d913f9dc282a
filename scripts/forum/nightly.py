"""Trains each month who answers next, on a job's graph: `python scripts/forum/nightly.py [--folder FOLDER]`.

A job reads the year 2014 (stream.py) with an epoch of event time every thirty days. Behind each epoch from the third
on, a model is trained on the graph of three epochs before, by the answers since then, and scores the users of now. The
average precision is about the ninety days that follow. The last line is JSON; `--plot PATH` draws it.
"""

from __future__ import annotations

import argparse
import datetime
import os
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
from scripts.forum.replay import MODEL, prepare
from scripts.forum.stream import AHEAD_MS, CUT_MS, USER, Posts, joined_ms, read_posts
from scripts.plots.picture import picture
from tests.support.runs.jobs import FRESHET, ROOT

DAYS, BEHIND = 30, 3  # of an epoch; epochs behind which answers are known


def run(folder: Path, out: Path) -> None:
    """Run the job."""
    given = ["--model", folder / MODEL, "--snapshot", folder / "snapshot", "--events", folder / "events.jsonl"]
    how = ["--runtime", "local", "--epoch-event-time", f"{DAYS}d"]
    subprocess.run(list(map(str, [FRESHET, "run", *given, "--out", out, *how])), check=True, stdout=subprocess.DEVNULL)


def ends_of(out: Path) -> list[int]:
    """Return the time behind the last event of each epoch, from epoch 0 on, in milliseconds since 1970."""
    epochs = pq.read_table(out / "epochs", columns=["epoch", "event_ts"]).sort_by("epoch").to_pydict()
    return [CUT_MS, *(ts + 1 for epoch, ts in zip(epochs["epoch"], epochs["event_ts"], strict=True) if epoch > 0)]


def nights(posts: Posts, ends_ms: list[int]) -> list[Night]:
    """Return the nights, given the times at which epochs end."""
    joined = joined_ms(posts)

    def labels(at_ms: int, upto_ms: int) -> np.ndarray:
        """Return which users who are there answer before `upto_ms`."""
        soon = (posts.type == 0) & (posts.at_ms >= at_ms) & (posts.at_ms < upto_ms)
        return np.where(joined < at_ms, np.isin(np.arange(len(joined)), posts.src[soon]), -1)

    found = []
    for before, now in zip(range(len(ends_ms)), range(BEHIND, len(ends_ms)), strict=False):
        name = datetime.datetime.fromtimestamp(ends_ms[now] / 1e3, datetime.UTC).strftime("%d %b")
        known = labels(ends_ms[before], ends_ms[now])
        found.append(Night(name, before, now, known, labels(ends_ms[now], ends_ms[now] + AHEAD_MS)))
    return found


def main() -> None:
    """Prepare, run, train, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "forum", help="of the graph and the model")
    parser.add_argument("--data", type=Path, default=os.environ.get("FRESHET_DATA"), help="folder of the data sets")
    parser.add_argument("--passes", type=int, default=60, help="of a training from nothing; further ones have a third")
    parser.add_argument("--plot", type=picture)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    prepare(options.folder, str(options.data), 60)
    with tempfile.TemporaryDirectory() as work:
        run(options.folder, Path(work) / "out")
        with LiveGraph(Path(work) / "out") as live:
            every = nights(read_posts(options.data), ends_of(Path(work) / "out"))
            schedules = [
                Schedule(options.passes // 3, 0.002, "average_precision"),
                Schedule(options.passes, 0.01, "average_precision"),
            ]
            of = Comparison(options.folder / MODEL, "scripts.forum.train:scorer", USER, *schedules)
            found = over_time(live.at, every, of)
    if options.plot:
        draw(options.plot, [one.name for one in every], found, "who answers within ninety days")
    means = {name: round(float(np.mean(values)), 4) for name, values in found.items()}
    rounded = {name: [round(value, 4) for value in values] for name, values in found.items()}
    print(orjson.dumps({"nights": [one.name for one in every], "mean": means, **rounded}).decode())


if __name__ == "__main__":
    main()
