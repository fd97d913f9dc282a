"""Runs simulated jobs by their seeds: `scripts/drills/simulate.py --seed 7`, or `--seed 0 --count 1000`.

A seed draws model, parts, partitioner, epochs, snapshot, stream, and a schedule of deliveries, ticks, checkpoints,
crashes, and attempts that go on beside the next one. Each epoch must equal a full recompute, each value at its own
scale, and the run without crashes bit by bit. Ends with 1 at the first wrong seed.

With `--parts 64` each job has 64 parts, distributed to one task, two, four, and others after each crash: every epoch
must have the same bits in all of them.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.simulation.dealt_tasks import check_tasks
from tests.support.simulation.drawn import BREAKAGES, check, draw


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True, help="the first seed")
    parser.add_argument("--count", type=int, default=1, help="how many seeds (default: 1)")
    parser.add_argument(
        "--break",
        dest="broken",
        choices=[name.replace(" ", "-") for name in BREAKAGES],
        default="",
        help="break something on purpose: a sweep leaves a page out, or the cut log loses an entry",
    )
    parser.add_argument("--parts", type=int, help="parts of every job, dealt to tasks in several ways")
    options = parser.parse_args()
    began, crashes, crashed = time.perf_counter(), 0, 0
    for seed in range(options.seed, options.seed + options.count):
        case = draw(seed)
        print(case, end="", flush=True)
        try:
            broken = options.broken.replace("-", " ")
            result = check(case, broken) if options.parts is None else check_tasks(case, options.parts)
        except Exception as error:
            print(f": WRONG\n{''.join(traceback.format_exception(error))}", flush=True)
            again = f"--seed {seed}" + (f" --break {options.broken}" if options.broken else "")
            again += "" if options.parts is None else f" --parts {options.parts}"
            print(f"seed {seed} is wrong ({type(error).__name__}); again: python scripts/drills/simulate.py {again}")
            return 1
        crashes += result.crashes
        crashed += result.crashes > 0
        seconds = time.perf_counter() - began
        done = f"{result.epochs} epochs, {result.crashes} crashes, {result.rows} rows equal"
        print(f": {done}, {result.worst:.1e} of their scale at most; {seconds:.1f} s", flush=True)
    print(f"{options.count} seeds, {crashed} of them with {crashes} crashes: all equal to the oracle and to no crash")
    return 0


if __name__ == "__main__":
    sys.exit(main())
