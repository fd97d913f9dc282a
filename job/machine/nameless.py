"""A name for a user whose id has none on this machine, as in OpenShift, where each namespace has ids of its own.

Hadoop, which Flink's plugin for S3 contains, asks Java for the user's name, and Java asks the machine. A class of ours
stands in for that one of Java's. It is compiled by the compiler that Flink has for generated code, once per cache.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from freshet.files.listing import paths_in
from freshet.job.console import say
from freshet.kernels.user_cache import make_cache, user_cache

JAVA_OPTIONS = "JDK_JAVA_OPTIONS"  # what every Java process takes from the environment
PATCH = "--patch-module=jdk.security.auth="
_SOURCE = Path(__file__).with_name("UnixSystem.java")
_WRITER = Path(__file__).with_name("WriteClasses.java")
_CLASS = "com/sun/security/auth/module/UnixSystem.class"
_COMPILE_S = 60.0


def has_name() -> bool:
    """Return whether the machine has a name for this process's user."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return True


def java_options(java_home: Path, flink_home: Path, environ: Mapping[str, str]) -> str:
    """Return the options by which Java takes the id for the name, as in JAVA_OPTIONS; empty where they can't be had."""
    try:
        folder = _compiled(java_home, flink_home, environ)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        say(
            f"user id {os.getuid()} has no name here, and S3 in Flink needs one: {said[-1] if said else error}",
            "warning",
        )
        return ""
    user, group = os.getuid(), os.getgid()
    return shlex.join(
        [f"{PATCH}{folder}", f"-Duser.name=uid-{user}", f"-Dfreshet.uid={user}", f"-Dfreshet.gid={group}"]
    )


def _compiled(java_home: Path, flink_home: Path, environ: Mapping[str, str]) -> Path:
    folder = user_cache().absolute() / "java" / hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    if (folder / _CLASS).is_file():
        return folder
    make_cache(folder.parent)
    with tempfile.TemporaryDirectory(dir=folder.parent) as aside:
        path = os.pathsep.join(map(str, paths_in(flink_home / "lib", "*.jar")))
        main = ["org.codehaus.janino.SimpleCompiler", str(_WRITER), _WRITER.stem, str(_SOURCE), aside]
        command = [str(java_home / "bin" / "java"), "-cp", path, *main]
        subprocess.run(command, env=environ, check=True, capture_output=True, text=True, timeout=_COMPILE_S)
        target = folder / _CLASS
        make_cache(target.parent)
        os.replace(Path(aside) / _CLASS, target)
    return folder
