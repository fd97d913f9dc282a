"""The Flink options of a job, and the memory of its Java processes; nothing is read from a flink-conf."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from freshet.job.errors import UsageError
from freshet.job.flink.job_spec import RESTART_INTERVAL_S, JobSpec
from freshet.job.machine.ports import free_port, server_port
from freshet.job.machine.python_path import own_folders
from freshet.job.options.flink_keys import of_processes
from freshet.state.memory.machine_memory import total_memory

if TYPE_CHECKING:
    from pyflink.datastream import StreamExecutionEnvironment

    from freshet.job.flink.job_spec import JobSpec

# A subtask needs so much of each, whatever its share would be; of the heap less on a small machine.
_HEAP_LEAST_MB, _HEAP_MB, _MANAGED_MB, _NETWORK_MB = 256, 512, 64, 64
_NETWORK_PER_PEER_MB = 8  # 256 KB for each buffer of a channel, in seven stages and more
_NETWORK_LAYERS = 4  # layers that this memory is enough for; Flink reserves buffers of every stage at the start
_CLIENT_HEAP_MB = 1024  # of the process that draws the job, and is its JobManager
DIRECT_MB = 256  # beside the network's buffers: Flink's own, and those of connectors


@dataclass(frozen=True)
class Memory:
    """Memory of one Java process: its heap, the state backend's outside of it, and the buffers of the network."""

    heap_mb: int
    managed_mb: int
    network_mb: int

    @property
    def direct_mb(self) -> int:
        """Memory that Java itself may use outside the heap."""
        return self.network_mb + DIRECT_MB


def client_heap_mb(spec: JobSpec) -> int:
    """The heap of the process that PyFlink talks to: where it does not do the work, it needs little."""
    return min(spec.heap_mb, _CLIENT_HEAP_MB) if spec.starts_task_managers else memory_of_worker(spec).heap_mb


def memory_of_worker(spec: JobSpec, machine_mb: int | None = None) -> Memory:
    """The memory of a process that works: the job's, shared out evenly, but never less than a subtask needs.

    Heaps are made smaller where all of them together would take more than half of the machine, or of the container:
    Python and the tables need the rest.
    Raises: UsageError where the network's buffers alone, which deep models need many of, take more than there is.
    """
    total = machine_mb or total_memory() >> 20
    count, heap, managed, network = 1, spec.heap_mb, spec.managed_mb, spec.network_mb
    if spec.starts_task_managers:
        count = spec.parallelism
        heap, managed = max(heap // count, _HEAP_MB), max(managed // count, _MANAGED_MB)
        deep = -(-spec.layers // _NETWORK_LAYERS)
        network = max(network // count, deep * (_NETWORK_MB + _NETWORK_PER_PEER_MB * count))
        if deep > 1 and network * count > total:
            msg = f"--parallelism {count}: the network buffers of {spec.layers} convs take {network:,} MB for each "
            msg += f"subtask, and this machine has {total:,} MB; give a lower one, or a model with fewer convs"
            raise UsageError(msg)
    half = total // (2 * count)
    return Memory(min(heap, max(half - managed - network, _HEAP_LEAST_MB)), managed, network)


LOOPBACK = "127.0.0.1"
JOB_ID = "$internal.pipeline.job-id"  # by which a client chooses the id of its job
_FRAMEWORK_HEAP_MB = 128  # of Flink itself
_HEARTBEAT_MS = 1000
_MISSED_MS = _HEARTBEAT_MS + 300  # until a process that is gone has been missed


def _python_options() -> dict[str, str]:
    return {
        "python.execution-mode": "thread",
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "python.pythonpath": ":".join(own_folders()),
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
        # A job that stayed has a source that says nothing, but has state; what is missing otherwise is to be noticed.
        options["execution.state-recovery.ignore-unclaimed-state"] = str(spec.has_stayed and not spec.stay).lower()
    return options


def _work_options(spec: JobSpec) -> dict[str, str]:
    """Options of whatever process does the work of an embedded job: the only one, or each TaskManager."""
    memory, slots = memory_of_worker(spec), spec.slots_of_process
    return {
        "taskmanager.numberOfTaskSlots": f"{slots}",
        # Flink divides it among slots, and readers need none.
        "taskmanager.memory.managed.size": f"{memory.managed_mb * slots}m",
        "taskmanager.memory.network.min": f"{memory.network_mb}m",
        "taskmanager.memory.network.max": f"{memory.network_mb}m",
        "taskmanager.memory.segment-size": "256kb",
        "taskmanager.network.memory.buffer-debloat.enabled": "true",
        "taskmanager.network.memory.buffer-debloat.target": "50 ms",
        "io.tmp.dirs": str(spec.tmp),
        # A busy machine is slow to answer; what has died is missed by its connection and its heartbeat.
        "pekko.ask.timeout": "1 min",
        **_loopback_addresses(),
        # Metrics that are asked for are as old at most (in ms); nobody asks by himself.
        "metrics.fetcher.update-interval": "1000",
    }


def _one_process_options(spec: JobSpec) -> dict[str, str]:
    port = str(free_port(spec.rest_port))
    heap = memory_of_worker(spec).heap_mb
    return {
        **_work_options(spec),
        "taskmanager.memory.task.heap.size": f"{max(heap // 2, 128)}m",
        "rest.port": port,
        "rest.bind-port": port,
    }


def _processes_options(spec: JobSpec) -> dict[str, str]:
    heap = memory_of_worker(spec).heap_mb
    return {
        **_work_options(spec),
        **loopback_options(free_port(spec.rest_port)),
        "execution.target": "remote",
        # What Flink's scripts would work out: all of it must be said where they are not used.
        "taskmanager.cpu.cores": "1",
        "taskmanager.memory.framework.heap.size": f"{_FRAMEWORK_HEAP_MB}m",
        "taskmanager.memory.task.heap.size": f"{heap - _FRAMEWORK_HEAP_MB}m",
        "taskmanager.memory.framework.off-heap.size": f"{DIRECT_MB}m",
        "taskmanager.memory.task.off-heap.size": "0",
        "taskmanager.memory.jvm-metaspace.size": "256m",
        "taskmanager.memory.jvm-overhead.min": "192m",
        "taskmanager.memory.jvm-overhead.max": "192m",
        # While a TaskManager is started again, a job that restarts waits for its slot instead of failing once more
        # (Flink takes no more than 248 days).
        "resourcemanager.standalone.start-up-time": "240 d",
        # A TaskManager that died is missed before the job restarts; else it restarts in vain, once or twice.
        # Heartbeats of 300 ms would need less, and take 3% of what four processes stream on two cores.
        "heartbeat.rpc-failure-threshold": "1",
        "restart-strategy.failure-rate.delay": f"{max(spec.restart_delay_ms, _MISSED_MS)} ms",
        # One that we could not take along ends by itself.
        "taskmanager.registration.timeout": "1 min",
        # Each group of operators gets slots of its own by the number of tasks, if it has none by name.
        **({"taskmanager.load-balance.mode": "TASKS"} if spec.shares_slots else {}),
    }


def _loopback_addresses() -> dict[str, str]:
    """No outside address: an embedded cluster talks to itself."""
    return {
        "jobmanager.rpc.address": LOOPBACK,
        "jobmanager.bind-host": LOOPBACK,  # the BlobServer goes by it, too, which asks nobody who he is
        "taskmanager.bind-host": LOOPBACK,
        "taskmanager.host": LOOPBACK,
        "rest.address": LOOPBACK,
        "rest.bind-address": LOOPBACK,
        "web.submit.enable": "false",  # nobody brings a jar
    }


def loopback_options(rest_port: int) -> dict[str, str]:
    """Options of a cluster of processes on this machine, which nobody outside can reach."""
    return {
        **_loopback_addresses(),
        "jobmanager.rpc.port": str(server_port()),
        # A TaskManager misses a killed JobManager only by this (default: 50 s), and then looks for the next one.
        "heartbeat.interval": f"{_HEARTBEAT_MS} ms",
        "heartbeat.timeout": "10 s",
        # TaskManagers find a JobManager that was started again at once, not after 10 s or 30 s.
        "cluster.registration.error-delay": "500 ms",
        "cluster.registration.max-timeout": "2 s",
        "rest.port": str(rest_port),
        "rest.bind-port": str(rest_port),
    }


def job_options(spec: JobSpec) -> dict[str, str]:
    """Return what belongs to the job itself, wherever it runs."""
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
        "restart-strategy.failure-rate.failure-rate-interval": f"{RESTART_INTERVAL_S} s",
        "restart-strategy.failure-rate.delay": f"{spec.restart_delay_ms} ms",
    }
    return options | spec.options | _of_user(spec)


def _of_user(spec: JobSpec) -> dict[str, str]:
    """The user's own, without those that a running cluster would ignore: secrets need not travel there."""
    ignored = of_processes(spec.user_options) if spec.cluster is not None else ()
    return {key: value for key, value in spec.user_options.items() if key not in ignored}


def flink_options(spec: JobSpec) -> dict[str, str]:
    """Return all options of a job as text; those of an embedded cluster only where the job brings its own."""
    if spec.cluster is not None:
        host, _, port = spec.cluster.rpartition(":")
        where = {"execution.target": "remote", "rest.address": host, "rest.port": port}
    elif spec.starts_task_managers:
        where = _processes_options(spec)
    else:
        where = _one_process_options(spec)
    return job_options(spec) | where | spec.options | _of_user(spec)


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
