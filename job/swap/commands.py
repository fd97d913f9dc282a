"""Commands of `freshet` that a swap gives, each in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from freshet.job.errors import JobFailed
from freshet.job.machine.processes import die_with_parent

_LINES = 20  # of a log that are shown
_PROGRAM = sys.executable, "-m", "freshet.job.cli"


class SwapFailed(JobFailed):
    """The new job can't take the place; the one before serves on."""


class Commands:
    """Commands of the program that is given, by default the one that runs."""

    def __init__(self, program: Sequence[str] = _PROGRAM) -> None:
        self._program = program

    def do(self, *arguments: str) -> None:
        """Have a command done; it ends with this process, also where that is killed.

        Raises: SwapFailed where it fails.
        """
        self._run(arguments, subprocess.DEVNULL)

    def show(self, *arguments: str) -> None:
        """Have a command done that writes on stdout.

        Raises: SwapFailed where it fails.
        """
        self._run(arguments, None)

    def _run(self, arguments: Sequence[str], stdout: int | None) -> None:
        done = subprocess.run(
            [*self._program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            check=False,
            preexec_fn=die_with_parent,
        )
        if done.returncode:
            msg = f"freshet {' '.join(arguments)}: it ended with {done.returncode}; see above"
            raise SwapFailed(msg)

    def begin(self, log: Path, *arguments: str) -> subprocess.Popen[bytes]:
        """Begin a command that goes on without this process; its output goes to a log."""
        with log.open("ab") as file:
            return subprocess.Popen(
                [*self._program, *arguments], stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )

    def shown(self, log: Path) -> str:
        """Show the end of a log on stderr; returns its last line."""
        lines = log.read_text(errors="replace").splitlines()[-_LINES:] if log.exists() else []
        for line in lines:
            print(line, file=sys.stderr)
        return lines[-1] if lines else "it has said nothing"
