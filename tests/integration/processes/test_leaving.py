"""Tests of freshet.job.machine.processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A library whose destructor aborts, as one of Arrow's does now and then.
_PROGRAM = """
import atexit, ctypes, sys
from freshet.job.machine.processes import run_as_process
libc = ctypes.CDLL(None)
libc.on_exit(libc.abort, None)
def main():
    atexit.register(print, "tidied")
    {end}
run_as_process(main)
"""


@pytest.mark.parametrize(
    ("end", "code", "said"),
    [
        ("return None", 0, ""),
        ("return 3", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(2)", 2, ""),
        ("sys.exit('a reason')", 1, "a reason"),
        ("raise ValueError('broken')", 1, "ValueError: broken"),
        ("sys.stdout.close()", 120, ""),
    ],
)
def test_a_process_ends_with_its_code_without_destructors(end: str, code: int, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM.format(end=end)], capture_output=True, text=True, timeout=600)
    assert done.returncode == code
    assert said in done.stderr
    assert ("tidied" in done.stdout) == (code != 120)
