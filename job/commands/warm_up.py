"""The options of `freshet warm-up`; what it does is in `job.machine.kernels`."""

from __future__ import annotations

import json

import typer


def warm_up() -> None:
    """Compile all kernels for this machine, so that jobs start at once.

    Kernels are compiled once per machine and version of Freshet, in several processes, into the checkout's __pycache__
    folders, or into ~/.cache/freshet/kernels if those are not writable. FRESHET_CACHE replaces ~/.cache/freshet, and
    NUMBA_CACHE_DIR names a folder for kernels alone. `make install` and the build of the container image run this
    command, and `freshet run` compiles missing kernels. Existing ones are not compiled again. Prints a JSON line
    (kernels, compiled, seconds, folder).

    [bold]Example[/bold]

    [cyan]freshet warm-up [/cyan]
    """
    from freshet.job.console import ProgressDisplay
    from freshet.job.machine.kernels import compile_ahead, progress_line

    with ProgressDisplay() as bar:
        done = compile_ahead(lambda count, total: bar.update(progress_line(count, total)))
    folder = None if done.folder is None else str(done.folder)
    typer.echo(json.dumps(done._asdict() | {"seconds": round(done.seconds, 1), "folder": folder}))
