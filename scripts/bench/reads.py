"""Reads of the mapped table beside a process that writes it as fast as it can, with every row checked.

    .venv/bin/python scripts/bench/reads.py --reads 10000000

Prints one JSON line, and ends with 1 if a row is torn or wrong, or an epoch goes back.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.serving.read_beside import read_beside, writer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reads", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with writer() as path:
        found = read_beside(path, options.reads, options.seed)
    told = found._asdict() | {"load": [round(one, 1) for one in os.getloadavg()]}
    print(orjson.dumps(told).decode())
    return 1 if found.wrong or found.back else 0


if __name__ == "__main__":
    sys.exit(main())
