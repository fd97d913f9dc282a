"""Memory of the Java processes of an embedded job: one for all, or a TaskManager for each subtask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freshet.job.errors import UsageError
from freshet.state.memory.machine_memory import total_memory

if TYPE_CHECKING:
    from freshet.job.flink.job_spec import JobSpec

# A subtask needs so much of each, whatever its share would be; of the heap less on a small machine.
_HEAP_LEAST_MB, _HEAP_MB, _MANAGED_MB, _NETWORK_MB = 256, 512, 64, 64
_NETWORK_PER_PEER_MB = 8  # 256 KB for each buffer of a channel, in seven stages and more
_NETWORK_LAYERS = 4  # both of up to so many layers; Flink asks for buffers of every stage before it begins
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
