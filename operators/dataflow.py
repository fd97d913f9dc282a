"""The dataflow: the one table of a job's operators, who sends to whom, and how many tasks each has.

    parser -> partitioner -> storage0 -> storage1 [+ tail1] -> ... -> storageL [+ tailL] -> sink

All files share one Parser; each topic has its own, with a task for each of its readers. Layers have a tail where there
are several parts: what reaches the next layer then comes from the storage and from the tail. A message is addressed to
a kind of operator; its sender decides which one of them that is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from freshet.state.task_parts import TaskParts

KINDS = PARSER, PARTITIONER, STORAGE, TAIL, SINK = "parser", "partitioner", "storage", "tail", "sink"
OUTLET = "outlet"  # no operator: the topic of changed embeddings
FEATURES = f"{STORAGE}0"  # the storage of the raw features


class Place(NamedTuple):
    """One task of an operator, or one part; as text, how its stage, or its state and its base image, are called."""

    operator: str
    number: int

    def __str__(self) -> str:
        return f"{self.operator}-{self.number}"


@dataclass(frozen=True, slots=True)
class Operator:
    """A row of the table: `receivers` are names, by the kind that a message is addressed to, the main one first.

    `tasks` is how many of it run: those of a Storage, of a Tail and of the Sink have the job's parts between them,
    those of a topic's Parser its partitions, and the others are alone. `layer` counts a storage and its tail from the
    raw features (0) on. `topic` is that of a topic's Parser: its index among the sources.
    """

    name: str
    kind: str
    receivers: Mapping[str, str] = field(default_factory=dict)
    tasks: int = 1
    layer: int = 0
    topic: int | None = None

    @property
    def places(self) -> list[Place]:
        """All its tasks."""
        return [Place(self.name, task) for task in range(self.tasks)]


def topic_parser(topic: int) -> str:
    """The name of the Parser of a topic, by the topic's index among the sources."""
    return f"{PARSER}-{topic}"


class Dataflow(Mapping[str, Operator]):
    """The operators of a job by name, in the order of the flow."""

    def __init__(
        self, layers: int, parts: int, topics: Mapping[int, int] | None = None, tasks: LayerTasks | None = None
    ) -> None:
        """`topics`: number of readers of those sources (by index) that are Kafka topics.

        `tasks`: of Storages, by default one for each part.
        """
        tasks = LayerTasks.of_counts(parts) if tasks is None else tasks
        events = {PARTITIONER: PARTITIONER}
        rows = [Operator(PARSER, PARSER, events)]
        for topic, readers in (topics or {}).items():
            rows.append(Operator(topic_parser(topic), PARSER, events, readers, topic=topic))
        rows.append(Operator(PARTITIONER, PARTITIONER, {STORAGE: FEATURES}))
        for layer in range(layers + 1):
            onward = {STORAGE: f"{STORAGE}{layer + 1}"} if layer < layers else {SINK: SINK}
            tail = {TAIL: f"{TAIL}{layer}"} if layer and parts > 1 else {}
            count = tasks.of(f"{STORAGE}{layer}").tasks
            rows.append(Operator(f"{STORAGE}{layer}", STORAGE, onward | tail, count, layer))
            rows += [Operator(name, TAIL, onward, count, layer) for name in tail.values()]
        rows.append(Operator(SINK, SINK, tasks=tasks.of(SINK).tasks))
        self._rows = {row.name: row for row in rows}

    def __getitem__(self, name: str) -> Operator:
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def staged(self) -> list[Operator]:
        """The operators that act once per epoch, when all blocks of it are there: those after the Partitioner."""
        return [row for row in self._rows.values() if row.kind in (STORAGE, TAIL, SINK)]

    def receiver(self, sender: str, to: str) -> str:
        """The operator that a message of `sender` addressed `to` goes to."""
        return self._rows[sender].receivers[to]

    def senders(self, name: str) -> list[Operator]:
        """The operators that send to this one."""
        return [row for row in self._rows.values() if name in row.receivers.values()]

    def blocks_per_epoch(self, name: str) -> int:
        """Return the number of blocks per epoch for each task of an operator: one from each task of each sender."""
        return sum(row.tasks for row in self.senders(name))


@dataclass(frozen=True)
class LayerTasks:
    """The parts of each task of every operator, by layer from the raw features (0) on; one alone is that of all layers.

    A Tail has the tasks of its Storage, and the Sink those of the last layer.
    """

    layers: tuple[TaskParts, ...]

    @staticmethod
    def of_counts(parts: int, tasks: Sequence[int] = (), by_layer: Sequence[Sequence[int]] = ()) -> LayerTasks:
        """Return tasks with these numbers of parts: `by_layer`, else the same in all layers, else one for each part."""
        return LayerTasks(tuple(map(TaskParts.of, by_layer or (tasks or (1,) * parts,))))

    def of(self, operator: str) -> TaskParts:
        """Return the tasks of an operator, by its name; those before the Storages have one for each part."""
        if operator == SINK:
            return self.layers[-1]
        if operator.startswith((STORAGE, TAIL)):
            return self.layers[min(rank(operator)[1], len(self.layers) - 1)]
        parts = self.layers[0].parts
        return TaskParts.dealt(parts, parts)


def outlet_of(kind: str) -> str:
    """Return where records of a kind go: to OUTLET, or to a topic of the kind where a model returns several."""
    return f"{OUTLET}.{kind}" if kind else OUTLET


def rank(name: str) -> tuple[int, int, int]:
    """Sort key of an operator's name: its place in the flow of any job; other names come last."""
    kind, layer = re.match(r"([a-z]*)(\d*)", name).groups()  # type: ignore[union-attr]  # it matches everything
    if kind not in KINDS:
        return len(KINDS), 0, 0
    layered = STORAGE if kind == TAIL else kind
    return KINDS.index(layered), int(layer or 0), KINDS.index(kind)
