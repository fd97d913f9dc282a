"""A simulated soak: millions of tiny epochs through the parts of a job that could grow, under a clock of its own.

    .venv/bin/python scripts/drills/soak.py --epochs 5000000 --plot soak.png

Memory, disk, open files and the time to start must be as flat in the second half as in the first. Prints one JSON line,
and ends with 1 if something grows.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.plots.picture import picture
from scripts.plots.soak import plot_figures
from tests.support.simulation.soaked import Sample, judge, soak


def plot(samples: list[Sample], path: Path) -> None:
    """Each figure over the epochs."""
    plot_figures(
        [sample.epoch / 1e6 for sample in samples], [sample.figures for sample in samples], "million epochs", path, 110
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5_000_000)
    parser.add_argument("--samples", type=int, default=40, help="how often it is restarted and looked at")
    parser.add_argument("--days", type=float, default=4.0, help="that the epochs take on the job's clock (default: 4)")
    parser.add_argument("--folder", type=Path, help="the job's folder, emptied first (default: a temporary one)")
    parser.add_argument("--plot", type=picture, metavar="PNG")
    options = parser.parse_args()
    began, samples = time.perf_counter(), list[Sample]()
    step_ms = options.days * 86_400_000 / options.epochs
    with tempfile.TemporaryDirectory(prefix="freshet-soak-") as temporary:
        for sample in soak(options.folder or Path(temporary) / "job", options.epochs, options.samples, step_ms):
            samples.append(sample)
            print(f"{time.perf_counter() - began:,.0f} s  {orjson.dumps(asdict(sample)).decode()}", file=sys.stderr)
    if options.plot:
        plot(samples, options.plot)
    verdict = judge(samples)
    seconds = round(time.perf_counter() - began, 1)
    figures = {"first_half": verdict.first, "second_half": verdict.second, "grew": verdict.grew}
    print(orjson.dumps({"epochs": samples[-1].epoch, "seconds": seconds, "days": options.days, **figures}).decode())
    return 1 if verdict.grew else 0


if __name__ == "__main__":
    sys.exit(main())
