#!/usr/bin/env python3
"""See tests/drills/swaps.py."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts._environment import enter

enter()

from freshet.job.dev.script import run_script  # noqa: E402
from tests.drills.swaps_command import app  # noqa: E402

run_script(app, "swap_models.py")
