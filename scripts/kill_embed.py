#!/usr/bin/env python3
"""See tests/drills/embed_kills.py."""

import sys

from _environment import ROOT, enter

enter()
sys.path.insert(0, str(ROOT))

from freshet.job.dev.script import run_script  # noqa: E402
from tests.drills.embed_kills_command import app  # noqa: E402

run_script(app, "kill_embed.py")
