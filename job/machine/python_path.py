"""Locations of our packages and of those they need, whatever `PYTHONPATH` is."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

_VARIABLE = "PYTHONPATH"
_PACKAGE = __name__.partition(".")[0]


def own_folders() -> list[str]:
    """Return the folder of our package, and those of the packages installed beside it."""
    paths = sysconfig.get_paths()
    folders = [str(Path(str(sys.modules[_PACKAGE].__file__)).resolve().parents[1]), paths["purelib"], paths["platlib"]]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return list(dict.fromkeys(folders))


def python_environ(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment in which Python finds the packages where this process has them.

    What `PYTHONPATH` names comes after them: there may lie a Flink, a Spark or a numpy of another version.
    """
    env = dict(os.environ if environ is None else environ)
    given = filter(None, env.get(_VARIABLE, "").split(os.pathsep))
    return env | {_VARIABLE: os.pathsep.join(dict.fromkeys([*own_folders(), *given]))}


def given_folders() -> set[str]:
    """The folders of `sys.path` that are there by `PYTHONPATH` alone."""
    given = map(os.path.abspath, filter(None, os.environ.get(_VARIABLE, "").split(os.pathsep)))
    return set(given).difference(own_folders())
