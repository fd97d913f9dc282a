"""Archives of the classes of Flink and Kafka (Java's class data sharing) for jobs, clusters and brokers of a test run.

A Java process of Flink reads and verifies some 10,000 classes when it starts, for a sixth of its processor time in a
test; a broker, for half of it. The first ones of a run list theirs; beside the tests an archive is made of these lists,
and later ones map it. Jobs, clusters and brokers have other class paths, and so an archive each. Java goes on without
one that does not fit.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from freshet.job.dev import broker, local_cluster
from freshet.job.machine.java import find_java_home, flink_home
from tests.support.flink.scripts_java import java_home_of_scripts

FOLDER_VARIABLE = "FRESHET_TESTS_CLASSES"
_OPTIONS_VARIABLE = "JVM_ARGS"
_JOB, _CLUSTER, _BROKER = "job", "cluster", "broker"
# The garbage collector; and the bytes of a whole list: a process that a test has killed early has written less.
_KINDS = {
    _JOB: ("-XX:+UseG1GC", 800_000),
    _CLUSTER: ("-XX:+UseG1GC", 800_000),
    _BROKER: ("-XX:+UseSerialGC", 500_000),
}
_LOOK_S = 0.5


def use_archives() -> None:
    """Have all that starts from here on use the archives that there are, or list classes for them."""
    os.environ[_OPTIONS_VARIABLE] = _options(_JOB)
    broker.JAVA_OPTIONS = (*_PLAIN_OPTIONS, _options(_BROKER))
    if local_cluster.make_folders is not _make_folders:
        local_cluster.make_folders = _make_folders


def _options(kind: str) -> str:
    folder = Path(os.environ[FOLDER_VARIABLE])
    archive = folder / f"{kind}.jsa"
    if archive.exists():
        return f"-XX:SharedArchiveFile={archive}"
    return f"-XX:DumpLoadedClassList={folder / f'{kind}-%p.list'}"


_PLAIN_OPTIONS = broker.JAVA_OPTIONS
_make_plain_folders = local_cluster.make_folders


def _make_folders(folder: Path, options: Mapping[str, str]) -> dict[str, str]:
    java = java_home_of_scripts(find_java_home(), Path(os.environ[FOLDER_VARIABLE]))
    return _make_plain_folders(folder, options) | {_OPTIONS_VARIABLE: _options(_CLUSTER), "JAVA_HOME": str(java)}


class ArchiveMaker:
    """Makes the archives beside the tests, as soon as there are lists for them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._commands: dict[Path, list[str]] = {}  # of the processes that write the lists
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Return when nothing is made any more."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_S):
            for kind in _KINDS:
                if not (self._folder / f"{kind}.jsa").exists():
                    self._look(kind)

    def _look(self, kind: str) -> None:
        for path in self._folder.glob(f"{kind}-*.list"):
            pid = path.stem.rpartition("-")[2].removeprefix("pid")
            try:
                command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            except OSError:
                command = []
            # A cluster that a script has started has the options of a job, and not its class path.
            if class_path := _class_path_in(command):
                if kind == _BROKER or class_path.startswith(str(flink_home())) == (kind == _JOB):
                    self._commands[path] = command
            elif path in self._commands and path.stat().st_size > _KINDS[kind][1]:  # the process has ended
                self._make(kind, self._commands[path])
                return

    def _make(self, kind: str, command: list[str]) -> None:
        """Make an archive of the classes of all lists, for the class path of this command."""
        lists = [path for path in self._commands if path.name.startswith(kind)]
        lines = {line.partition(" id: ")[0] for path in lists for line in path.read_text().splitlines()}
        names = sorted(line for line in lines if line[:1] not in ("#", "@"))
        lambdas = sorted(line for line in lines if line[:1] == "@")  # of the classes before them
        classes, made = self._folder / f"{kind}.classes", self._folder / f"{kind}.made"
        classes.write_text("".join(f"{line}\n" for line in (*names, *lambdas)))
        options = [_KINDS[kind][0], f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={made}"]
        dump = [command[0], "-Xshare:dump", *options, "-cp", _class_path_in(command)]
        with subprocess.Popen(dump, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None:
                if self._ended.wait(_LOOK_S):
                    process.kill()
        if process.returncode == 0:
            made.rename(self._folder / f"{kind}.jsa")


def _class_path_in(command: list[str]) -> str:
    return next((after for word, after in pairwise(command) if word in ("-cp", "-classpath")), "")
