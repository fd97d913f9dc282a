"""Checks of a whole model on tiny streams: its operators in several parts against a full pass in float64.

In-edges of a vertex are spread over the parts from the second one on, so that states of parts are merged as soon as
there are two. A stream that comes out wrong is made as small as it stays wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from freshet.gnn.answers import ClaimAnswer
from freshet.gnn.any_plan import AnyPlan, compile_any, returned_of
from freshet.gnn.kind_layers.plans import KindsPlan, RelationPlan
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.model import Model
from freshet.gnn.oracles import kinds as scales_by_kind
from freshet.gnn.oracles import own_scale
from freshet.gnn.oracles.scaled import Scaled
from freshet.gnn.plan import Plan
from freshet.gnn.smallest import shown, smallest
from freshet.kinds import NO_NAME, some_names
from freshet.operators.checks.drawn_streams import Event, StreamForm, event_line, smaller_streams, vertex_name
from freshet.operators.control import control_values
from freshet.operators.dataflow import PARTITIONER, STORAGE, Place
from freshet.operators.factory import open_network
from freshet.operators.graph.rules import graph_rules
from freshet.operators.outcome import Message
from freshet.operators.settings import Settings
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.partitioner.reference.graph import ReferenceGraph
from freshet.partitioner.reference.kinds import ReferenceKindsGraph
from freshet.schema import WEIGHT, edge_row
from freshet.state.block_columns import kind_prefix
from freshet.state.codec import Block, view
from freshet.state.task_parts import TaskParts

Vertex = Any
"""The id of a vertex, or a pair of the name of its kind and its id."""


class WantedRow(NamedTuple):
    """A row as a full pass makes it, with the scale of each value; (width,) float64."""

    vertex: Vertex
    row: np.ndarray
    scale: np.ndarray


class StreamGraph(Protocol):
    """A graph that takes the events of a stream one by one."""

    def take(self, event: Event) -> None:
        """Apply an event."""

    def rows(self, tolerance: float) -> Iterator[WantedRow]:
        """Yield the embeddings of the vertices that are there."""


class PlainStreamGraph:
    """The graph of a model without kinds."""

    def __init__(self, model: Model, plan: Plan) -> None:
        self._model, self._features = model, plan.features
        self._types = list(plan.edge_types) or None
        self._graph = ReferenceGraph(plan.features, graph_rules(plan, undirected=False))

    def take(self, event: Event) -> None:
        """Apply an event."""
        self._graph.apply(events_of([event], self._features, edge_types=self._types))

    def rows(self, tolerance: float) -> Iterator[WantedRow]:
        """Yield the embeddings of the vertices that are there."""
        there = self._graph.arrays()
        if there.ids:
            yield from _each(there.ids, own_scale.forward(self._model, there.graph, tolerance=tolerance))


class KindsStreamGraph:
    """The graph of a model with kinds."""

    def __init__(self, model: KindsModel, plan: KindsPlan) -> None:
        self._model, self._plan = model, plan
        self._graph = ReferenceKindsGraph(plan.features, graph_rules(plan, undirected=False))

    def take(self, event: Event) -> None:
        """Apply an event."""
        op, one, *more = event
        if op in ("add_edge", "del_edge"):
            name = more.pop(2 if op == "add_edge" else 1)
            kinds = self._graph.kinds
            source, _, target = kinds.triple(kinds.relations[kinds.relation_names.index(name)])
            ends = (source, one), (target, more[0])
            if op == "del_edge":
                self._graph.del_edge(*ends, name)
            else:
                self._graph.add_edge(*ends, edge_row({WEIGHT: more[1]}, *more[3:]), name)
            return
        vertex: Vertex = one if isinstance(one, tuple) else (NO_NAME, one)
        if op == "del_vertex":
            self._graph.del_vertex(vertex)
        else:
            self._graph.add_vertex(vertex, *(np.array(x, np.float32) for x in more))

    def rows(self, tolerance: float) -> Iterator[WantedRow]:
        """Yield the embeddings of the returned kinds that are there."""
        ids, graph = self._graph.kind_arrays()
        learned = self._plan.learned or (None,) * len(graph.x)
        x = [
            rows if one is None else np.concatenate([rows, one.find(np.array(of, np.int64))[0]], axis=1)
            for rows, one, of in zip(graph.x, learned, ids.values(), strict=True)
        ]
        made = scales_by_kind.forward(self._model, graph._replace(x=x), tolerance=tolerance)
        for kind, rows in made.items():
            yield from _each([(kind, one) for one in ids[kind]], rows)


def _each(vertices: list[Any], made: Scaled) -> Iterator[WantedRow]:
    for vertex, row, scale in zip(vertices, made.rows, made.scale, strict=True):
        yield WantedRow(vertex, row, scale)


PARTS = 3
TOLERANCE = 1e-5  # of the scale of a value in the full pass
STREAMS = 60
_EVENTS = 6  # more in the last stream than in the first
_BALANCE = 8.0  # of HDRF: from its second in-edge on, those of a vertex go to the part with the fewest edges


class WrongRow(NamedTuple):
    """A row that is not what a full pass makes, after some events; `got` is empty where there is none."""

    events: int
    vertex: Vertex
    got: np.ndarray
    want: np.ndarray


@dataclass(frozen=True)
class StreamCheck:
    """A model and its plan, on which streams of a form are tried; each event of a stream is an epoch."""

    model: Model | KindsModel
    plan: AnyPlan
    form: StreamForm
    parts: int = PARTS

    @staticmethod
    def of(
        model: Model | KindsModel, parts: int = PARTS, own: Callable[[RelationPlan], bool] = lambda one: False
    ) -> StreamCheck:
        """Return the check of a model; where it has kinds, streams are drawn for its `own` relations, or for all.

        Raises: ModelError for a conv that has no incremental form.
        """
        plan = compile_any(model)
        if isinstance(plan, KindsPlan):
            return StreamCheck(model, plan, StreamForm.of_kinds(plan, own), parts)
        return StreamCheck(model, plan, StreamForm.of_one_kind(plan), parts)

    def answer(self, *, seed: int = 0, streams: int = STREAMS) -> ClaimAnswer:
        """Return what was found: the smallest stream that came out wrong, or how many came out right.

        Where there are kinds, the claim names the relations that streams follow.
        """
        rng, followed = np.random.default_rng(seed), dict[str, None]()
        for number in range(streams):
            path = self.form.path(number, rng)
            followed |= dict.fromkeys(hop.name for hop in path if hop.name)
            stream = self.form.draw(path, 1 + number * _EVENTS // streams, rng)
            if self.wrong(stream) is not None:
                return ClaimAnswer(self._claim(followed), "refuted", number + 1, self._shown(self._smallest(stream)))
        return ClaimAnswer(self._claim(followed), "searched", streams)

    def wrong(self, stream: Sequence[Event]) -> WrongRow | None:
        """Return the first row that is not what a full pass makes; None where all are."""
        graph, rows = self._graph(), dict[Vertex, np.ndarray]()
        for number, (event, changed) in enumerate(zip(stream, self._epochs(stream), strict=True), 1):
            graph.take(event)
            rows = {key: row for key, row in (rows | changed.rows).items() if key not in changed.gone}
            for vertex, want, scale in graph.rows(TOLERANCE):
                got = rows.get(vertex, np.empty(0, np.float32))
                if not (got.size == want.size and _is_right(got, want, scale)):
                    return WrongRow(number, vertex, got, want)
        return None

    def _graph(self) -> StreamGraph:
        if isinstance(self.model, KindsModel):
            assert isinstance(self.plan, KindsPlan)
            return KindsStreamGraph(self.model, self.plan)
        assert not isinstance(self.plan, KindsPlan)
        return PlainStreamGraph(self.model, self.plan)

    def _epochs(self, stream: Sequence[Event]) -> Iterator[_Changed]:
        """Yield what each epoch changes, run through the operators of a job but the Parser and the Sink."""
        rules, features, types = graph_rules(self.plan, undirected=False), self.plan.features, self.plan.edge_types
        config = PartitionerConfig.of(rules, strategy="hybrid", hybrid_threshold=1, hdrf_lambda=_BALANCE)
        settings = Settings("", "", self.parts, config, tasks=(self.parts,))
        partitioner = Partitioner(self.parts, features, config, TaskParts.dealt(self.parts, 1))
        network = open_network(settings, self.plan, sinks=False)
        try:
            for epoch, event in enumerate(stream, 1):
                change = partitioner.partition(events_of([event], features, edge_types=list(types) or None))
                ctl = control_values(events=1, vertices=partitioner.vertices)
                messages = (Message(STORAGE, k, epoch, b) for k, b in enumerate(partitioner.split(change, ctl, epoch)))
                sent = network.run(Place(PARTITIONER, 0), messages)
                yield _Changed.of(self.plan, [message.block for message in sent])
        finally:
            network.close()

    def _smallest(self, stream: list[Event]) -> list[Event]:
        """Return the smallest stream that is still wrong."""
        return smallest(stream, smaller_streams, lambda steps: (self.wrong(step) is not None for step in steps))

    def _claim(self, followed: Iterable[str]) -> str:
        along, parts = some_names(sorted(followed)), "several parts" if self.parts > 1 else "one part"
        return f"streams {f'along {along} ' if along else ''}in {parts} make what a full pass makes"

    def _shown(self, stream: Sequence[Event]) -> str:
        found = self.wrong(stream)
        if found is None:  # it was wrong when it was shrunk
            return "a stream came out wrong once and right again: a function depends on more than what it reads"
        lines = [event_line(event) for event in stream[: found.events]]
        got = shown(found.got) if found.got.size else "no row"
        result = f"vertex {vertex_name(found.vertex)} has {got}, but a full pass makes {shown(found.want)}"
        return "\n".join([*lines, result])


class _Changed(NamedTuple):
    """The rows that an epoch changes, by vertex, and the vertices that it deletes."""

    rows: dict[Vertex, np.ndarray]
    gone: set[Vertex]

    @staticmethod
    def of(plan: AnyPlan, blocks: Sequence[object]) -> _Changed:
        rows, gone = dict[Vertex, np.ndarray](), set[Vertex]()
        several = len(returned_of(plan)) > 1
        names = list(plan.out) if isinstance(plan, KindsPlan) else [None]
        for block in blocks:
            assert isinstance(block, Block)  # Sinks get nothing else
            for name, one in zip(names, returned_of(plan), strict=True):
                section = view(block, kind_prefix(one.number)) if several else block
                keys, made = section.get("key").tolist(), section.get("row")
                begins, ends = section.columns.get("key_begin", [0]), section.columns.get("key_end", [len(keys)])
                for begin, end in zip(begins, ends, strict=True):
                    for key, row in zip(keys[begin:end], made[begin:end], strict=True):
                        rows[key if name is None else (name, key)] = row
                gone |= {key if name is None else (name, key) for key in section.get("del_key").tolist()}
        return _Changed(rows, gone)


def _is_right(got: np.ndarray, want: np.ndarray, scale: np.ndarray) -> bool:
    """Return whether a row is within rounding of what a full pass makes, where float32 holds that."""
    with np.errstate(invalid="ignore"):
        near = np.abs(got - want) <= TOLERANCE * scale
    return bool((near | (np.isnan(got) & np.isnan(want)) | (~np.isfinite(scale) & ~np.isfinite(got))).all())
