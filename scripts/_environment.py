"""Lets a script that has no suffix be started by any Python: it goes on in the checkout's .venv."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def enter() -> None:
    """Return if this Python has Freshet's packages; otherwise restart the script with one that has them.

    Raises: SystemExit (2) when there is none.
    """
    python = ROOT / ".venv" / "bin" / "python"
    if Path(sys.prefix).resolve() == python.parent.parent.resolve():
        from freshet.job.machine.python_path import given_folders

        sys.path.append(str(ROOT))
        sys.path.sort(key=given_folders().__contains__)
        return
    if python.exists():
        os.execv(python, [str(python), *sys.argv])
    try:
        import typer  # noqa: F401

        import freshet.job  # noqa: F401
    except ImportError:
        sys.exit(f"{Path(sys.argv[0]).name}: no {python}; run make install")
