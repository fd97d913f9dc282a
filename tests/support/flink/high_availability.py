"""A Flink application whose JobManager has high availability, by a ZooKeeper on this machine."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from freshet.job.dev.local_cluster import LocalCluster
from freshet.job.machine.artifacts import Artifact, fetch
from freshet.job.machine.java import flink_home, prepare_environment
from freshet.job.machine.ports import server_port
from freshet.job.machine.processes import die_with_parent

ZOOKEEPER = Artifact(
    "org.apache.flink:flink-shaded-zookeeper-3:3.8.4-20.0",
    "a3f0c509bf4211ea30aaf284164eaeb55e8572c87aa219c11795de4c9d1aba23",
)
_SERVER = "org.apache.flink.runtime.zookeeper.FlinkZooKeeperQuorumPeer"
_START_S = 300.0


@contextmanager
def zookeeper(folder: Path) -> Iterator[tuple[str, Path]]:
    """A ZooKeeper of one server; yields its address, and the jar that Flink needs for it."""
    folder.mkdir(parents=True)
    port, [jar] = server_port(0), fetch([ZOOKEEPER])
    settings = {"dataDir": folder / "data", "clientPort": port, "clientPortAddress": "127.0.0.1", "tickTime": 500}
    settings |= {"initLimit": 10, "syncLimit": 5, "server.1": "127.0.0.1:2888:3888", "admin.enableServer": "false"}
    (folder / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    environ = dict(os.environ)
    prepare_environment(environ)
    path = ":".join(map(str, [*(flink_home() / "lib").glob("*.jar"), jar]))
    java = Path(environ["JAVA_HOME"]) / "bin" / "java"
    command = [str(java), "-Xmx128m", "-cp", path, _SERVER, "--zkConfigFile", str(folder / "zoo.cfg"), "--peerId", "1"]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, env=environ, stdout=log, stderr=log, preexec_fn=die_with_parent)
    try:
        await_true(lambda: _listens(port), _START_S, f"ZooKeeper at {port}")
        yield f"127.0.0.1:{port}", jar
    finally:
        server.kill()
        server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def await_true(holds: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Wait until something holds; fail past the deadline."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            msg = f"{what}: not within {timeout_s:.0f} s"
            raise TimeoutError(msg)
        time.sleep(0.2)


def application(
    folder: Path, root: Path, options: dict[str, Any], quorum: str | None = None, jars: tuple[Path, ...] = ()
) -> LocalCluster:
    """Return a cluster, not started, that runs a job as its application; `options` are those of `freshet run`."""
    port = server_port(0)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.yaml").write_text(yaml.safe_dump({**options, "cluster": f"127.0.0.1:{port}"}))
    available = {
        "high-availability.type": "zookeeper",
        "high-availability.zookeeper.quorum": quorum,
        "high-availability.zookeeper.client.session-timeout": "6 s",
        "high-availability.storageDir": f"file://{folder / 'ha'}",
        "high-availability.cluster-id": "/freshet",
    }
    program = [str(root / "job" / "main.py"), "--config", str(folder / "job.yaml")]
    own = {key: value for key, value in available.items() if value is not None} if quorum else {}
    return LocalCluster(folder / "cluster", 1, options=own, port=port, program=program, jars=jars)


def write_events(path: Path, vertices: int, edges: int, width: int, seed: int) -> None:
    """Write a random graph as events."""
    rng = random.Random(seed)
    lines = [{"op": "add_vertex", "id": i, "x": [rng.randrange(8) for _ in range(width)]} for i in range(vertices)]
    lines += [{"op": "add_edge", "src": rng.randrange(vertices), "dst": rng.randrange(vertices)} for _ in range(edges)]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def run_file(out: Path) -> dict[str, Any]:
    """Return `run.json`; nothing before it is there."""
    try:
        return json.loads((out / "run.json").read_text())
    except FileNotFoundError:
        return {}
