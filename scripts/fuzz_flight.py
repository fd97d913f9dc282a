#!/usr/bin/env python3
"""See tests/drills/flight_fuzz.py."""

import sys

from _environment import ROOT, enter

enter()
sys.path.insert(0, str(ROOT))

from freshet.job.dev.script import run_script  # noqa: E402
from tests.drills.flight_fuzz_command import app  # noqa: E402

if __name__ == "__main__":  # the server's process imports this module, too
    run_script(app, "fuzz_flight")
