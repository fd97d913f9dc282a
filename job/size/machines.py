"""Memory, messages and processor time of each machine of a job, and the limits that are met first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from freshet.job.errors import UsageError
from freshet.job.flink.pipeline import SUBTASKS_MAX, OperatorGroups, pipeline_of
from freshet.job.size.estimate import PROCESS_BYTES, ROWS_BYTES
from freshet.job.size.miniature import GraphSize, OperatorBytes
from freshet.job.size.traffic import Link, MeasuredJob
from freshet.job.units import parse_size
from freshet.operators.dataflow import PARTITIONER, SINK, Place
from freshet.operators.inbox import INBOX_BYTES

PARTS_MAX = 1024
ROWS_MAX = 2**31  # of a table of the Partitioner, whose rows are numbered in int32
INTERVALS = 2  # of events between two checkpoints, which a restore replays at most
KEPT = 2  # checkpoints


@dataclass(frozen=True)
class Rates:
    """Rates of the input and of machines. Units: events_per_s 1/s; disk, network (of a machine) bytes/s."""

    events_per_s: float = 1000.0
    epoch_events: int = 1000
    disk: float = 500e6
    network: float = 1.25e9
    checkpoint_s: float = 10.0


def rates_of(
    machines: int | None,
    *,
    events_per_s: float | None = None,
    disk: str | None = None,
    network: str | None = None,
    replicas: float | None = None,
    pipeline: int | None = None,
) -> Rates:
    """Return the rates that the options of these names say.

    Raises: UsageError for a value out of range, and for one that needs --machines without it.
    """
    given: dict[str, object] = {"events-per-s": events_per_s, "disk": disk, "network": network}
    given |= {"replicas": replicas, "pipeline": pipeline}
    for name, value in given.items():
        if value is not None and machines is None:
            msg = f"--{name} {value}: it counts with --machines alone; give --machines N, or leave it out"
            raise UsageError(msg)
    if events_per_s is not None and not 0 < events_per_s < float("inf"):
        msg = f"--events-per-s {events_per_s}: expected a number greater than 0"
        raise UsageError(msg)
    if replicas is not None and not 1 <= replicas < float("inf"):
        msg = f"--replicas {replicas}: expected a number from 1 on"
        raise UsageError(msg)
    found = Rates() if events_per_s is None else Rates(events_per_s)
    disk_bytes, network_bytes = _size("disk", disk), _size("network", network)
    return replace(found, disk=disk_bytes or found.disk, network=network_bytes or found.network)


def _size(option: str, text: str | None) -> int | None:
    try:
        return None if text is None else parse_size(text)
    except ValueError as error:
        msg = f"--{option}: {error}"
        raise UsageError(msg) from error


class Limit(NamedTuple):
    """Something that a job can use up: `share` is the used share, and `met_at` events/s, vertices or edges."""

    name: str
    share: float
    met_at: float
    unit: str


@dataclass(frozen=True)
class Machine:
    """One machine, with a process of the job. Units: bytes; bytes/s; `cores` of processor time."""

    operators: list[str]
    memory: int
    state: int
    sends: float
    receives: float
    cores: float


@dataclass(frozen=True)
class Cluster:
    """A job on several machines, `groups` of which share the layers.

    `held` is the memory of each operator, `sent` what it sends, within a machine and beyond, and `links` what goes
    between machines; `operators` is processor time. Units: bytes, bytes/s, seconds; cores.
    """

    groups: int
    tasks: int
    parts: int
    replicas: float
    machines: list[Machine]
    held: dict[str, int]
    sent: dict[str, float]
    links: dict[str, float]
    operators: dict[str, float]
    checkpoint: int
    checkpoint_s: float
    disk: int
    recovery_s: float
    limits: list[Limit]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"limits": [one._asdict() for one in self.limits]}


def division(machines: int, layers: int, parts: int, pipeline: int | None = None) -> tuple[int, int]:
    """Return the number of groups that share the layers, and of tasks of each layer, with one process a machine.

    `parts` 0: as many as a layer then has tasks. `pipeline`: the number of groups; None: the most that fit.

    Raises: UsageError for a number of machines, or of parts, that no job has.
    """
    if machines < 1:
        msg = f"--machines {machines}: expected a whole number from 1 on"
        raise UsageError(msg)
    if pipeline is not None and pipeline < 1:
        msg = f"--pipeline {pipeline}: expected a whole number from 1 on"
        raise UsageError(msg)
    groups = pipeline_of(machines, pipeline, layers, parts or machines)
    tasks = machines // groups
    if tasks > min(PARTS_MAX, SUBTASKS_MAX):
        msg = f"--machines {machines}: each layer would have {tasks} subtasks, expected at most {SUBTASKS_MAX}"
        raise UsageError(msg)
    if parts and tasks > parts:
        msg = (
            f"--machines {machines}: each layer would have {tasks} subtasks; give --parts {tasks} or more, got {parts}"
        )
        raise UsageError(msg)
    return groups, tasks


def with_replicas(found: MeasuredJob, sole: dict[str, OperatorBytes], replicas: float) -> MeasuredJob:
    """Return the traffic and memory of a graph whose vertices have that many rows, as the placer has found.

    `sole` is what operators hold with one part. What several parts add to it, and rows that go to other tasks, are
    proportional to the rows beside a vertex's first.
    """
    more = (replicas - 1) / (found.replicas - 1) if found.replicas > 1 else 1.0
    sums: dict[str, float] = defaultdict(float)
    for place, held in found.held.items():
        sums[place.operator] += held.memory
    scaled = {}
    for place, held in found.held.items():
        one = sole.get(place.operator)
        share = (
            more
            if one is None
            else (one.memory + max(0.0, sums[place.operator] - one.memory) * more) / sums[place.operator]
        )
        scaled[place] = OperatorBytes(held.memory * share, held.state * share)
    event = {link: size * (more if _between_replicas(link) else 1.0) for link, size in found.event.items()}
    return MeasuredJob(scaled, event, found.epoch, found.event_s, found.epoch_s, replicas)


def cluster_of(found: MeasuredJob, shape: GraphSize, layers: int, groups: int, tasks: int, rates: Rates) -> Cluster:
    """Return what the machines of a job take: machine `group * tasks + k` has task k of the group's operators."""
    epochs = rates.events_per_s / rates.epoch_events
    ordered = OperatorGroups(layers, groups)
    sink = OperatorBytes(ROWS_BYTES * shape.parts / tasks, 0.0)  # files of the change log until they are written
    held = found.held | {Place(SINK, k): sink for k in range(tasks)}
    of = {place: _machine(place, ordered, tasks) for place in held}
    bytes_s = {
        link: found.event.get(link, 0.0) * rates.events_per_s + found.epoch.get(link, 0.0) * epochs
        for link in {**found.event, **found.epoch}
    }
    cores = {
        name: found.event_s.get(name, 0.0) * rates.events_per_s + found.epoch_s.get(name, 0.0) * epochs
        for name in found.event_s
    }
    sends, receives = _carried(bytes_s, ordered, tasks)
    machines = []
    for k in range(groups * tasks):
        here = [place for place, machine in of.items() if machine == k]
        machines.append(
            Machine(
                [str(place) for place in here],
                int(sum(held[place].memory + INBOX_BYTES for place in here)) + PROCESS_BYTES,
                int(sum(held[place].state for place in here)),
                sends[k],
                receives[k],
                sum(cores.get(place.operator, 0.0) / (1 if place.operator == PARTITIONER else tasks) for place in here),
            )
        )
    state = sum(machine.state for machine in machines)
    longest = max(machine.state for machine in machines) / rates.disk
    busiest = max(spent / (1 if name == PARTITIONER else tasks) for name, spent in cores.items())
    return Cluster(
        groups=groups,
        tasks=tasks,
        parts=shape.parts,
        replicas=found.replicas,
        machines=machines,
        held=_held(found.held),
        sent=_sent(bytes_s),
        links=_by_name(bytes_s, ordered),
        operators=cores,
        checkpoint=state,
        checkpoint_s=longest,
        disk=(KEPT + 1) * state,
        recovery_s=longest + INTERVALS * max(rates.checkpoint_s, longest) * busiest,
        limits=_limits(cores, machines, tasks, shape, rates, longest),
    )


def _between_replicas(link: Link) -> bool:
    return not link.beside and link.sender != PARTITIONER and link.receiver != SINK


def _machine(place: Place, groups: OperatorGroups, tasks: int) -> int:
    return groups.group_of(place.operator) * tasks + (0 if place.operator == PARTITIONER else place.number)


def _leaves(link: Link, groups: OperatorGroups) -> bool:
    """Return whether what goes by this link leaves a machine."""
    return not link.beside or groups.group_of(link.sender) != groups.group_of(link.receiver)


def _held(held: Mapping[Place, OperatorBytes]) -> dict[str, int]:
    found: dict[str, float] = defaultdict(float)
    for place, one in held.items():
        found[place.operator] += one.memory
    return {name: int(size) for name, size in found.items()}


def _sent(bytes_s: Mapping[Link, float]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for link, size in bytes_s.items():
        found[link.sender] += size
    return dict(found)


def _by_name(bytes_s: dict[Link, float], groups: OperatorGroups) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for link, size in bytes_s.items():
        found[f"{link.sender} -> {link.receiver}"] += size if _leaves(link, groups) else 0.0
    return dict(found)


def _carried(bytes_s: dict[Link, float], groups: OperatorGroups, tasks: int) -> tuple[list[float], list[float]]:
    """Return the bytes/s that each machine sends to others and receives; tasks share evenly in what goes by a link."""
    sends, receives = ([0.0] * (groups.groups * tasks) for _ in range(2))
    for link, size in bytes_s.items():
        if not _leaves(link, groups):
            continue
        first, to = groups.group_of(link.sender) * tasks, groups.group_of(link.receiver) * tasks
        if link.sender == PARTITIONER:  # in task 0 of the first group
            sends[first] += size
            receivers = [to] if link.beside else list(range(to + 1, to + tasks))
        else:
            receivers = list(range(to, to + tasks))
            for k in range(tasks):
                sends[first + k] += size / tasks
        for k in receivers:
            receives[k] += size / len(receivers)
    return sends, receives


def _limits(
    cores: dict[str, float], machines: list[Machine], tasks: int, shape: GraphSize, rates: Rates, longest: float
) -> list[Limit]:
    """Return the limits, the one that is nearest first."""
    rate = rates.events_per_s
    found = [
        (f"one thread of {name}", spent / (1 if name == PARTITIONER else tasks), rate, "events/s")
        for name, spent in cores.items()
    ]
    busiest = max(max(machine.sends, machine.receives) for machine in machines)
    found += [
        ("network of one machine", busiest / rates.network, rate, "events/s"),
        ("rows of the partitioner's edges", sum(shape.edges) / ROWS_MAX, sum(shape.edges), "edges"),
        ("rows of the partitioner's vertices", sum(shape.vertices) / ROWS_MAX, sum(shape.vertices), "vertices"),
        ("disk, if a checkpoint writes all of the state", longest / rates.checkpoint_s, sum(shape.edges), "edges"),
    ]
    limits = [Limit(name, share, now / share if share else float("inf"), unit) for name, share, now, unit in found]
    return sorted(limits, key=lambda one: -one.share)
