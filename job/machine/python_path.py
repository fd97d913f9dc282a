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
PACKAGE = Path(next(iter(sys.modules[__name__.partition(".")[0]].__path__)))
_AGAIN = "pip uninstall freshet-client freshet-gnn, then install freshet-gnn alone, which has the clients, too"


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


def mixed_files(package: Path = PACKAGE) -> str:
    """Describe inconsistent files of the package, and what to do; empty if all are of one version.

    Both distributions have the package `freshet`, and freshet-gnn has all files of freshet-client. Of one version they
    are the same to the byte and may be installed beside each other. Of two versions the later one has overwritten some
    files of the other, and whichever is removed takes the common ones along.
    """
    if not package.is_dir():
        return f"{package}: is in an archive, and Java and the kernels need files; install the wheel of freshet-gnn"
    if not (package / "__init__.py").exists():
        return f"{package}: files are missing, as freshet-client, which had them in common, was removed; {_AGAIN}"
    found = [one.removesuffix(".dist-info") for one in os.listdir(package.parent) if one.endswith(".dist-info")]
    versions = {one.partition("-")[2] for one in found if one.startswith(("freshet_gnn-", "freshet_client-"))}
    if len(versions) < 2:
        return ""
    return f"{package}: files of {' and '.join(sorted(versions))}, by freshet-gnn and freshet-client; {_AGAIN}"
