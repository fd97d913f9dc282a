"""Says who answers next on MathOverflow, from a Kafka broker: `python scripts/forum/replay.py [--folder FOLDER]`.

Makes the graph of users and months (stream.py) and trains the model (train.py), as far as FOLDER has none. The first
half of the events goes into a topic, and `freshet run` follows it. The job is stopped and exported. Then the other half
comes; the job goes on to its end, and so does a new job, from the export. `freshet check` compares both with a full
pass.

Average precision says how well the scores find the users who answer a question within ninety days: those of the
snapshot for 2014, and for 2015 fresh ones, those of the export, and stale ones, of the snapshot; users without a score
come last.
The last line is JSON; exit 1 when a check fails, or the new job does not end as the old one.
"""

from __future__ import annotations

import argparse
import os
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
from scripts._replay import Figures, Replayed, halve, replay
from scripts.forum.stream import CUT_MS, END_MS, TIMES
from tests.support.runs.jobs import ROOT

MODEL = "sage"


def prepare(folder: Path, data: str | None, passes: int) -> None:
    """Make what is missing: the graph, the model, and the two halves of the events."""
    scripts = Path(__file__).parent
    if not (folder / "events.jsonl").exists():
        given = [] if data is None else ["--data", data]
        subprocess.run([sys.executable, scripts / "stream.py", folder, *given], check=True)
    if not (folder / MODEL / "model.json").exists():
        subprocess.run([sys.executable, scripts / "train.py", folder, "--passes", str(passes)], check=True)
    halve(folder)


def quality(folder: Path, found: Replayed) -> Figures:
    """Return how well the scores find the users who answer."""
    truth = pq.read_table(folder / "truth.parquet")
    joined = truth["joined_ms"].to_numpy()
    then, later = (truth[name].to_numpy(zero_copy_only=False).astype(np.int64) for name in TIMES)
    scores = found.scores
    stale, fresh = scores.after(0), scores.after(scores.last)
    told = {"snapshot": (stale, then, CUT_MS), "fresh": (fresh, later, END_MS), "stale": (stale, later, END_MS)}
    told["at_export"] = (scores.after(found.exported), later, END_MS)
    figures: Figures = {}
    for name, (values, labels, at_ms) in told.items():
        there = joined < at_ms
        figures[name] = round(average_precision(values[there], labels[there]), 4)
    return figures | {"users": int(np.isfinite(fresh).sum()), "answering": int(later[joined < END_MS].sum())}


def main() -> int:
    """Prepare, replay, report; a JSON line on stdout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "forum", help="of the graph and the model")
    parser.add_argument("--data", default=os.environ.get("FRESHET_DATA"), help="folder of the data sets")
    parser.add_argument("--passes", type=int, default=60, help="of training over the snapshot")
    parser.add_argument("--parts", type=int, default=2)
    parser.add_argument("--epoch-events", type=int, default=1000)
    options = parser.parse_args()
    folder = options.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    prepare(folder, options.data, options.passes)
    users = pq.read_metadata(folder / "truth.parquet").num_rows
    how = ("--parts", options.parts, "--epoch-events", options.epoch_events, "--epoch-ms", 200)
    with tempfile.TemporaryDirectory(prefix="freshet-forum-") as work, start_broker(Path(work) / "broker") as broker:
        found = replay(MODEL, folder, Path(work), f"kafka://{broker.address}/forum", how, users)
    figures = {"model": MODEL, **quality(folder, found), **found.figures}
    table = Table(title="users who answer within ninety days: average precision")
    columns = ("snapshot", "fresh", "at_export", "stale", "difference", "checks")
    for column in columns:
        table.add_column(column.replace("_", " "), justify="right")
    table.add_row(*(str(figures[column]) for column in columns))
    Console(stderr=True, width=140).print(table)
    print(orjson.dumps(figures).decode())
    return 0 if figures["is_good"] else 1


if __name__ == "__main__":
    unwind_at_signals()
    sys.exit(main())
