"""What a Java process of Flink inherits."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from freshet.job.flink import java_command
from freshet.job.flink.java_command import tie_to_parent
from freshet.job.machine.java import find_java_home, java_options_of_flink
from freshet.job.machine.processes import STOPS

# As in a TaskManager: Python is there, and polars, which sets a handler of SIGINT when it is imported.
_WRITES = """
import os, signal, sys, threading
import polars
def write():
    for number in range(200):
        polars.DataFrame({"a": range(1000)}).write_parquet(sys.argv[1])
        if number == 10:
            print("writing", flush=True)
    print("done", flush=True)
thread = threading.Thread(target=write)
thread.start()
thread.join()
"""


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_of_the_terminal_ends_no_write(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _WRITES, str(tmp_path / "file.parquet")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=tie_to_parent)
    assert process.stdout is not None
    assert process.stdout.readline() == b"writing\n"
    for _ in range(20):
        process.send_signal(number)
    said, errors = process.communicate(timeout=600)
    assert (process.returncode, said) == (0, b"done\n"), errors.decode()


def test_flink_has_a_minute_to_come_up() -> None:
    """A busy machine may need more than the ten seconds of Flink's actors; JVM_ARGS still wins."""
    option = "-Dpekko.remote.classic.startup-timeout="
    environ = {"JAVA_HOME": str(find_java_home()), "JVM_ARGS": f"{option}5m"}
    assert [one for one in java_command.java_and_memory(environ, 512) if one.startswith(option)] == [
        f"{option}60s",
        f"{option}5m",
    ]
    assert f"{option}60s" in java_options_of_flink(), "of clusters and of the manifests of Kubernetes, too"
