"""A simulated week of a served job, at 50 epochs/s: disk and the time to start must be bounded.

    .venv/bin/python scripts/drills/soak_serving.py --plot docs/measured/serving-week.png

The clock is simulated, the code is not: Sink, change log, tail, follower, table, and compaction (hourly; changes of a
day are kept). Files come as often as in real time; an epoch stands for several: rows and bytes are as many times fewer.
Prints one JSON line, and ends with 1 if something grows.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.plots.picture import picture
from scripts.plots.soak import plot_figures
from tests.support.serving.week import Plan, WeekSample, week
from tests.support.simulation.soaked import judge


def plot(samples: list[WeekSample], path: Path) -> None:
    """Each figure over the days."""
    plot_figures([sample.day for sample in samples], [sample.figures for sample in samples], "days", path, 90)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--epochs-per-s", type=float, default=50.0)
    parser.add_argument("--stands-for", type=int, default=300, help="real epochs for which one is simulated")
    parser.add_argument("--marker", type=float, default=60.0, metavar="SECONDS", help="between two change-log files")
    parser.add_argument("--samples", type=int, default=28, help="how often the server is started anew and looked at")
    parser.add_argument("--plot", type=picture, metavar="PNG")
    options = parser.parse_args()
    plan = Plan(
        options.days, options.epochs_per_s, options.stands_for, marker_s=options.marker, samples=options.samples
    )
    began, samples = time.perf_counter(), list[WeekSample]()
    with tempfile.TemporaryDirectory(prefix="freshet-week-") as temporary:
        for sample in week(Path(temporary) / "O", plan):
            samples.append(sample)
            print(f"{time.perf_counter() - began:,.0f} s  {orjson.dumps(asdict(sample)).decode()}", file=sys.stderr)
    if options.plot:
        plot(samples, options.plot)
    verdict = judge(samples)
    told = {"epochs": samples[-1].epoch, "each_stands_for": plan.stands_for, "days": options.days}
    told |= {"seconds": round(time.perf_counter() - began, 1), "first_half": verdict.first}
    told |= {"second_half": verdict.second, "grew": verdict.grew, "load": [round(one, 1) for one in os.getloadavg()]}
    print(orjson.dumps(told).decode())
    return 1 if verdict.grew else 0


if __name__ == "__main__":
    sys.exit(main())
