"""The process of a command that was started from Python: `python -m freshet.job.python.child PARENT run --model ...`.

It ends as by SIGTERM when the process PARENT does; a job then stops with a savepoint. PARENT 0: it goes on.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

_POLL_S = 0.25


def follow(parent: int) -> None:
    """Have this process end as by SIGTERM once its parent is another one, from a thread of its own."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_POLL_S)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=look, name="freshet-parent", daemon=True).start()


def main() -> None:
    """Run the command line after the number of the parent."""
    parent, *arguments = sys.argv[1:]
    sys.argv[:] = ["freshet", *arguments]
    if int(parent):
        follow(int(parent))
    from freshet.job.cli import main as command

    command(arguments)


if __name__ == "__main__":
    from freshet.job.machine.processes import run_as_process

    run_as_process(main)
