"""Parses drawn lines of JSON by columns and one by one: `scripts/drills/json_lines.py --lines 2000000 --seed 0`.

Good lines, and good ones with bytes changed, fields dropped, doubled and retyped, as files and as messages, for models
with and without edge types, with maps of events, and for jobs whose edges have keys, or not, or may. Ends with 1 at the
first seed whose events, letters or reasons differ.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.malformed.json_lines import compare


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=100_000, help="how many lines at least (default: 100,000)")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    options = parser.parse_args()
    began, lines, seed = time.perf_counter(), 0, options.seed
    while lines < options.lines:
        try:
            lines += compare(seed)
        except AssertionError as error:
            print(f"seed {seed} differs: {error}", file=sys.stderr)
            return 1
        seed += 1
    print(f"{lines:,} lines of {seed - options.seed:,} seeds: the same both ways ({time.perf_counter() - began:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
