"""A Flink cluster of several processes on this machine, from the scripts of the installed package."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx

from job.flink_config import free_port
from job.java import prepare_environment

_CONFIG = """jobmanager.rpc.address: 127.0.0.1
jobmanager.rpc.port: {rpc}
jobmanager.bind-host: 127.0.0.1
jobmanager.memory.process.size: 1000m
taskmanager.bind-host: 127.0.0.1
taskmanager.host: 127.0.0.1
taskmanager.numberOfTaskSlots: 1
taskmanager.memory.process.size: 1800m
taskmanager.memory.managed.size: 128m
rest.address: 127.0.0.1
rest.bind-address: 127.0.0.1
rest.port: {rest}
rest.bind-port: {rest}
io.tmp.dirs: {tmp}
env.java.opts.all: {java}
"""


class Cluster:
    """A JobManager and TaskManagers of one slot each; a context manager that leaves no process behind."""

    def __init__(self, folder: Path, task_managers: int, environ: dict[str, str] | None = None) -> None:
        package = find_spec("pyflink")
        assert package is not None
        assert package.origin is not None
        self.home = Path(package.origin).parent
        self.folder, self._count = folder, task_managers
        self.rest = f"127.0.0.1:{free_port()}"
        self.environ = {**os.environ, **(environ or {})}
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        conf, lib = self.folder / "conf", self.folder / "lib"
        for path in (conf, lib, self.folder / "log", self.folder / "tmp"):
            path.mkdir(parents=True)
        port = self.rest.rpartition(":")[2]
        config = _CONFIG.format(rpc=free_port(), rest=port, tmp=self.folder / "tmp", java=self._java_options())
        (conf / "config.yaml").write_text(config)
        for name in ("log4j-console.properties", "log4j-cli.properties", "log4j-session.properties"):
            (conf / name).symlink_to(self.home / "conf" / name)
        # Python operators need this jar beside Flink's own.
        for jar in (*(self.home / "lib").glob("*.jar"), *(self.home / "opt").glob("flink-python*.jar")):
            (lib / jar.name).symlink_to(jar)
        prepare_environment(self.environ)
        self.environ |= {"FLINK_HOME": str(self.home), "FLINK_CONF_DIR": str(conf), "FLINK_LIB_DIR": str(lib)}
        self.environ |= {"FLINK_LOG_DIR": str(self.folder / "log"), "FLINK_PID_DIR": str(self.folder)}
        try:
            self._start("jobmanager.sh")
            for _ in range(self._count):
                self._start("taskmanager.sh")
            self._await_slots()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _java_options(self) -> str:
        """What the package's own configuration opens of Java, without which `flink run` does not start."""
        lines = (self.home / "conf" / "config.yaml").read_text().splitlines()
        return next(line.partition("all:")[2].strip() for line in lines if line.strip().startswith("all: --add"))

    def _start(self, script: str) -> None:
        with (self.folder / "log" / f"{script}-{len(self._processes)}.out").open("wb") as log:
            command = [str(self.home / "bin" / script), "start-foreground"]
            process = subprocess.Popen(command, env=self.environ, stdout=log, stderr=log, start_new_session=True)
        self._processes.append(process)

    def _await_slots(self, timeout_s: float = 60.0) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            assert all(process.poll() is None for process in self._processes), self.logs()
            try:
                if self.get("/overview").get("slots-available") == self._count:  # errors while it starts
                    return
            except httpx.HTTPError:
                pass
            time.sleep(0.1)
        raise AssertionError(self.logs())

    def get(self, path: str) -> Any:
        """An answer of the REST interface."""
        return httpx.get(f"http://{self.rest}/v1{path}", timeout=10, trust_env=False).json()

    def flink_run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """`flink run`, until the job has ended."""
        command = [str(self.home / "bin" / "flink"), "run", "-m", self.rest, *map(str, arguments)]
        return subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=300, check=False)

    def logs(self) -> str:
        """What the processes said."""
        return "\n".join(f"--- {path.name}\n{path.read_text()[-3000:]}" for path in (self.folder / "log").iterdir())
