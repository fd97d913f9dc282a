#!/usr/bin/env python3
"""See tests/drills/pause.py."""

import sys

from _environment import ROOT, enter

enter()
sys.path.insert(0, str(ROOT))

from freshet.job.dev.script import run_script  # noqa: E402
from tests.drills.pause_command import app  # noqa: E402

run_script(app, "pause_sink.py")
