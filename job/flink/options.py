"""The Flink options of a job: everything that a run needs is set here, nothing is read from a flink-conf."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from job.flink.job_spec import JobSpec
from job.machine.ports import free_port

if TYPE_CHECKING:
    from pyflink.datastream import StreamExecutionEnvironment

RESTART_INTERVAL = "10 min"


def python_path() -> str:
    """Return the folders that the Python inside the Java process must search: site-packages and our own checkout."""
    root = str(Path(__file__).resolve().parents[2])
    folders = [root, sysconfig.get_paths()["purelib"], sysconfig.get_paths()["platlib"]]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    return ":".join(dict.fromkeys(folders))


def _python_options() -> dict[str, str]:
    return {
        "python.execution-mode": "thread",
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.pythonpath": python_path(),
    }


def _checkpoint_options(spec: JobSpec) -> dict[str, str]:
    options = {
        "execution.checkpointing.dir": spec.checkpoint_uri,
        "execution.checkpointing.savepoint-dir": spec.savepoint_uri,
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        # At an aligned barrier every operator stands at the same epoch with an empty inbox: state relies on it.
        "execution.checkpointing.unaligned.enabled": "false",
        "execution.checkpointing.max-concurrent-checkpoints": "1",
        "execution.checkpointing.timeout": "10 min",
        "execution.checkpointing.tolerable-failed-checkpoints": "3",
        "execution.checkpointing.num-retained": str(spec.checkpoints_retained),
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "execution.checkpointing.incremental": "true",
        "state.backend.type": spec.state_backend,
        "state.backend.rocksdb.timer-service.factory": "HEAP",
    }
    if spec.checkpoint_interval_ms:
        options["execution.checkpointing.interval"] = f"{spec.checkpoint_interval_ms} ms"
        options["execution.checkpointing.min-pause"] = f"{min(spec.checkpoint_interval_ms // 2, 1000)} ms"
    if spec.resume:
        options["execution.state-recovery.path"] = spec.resume
        options["execution.state-recovery.claim-mode"] = "NO_CLAIM"
    return options


def _memory_options(spec: JobSpec) -> dict[str, str]:
    return {
        "taskmanager.numberOfTaskSlots": str(spec.parallelism),
        "taskmanager.memory.task.heap.size": f"{max(spec.heap_mb // 2, 128)}m",
        "taskmanager.memory.managed.size": f"{spec.managed_mb}m",
        "taskmanager.memory.network.min": f"{spec.network_mb}m",
        "taskmanager.memory.network.max": f"{spec.network_mb}m",
        "taskmanager.memory.segment-size": "256kb",
        "taskmanager.network.memory.buffer-debloat.enabled": "true",
        "taskmanager.network.memory.buffer-debloat.target": "50 ms",
        "io.tmp.dirs": str(spec.tmp),
        # No outside address: the embedded cluster talks to itself.
        "rest.bind-address": "127.0.0.1",
        "rest.address": "127.0.0.1",
        # Metrics that are asked for are as old at most (in ms); nobody asks by himself.
        "metrics.fetcher.update-interval": "1000",
    }


def flink_options(spec: JobSpec) -> dict[str, str]:
    """Return all options of a job as text; those of an embedded cluster only where the job brings its own."""
    options = {
        **_python_options(),
        **_checkpoint_options(spec),
        "pipeline.name": spec.name,
        "pipeline.max-parallelism": str(spec.max_parallelism),
        "pipeline.object-reuse": "true",
        "parallelism.default": str(spec.parallelism),
        "execution.buffer-timeout.interval": "0 ms",
        # Flink counts failures and gives up at the last of them.
        "restart-strategy.type": "failure-rate" if spec.restarts else "none",
        "restart-strategy.failure-rate.max-failures-per-interval": str(spec.restarts + 1),
        "restart-strategy.failure-rate.failure-rate-interval": RESTART_INTERVAL,
        "restart-strategy.failure-rate.delay": f"{spec.restart_delay_ms} ms",
    }
    if spec.cluster is None:
        port = str(free_port(spec.rest_port))
        options |= {**_memory_options(spec), "rest.port": port, "rest.bind-port": port}
    else:
        host, _, port = spec.cluster.rpartition(":")
        options |= {"execution.target": "remote", "rest.address": host, "rest.port": port}
    return options | spec.options


def environment(options: dict[str, str]) -> StreamExecutionEnvironment:
    """Return PyFlink's environment with these options; needs the gateway.

    PyFlink's own factory gives an embedded one whatever the target is, except inside `flink run`.
    """
    from pyflink.common import Configuration
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.java_gateway import get_gateway

    # Else PyFlink starts a server for workers in processes of their own, and loads Beam for it: a second of a start.
    os.environ.setdefault("_python_worker_execution_mode", "process")
    config = Configuration()
    for key, value in options.items():
        config.set_string(key, value)
    if options.get("execution.target") != "remote":
        return StreamExecutionEnvironment.get_execution_environment(config)
    java = get_gateway().jvm.org.apache.flink.streaming.api.environment.StreamExecutionEnvironment
    return StreamExecutionEnvironment(java(config._j_configuration))
