"""Python of jobs and commands in processes of their own, without packages that they import and never use.

The whole of it runs where a test gives another PYTHONPATH: the job of `elsewhere.other_flink` and the wheels.
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).with_name("light")
_VARIABLE = "PYTHONPATH"


def use_light_python() -> None:
    """Have all that starts from here on leave out what `light/sitecustomize.py` says."""
    os.environ[_VARIABLE] = python_path(*filter(None, os.environ.get(_VARIABLE, "").split(os.pathsep)))


def python_path(*folders: str | Path) -> str:
    """PYTHONPATH of these folders for light Python."""
    return os.pathsep.join(dict.fromkeys([*map(str, folders), str(FOLDER)]))
