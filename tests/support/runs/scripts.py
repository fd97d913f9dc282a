"""Scripts of the checkout that start servers, run as a user does."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def run_script(name: str, *arguments: object, state: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """The script's result; what it remembers of its servers stands in the folder `state`. `environ`: more variables."""
    command = [str(ROOT / "scripts" / name), *map(str, arguments)]
    env = os.environ | {"XDG_STATE_HOME": str(state)} | environ
    return subprocess.run(command, env=env, cwd=state, capture_output=True, text=True, timeout=600, check=False)
