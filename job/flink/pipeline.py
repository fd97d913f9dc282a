"""Division of a job's work among its processes: first the layers, one after another, then the parts.

With a process for each part, a change crosses between processes in every layer, and every process has a row of each
vertex that its edges read. Between layers, a changed row is sent once. So processes form a *pipeline* of layers first,
and further processes divide the parts: with `--parallelism` N and a pipeline of K, each of K groups of neighbouring
operators has N / K subtasks. Flink gives each group slots of its own.

The readers of a topic, each a source with its Parser, run in the first group as long as it has a slot for each. More of
them run beside further groups: an operator has slots of one name only, so groups with readers share one name. They
are kept apart by Flink, which gives each group (a *co-location group*, whose subtasks are together) the slots with the
fewest tasks. On a cluster that was started by others, Flink may not do that; more readers then take slots of their own.

With `--layer-parallelism` each layer has its own number of subtasks. A group then has as many slots as its largest
layer has subtasks, and the layers are divided into as many groups as `--parallelism` has slots for. Groups differ in
size, so readers beyond the slots of the first group take slots of their own here, too.

Keys of parts are integers that Flink's own hash sends to the key group of each part, so that parts spread evenly over
subtasks at any parallelism: part k of P has key group ceil(k * max / P), and a subtask owns a contiguous range of key
groups. PyFlink wraps a key, so what Flink hashes is `Row.of(key)`.

Source: org.apache.flink.types.Row.hashCode, org.apache.flink.util.MathUtils.murmurHash, KeyGroupRangeAssignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from freshet.job.errors import UsageError
from freshet.operators.dataflow import SINK, STORAGE, TAIL, rank
from freshet.state.task_parts import TaskParts, key_group_of, subtask_of

# What operators take of the processor's time, about: what comes before the first conv, a conv, and the Sink.
_FRONT, _CONV, _SINK = 3, 3, 2
SUBTASKS_MAX = 128  # Flink's key groups
_MASK = 0xFFFFFFFF


def subtasks_of(operator: str, by_layer: Sequence[int]) -> int:
    """Return the number of subtasks of an operator, where those of layers 1, 2, ... are `by_layer`.

    Storage 0 has those of layer 1, a Tail those of its layer, the Sink those of the last layer.
    """
    if operator == SINK:
        return by_layer[-1]
    return by_layer[max(rank(operator)[1], 1) - 1] if operator.startswith((STORAGE, TAIL)) else 1


class OperatorGroups:
    """The groups of a job's operators, numbered in the order of the flow.

    The first one has everything up to the storage of the raw features, and more.
    """

    def __init__(self, layers: int, groups: int = 1, with_readers: int = 0, by_layer: Sequence[int] = ()) -> None:
        """`layers` are the model's convs; 1 <= groups <= `groups_max(layers)`.

        `with_readers`: how many of the first groups have slots of one name; 0: the readers fit into those of the first.
        `by_layer`: numbers of subtasks of the layers from 1 on, where they differ.
        """
        self.groups, self._alone, self._with_readers = groups, groups == groups_max(layers), with_readers
        self._by_layer = tuple(by_layer) or (1,) * layers
        self._first = _first_layers(groups, self._by_layer)

    def group_of(self, operator: str) -> int:
        """Return the group of an operator; any but Storage, Tail and Sink is in the first."""
        if not operator.startswith((STORAGE, TAIL, SINK)):
            return 0
        if operator == SINK:
            return self.groups - 1
        layer = rank(operator)[1]
        return max(group for group, first in enumerate(self._first) if first <= layer)

    @property
    def last_of_first(self) -> str:
        """The last operator that has a subtask beside the Partitioner for sure, and acts on every epoch."""
        most = self.slots[0]
        return next(name for name in reversed(self._acting(0)) if subtasks_of(name, self._by_layer) == most)

    @property
    def slots(self) -> list[int]:
        """Number of slots of each group: as many as its largest layer has subtasks."""
        groups = [self._acting(group) for group in range(self.groups)]
        return [max(subtasks_of(name, self._by_layer) for name in group) for group in groups]

    def _acting(self, group: int) -> list[str]:
        """The Storages of a group, and the Sink."""
        layers = len(self._by_layer)
        first, end = self._first[group], (*self._first, layers + 1)[group + 1]
        names = [f"{STORAGE}{layer}" for layer in range(first, min(end, layers + 1))]
        return [*names, SINK] if group == self.groups - 1 else names

    def place_of(self, operator: str) -> tuple[str, str | None]:
        """The names of an operator's slots and of its co-location group, for Flink; None: its slots are not shared."""
        group = self.group_of(operator)
        slots = "default" if group < max(1, self._with_readers) else f"pipeline-{group}"
        return slots, f"group-{group}" if group < self._with_readers else None

    def words(self, subtasks: int) -> str:
        """Describe, for people, the operators of each process; `subtasks` is the number of each layer."""
        ends = [f"storage{first - 1}" for first in self._first[1:]] + [SINK]
        begins = ["parser"] + [f"storage{first}" for first in self._first[1:]]
        if self._alone:
            begins[-1] = SINK
        spans = [begin if begin == end else f"{begin} to {end}" for begin, end in zip(begins, ends, strict=True)]
        times = f", {subtasks} of each" if subtasks > 1 else ""
        return f"{self.groups} processes share the layers{times}: {'; '.join(spans)}"


@dataclass(frozen=True)
class Division:
    """Division of a job among processes: `groups` of operators, and the subtasks of layers 1, 2, ...

    `differs`: the layers' numbers are given one by one. `idle`: processes that were given and are not needed.
    """

    groups: int
    by_layer: tuple[int, ...]
    differs: bool = False
    idle: int = 0

    @property
    def operators(self) -> OperatorGroups:
        """The groups of operators."""
        return OperatorGroups(len(self.by_layer), self.groups, by_layer=self.by_layer)

    @property
    def processes(self) -> int:
        """Number of processes, with a slot each."""
        return sum(self.operators.slots)

    @property
    def first_slots(self) -> int:
        """Number of slots of the first group, which reads."""
        return self.operators.slots[0]

    def words(self) -> str:
        """Describe it for people; empty where one process has all, or each has a share of all layers."""
        if not self.differs:
            return self.operators.words(self.by_layer[0]) if self.groups > 1 else ""
        layers = "; ".join(f"layer {number} has {count}" for number, count in enumerate(self.by_layer, 1))
        stages = f" in {self.groups} pipeline stages" if self.groups > 1 else ""
        unused = f"; {self.idle} of --parallelism are not needed" if self.idle else ""
        return f"{self.processes} processes{stages}: {layers}{unused}"


def division_of(
    parallelism: int, pipeline: int | None, by_layer: Sequence[int] | None, layers: int, parts: int
) -> Division:
    """Return how processes share the layers, by the options of these names; `layers` are the model's convs.

    With `by_layer` a parallelism of 1 counts as not given: then it is what the groups take, or the largest layer.
    Raises: UsageError if the numbers do not fit the model, the parts or each other.
    """
    if by_layer is None:
        groups = pipeline_of(parallelism, pipeline, layers, parts)
        return Division(groups, (parallelism // groups,) * layers)
    check_layers(by_layer, layers)
    given = _as_given(by_layer)
    if max(by_layer) > parts:
        layer, most = by_layer.index(max(by_layer)) + 1, f"{parts} parts" if parts > 1 else "1 part"
        msg = f"{given}: layer {layer} would have {max(by_layer)} processes, and the job has {most}; give at most that"
        raise UsageError(msg)
    if pipeline is not None and pipeline > groups_max(layers):
        raise UsageError(_too_many_groups(pipeline, layers))
    limit = parallelism if parallelism > 1 else None if pipeline else max(by_layer)
    choices = [pipeline] if pipeline else range(groups_max(layers), 0, -1)
    found = [Division(groups, tuple(by_layer), differs=True) for groups in choices]
    fitting = next((one for one in found if limit is None or one.processes <= limit), None)
    if fitting is None:
        beside = f" with --pipeline {pipeline}" if pipeline else ""
        msg = f"--parallelism {parallelism}: {given}{beside} takes {found[-1].processes} processes; give as many"
        raise UsageError(msg)
    if fitting.processes > SUBTASKS_MAX:
        msg = f"{given}: takes {fitting.processes} processes, expected at most {SUBTASKS_MAX}; give a lower --pipeline"
        raise UsageError(msg)
    return replace(fitting, idle=parallelism - fitting.processes if parallelism > 1 else 0)


def processes_of(parallelism: int, pipeline: int | None, by_layer: Sequence[int] | None) -> int:
    """Return the number of processes that a job takes by the options of these names, which fit its model."""
    if by_layer is None:
        return parallelism
    return division_of(parallelism, pipeline, by_layer, len(by_layer), max(by_layer)).processes


def check_layers(by_layer: Sequence[int], layers: int) -> None:
    """Refuse numbers that are not one for each conv of the model."""
    if len(by_layer) != layers:
        convs = f"{layers} layers" if layers > 1 else "1 layer"
        numbers = f"{len(by_layer)} numbers" if len(by_layer) > 1 else "1 number"
        msg = f"{_as_given(by_layer)}: got {numbers}, and the model has {convs}; give one for each, from the first on"
        raise UsageError(msg)


def _as_given(by_layer: Sequence[int]) -> str:
    return f"--layer-parallelism {','.join(map(str, by_layer))}"


def groups_max(layers: int) -> int:
    """Return the most processes that can share the convs: one for each, one before them and one for the Sink."""
    return layers + 2


def pipeline_of(parallelism: int, given: int | None, layers: int, parts: int) -> int:
    """Return the number of groups of a job: as given, or the most that divide its parallelism.

    Raises: UsageError if the given number does not fit.
    """
    if given is None:
        return next(k for k in range(groups_max(layers), 0, -1) if parallelism % k == 0)
    if parallelism % given:
        msg = f"--pipeline {given}: expected a divisor of --parallelism {parallelism}"
    elif given > groups_max(layers):
        msg = _too_many_groups(given, layers)
    elif parallelism // given > parts:
        msg = (
            f"--pipeline {given}: each layer would have {parallelism // given} subtasks, and the job has {parts} "
            f"parts; give --parallelism {given * parts} or lower"
        )
    else:
        return given
    raise UsageError(msg)


def _too_many_groups(given: int, layers: int) -> str:
    return f"--pipeline {given}: the model has {layers} convs, which at most {groups_max(layers)} processes share"


def _first_layers(groups: int, by_layer: Sequence[int]) -> list[int]:
    """The first layer of each group; layer 0 has the raw features, and a Sink alone counts as one more.

    Where layers differ, their work is divided by their subtasks; what comes before the first one has one.
    """
    layers = len(by_layer)
    shared_by = by_layer if len(set(by_layer)) > 1 else (1,) * layers
    steps = [float(_FRONT)] + [_CONV / count for count in shared_by]
    if groups == groups_max(layers):
        steps.append(_SINK / shared_by[-1])
    else:
        steps[-1] += _SINK / shared_by[-1]

    def work(begin: int, end: int) -> float:
        return sum(steps[begin:end])

    def fits(begin: int, shared_by: int, most: float) -> bool:
        """Return whether that number of groups can share the steps from there on, none with more than `most` to do."""
        needed, first = 1, begin
        for end in range(begin + 1, len(steps) + 1):
            if work(first, end) > most:
                needed, first = needed + 1, end - 1
        return needed <= shared_by <= len(steps) - begin

    loads = {work(a, b) for a, b in combinations(range(len(steps) + 1), 2)}
    most = min(load for load in loads if load >= max(steps) and fits(0, groups, load))
    cuts = [0]
    for left in range(groups - 1, 0, -1):  # of equally good divisions the one whose first groups are the smallest
        begin = cuts[-1]
        cuts.append(next(at for at in range(begin + 1, len(steps)) if work(begin, at) <= most and fits(at, left, most)))
    return cuts


def row_hash(key: int) -> int:
    """Return the Java `hashCode` of `Row.of(key)` for an int key, as an unsigned 32-bit number."""
    fields = 31 + key  # Arrays.deepHashCode of one Integer, whose hash is its value
    return (31 + fields) & _MASK  # the kind INSERT counts 31


def murmur(code: int) -> int:
    """Return Flink's murmur hash of a 32-bit code: a non-negative int."""
    code = (code * 0xCC9E2D51) & _MASK
    code = ((code << 15) | (code >> 17)) & _MASK
    code = (code * 0x1B873593) & _MASK
    code = ((code << 13) | (code >> 19)) & _MASK
    code = (code * 5 + 0xE6546B64) & _MASK
    code ^= 4
    code ^= code >> 16
    code = (code * 0x85EBCA6B) & _MASK
    code ^= code >> 13
    code = (code * 0xC2B2AE35) & _MASK
    code ^= code >> 16
    signed = code - (1 << 32) if code >> 31 else code
    if signed >= 0:
        return signed
    return -signed if signed != -(1 << 31) else 0


def key_group(key: int, max_parallelism: int) -> int:
    """Return the key group that Flink assigns to an int key of a PyFlink stream."""
    return murmur(row_hash(key)) % max_parallelism


def parts_by_subtask(parts: int, parallelism: int, max_parallelism: int) -> TaskParts:
    """Return the parts whose keys land on each subtask, without the subtasks that get none."""
    found = Counter(subtask_of(part, parts, parallelism, max_parallelism) for part in range(parts))
    return TaskParts.of(found[subtask] for subtask in sorted(found))


def part_keys(parts: int, max_parallelism: int) -> list[int]:
    """Return the key of each part: the smallest non-negative int whose key group is ceil(part * max / parts).

    Invariant: keys are distinct, and depend on (parts, max_parallelism) alone.
    """
    wanted = {key_group_of(part, parts, max_parallelism): part for part in range(parts)}
    keys = [-1] * parts
    key, missing = 0, parts
    while missing:
        part = wanted.get(key_group(key, max_parallelism))
        if part is not None and keys[part] < 0:
            keys[part] = key
            missing -= 1
        key += 1
    return keys
