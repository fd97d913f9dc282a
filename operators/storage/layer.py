"""The Storage core of layer l in one task: edges, replicated source values and synopses by relation, rows by kind."""

from __future__ import annotations

from functools import partial

import numpy as np

from freshet.operators.core import Core
from freshet.operators.dataflow import TAIL
from freshet.operators.graph.part_rows import frozen
from freshet.operators.graph.routing import route_partials
from freshet.operators.graph.row_kernels import gather, put
from freshet.operators.graph.sources import NO_SOURCES, SourceRows
from freshet.operators.graph.topology import MASTER, SPLIT
from freshet.operators.outcome import Message
from freshet.operators.storage.behind import behind_of
from freshet.operators.storage.epoch_topology import EpochTopology, prefixed
from freshet.operators.storage.head import Handed, hand_on
from freshet.operators.storage.owner import Changed
from freshet.operators.storage.pairs import synopses_of
from freshet.operators.storage.relations import RelationSynopses
from freshet.operators.storage.shape import LayerShape
from freshet.operators.storage.vertices import Vertices
from freshet.operators.telemetry.level import Level
from freshet.operators.telemetry.sum_report import SumReport, all_sums
from freshet.state.block_columns import PARTIAL, Columns
from freshet.state.codec import Block, Header, seal, views
from freshet.state.table import Table, TableSet

EMPTY_SLOTS = np.empty(0, np.int32)


class LayerStorage(Core):
    """Storage l: merges the messages of its parts' edges by relation, and updates its whole vertices by kind.

    Where vertices have no kinds, there is one kind and one relation, whose numbers are None.
    """

    def __init__(self, shape: LayerShape) -> None:
        self.shape = shape
        self.tables = TableSet(len(shape.tasks.parts_of[shape.task]))
        plans = enumerate(shape.layer.kinds)
        self.kinds = {k: Vertices(self.tables, shape, k, one, MASTER) for k, one in plans if one is not None}
        self.relations, self._sharing = list[RelationSynopses](), dict[tuple[int, int, int], list[int]]()
        self._own = dict[int, Table]()  # by relation, where the store puts self inputs beside messages
        self._make_relations()
        self._into = {k: [self.relations[place] for place in one.plan.relations] for k, one in self.kinds.items()}
        for kind, one in self.kinds.items():
            one.make_of(self._into[kind])
        self._keeping = [k for k, one in self.kinds.items() if one.keeps_own and not self._stores_put_selves(k)]
        self.owners = [one.owner for one in self.kinds.values() if one.owner is not None]
        self.behind = behind_of(self.relations, self.kinds, self._own, shape.tasks.parts)
        self._deals = shape.following is None and shape.tasks.parts > 1
        self.touched = 0
        self._index_bytes = Level()
        self.levels = {"index_bytes": self._index_bytes}

    def _make_relations(self) -> None:
        """Make the stores; those whose messages read the same rows of sources share a table of these."""
        for place, one in enumerate(self.shape.layer.relations):
            columns = one.source, one.source_columns.start, one.source_columns.stop
            same = self._sharing.setdefault(columns, [])
            z = self.relations[same[0]].store.z if same else None
            ends = self.kinds[one.source].at, self.kinds[one.target].at
            self.relations.append(synopses_of(self.tables, one, ends, self.shape, z))
            same.append(place)
        for kind, vertices in self.kinds.items():
            whole = self._sharing.get((kind, 0, vertices.plan.message_width))
            is_there = whole is not None and vertices.plan.self_is_message
            vertices.keep_own(self.relations[whole[0]].store.z if whole is not None and is_there else None)
            if whole is not None and vertices.keeps_own and vertices.own is not None:
                self._own[whole[0]] = vertices.own

    def _stores_put_selves(self, kind: int) -> bool:
        return any(self.relations[place].plan.source == kind for place in self._own)

    def after_restore(self) -> None:
        """Have the rows of all tables where the restored ones have them."""
        for one in self.kinds.values():
            one.after_restore()
        for relation in self.relations:
            relation.after_restore()
        for one in self.kinds.values():
            one.make_missing()

    @property
    def nbytes(self) -> int:
        """Bytes held by the tables and by the indexes of long lists."""
        return super().nbytes + self._held_by_indexes

    @property
    def _held_by_indexes(self) -> int:
        held = 0
        for one in self.relations:  # no generator: this is asked in each epoch
            held += one.lists.index_bytes
        return held

    @property
    def sums(self) -> SumReport | None:
        """Report on the sums of these parts, if synopses are sums."""
        return all_sums(one.store.report for one in self.relations)

    def apply(self, epoch: int, blocks: list[Block]) -> list[Message]:
        """Merge the messages of an epoch, update the active whole vertices, and hand on what changed."""
        brought = [views(block) for block in blocks]
        topology, sent = EpochTopology(brought), dict[int, SourceRows]()
        for kind, one in self.kinds.items():
            if (section := topology.of(one.prefix)).columns:
                one.take_over(section)
            one.take_degrees(topology)
            if rows := [views[one.prefix] for views in brought if one.prefix in views]:
                sent[kind] = one.read(rows)
        touched, changed = self._merge(epoch, topology, sent)
        messages = self._update(epoch, topology, touched, sent, changed)
        if self.shape.tasks.parts > 1:
            messages += self._partials(epoch, topology, touched, sent)
        self._index_bytes.set(self._held_by_indexes)
        self._clear(topology)
        self._index_bytes.set(self._held_by_indexes)
        return messages

    def _merge(
        self, epoch: int, topology: EpochTopology, sent: dict[int, SourceRows]
    ) -> tuple[list[np.ndarray], Changed | None]:
        """Merge edges and rows; of each relation the targets whose synopses changed, or what is updated behind."""
        every = [EMPTY_SLOTS] * len(self.relations)
        if self.behind is not None and self.behind.takes(epoch, topology):
            touched, changed = self.behind.merge(epoch, topology, next(iter(sent.values()), NO_SOURCES))
            return every if touched is None else [touched], changed
        for (kind, *_), places in self._sharing.items():
            z, sources = self.relations[places[0]].store.z, sent.get(kind, NO_SOURCES)
            shares = len(places) > 1 and sources.slots.size > 0
            before = frozen(gather(z.data, sources.slots.copy())) if shares else None
            for place in places:
                one = self.relations[place]
                if before is not None and place != places[0]:  # each store takes messages back by the old rows
                    put(z.view, sources.slots, before, 0)
                targets = sent.get(one.plan.target, NO_SOURCES)
                touched = one.merge(epoch, topology, sources, targets, self._own.get(place))
                if touched is not None:
                    every[place] = np.sort(touched) if epoch == 0 else touched  # a snapshot's may come in passes
        for kind in self._keeping:
            for slots, rows in sent[kind].selves if kind in sent else ():
                self.kinds[kind].keep_selves(slots, rows)
        return every, None

    def _update(
        self, epoch: int, topology: EpochTopology, touched: list[np.ndarray], sent: dict[int, SourceRows],
        changed: Changed | None,
    ) -> list[Message]:  # fmt: skip
        """UPDATE of the active whole vertices, and what it changes for the next layer or the sink.

        `changed`: what was updated behind the merge.
        """
        handed, self.touched = list[Handed](), 0
        if changed is not None and self.behind is not None:
            handed, self.touched = [Handed(self.behind.prefix, self.owners[0], changed)], self.behind.updated
            return hand_on(handed, self.owners, epoch, topology, last=self.shape.following is None)
        for kind, one in self.kinds.items():
            if one.owner is None:
                continue
            section = topology.of(one.prefix)
            forced, whole_again = one.at.of(section, "m"), one.at.of(section, "u")
            if whole_again.size:
                forced = np.concatenate([forced, whole_again])
            candidates = [*[touched[place] for place in one.plan.relations], forced]
            if one.plan.reads_self and kind in sent:
                candidates.append(sent[kind].masters)
            active = one.choose(epoch, candidates)
            changed = one.new_rows(active, forced, self._into[kind], keep_roots=epoch > 0, dealt=self._deals)
            self.touched += int(active.size)
            handed.append(Handed(one.prefix, one.owner, changed))
        return hand_on(handed, self.owners, epoch, topology, last=self.shape.following is None)

    def _partials(
        self, epoch: int, topology: EpochTopology, touched: list[np.ndarray], sent: dict[int, SourceRows]
    ) -> list[Message]:
        """The partial synopses of touched split vertices, to the tails of their masters."""
        shape, tasks = self.shape, self.shape.tasks
        found: list[Columns] = [{} for _ in range(tasks.tasks)]
        found[shape.task] = topology.share(tasks.parts_of[shape.task], tasks.parts_of[shape.task])
        for kind, one in self.kinds.items():
            if one.owner is None:
                continue
            flags, splits = one.owner.masters.flags.data, one.at.of(topology.of(one.prefix), "s")
            for place in one.plan.relations:
                if (touched[place].size or splits.size) and one.home is not None:
                    relation = self.relations[place]
                    route = partial(route_partials, flags=flags, split=MASTER | SPLIT, home=one.home.data, at=one.at)
                    routed = relation.routed(touched[place], splits, route)
                    for task, columns in enumerate(found):
                        for section in relation.partials(routed, task, tasks):
                            columns |= section
            mine = np.concatenate([sent.get(kind, NO_SOURCES).masters, splits])
            mine = np.unique(mine[flags[mine] == MASTER | SPLIT])
            if mine.size and one.own is not None:
                own = one.at.place_columns("t", mine) | {"t": one.own_rows(mine)}
                found[shape.task] |= prefixed(one.prefix, own)
        header = Header(PARTIAL, epoch, shape.number, shape.task)
        return [Message(TAIL, task, epoch, seal(header, columns)) for task, columns in enumerate(found)]

    def _clear(self, topology: EpochTopology) -> None:
        """Clear the rows of dropped masters and replicas at the end of the epoch."""
        gone = dict[int, np.ndarray]()
        for kind, one in self.kinds.items():
            if (section := topology.of(one.prefix)).columns:
                gone[kind] = one.clear(section)
        for relation in self.relations:
            relation.clear(gone.get(relation.plan.source, EMPTY_SLOTS), gone.get(relation.plan.target, EMPTY_SLOTS))
