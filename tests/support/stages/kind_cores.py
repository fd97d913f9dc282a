"""Partitioner, Storages and Tails of a model with kinds, in step: events in, embeddings by kind out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from freshet.gnn.kind_layers.compiling import compile_kinds
from freshet.gnn.kinds.model import KindsModel
from freshet.gnn.oracles import whole_kinds
from freshet.operators.control import control_values
from freshet.operators.core import Core
from freshet.operators.dataflow import SINK, STORAGE, TAIL
from freshet.operators.graph.rules import degree_relations
from freshet.operators.outcome import Message
from freshet.operators.storage.features import FeatureStorage
from freshet.operators.storage.layer import LayerStorage
from freshet.operators.storage.shape import LayerShape
from freshet.operators.storage.tail import LayerTail
from freshet.partitioner.config import PartitionerConfig
from freshet.partitioner.core import Partitioner
from freshet.partitioner.event_builder import events_of
from freshet.state.block_columns import kind_prefix
from freshet.state.codec import Block, view
from freshet.state.task_parts import TaskParts
from tests.support.graphs.kind_reference import KindGraph
from tests.support.graphs.kind_streams import Row, arrays_with_learned, event_row


class KindCores:
    """All operators of a job but the Parser and the Sink, whose embeddings stand in `rows`, by kind and key.

    `dealt`: the parts of the tasks of each layer in turn, the last one that of the Sink, too.
    """

    def __init__(self, model: KindsModel, dealt: Sequence[TaskParts]) -> None:
        assert model.features.kinds is not None  # or it would be another model
        self.model, self.plan, self.kinds = model, compile_kinds(model), model.features.kinds
        self.features, self.dealt = self.plan.features, [dealt[0], *dealt]
        self.dealt = [*self.dealt, *[dealt[-1]] * (len(self.plan.layers) + 2 - len(self.dealt))]
        parts = self.dealt[0].parts
        config = PartitionerConfig(hybrid_threshold=2, degree_relations=degree_relations(self.plan))
        self.partitioner = Partitioner(parts, self.features, config, self.dealt[0])
        self.graph, self.epoch = KindGraph(self.kinds), 0
        self.out = [list(model.kinds).index(kind) for kind in model.out]
        self.rows: dict[tuple[int, int], np.ndarray] = {}
        self.make()

    def make(self) -> None:
        """New cores, without state."""
        self.storages: list[list[Core]] = [[self._features(task) for task in range(self.dealt[0].tasks)]]
        self.tails: list[list[Core]] = [[]]
        for number, layer in enumerate(self.plan.layers, 1):
            following = self.plan.layers[number] if number < len(self.plan.layers) else None
            here, there = self.dealt[number], self.dealt[number + 1]
            shapes = [LayerShape(task, here, number, layer, following, there) for task in range(here.tasks)]
            self.storages.append([LayerStorage(shape) for shape in shapes])
            self.tails.append([LayerTail(shape) for shape in shapes] if here.parts > 1 else [])

    def _features(self, task: int) -> Core:
        given = self.features, self.plan.layers[0], self.dealt[1], self.plan.learned
        return FeatureStorage(task, self.dealt[0], *given)

    @property
    def cores(self) -> list[Core]:
        """All of them."""
        return [core for layer in (*self.storages, *self.tails) for core in layer]

    def restore(self) -> None:
        """Go on with other cores, which have what the tables of these have."""
        before = self.cores
        self.make()
        for old, new in zip(before, self.cores, strict=True):
            for table in old.tables:
                table.touch_all()
                table.freeze()
                for part in range(table.parts):
                    for page, data in table.take_owed(1 << 30, part):
                        new.tables[table.name].load_page(page, data, part)
            new.after_restore()

    def run(self, rows: Sequence[Row]) -> None:
        """One epoch of rows of KindGraph, through all operators."""
        self.epoch += 1
        events = events_of([event_row(self.kinds, row) for row in rows], self.features, "int")
        change = self.partitioner.partition(events)
        assert change.rejected == []
        blocks = self.partitioner.split(change, control_values(), self.epoch)
        self.graph.apply(list(rows), [])
        waiting: dict[tuple[str, int], list[Message]] = {}
        for number, (storages, tails) in enumerate(zip(self.storages, self.tails, strict=True)):
            sent: list[Message] = []
            for task, core in enumerate(storages):
                sent += core.apply(self.epoch, [blocks[task]] if number == 0 else _blocks(waiting, STORAGE, task))
            for task, core in enumerate(tails):
                sent += core.apply(self.epoch, _blocks(_by_task(sent), TAIL, task))
            waiting = _by_task(sent)
        for message in (one for (to, _), many in waiting.items() if to == SINK for one in many):
            assert isinstance(message.block, Block)
            self._take(message.block)

    def _take(self, block: Block) -> None:
        for kind in self.out:
            section = block if len(self.out) == 1 else view(block, kind_prefix(kind))
            begins, ends = section.columns.get("key_begin"), section.columns.get("key_end")
            keys, rows = section.get("key"), section.get("row")
            spans = [slice(None)] if begins is None or ends is None else list(map(slice, begins, ends))
            for span in spans:
                self.rows |= {(kind, int(key)): row for key, row in zip(keys[span], rows[span], strict=True)}
            for key in section.get("del_key").tolist():
                del self.rows[kind, key]

    def want(self) -> dict[tuple[int, int], np.ndarray]:
        """The embeddings of the graph, recomputed."""
        ids, graph = arrays_with_learned(self.model, self.graph)
        rows = whole_kinds.forward(self.plan, graph)[-1]
        return {(kind, v): rows[kind][i] for kind in self.out for i, v in enumerate(ids[kind])}

    def assert_right(self, tolerance: float = 2e-4) -> None:
        """The embeddings are those of the graph."""
        want = self.want()
        assert self.rows.keys() == want.keys()
        largest = max([1.0, *(float(np.abs(row).max(initial=0)) for row in want.values())])
        for at, row in want.items():
            np.testing.assert_allclose(self.rows[at], row, rtol=tolerance, atol=tolerance * largest, err_msg=str(at))


def _blocks(waiting: dict[tuple[str, int], list[Message]], to: str, task: int) -> list[Block]:
    found = [one.block for one in waiting.get((to, task), [])]
    blocks = [one for one in found if isinstance(one, Block)]
    return sorted(blocks, key=lambda one: (one.header.source, one.header.flags))


def _by_task(messages: list[Message]) -> dict[tuple[str, int], list[Message]]:
    found: dict[tuple[str, int], list[Message]] = {}
    for message in messages:
        found.setdefault((message.to, message.task), []).append(message)
    return found
