#!/usr/bin/env python3
"""See tests/drills/flight_fuzz.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts._environment import enter

enter()

from freshet.job.dev.script import run_script  # noqa: E402
from tests.drills.flight_fuzz_command import app  # noqa: E402

if __name__ == "__main__":  # the server's process imports this module, too
    run_script(app, "fuzz_flight")
