"""How much memory the Java processes of an embedded job get: one that does all, or a TaskManager for each subtask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from job.flink.job_spec import JobSpec

# A subtask needs so much of each, whatever its share would be; of the heap less on a small machine.
_HEAP_LEAST_MB, _HEAP_MB, _MANAGED_MB, _NETWORK_MB = 256, 512, 64, 64
_NETWORK_PER_PEER_MB = 8  # 256 KB for each buffer of a channel, in seven stages and more
_NETWORK_LAYERS = 4  # both of up to so many layers; Flink asks for buffers of every stage before it begins
_CLIENT_HEAP_MB = 1024  # of the process that draws the job, and is its JobManager
DIRECT_MB = 256  # beside the network's buffers: Flink's own, and those of connectors


@dataclass(frozen=True)
class Memory:
    """Of one Java process: its heap, what the state backend takes outside of it, and the buffers of the network."""

    heap_mb: int
    managed_mb: int
    network_mb: int

    @property
    def direct_mb(self) -> int:
        """How much Java itself may take outside the heap."""
        return self.network_mb + DIRECT_MB


def client_heap_mb(spec: JobSpec) -> int:
    """The heap of the process that PyFlink talks to: where it does not do the work, it needs little."""
    return min(spec.heap_mb, _CLIENT_HEAP_MB) if spec.starts_task_managers else spec.heap_mb


def memory_of_worker(spec: JobSpec, machine_mb: int | None = None) -> Memory:
    """The memory of a process that works: the job's, shared out evenly, but never less than a subtask needs.

    Heaps are made smaller where all of them together would take more than half of the machine: Python and the tables
    need the rest.
    """
    if not spec.starts_task_managers:
        return Memory(spec.heap_mb, spec.managed_mb, spec.network_mb)
    count = spec.parallelism
    managed = max(spec.managed_mb // count, _MANAGED_MB)
    deep = -(-spec.layers // _NETWORK_LAYERS)
    network = max(spec.network_mb // count, deep * (_NETWORK_MB + _NETWORK_PER_PEER_MB * count))
    half = (machine_mb or psutil.virtual_memory().total >> 20) // (2 * count)
    heap = min(max(spec.heap_mb // count, _HEAP_MB), max(half - managed - network, _HEAP_LEAST_MB))
    return Memory(heap, managed, network)
