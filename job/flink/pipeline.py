"""Division of a job's work among its processes: first the layers, one after another, then the parts.

With a process for each part, a change crosses between processes in every layer, and every process has a row of each
vertex that its edges read. Between layers, a changed row is sent once. So processes form a *pipeline* of layers first,
and further processes divide the parts: with `--parallelism` N and a pipeline of K, each of K groups of neighbouring
operators has N / K subtasks. Flink gives each group slots of its own.

The readers of a topic, each a source with its Parser, run in the first group as long as it has a slot for each. More of
them run beside further groups: an operator has slots of one name only, so groups with readers share one name. They
are kept apart by Flink, which gives each group (a *co-location group*, whose subtasks are together) the slots with the
fewest tasks. On a cluster that was started by others, Flink may not do that; more readers then take slots of their own.
"""

from __future__ import annotations

from itertools import combinations

from freshet.job.errors import UsageError
from freshet.operators.dataflow import SINK, STORAGE, TAIL, rank

# What operators take of the processor's time, about: what comes before the first conv, a conv, and the Sink.
_FRONT, _CONV, _SINK = 3, 3, 2


class OperatorGroups:
    """The groups of a job's operators, numbered in the order of the flow.

    The first one has everything up to the storage of the raw features, and more.
    """

    def __init__(self, layers: int, groups: int = 1, with_readers: int = 0) -> None:
        """`layers` are the model's convs; 1 <= groups <= `groups_max(layers)`.

        `with_readers`: how many of the first groups have slots of one name; 0: the readers fit into those of the first.
        """
        self.groups, self._alone, self._with_readers = groups, groups == groups_max(layers), with_readers
        self._first = _first_layers(layers, groups)

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
        """The last operator that runs beside the Partitioner and acts on every epoch."""
        return SINK if self.groups == 1 else f"{STORAGE}{self._first[1] - 1}"

    def place_of(self, operator: str) -> tuple[str, str | None]:
        """The names of an operator's slots and of its co-location group, for Flink; None: its slots are not shared."""
        group = self.group_of(operator)
        slots = "default" if group < max(1, self._with_readers) else f"pipeline-{group}"
        return slots, f"group-{group}" if group < self._with_readers else None

    def told(self, subtasks: int) -> str:
        """Describe, for people, the operators of each process; `subtasks` is the number of each layer."""
        ends = [f"storage{first - 1}" for first in self._first[1:]] + [SINK]
        begins = ["parser"] + [f"storage{first}" for first in self._first[1:]]
        if self._alone:
            begins[-1] = SINK
        spans = [begin if begin == end else f"{begin} to {end}" for begin, end in zip(begins, ends, strict=True)]
        times = f", {subtasks} of each" if subtasks > 1 else ""
        return f"{self.groups} processes share the layers{times}: {'; '.join(spans)}"


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
        msg = f"--pipeline {given}: the model has {layers} convs, which at most {groups_max(layers)} processes share"
    elif parallelism // given > parts:
        msg = (
            f"--pipeline {given}: each layer would have {parallelism // given} subtasks, and the job has {parts} "
            f"parts; give --parallelism {given * parts} or lower"
        )
    else:
        return given
    raise UsageError(msg)


def _first_layers(layers: int, groups: int) -> list[int]:
    """The first layer of each group; layer 0 has the raw features, and a Sink alone counts as one more."""
    steps = [_FRONT] + [_CONV] * layers
    if groups == groups_max(layers):
        steps.append(_SINK)
    else:
        steps[-1] += _SINK

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
